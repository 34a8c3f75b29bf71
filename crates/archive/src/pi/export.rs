//! A session as a file of version 3.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;

use quipu_dag::Node;
use quipu_protocol::{Entry, Json, NodeId, SessionId, UnixMs};
use quipu_store::{
    Fut, Graph, LandmarkKind, LineageEnd, Piece, ReadParts, RefName, Seq, SessionRow, StoreError, StoredNode,
    decode_whole,
};
use quipu_transcript::{DecodedEntry, Lookup as _, decode, extra_of};

use super::AGENT;
use super::chain::{Chain, header_line, note_id, references, settings_at};
use super::entry::{place, place_of, write};
use super::header::HeaderPart;
use super::import::written;
use super::own::OwnSessions;
use crate::ArchiveError;
use crate::json::Members;
use crate::lineages::{main_ref, tips};

/// Nodes that are read at once.
const PIECE: usize = 500;
/// Bytes of their content, after which no more are read at once.
const PIECE_BYTES: usize = 8 << 20;

/// Ends of branches of one session that are looked at.
const ENDS: usize = 100_000;

/// An entry of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEntry {
    /// Its line in a file.
    pub line: String,
    /// The node that it is written from; several may be of one.
    pub node: NodeId,
}

/// The size of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportSummary {
    /// Entries, without the header.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Writes a session: one that was imported whole, with all its branches, in the order of its file and as its entries
/// were; any other from the first node of its lineage, with all its branches, to its head, which is what the last line follows.
///
/// # Errors
/// `NotExportable`, `Store`; `File` with an empty path when `out` refuses.
pub async fn export(
    store: &dyn Graph,
    row: &SessionRow,
    out: &mut (dyn Write + Send),
) -> Result<ExportSummary, ArchiveError> {
    let mut writer = Writer { out, done: ExportSummary { entries: 0, bytes: 0 }, nodes: None };
    write_session(store, row, &mut writer).await?;
    Ok(writer.done)
}

/// The entries of a session, as [`export`] writes them.
///
/// # Errors
/// `NotExportable`, `Store`.
pub async fn entries(store: &dyn Graph, row: &SessionRow) -> Result<Vec<SessionEntry>, ArchiveError> {
    let mut text = Vec::new();
    let done = ExportSummary { entries: 0, bytes: 0 };
    let mut writer = Writer { out: &mut text, done, nodes: Some(Vec::new()) };
    write_session(store, row, &mut writer).await?;
    let nodes = writer.nodes.take().unwrap_or_default();
    // The header is no entry.
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    let line = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    Ok(lines.zip(nodes).map(|(text, node)| SessionEntry { line: line(text), node }).collect())
}

async fn write_session(
    store: &dyn Graph,
    row: &SessionRow,
    writer: &mut Writer<'_>,
) -> Result<(), ArchiveError> {
    if row.agent == AGENT {
        let root: Vec<Node> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
        let header = decode_whole(store, &root).await?.pop();
        let header = header.and_then(|decoded| decoded.step.extra.get(AGENT)?.read::<HeaderPart>().ok());
        let header = header.ok_or_else(|| missing(row, "its first node is missing or has no header"))?;
        writer.header(header.header.get())?;
        tree(store, row, row.base, writer).await?;
    } else if store.head(&main_ref(AGENT, &row.id)).await?.is_some()
        && let Some(root) = OwnSessions::of(store, &row.id).await?.root
    {
        // It has a file, to which others write as well.
        writer.header(&header_line(row.id.as_str(), row.created, &row.cwd))?;
        tree(store, row, root.id, writer).await?;
    } else {
        lineage(store, row, writer).await?;
    }
    writer.out.flush().map_err(refused)
}

fn refused(source: std::io::Error) -> ArchiveError {
    ArchiveError::File { path: std::path::PathBuf::new(), doing: "written", source }
}

fn missing(row: &SessionRow, why: &'static str) -> ArchiveError {
    ArchiveError::NotExportable { session: row.id.to_string(), why }
}

struct Writer<'a> {
    out: &'a mut (dyn Write + Send),
    done: ExportSummary,
    /// The nodes of the entries so far, where they are wanted.
    nodes: Option<Vec<NodeId>>,
}

impl Writer<'_> {
    /// Writes the header.
    fn header(&mut self, line: &str) -> Result<(), ArchiveError> {
        self.done.bytes += line.len() as u64 + 1;
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.write_all(b"\n")).map_err(refused)
    }

    fn entry(&mut self, line: &str, node: NodeId) -> Result<(), ArchiveError> {
        self.done.entries += 1;
        if let Some(nodes) = &mut self.nodes {
            nodes.push(node);
        }
        self.header(line)
    }
}

/// Reads nodes by their places; the next ones are read while the present ones are used.
struct NodeReader<'a> {
    store: &'a dyn Graph,
    seqs: &'a [Seq],
    parts: ReadParts,
    next: Fut<'a, Piece>,
    early: Option<Result<Piece, StoreError>>,
}

impl<'a> NodeReader<'a> {
    fn new(store: &'a dyn Graph, seqs: &'a [Seq], parts: ReadParts) -> Self {
        let next = store.written(&seqs[..PIECE.min(seqs.len())], parts, PIECE_BYTES);
        Self { store, seqs, parts, next, early: None }
    }

    /// The next of them; `None` at the end.
    async fn next(&mut self) -> Result<Option<Piece>, StoreError> {
        if self.seqs.is_empty() {
            return Ok(None);
        }
        let piece = match self.early.take() {
            Some(piece) => piece?,
            None => self.next.as_mut().await?,
        };
        self.seqs = &self.seqs[piece.read.clamp(1, self.seqs.len())..];
        if !self.seqs.is_empty() {
            let some = &self.seqs[..PIECE.min(self.seqs.len())];
            self.next = self.store.written(some, self.parts, PIECE_BYTES);
            // Asked for now, so that the store reads meanwhile.
            poll_fn(|context| {
                if let Poll::Ready(piece) = self.next.as_mut().poll(context) {
                    self.early = Some(piece);
                }
                Poll::Ready(())
            })
            .await;
        }
        Ok(Some(piece))
    }
}

/// Everything that a file has, in the order of the file.
async fn tree(
    store: &dyn Graph,
    row: &SessionRow,
    root: NodeId,
    out: &mut Writer<'_>,
) -> Result<(), ArchiveError> {
    let ends = tips(store, AGENT, &row.id).await?.into_iter().map(|head| head.node);
    let mut ends: Vec<NodeId> = ends.chain(store.head(&main_ref(AGENT, &row.id)).await?).collect();
    // What we went on with stands in the file as well, also where we went back since.
    ends.extend(written(store, &row.id).await?);
    let own = OwnSessions::of(store, &row.id).await?;
    ends.extend(own.left(store).await?);
    ends.extend(own.rows.into_iter().filter_map(|row| row.head));
    let mut seqs = store.below(root, &ends).await?;
    drop(ends);
    let notes = notes_of(store, row, root, &seqs).await?;
    let mut lines = Lines {
        notes: notes.iter().map(|node| note_id(&node.id)).collect(),
        noted: HashSet::new(),
        place: 1,
        last: None,
        buffer: String::new(),
    };
    let written = if is_straight(store, row, root, seqs.len()).await? {
        straight(store, &seqs, &mut lines, out).await?
    } else {
        0
    };
    let mut rest = seqs.split_off(written);
    let nodes =
        if written > 0 && rest.is_empty() { Vec::new() } else { places(store, root, &mut rest).await? };
    seqs.append(&mut rest);
    let mut ours = OwnNodes {
        store,
        file: &seqs,
        in_order: seqs.is_sorted(),
        waiting: nodes.iter().map(|(_, node, _)| *node).collect(),
        nodes: nodes.into(),
        ids: HashMap::new(),
        lines,
    };
    let mut reading = NodeReader::new(store, &seqs[written..], ReadParts::All);
    while let Some(Piece { nodes, mut objects, .. }) = reading.next().await? {
        objects.load_chunks(store, nodes.iter().map(|written| &written.node)).await?;
        for StoredNode { node, follows, .. } in &nodes {
            let decoded = decode(node, &objects);
            let n = place(&decoded.step).unwrap_or(0);
            ours.write_up_to(n, out).await?;
            let parent = node.record.parent.and_then(|parent| ours.line_of(&parent, follows.as_deref()));
            let line = ours.lines.of(node, &decoded, parent.map(str::to_owned).as_deref());
            out.entry(line, node.id)?;
            ours.lines.wrote(node.record.external_id.clone());
            ours.lines.place = ours.lines.place.max(n + 1);
        }
    }
    ours.write_up_to(u64::MAX, out).await?;
    noted(notes, ours, out).await
}

/// How far a file is written.
struct Lines {
    /// The place of the next line.
    place: u64,
    /// The id of the last line.
    last: Option<String>,
    /// The ids that lines of notes beside the file would have, and those of them that it has already.
    notes: HashSet<String>,
    noted: HashSet<String>,
    buffer: String,
}

impl Lines {
    /// The line of a node that was read from a file.
    fn of(&mut self, node: &Node, decoded: &DecodedEntry, parent: Option<&str>) -> &str {
        self.buffer.clear();
        write(&mut self.buffer, node, decoded, parent);
        &self.buffer
    }

    /// Notes the id of the line that was written last.
    fn wrote(&mut self, id: Option<String>) {
        if let Some(id) = id.as_ref().and_then(|id| self.notes.get(id)) {
            self.noted.insert(id.clone());
        }
        self.last = id;
    }
}

/// Whether as many nodes came of a file as it has entries: then they mostly were written in its order, and nothing of ours
/// stands between them.
async fn is_straight(
    store: &dyn Graph,
    row: &SessionRow,
    root: NodeId,
    count: usize,
) -> Result<bool, StoreError> {
    let Some(last) = store.head(&main_ref(AGENT, &row.id)).await? else { return Ok(false) };
    let ends: Vec<Node> = store.nodes(&[root, last]).await?.into_iter().flatten().collect();
    let [first, last] = &ends[..] else { return Ok(false) };
    let decoded = decode_whole(store, std::slice::from_ref(last)).await?;
    let places = decoded.first().and_then(|decoded| place(&decoded.step));
    // The header of a file has no id.
    Ok(first.record.external_id.is_none() && places == u64::try_from(count).ok())
}

/// Writes nodes for as long as they come in the order of the file, each in the place after the one before; how many those
/// are. So most files are read once, and nothing is kept of their entries.
async fn straight(
    store: &dyn Graph,
    seqs: &[Seq],
    lines: &mut Lines,
    out: &mut Writer<'_>,
) -> Result<usize, ArchiveError> {
    let mut reading = NodeReader::new(store, seqs, ReadParts::All);
    while let Some(Piece { nodes, mut objects, .. }) = reading.next().await? {
        objects.load_chunks(store, nodes.iter().map(|written| &written.node)).await?;
        for StoredNode { seq, node, follows } in &nodes {
            let decoded = decode(node, &objects);
            if place(&decoded.step) != Some(lines.place) {
                return Ok(seqs.partition_point(|before| before < seq));
            }
            out.entry(lines.of(node, &decoded, follows.as_deref()), node.id)?;
            lines.wrote(node.record.external_id.clone());
            lines.place += 1;
        }
    }
    Ok(seqs.len())
}

/// Brings the nodes of a file into its order, and takes those of ours out, which are returned in theirs.
async fn places(store: &dyn Graph, root: NodeId, seqs: &mut Vec<Seq>) -> Result<Vec<OurNode>, ArchiveError> {
    let mut ours: Vec<OurNode> = Vec::new();
    let first = store.nodes(&[root]).await?.into_iter().flatten();
    // The header of a file has no id.
    let first = first.filter(|node| node.record.external_id.is_some());
    ours.extend(first.map(|node| (node.record.timestamp, node.id, node.record.parent)));
    let mut places: Vec<(u32, Seq)> = Vec::with_capacity(seqs.len());
    let mut reading = NodeReader::new(store, seqs, ReadParts::Last);
    while let Some(Piece { nodes, objects, .. }) = reading.next().await? {
        for StoredNode { seq, node, .. } in &nodes {
            let own = node.record.parts.last().and_then(|part| objects.blob(part));
            match own.and_then(|own| extra_of(own, AGENT)).and_then(|extra| place_of(&extra)) {
                // More than that are 400 GB.
                Some(n) => places.push((u32::try_from(n).unwrap_or(u32::MAX), *seq)),
                None => ours.push((node.record.timestamp, node.id, node.record.parent)),
            }
        }
    }
    drop(reading);
    // Mostly the order in which they were written.
    if !places.is_sorted_by(|(a, _), (b, _)| a < b) {
        places.sort_unstable();
        for alike in places.chunk_by_mut(|(a, _), (b, _)| a == b).filter(|alike| alike.len() > 1) {
            let seqs: Vec<Seq> = alike.iter().map(|(_, seq)| *seq).collect();
            let mut times = Vec::with_capacity(seqs.len());
            let mut reading = NodeReader::new(store, &seqs, ReadParts::Last);
            while let Some(piece) = reading.next().await? {
                times.extend(piece.nodes.iter().map(|it| (it.node.record.timestamp, it.node.id, it.seq)));
            }
            times.sort_unstable();
            for ((_, seq), (.., earlier)) in alike.iter_mut().zip(times) {
                *seq = earlier;
            }
        }
    }
    seqs.clear();
    seqs.extend(places.iter().map(|(_, seq)| *seq));
    // A node of ours is later than the one before it.
    ours.sort_unstable();
    Ok(ours)
}

/// A node of ours: its time, and its parent.
type OurNode = (UnixMs, NodeId, Option<NodeId>);

/// Nodes of ours that stand in a file between those of others: in the places that these leave, in the order of time.
struct OwnNodes<'a> {
    store: &'a dyn Graph,
    /// What else the file has, and whether that is in the order in which it was written.
    file: &'a [Seq],
    in_order: bool,
    nodes: VecDeque<OurNode>,
    /// Those that were not written yet.
    waiting: HashSet<NodeId>,
    /// The id of the last line of each that was.
    ids: HashMap<NodeId, Option<String>>,
    lines: Lines,
}

impl OwnNodes<'_> {
    async fn write_up_to(&mut self, place: u64, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
        let store = self.store;
        let mut lines = Vec::new();
        while self.lines.place < place
            && let Some((_, id, parent)) = self.nodes.front().copied()
            && parent.is_none_or(|parent| !self.waiting.contains(&parent))
        {
            self.nodes.pop_front();
            let nodes: Vec<Node> = store.nodes(&[id]).await?.into_iter().flatten().collect();
            for (node, decoded) in nodes.iter().zip(decode_whole(store, &nodes).await?) {
                let last = match parent {
                    Some(parent) => self.id_of(parent).await?,
                    None => None,
                };
                let mut chain = Chain { last, ..Chain::default() };
                if let (Entry::Epoch(_), Some(parent)) = (&decoded.entry, parent) {
                    chain.settings = settings_at(store, parent).await?;
                }
                self.name(&mut chain, &decoded).await?;
                chain.node(node, &decoded, &mut lines);
                for line in lines.drain(..) {
                    out.entry(&line, node.id)?;
                    self.lines.place += 1;
                    self.lines.wrote(chain.last.clone());
                }
                self.ids.insert(node.id, chain.last);
            }
            self.waiting.remove(&id);
        }
        Ok(())
    }

    /// The id of a node's last line, when it is `own` of those that are not ours.
    fn line_of<'a>(&'a self, node: &NodeId, own: Option<&'a str>) -> Option<&'a str> {
        match self.ids.get(node) {
            Some(id) => id.as_deref(),
            None => own.filter(|_| !self.waiting.contains(node)),
        }
    }

    /// The same, where its own is not known; `None` for a node that the file does not have.
    async fn id_of(&self, id: NodeId) -> Result<Option<String>, StoreError> {
        if let Some(line) = self.ids.get(&id) {
            return Ok(line.clone());
        }
        let Some(node) = self.store.nodes(&[id]).await?.into_iter().flatten().next() else { return Ok(None) };
        let Some(parent) = node.record.parent else { return Ok(None) };
        let seqs = self.store.below(parent, &[id]).await?;
        let has =
            |seq| if self.in_order { self.file.binary_search(seq).is_ok() } else { self.file.contains(seq) };
        Ok(node.record.external_id.filter(|_| seqs.iter().all(has)))
    }

    /// What an entry refers to, by its id in the file.
    async fn name(&self, chain: &mut Chain, decoded: &DecodedEntry) -> Result<(), StoreError> {
        for node in references(&decoded.entry) {
            if let Some(id) = self.id_of(node).await? {
                chain.names.insert(node.to_string(), id);
            }
        }
        Ok(())
    }
}

/// What we said of an imported session since, the oldest first: the labels and names beside its file, of which all nodes
/// are `seqs`.
async fn notes_of(
    store: &dyn Graph,
    row: &SessionRow,
    root: NodeId,
    seqs: &[Seq],
) -> Result<Vec<Node>, StoreError> {
    let Some(last) = store.head(&RefName::notes(AGENT, &row.id)).await? else { return Ok(Vec::new()) };
    let mut notes = store.below(root, &[last]).await?;
    notes.retain(|seq| seqs.binary_search(seq).is_err());
    let mut nodes = Vec::with_capacity(notes.len());
    let mut reading = NodeReader::new(store, &notes, ReadParts::Last);
    while let Some(piece) = reading.next().await? {
        nodes.extend(piece.nodes.into_iter().map(|written| written.node));
    }
    Ok(nodes)
}

/// Labels and names that were given beside a file, behind its last entry.
async fn noted(notes: Vec<Node>, ours: OwnNodes<'_>, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let mut chain = Chain { last: ours.lines.last.clone(), ..Chain::default() };
    for node in notes {
        let id = note_id(&node.id);
        // Written to the file and read from there since.
        if ours.lines.noted.contains(&id) {
            continue;
        }
        for decoded in decode_whole(ours.store, std::slice::from_ref(&node)).await? {
            let Entry::Meta(json) = &decoded.entry else { continue };
            ours.name(&mut chain, &decoded).await?;
            out.entry(&chain.meta(json, &id, node.record.timestamp), node.id)?;
            chain.last = Some(id.clone());
        }
    }
    Ok(())
}

/// The labels and names that were given beside a session of a file, the oldest first.
pub(super) async fn notes(
    store: &dyn Graph,
    session: &SessionId,
    is_of_the_file: &(dyn Fn(&Node) -> bool + Sync),
) -> Result<Vec<Node>, StoreError> {
    let mut notes = Vec::new();
    let mut from = store.head(&RefName::notes(AGENT, session)).await?;
    while let Some(start) = from {
        let nodes = store.lineage(start, LineageEnd::Count(PIECE)).await?;
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

async fn lineage(store: &dyn Graph, row: &SessionRow, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let head = row.head.ok_or_else(|| missing(row, "no ref points to its last node"))?;
    let mut path: Vec<NodeId> = Vec::new();
    let mut from = Some(head);
    while let Some(start) = from {
        let nodes = store.lineage(start, LineageEnd::Count(4_096)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        path.extend(nodes.iter().rev().map(|node| node.id));
    }
    path.reverse();
    out.header(&header_line(row.id.as_str(), row.created, &row.cwd))?;
    let (before, sides) = sides(store, row, head, &path).await?;
    let mut branches =
        Branches { store, chain: Chain::default(), ids: HashMap::new(), last: None, later: Vec::new() };
    branches.write(&path[..before], out).await?;
    branches.write(&sides, out).await?;
    branches.write(&path[before..], out).await?;
    branches.end(head, out).await
}

/// The nodes that a session of ours left behind, each behind the one that it follows; and how many nodes of its lineage
/// they need before them.
async fn sides(
    store: &dyn Graph,
    row: &SessionRow,
    head: NodeId,
    path: &[NodeId],
) -> Result<(usize, Vec<NodeId>), StoreError> {
    let places: HashMap<NodeId, usize> = path.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut ends = store.landmarks(std::slice::from_ref(&row.id), ENDS).await?;
    ends.retain(|mark| mark.kind == LandmarkKind::End && !places.contains_key(&mark.node));
    let (mut before, mut sides, mut met) = (0, Vec::new(), HashSet::new());
    // The oldest first.
    for end in ends.iter().rev() {
        let Some(shared) = store.fork_point(head, end.node).await? else { continue };
        before = before.max(places.get(&shared).map_or(0, |at| at + 1));
        let nodes = store.lineage(end.node, LineageEnd::Node(shared)).await?;
        let new = nodes.iter().map(|node| node.id).filter(|id| !places.contains_key(id) && met.insert(*id));
        sides.extend(new.collect::<Vec<_>>());
    }
    // Nothing needs to stand before what is not there.
    Ok((if sides.is_empty() { path.len() } else { before }, sides))
}

/// The branches of a session of ours that are being written.
struct Branches<'a> {
    store: &'a dyn Graph,
    chain: Chain,
    /// The id of the last line up to each node.
    ids: HashMap<NodeId, Option<String>>,
    /// The node that was written last.
    last: Option<NodeId>,
    /// Labels of nodes that were not written before them.
    later: Vec<NodeId>,
}

impl Branches<'_> {
    async fn write(&mut self, nodes: &[NodeId], out: &mut Writer<'_>) -> Result<(), ArchiveError> {
        let mut lines = Vec::new();
        for piece in nodes.chunks(PIECE) {
            let nodes: Vec<Node> = self.store.nodes(piece).await?.into_iter().flatten().collect();
            for (node, decoded) in nodes.iter().zip(decode_whole(self.store, &nodes).await?) {
                if self.last != node.record.parent {
                    self.chain.silent.clear();
                    let parent = node.record.parent;
                    self.chain.last = parent.and_then(|parent| self.ids.get(&parent).cloned().flatten());
                    self.chain.settings = match parent {
                        Some(parent) => settings_at(self.store, parent).await?,
                        None => Default::default(),
                    };
                }
                if self.labels_nothing(&decoded) {
                    self.later.push(node.id);
                } else {
                    self.chain.node(node, &decoded, &mut lines);
                }
                for line in lines.drain(..) {
                    out.entry(&line, node.id)?;
                }
                self.ids.insert(node.id, self.chain.last.clone());
                self.last = Some(node.id);
            }
        }
        Ok(())
    }

    /// Whether it is the label of a node that has no line.
    fn labels_nothing(&self, decoded: &DecodedEntry) -> bool {
        match &decoded.entry {
            Entry::Meta(json) if is_label(json.get()) => {
                let names = &self.chain.names;
                references(&decoded.entry).iter().any(|node| !names.contains_key(&node.to_string()))
            }
            _ => false,
        }
    }

    /// The labels of what came after them; those of nodes that the file has not are left out. The last line follows the
    /// head, for there a file is gone on with.
    async fn end(mut self, head: NodeId, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
        let id = self.ids.get(&head).cloned().flatten();
        let (mut moved, mut lines) = (self.last != Some(head), Vec::new());
        self.chain.last = id;
        let nodes: Vec<Node> = self.store.nodes(&self.later).await?.into_iter().flatten().collect();
        for (node, decoded) in nodes.iter().zip(decode_whole(self.store, &nodes).await?) {
            if !self.labels_nothing(&decoded) {
                self.chain.node(node, &decoded, &mut lines);
                for line in lines.drain(..) {
                    out.entry(&line, node.id)?;
                }
                moved = false;
            }
        }
        if moved {
            let time = self
                .store
                .nodes(&[head])
                .await?
                .into_iter()
                .flatten()
                .next()
                .map(|node| node.record.timestamp);
            let json =
                Json::from(&serde_json::json!({ "type": "custom", "customType": "quipu.head", "data": {} }));
            let line = self.chain.meta(&json, &format!("{}-head", note_id(&head)), time.unwrap_or_default());
            out.entry(&line, head)?;
        }
        Ok(())
    }
}

fn is_label(line: &str) -> bool {
    Members::of(line).is_some_and(|members| members.string("type").as_deref() == Some("label"))
}
