//! A store with sessions in it.

use std::sync::Arc;

use quipu_dag::{Node, NodeRecord};
use quipu_past::{
    BuildSize, ExtractiveSummary, MemoryChunk, PastIndex, PastPlan, PastScope, Summariser as _, build_past,
    read_chunks,
};
use quipu_protocol::{
    AssistantMessage, Content, Entry, Epoch, Json, Message, NodeId, SessionId, SessionStart, StepInfo,
    ToolCall, ToolResultMessage, UnixMs,
};
use quipu_store::{Commit, Graph, RefMove, RefName};
use quipu_transcript::encode;

/// 2023-11-14T22:13:20Z.
pub(crate) const EPOCH: UnixMs = 1_700_000_000_000;
pub(crate) const MINUTE: UnixMs = 60_000;
pub(crate) const HOUR: UnixMs = 60 * MINUTE;
pub(crate) const DAY: UnixMs = 24 * HOUR;
/// Long after everything that is said in the tests.
pub(crate) const NOW: UnixMs = EPOCH + 1_000 * DAY;

pub(crate) struct World {
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) scope: PastScope,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { store: quipu_store::in_memory().unwrap(), scope: PastScope::All }
    }

    /// Writes the messages to the session, below what it has. The same session has the same nodes in every store.
    pub(crate) async fn say(&self, session: &str, messages: &[(UnixMs, Message)]) -> Vec<NodeId> {
        self.say_as(session, "quipu", "/work", messages).await
    }

    pub(crate) async fn say_as(
        &self,
        session: &str,
        agent: &str,
        cwd: &str,
        messages: &[(UnixMs, Message)],
    ) -> Vec<NodeId> {
        let id = SessionId::from(session.to_owned());
        let name = RefName::of_agent(agent, &id);
        let stands = self.store.head(&name).await.unwrap();
        let mut entries = Vec::new();
        if stands.is_none() {
            let epoch = Epoch { provider: "p".into(), model: "m".into(), ..Epoch::default() };
            let start = SessionStart {
                session: id,
                cwd: cwd.into(),
                agent: agent.into(),
                parent_session: None,
                epoch,
            };
            entries.push((messages.first().map_or(EPOCH, |(at, _)| *at), Entry::Session(start)));
        }
        entries.extend(messages.iter().map(|(at, message)| (*at, Entry::Message(message.clone()))));
        self.put(&name, stands, &entries, &StepInfo::default()).await.split_off(usize::from(stands.is_none()))
    }

    pub(crate) async fn put(
        &self,
        name: &RefName,
        stands: Option<NodeId>,
        entries: &[(UnixMs, Entry)],
        step: &StepInfo,
    ) -> Vec<NodeId> {
        let (mut commit, mut head, mut made) = (Commit::default(), stands, Vec::new());
        for (at, entry) in entries {
            let encoded = encode(entry, step);
            let record = NodeRecord {
                parent: head,
                role: encoded.role,
                parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
                timestamp: *at,
                external_id: None,
                system_prompt: None,
            };
            commit.blobs.extend(encoded.blobs);
            let node = Node::new(record, None, None);
            head = Some(node.id);
            made.push(node.id);
            commit.nodes.push(node);
        }
        commit.moves.push(RefMove::swap(name.clone(), stands, head.unwrap(), "append"));
        self.store.commit(commit).await.unwrap();
        made
    }

    pub(crate) async fn plan(&self) -> PastPlan {
        PastPlan::make(&*self.store, &self.scope, &ExtractiveSummary.method(), NOW).await.unwrap()
    }

    /// Plans and builds; what the plan says is what the build did.
    pub(crate) async fn build(&self) -> BuildSize {
        let plan = self.plan().await;
        let mut last = None;
        let size =
            build_past(&*self.store, &self.scope, &ExtractiveSummary, &plan, NOW, &mut |at| last = Some(at))
                .await
                .unwrap();
        assert_eq!(plan.size(), size);
        let last = last.unwrap();
        assert_eq!((last.done, last.of), (last.of, size.leaves + size.parents + size.restored));
        size
    }

    pub(crate) async fn index(&self) -> PastIndex {
        PastIndex::read(&*self.store, &self.scope).await.unwrap()
    }

    /// What is shown, by time and level.
    pub(crate) async fn live(&self) -> Vec<MemoryChunk> {
        let index = self.index().await;
        let nodes: Vec<NodeId> = index.live().map(|chunk| chunk.node).collect();
        let mut chunks = read_chunks(&*self.store, &self.scope, &nodes).await.unwrap();
        assert_eq!(chunks.len(), nodes.len());
        chunks.sort_by_key(|chunk| (chunk.level, chunk.span, chunk.id()));
        chunks
    }
}

pub(crate) fn asked(text: &str, at: UnixMs) -> (UnixMs, Message) {
    (at, Message::user(text, at))
}

pub(crate) fn answered(text: &str, at: UnixMs) -> (UnixMs, Message) {
    let content = vec![Content::text(text)];
    (at, Message::Assistant(AssistantMessage { content, timestamp: at, ..AssistantMessage::default() }))
}

pub(crate) fn called(id: &str, at: UnixMs) -> (UnixMs, Message) {
    let call = ToolCall {
        id: id.into(),
        name: "bash".into(),
        arguments: Json::object(),
        thought_signature: None,
        namespace: None,
    };
    let content = vec![Content::ToolCall(call)];
    (at, Message::Assistant(AssistantMessage { content, timestamp: at, ..AssistantMessage::default() }))
}

pub(crate) fn result(id: &str, text: &str, at: UnixMs) -> (UnixMs, Message) {
    let result = ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "bash".into(),
        content: vec![Content::text(text)],
        details: None,
        usage: None,
        is_error: false,
        timestamp: at,
    };
    (at, Message::ToolResult(result))
}

/// A turn of a request and its answer.
pub(crate) fn turn(about: &str, at: UnixMs) -> Vec<(UnixMs, Message)> {
    vec![
        asked(&format!("Please do {about}."), at),
        answered(&format!("Did {about} in src/{about}.rs."), at + 1_000),
    ]
}
