//! What answers cost, added up by quarter hours of UTC: calendar days begin on a quarter hour in every time zone in use, so any
//! day is at most a hundred rows, and what stands here does not depend on where it was written.

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

#[expect(clippy::cast_possible_truncation, reason = "clamped; a float that is no number becomes 0")]
pub(super) fn nano_dollars(dollars: f64) -> i64 {
    (dollars.clamp(0.0, 1e9) * 1e9).round() as i64
}
