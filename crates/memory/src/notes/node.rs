//! A change as a node, and a node as a change.

use std::collections::BTreeMap;

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{
    Body, Content, CustomMessage, Entry, Epoch, FileChange, FileState, Json, Message, NodeId, Origin,
    Provenance, SessionId, SessionStart, StepInfo, UnixMs,
};
use quipu_store::{Commit, NewChunk, RefName};
use quipu_transcript::{DecodedEntry, Listing, encode_listed};
use serde::{Deserialize, Serialize};

use super::ledger::LineRange;
use super::shape::FileShapes;
use crate::{AuthorClass, MemoryPlace};

/// The type of messages that are changes of a memory, and the name of what their nodes say beside the files.
pub const CHANGE: &str = quipu::history::MEMORY_CHANGE;

/// What the node of a change says beside the files and the class of its author.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NoteChange {
    /// What made it.
    pub by: String,
    /// The nodes that its text came from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<NodeId>,
    /// Lines that a person accepted, by file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accepted: BTreeMap<String, Vec<LineRange>>,
    /// The shapes of files that hold a secret, whose text the graph does not keep.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, FileShapes>,
    /// Nodes whose text no search of a memory shows any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<NodeId>,
}

/// The session that holds the changes of a memory.
#[must_use]
pub fn session_of(place: &MemoryPlace) -> SessionId {
    SessionId::from(format!("memory-{}", place.id))
}

pub(crate) fn ref_of(place: &MemoryPlace) -> RefName {
    RefName::session(&session_of(place))
}

/// Writes the nodes of one commit, each below the one before it.
pub(crate) struct NodeChain {
    pub(crate) commit: Commit,
    pub(crate) head: Option<NodeId>,
    listed: Option<String>,
    last: UnixMs,
}

impl NodeChain {
    /// Below a node of this time, which programs that share the store list as `listed`.
    pub(crate) fn below(head: Option<NodeId>, listed: Option<String>, last: UnixMs) -> Self {
        Self { commit: Commit::default(), head, listed, last }
    }

    /// The beginning of the session of a memory.
    pub(crate) fn begin(&mut self, place: &MemoryPlace, now: UnixMs) {
        let start = SessionStart {
            session: session_of(place),
            cwd: place.root.to_string_lossy().into_owned(),
            agent: quipu::AGENT.to_owned(),
            parent_session: None,
            epoch: Epoch::default(),
        };
        self.append(&Entry::Session(start), &StepInfo::default(), now);
        let name = serde_json::json!({ "type": "session_info", "name": format!("Memory {}", place.id) });
        self.append(&Entry::Meta(Json::from(&name)), &StepInfo::default(), now);
    }

    /// A change. The text names files and lines, never what stands in them.
    pub(crate) fn change(
        &mut self,
        text: String,
        class: AuthorClass,
        said: &NoteChange,
        files: Vec<FileChange>,
        now: UnixMs,
    ) -> NodeId {
        let origin = match class {
            AuthorClass::Owner => Origin::Person,
            AuthorClass::Agent => Origin::Model,
            AuthorClass::Untrusted if said.by != super::ledger::UNEXPLAINED => Origin::Model,
            AuthorClass::Untrusted | AuthorClass::System => Origin::Process,
        };
        let details = Json::of(said).ok();
        let message = CustomMessage {
            custom_type: CHANGE.to_owned(),
            content: Body::Blocks(vec![Content::text(text)]),
            display: true,
            details: None,
            timestamp: now,
        };
        let step = StepInfo {
            provenance: Some(Provenance::new(origin, class.into()).named(said.by.as_str())),
            files,
            extra: details.into_iter().map(|json| (CHANGE.to_owned(), json)).collect(),
            ..StepInfo::default()
        };
        self.append(&Entry::Message(Message::Custom(message)), &step, now)
    }

    /// Bytes that states refer to.
    pub(crate) fn keep(&mut self, chunk: NewChunk) {
        self.commit.chunks.push(chunk);
    }

    fn append(&mut self, entry: &Entry, step: &StepInfo, now: UnixMs) -> NodeId {
        // Clocks jump; the order of the nodes does not.
        self.last = now.max(self.last.saturating_add(1));
        let id = uuid::Uuid::now_v7().to_string();
        let listing = Listing { id: &id, parent: self.listed.as_deref(), first_kept: None, at: self.last };
        let encoded = encode_listed(entry, step, &listing);
        let record = NodeRecord {
            parent: self.head,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: self.last,
            external_id: Some(id.clone()),
            system_prompt: None,
        };
        self.commit.blobs.extend(encoded.blobs);
        let chunks = encoded.chunks.into_iter();
        self.commit.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        let node = Node::new(record, None, None);
        let made = node.id;
        self.commit.nodes.push(node);
        (self.head, self.listed) = (Some(made), Some(id));
        made
    }
}

/// What a node of a memory's session says; `None` for one that is no change.
pub(crate) fn change_of(decoded: &DecodedEntry) -> Option<(AuthorClass, NoteChange)> {
    let Entry::Message(Message::Custom(message)) = &decoded.entry else { return None };
    if message.custom_type != CHANGE {
        return None;
    }
    let said = decoded.step.extra.get(CHANGE).and_then(|json| json.read().ok()).unwrap_or_default();
    let class = decoded.step.provenance.as_ref().map_or(AuthorClass::Untrusted, |from| from.author.into());
    Some((class, said))
}

/// The chunk of a state, where it is kept.
pub(crate) fn content_of(state: &FileState) -> Option<quipu_protocol::ChunkId> {
    state.content()
}

impl From<AuthorClass> for quipu_protocol::AuthorClass {
    fn from(class: AuthorClass) -> Self {
        match class {
            AuthorClass::Owner => Self::Owner,
            AuthorClass::Agent => Self::Agent,
            AuthorClass::Untrusted => Self::Untrusted,
            AuthorClass::System => Self::System,
        }
    }
}

impl From<quipu_protocol::AuthorClass> for AuthorClass {
    fn from(class: quipu_protocol::AuthorClass) -> Self {
        match class {
            quipu_protocol::AuthorClass::Owner => Self::Owner,
            quipu_protocol::AuthorClass::Agent => Self::Agent,
            quipu_protocol::AuthorClass::Untrusted => Self::Untrusted,
            quipu_protocol::AuthorClass::System => Self::System,
        }
    }
}
