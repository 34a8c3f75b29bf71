//! The action log, and which of its rows belong to which sessions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use quipu_protocol::NodeId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::forest::mark;
use super::places::{self, position};
use super::{graph, rows};
use crate::{Action, ActionQuery, LoggedAction};

/// In the place of a session: up to where rows were looked at.
const CURSOR: i64 = -1;
/// In the place of a session: rows with a node that had no place when they were looked at.
const UNPLACED: i64 = -2;
/// In the place of a session: rows with nodes of none.
const NONE: i64 = 0;

const ROW: &str = "SELECT id, timestamp, action_type, from_node, to_node, metadata FROM action_log";

/// The action log, newest first.
pub(super) fn find(connection: &Connection, query: &ActionQuery) -> Outcome<Vec<LoggedAction>> {
    let before = query.before.unwrap_or(i64::MAX);
    let limit = query.limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let Some(sessions) = sessions(connection, query)? else {
        newest(connection, 0, before, query, None, limit, &mut found)?;
        return Ok(found);
    };
    // Rows that are not looked at yet are few.
    let cursor = cursor(connection)?;
    newest(connection, cursor, before, query, Some(&sessions), limit, &mut found)?;
    let mut ids = BTreeSet::new();
    let mut of_session = connection.prepare_cached(
        "SELECT seq FROM quipu_x_mark WHERE session = ?1 AND kind = ?2 AND seq < ?3 AND seq <= ?4",
    )?;
    for session in &sessions {
        let mut listed = of_session.query(params![session, mark::ACTION, before, cursor])?;
        while let Some(row) = listed.next()? {
            ids.insert(rows::integer(row, 0)?);
        }
    }
    let mut by_id = connection.prepare_cached(&format!("{ROW} WHERE id = ?1"))?;
    for id in ids.into_iter().rev() {
        if found.len() >= limit {
            break;
        }
        let mut row = by_id.query([id])?;
        if let Some(row) = row.next()? {
            found.extend(fitting(connection, row, query, Some(&sessions))?);
        }
    }
    Ok(found)
}

/// Rows between two numbers, without both, one by one.
fn newest(
    connection: &Connection,
    after: i64,
    before: i64,
    query: &ActionQuery,
    sessions: Option<&BTreeSet<i64>>,
    limit: usize,
    found: &mut Vec<LoggedAction>,
) -> Outcome<()> {
    let mut statement =
        connection.prepare_cached(&format!("{ROW} WHERE id > ?1 AND id < ?2 ORDER BY id DESC"))?;
    let mut rows = statement.query([after, before])?;
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        found.extend(fitting(connection, row, query, sessions)?);
    }
    Ok(())
}

/// The row, when it is one of those that are asked for.
fn fitting(
    connection: &Connection,
    row: &rusqlite::Row<'_>,
    query: &ActionQuery,
    sessions: Option<&BTreeSet<i64>>,
) -> Outcome<Option<LoggedAction>> {
    let kind = rows::text(row, 2)?.unwrap_or_default().into_owned();
    if !query.kinds.is_empty() && !query.kinds.contains(&kind) {
        return Ok(None);
    }
    let (from, to) = (rows::node_id(row, 3)?, rows::node_id(row, 4)?);
    if let Some(sessions) = sessions
        && places(connection, from, to)?.is_disjoint(sessions)
    {
        return Ok(None);
    }
    let mut left = false;
    if let Some(head) = &query.lineage {
        let on = |node: &NodeId| graph::is_ancestor(connection, node, head);
        let reached = match &to {
            Some(to) => on(to)?,
            None => false,
        };
        if !reached {
            // Who leaves a lineage does so from a node that is on it, or from one that says so right below.
            left = match &from {
                Some(from) if query.left => match on(from)? {
                    true => true,
                    false => match rows::find_node(connection, from)?.and_then(|node| node.record.parent) {
                        Some(parent) => on(&parent)?,
                        None => false,
                    },
                },
                _ => false,
            };
            if !left {
                return Ok(None);
            }
        }
    }
    let timestamp = rows::integer(row, 1)?;
    let metadata = rows::text(row, 5)?.map(Cow::into_owned);
    let action = Action { timestamp, kind, from, to, metadata };
    Ok(Some(LoggedAction { id: rows::integer(row, 0)?, action, left }))
}

/// The numbers of the sessions whose rows can be among those that are asked for; `None` for all.
fn sessions(connection: &Connection, query: &ActionQuery) -> Outcome<Option<BTreeSet<i64>>> {
    let mut numbers = BTreeSet::new();
    if let Some(project) = &query.project {
        let mut statement =
            connection.prepare_cached("SELECT num FROM quipu_x_session WHERE project = ?1")?;
        let mut found = statement.query([project])?;
        while let Some(row) = found.next()? {
            numbers.insert(rows::integer(row, 0)?);
        }
        return Ok(Some(numbers));
    }
    if let Some(session) = &query.session {
        let mut statement = connection.prepare_cached("SELECT num FROM quipu_x_session WHERE id = ?1")?;
        let mut found = statement.query([session.as_str()])?;
        while let Some(row) = found.next()? {
            numbers.insert(rows::integer(row, 0)?);
        }
        return Ok(Some(numbers));
    }
    let Some(head) = &query.lineage else { return Ok(None) };
    // One that is not indexed can be compared with any row.
    let Some(mut at) = position(connection, head)? else { return Ok(None) };
    // Where the index has no place for a node, the graph decides.
    numbers.insert(UNPLACED);
    // A session's number is that of its first node, and before that comes the session that it was forked from.
    loop {
        let Some(session) = at.session else {
            numbers.insert(NONE);
            return Ok(Some(numbers));
        };
        if !numbers.insert(session) {
            return Ok(Some(numbers));
        }
        let first = places::at(connection, session)?;
        if first.parent == first.seq {
            return Ok(Some(numbers));
        }
        at = places::at(connection, first.parent)?;
    }
}

/// In which sessions a row is found.
fn places(connection: &Connection, from: Option<NodeId>, to: Option<NodeId>) -> Outcome<BTreeSet<i64>> {
    let mut places = BTreeSet::new();
    for node in [from, to].into_iter().flatten() {
        places.insert(match position(connection, &node)? {
            Some(position) => position.session.unwrap_or(NONE),
            None => UNPLACED,
        });
    }
    Ok(places)
}

fn cursor(connection: &Connection) -> Outcome<i64> {
    let mut statement = connection
        .prepare_cached("SELECT at FROM quipu_x_mark WHERE session = ?1 AND kind = ?2 AND seq = 0")?;
    Ok(statement.query_row([CURSOR, mark::ACTION], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Notes up to `limit` more rows with their sessions; says whether more may be left. Within the caller's transaction,
/// once the nodes are indexed.
pub(super) fn advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    let from = cursor(connection)?;
    let mut statement = connection.prepare_cached(
        "SELECT id, timestamp, from_node, to_node FROM action_log WHERE id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_mark VALUES (?1, ?2, ?3, ?4, NULL, NULL)")?;
    let mut found = statement.query(params![from, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut last, mut taken) = (from, 0);
    while let Some(row) = found.next()? {
        (last, taken) = (rows::integer(row, 0)?, taken + 1);
        for place in places(connection, rows::node_id(row, 2)?, rows::node_id(row, 3)?)? {
            put.execute(params![place, mark::ACTION, last, rows::integer(row, 1)?])?;
        }
    }
    if last != from {
        put.execute(params![CURSOR, mark::ACTION, 0, last])?;
    }
    Ok(taken == limit)
}
