//! Files that lost their names, and WALs that were cut short: what was acknowledged is saved, and told.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;

use super::super::wal_state::{WalState, inspect_wal};
use super::super::watch::{LostName, Names};
use super::super::{file, rows};
use super::State;
use crate::StoreError;

impl State {
    /// What keeps commits from being where others find them; what was acknowledged is saved then, as far as it can be.
    pub(super) fn loss(&mut self) -> Option<StoreError> {
        let loss = match self.names() {
            Names::Lost(lost) => Some(self.save(lost)),
            Names::Kept if self.is_wal_cut() => {
                self.recover();
                let (path, recovered) = (self.place.path.clone(), self.recovered.clone());
                Some(StoreError::Cut { wal: file::sibling_path(&path, "-wal"), path, recovered })
            }
            Names::Kept => None,
        };
        self.in_place.store(loss.is_none(), Ordering::Relaxed);
        loss
    }

    /// Once: nothing is committed until all is in order again.
    fn recover(&mut self) {
        if self.recovered.is_none() {
            self.recovered =
                self.connection.as_ref().and_then(|connection| recover(connection, &self.place.path));
        }
    }

    /// Whether the WAL was cut short, and with it what the file does not hold. Where the file holds everything, the WAL is
    /// begun anew: what is written behind a gap would be found by nobody after a crash.
    pub(super) fn is_wal_cut(&mut self) -> bool {
        if self.memory {
            return false;
        }
        let Some(connection) = &self.connection else { return false };
        let wal = file::sibling_path(&self.place.path, "-wal");
        let WalState::Cut { is_copied, is_stale } = inspect_wal(connection, &wal) else { return false };
        if !is_copied {
            if is_stale {
                // Played back by whoever opens the store next, it would undo a part of what the file holds. By its path: to
                // close it would cost SQLite its locks.
                nix::unistd::truncate(&wal, 0).ok();
            }
            return true;
        }
        self.patience.set(self.place.busy.min(Duration::from_secs(2)));
        let begun = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
            .unwrap_or(false);
        self.patience.set(self.place.busy);
        !begun
    }

    /// Copies what is committed into the file, where only our own connection can still reach it, and says what
    /// happened.
    pub(super) fn save(&mut self, lost: LostName) -> StoreError {
        self.patience.set(self.place.busy.min(Duration::from_secs(2)));
        // Waits for readers that are in the way.
        let copied = self.connection.as_ref().filter(|_| lost.can_be_copied).is_some_and(|connection| {
            let copied = connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| {
                Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
            });
            copied.unwrap_or(false)
        });
        self.patience.set(self.place.busy);
        let path = self.place.path.clone();
        // Who opened a file that took its place shares our WAL: then what we see lacks what they copied out of it.
        if lost.path == path && lost.can_be_copied {
            self.recover();
        }
        let recovered = self.recovered.clone().filter(|_| lost.path == path);
        StoreError::Replaced { path, lost: lost.path, saved: copied || lost.wal_is_kept, recovered }
    }

    /// Closes the connection. The last one copies the WAL into the file and removes it by its name: not where that
    /// name leads to something else, and not where some of it is gone.
    pub(super) fn disconnect(&mut self) {
        let mut lost = self.names() != Names::Kept;
        if !lost && self.is_wal_cut() {
            // Nobody is left to be told, but the copy is.
            self.recover();
            lost = true;
        }
        let connection = self.connection.take();
        self.rests = false;
        if !lost {
            self.watch.closed();
        } else if let Some(connection) = connection {
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok();
        }
    }
}

/// Writes what the connection still sees of a file that lost its name to a new file beside it; `None` where that does not
/// succeed as a whole. What stands under the old name is not touched.
fn recover(connection: &Connection, path: &Path) -> Option<PathBuf> {
    let to = file::sibling_path(path, &format!(".recovered-{}", rows::now()));
    // Made first, so that nobody else can read it, and nothing is written over.
    file::create_private(&to).ok()?;
    // Page by page: what is derived refers to rows by their numbers.
    let copied = Connection::open(&to).and_then(|mut copy| {
        let done = Backup::new(connection, &mut copy)?.step(-1)?;
        Ok(done == StepResult::Done)
    });
    let written = copied.and_then(|done| {
        let copy = Connection::open(&to)?;
        let said = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?;
        Ok(if done { said } else { String::new() })
    });
    if written.is_ok_and(|said| said == "ok")
        && std::fs::File::open(&to).and_then(|file| file.sync_all()).is_ok()
    {
        return Some(to);
    }
    std::fs::remove_file(&to).ok();
    None
}
