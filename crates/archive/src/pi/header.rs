//! The first line of a file.

use quipu_dag::{Node, NodeRecord, quoted};
use quipu_protocol::{Entry, Epoch, Json, Message, NodeId, SessionId, SessionStart, StepInfo, UnixMs};
use quipu_store::{Commit, NewChunk};
use quipu_transcript::Encoded;
use serde::{Deserialize, Serialize};

use super::{AGENT, VERSION, time_of};
use crate::json::Members;

/// What a file says of itself.
pub(crate) struct Header {
    /// The session's name in the store.
    pub(crate) session: SessionId,
    /// The version that its entries have.
    pub(crate) version: u64,
    /// As the newest migration leaves it.
    json: Json,
}

/// What our part of the first node keeps: the line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) header: Json,
}

impl Header {
    /// Reads a line, which must be a header with an id.
    pub(crate) fn of(json: &Json) -> Option<Self> {
        let members = Members::of(json.get())?;
        if members.string("type")? != "session" {
            return None;
        }
        let session = session_id(&members.string("id")?);
        // Whatever is no number counts as the first version, as it does for the migration.
        let version = members.get("version").and_then(|text| text.parse::<f64>().ok());
        let version = match version {
            None => 1,
            Some(number) if number < 2.0 => 1,
            Some(number) if number < 3.0 => 2,
            Some(_) => VERSION,
        };
        let mut migrated = crate::json::Difference::default();
        if version < VERSION {
            migrated.set("version", "3");
        }
        let mut text = String::with_capacity(json.get().len() + 16);
        migrated.write(&mut text, members.0.iter().map(|(name, value)| (name.as_ref(), value.get())));
        let json = Json::parse(&text).unwrap_or_else(|_| json.clone());
        Some(Self { session, version, json })
    }

    /// The line, as the newest migration leaves it.
    pub(crate) fn text(&self) -> &str {
        self.json.get()
    }

    /// The first node of the session.
    pub(crate) fn build(&self) -> Built {
        let members = Members::of(self.json.get());
        let text = |name: &str| {
            members.as_ref().and_then(|members| members.string(name)).unwrap_or_default().into_owned()
        };
        let thinking = members.as_ref().and_then(|members| members.get("thinkingLevel"));
        // A fork names the file of its parent: time, `_`, id.
        let parent = text("parentSession");
        let parent = parent
            .rsplit(['/', '\\'])
            .next()
            .and_then(|name| name.strip_suffix(".jsonl")?.split_once('_'))
            .map(|(_, id)| session_id(id));
        let start = SessionStart {
            session: self.session.clone(),
            cwd: text("cwd"),
            agent: AGENT.into(),
            parent_session: parent,
            epoch: Epoch {
                provider: text("provider"),
                model: text("modelId"),
                thinking: thinking.and_then(|level| serde_json::from_str(level).ok()).unwrap_or_default(),
                ..Epoch::default()
            },
        };
        let mut step = StepInfo::default();
        if let Ok(kept) = Json::of(&Kept { header: self.json.clone() }) {
            step.extra.insert(AGENT.into(), kept);
        }
        let timestamp = time_of(&text("timestamp")).unwrap_or_default();
        // Without an id of its own: that would be the session's, by which people mean its last entry.
        Built::new(&Entry::Session(start), &step, None, timestamp, None)
    }
}

/// A node with all that it needs, ready to be committed.
pub(crate) struct Built {
    pub(crate) node: Node,
    parts: Encoded,
}

impl Built {
    pub(crate) fn new(
        entry: &Entry,
        step: &StepInfo,
        parent: Option<NodeId>,
        timestamp: UnixMs,
        external_id: Option<String>,
    ) -> Self {
        let parts = quipu_transcript::encode(entry, step);
        let record = NodeRecord {
            parent,
            role: parts.role.clone(),
            parts: parts.blobs.iter().map(|blob| blob.id).collect(),
            timestamp,
            external_id,
            system_prompt: None,
        };
        let config = match entry {
            Entry::Message(Message::Assistant(answer)) => Some(format!(
                "{{\"agent\":{},\"model\":{{\"provider\":{},\"id\":{}}}}}",
                quoted(AGENT),
                quoted(&answer.provider),
                quoted(&answer.model),
            )),
            _ => None,
        };
        Self { node: Node::new(record, config, None), parts }
    }

    /// Bytes of its content.
    pub(crate) fn size(&self) -> usize {
        let chunks: usize = self.parts.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        self.parts.blobs.iter().map(|blob| blob.content.len() + 128).sum::<usize>() + chunks
    }

    pub(crate) fn add_to(self, batch: &mut Commit) {
        batch.blobs.extend(self.parts.blobs);
        let chunks = self.parts.chunks.into_iter();
        batch.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        batch.nodes.push(self.node);
    }
}

/// The id, where it can name a session in the store, else one made from it.
pub(crate) fn session_id(id: &str) -> SessionId {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = id.as_bytes();
    let fits = bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if fits {
        return id.into();
    }
    let hash = quipu_protocol::ChunkId(quipu_dag::sha256(bytes)).to_string();
    hash[..32].into()
}
