//! Refs, sessions, and what a session left open.

use quipu_protocol::{Json, NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::commit::{read_call, read_state};
use super::failure::{Failure, Outcome};
use super::rows;
use crate::{
    Head, InboxItem, LoggedMove, OpenJump, OpenWork, RefChanges, RefLogPlace, RefName, ReflogQuery,
    SessionQuery, SessionRow, Step,
};

/// Where a ref stands.
pub(super) fn head(connection: &Connection, name: &str) -> Outcome<Option<NodeId>> {
    let mut statement = connection.prepare_cached("SELECT node_id FROM refs WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| rows::node_id(row, 0)).optional()?.flatten())
}

/// Refs by the beginning of their names.
pub(super) fn heads(connection: &Connection, prefix: &str) -> Outcome<Vec<Head>> {
    // A range, so that no character of the prefix means anything else.
    let mut statement =
        connection.prepare_cached("SELECT name, node_id FROM refs WHERE name >= ?1 ORDER BY name")?;
    let mut found = statement.query([prefix])?;
    let mut heads = Vec::new();
    while let Some(row) = found.next()? {
        let name = rows::text(row, 0)?.unwrap_or_default();
        if !name.starts_with(prefix) {
            break;
        }
        if let Some(node) = rows::node_id(row, 1)? {
            heads.push(Head { name: RefName::from(&*name), node });
        }
    }
    Ok(heads)
}

/// Sessions, the last changed first.
pub(super) fn sessions(connection: &Connection, query: &SessionQuery) -> Outcome<Vec<SessionRow>> {
    // A condition that may be absent would keep SQLite from its index; one index is enough.
    let mut conditions =
        vec![if query.id.is_some() { "s.id = ?2" } else { "?2 IS NULL AND coalesce(r.node_id, '') <> ''" }];
    let more = query.id.is_some();
    conditions.push(match (&query.called, more) {
        (None, _) => "?4 IS NULL",
        (Some(_), _) => {
            "s.num IN (SELECT m.session FROM quipu_x_mark m WHERE m.kind = 2 AND m.text = ?4) AND called = ?4"
        }
    });
    let more = more || query.called.is_some();
    conditions.push(match (&query.parent, more) {
        (None, _) => "?5 IS NULL",
        (Some(_), false) => "s.parent = ?5",
        (Some(_), true) => "+s.parent = ?5",
    });
    let more = more || query.parent.is_some();
    conditions.push(match (&query.cwd, more) {
        (None, _) => "?1 IS NULL",
        (Some(_), false) => "s.project = ?1",
        (Some(_), true) => "+s.project = ?1",
    });
    if !query.children && query.id.is_none() && query.called.is_none() && query.parent.is_none() {
        conditions.push("s.id NOT GLOB 'child-*'");
    }
    let condition = conditions.join(" AND ");
    let mut statement = connection.prepare_cached(&format!(
        "SELECT s.id, s.ref, r.node_id, s.base, s.project, s.agent, s.title, s.model, s.parent, s.created, s.updated, \
         s.entries, s.cost, coalesce((SELECT m.text FROM quipu_x_mark m WHERE m.session = s.num AND m.kind = 2 \
         ORDER BY m.at DESC, m.seq DESC LIMIT 1), '') AS called FROM quipu_x_session s LEFT JOIN refs r ON r.name = s.ref \
         WHERE {condition} ORDER BY s.updated DESC, s.num DESC LIMIT ?3"
    ))?;
    let limit = query.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(-1));
    let of = |id: &Option<SessionId>| id.as_ref().map(|id| id.as_str().to_owned());
    let mut found =
        statement.query(params![query.cwd, of(&query.id), limit, query.called, of(&query.parent)])?;
    let mut sessions = Vec::new();
    while let Some(row) = found.next()? {
        let base: [u8; 32] = row.get(3)?;
        let cost: i64 = row.get(12)?;
        #[expect(clippy::cast_precision_loss, reason = "cents matter, not billionths")]
        let cost = cost as f64 / 1e9;
        sessions.push(SessionRow {
            id: row.get::<_, String>(0)?.into(),
            name: row.get::<_, String>(1)?.into(),
            head: rows::node_id(row, 2)?,
            base: NodeId(base),
            cwd: row.get(4)?,
            agent: row.get(5)?,
            called: row.get(13)?,
            title: row.get(6)?,
            model: row.get(7)?,
            parent: row.get::<_, Option<String>>(8)?.map(SessionId::from),
            created: row.get(9)?,
            updated: row.get(10)?,
            entries: row.get::<_, i64>(11)?.unsigned_abs(),
            cost,
        });
    }
    Ok(sessions)
}

/// How a ref moved, newest first.
pub(super) fn reflog(connection: &Connection, query: &ReflogQuery) -> Outcome<Vec<LoggedMove>> {
    // As the index says it, or SQLite would not use it.
    let moves = if query.moves_only {
        "AND (old IS NULL OR new IS NULL OR why NOT IN ('append', 'label', 'rename'))"
    } else {
        ""
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, old, new, at, writer, why FROM quipu_reflog WHERE ref = ?1 AND id < ?2 {moves} \
         ORDER BY id DESC LIMIT ?3"
    ))?;
    let limit = query.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(-1));
    let mut found = statement.query(params![query.name.as_str(), query.before.unwrap_or(i64::MAX), limit])?;
    let mut logged = Vec::new();
    while let Some(row) = found.next()? {
        let node = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<[u8; 32]>>(at)?.map(NodeId));
        logged.push(LoggedMove {
            id: row.get(0)?,
            old: node(1)?,
            new: node(2)?,
            at: row.get(3)?,
            writer: row.get(4)?,
            why: row.get(5)?,
        });
    }
    Ok(logged)
}

/// Refs that came to stand or were removed since a place of the log.
pub(super) fn ref_changes(connection: &Connection, since: Option<RefLogPlace>) -> Outcome<RefChanges> {
    let place = |row: &rusqlite::Row<'_>| Ok(RefLogPlace { id: row.get(0)?, at: row.get(1)? });
    let until = connection
        .prepare_cached("SELECT id, at FROM quipu_reflog ORDER BY id DESC LIMIT 1")?
        .query_row([], place)
        .optional()?
        .unwrap_or_default();
    let Some(since) = since else { return Ok(RefChanges { until, names: None }) };
    let mut statement = connection.prepare_cached("SELECT 1 FROM quipu_reflog WHERE id = ?1 AND at = ?2")?;
    if since != RefLogPlace::default() && !statement.exists([since.id, since.at])? {
        return Ok(RefChanges { until, names: None });
    }
    let mut statement = connection.prepare_cached(
        "SELECT ref FROM quipu_reflog WHERE id > ?1 AND id <= ?2 AND (old IS NULL OR new IS NULL)",
    )?;
    let names =
        statement.query_map([since.id, until.id], |row| row.get::<_, String>(0).map(RefName::from))?;
    Ok(RefChanges { until, names: Some(names.collect::<Result<_, _>>()?) })
}

/// The sessions that have queued inputs, by the beginning of their names.
pub(super) fn inboxes(connection: &Connection, beginning: &str) -> Outcome<Vec<SessionId>> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT session FROM quipu_inbox WHERE session >= ?1 AND substr(session, 1, length(?1)) = ?1 ORDER BY session",
    )?;
    let names = statement.query_map([beginning], |row| row.get::<_, String>(0).map(SessionId::from))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// What a session left open.
pub(super) fn pending(connection: &Connection, session: &SessionId) -> Outcome<OpenWork> {
    let broken = |what: &str| Failure::Corrupt(format!("{what} of session {session} cannot be read"));
    let mut pending = OpenWork::default();
    let mut statement = connection
        .prepare_cached("SELECT name, queue, item FROM quipu_inbox WHERE session = ?1 ORDER BY id")?;
    let mut found = statement.query([session.as_str()])?;
    while let Some(row) = found.next()? {
        let input: String = row.get(2)?;
        pending.inbox.push(InboxItem {
            id: row.get::<_, String>(0)?.into(),
            queue: row.get(1)?,
            input: Json::parse(&input).map_err(|_| broken("a queued input"))?,
        });
    }
    let mut statement = connection.prepare_cached(
        "SELECT run, call, state, result FROM quipu_step WHERE session = ?1 ORDER BY rowid",
    )?;
    let mut found = statement.query([session.as_str()])?;
    while let Some(row) = found.next()? {
        pending.steps.push(Step {
            run: row.get::<_, String>(0)?.into(),
            call: read_call(&row.get::<_, String>(1)?).ok_or_else(|| broken("an open step"))?,
            state: read_state(&row.get::<_, String>(2)?).ok_or_else(|| broken("an open step"))?,
            data: row.get(3)?,
        });
    }
    let mut statement = connection.prepare_cached("SELECT stage, plan FROM quipu_jump WHERE session = ?1")?;
    let jump = statement
        .query_row([session.as_str()], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    if let Some((stage, plan)) = jump {
        let plan = Json::parse(&plan).map_err(|_| broken("an open jump"))?;
        pending.jump = Some(OpenJump { stage, plan });
    }
    Ok(pending)
}
