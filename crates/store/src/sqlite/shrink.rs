//! Room that is free in the file is given back: the file is written anew without it.

use rusqlite::Connection;

use super::failure::Outcome;
use super::schema;

/// Bytes of the file in which nothing stands.
pub(super) fn free(connection: &Connection) -> Outcome<u64> {
    bytes_of(connection, "PRAGMA freelist_count")
}

/// Bytes of so many pages as this says.
fn bytes_of(connection: &Connection, pragma: &str) -> Outcome<u64> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    Ok(number(pragma)?.unsigned_abs() * number("PRAGMA page_size")?.unsigned_abs())
}

/// Outside any transaction. Gives by how many bytes the file is smaller then. A crash leaves it as it was, or done.
pub(super) fn shrink(connection: &Connection) -> Outcome<u64> {
    let before = bytes_of(connection, "PRAGMA page_count")?;
    // The copy that is made meanwhile may be larger than memory.
    connection.execute_batch("PRAGMA temp_store = FILE")?;
    let done = write_anew(connection);
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    done?;
    Ok(before.saturating_sub(bytes_of(connection, "PRAGMA page_count")?))
}

fn write_anew(connection: &Connection) -> Outcome<()> {
    let before = numbers(connection)?;
    connection.execute_batch("VACUUM")?;
    // Derived tables name nodes by the numbers of their rows, which stay in practice; nobody promises it.
    if numbers(connection)? != before {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let done = schema::reset_derived(connection);
        connection.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        done?;
    }
    // Others who read are no error: whoever copies the WAL last cuts the file.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// What changes when rows are numbered anew in their order: then there are no gaps any more.
fn numbers(connection: &Connection) -> Outcome<(i64, i64)> {
    let query = "SELECT count(*), coalesce(max(rowid), 0) FROM nodes";
    Ok(connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
}
