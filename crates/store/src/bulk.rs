//! Many commits as few, for imports of any size.
//!
//! Blobs and nodes are found by their hashes, so in a large store a commit of 2,000 nodes changes another page of an
//! index for nearly each key that it brings: 40 MB of pages for 2 MB of text. [`Bulk`] gathers commits until several of
//! their keys fall on each page, in a file without a name beside the store, and gives them back as few: the blobs in
//! the order of their hashes, so that each commit changes its own small range of the index, then the nodes in the order
//! in which they came, and the refs with the last of them. Blobs and nodes that no ref leads to yet are all that a crash
//! between two of them leaves.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{BlobId, NodeId};

use crate::load::ByHash;
use crate::{Commit, Expect, Graph, NewChunk, RefMove, RefName, StoreError, Told};

/// A window is this part of the store's nodes: so many keys fall on each page of an index that holds about 50.
const PART: u64 = 4;
/// Nodes of a window at most: it holds about 100 bytes in memory for each.
const MOST_NODES: u64 = 64_000;
/// Nodes of one commit at most: they fall on all pages of three indexes, and other programs cannot write meanwhile.
const COMMIT_NODES: usize = 27_000;
/// Nodes of a window at least, but for the last one: what a commit costs beside them is little then.
const FEWEST_NODES: u64 = 2_000;
/// Bytes of a window at most.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a window that stay in memory at most, about: chunks, refs.
const MOST_HELD: usize = 16 << 20;
/// Bytes and blobs of one commit, about.
const PIECE_BYTES: usize = 2 << 20;
const PIECE_BLOBS: usize = 4_000;
/// Nodes that are read back at once.
const AT_ONCE: usize = 2_000;
/// What is written to the file at once; a window that is smaller stays in memory.
const BUFFER: usize = 1 << 20;
/// Bytes of nodes that are read from the file at once, about.
const RUN: u64 = 256 << 10;
/// What a node costs beside its text, in bytes of text: for telling how far a window is.
const NODE_COST: u64 = 700;
/// All of a window.
const DONE: u64 = 1_000;

/// Device and number of a file.
pub(crate) type FileId = (u64, u64);

/// How much a store holds, and where there is room for what is on its way to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Nodes, about.
    pub nodes: u64,
    /// A directory for files that vanish with the process; `None` where nothing may be put.
    pub spool: Option<PathBuf>,
}

impl Extent {
    /// That of a store; of one that is no file, nothing is known and nothing may be put anywhere.
    ///
    /// # Errors
    /// What the store says.
    pub async fn of(store: &dyn Graph) -> Result<Self, StoreError> {
        match store.local() {
            Some(local) => local.extent().await,
            None => Ok(Self::default()),
        }
    }
}

/// Gathers commits that come one after the other. What has not come back and been committed is lost with the process,
/// so it is for what can be read again.
#[derive(Debug)]
pub struct Bulk {
    nodes: u64,
    spool: Option<PathBuf>,
    /// The first of a window: alone it needs no file.
    first: Option<Commit>,
    open: Option<Spool>,
}

/// Commits that were gathered.
#[derive(Debug)]
pub struct Window {
    whole: VecDeque<Commit>,
    spool: Option<Spool>,
    /// When the blobs are in order: how many were given back, and what comes with the last of the nodes.
    blobs: Option<(Arc<Waiting>, usize, Commit)>,
    /// Nodes that follow the blobs.
    nodes: Option<(SpooledNodes, Commit)>,
    /// Weight of what was given back, and of all.
    done: u64,
    weight: u64,
}

/// A part of a window.
#[derive(Debug)]
pub struct Portion {
    /// To be committed after those before it.
    pub commit: Commit,
    /// How much of the window is done with it, in thousandths.
    pub done: u64,
}

impl Bulk {
    /// For a store of this extent.
    pub fn new(extent: Extent) -> Self {
        Self { nodes: extent.nodes, spool: extent.spool, first: None, open: None }
    }

    /// Takes a commit in; gives back what was gathered when that is enough. Blocks.
    ///
    /// # Errors
    /// `Full`, `Io`: the file could not be written.
    pub fn add(&mut self, commit: Commit) -> Result<Option<Window>, StoreError> {
        let most = (self.nodes / PART).clamp(FEWEST_NODES, MOST_NODES);
        self.nodes += commit.nodes.len() as u64;
        if let Some(open) = &mut self.open {
            open.add(commit)?;
        } else if self.spool.is_none() {
            return Ok(Some(Window::of([commit], None)));
        } else if let Some(first) = self.first.take() {
            let Some(mut open) = self.spool.as_deref().and_then(|dir| Spool::begin(dir, most)) else {
                // No file can be made there: as if there were no such place.
                self.spool = None;
                return Ok(Some(Window::of([first, commit], None)));
            };
            open.add(first)?;
            open.add(commit)?;
            self.open = Some(open);
        } else {
            self.first = Some(commit);
        }
        if self.open.as_ref().is_some_and(Spool::is_full) { Ok(self.end()) } else { Ok(None) }
    }

    /// What was gathered last.
    pub fn end(&mut self) -> Option<Window> {
        match (self.first.take(), self.open.take()) {
            (None, None) => None,
            (first, open) => Some(Window::of(first, open)),
        }
    }
}

impl Window {
    fn of(whole: impl IntoIterator<Item = Commit>, spool: Option<Spool>) -> Self {
        Self { whole: whole.into_iter().collect(), spool, blobs: None, nodes: None, done: 0, weight: 0 }
    }

    /// The next commit; `None` when all were given. Blocks.
    ///
    /// # Errors
    /// `Io`: the file could not be read.
    pub fn piece(&mut self) -> Result<Option<Portion>, StoreError> {
        if let Some(commit) = self.whole.pop_front() {
            let is_last = self.spool.is_none() && self.whole.is_empty();
            return Ok(Some(Portion { commit, done: if is_last { DONE } else { 0 } }));
        }
        if let Some(spool) = self.spool.take() {
            let (waiting, rest) = spool.put_in_order()?;
            self.weight = waiting.weight();
            self.blobs = Some((Arc::new(waiting), 0, rest));
        }
        if let Some((all, given, rest)) = self.blobs.take() {
            let (blobs, weight) = all.blobs_from(given)?;
            self.done += weight;
            if blobs.is_empty() {
                let range = 0..all.nodes.len();
                self.nodes = Some((SpooledNodes { all, range }, rest));
            } else {
                let done = self.done.saturating_mul(DONE) / self.weight.max(1);
                // No nodes, but what they need.
                let spooled = Some(SpooledNodes { all: Arc::clone(&all), range: 0..0 });
                self.blobs = Some((all, given + blobs.len(), rest));
                return Ok(Some(Portion { commit: Commit { blobs, spooled, ..Commit::default() }, done }));
            }
        }
        let Some((mut nodes, mut rest)) = self.nodes.take() else { return Ok(None) };
        let all = nodes.range.end;
        if nodes.range.len() <= COMMIT_NODES {
            return Ok(Some(Portion { commit: Commit { spooled: Some(nodes), ..rest }, done: DONE }));
        }
        nodes.range.end = nodes.range.start + COMMIT_NODES;
        let mut next = nodes.clone();
        next.range = nodes.range.end..all;
        // What nodes refer to is there before them.
        let chunks = std::mem::take(&mut rest.chunks);
        let durability = rest.durability;
        self.nodes = Some((next, rest));
        self.done += NODE_COST * COMMIT_NODES as u64;
        let done = self.done.saturating_mul(DONE) / self.weight.max(1);
        Ok(Some(Portion {
            commit: Commit { chunks, spooled: Some(nodes), durability, ..Commit::default() },
            done,
        }))
    }
}

/// Nodes that wait in a file to be committed.
#[derive(Debug, Clone)]
pub struct SpooledNodes {
    all: Arc<Waiting>,
    range: Range<usize>,
}

/// What a window brings, in order.
#[derive(Debug)]
struct Waiting {
    bytes: Bytes,
    kinds: Vec<String>,
    /// The blobs by their hashes.
    blobs: Vec<Kept>,
    /// Where each node stands, and how long it is.
    nodes: Vec<(u64, u32)>,
    /// The file into which blobs were committed, and how many.
    stored: Mutex<Option<(FileId, usize)>>,
}

/// What was put one behind the other: in a file, or in memory where it is not much.
#[derive(Debug)]
struct Bytes {
    file: File,
    /// For messages.
    dir: PathBuf,
    /// Bytes in the file, without those that follow in `buffer`.
    written: u64,
    buffer: Vec<u8>,
}

/// A blob that waits.
#[derive(Debug)]
struct Kept {
    id: BlobId,
    offset: u64,
    length: u32,
    /// Its place in the list of kinds.
    kind: u32,
}

/// A window that is being gathered.
#[derive(Debug)]
struct Spool {
    bytes: Bytes,
    blobs: Vec<Kept>,
    kinds: Vec<String>,
    /// Where each node stands, and how long it is.
    nodes: Vec<(u64, u32)>,
    /// What stays in memory.
    rest: Commit,
    held: usize,
    /// Where the last move of a ref stands that goes wherever the ref is.
    moves: HashMap<RefName, usize>,
    most: u64,
}

impl Spool {
    fn begin(dir: &Path, most: u64) -> Option<Self> {
        let file = tempfile::tempfile_in(dir).ok()?;
        Some(Self {
            bytes: Bytes { file, dir: dir.to_owned(), written: 0, buffer: Vec::new() },
            blobs: Vec::new(),
            kinds: Vec::new(),
            nodes: Vec::new(),
            rest: Commit::default(),
            held: 0,
            moves: HashMap::new(),
            most,
        })
    }

    fn is_full(&self) -> bool {
        self.nodes.len() as u64 >= self.most || self.bytes.end() >= MOST_BYTES || self.held >= MOST_HELD
    }

    fn add(&mut self, commit: Commit) -> Result<(), StoreError> {
        let Commit { blobs, chunks, nodes, told, spooled, moves, actions, ops, durability } = commit;
        let told: HashMap<NodeId, Told, ByHash> = told.into_iter().collect();
        for blob in blobs {
            let kind = match self.kinds.iter().position(|kind| *kind == blob.kind) {
                Some(kind) => kind,
                None => {
                    self.kinds.push(blob.kind);
                    self.kinds.len() - 1
                }
            };
            let (offset, length) = self.bytes.put(blob.content.as_bytes())?;
            let kind = u32::try_from(kind).unwrap_or(u32::MAX);
            self.blobs.push(Kept { id: blob.id, offset, length, kind });
        }
        for node in &nodes {
            self.add_node(node, told.get(&node.id).copied())?;
        }
        if let Some(spooled) = spooled {
            // Of another window, whose blobs are committed.
            for first in (0..spooled.count()).step_by(AT_ONCE) {
                for (node, told) in spooled.nodes_from(first)? {
                    self.add_node(&node, told)?;
                }
            }
        }
        for moved in moves {
            self.held += 400;
            self.add_move(moved);
        }
        self.held += chunks
            .iter()
            .map(|chunk| match chunk {
                NewChunk::Full { bytes, .. }
                | NewChunk::Plain { bytes, .. }
                | NewChunk::Delta { bytes, .. } => bytes.len(),
                NewChunk::Grown { bytes, .. } => bytes.len(),
            })
            .sum::<usize>();
        self.held += 1_000 * (actions.len() + ops.len());
        self.rest.chunks.extend(chunks);
        self.rest.actions.extend(actions);
        self.rest.ops.extend(ops);
        self.rest.durability = self.rest.durability.max(durability);
        Ok(())
    }

    fn add_node(&mut self, node: &Node, told: Option<Told>) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(512);
        write_node(&mut bytes, node, told);
        self.nodes.push(self.bytes.put(&bytes)?);
        Ok(())
    }

    /// Of the moves of a ref, only the last counts, where none depends on the one before it.
    fn add_move(&mut self, moved: RefMove) {
        if moved.expect != Expect::Any || moved.fence.is_some() {
            self.moves.remove(&moved.name);
            self.rest.moves.push(moved);
            return;
        }
        match self.moves.get(&moved.name).and_then(|at| self.rest.moves.get_mut(*at)) {
            Some(before) => *before = moved,
            None => {
                self.moves.insert(moved.name.clone(), self.rest.moves.len());
                self.rest.moves.push(moved);
            }
        }
    }

    /// Blobs by their hashes; of those that came twice the first, as it would have been stored. Refs by their names, or each
    /// would change another page.
    fn put_in_order(self) -> Result<(Waiting, Commit), StoreError> {
        let Self { mut bytes, mut blobs, kinds, nodes, mut rest, .. } = self;
        bytes.end_gathering()?;
        blobs.sort_unstable_by_key(|blob| (blob.id, blob.offset));
        blobs.dedup_by_key(|blob| blob.id);
        rest.moves.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((Waiting { bytes, kinds, blobs, nodes, stored: Mutex::new(None) }, rest))
    }
}

impl Waiting {
    fn weight(&self) -> u64 {
        self.blobs.iter().map(Kept::weight).sum::<u64>() + NODE_COST * self.nodes.len() as u64
    }

    /// The blobs of one commit, and what they count.
    fn blobs_from(&self, given: usize) -> Result<(Vec<Blob>, u64), StoreError> {
        let mut blobs = Vec::new();
        let (mut bytes, mut weight) = (0, 0);
        for kept in self.blobs.iter().skip(given) {
            if blobs.len() >= PIECE_BLOBS || bytes >= PIECE_BYTES {
                break;
            }
            let content = self.bytes.read(kept.offset, kept.length.into())?.into_owned();
            let content = String::from_utf8(content).map_err(|_| self.bytes.changed())?;
            bytes += content.len();
            weight += kept.weight();
            let kind = usize::try_from(kept.kind).ok().and_then(|kind| self.kinds.get(kind)).cloned();
            let kind = kind.unwrap_or_default();
            blobs.push(Blob { id: kept.id, kind, content });
        }
        Ok((blobs, weight))
    }
}

impl Bytes {
    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Where the bytes stand, and how many they are.
    fn put(&mut self, bytes: &[u8]) -> Result<(u64, u32), StoreError> {
        let limit = u64::from(u32::MAX);
        let length = u32::try_from(bytes.len()).map_err(|_| StoreError::TooLarge {
            what: "a part of an import".to_owned(),
            size: bytes.len() as u64,
            limit,
        })?;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        let offset = self.end();
        if bytes.len() > BUFFER {
            self.write(bytes)?;
            self.written += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok((offset, length))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.write(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, self.written).map_err(|error| failed(&self.dir, "write", &error))
    }

    /// Nothing follows: all of it is in one place now.
    fn end_gathering(&mut self) -> Result<(), StoreError> {
        if self.written > 0 {
            self.flush()?;
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Bytes of one place: after [`Self::end_gathering`].
    fn read(&self, offset: u64, length: u64) -> Result<Cow<'_, [u8]>, StoreError> {
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if self.written == 0 {
            let from = usize::try_from(offset).ok().and_then(|offset| self.buffer.get(offset..));
            return from.and_then(|from| from.get(..size)).map(Cow::Borrowed).ok_or_else(|| self.changed());
        }
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| failed(&self.dir, "read", &error))?;
        Ok(Cow::Owned(bytes))
    }

    fn changed(&self) -> StoreError {
        failed(&self.dir, "read", &io::Error::other("its content is not what was written"))
    }
}

fn failed(dir: &Path, doing: &str, error: &io::Error) -> StoreError {
    crate::error::system_error(dir, &format!("{doing} a temporary file in"), error)
}

impl SpooledNodes {
    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.range.len()
    }

    /// A few thousand of them, in the order in which they came; none after the last.
    pub(crate) fn nodes_from(&self, first: usize) -> Result<Vec<(Node, Option<Told>)>, StoreError> {
        let Waiting { bytes, nodes, .. } = &*self.all;
        let last = self.range.end.min((self.range.start + first).saturating_add(AT_ONCE));
        let mut places = nodes.get(self.range.start + first..last).unwrap_or_default();
        let mut read = Vec::with_capacity(places.len());
        while let Some(&(begin, _)) = places.first() {
            // Those that came together stand together.
            let mut end = begin;
            let is_next = |(offset, length): &(u64, u32)| {
                let follows = *offset == end && (end == begin || end - begin < RUN);
                end += u64::from(*length);
                follows
            };
            let count = places.iter().copied().take_while(is_next).count();
            let (run, rest) = places.split_at(count);
            let length = run.iter().map(|(_, length)| u64::from(*length)).sum();
            let text = bytes.read(begin, length)?;
            let mut at: usize = 0;
            for (_, length) in run {
                let (from, length) = (at, usize::try_from(*length).unwrap_or(usize::MAX));
                at = from.saturating_add(length);
                let node = text.get(from..at).and_then(read_node);
                read.push(node.ok_or_else(|| bytes.changed())?);
            }
            places = rest;
        }
        Ok(read)
    }

    /// The blobs that were committed before them, by their hashes.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &BlobId> {
        self.all.blobs.iter().map(|blob| &blob.id)
    }

    /// A store's file has so many more of the blobs.
    pub(crate) fn blobs_are_in(&self, file: FileId, count: usize) {
        let mut stored = self.all.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, before) = stored.unwrap_or((file, 0));
        if first == file {
            *stored = Some((file, before + count));
        }
    }

    /// Whether a store's file is known to have all blobs.
    pub(crate) fn are_ready_for(&self, file: FileId) -> bool {
        let stored = *self.all.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored == Some((file, self.all.blobs.len()))
    }

    /// Whether a blob is one of those.
    pub(crate) fn has_blob(&self, id: &BlobId) -> bool {
        self.all.blobs.binary_search_by_key(id, |blob| blob.id).is_ok()
    }
}

impl Kept {
    fn weight(&self) -> u64 {
        u64::from(self.length) + 200
    }
}

const HAS_PARENT: u8 = 1;
const HAS_EXTERNAL_ID: u8 = 2;
const HAS_SYSTEM_PROMPT: u8 = 4;
const HAS_CONFIG: u8 = 8;
const HAS_SIGNATURES: u8 = 16;
const HAS_TOLD: u8 = 32;

fn write_node(out: &mut Vec<u8>, node: &Node, told: Option<Told>) {
    let Node { id, record, config, thought_signatures } = node;
    let NodeRecord { parent, role, parts, timestamp, external_id, system_prompt } = record;
    let mut has = 0;
    for (there, mark) in [
        (parent.is_some(), HAS_PARENT),
        (external_id.is_some(), HAS_EXTERNAL_ID),
        (system_prompt.is_some(), HAS_SYSTEM_PROMPT),
        (config.is_some(), HAS_CONFIG),
        (thought_signatures.is_some(), HAS_SIGNATURES),
        (told.is_some(), HAS_TOLD),
    ] {
        has |= if there { mark } else { 0 };
    }
    out.push(has);
    out.extend_from_slice(&id.0);
    out.extend_from_slice(&timestamp.to_le_bytes());
    if let Some(Told { cost, charged, says }) = told {
        out.extend_from_slice(&cost.to_le_bytes());
        out.extend([u8::from(charged), u8::from(says.is_some())]);
        out.extend_from_slice(&says.unwrap_or_default().to_le_bytes());
    }
    out.extend(parent.iter().flat_map(|id| id.0));
    out.extend(system_prompt.iter().flat_map(|id| id.0));
    out.extend_from_slice(&(parts.len() as u64).to_le_bytes());
    out.extend(parts.iter().flat_map(|id| id.0));
    let texts = [Some(role), external_id.as_ref(), config.as_ref(), thought_signatures.as_ref()];
    for text in texts.into_iter().flatten() {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

/// `None` when these are not the bytes of a node.
fn read_node(bytes: &[u8]) -> Option<(Node, Option<Told>)> {
    let mut bytes = bytes;
    let has = take::<1>(&mut bytes)?[0];
    let has = |mark| has & mark != 0;
    let id = NodeId(take(&mut bytes)?);
    let timestamp = i64::from_le_bytes(take(&mut bytes)?);
    let mut told = None;
    if has(HAS_TOLD) {
        let cost = i64::from_le_bytes(take(&mut bytes)?);
        let [charged, says] = take(&mut bytes)?;
        let said = i64::from_le_bytes(take(&mut bytes)?);
        told = Some(Told { cost, charged: charged != 0, says: (says != 0).then_some(said) });
    }
    let parent = if has(HAS_PARENT) { Some(NodeId(take(&mut bytes)?)) } else { None };
    let system_prompt = if has(HAS_SYSTEM_PROMPT) { Some(BlobId(take(&mut bytes)?)) } else { None };
    let count = u64::from_le_bytes(take(&mut bytes)?);
    let parts = (0..count).map(|_| take(&mut bytes).map(BlobId)).collect::<Option<Vec<_>>>()?;
    let mut text = |there: bool| -> Option<Option<String>> {
        if !there {
            return Some(None);
        }
        let length = usize::try_from(u64::from_le_bytes(take(&mut bytes)?)).ok()?;
        let (text, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        String::from_utf8(text.to_vec()).ok().map(Some)
    };
    let role = text(true)??;
    let external_id = text(has(HAS_EXTERNAL_ID))?;
    let config = text(has(HAS_CONFIG))?;
    let thought_signatures = text(has(HAS_SIGNATURES))?;
    let record = NodeRecord { parent, role, parts, timestamp, external_id, system_prompt };
    Some((Node { id, record, config, thought_signatures }, told))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
