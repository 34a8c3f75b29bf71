//! Which chunks tell what nodes say: for who has these forgotten.

use std::collections::{BTreeSet, HashSet};

use quipu_protocol::NodeId;
use quipu_store::{Graph, RefName};
use quipu_transcript::decode;

use crate::pages::Pages;
use crate::record::StoredRecord;
use crate::{PAST_SESSION, PastError, PastId};

/// The nodes of all chunks, of whatever past, that sum up one of these nodes, themselves or through other chunks; those that are
/// superseded or were taken back, too.
///
/// # Errors
/// What the store says.
pub async fn chunks_telling(
    store: &dyn Graph,
    nodes: &BTreeSet<NodeId>,
) -> Result<BTreeSet<NodeId>, PastError> {
    let mut telling = BTreeSet::new();
    if nodes.is_empty() {
        return Ok(telling);
    }
    let prefix = RefName::session(&PAST_SESSION.into());
    for head in store.heads(prefix.as_str()).await? {
        let Some(root) = store.ancestor(head.node, 0).await? else { continue };
        let mut pages = Pages::below(store, root, head.node).await?;
        let mut ids: HashSet<PastId> = HashSet::new();
        while let Some(piece) = pages.next().await? {
            for stored in &piece.nodes {
                let decoded = decode(&stored.node, &piece.objects);
                let Some(chunk) = StoredRecord::chunk_of(&decoded, None) else { continue };
                if nodes.contains(&stored.node.id)
                    || chunk.sources.iter().any(|source| nodes.contains(&source.node))
                    || chunk.children.iter().any(|child| ids.contains(child))
                {
                    ids.insert(chunk.id());
                    telling.insert(stored.node.id);
                }
            }
        }
    }
    Ok(telling)
}
