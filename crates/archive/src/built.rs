//! A node with all that it needs, ready to be committed.

use quipu_dag::{Node, NodeRecord, quoted, sha256};
use quipu_protocol::{BlobId, Entry, Message, NodeId, StepInfo, UnixMs};
use quipu_store::{Commit, NewChunk, Told};
use quipu_transcript::Encoded;

pub(crate) struct Built {
    pub(crate) node: Node,
    parts: Encoded,
    told: Option<Told>,
}

/// The parts of a node that has no place yet.
pub(crate) struct Parts {
    parts: Encoded,
    config: Option<String>,
    told: Option<Told>,
}

/// What an item says, whatever it follows and whenever it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Said([u8; 16]);

impl Said {
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

impl Parts {
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
        Self { parts: quipu_transcript::encode(entry, step), config, told: Told::of(entry, step) }
    }

    pub(crate) fn said(&self) -> Said {
        let parts: Vec<BlobId> = self.parts.blobs.iter().map(|blob| blob.id).collect();
        Said::of(&self.parts.role, &parts)
    }

    pub(crate) fn build(
        self,
        parent: Option<NodeId>,
        timestamp: UnixMs,
        external_id: Option<String>,
    ) -> Built {
        let record = NodeRecord {
            parent,
            role: self.parts.role.clone(),
            parts: self.parts.blobs.iter().map(|blob| blob.id).collect(),
            timestamp,
            external_id,
            system_prompt: None,
        };
        Built { node: Node::new(record, self.config, None), parts: self.parts, told: self.told }
    }
}

impl Built {
    /// Bytes of its content.
    pub(crate) fn size(&self) -> usize {
        let chunks: usize = self.parts.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        self.parts.blobs.iter().map(|blob| blob.content.len() + 128).sum::<usize>() + chunks
    }

    pub(crate) fn add_to(self, batch: &mut Commit) {
        batch.blobs.extend(self.parts.blobs);
        let chunks = self.parts.chunks.into_iter();
        batch.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        batch.told.extend(self.told.map(|told| (self.node.id, told)));
        batch.nodes.push(self.node);
    }
}
