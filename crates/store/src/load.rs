//! Nodes with all that they refer to, read back as entries.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, Entry, Json, StepInfo};
use quipu_transcript::{DecodedEntry, Lookup, chunks_of, decode, forget_opening, forgotten};

use crate::{Graph, HiddenSnapshot, Store, StoreError};

/// Blobs from which on a read is one for two connections: less takes longer to share than to do.
const MANY: usize = 256;
/// Nodes that are made out in one read.
const PIECE: usize = 1_024;

/// The blobs and chunks of some nodes, in memory.
#[derive(Debug, Default)]
pub struct Objects {
    blobs: HashMap<BlobId, Blob, BuildIdHasher>,
    chunks: HashMap<ChunkId, Vec<u8>>,
}

/// A node's place in the order in which nodes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub(crate) i64);

/// Which parts of a node are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadParts {
    /// None: the node alone.
    None,
    /// The last one, which mostly is our own.
    Last,
    /// All.
    All,
}

/// A node with its place in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNode {
    /// Its place.
    pub seq: Seq,
    /// The node.
    pub node: Node,
    /// The writer's own id of its parent; read with [`ReadParts::All`] only.
    pub follows: Option<String>,
}

/// Nodes that were read together.
#[derive(Debug, Default)]
pub struct Piece {
    /// How many of the places that were asked for are done with.
    pub read: usize,
    /// The nodes; those that are not there any more, or cannot be read, are left out.
    pub nodes: Vec<StoredNode>,
    /// Their parts; chunks come with [`Objects::load_chunks`].
    pub objects: Objects,
}

/// Hashes ids by their own first bytes: ids are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BuildIdHasher;

/// The hasher of [`BuildIdHasher`].
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl BuildHasher for BuildIdHasher {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Objects {
    pub(crate) fn of_blobs(blobs: HashMap<BlobId, Blob, BuildIdHasher>) -> Self {
        Self { blobs, chunks: HashMap::new() }
    }

    /// Loads what `nodes` refer to. Chunks that are missing or damaged are left out.
    ///
    /// # Errors
    /// What the store says.
    pub async fn of(store: &dyn Store, nodes: &[Node]) -> Result<Self, StoreError> {
        let ids = parts_of(nodes);
        let (some, rest) = ids.split_at(if ids.len() < MANY { ids.len() } else { ids.len() / 2 });
        let (some, rest) = tokio::try_join!(store.blobs(some), store.blobs(rest))?;
        let blobs = some.into_iter().chain(rest).flatten().map(|blob| (blob.id, blob)).collect();
        let mut objects = Self { blobs, chunks: HashMap::new() };
        objects.load_chunks(store, nodes).await?;
        Ok(objects)
    }

    /// Loads the chunks that `nodes` refer to, whose parts are here.
    ///
    /// # Errors
    /// What the store says.
    pub async fn load_chunks(
        &mut self,
        store: &dyn Store,
        nodes: impl IntoIterator<Item = &Node>,
    ) -> Result<(), StoreError> {
        for id in self.chunks_to_load(nodes) {
            match store.chunk(id, 0..u64::MAX).await {
                Ok(bytes) => self.put_chunk(id, bytes),
                // A damaged image leaves a gap like one that is gone; `check` tells of it.
                Err(StoreError::Missing { .. } | StoreError::Erased { .. } | StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The chunks that `nodes` refer to, each once; those that are here are left out.
    pub(crate) fn chunks_to_load<'a>(&self, nodes: impl IntoIterator<Item = &'a Node>) -> Vec<ChunkId> {
        let mut found = Vec::new();
        for node in nodes {
            // Most nodes refer to none: seen without taking their own part apart.
            let own = node.record.parts.last().and_then(|part| self.blobs.get(part));
            if own.is_none_or(|own| !own.content.contains("\"images\"")) {
                continue;
            }
            for id in chunks_of(node, self) {
                if !self.chunks.contains_key(&id) && !found.contains(&id) {
                    found.push(id);
                }
            }
        }
        found
    }

    pub(crate) fn put_chunk(&mut self, id: ChunkId, bytes: Vec<u8>) {
        self.chunks.insert(id, bytes);
    }
}

impl Lookup for Objects {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.blobs.get(id)
    }

    fn chunk(&self, id: &ChunkId) -> Option<&[u8]> {
        self.chunks.get(id).map(Vec::as_slice)
    }
}

/// What each node means to whoever is shown it, in the order of `nodes`: of those that a person had forgotten nothing is left
/// but how they stand.
///
/// # Errors
/// As [`Objects::of`].
pub async fn decode_nodes(store: &dyn Store, nodes: &[Node]) -> Result<Vec<DecodedEntry>, StoreError> {
    let decoded = decode_whole(store, nodes).await?;
    // What is forgotten while the nodes are read counts.
    Ok(shown_of(&store.hidden(), nodes, decoded))
}

/// The same by what was hidden at one moment, for a view that reads nodes piece by piece.
///
/// # Errors
/// As [`Objects::of`].
pub async fn decode_with(
    store: &dyn Store,
    hidden: &HiddenSnapshot,
    nodes: &[Node],
) -> Result<Vec<DecodedEntry>, StoreError> {
    Ok(shown_of(hidden, nodes, decode_whole(store, nodes).await?))
}

fn shown_of(hidden: &HiddenSnapshot, nodes: &[Node], decoded: Vec<DecodedEntry>) -> Vec<DecodedEntry> {
    if hidden.is_empty() {
        return decoded;
    }
    nodes.iter().zip(decoded).map(|(node, decoded)| shown(hidden, node, decoded)).collect()
}

/// The same, what was forgotten too: for the history that a person opens, and for what is decided by it.
///
/// # Errors
/// As [`Objects::of`].
pub async fn decode_whole(store: &dyn Store, nodes: &[Node]) -> Result<Vec<DecodedEntry>, StoreError> {
    let objects = Objects::of(store, nodes).await?;
    Ok(nodes.iter().map(|node| decode(node, &objects)).collect())
}

/// What a node means to whoever is shown it, of parts that are loaded.
pub fn decode_shown(hidden: &HiddenSnapshot, node: &Node, parts: &dyn Lookup) -> DecodedEntry {
    shown(hidden, node, decode(node, parts))
}

fn shown(hidden: &HiddenSnapshot, node: &Node, decoded: DecodedEntry) -> DecodedEntry {
    let mut shown = if hidden.hides(&node.id) { forgotten(decoded) } else { decoded };
    forget_opening(&mut shown, |told| hidden.hides(told));
    shown
}

/// What nodes mean to whoever is shown them. They are given away and come back with it: what many of them mean is read and made
/// out by two connections at once, in pieces that let other reads come between.
///
/// # Errors
/// What the store says.
pub async fn decode_all(
    store: &dyn Graph,
    nodes: Vec<Node>,
) -> Result<Vec<(Node, DecodedEntry)>, StoreError> {
    let mut decoded = decode_all_whole(store, nodes).await?;
    let hidden = store.hidden();
    if !hidden.is_empty() {
        for (node, one) in &mut decoded {
            if !hidden.hides(&node.id) {
                forget_opening(one, |told| hidden.hides(told));
                continue;
            }
            let empty = DecodedEntry { entry: Entry::Meta(Json::default()), step: StepInfo::default() };
            *one = shown(&hidden, node, std::mem::replace(one, empty));
        }
    }
    Ok(decoded)
}

async fn decode_all_whole(
    store: &dyn Graph,
    nodes: Vec<Node>,
) -> Result<Vec<(Node, DecodedEntry)>, StoreError> {
    let (count, parts) = (nodes.len(), nodes.iter().map(|node| node.record.parts.len()).sum::<usize>());
    if parts < MANY {
        return store.decoded(nodes).await;
    }
    let mut nodes = nodes.into_iter();
    let mut piece = || nodes.by_ref().take(count.div_ceil(2).min(PIECE)).collect();
    let mut decoded = Vec::with_capacity(count);
    while decoded.len() < count {
        let (older, newer) = tokio::try_join!(store.decoded(piece()), store.decoded(piece()))?;
        decoded.extend(older.into_iter().chain(newer));
    }
    Ok(decoded)
}

/// The parts of some nodes, each once.
pub(crate) fn parts_of(nodes: &[Node]) -> Vec<BlobId> {
    let mut seen: HashSet<BlobId, BuildIdHasher> = HashSet::default();
    nodes.iter().flat_map(|node| &node.record.parts).copied().filter(|id| seen.insert(*id)).collect()
}
