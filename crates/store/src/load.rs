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

impl Objects {
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
        for node in nodes {
            for id in chunks_of(node, &objects) {
                if objects.chunks.contains_key(&id) {
                    continue;
                }
                match store.chunk(id, 0..u64::MAX).await {
                    Ok(bytes) => {
                        objects.chunks.insert(id, bytes);
                    }
                    // A damaged image leaves a gap like one that is gone; `check` tells of it.
                    Err(StoreError::Missing { .. } | StoreError::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(objects)
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
