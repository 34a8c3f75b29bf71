//! A node with all that it needs, ready to be committed.

use quipu_dag::{Node, NodeRecord, quoted, sha256};
use quipu_protocol::{BlobId, Entry, Message, NodeId, StepInfo, UnixMs};
use quipu_store::{Commit, NewChunk, NodeHint};
use quipu_transcript::EncodedEntry;

pub(crate) struct BuiltNode {
    pub(crate) node: Node,
    parts: EncodedEntry,
    hint: Option<NodeHint>,
}

/// The parts of a node whose parent is not known yet.
pub(crate) struct NodeParts {
    parts: EncodedEntry,
    config: Option<String>,
    hint: Option<NodeHint>,
}

/// A digest of the role and the parts of a node: its content without parent and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContentDigest([u8; 16]);

impl ContentDigest {
    pub(crate) fn of(role: &str, parts: &[BlobId]) -> Self {
        let mut bytes = Vec::with_capacity(role.len() + 1 + parts.len() * 32);
        bytes.extend_from_slice(role.as_bytes());
        bytes.push(0);
        for part in parts {
            bytes.extend_from_slice(&part.0);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&sha256(&bytes)[..16]);
        Self(short)
    }
}

impl NodeParts {
    pub(crate) fn new(agent: &str, entry: &Entry, step: &StepInfo) -> Self {
        let config = match entry {
            Entry::Message(Message::Assistant(answer)) => {
                let (agent, provider, model) =
                    (quoted(agent), quoted(&answer.provider), quoted(&answer.model));
                let model = [",\"model\":{\"provider\":", &provider, ",\"id\":", &model, "}}"].concat();
                Some(["{\"agent\":", &agent, &model].concat())
            }
            _ => None,
        };
        Self { parts: quipu_transcript::encode(entry, step), config, hint: NodeHint::of(entry, step) }
    }

    pub(crate) fn digest(&self) -> ContentDigest {
        let parts: Vec<BlobId> = self.parts.blobs.iter().map(|blob| blob.id).collect();
        ContentDigest::of(&self.parts.role, &parts)
    }

    pub(crate) fn build(
        self,
        parent: Option<NodeId>,
        timestamp: UnixMs,
        external_id: Option<String>,
    ) -> BuiltNode {
        let record = NodeRecord {
            parent,
            role: self.parts.role.clone(),
            parts: self.parts.blobs.iter().map(|blob| blob.id).collect(),
            timestamp,
            external_id,
            system_prompt: None,
        };
        BuiltNode { node: Node::new(record, self.config, None), parts: self.parts, hint: self.hint }
    }
}

impl BuiltNode {
    /// Bytes of its content.
    pub(crate) fn size(&self) -> usize {
        let chunks: usize = self.parts.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        self.parts.blobs.iter().map(|blob| blob.content.len() + 128).sum::<usize>() + chunks
    }

    pub(crate) fn add_to(self, batch: &mut Commit) {
        batch.blobs.extend(self.parts.blobs);
        let chunks = self.parts.chunks.into_iter();
        batch.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        batch.hints.extend(self.hint.map(|hint| (self.node.id, hint)));
        batch.nodes.push(self.node);
    }
}
