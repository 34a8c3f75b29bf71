//! What was erased goes from the file as well: free pages, the space between rows, and the log.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::{Failure, Outcome};
use super::super::{rows, shrink};

/// Under which key of `quipu_meta` it stands that old pages are still to go.
const MARK: &str = "erase.remnants";

/// Whether old pages are still to go.
pub(in crate::sqlite) fn is_marked(connection: &Connection) -> Outcome<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM quipu_meta WHERE key = ?1")?;
    Ok(statement.exists([MARK])?)
}

/// In the transaction that erases.
pub(super) fn mark(connection: &Connection) -> Outcome<()> {
    connection.execute(
        "INSERT OR REPLACE INTO quipu_meta (key, value) VALUES (?1, ?2)",
        params![MARK, rows::now().to_string()],
    )?;
    Ok(())
}

/// Gives back what is free; what an erasure left goes with it, where nobody reads.
pub(in crate::sqlite) fn shrink(connection: &Connection) -> Outcome<u64> {
    let smaller = super::super::shrink::shrink(connection)?;
    if is_marked(connection)? && cut_log(connection)? {
        unmark(connection)?;
    }
    Ok(smaller)
}

/// Whether nothing is in the log any more.
fn cut_log(connection: &Connection) -> Outcome<bool> {
    // In memory there is no log.
    let busy: Option<i64> =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).optional()?;
    Ok(busy.is_none_or(|busy| busy == 0))
}

fn unmark(connection: &Connection) -> Outcome<()> {
    connection.execute("DELETE FROM quipu_meta WHERE key = ?1", [MARK])?;
    Ok(())
}

/// Outside any transaction. Writes the file anew and cuts the log; says why old pages are still there, where they are.
pub(super) fn scrub(connection: &Connection) -> Outcome<Option<String>> {
    match shrink::shrink(connection) {
        Ok(_) => {}
        Err(Failure::Sql(error)) => {
            let told = "could not rewrite the file, so its old pages still contain the erased text";
            return Ok(Some(format!(
                "{told}: {error}; free some space, end other programs that use it, and erase again"
            )));
        }
        Err(other) => return Err(other),
    }
    if !cut_log(connection)? {
        return Ok(Some(
            "another process is reading the store, so its write-ahead log still contains the erased text; erase again \
             when that process is done".into(),
        ));
    }
    unmark(connection)?;
    Ok(None)
}

/// Runs work in one transaction, in which what is removed is overwritten.
pub(super) fn transaction<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Outcome<T>,
) -> Outcome<T> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let (before, synchronous) = (number("PRAGMA secure_delete")?, number("PRAGMA synchronous")?);
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
    let done = connection.execute_batch("BEGIN IMMEDIATE").map_err(Failure::from).and_then(|()| {
        let done = work(connection);
        connection.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        done
    });
    if done.is_err() && !connection.is_autocommit() {
        // The error that stopped us is the one to tell.
        connection.execute_batch("ROLLBACK").ok();
    }
    let after = if before == 0 { "OFF" } else { "ON" };
    connection.query_row(&format!("PRAGMA secure_delete = {after}"), [], |_| Ok(()))?;
    connection.execute_batch(&format!("PRAGMA synchronous = {synchronous}"))?;
    done
}
