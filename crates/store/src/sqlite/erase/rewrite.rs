//! The transaction that erases from the graph.

use std::collections::{BTreeSet, HashSet};

use quipu_dag::{Blob, write_parts_list};
use quipu_protocol::{BlobId, ChunkId, NodeId};
use quipu_transcript::{emptied_part, erased_part, refs_of};
use rusqlite::{Connection, params};

use super::super::erased::{Kind, note};
use super::super::failure::Outcome;
use super::super::{chunks, graph, rows, schema, vectors};
use super::scope::{self, AtWork, Below, hashes_in};
use super::scrub;
use super::seek;
use crate::{EraseTargets, Erased, FoundPlace, KeptWhy, Needles, RefName, Selection, Until};

/// The type of the row of the action log.
const KIND: &str = "QUIPU_ERASE";

/// A hash of anything.
type Hash = [u8; 32];

/// An erasure under way.
struct Work<'a> {
    connection: &'a Connection,
    needles: &'a Needles,
    why: &'a str,
    at_work: AtWork,
    erased: Erased,
    /// Texts that erased nodes had: they go where nothing else names them.
    old: HashSet<BlobId>,
    /// What parts named that are gone: texts and bytes, the same.
    named: HashSet<Hash>,
    /// Bytes that go in any case.
    chunks: BTreeSet<ChunkId>,
    /// Bodies that go unless the same was sent elsewhere.
    below: Below,
    /// Rows of nodes that say something else now.
    changed: BTreeSet<i64>,
    nodes: u64,
    blobs: u64,
}

/// Erases from the graph and all that is derived from it. Within the caller's transaction.
pub(super) fn erase(
    connection: &Connection,
    targets: &EraseTargets,
    needles: &Needles,
    is_dead: &dyn Fn(&str) -> bool,
) -> Outcome<Erased> {
    let mut work = Work {
        connection,
        needles,
        why: &targets.why,
        at_work: AtWork::of(connection, is_dead)?,
        erased: Erased::default(),
        old: HashSet::new(),
        named: HashSet::new(),
        chunks: BTreeSet::new(),
        below: Below::default(),
        changed: BTreeSet::new(),
        nodes: 0,
        blobs: 0,
    };
    let selection = &targets.selection;
    // What is found first, before anything changes.
    let erased = &mut work.erased;
    let mut stays = |blob: &Blob| in_structure(FoundPlace::Blob(blob.id), erased);
    let texts = seek::texts(connection, selection, needles, &mut stays)?;
    work.chunks = seek::chunks(connection, selection, needles)?;
    let nodes = scope::nodes(connection, selection)?;
    let nodes = work.free_nodes(nodes);
    let texts = work.free_texts(texts);
    let users = scope::users_of(connection, &texts.iter().copied().collect())?;
    work.changed.extend(users.iter().map(|(row, _)| *row));
    // Where bytes are looked for, bodies that hold them were found by them.
    let selected = texts.iter().copied().filter(|id| selection.blobs.contains(id)).collect();
    let users = scope::users_of(connection, &selected)?;
    let sources = nodes.iter().chain(&users).map(|(_, id)| *id);
    work.below = scope::bodies_below(connection, sources)?;
    work.pending(selection, &nodes)?;
    for (row, id) in nodes {
        work.node(row, id)?;
    }
    for id in &texts {
        work.text(id)?;
    }
    work.unnamed()?;
    work.bytes()?;
    work.small_rows()?;
    work.finish()
}

/// What is looked for is in what the graph needs.
fn in_structure(place: FoundPlace, erased: &mut Erased) {
    let told = "it is also part of an id, a name or a word of the file format, which the graph needs, so it stays \
                there";
    erased.keep(place, KeptWhy::Failed, told);
}

impl Work<'_> {
    fn in_use(&mut self, place: FoundPlace, owner: &str) {
        let detail = format!(
            "an active session uses it (`{owner}`); close that session, or wait until its lease ends"
        );
        self.erased.keep(place, KeptWhy::InUse, detail);
    }

    /// Those that no session at work has.
    fn free_nodes(&mut self, nodes: Vec<(i64, NodeId)>) -> Vec<(i64, NodeId)> {
        let mut free = Vec::with_capacity(nodes.len());
        for (row, id) in nodes {
            match self.at_work.nodes.get(&id).cloned() {
                Some(owner) => self.in_use(FoundPlace::Node(id), &owner),
                None => free.push((row, id)),
            }
        }
        free
    }

    fn free_texts(&mut self, texts: Vec<BlobId>) -> Vec<BlobId> {
        let mut free = Vec::with_capacity(texts.len());
        for id in texts {
            match self.at_work.blobs.get(&id).cloned() {
                Some(owner) => self.in_use(FoundPlace::Blob(id), &owner),
                None => free.push(id),
            }
        }
        free
    }

    /// What sessions left open.
    fn pending(&mut self, selection: &Selection, nodes: &[(i64, NodeId)]) -> Outcome<()> {
        for row in seek::pending(self.connection, selection, self.needles)? {
            if let Some(owner) = self.at_work.sessions.get(&row.session).cloned() {
                self.in_use(row.place(), &owner);
                continue;
            }
            if row.moves_files() {
                let told = "a jump was interrupted while it restored files; open that session to finish it, then erase \
                            again";
                self.erased.keep(row.place(), KeptWhy::InUse, told);
                continue;
            }
            self.named.extend(hashes_in(&row.text));
            row.remove(self.connection)?;
            self.erased.add(row.text.len() as u64);
        }
        // A call that was recorded and has no answer: its body was made of the lineage that it stands on.
        let gone: HashSet<NodeId> = nodes.iter().map(|(_, id)| *id).collect();
        if gone.is_empty() {
            return Ok(());
        }
        for call in seek::open_calls(self.connection)? {
            if call.head.is_some_and(|head| gone.contains(&head))
                && let Some(bytes) = call.blank(self.connection)?
            {
                self.erased.add(bytes);
            }
            let head = match call.head {
                Some(head) if rows::find_node(self.connection, &head)?.is_some() => Some(head),
                _ => seek::head(self.connection, &RefName::session(&call.session))?,
            };
            let Some(head) = head else { continue };
            let lineage = graph::lineage(self.connection, &head, Until::Root)?;
            if lineage.iter().any(|node| gone.contains(&node.id)) {
                self.chunks.extend(call.bodies);
            }
        }
        Ok(())
    }

    fn node(&mut self, row: i64, id: NodeId) -> Outcome<()> {
        let Some(node) = rows::node_at(self.connection, row)? else { return Ok(()) };
        let mut parts = Vec::with_capacity(node.record.parts.len());
        let mut bytes = 0;
        for part in &node.record.parts {
            let Some(blob) = rows::find_blob(self.connection, part)? else {
                parts.push(*part);
                continue;
            };
            bytes += blob.content.len() as u64;
            let left = erased_part(&blob);
            if self.needles.are_in(left.content.as_bytes()) {
                in_structure(FoundPlace::Node(id), &mut self.erased);
            }
            self.connection
                .prepare_cached("INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)")?
                .execute(params![left.id.to_string(), left.kind, left.content])?;
            parts.push(left.id);
            self.lost(&blob, &left);
            self.named.extend(scope::prompts_of(&blob));
            self.old.insert(*part);
        }
        self.named.extend(node.record.system_prompt.map(|prompt| prompt.0));
        for part in &parts {
            self.old.remove(part);
        }
        self.connection
            .prepare_cached(
                "UPDATE nodes SET parts_list = ?2, config_json = NULL, thought_signatures = NULL WHERE rowid = ?1",
            )?
            .execute(params![row, write_parts_list(&parts)])?;
        note(self.connection, Kind::Node, &id.0, self.why)?;
        self.changed.insert(row);
        self.nodes += 1;
        self.erased.add(bytes);
        Ok(())
    }

    /// What a part named, and what is left of it does not.
    fn lost(&mut self, blob: &Blob, left: &Blob) {
        let stays: HashSet<Hash> = refs_of(left).into_iter().collect();
        self.named.extend(refs_of(blob).into_iter().filter(|hash| !stays.contains(hash)));
    }

    /// A text, in its place: whoever has it as a part has what is left of it.
    fn text(&mut self, id: &BlobId) -> Outcome<()> {
        let Some(blob) = rows::find_blob(self.connection, id)? else { return Ok(()) };
        let left = erased_part(&blob);
        if self.needles.are_in(left.content.as_bytes()) {
            in_structure(FoundPlace::Blob(*id), &mut self.erased);
        }
        self.lost(&blob, &left);
        self.replace(&blob, &left.content)?;
        self.erased.add(blob.content.len() as u64);
        Ok(())
    }

    fn replace(&mut self, blob: &Blob, content: &str) -> Outcome<()> {
        self.connection
            .prepare_cached("UPDATE blobs SET content = ?2, thought_signature = NULL WHERE hash = ?1")?
            .execute(params![blob.id.to_string(), content])?;
        note(self.connection, Kind::Blob, &blob.id.0, self.why)?;
        self.blobs += 1;
        Ok(())
    }

    /// What nothing names any more goes, too.
    fn unnamed(&mut self) -> Outcome<()> {
        let mut wanted: HashSet<Hash> = self.named.clone();
        wanted.extend(self.below.bodies.iter().map(|body| body.0));
        wanted.extend(self.old.iter().map(|id| id.0));
        let all: HashSet<ChunkId> =
            self.chunks.iter().copied().chain(wanted.iter().map(|hash| ChunkId(*hash))).collect();
        let (pieces, of_others) = chunks::pieces(self.connection, &all)?;
        wanted.extend(pieces.iter().map(|id| id.0));
        if wanted.is_empty() {
            return Ok(());
        }
        let kept = still_named(self.connection, &wanted, self)?;
        let gone = wanted.iter().filter(|hash| !kept.contains(*hash));
        let mut texts = Vec::new();
        for hash in gone.clone() {
            texts.extend(rows::find_blob(self.connection, &BlobId(*hash))?);
        }
        for blob in texts {
            let left = emptied_part(&blob);
            if left.content != blob.content {
                self.lost(&blob, &left);
                self.replace(&blob, &left.content)?;
            }
        }
        let is_piece = |hash: &Hash| pieces.contains(&ChunkId(*hash)) && of_others.contains(&ChunkId(*hash));
        let mut bytes = Vec::new();
        for hash in gone.filter(|hash| !is_piece(hash)) {
            if chunks::kept(self.connection, &ChunkId(*hash))?.is_some() {
                bytes.push(ChunkId(*hash));
            }
        }
        self.chunks.extend(bytes);
        Ok(())
    }

    /// Bytes go, and what is made of them as pieces; what stands on them as a difference is kept whole from then on.
    fn bytes(&mut self) -> Outcome<()> {
        let mut go: HashSet<ChunkId> = self.chunks.iter().copied().collect();
        let owners = chunks::owners_of(self.connection, &go)?;
        go.extend(owners);
        chunks::stand_alone(self.connection, &go)?;
        for id in go {
            if let Some(bytes) = chunks::empty(self.connection, &id)? {
                note(self.connection, Kind::Chunk, &id.0, self.why)?;
                self.erased.add(bytes);
                self.chunks.insert(id);
            }
        }
        Ok(())
    }

    /// Notes of moves, names of bookmarks, and what other programs put beside nodes and texts.
    fn small_rows(&mut self) -> Outcome<()> {
        for found in seek::small_rows(self.connection, self.needles)? {
            found.remove(self.connection)?;
            self.erased.add(found.bytes);
        }
        Ok(())
    }

    fn finish(self) -> Outcome<Erased> {
        if self.erased.count == 0 && self.nodes + self.blobs == 0 {
            return Ok(self.erased);
        }
        let changed: Vec<i64> = self.changed.iter().copied().collect();
        vectors::forget(self.connection, &changed)?;
        schema::reset_but_vectors(self.connection)?;
        let metadata = serde_json::json!({
            "nodes": self.nodes, "blobs": self.blobs, "chunks": self.chunks.len(), "why": self.why,
        });
        self.connection.execute(
            "INSERT INTO action_log (timestamp, action_type, from_node, to_node, metadata) VALUES (?1, ?2, NULL, NULL, ?3)",
            params![rows::now(), KIND, metadata.to_string()],
        )?;
        scrub::mark(self.connection)?;
        Ok(self.erased)
    }
}

/// Which of these hashes anything names that stays.
fn still_named(connection: &Connection, wanted: &HashSet<Hash>, work: &Work<'_>) -> Outcome<HashSet<Hash>> {
    let mut kept = HashSet::new();
    // Our parts of erased nodes name what others may need, and need nothing themselves.
    let mut own_of_erased: HashSet<BlobId> = HashSet::new();
    let mut all = connection.prepare(
        "SELECT n.parts_list, n.system_prompt_hash, e.hash IS NOT NULL FROM nodes n \
         LEFT JOIN quipu_erased e ON e.hash = unhex(n.id) AND e.kind = 1",
    )?;
    let mut found = all.query([])?;
    while let Some(row) = found.next()? {
        let parts = rows::text(row, 0)?.map(|list| rows::parts(&list)).unwrap_or_default();
        kept.extend(parts.iter().map(|part| part.0).filter(|hash| wanted.contains(hash)));
        if row.get::<_, bool>(2)? {
            own_of_erased.extend(parts.last());
        } else if let Some(prompt) = rows::text(row, 1)? {
            kept.extend(hashes_in(&prompt).filter(|hash| wanted.contains(hash)));
        }
    }
    let mut all = connection.prepare("SELECT hash, content FROM blobs WHERE type = 'quipu'")?;
    let mut found = all.query([])?;
    while let Some(row) = found.next()? {
        let id: Option<BlobId> = rows::text(row, 0)?.and_then(|hash| hash.parse().ok());
        let goes = |id: &BlobId| work.old.contains(id) && !kept.contains(&id.0) || own_of_erased.contains(id);
        if id.as_ref().is_some_and(goes) {
            continue;
        }
        let is_below = id.is_some_and(|id| work.below.parts.contains(&id));
        let body = |hash: &Hash| is_below && work.below.bodies.contains(&ChunkId(*hash));
        let content = rows::text(row, 1)?.unwrap_or_default();
        kept.extend(hashes_in(&content).filter(|hash| wanted.contains(hash) && !body(hash)));
    }
    for query in [
        "SELECT plan FROM quipu_jump",
        "SELECT result FROM quipu_step WHERE result IS NOT NULL",
        "SELECT item FROM quipu_inbox",
    ] {
        let mut all = connection.prepare(query)?;
        let mut found = all.query([])?;
        while let Some(row) = found.next()? {
            let text = rows::text(row, 0)?.unwrap_or_default();
            kept.extend(hashes_in(&text).filter(|hash| wanted.contains(hash)));
        }
    }
    Ok(kept)
}
