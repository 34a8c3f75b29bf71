//! What stood in a request, by its parts, from what is stored and nothing else.

use std::sync::Arc;

use quipu_protocol::{CallRecord, Compaction, Epoch, EpochOpening, Message, NodeId};
use quipu_store::decode_nodes;
use quipu_transcript::OpeningMessages;

use crate::engine::Engine;
use crate::error::OpenError;
use crate::identity::system_text;
use crate::resume::read_past;

/// What a request is made of, in its order.
#[derive(Debug, Clone)]
pub struct RequestParts {
    /// The node whose lineage it is.
    pub head: NodeId,
    /// The call that was made of it; `None` where the node is no answer.
    pub call: Option<CallRecord>,
    /// Model, tools, and where the system prompt's sections are from.
    pub epoch: Epoch,
    /// The system prompt.
    pub system: String,
    /// What stands before the conversation, as it is recorded.
    pub opening: Option<EpochOpening>,
    /// The messages that this makes, in their order; the boundary, too.
    pub opening_messages: Vec<Arc<Message>>,
    /// The compaction that the conversation begins with, and its node.
    pub compacted: Option<(NodeId, Arc<Compaction>)>,
    /// The conversation with its nodes, the summary not among them. Results are whole, also where a request leaves them out.
    pub messages: Vec<(NodeId, Arc<Message>)>,
}

impl Engine {
    /// What stood in the request that a node answers; for other nodes, what stands in one that is made there.
    ///
    /// # Errors
    /// `Store`, `Broken`.
    pub async fn request_parts(&self, node: NodeId) -> Result<RequestParts, OpenError> {
        let store = &**self.store();
        let found: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
        let call =
            decode_nodes(store, &found).await?.into_iter().next().and_then(|decoded| decoded.step.call);
        let head = call.as_ref().map_or(node, |call| call.head);
        let past = read_past(store, head).await?;
        let identity = past.prompt.identity.as_deref().map_or_else(String::new, system_text);
        let mut messages: Vec<(NodeId, Arc<Message>)> = past.nodes.into_iter().zip(past.messages).collect();
        let is_summary =
            |(_, message): &(NodeId, Arc<Message>)| matches!(**message, Message::CompactionSummary(_));
        let summary = messages.first().is_some_and(is_summary).then(|| messages.remove(0).0);
        let context = past.epoch.context.as_ref();
        Ok(RequestParts {
            head,
            call,
            system: identity + &past.prompt.rest(),
            opening: context.and_then(|context| context.opening.clone()),
            opening_messages: OpeningMessages::of(context).all().cloned().collect(),
            compacted: summary.zip(past.compacted),
            messages,
            epoch: past.epoch,
        })
    }
}
