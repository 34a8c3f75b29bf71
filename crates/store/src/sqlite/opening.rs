//! The connection that writes, when a store is opened.

use std::path::Path;

use rusqlite::Connection;

use super::connect::{self, Patience};
use super::failure::{Failure, Outcome};
use super::{file, schema};

pub(super) fn open_for_writing(path: &Path, patience: &Patience) -> Outcome<Connection> {
    let connection = connect::read_write(path, patience)?;
    connect::probe(&connection)?;
    if connection.is_readonly("main")? {
        return Err(read_only_failure());
    }
    let is_new = file::size(path) == 0;
    if is_new {
        // Nothing is in it that a loss of power could cost: what is made now is synced together, at the end.
        connection.execute_batch("PRAGMA synchronous = OFF")?;
        connect::write_ahead(&connection, patience)?;
        connection.execute_batch("PRAGMA synchronous = NORMAL")?;
    }
    schema::bring_up_to_date(&connection, path, patience)?;
    if is_new {
        // Without its first page in place, the WAL would not be read after a loss of power.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    connect::write_ahead(&connection, patience)?;
    Ok(connection)
}

fn read_only_failure() -> Failure {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
    Failure::Sql(rusqlite::Error::SqliteFailure(code, None))
}
