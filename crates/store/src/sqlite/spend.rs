//! What was spent when: derived from the nodes whose answers we were charged for, added up by quarter hours of UTC.
//! Calendar days begin on a quarter hour in every time zone in use, so any day is at most a hundred rows, and what
//! stands here does not depend on where it was written.

use quipu_protocol::UnixMs;
use rusqlite::{Connection, params};

use super::failure::Outcome;

/// Milliseconds of one row.
pub(super) const SLOT: i64 = 15 * 60 * 1000;

/// Adds the cost of an answer, in billionths of a US dollar. Within the caller's transaction.
pub(super) fn add(connection: &Connection, at: UnixMs, cost: i64) -> Outcome<()> {
    connection
        .prepare_cached(
            "INSERT INTO quipu_x_spend (slot, cost) VALUES (?1, ?2) \
             ON CONFLICT (slot) DO UPDATE SET cost = min(cost + excluded.cost, 1000000000000000000)",
        )?
        .execute(params![at.div_euclid(SLOT), cost])?;
    Ok(())
}

/// US dollars since then, the whole of its quarter hour included.
pub(super) fn since(connection: &Connection, from: UnixMs) -> Outcome<f64> {
    let spent: f64 = connection
        .prepare_cached("SELECT total(cost) FROM quipu_x_spend WHERE slot >= ?1")?
        .query_row([from.div_euclid(SLOT)], |row| row.get(0))?;
    Ok(spent / 1e9)
}
