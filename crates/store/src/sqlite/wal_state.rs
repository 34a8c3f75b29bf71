//! Whether a WAL was cut short in place while it is in use. What is written on behind the gap is found by nobody after a crash,
//! and what is copied out of it would be a part of a step.

use std::path::Path;

use rusqlite::Connection;

use super::file;

/// Of a WAL: its header, and what stands before each page.
const WAL_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
/// Looks at a WAL that others change meanwhile.
const LOOKS: usize = 8;

/// Whether a WAL is as long as its index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalState {
    /// It is, or cannot be looked at.
    Whole,
    /// It is not.
    Cut {
        /// Whether the file holds all that it held.
        is_copied: bool,
        /// Whether what is left of it is all in the file: played back, it would undo a part of what came later.
        is_stale: bool,
    },
}

/// Looks at the WAL of a connection, outside any transaction. Takes no lock, unless the WAL seems to be cut short.
pub(super) fn inspect_wal(connection: &Connection, wal: &Path) -> WalState {
    look(connection, wal).unwrap_or(WalState::Whole)
}

/// Changes with each change of the index; `None` where too much is gone.
fn version_of(connection: &Connection) -> Option<i64> {
    connection.query_row("PRAGMA data_version", [], |row| row.get(0)).ok()
}

fn look(connection: &Connection, wal: &Path) -> rusqlite::Result<WalState> {
    let mut count = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let mut count = || {
        count.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))).map(|(all, copied)| {
            // No WAL: -1.
            (u64::try_from(all).unwrap_or_default(), u64::try_from(copied).unwrap_or_default())
        })
    };
    let mut before = count()?;
    if before.0 == 0 {
        return Ok(WalState::Whole);
    }
    let page: i64 = connection.prepare_cached("PRAGMA page_size")?.query_row([], |row| row.get(0))?;
    let length = |frames: u64| WAL_HEADER + frames * (FRAME_HEADER + page.unsigned_abs());
    for _ in 0..LOOKS {
        let (all, copied) = before;
        let size = file::size(wal);
        if all == 0 || size >= length(all) {
            return Ok(WalState::Whole);
        }
        // Another process may have emptied it between the two, and filled it again since then: the version tells.
        let version = version_of(connection);
        before = count()?;
        let size = file::size(wal);
        if before == (all, copied) && size < length(all) && version_of(connection) == version {
            return Ok(WalState::Cut {
                is_copied: all == copied,
                is_stale: size > 0 && size < length(copied),
            });
        }
    }
    Ok(WalState::Whole)
}
