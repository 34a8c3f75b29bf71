//! Chunks as nodes: each below the one before it, on the ref of their scope.

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{
    AuthorClass, Body, Content, CustomMessage, Entry, Epoch, Json, Message, NodeId, Origin, Provenance,
    SessionStart, StepInfo, UnixMs,
};
use quipu_store::{Commit, Graph, NewChunk, PAST_MOVE, RefMove, StoreError};
use quipu_transcript::{Listing, encode_listed};

use crate::chunk::PastRecord;
use crate::proof_record::{ChunkVerdict, GROUNDING_RULES, ProofRecord};
use crate::{MemoryChunk, PAST_CHUNK, PastError, PastId, PastIndex, PastScope, ReviewState, SummaryMethod};

/// Who copies sentences of sources.
pub(crate) const EXTRACTOR: &str = "extract";

/// Writes to a past, a commit at a time.
pub(crate) struct PastWriter<'a> {
    store: &'a dyn Graph,
    scope: &'a PastScope,
    commit: Commit,
    /// Where the ref stands, and where it will.
    stands: Option<NodeId>,
    head: Option<NodeId>,
    listed: Option<String>,
    last: UnixMs,
    /// Whether something was committed: the rest is undone with it.
    began: bool,
}

impl<'a> PastWriter<'a> {
    pub(crate) fn new(store: &'a dyn Graph, scope: &'a PastScope, index: &PastIndex) -> Self {
        Self {
            store,
            scope,
            commit: Commit::default(),
            stands: index.head,
            head: index.head,
            listed: index.listed.clone(),
            last: index.last,
            began: false,
        }
    }

    /// What is undone with the step that ended at this node, where nobody wrote since.
    pub(crate) fn after(mut self, step: Option<NodeId>) -> Self {
        self.began = step.is_some() && step == self.stands;
        self
    }

    /// Where the ref stands.
    pub(crate) const fn stands(&self) -> Option<NodeId> {
        self.stands
    }

    /// A chunk; it is there once [`save`](Self::save) has returned.
    pub(crate) fn chunk(&mut self, chunk: &MemoryChunk, now: UnixMs) -> NodeId {
        let (origin, by) = match &chunk.method {
            SummaryMethod::Extractive { .. } => (Origin::Process, EXTRACTOR),
            SummaryMethod::Model(asked) => (Origin::Model, asked.model.as_str()),
            SummaryMethod::Person => (Origin::Person, "person"),
            SummaryMethod::Agent => (Origin::Model, "agent"),
        };
        let from = Provenance::new(origin, chunk.class).named(by);
        self.put(&chunk.record(), chunk.summary.clone(), from, now)
    }

    pub(crate) fn review(&mut self, of: PastId, state: ReviewState, now: UnixMs) -> NodeId {
        let word = match state {
            ReviewState::Made => "not reviewed",
            ReviewState::Reviewed => "reviewed",
            ReviewState::Retracted => "retracted",
        };
        let from = Provenance::new(Origin::Person, AuthorClass::Owner);
        self.put(&PastRecord::Review { of, state }, format!("Chunk {}: {word}", of.short()), from, now)
    }

    pub(crate) fn supersede(&mut self, of: Vec<PastId>, now: UnixMs) -> NodeId {
        let text = format!("{} chunk(s) superseded", of.len());
        self.put(&PastRecord::Supersede { of }, text, Provenance::quipu(), now)
    }

    /// As a person wants it.
    pub(crate) fn replace(&mut self, of: Vec<PastId>, now: UnixMs) -> NodeId {
        let text = format!("{} chunk(s) superseded by a person", of.len());
        let from = Provenance::new(Origin::Person, AuthorClass::Owner);
        self.put(&PastRecord::Supersede { of }, text, from, now)
    }

    /// What was found when chunks were checked.
    pub(crate) fn grounding(&mut self, of: Vec<ChunkVerdict>, now: UnixMs) -> NodeId {
        let ungrounded = of.iter().filter(|verdict| !verdict.is_grounded()).count();
        let text = format!("{} chunk(s) checked, {ungrounded} say what their sources do not", of.len());
        self.put(&PastRecord::Grounding { rules: GROUNDING_RULES, of }, text, Provenance::quipu(), now)
    }

    /// What came of a proof.
    pub(crate) fn proof(&mut self, proof: ProofRecord, now: UnixMs) -> NodeId {
        let text = proof.text();
        self.put(&PastRecord::Proof(Box::new(proof)), text, Provenance::quipu(), now)
    }

    fn put(&mut self, record: &PastRecord, text: String, from: Provenance, now: UnixMs) -> NodeId {
        if self.head.is_none() {
            self.begin(now);
        }
        // As an object with sorted members: so it stands in the node as it is.
        let json = serde_json::to_value(record).map(|value| Json::from(&value)).unwrap_or_default();
        let message = CustomMessage {
            custom_type: PAST_CHUNK.to_owned(),
            content: Body::Blocks(vec![Content::text(text)]),
            display: true,
            details: None,
            timestamp: now,
        };
        let step = StepInfo {
            provenance: Some(from),
            extra: [(PAST_CHUNK.to_owned(), json)].into(),
            ..StepInfo::default()
        };
        self.append(&Entry::Message(Message::Custom(message)), &step, now)
    }

    fn begin(&mut self, now: UnixMs) {
        let start = SessionStart {
            session: self.scope.session(),
            // In no directory: no conversation of a directory continues with it.
            cwd: String::new(),
            agent: "quipu".to_owned(),
            parent_session: None,
            epoch: Epoch::default(),
        };
        self.append(&Entry::Session(start), &StepInfo::default(), now);
        let name = format!("Past of {}", self.scope.name());
        let name = serde_json::json!({ "type": "session_info", "name": name });
        self.append(&Entry::Meta(Json::from(&name)), &StepInfo::default(), now);
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

    /// Commits what was put, all of it or nothing. Nothing happens where nothing was.
    ///
    /// # Errors
    /// `Busy` where somebody else wrote meanwhile; `Store`.
    pub(crate) async fn save(&mut self) -> Result<(), PastError> {
        let mut commit = std::mem::take(&mut self.commit);
        let (false, Some(head)) = (commit.nodes.is_empty(), self.head) else { return Ok(()) };
        let why = if self.began { "append" } else { PAST_MOVE };
        commit.moves.push(RefMove::swap(self.scope.ref_name(), self.stands, head, why));
        match self.store.commit(commit).await {
            Ok(()) => {
                self.stands = Some(head);
                self.began = true;
                Ok(())
            }
            Err(StoreError::Conflict { .. }) => Err(PastError::Busy(self.scope.session())),
            Err(error) => Err(error.into()),
        }
    }
}
