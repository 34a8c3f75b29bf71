//! What the nodes of a past hold, read the same way by all who look at them.

use std::collections::HashMap;

use quipu_protocol::{AuthorClass, Body, Entry, Message, NodeId, Origin, Provenance};
use quipu_store::{Graph, decode_nodes};
use quipu_transcript::DecodedEntry;
use serde::Deserialize;

use crate::chunk::{ChunkRecord, PastRecord};
use crate::{ChunkFault, MemoryChunk, PAST_CHUNK, PastError, PastScope};

/// A record, the text that stands beside it, and who wrote them.
pub(crate) struct StoredRecord {
    pub(crate) record: PastRecord,
    pub(crate) text: String,
    pub(crate) from: Option<Provenance>,
}

/// What a line of a session file of another program's form says of a node of a past.
#[derive(Deserialize)]
struct FiledRecord {
    #[serde(rename = "quipu.past")]
    record: PastRecord,
    #[serde(default)]
    provenance: Option<Provenance>,
}

impl StoredRecord {
    /// The record of a node; `None` for one that has nothing to do with a past.
    pub(crate) fn of(decoded: &DecodedEntry) -> Option<Result<Self, ChunkFault>> {
        let Entry::Message(Message::Custom(message)) = &decoded.entry else { return None };
        if message.custom_type != PAST_CHUNK {
            return None;
        }
        let record = decoded.step.extra.get(PAST_CHUNK).and_then(|json| json.read::<PastRecord>().ok());
        let text = text_of(&message.content);
        let (record, from) = match record {
            Some(record) => (record, decoded.step.provenance.clone()),
            // It came back from a file of another program's form. Who wrote it there is said by the file, and not known.
            None => match message.details.as_ref().and_then(|details| details.read::<FiledRecord>().ok()) {
                Some(FiledRecord { record, provenance }) => {
                    (record, provenance.map(|from| Provenance::new(Origin::Import, from.author)))
                }
                None => return Some(Err(ChunkFault::Unreadable)),
            },
        };
        Some(Ok(Self { record, text, from }))
    }

    /// The chunk of a node, where it holds one and that can be used; `scope` is that of the past it stands in, or its own.
    pub(crate) fn chunk_of(decoded: &DecodedEntry, scope: Option<&PastScope>) -> Option<MemoryChunk> {
        let Self { record, text, from } = Self::of(decoded)?.ok()?;
        let PastRecord::Chunk(record) = record else { return None };
        let own = record.scope.clone();
        read_chunk(*record, text, from.as_ref(), scope.unwrap_or(&own)).ok()
    }
}

/// A chunk whose node says no author is untrusted.
pub(crate) fn read_chunk(
    record: ChunkRecord,
    text: String,
    from: Option<&Provenance>,
    scope: &PastScope,
) -> Result<MemoryChunk, ChunkFault> {
    let class = from.map_or(AuthorClass::Untrusted, |from| from.author);
    MemoryChunk::read(record, text, class, scope)
}

/// Whether a person said it, at a front.
pub(crate) fn is_of_a_person(from: &Provenance) -> bool {
    from.origin == Origin::Person && from.author == AuthorClass::Owner
}

fn text_of(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Blocks(blocks) => {
            blocks.iter().filter_map(|block| block.as_text()).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Chunks with their words and sources, in the order of `nodes`; those that cannot be read are left out.
///
/// # Errors
/// What the store says.
pub async fn read_chunks(
    store: &dyn Graph,
    scope: &PastScope,
    nodes: &[NodeId],
) -> Result<Vec<MemoryChunk>, PastError> {
    let mut read = read_chunks_by_node(store, scope, nodes).await?;
    Ok(nodes.iter().filter_map(|node| read.remove(node)).collect())
}

/// The same by their nodes.
pub(crate) async fn read_chunks_by_node(
    store: &dyn Graph,
    scope: &PastScope,
    nodes: &[NodeId],
) -> Result<HashMap<NodeId, MemoryChunk>, PastError> {
    let found: Vec<_> = store.nodes(nodes).await?.into_iter().flatten().collect();
    let decoded = decode_nodes(store, &found).await?;
    let chunks = found.iter().zip(decoded);
    let chunks =
        chunks.filter_map(|(node, decoded)| Some((node.id, StoredRecord::chunk_of(&decoded, Some(scope))?)));
    Ok(chunks.collect())
}
