//! The numbers by which one state of the store is told from another.

use rusqlite::Connection;

use super::failure::Outcome;
use crate::Revision;

/// Nodes, moves of refs, how far activity is indexed, and what was erased.
pub(super) fn revision(connection: &Connection) -> Outcome<Revision> {
    let mut statement = connection.prepare_cached(
        "SELECT (SELECT coalesce(max(rowid), 0) FROM nodes), (SELECT coalesce(max(id), 0) FROM quipu_reflog), \
         (SELECT count(*) FROM quipu_erased), (SELECT coalesce(max(at), 0) FROM quipu_erased), \
         (SELECT coalesce(max(id), 0) FROM action_log)",
    )?;
    let mut numbers = [0; 6];
    statement.query_row([], |row| {
        for (at, number) in numbers.iter_mut().take(5).enumerate() {
            *number = row.get(at)?;
        }
        Ok(())
    })?;
    numbers[5] = super::activity::behind(connection)?.cast_signed();
    Ok(Revision(numbers))
}
