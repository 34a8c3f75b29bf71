//! Many nodes in the order in which they were written: rows that lie beside each other are read in one go, without
//! looking each up by its hash.

use std::borrow::Cow;
use std::collections::{BinaryHeap, HashMap, HashSet};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, NodeId};
use quipu_transcript::{Decoded, decode};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};

use super::chunks;
use super::failure::{Failure, Outcome};
use super::graph::ancestor_at;
use super::places::{at, position};
use super::rows;
use crate::load::{ByHash, parts_of};
use crate::{Objects, Piece, ReadParts, Seq, Written};

/// Rows that are passed by, rather than looked up anew where the next that is wanted lies.
const FAR: i64 = 16;
/// Blobs without a neighbour that is wanted, after which no more neighbours are looked at.
const ALONE: usize = 8;
/// Fewer ids than this are looked up one by one.
const FEW: usize = 8;

/// The rows of the nodes between `root` and `ends`, in order; `root` is left out, and so are ends that do not come
/// from it.
pub(super) fn below(connection: &Connection, root: &NodeId, ends: &[NodeId]) -> Outcome<Vec<Seq>> {
    let root = position(connection, root)?;
    let mut open = BinaryHeap::new();
    for end in ends {
        match (position(connection, end)?, root) {
            (Some(end), Some(root)) => {
                // Mostly the root begins the session that the end belongs to.
                let comes = end.session == Some(root.seq)
                    || ancestor_at(connection, end, root.depth)?.is_some_and(|found| found.seq == root.seq);
                open.extend((comes && end.seq != root.seq).then_some(end.seq));
            }
            (Some(_), None) => {}
            // One that waits for its parent comes from nowhere.
            (None, _) if rows::find_node(connection, end)?.is_some() => {}
            (None, _) => return Err(Failure::Missing(format!("node {}", end.short()))),
        }
    }
    let Some(root) = root else { return Ok(Vec::new()) };
    let starts = open.clone();
    let mut found = Vec::new();
    let mut statement = connection
        .prepare_cached("SELECT seq, parent FROM quipu_x_node WHERE seq <= ?1 ORDER BY seq DESC")?;
    while let Some(start) = open.peek() {
        let mut up = statement.query([start])?;
        let mut passed = 0;
        // Mostly the parent was written just before.
        while passed < FAR
            && let Some(wanted) = open.peek().copied()
        {
            let row = up.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?)));
            let Some((seq, parent)) = row.transpose()?.filter(|(seq, _): &(i64, _)| *seq >= wanted) else {
                return Err(nowhere());
            };
            if seq > wanted {
                passed += 1;
                continue;
            }
            passed = 0;
            while open.peek() == Some(&seq) {
                open.pop();
            }
            found.push(Seq(seq));
            match parent {
                Some(parent) if parent == root.seq => {}
                Some(parent) if parent < seq => open.push(parent),
                // Another program wrote it before its parent.
                Some(_) => return one_by_one(connection, root.seq, starts.into_vec()),
                None => return Err(nowhere()),
            }
        }
    }
    found.reverse();
    Ok(found)
}

/// The same for rows in any order.
fn one_by_one(connection: &Connection, root: i64, starts: Vec<i64>) -> Outcome<Vec<Seq>> {
    let mut seen = HashSet::new();
    for start in starts {
        let mut next = start;
        while next != root && seen.insert(next) {
            let here = at(connection, next)?;
            if here.parent == next {
                return Err(nowhere());
            }
            next = here.parent;
        }
    }
    let mut found: Vec<Seq> = seen.into_iter().map(Seq).collect();
    found.sort_unstable();
    Ok(found)
}

fn nowhere() -> Failure {
    Failure::Corrupt("the derived tables are inconsistent".to_owned())
}

/// The nodes of some rows with their parts, until these are `bytes` long.
pub(super) fn read(connection: &Connection, seqs: &[Seq], which: ReadParts, bytes: usize) -> Outcome<Piece> {
    let mut nodes = nodes_of(connection, seqs)?;
    if which == ReadParts::All {
        follows(connection, &mut nodes)?;
    }
    let of = |written: &Written| {
        let parts = written.node.record.parts.clone();
        let skipped = match which {
            ReadParts::None => parts.len(),
            ReadParts::Last => parts.len().saturating_sub(1),
            ReadParts::All => 0,
        };
        parts.into_iter().skip(skipped)
    };
    let order: Vec<BlobId> = nodes.iter().flat_map(of).collect();
    let mut reader = Reader::new(connection, &order, bytes)?;
    reader.run(&order)?;
    let mut kept = nodes.len();
    if reader.left == 0 {
        kept = 0;
        for node in &nodes {
            let missing: Vec<BlobId> = of(node).filter(|part| reader.open.contains(part)).collect();
            if kept > 0 && !missing.is_empty() {
                break;
            }
            for part in missing {
                reader.open.remove(&part);
                reader.blobs.extend(rows::find_blob(connection, &part)?.map(|blob| (part, blob)));
            }
            kept += 1;
        }
    }
    let next = nodes.get(kept).map(|node| node.seq);
    let read = next.and_then(|next| seqs.iter().position(|seq| *seq == next)).unwrap_or(seqs.len());
    nodes.truncate(kept);
    Ok(Piece { read, nodes, objects: Objects::of_blobs(reader.blobs) })
}

/// The nodes of some rows; those that are not there, or cannot be read, are left out.
fn nodes_of(connection: &Connection, seqs: &[Seq]) -> Outcome<Vec<Written>> {
    let mut nodes = Vec::with_capacity(seqs.len());
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {}, n.rowid FROM nodes n WHERE n.rowid BETWEEN ?1 AND ?2 ORDER BY n.rowid",
        rows::NODE
    ))?;
    for run in seqs.chunk_by(|a, b| a < b && b.0.saturating_sub(a.0) <= FAR) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let mut wanted = run.iter().peekable();
        let mut found = statement.query(params![first.0, last.0])?;
        while let Some(row) = found.next()? {
            let seq = Seq(row.get(9)?);
            while wanted.next_if(|wanted| **wanted < seq).is_some() {}
            if wanted.next_if(|wanted| **wanted == seq).is_some()
                && let Some(node) = rows::node(row)?
            {
                nodes.push(Written { seq, node, follows: None });
            }
        }
    }
    Ok(nodes)
}

/// The writers' own ids of the nodes' parents.
fn follows(connection: &Connection, nodes: &mut [Written]) -> Outcome<()> {
    let mut statement = connection.prepare_cached("SELECT external_id FROM nodes WHERE id = ?1")?;
    let mut before: Option<(NodeId, Option<String>)> = None;
    for Written { node, follows, .. } in nodes {
        let Some(parent) = node.record.parent else { continue };
        *follows = match before.take().filter(|(id, _)| *id == parent) {
            Some((_, id)) => id,
            None => statement
                .query_row([parent.to_string()], |row| Ok(rows::text(row, 0)?.map(Cow::into_owned)))
                .optional()?
                .flatten(),
        };
        before = Some((node.id, node.record.external_id.clone()));
    }
    Ok(())
}

/// The blobs of some ids, in this order; `None` for one that is not there. Those that were written one after the
/// other are found without looking each up: quickest when the ids come in the order of their nodes.
pub(super) fn blobs(connection: &Connection, ids: &[BlobId]) -> Outcome<Vec<Option<Blob>>> {
    if ids.len() < FEW {
        return ids.iter().map(|id| rows::find_blob(connection, id)).collect();
    }
    let mut reader = Reader::new(connection, ids, usize::MAX)?;
    reader.run(ids)?;
    let mut blobs = reader.blobs;
    let mut last: HashMap<BlobId, usize, ByHash> = HashMap::with_capacity_and_hasher(ids.len(), ByHash);
    last.extend(ids.iter().enumerate().map(|(at, id)| (*id, at)));
    // Whoever asks for one twice gets it twice.
    let found = ids.iter().enumerate().map(|(at, id)| match last.get(id) {
        Some(last) if *last == at => blobs.remove(id),
        _ => blobs.get(id).cloned(),
    });
    Ok(found.collect())
}

/// What each node means.
pub(super) fn decoded(connection: &Connection, nodes: Vec<Node>) -> Outcome<Vec<(Node, Decoded)>> {
    let blobs = blobs(connection, &parts_of(&nodes))?;
    let mut objects = Objects::of_blobs(blobs.into_iter().flatten().map(|blob| (blob.id, blob)).collect());
    for id in objects.chunks_to_load(&nodes) {
        match chunks::read(connection, id, 0..u64::MAX) {
            Ok(bytes) => objects.put_chunk(id, bytes),
            // A damaged image leaves a gap like one that is gone; `check` tells of it.
            Err(Failure::Missing(_) | Failure::Erased(_) | Failure::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mean = |node| {
        let decoded = decode(&node, &objects);
        (node, decoded)
    };
    Ok(nodes.into_iter().map(mean).collect())
}

/// Blobs as they are found.
struct Reader<'c> {
    by_hash: CachedStatement<'c>,
    onwards: CachedStatement<'c>,
    blobs: HashMap<BlobId, Blob, ByHash>,
    /// Those that are not found yet.
    open: HashSet<BlobId, ByHash>,
    /// Bytes that may still be read.
    left: usize,
}

impl<'c> Reader<'c> {
    fn new(connection: &'c Connection, order: &[BlobId], bytes: usize) -> Outcome<Self> {
        Ok(Self {
            by_hash: connection.prepare_cached("SELECT rowid, type, content FROM blobs WHERE hash = ?1")?,
            onwards: connection.prepare_cached(
                "SELECT rowid, type, content, hash FROM blobs WHERE rowid > ?1 ORDER BY rowid",
            )?,
            blobs: HashMap::with_capacity_and_hasher(order.len(), ByHash),
            open: order.iter().copied().collect(),
            left: bytes.max(1),
        })
    }

    /// Those that were written together lie together.
    fn run(&mut self, order: &[BlobId]) -> Outcome<()> {
        let mut reached = i64::MIN;
        let mut alone = 0;
        for id in order {
            if self.left == 0 {
                return Ok(());
            }
            if !self.open.remove(id) {
                continue;
            }
            let mut found = self.by_hash.query([id.to_string()])?;
            let Some(row) = found.next()? else { continue };
            let seq: i64 = row.get(0)?;
            keep(&mut self.blobs, &mut self.left, *id, row)?;
            // One that was there before has other neighbours; so have all that came with a window of an import.
            if seq < reached || alone >= ALONE {
                continue;
            }
            reached = seq;
            let mut passed = 0;
            let mut found = self.onwards.query([seq])?;
            while passed < FAR
                && self.left > 0
                && !self.open.is_empty()
                && let Some(row) = found.next()?
            {
                reached = row.get(0)?;
                match rows::text(row, 3)?.and_then(|hash| hash.parse().ok()) {
                    Some(id) if self.open.remove(&id) => {
                        keep(&mut self.blobs, &mut self.left, id, row)?;
                        (passed, alone) = (0, 0);
                    }
                    Some(_) | None => passed += 1,
                }
            }
            alone += usize::from(passed == FAR);
        }
        Ok(())
    }
}

fn keep(
    blobs: &mut HashMap<BlobId, Blob, ByHash>,
    left: &mut usize,
    id: BlobId,
    row: &Row<'_>,
) -> Outcome<()> {
    let text = |column| rows::text(row, column).map(|text| text.map(Cow::into_owned));
    let blob = Blob { id, kind: text(1)?.unwrap_or_default(), content: text(2)?.unwrap_or_default() };
    *left = left.saturating_sub(blob.content.len());
    blobs.insert(id, blob);
    Ok(())
}
