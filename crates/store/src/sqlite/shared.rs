//! The shared memory beside the file: a part of this process, which ends with a signal when it looks at what somebody cut off.
//!
//! All connections of this process to one store stand in a list here. Whoever is to use one looks first whether the memory is
//! as long as it was. If not, all are closed before any is used, and the next makes the memory anew from the log, as after a
//! crash, under SQLite's own locks. What is cut off while a connection is at work still ends the process.

use crate::error::system_error;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use nix::fcntl::OFlag;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::file;
use crate::StoreError;

/// By the paths of the stores: SQLite maps the memory once for all connections of a process.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// Where a connection rests while it is not used.
pub(super) type Slot = Arc<Mutex<Option<Connection>>>;

/// SQLite maps the memory in pieces of this size.
const PIECE: u64 = 32_768;
/// Pages of the log that the first piece tells of, beside a header, and each further one.
const FIRST_PAGES: u64 = 4_062;
const PAGES: u64 = 4_096;
/// Of the header: whether it was made, and the last page of the log. Numbers stand as the machine has them.
const HEADER: usize = 48;
const IS_MADE: usize = 12;
const LAST_PAGE: usize = 16;

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
    /// `None` while nothing of this process has it open.
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
    pub(super) fn hold(&self) -> Result<Held<'_>, StoreError> {
        loop {
            let guard = self.users.read().unwrap_or_else(PoisonError::into_inner);
            if !self.is_cut() {
                return Ok(Held { shared: self, _guard: guard });
            }
            drop(guard);
            self.close_all()?;
        }
    }

    /// A connection was opened: the first to open it makes it anew, shorter than it may have been.
    pub(super) fn opened(&self) {
        *lock(&self.seen) = self.look();
    }

    fn look(&self) -> Option<Seen> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        Some(Seen { identity: (found.dev(), found.ino()), size: found.len() })
    }

    /// While anybody has it open, nobody who means well makes it shorter. Another file under its name is told elsewhere.
    fn is_cut(&self) -> bool {
        let before = *lock(&self.seen);
        let (Some(before), Some(now)) = (before, self.look()) else { return false };
        before.identity == now.identity && before.size > now.size
    }

    fn close_all(&self) -> Result<(), StoreError> {
        let _alone = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_cut() {
            return Ok(());
        }
        let rested = lock(&self.slots).iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let open: Vec<_> = rested.iter().filter_map(|slot| lock(slot).take()).collect();
        // Before they are closed: until then no other process takes itself for the first, which makes all of it anew. What
        // nothing here has open is left to those who have.
        let emptied = if open.is_empty() { Ok(None) } else { self.empty_if_short() };
        for connection in open {
            // Without a look at the memory.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok();
        }
        // Closed after them: it would cost them their locks.
        let _file = emptied.map_err(|error| system_error(&self.path, "recreate", &error))?;
        *lock(&self.seen) = None;
        Ok(())
    }

    /// What is left of it may still say that it is whole, to processes that have it open as well: they would read old pages.
    /// Another process may have made it anew by now, as long as it needs to be: then it is left alone.
    fn empty_if_short(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
        let mut file = match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut header = Vec::with_capacity(HEADER);
        (&mut file).take(HEADER as u64).read_to_end(&mut header)?;
        if is_short(&header, file.metadata()?.len()) {
            file.set_len(0)?;
        }
        Ok(Some(file))
    }
}

/// Whether memory of this size lacks some of what its header promises. Without a header it is made before it is used.
fn is_short(header: &[u8], size: u64) -> bool {
    if size < PIECE {
        return size > 0;
    }
    let is_made = header.get(IS_MADE).is_some_and(|made| *made != 0);
    let last = header.get(LAST_PAGE..LAST_PAGE + 4).and_then(|bytes| bytes.try_into().ok());
    let last = u64::from(u32::from_ne_bytes(last.unwrap_or_default()));
    is_made && size < PIECE * (1 + last.saturating_sub(FIRST_PAGES).div_ceil(PAGES))
}

/// The memory is in use.
pub(super) struct Held<'a> {
    shared: &'a Shared,
    _guard: RwLockReadGuard<'a, ()>,
}

impl Drop for Held<'_> {
    /// It may have grown: what is cut off of that in a quiet moment is noticed as well.
    fn drop(&mut self) {
        let now = self.shared.look();
        if let (Some(before), Some(now)) = (&mut *lock(&self.shared.seen), now)
            && before.identity == now.identity
        {
            before.size = before.size.max(now.size);
        }
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(is_made: u8, last: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[IS_MADE] = is_made;
        header[LAST_PAGE..LAST_PAGE + 4].copy_from_slice(&last.to_ne_bytes());
        header
    }

    #[test]
    fn memory_is_short_when_its_header_promises_more() {
        for (made, last, size, short) in [
            (1, 0, PIECE, false),
            (1, 4_062, PIECE, false),
            (1, 4_063, PIECE, true),
            (1, 4_063, 2 * PIECE, false),
            (1, 8_158, 2 * PIECE, false),
            (1, 8_159, 2 * PIECE, true),
            (0, 9_000, PIECE, false),
            (1, 1, PIECE - 1, true),
            (1, 1, 0, false),
        ] {
            assert_eq!(is_short(&header(made, last), size), short, "{made} {last} {size}");
        }
    }

    #[test]
    fn header_is_read_as_sqlite_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1)")
            .unwrap();
        let frames: u32 = writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap();
        let memory = fs::read(file::beside(&path, "-shm")).unwrap();
        assert_ne!(memory[IS_MADE], 0);
        assert_eq!(memory[LAST_PAGE..LAST_PAGE + 4], frames.to_ne_bytes());
    }
}
