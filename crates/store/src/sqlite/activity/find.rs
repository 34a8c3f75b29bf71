//! Reads of what was done.

use quipu_protocol::{NodeId, ServerToolBlock, SessionId, UnixMs};
use quipu_transcript::FileOpKind;
use rusqlite::{Connection, Row, params};

use super::super::costs::SLOT;
use super::super::failure::Outcome;
use super::super::{graph, rows};
use super::{behind, exists};
use crate::{
    ASKED, ActivityQuery, CHANGES, FileActivity, FileChange, IndexedAnswer, LOGGED, SessionActivity, TOUCHED,
    ToolCount, UsageGrouping, UsageQuery, UsageSum,
};

/// The sums of a group, after its key and model.
const SUMS: &str = "u.model, u.priced, sum(u.calls), total(u.input), total(u.output), total(u.cache_read), \
     total(u.cache_write), total(u.cost)";

/// Tokens and cost.
pub(in crate::sqlite) fn usage(
    connection: &Connection,
    query: &UsageQuery,
) -> Outcome<IndexedAnswer<Vec<UsageSum>>> {
    let behind = behind(connection)?;
    if !exists(connection)? {
        return Ok(IndexedAnswer { found: Vec::new(), behind });
    }
    let (key, join) = grouping(query.by);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {key} AS key, {SUMS} FROM quipu_x_use u {join} WHERE u.slot >= ?1 AND u.slot < ?2 \
         GROUP BY key, u.model, u.priced ORDER BY key, u.model"
    ))?;
    let since = query.since.map_or(i64::MIN, |at| at.div_euclid(SLOT));
    // The end of the quarter hour that it is in.
    let until = query.until.map_or(i64::MAX, |at| at.saturating_add(SLOT - 1).div_euclid(SLOT));
    let mut sums: Vec<UsageSum> = statement.query_map([since, until], sum)?.collect::<Result<_, _>>()?;
    // Tools are counted without the model that called them.
    let key = match query.by {
        UsageGrouping::Model => ONLY_MODEL,
        UsageGrouping::Purpose => "coalesce(p.purpose, 'answer')",
        UsageGrouping::Time | UsageGrouping::Project | UsageGrouping::Agent | UsageGrouping::Session => key,
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {key} AS key, sum(u.calls) FROM quipu_x_tool u {join} WHERE u.tool = ?3 AND u.slot >= ?1 AND u.slot < ?2 GROUP BY key"
    ))?;
    let mut found = statement.query(params![since, until, ServerToolBlock::SEARCH])?;
    while let Some(row) = found.next()? {
        let key = rows::text(row, 0)?.unwrap_or_default();
        let searches = row.get::<_, i64>(1)?.unsigned_abs();
        match sums.iter_mut().find(|sum| sum.key == *key) {
            Some(sum) => sum.searches = searches,
            None => {
                sums.push(UsageSum { key: key.into_owned(), priced: true, searches, ..UsageSum::default() });
            }
        }
    }
    Ok(IndexedAnswer { found: sums, behind })
}

/// The model of a row of tools, where its session used only one in its quarter hour.
const ONLY_MODEL: &str = "coalesce((SELECT iif(min(m.model) = max(m.model), min(m.model), '') FROM quipu_x_use m \
     WHERE m.session = u.session AND m.slot = u.slot AND m.model <> ''), '')";

/// The key of a group, and what it is read from besides.
fn grouping(by: UsageGrouping) -> (&'static str, &'static str) {
    const SESSIONS: &str = "LEFT JOIN quipu_x_session s ON s.num = u.session";
    match by {
        UsageGrouping::Time => ("u.slot * 900000", ""),
        UsageGrouping::Model => ("u.model", ""),
        UsageGrouping::Project => ("coalesce(s.project, '')", SESSIONS),
        UsageGrouping::Agent => ("coalesce(s.agent, '')", SESSIONS),
        UsageGrouping::Session => ("coalesce(s.id, '')", SESSIONS),
        UsageGrouping::Purpose => (
            "CASE WHEN u.purpose <> '' THEN u.purpose ELSE coalesce(p.purpose, 'answer') END",
            "LEFT JOIN quipu_x_purpose p ON p.session = u.session",
        ),
    }
}

fn sum(row: &Row<'_>) -> rusqlite::Result<UsageSum> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let count = |at: usize| row.get::<_, f64>(at).map(|count| count as u64);
    Ok(UsageSum {
        key: rows::text(row, 0)?.unwrap_or_default().into_owned(),
        model: row.get(1)?,
        priced: row.get(2)?,
        calls: row.get::<_, i64>(3)?.unsigned_abs(),
        input: count(4)?,
        output: count(5)?,
        cache_read: count(6)?,
        cache_write: count(7)?,
        cost: row.get::<_, f64>(8)? / 1e9,
        searches: 0,
    })
}

/// Files that sessions of this id touched, the last touched first.
pub(in crate::sqlite) fn file_activity(
    connection: &Connection,
    session: &SessionId,
) -> Outcome<IndexedAnswer<Vec<FileActivity>>> {
    let behind = behind(connection)?;
    if !exists(connection)? {
        return Ok(IndexedAnswer { found: Vec::new(), behind });
    }
    let mut statement = connection.prepare_cached(
        "SELECT t.path, t.deed, sum(t.times), max(t.at), t.seq FROM quipu_x_session s JOIN quipu_x_touch t ON t.session = s.num \
         WHERE s.id = ?1 GROUP BY t.path, t.deed ORDER BY 4 DESC, t.path, t.deed LIMIT ?2",
    )?;
    let mut found = statement.query(params![session.as_str(), TOUCHED as i64])?;
    Ok(IndexedAnswer { found: files(connection, &mut found)?, behind })
}

/// Rows of path, kind of operation, count, time and row number.
fn files(connection: &Connection, found: &mut rusqlite::Rows<'_>) -> Outcome<Vec<FileActivity>> {
    let mut files = Vec::new();
    while let Some(row) = found.next()? {
        let kind = match row.get(1)? {
            1 => FileOpKind::Read,
            2 => FileOpKind::Write,
            3 => FileOpKind::Edit,
            _ => FileOpKind::Remove,
        };
        let Some(node) = graph::id_of(connection, row.get(4)?)? else { continue };
        files.push(FileActivity {
            path: row.get(0)?,
            kind,
            times: row.get::<_, i64>(2)?.unsigned_abs(),
            at: row.get(3)?,
            node,
        });
    }
    Ok(files)
}

/// Changes of a file by any of these names, the oldest first.
pub(in crate::sqlite) fn changes(
    connection: &Connection,
    paths: &[String],
) -> Outcome<IndexedAnswer<Vec<FileChange>>> {
    let behind = behind(connection)?;
    let mut changes: Vec<(i64, FileChange)> = Vec::new();
    if exists(connection)? {
        let mut statement = connection.prepare_cached(
            "SELECT f.seq, f.call, f.at, f.asked, s.id, s.agent, s.project, f.states FROM quipu_x_file f LEFT JOIN quipu_x_node x ON x.seq = f.seq \
             LEFT JOIN quipu_x_session s ON s.num = x.session WHERE f.path = ?1 ORDER BY f.seq DESC LIMIT ?2",
        )?;
        for path in paths {
            let mut found = statement.query(params![path, CHANGES as i64])?;
            while let Some(row) = found.next()? {
                let seq = row.get(0)?;
                let Some(node) = graph::id_of(connection, seq)? else { continue };
                let node_at = |column| match row.get::<_, Option<i64>>(column)? {
                    Some(seq) => graph::id_of(connection, seq),
                    None => Ok(None),
                };
                let change = FileChange {
                    node,
                    call: usize::try_from(row.get::<_, i64>(1)?).ok(),
                    states: node_at(7)?,
                    at: row.get(2)?,
                    session: row.get::<_, Option<String>>(4)?.map(SessionId::from),
                    agent: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
                    cwd: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
                    asked: node_at(3)?,
                };
                changes.push((seq, change));
            }
        }
    }
    changes.sort_by_key(|(seq, change)| (change.at, *seq, change.call));
    Ok(IndexedAnswer { found: changes.into_iter().map(|(_, change)| change).collect(), behind })
}

/// What sessions did since then, the last changed first. Of those that are not given only the index is read.
pub(in crate::sqlite) fn session_activity(
    connection: &Connection,
    query: &ActivityQuery,
) -> Outcome<IndexedAnswer<Vec<SessionActivity>>> {
    let behind = behind(connection)?;
    if !exists(connection)? {
        return Ok(IndexedAnswer { found: Vec::new(), behind });
    }
    let below = query.below.as_deref().filter(|below| *below != "/");
    let mut newest = connection.prepare_cached(match below {
        // Two ranges of one index: the directory, and all names that begin with it and a slash.
        Some(_) => {
            "SELECT num, updated FROM quipu_x_session WHERE project = ?2 AND updated >= ?1 UNION ALL \
             SELECT num, updated FROM quipu_x_session WHERE project >= ?2 || '/' AND project < ?2 || '0' AND updated >= ?1 \
             ORDER BY 2 DESC, 1 DESC"
        }
        None => {
            "SELECT num, updated FROM quipu_x_session WHERE updated >= ?1 AND ?2 IS NULL ORDER BY updated DESC, num DESC"
        }
    })?;
    let mut found = newest.query(params![query.since, below])?;
    let mut sessions = Vec::new();
    while sessions.len() < query.limit
        && let Some(row) = found.next()?
    {
        sessions.extend(done_by(connection, row.get(0)?, query)?);
    }
    Ok(IndexedAnswer { found: sessions, behind })
}

/// What one session did; `None` when that is nothing, it is another program's than is asked for, or it was removed.
fn done_by(connection: &Connection, num: i64, query: &ActivityQuery) -> Outcome<Option<SessionActivity>> {
    let since = query.since;
    let mut statement = connection.prepare_cached(
        "SELECT s.id, s.agent, s.project, r.node_id, s.updated, coalesce((SELECT m.text FROM quipu_x_mark m \
         WHERE m.session = s.num AND m.kind = 2 ORDER BY m.at DESC, m.seq DESC LIMIT 1), '') FROM quipu_x_session s \
         JOIN refs r ON r.name = s.ref WHERE s.num = ?1 AND (?2 IS NULL OR s.agent = ?2)",
    )?;
    let mut found = statement.query(params![num, query.agent])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let Some(head) = rows::node_id(row, 3)? else { return Ok(None) };
    let asked_count = connection
        .prepare_cached("SELECT count(*) FROM quipu_x_asked WHERE session = ?1 AND at >= ?2")?
        .query_row([num, since], |row| row.get::<_, i64>(0))?
        .unsigned_abs();
    let tools = tools(connection, num, since)?;
    let usage: Vec<UsageSum> = connection
        .prepare_cached(&format!(
            "SELECT '', {SUMS} FROM quipu_x_use u WHERE u.session = ?1 AND u.slot >= ?2 \
             GROUP BY u.model, u.priced ORDER BY 4 DESC"
        ))?
        .query_map([num, since.div_euclid(SLOT)], sum)?
        .collect::<Result<_, _>>()?;
    // A label or an import's note alone is nothing that was done.
    if asked_count == 0 && tools.is_empty() && usage.is_empty() {
        return Ok(None);
    }
    let changed_count = connection
        .prepare_cached(
            "SELECT count(DISTINCT path) FROM quipu_x_touch WHERE session = ?1 AND deed > 1 AND at >= ?2",
        )?
        .query_row([num, since], |row| row.get::<_, i64>(0))?
        .unsigned_abs();
    let mut touched = connection.prepare_cached(
        "SELECT path, deed, times, at, seq FROM quipu_x_touch WHERE session = ?1 AND deed > 1 AND at >= ?2 \
         ORDER BY at DESC, path, deed LIMIT ?3",
    )?;
    let changed = files(connection, &mut touched.query(params![num, since, LOGGED as i64])?)?;
    Ok(Some(SessionActivity {
        session: row.get::<_, String>(0)?.into(),
        agent: row.get(1)?,
        cwd: row.get(2)?,
        called: row.get(5)?,
        head,
        updated: row.get(4)?,
        asked: asked(connection, num, since)?,
        asked_count,
        tools,
        changed,
        changed_count,
        usage,
    }))
}

/// What the user said, the oldest first.
fn asked(connection: &Connection, num: i64, since: UnixMs) -> Outcome<Vec<NodeId>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM quipu_x_asked WHERE session = ?1 AND at >= ?2 ORDER BY at DESC, seq DESC LIMIT ?3",
    )?;
    let mut found = statement.query(params![num, since, ASKED as i64])?;
    let mut asked = Vec::new();
    while let Some(row) = found.next()? {
        asked.extend(graph::id_of(connection, row.get(0)?)?);
    }
    asked.reverse();
    Ok(asked)
}

fn tools(connection: &Connection, num: i64, since: UnixMs) -> Outcome<Vec<ToolCount>> {
    let mut statement = connection.prepare_cached(
        "SELECT tool, sum(calls), sum(failed) FROM quipu_x_tool WHERE session = ?1 AND slot >= ?2 GROUP BY tool \
         ORDER BY 2 DESC, tool",
    )?;
    let found = statement.query_map([num, since.div_euclid(SLOT)], |row| {
        Ok(ToolCount {
            tool: row.get(0)?,
            calls: row.get::<_, i64>(1)?.unsigned_abs(),
            failed: row.get::<_, i64>(2)?.unsigned_abs(),
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
