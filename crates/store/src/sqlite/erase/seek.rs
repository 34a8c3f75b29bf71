//! Where something is in the graph, and in what sessions left open.

use std::collections::BTreeSet;

use quipu_dag::Blob;
use quipu_protocol::{BlobId, ChunkId, NodeId, SessionId};
use quipu_transcript::ERASED;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::chunks::{self, RecentChunks};
use super::super::erased::is_erased_blob;
use super::super::failure::{Failure, Outcome};
use super::super::rows;
use super::scope::{self, Hit};
use crate::{BOOKMARK, ContentQuery, FoundContent, FoundPage, FoundPlace, Needles, RefName, Selection};

/// A page of places. Keys: what kind of place, then where it stands among those.
pub(super) fn find(connection: &Connection, query: &ContentQuery, needles: &Needles) -> Outcome<FoundPage> {
    let selection = &query.selection;
    let mut page = FoundPage::begin(query);
    let nodes = scope::nodes(connection, selection)?;
    for (row, id) in &nodes {
        let key = format!("1 {row:020}");
        if page.is_past(&key) {
            continue;
        }
        if !page.push(&key, FoundContent { place: FoundPlace::Node(*id), bytes: bytes_of(connection, *row)? })
        {
            return Ok(page);
        }
    }
    let selected = selected_texts(connection, selection)?;
    for id in &selected {
        let key = format!("2 {id}");
        let Some(blob) = rows::find_blob(connection, id)?.filter(|_| !page.is_past(&key)) else { continue };
        if !page.push(&key, in_blob(&blob)) {
            return Ok(page);
        }
    }
    let from = row_after(query, "3 ");
    let more = each_text(connection, needles, from, &mut |_| {}, &mut |row, blob| {
        selected.contains(&blob.id) || page.push(&format!("3 {row:020}"), in_blob(blob))
    })?;
    if !more {
        return Ok(page);
    }
    let users = scope::users_of(connection, &selected.iter().copied().collect())?;
    let sources = nodes.iter().chain(&users).map(|(_, id)| *id);
    let mut selected = present_chunks(connection, scope::bodies_below(connection, sources)?.bodies)?;
    selected.extend(present_chunks(connection, selection.chunks.iter().copied().collect())?);
    for id in &selected {
        if !page.push(&format!("4 {id}"), in_chunk(connection, id)?) {
            return Ok(page);
        }
    }
    let from = row_after(query, "5 ");
    let more = each_chunk(connection, needles, from, &mut |row, id| {
        Ok(selected.contains(id) || page.push(&format!("5 {row:020}"), in_chunk(connection, id)?))
    })?;
    if !more {
        return Ok(page);
    }
    for row in pending(connection, selection, needles)? {
        let content = FoundContent { place: row.place(), bytes: row.text.len() as u64 };
        if !page.push(&format!("6 {}", row.key()), content) {
            return Ok(page);
        }
    }
    for row in small_rows(connection, needles)? {
        if !page.push(&format!("7 {}", row.key()), FoundContent { place: row.place(), bytes: row.bytes }) {
            return Ok(page);
        }
    }
    Ok(page)
}

/// The row after which a page begins, of places of one kind.
fn row_after(query: &ContentQuery, kind: &str) -> i64 {
    let Some(after) = query.after.as_deref() else { return 0 };
    match after.strip_prefix(kind) {
        Some(row) => row.parse().unwrap_or(0),
        None if after > kind => i64::MAX,
        None => 0,
    }
}

fn in_blob(blob: &Blob) -> FoundContent {
    FoundContent { place: FoundPlace::Blob(blob.id), bytes: blob.content.len() as u64 }
}

fn in_chunk(connection: &Connection, id: &ChunkId) -> Outcome<FoundContent> {
    let bytes = chunks::kept(connection, id)?.map_or(0, |(bytes, ..)| bytes);
    Ok(FoundContent { place: FoundPlace::Chunk(*id), bytes })
}

/// Bytes of a node's parts.
fn bytes_of(connection: &Connection, row: i64) -> Outcome<u64> {
    let mut length = connection.prepare_cached("SELECT length(content) FROM blobs WHERE hash = ?1")?;
    let mut bytes = 0;
    for part in rows::node_at(connection, row)?.map(|node| node.record.parts).unwrap_or_default() {
        let found: Option<i64> = length.query_row([part.to_string()], |row| row.get(0)).optional()?;
        bytes += found.map_or(0, i64::unsigned_abs);
    }
    Ok(bytes)
}

/// The texts that are selected by their ids, and are there.
fn selected_texts(connection: &Connection, selection: &Selection) -> Outcome<BTreeSet<BlobId>> {
    let mut found = BTreeSet::new();
    for id in &selection.blobs {
        if rows::find_blob(connection, id)?.is_some() && !is_erased_blob(connection, id)? {
            found.insert(*id);
        }
    }
    Ok(found)
}

/// All texts that are looked for. `stays` is shown those that hold it only in what an erasure leaves.
pub(super) fn texts(
    connection: &Connection,
    selection: &Selection,
    needles: &Needles,
    stays: &mut dyn FnMut(&Blob),
) -> Outcome<Vec<BlobId>> {
    let mut found = selected_texts(connection, selection)?;
    each_text(connection, needles, 0, stays, &mut |_, blob| {
        found.insert(blob.id);
        true
    })?;
    Ok(found.into_iter().collect())
}

/// Shows texts that hold what is looked for, after a row; says whether all were shown.
fn each_text(
    connection: &Connection,
    needles: &Needles,
    after: i64,
    stays: &mut dyn FnMut(&Blob),
    show: &mut dyn FnMut(i64, &Blob) -> bool,
) -> Outcome<bool> {
    if needles.is_empty() || after == i64::MAX {
        return Ok(true);
    }
    let mut statement = connection.prepare(
        "SELECT rowid, hash, type, content, thought_signature FROM blobs WHERE rowid > ?1 ORDER BY rowid",
    )?;
    let mut found = statement.query([after])?;
    while let Some(row) = found.next()? {
        let content = rows::text(row, 3)?.unwrap_or_default();
        let beside = rows::text(row, 4)?.is_some_and(|beside| needles.are_in(beside.as_bytes()));
        if !beside && !needles.are_in(content.as_bytes()) {
            continue;
        }
        let Some(id) = rows::text(row, 1)?.and_then(|hash| hash.parse().ok()) else { continue };
        let kind = rows::text(row, 2)?.unwrap_or_default().into_owned();
        let blob = Blob { id, kind, content: content.into_owned() };
        match scope::hit(&blob, needles) {
            Hit::No | Hit::Structure if beside => {}
            Hit::No => continue,
            Hit::Structure => {
                stays(&blob);
                continue;
            }
            Hit::Content => {}
        }
        if !show(row.get(0)?, &blob) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Those of which there are bytes.
fn present_chunks(connection: &Connection, ids: BTreeSet<ChunkId>) -> Outcome<BTreeSet<ChunkId>> {
    let mut found = BTreeSet::new();
    for id in ids {
        if chunks::kept(connection, &id)?.is_some() {
            found.insert(id);
        }
    }
    Ok(found)
}

/// All bytes that are looked for.
pub(super) fn chunks(
    connection: &Connection,
    selection: &Selection,
    needles: &Needles,
) -> Outcome<BTreeSet<ChunkId>> {
    let mut all = present_chunks(connection, selection.chunks.iter().copied().collect())?;
    each_chunk(connection, needles, 0, &mut |_, id| {
        all.insert(*id);
        Ok(true)
    })?;
    Ok(all)
}

fn each_chunk(
    connection: &Connection,
    needles: &Needles,
    after: i64,
    show: &mut dyn FnMut(i64, &ChunkId) -> Outcome<bool>,
) -> Outcome<bool> {
    if needles.is_empty() || after == i64::MAX {
        return Ok(true);
    }
    let mut recent = RecentChunks::default();
    let mut statement =
        connection.prepare("SELECT rowid, hash FROM quipu_chunk WHERE rowid > ?1 ORDER BY rowid")?;
    let mut found = statement.query([after])?;
    while let Some(row) = found.next()? {
        let Ok(id) = row.get::<_, [u8; 32]>(1).map(ChunkId) else { continue };
        let holds = match chunks::holds(connection, id, needles, &mut recent) {
            Ok(holds) => holds,
            // What cannot be read is told by a check; nobody can say what is in it.
            Err(Failure::Corrupt(_) | Failure::Missing(_) | Failure::Erased(_)) => false,
            Err(error) => return Err(error),
        };
        if holds && !show(row.get(0)?, &id)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A row of what a session left open.
pub(super) struct OpenRow {
    table: &'static str,
    row: i64,
    name: String,
    pub(super) session: String,
    pub(super) text: String,
}

impl OpenRow {
    pub(super) fn place(&self) -> FoundPlace {
        FoundPlace::Row { table: self.table.to_owned(), key: format!("{} {}", self.session, self.name) }
    }

    fn key(&self) -> String {
        format!("{} {:020}", self.table, self.row)
    }

    /// Whether files are on their way, and this row alone says where to.
    pub(super) fn moves_files(&self) -> bool {
        self.table == "quipu_jump" && self.name != "waits"
    }

    pub(super) fn remove(&self, connection: &Connection) -> Outcome<()> {
        connection.execute(&format!("DELETE FROM {} WHERE rowid = ?1", self.table), [self.row])?;
        Ok(())
    }
}

/// Waiting messages, steps and jumps of the sessions that are selected, and those that hold what is looked for.
pub(super) fn pending(
    connection: &Connection,
    selection: &Selection,
    needles: &Needles,
) -> Outcome<Vec<OpenRow>> {
    let mut found = Vec::new();
    for (table, name, text) in [
        ("quipu_inbox", "name", "item"),
        ("quipu_step", "run || ' ' || call", "coalesce(result, '')"),
        ("quipu_jump", "stage", "plan"),
    ] {
        let mut statement = connection
            .prepare(&format!("SELECT rowid, session, {name}, {text} FROM {table} ORDER BY rowid"))?;
        let mut all = statement.query([])?;
        while let Some(row) = all.next()? {
            let owned = |column| rows::text(row, column).map(|text| text.unwrap_or_default().into_owned());
            let (session, text) = (owned(1)?, owned(3)?);
            let is_of = selection.sessions.iter().any(|selected| selected.as_str() == session);
            if is_of || needles.are_in(text.as_bytes()) {
                found.push(OpenRow { table, row: row.get(0)?, name: owned(2)?, session, text });
            }
        }
    }
    Ok(found)
}

/// A call of a model that is no node: without an answer, or beside the conversation.
pub(super) struct OpenCall {
    row: i64,
    pub(super) session: SessionId,
    /// The node that it was made after, as its record says.
    pub(super) head: Option<NodeId>,
    text: String,
    /// The body of its request.
    pub(super) bodies: Vec<ChunkId>,
}

impl OpenCall {
    /// Takes out what was answered, or why it failed; gives the bytes of the row before, where anything was.
    pub(super) fn blank(&self, connection: &Connection) -> Outcome<Option<u64>> {
        let Ok(mut row) = serde_json::from_str::<serde_json::Value>(&self.text) else { return Ok(None) };
        let Some(end) = row.pointer_mut("/side/end").and_then(serde_json::Value::as_object_mut) else {
            return Ok(None);
        };
        let had = [end.remove("answer"), end.remove("error")];
        if had.iter().flatten().all(|had| had == ERASED) {
            return Ok(None);
        }
        end.insert("error".to_owned(), ERASED.into());
        connection.execute(
            "UPDATE quipu_step SET result = ?2 WHERE rowid = ?1",
            params![self.row, row.to_string().into_bytes()],
        )?;
        Ok(Some(self.text.len() as u64))
    }
}

pub(super) fn open_calls(connection: &Connection) -> Outcome<Vec<OpenCall>> {
    let mut calls = Vec::new();
    let mut statement = connection.prepare(
        "SELECT session, result, rowid FROM quipu_step WHERE call IN ('model', 'early', 'tool:runner') AND result IS NOT NULL",
    )?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let session = rows::text(row, 0)?.unwrap_or_default().into_owned().into();
        let text = rows::text(row, 1)?.unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let head = record["head"].as_str().and_then(|head| head.parse().ok());
        let bodies = scope::bodies_in(&text).collect();
        calls.push(OpenCall { row: row.get(2)?, session, head, text: text.into_owned(), bodies });
    }
    Ok(calls)
}

pub(super) fn head(connection: &Connection, name: &RefName) -> Outcome<Option<NodeId>> {
    let mut statement = connection.prepare_cached("SELECT node_id FROM refs WHERE name = ?1")?;
    Ok(statement.query_row([name.as_str()], |row| rows::node_id(row, 0)).optional()?.flatten())
}

/// A small row beside the graph.
pub(super) struct SmallRow {
    table: &'static str,
    row: i64,
    name: String,
    pub(super) bytes: u64,
    undo: &'static str,
}

impl SmallRow {
    fn key(&self) -> String {
        format!("{} {:020}", self.table, self.row)
    }

    fn place(&self) -> FoundPlace {
        FoundPlace::Row { table: self.table.to_owned(), key: self.name.clone() }
    }

    pub(super) fn remove(&self, connection: &Connection) -> Outcome<()> {
        connection.execute(self.undo, params![self.row])?;
        Ok(())
    }
}

/// What is looked for in notes of moves, names of bookmarks, and what other programs put beside nodes.
pub(super) fn small_rows(connection: &Connection, needles: &Needles) -> Outcome<Vec<SmallRow>> {
    let mut found = Vec::new();
    if needles.is_empty() {
        return Ok(found);
    }
    let long = BOOKMARK.len();
    let bookmarks =
        format!("SELECT rowid, name, name FROM refs WHERE substr(name, 1, {long}) = '{BOOKMARK}'");
    let moves = format!("SELECT id, id, ref FROM quipu_reflog WHERE substr(ref, 1, {long}) = '{BOOKMARK}'");
    for (table, query, undo) in [
        (
            "action_log",
            "SELECT id, id, metadata FROM action_log WHERE metadata IS NOT NULL",
            "UPDATE action_log SET metadata = NULL WHERE id = ?1",
        ),
        (
            "nodes",
            "SELECT rowid, id, coalesce(config_json, '') || ' ' || coalesce(thought_signatures, '') FROM nodes \
             WHERE config_json IS NOT NULL OR thought_signatures IS NOT NULL",
            "UPDATE nodes SET config_json = NULL, thought_signatures = NULL WHERE rowid = ?1",
        ),
        ("refs", bookmarks.as_str(), "DELETE FROM refs WHERE rowid = ?1"),
        ("quipu_reflog", moves.as_str(), "DELETE FROM quipu_reflog WHERE id = ?1"),
    ] {
        let mut statement = connection.prepare(query)?;
        let mut all = statement.query([])?;
        while let Some(row) = all.next()? {
            let text = rows::text(row, 2)?.unwrap_or_default();
            if needles.are_in(text.as_bytes()) {
                let name = rows::text(row, 1)?.unwrap_or_default().into_owned();
                let bytes = text.len() as u64;
                found.push(SmallRow { table, row: row.get(0)?, name, bytes, undo });
            }
        }
    }
    Ok(found)
}
