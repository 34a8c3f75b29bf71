//! The shared memory beside the file: a part of this process, which ends with a signal when it looks at what somebody cut off.
//!
//! All connections of this process to one store stand in a list here. Whoever is to use one looks first whether the memory is
//! as long as it was. If not, all are closed before any is used, and the next makes the memory anew from the log, as after a
//! crash, under SQLite's own locks. What is cut off while a connection is at work still ends the process.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::file;
use crate::StoreError;

/// By the paths of the stores: SQLite maps the memory once for all connections of a process.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// Where a connection rests while it is not used.
pub(super) type Slot = Arc<Mutex<Option<Connection>>>;

/// What was seen of the memory last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    identity: (u64, u64),
    size: u64,
}

/// The shared memory of a store, and who uses it.
pub(super) struct Shared {
    path: PathBuf,
    /// Read by who uses a connection, written by who closes all.
    users: RwLock<()>,
    seen: Mutex<Option<Seen>>,
    slots: Mutex<Vec<Weak<Mutex<Option<Connection>>>>>,
}

impl Shared {
    /// Of the store at `path`.
    pub(super) fn of(path: &Path) -> Arc<Self> {
        let mut open = lock(&OPEN);
        if let Some(shared) = open.get(path).and_then(Weak::upgrade) {
            return shared;
        }
        open.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::new(Self {
            path: file::beside(path, "-shm"),
            users: RwLock::default(),
            seen: Mutex::default(),
            slots: Mutex::default(),
        });
        open.insert(path.to_owned(), Arc::downgrade(&shared));
        shared
    }

    /// A place for one more connection.
    pub(super) fn slot(&self) -> Slot {
        let slot = Slot::default();
        let mut slots = lock(&self.slots);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        slot
    }

    /// The memory can be used until the guard is dropped. A connection comes out of its slot afterwards, and goes back before.
    ///
    /// # Errors
    /// `Io` when the memory was cut short and cannot be made anew.
    pub(super) fn hold(&self) -> Result<RwLockReadGuard<'_, ()>, StoreError> {
        loop {
            let guard = self.users.read().unwrap_or_else(PoisonError::into_inner);
            // Of what nobody of this process has open, SQLite makes a new one.
            let is_used = lock(&self.slots).iter().any(|slot| slot.strong_count() > 0);
            if !is_used || !self.is_cut() {
                return Ok(guard);
            }
            drop(guard);
            self.close_all()?;
        }
    }

    /// A connection was opened or closed: the first to open it makes it anew, and the last to close it removes it.
    pub(super) fn forget(&self) {
        *lock(&self.seen) = None;
    }

    /// While anybody has it open, nobody who means well makes it shorter.
    fn is_cut(&self) -> bool {
        let Ok(found) = fs::symlink_metadata(&self.path) else { return false };
        let now = Seen { identity: (found.dev(), found.ino()), size: found.len() };
        let mut seen = lock(&self.seen);
        match &mut *seen {
            // Another one: the names are looked at elsewhere.
            Some(before) if before.identity != now.identity => false,
            Some(before) if before.size > now.size => true,
            other => {
                *other = Some(now);
                false
            }
        }
    }

    fn close_all(&self) -> Result<(), StoreError> {
        let _alone = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_cut() {
            return Ok(());
        }
        for slot in lock(&self.slots).iter().filter_map(Weak::upgrade) {
            if let Some(connection) = lock(&slot).take() {
                // Without a look at the memory.
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok();
            }
        }
        // What is left of it still says that it is whole, to processes that have it open as well: they would read old pages. By
        // its path: to close it would cost other connections their locks.
        let emptied = match file::size(&self.path) {
            0 => Ok(()),
            _ => nix::unistd::truncate(&self.path, 0),
        };
        match emptied {
            Ok(()) | Err(nix::errno::Errno::ENOENT) => {
                self.forget();
                Ok(())
            }
            Err(error) => Err(file::system(&self.path, "make anew", &error.into())),
        }
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
