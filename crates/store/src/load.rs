//! Nodes with all that they refer to, read back as entries.

use std::collections::{HashMap, HashSet};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId};
use quipu_transcript::{Decoded, Lookup, chunks_of, decode};

use crate::{Store, StoreError};

/// The blobs and chunks of some nodes, in memory.
#[derive(Debug, Default)]
pub struct Objects {
    blobs: HashMap<BlobId, Blob>,
    chunks: HashMap<ChunkId, Vec<u8>>,
}

/// A node with its parts; those that are missing are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeNode {
    /// The node.
    pub node: Node,
    /// Its parts, in its order.
    pub parts: Vec<Blob>,
}

impl Objects {
    /// What nodes were read with, and the chunks that they refer to, as [`Objects::of`] loads them.
    ///
    /// # Errors
    /// What the store says.
    pub async fn of_whole(
        store: &dyn Store,
        whole: impl IntoIterator<Item = WholeNode>,
    ) -> Result<(Vec<Node>, Self), StoreError> {
        let mut objects = Self::default();
        let mut nodes = Vec::new();
        for WholeNode { node, parts } in whole {
            objects.blobs.extend(parts.into_iter().map(|blob| (blob.id, blob)));
            nodes.push(node);
        }
        objects.load_chunks(store, &nodes).await?;
        Ok((nodes, objects))
    }

    /// Loads what `nodes` refer to. Chunks that are missing or damaged are left out.
    ///
    /// # Errors
    /// What the store says.
    pub async fn of(store: &dyn Store, nodes: &[Node]) -> Result<Self, StoreError> {
        let mut seen = HashSet::new();
        let ids: Vec<BlobId> =
            nodes.iter().flat_map(|node| &node.record.parts).copied().filter(|id| seen.insert(*id)).collect();
        let blobs = store.blobs(&ids).await?;
        let blobs = blobs.into_iter().flatten().map(|blob| (blob.id, blob)).collect();
        let mut objects = Self { blobs, chunks: HashMap::new() };
        objects.load_chunks(store, nodes).await?;
        Ok(objects)
    }

    async fn load_chunks(&mut self, store: &dyn Store, nodes: &[Node]) -> Result<(), StoreError> {
        for node in nodes {
            // Most nodes refer to none: seen without taking their own part apart.
            let own = node.record.parts.last().and_then(|part| self.blobs.get(part));
            if own.is_none_or(|own| !own.content.contains("\"images\"")) {
                continue;
            }
            for id in chunks_of(node, self) {
                if self.chunks.contains_key(&id) {
                    continue;
                }
                match store.chunk(id, 0..u64::MAX).await {
                    Ok(bytes) => {
                        self.chunks.insert(id, bytes);
                    }
                    // A damaged image leaves a gap like one that is gone; `check` tells of it.
                    Err(StoreError::Missing { .. } | StoreError::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
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

/// What each node means, in the order of `nodes`.
///
/// # Errors
/// As [`Objects::of`].
pub async fn decode_nodes(store: &dyn Store, nodes: &[Node]) -> Result<Vec<Decoded>, StoreError> {
    let objects = Objects::of(store, nodes).await?;
    Ok(nodes.iter().map(|node| decode(node, &objects)).collect())
}
