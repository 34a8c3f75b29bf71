//! A session as a file of version 3.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, Entry, NodeId, SessionId, UnixMs};
use quipu_store::{Objects, RefName, SessionRow, Store, StoreError, Until, decode_nodes};
use quipu_transcript::{Decoded, Lookup, decode};

use super::AGENT;
use super::chain::{Chain, header_line, note_id, references, settings_at};
use super::entry::{place, write};
use super::header::Kept;
use super::import::written;
use super::own::Own;
use crate::ArchiveError;
use crate::lineages::{main_ref, tips, walk};

/// Nodes that are read at once.
const PIECE: usize = 500;
/// Bytes of their content, after which no more are read at once.
const PIECE_BYTES: usize = 8 << 20;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Entries, without the header.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Writes a session: one that was imported whole, with all its branches, in the order of its file and as its entries
/// were; any other from the first node of its lineage to its last.
///
/// # Errors
/// `NotExportable`, `Store`; `File` with an empty path when `out` refuses.
pub async fn export(
    store: &dyn Store,
    row: &SessionRow,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ArchiveError> {
    let mut writer = Writer { out, done: Exported { entries: 0, bytes: 0 } };
    if row.agent == AGENT {
        let root: Vec<Node> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
        let header = decode_nodes(store, &root).await?.pop();
        let header = header.and_then(|decoded| decoded.step.extra.get(AGENT)?.read::<Kept>().ok());
        let header = header.ok_or_else(|| missing(row, "its first node is missing or holds no header"))?;
        writer.header(header.header.get())?;
        tree(store, row, row.base, &mut writer).await?;
    } else if store.head(&main_ref(AGENT, &row.id)).await?.is_some()
        && let Some(root) = Own::of(store, &row.id).await?.root
    {
        // It has a file, to which others write as well.
        writer.header(&header_line(row.id.as_str(), row.created, &row.cwd))?;
        tree(store, row, root.id, &mut writer).await?;
    } else {
        lineage(store, row, &mut writer).await?;
    }
    writer.out.flush().map_err(refused)?;
    Ok(writer.done)
}

fn refused(source: std::io::Error) -> ArchiveError {
    ArchiveError::File { path: std::path::PathBuf::new(), doing: "written", source }
}

fn missing(row: &SessionRow, why: &'static str) -> ArchiveError {
    ArchiveError::NotExportable { session: row.id.to_string(), why }
}

struct Writer<'a> {
    out: &'a mut (dyn Write + Send),
    done: Exported,
}

impl Writer<'_> {
    /// Writes the header.
    fn header(&mut self, line: &str) -> Result<(), ArchiveError> {
        self.done.bytes += line.len() as u64 + 1;
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.write_all(b"\n")).map_err(refused)
    }

    fn entry(&mut self, line: &str) -> Result<(), ArchiveError> {
        self.done.entries += 1;
        self.header(line)
    }
}

/// The parts of one node that hold ours.
struct One(Option<Blob>);

impl Lookup for One {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.0.as_ref().filter(|blob| blob.id == *id)
    }

    fn chunk(&self, _: &ChunkId) -> Option<&[u8]> {
        None
    }
}

/// Everything that a file has, in the order of the file.
async fn tree(
    store: &dyn Store,
    row: &SessionRow,
    root: NodeId,
    out: &mut Writer<'_>,
) -> Result<(), ArchiveError> {
    let ends = tips(store, AGENT, &row.id).await?.into_iter().map(|head| head.node);
    let mut ends: Vec<NodeId> = ends.chain(store.head(&main_ref(AGENT, &row.id)).await?).collect();
    // What we went on with stands in the file as well, also where we went back since.
    ends.extend(written(store, &row.id).await?);
    ends.extend(Own::of(store, &row.id).await?.rows.into_iter().filter_map(|row| row.head));
    let mut nodes = Vec::new();
    let mut keep = |node: Node| {
        let part = node.record.parts.last().copied();
        let parent = node.record.parent;
        nodes.push((node.id, parent, node.record.timestamp, node.record.external_id, part));
    };
    // The header of a file has no id.
    let first = store.nodes(&[root]).await?.into_iter().flatten();
    first.filter(|node| node.record.external_id.is_some()).for_each(&mut keep);
    walk(store, root, ends, |node, _, _| keep(node)).await?;
    let mut order: Vec<(u64, UnixMs, NodeId)> = Vec::with_capacity(nodes.len());
    let mut ids: HashMap<NodeId, Option<Box<str>>> = HashMap::with_capacity(nodes.len());
    let mut ours: Vec<(UnixMs, NodeId, Option<NodeId>)> = Vec::new();
    for piece in nodes.chunks(PIECE) {
        let parts: Vec<BlobId> = piece.iter().filter_map(|(.., part)| *part).collect();
        let mut parts: HashMap<BlobId, Blob> =
            store.blobs(&parts).await?.into_iter().flatten().map(|blob| (blob.id, blob)).collect();
        for (node, parent, time, id, part) in piece {
            let own = part.and_then(|part| parts.remove(&part));
            let record = quipu_dag::NodeRecord {
                parent: None,
                role: String::new(),
                parts: part.iter().copied().collect(),
                timestamp: *time,
                external_id: None,
                system_prompt: None,
            };
            let step =
                decode(&Node { id: *node, record, config: None, thought_signatures: None }, &One(own)).step;
            match place(&step) {
                Some(n) => {
                    order.push((n, *time, *node));
                    ids.insert(*node, id.as_deref().map(Into::into));
                }
                None => ours.push((*time, *node, *parent)),
            }
        }
    }
    drop(nodes);
    order.sort_unstable();
    // A node of ours is later than the one before it.
    ours.sort_unstable();
    ids.entry(root).or_insert(None);
    let mut ours = Ours { nodes: ours.into(), ids, place: 1, last: None };
    let mut line = String::new();
    let read = |at: usize| {
        let piece = &order[at.min(order.len())..(at + PIECE).min(order.len())];
        let ids: Vec<NodeId> = piece.iter().map(|(_, _, node)| *node).collect();
        Box::pin(async move { store.whole_nodes(&ids, PIECE_BYTES).await })
    };
    let (mut at, mut next, mut early) = (0, read(0), None);
    while at < order.len() {
        let whole = match early.take() {
            Some(whole) => whole?,
            None => next.await?,
        };
        at += whole.len().max(1);
        next = read(at);
        // Asked for now, so that the store reads while this piece is written.
        poll_fn(|context| {
            if let Poll::Ready(whole) = next.as_mut().poll(context) {
                early = Some(whole);
            }
            Poll::Ready(())
        })
        .await;
        let (nodes, objects) = Objects::of_whole(store, whole.into_iter().flatten()).await?;
        for node in &nodes {
            let decoded = decode(node, &objects);
            let n = place(&decoded.step).unwrap_or(0);
            ours.write_up_to(store, n, out).await?;
            let parent = node.record.parent.and_then(|parent| ours.ids.get(&parent)?.as_deref());
            line.clear();
            write(&mut line, node, &decoded, parent);
            out.entry(&line)?;
            ours.place = n + 1;
            ours.last = node.record.external_id.clone();
        }
    }
    ours.write_up_to(store, u64::MAX, out).await?;
    noted(store, row, &ours, out).await
}

/// Nodes of ours that stand in a file between those of others: in the places that these leave, in the order of time.
struct Ours {
    nodes: VecDeque<(UnixMs, NodeId, Option<NodeId>)>,
    /// The id of each node's last line; those of ours come with their lines.
    ids: HashMap<NodeId, Option<Box<str>>>,
    /// The place of the next line.
    place: u64,
    /// The id of the last line.
    last: Option<String>,
}

impl Ours {
    async fn write_up_to(
        &mut self,
        store: &dyn Store,
        place: u64,
        out: &mut Writer<'_>,
    ) -> Result<(), ArchiveError> {
        let mut lines = Vec::new();
        while self.place < place
            && let Some((_, id, parent)) = self.nodes.front().copied()
            && parent.is_none_or(|parent| self.ids.contains_key(&parent))
        {
            self.nodes.pop_front();
            let nodes: Vec<Node> = store.nodes(&[id]).await?.into_iter().flatten().collect();
            for (node, decoded) in nodes.iter().zip(decode_nodes(store, &nodes).await?) {
                let last = parent.and_then(|parent| self.ids.get(&parent)?.as_deref().map(str::to_owned));
                let mut chain = Chain { last, ..Chain::default() };
                if let (Entry::Epoch(_), Some(parent)) = (&decoded.entry, parent) {
                    chain.settings = settings_at(store, parent).await?;
                }
                self.name(&mut chain, &decoded);
                chain.node(node, &decoded, &mut lines);
                for line in lines.drain(..) {
                    out.entry(&line)?;
                    self.place += 1;
                    self.last.clone_from(&chain.last);
                }
                self.ids.insert(node.id, chain.last.as_deref().map(Into::into));
            }
        }
        Ok(())
    }

    /// What an entry refers to, by its id in the file.
    fn name(&self, chain: &mut Chain, decoded: &Decoded) {
        for node in references(&decoded.entry) {
            if let Some(Some(id)) = self.ids.get(&node) {
                chain.names.insert(node.to_string(), id.to_string());
            }
        }
    }
}

/// What we said of an imported session since: labels and names, behind its last entry.
async fn noted(
    store: &dyn Store,
    row: &SessionRow,
    ours: &Ours,
    out: &mut Writer<'_>,
) -> Result<(), ArchiveError> {
    let mut chain = Chain { last: ours.last.clone(), ..Chain::default() };
    let written: std::collections::HashSet<&str> = ours.ids.values().flatten().map(|id| &**id).collect();
    for node in notes(store, &row.id, &|node| ours.ids.contains_key(&node.id)).await? {
        let id = note_id(&node.id);
        // Written to the file and read from there since.
        if written.contains(id.as_str()) {
            continue;
        }
        for decoded in decode_nodes(store, std::slice::from_ref(&node)).await? {
            let Entry::Meta(json) = &decoded.entry else { continue };
            ours.name(&mut chain, &decoded);
            out.entry(&chain.meta(json, &id, node.record.timestamp))?;
            chain.last = Some(id.clone());
        }
    }
    Ok(())
}

/// The labels and names that were given beside a session of a file, the oldest first.
pub(super) async fn notes(
    store: &dyn Store,
    session: &SessionId,
    is_of_the_file: &(dyn Fn(&Node) -> bool + Sync),
) -> Result<Vec<Node>, StoreError> {
    let mut notes = Vec::new();
    let mut from = store.head(&RefName::notes(AGENT, session)).await?;
    while let Some(start) = from {
        let nodes = store.lineage(start, Until::Count(PIECE)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        for node in nodes.into_iter().rev() {
            if is_of_the_file(&node) {
                from = None;
                break;
            }
            notes.push(node);
        }
    }
    notes.reverse();
    Ok(notes)
}

async fn lineage(store: &dyn Store, row: &SessionRow, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let head = row.head.ok_or_else(|| missing(row, "no ref stands at its last node"))?;
    let mut path: Vec<NodeId> = Vec::new();
    let mut from = Some(head);
    while let Some(start) = from {
        let nodes = store.lineage(start, Until::Count(4_096)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        path.extend(nodes.iter().rev().map(|node| node.id));
    }
    path.reverse();
    out.header(&header_line(row.id.as_str(), row.created, &row.cwd))?;
    let mut chain = Chain::default();
    let mut lines = Vec::new();
    for piece in path.chunks(PIECE) {
        let nodes: Vec<Node> = store.nodes(piece).await?.into_iter().flatten().collect();
        for (node, decoded) in nodes.iter().zip(decode_nodes(store, &nodes).await?) {
            chain.node(node, &decoded, &mut lines);
            for line in lines.drain(..) {
                out.entry(&line)?;
            }
        }
    }
    Ok(())
}
