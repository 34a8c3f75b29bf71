//! Reads everything in a store and tells what does not hold.

use std::collections::HashSet;

use quipu_dag::{Node, Verdict};
use quipu_protocol::{BlobId, ChunkId, NodeId};
use quipu_transcript::files_of;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::chunks::{self, RecentChunks};
use super::failure::{Failure, Outcome, Place};
use super::{erased, file, retain, rows, search, shrink};
use crate::{Problem, ProblemKind, Report};

/// Problems that are told; the others are counted.
const TOLD: usize = 100;
/// Rows that are read at a time, so that no read transaction stands in the way of a checkpoint for long.
const PAGE: i64 = 500;

pub(super) fn check(connection: &Connection, place: &Place) -> Outcome<Report> {
    let mut report = Report {
        file_bytes: file::size(&place.path),
        free_bytes: shrink::free(connection)?,
        wal_bytes: file::size(&file::sibling_path(&place.path, "-wal")),
        ..Report::default()
    };
    check_file(connection, &mut report)?;
    let states = check_blobs(connection, &mut report)?;
    measure_files(connection, &states, &mut report)?;
    report.dropped_files = retain::dropped(connection)?;
    check_nodes(connection, &mut report)?;
    check_circles(connection, &mut report)?;
    check_chunks(connection, &mut report)?;
    check_refs(connection, &mut report)?;
    check_open(connection, &mut report)?;
    check_derived(connection, &mut report)?;
    report.sessions = count(connection, "SELECT count(*) FROM quipu_x_session")?;
    report.salvaged = connection
        .query_row("SELECT value FROM quipu_meta WHERE key = 'salvaged'", [], |row| row.get::<_, String>(0))
        .optional()?
        .and_then(|text| text.parse().ok());
    Ok(report)
}

fn tell(report: &mut Report, kind: ProblemKind, what: String) {
    report.problem_count += 1;
    if report.problems.len() < TOLD {
        report.problems.push(Problem { kind, what });
    }
}

fn count(connection: &Connection, query: &str) -> Outcome<u64> {
    Ok(connection.query_row(query, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

fn check_file(connection: &Connection, report: &mut Report) -> Outcome<()> {
    // One view of the file for both: what this connection remembers of the index would be taken for the index.
    let transaction = connection.unchecked_transaction()?;
    match search::forget_older(&transaction) {
        Err(failure) if search::is_damage(&failure) => {
            tell(report, ProblemKind::Derived, "the search index is damaged".to_owned());
        }
        other => other?,
    }
    let mut statement = transaction.prepare("PRAGMA quick_check(20)")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let said = rows::text(row, 0)?.unwrap_or_default();
        if said != "ok" {
            // The index of the search can be made anew; the rest of the file is not meant.
            if search::is_named_in(&said) {
                tell(report, ProblemKind::Derived, format!("the search index is damaged: {said}"));
            } else {
                tell(report, ProblemKind::File, format!("the file is damaged: {said}"));
            }
        }
    }
    Ok(())
}

/// Gives the chunks of files that tools changed.
fn check_blobs(connection: &Connection, report: &mut Report) -> Outcome<HashSet<ChunkId>> {
    let mut states = HashSet::new();
    let mut statement =
        connection.prepare("SELECT rowid, hash, type FROM blobs WHERE rowid > ?1 ORDER BY rowid LIMIT ?2")?;
    let mut last = 0;
    loop {
        let page: Vec<(i64, String, String)> = statement
            .query_map(params![last, PAGE], |row| {
                let owned = |column| {
                    Ok::<_, rusqlite::Error>(rows::text(row, column)?.unwrap_or_default().into_owned())
                };
                Ok((row.get(0)?, owned(1)?, owned(2)?))
            })?
            .collect::<Result<_, _>>()?;
        let Some((end, ..)) = page.last() else { return Ok(states) };
        last = *end;
        for (_, hash, kind) in page {
            report.blobs += 1;
            // Blocks of another scheme, under identifiers of its own.
            if kind == "playtiss" {
                continue;
            }
            let Ok(id) = hash.parse::<BlobId>() else {
                tell(report, ProblemKind::Blob, format!("blob {hash:?} has an id that is not a hash"));
                continue;
            };
            let blob = rows::find_blob(connection, &id)?;
            for change in blob.iter().flat_map(files_of) {
                states.extend([change.before.content(), change.after.content()].into_iter().flatten());
            }
            match blob.map(|blob| blob.verify()) {
                None | Some(Verdict::Valid | Verdict::Unverifiable(_)) => {}
                Some(Verdict::Corrupt(_)) if erased::is_erased_blob(connection, &id)? => {}
                Some(Verdict::Corrupt(why)) => tell(report, ProblemKind::Blob, format!("blob {id}: {why}")),
            }
        }
    }
}

/// What files that tools changed take of the store.
fn measure_files(connection: &Connection, states: &HashSet<ChunkId>, report: &mut Report) -> Outcome<()> {
    let mut statement = connection.prepare("SELECT length(bytes) FROM quipu_chunk WHERE hash = ?1")?;
    for state in states {
        if let Some(bytes) = statement.query_row([state.0], |row| row.get::<_, i64>(0)).optional()? {
            report.file_states += 1;
            report.file_state_bytes += bytes.unsigned_abs();
        }
    }
    Ok(())
}

fn check_nodes(connection: &Connection, report: &mut Report) -> Outcome<()> {
    let mut statement = connection.prepare(&format!(
        "SELECT {}, n.rowid FROM nodes n WHERE n.rowid > ?1 ORDER BY n.rowid LIMIT ?2",
        rows::NODE
    ))?;
    let mut has_node = connection.prepare("SELECT 1 FROM nodes WHERE id = ?1")?;
    let mut has_blob = connection.prepare("SELECT 1 FROM blobs WHERE hash = ?1")?;
    let mut prompts: HashSet<BlobId> = HashSet::new();
    let mut last: i64 = 0;
    loop {
        let mut page = Vec::new();
        let mut found = statement.query(params![last, PAGE])?;
        while let Some(row) = found.next()? {
            last = row.get(9)?;
            page.push((rows::node(row)?, rows::text(row, 1)?.map(std::borrow::Cow::into_owned)));
        }
        drop(found);
        if page.is_empty() {
            return Ok(());
        }
        for (node, parent) in page {
            report.nodes += 1;
            let Some(node) = node else {
                report.unverifiable += 1;
                continue;
            };
            let verdict = node.verify();
            match &verdict {
                Verdict::Valid => {}
                Verdict::Corrupt(_) if erased::is_erased_node(connection, &node.id)? => {}
                Verdict::Unverifiable(_) => report.unverifiable += 1,
                Verdict::Corrupt(why) => tell(report, ProblemKind::Node, format!("node {}: {why}", node.id)),
            }
            if let Some(parent) = parent
                && !has_node.exists([&parent])?
            {
                let what = format!("node {}: its parent {parent:?} is missing", node.id);
                tell(report, ProblemKind::Parent, what);
            }
            // The published writer can leave a part out, and readers skip it; we never do.
            let ours = verdict == Verdict::Valid && is_ours(connection, &node)?;
            for part in &node.record.parts {
                if ours && !has_blob.exists([part.to_string()])? {
                    let what = format!("node {}: its part {part} is missing", node.id);
                    tell(report, ProblemKind::Part, what);
                }
            }
            // All sessions that began alike share one, so that it is named once.
            if let Some(prompt) = node.record.system_prompt
                && ours
                && !prompts.contains(&prompt)
            {
                prompts.insert(prompt);
                if !has_blob.exists([prompt.to_string()])? {
                    let what = format!("node {}: its system prompt {prompt} is missing", node.id);
                    tell(report, ProblemKind::Part, what);
                }
            }
        }
    }
}

/// Our nodes end in a part of our own. Where that is missing, their ids tell them: nobody else's are UUIDs of version 7.
fn is_ours(connection: &Connection, node: &Node) -> Outcome<bool> {
    let Some(last) = node.record.parts.last() else { return Ok(false) };
    let mut statement = connection.prepare_cached("SELECT type FROM blobs WHERE hash = ?1")?;
    let kind = statement.query_row([last.to_string()], |row| row.get::<_, String>(0)).optional()?;
    let is_v7 = |id: &str| id.len() == 36 && id.as_bytes().get(14) == Some(&b'7');
    Ok(match kind {
        Some(kind) => kind == "quipu",
        None => node.record.external_id.as_deref().is_some_and(is_v7),
    })
}

/// Nodes that are not reached from any root stand below a missing parent, which was told, or in a circle.
fn check_circles(connection: &Connection, report: &mut Report) -> Outcome<()> {
    let mut statement = connection
        .prepare("SELECT n.id FROM quipu_x_wait w JOIN nodes n ON n.rowid = w.seq ORDER BY w.seq")?;
    let waiting: Vec<Option<NodeId>> =
        statement.query_map([], |row| rows::node_id(row, 0))?.collect::<Result<_, _>>()?;
    let mut known: HashSet<NodeId> = HashSet::new();
    for start in waiting.into_iter().flatten() {
        let mut path = HashSet::new();
        let mut next = Some(start);
        while let Some(id) = next {
            if known.contains(&id) {
                break;
            }
            if !path.insert(id) {
                tell(report, ProblemKind::Parent, format!("node {id}: its lineage is a cycle"));
                break;
            }
            next = rows::find_node(connection, &id)?.and_then(|node| node.record.parent);
        }
        known.extend(path);
    }
    Ok(())
}

fn check_chunks(connection: &Connection, report: &mut Report) -> Outcome<()> {
    let mut statement =
        connection.prepare("SELECT rowid, hash FROM quipu_chunk WHERE rowid > ?1 ORDER BY rowid LIMIT ?2")?;
    let mut recent = RecentChunks::default();
    let mut last = 0;
    loop {
        let page: Vec<(i64, Vec<u8>)> = statement
            .query_map(params![last, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let Some((end, _)) = page.last() else { return Ok(()) };
        last = *end;
        for (_, hash) in page {
            report.chunks += 1;
            let Ok(id) = <[u8; 32]>::try_from(hash) else {
                tell(report, ProblemKind::Chunk, "a chunk has an id that is not a hash".to_owned());
                continue;
            };
            match chunks::verify(connection, ChunkId(id), &mut recent) {
                Ok(()) | Err(Failure::Erased(_)) => {}
                Err(Failure::Corrupt(what)) => tell(report, ProblemKind::Chunk, what),
                Err(Failure::Missing(what)) => {
                    tell(report, ProblemKind::Chunk, format!("{what} is missing, but others depend on it"));
                }
                Err(error @ (Failure::Sql(_) | Failure::Store(_))) => return Err(error),
            }
        }
    }
}

fn check_refs(connection: &Connection, report: &mut Report) -> Outcome<()> {
    report.refs = count(connection, "SELECT count(*) FROM refs")?;
    let mut statement = connection.prepare(
        "SELECT r.name, r.node_id FROM refs r LEFT JOIN nodes n ON n.id = r.node_id WHERE n.id IS NULL ORDER BY r.name",
    )?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let name = rows::text(row, 0)?.unwrap_or_default();
        let node = rows::text(row, 1)?.unwrap_or_default();
        tell(report, ProblemKind::Ref, format!("ref `{name}` points to {node:?}, which is not a node"));
    }
    Ok(())
}

fn check_open(connection: &Connection, report: &mut Report) -> Outcome<()> {
    report.open_steps = count(connection, "SELECT count(*) FROM quipu_step")?;
    report.inbox =
        count(connection, "SELECT count(*) FROM quipu_inbox WHERE session NOT LIKE 'runtime:session:%'")?;
    let open = [
        // The session of an early call is still to come.
        ("quipu_step", "an open step", "AND t.call <> 'early' "),
        // No session can have such a name.
        ("quipu_inbox", "a queued input", "AND t.session NOT LIKE 'runtime:%' "),
        ("quipu_jump", "an unfinished jump", ""),
    ];
    for (table, what, but) in open {
        let mut statement = connection.prepare(&format!(
            "SELECT t.session, count(*) FROM {table} t WHERE NOT EXISTS (SELECT 1 FROM quipu_x_session s WHERE s.id = t.session) \
             AND NOT EXISTS (SELECT 1 FROM refs r WHERE r.name = 'quipu/' || t.session) {but}\
             GROUP BY t.session ORDER BY t.session"
        ))?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let session = rows::text(row, 0)?.unwrap_or_default();
            tell(
                report,
                ProblemKind::Orphan,
                format!("{what} belongs to session {session}, which does not exist"),
            );
        }
    }
    Ok(())
}

fn check_derived(connection: &Connection, report: &mut Report) -> Outcome<()> {
    let wrong = count(
        connection,
        "SELECT count(*) FROM quipu_x_node x LEFT JOIN nodes n ON n.rowid = x.seq \
         LEFT JOIN quipu_x_node p ON p.seq = x.parent \
         WHERE n.id IS NULL OR n.id <> lower(hex(x.id)) \
         OR coalesce(lower(hex(p.id)), '') <> coalesce(n.parent_id, '') OR x.depth <> coalesce(p.depth + 1, 0)",
    )?;
    // Another process may be writing: what is newer than the cursor is not lost.
    let lost = count(
        connection,
        "SELECT count(*) FROM nodes n WHERE length(n.id) = 64 AND n.id NOT GLOB '*[^0-9a-f]*' \
         AND n.rowid <= (SELECT seq FROM quipu_x_cursor) \
         AND NOT EXISTS (SELECT 1 FROM quipu_x_node x WHERE x.seq = n.rowid) \
         AND NOT EXISTS (SELECT 1 FROM quipu_x_wait w WHERE w.seq = n.rowid)",
    )?;
    if wrong + lost > 0 {
        let what = format!("the index is wrong for {wrong} nodes and lacks {lost}; it can be rebuilt");
        tell(report, ProblemKind::Derived, what);
    }
    Ok(())
}
