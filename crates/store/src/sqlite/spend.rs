//! What was spent when: derived from the nodes whose answers we were charged for, added up by quarter hours of UTC.
//! Calendar days begin on a quarter hour in every time zone in use, so any day is at most a hundred rows, and what
//! stands here does not depend on where it was written.

use quipu_protocol::UnixMs;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::costs::SLOT;
use super::failure::Outcome;
use super::index;
use crate::{Reservation, ReserveId, ReserveRequest};

/// What is counted of an account at most.
const SPENT_LIMIT: i64 = 1_000_000_000_000_000_000;

/// US dollars since then, the whole of its quarter hour included.
pub(super) fn since(connection: &Connection, from: UnixMs) -> Outcome<f64> {
    let spent: f64 = connection
        .prepare_cached("SELECT total(cost) FROM quipu_x_spend WHERE slot >= ?1")?
        .query_row([from.div_euclid(SLOT)], |row| row.get(0))?;
    Ok(spent / 1e9)
}

/// US dollars since then of calls that nobody holds anything for any more, and whose cost no node tells.
pub(super) fn assumed(connection: &Connection, from: UnixMs, now: UnixMs) -> Outcome<f64> {
    Ok(lost_or_spent(connection, "", from, now)? / 1e9)
}

/// What was spent of an account since then.
pub(super) fn spent_of(connection: &Connection, account: &str, from: UnixMs, now: UnixMs) -> Outcome<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    Ok(lost_or_spent(connection, &format!("{account}/"), from, now)?.min(1e18) as i64)
}

/// What nobody holds any more.
fn lost_or_spent(connection: &Connection, of: &str, from: UnixMs, now: UnixMs) -> Outcome<f64> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'quipu_reserve'";
    // A file of an older version that cannot be written has none.
    let has_table: bool = connection.prepare_cached(known)?.query_row([], |row| row.get(0))?;
    if !has_table {
        return Ok(0.0);
    }
    let amount = connection
        .prepare_cached(
            "SELECT total(amount) FROM quipu_reserve \
             WHERE at >= ?1 AND expires <= ?2 AND substr(id, 1, instr(id, '/')) = ?3",
        )?
        .query_row(params![from, now, of], |row| row.get(0))?;
    Ok(amount)
}

/// Nodes that are indexed at a time before what they cost is known.
const BATCH: usize = 256;
/// How long what was used stays behind the day: for other processes it began at another time, and clocks are set back.
const KEPT: i64 = 3 * 24 * 60 * 60 * 1_000;

/// Reserves what a call may cost, when it fits. Within the caller's transaction, in which nobody else can write.
pub(super) fn reserve(connection: &Connection, ask: &ReserveRequest) -> Outcome<Reservation> {
    while index::advance_or_renew(connection, BATCH)? {}
    let purpose = ask.id.purpose().unwrap_or_default();
    let total = |query: &str, from: i64| -> Outcome<i64> {
        let mut statement = connection.prepare_cached(query)?;
        Ok(statement.query_row(params![from, ask.now, ask.id.0, purpose], |row| row.get(0))?)
    };
    // Those that nobody renewed: what came of their calls is not known, so that all of it may have been charged. And what
    // calls that are over may have cost besides what their nodes tell.
    let lost = "SELECT CAST(min(total(amount), 1e18) AS INTEGER) FROM quipu_reserve \
                WHERE at >= ?1 AND expires <= ?2 AND id <> ?3 AND substr(id, 1, instr(id, '/')) = ?4";
    let held = "SELECT CAST(min(total(amount), 1e18) AS INTEGER) FROM quipu_reserve \
                WHERE (?1 = ?1) AND expires > ?2 AND id <> ?3 AND substr(id, 1, instr(id, '/')) = ?4";
    let known: i64 = match purpose {
        "" => connection
            .prepare_cached(
                "SELECT CAST(min(total(cost), 1e18) AS INTEGER) FROM quipu_x_spend WHERE slot >= ?1",
            )?
            .query_row([ask.since.div_euclid(SLOT)], |row| row.get(0))?,
        // Who asks knows it.
        _ => 0,
    };
    let spent = known.saturating_add(total(lost, ask.since)?).saturating_add(ask.elsewhere);
    let others = total(held, ask.since)?;
    let alone = ask.limit.saturating_sub(spent);
    let left = alone.saturating_sub(others);
    let granted = if ask.full <= left {
        Some(ask.full)
    } else {
        // Less than that only where waiting for others would not help, or was tried.
        (ask.least <= left && (ask.full > alone || ask.settles)).then_some(left)
    };
    let granted = granted.filter(|_| spent < ask.limit);
    connection
        .prepare_cached("DELETE FROM quipu_reserve WHERE expires <= ?1 AND at < ?2")?
        .execute(params![ask.now, ask.since.saturating_sub(KEPT)])?;
    if let Some(amount) = granted {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO quipu_reserve (id, at, expires, amount) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![ask.id.0, ask.now, ask.expires, amount])?;
    }
    Ok(Reservation { granted, spent, others })
}

/// The call is still under way.
pub(super) fn renew(connection: &Connection, id: &ReserveId, expires: UnixMs) -> Outcome<()> {
    connection
        .prepare_cached("UPDATE quipu_reserve SET expires = ?2 WHERE id = ?1")?
        .execute(params![id.0, expires])?;
    Ok(())
}

/// The call is over, and so much was spent of its account. An account has a row for each quarter hour, of which days consist.
pub(super) fn spend(connection: &Connection, id: &ReserveId, amount: i64) -> Outcome<()> {
    let at: Option<i64> = connection
        .prepare_cached("DELETE FROM quipu_reserve WHERE id = ?1 RETURNING at")?
        .query_row([&id.0], |row| row.get(0))
        .optional()?;
    let (Some(at), Some(account)) = (at, id.purpose()) else { return Ok(()) };
    if amount > 0 {
        let slot = at.div_euclid(SLOT);
        connection
            .prepare_cached(
                "INSERT INTO quipu_reserve (id, at, expires, amount) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (id) DO UPDATE SET amount = min(amount + excluded.amount, 1000000000000000000)",
            )?
            .execute(params![format!("{account}={slot}"), slot * SLOT, i64::MIN, amount.min(SPENT_LIMIT)])?;
    }
    Ok(())
}

/// The call is over. What it may have cost besides what its node tells counts as spent.
pub(super) fn release(connection: &Connection, id: &ReserveId, charged: i64) -> Outcome<()> {
    if charged > 0 {
        connection
            .prepare_cached("UPDATE quipu_reserve SET expires = ?2, amount = ?3 WHERE id = ?1")?
            .execute(params![id.0, i64::MIN, charged])?;
    } else {
        connection.prepare_cached("DELETE FROM quipu_reserve WHERE id = ?1")?.execute([&id.0])?;
    }
    Ok(())
}
