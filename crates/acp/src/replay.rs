//! The history of a session, told again to a client that loads it.

use std::collections::HashMap;
use std::path::Path;

use quipu_protocol::{CallId, Entry, Json, Message, NodeId};
use quipu_store::{Graph, LineageEnd, StoreError, decode_nodes};
use serde_json::{Value, json};

use crate::calls;
use crate::link::SessionLink;
use crate::updates;

/// Nodes that are told again at most: the newest.
pub(crate) const REPLAYED: usize = 5_000;
/// Nodes that are held with their content at once.
const TOGETHER: usize = 64;

/// Tells what led to `head`, the oldest first. Whether the client is there still.
///
/// # Errors
/// What the store says.
pub(crate) async fn replay(
    link: &SessionLink,
    store: &dyn Graph,
    head: NodeId,
    cwd: &Path,
) -> Result<bool, StoreError> {
    let Some(name) = link.name() else { return Ok(false) };
    let nodes = store.lineage(head, LineageEnd::Count(REPLAYED)).await?;
    let mut arguments: HashMap<CallId, Json> = HashMap::new();
    let mut plan = None;
    for nodes in nodes.chunks(TOGETHER) {
        for decoded in decode_nodes(store, nodes).await? {
            let Entry::Message(message) = decoded.entry else { continue };
            for update in of_message(link, &message, cwd, &mut arguments, &mut plan) {
                if !link.connection.update(name, update).await {
                    return Ok(false);
                }
            }
        }
    }
    match plan {
        Some(plan) => Ok(link.connection.update(name, plan).await),
        None => Ok(true),
    }
}

fn of_message(
    link: &SessionLink,
    message: &Message,
    cwd: &Path,
    arguments: &mut HashMap<CallId, Json>,
    plan: &mut Option<Value>,
) -> Vec<Value> {
    match message {
        Message::User(user) => updates::said(&user.content),
        Message::Assistant(answer) => {
            let texts = updates::answer_texts(message).into_iter();
            let mut told: Vec<Value> = texts
                .map(|(is_thinking, text)| updates::chunk(updates::answer_kind(is_thinking), text, None))
                .collect();
            for call in answer.tool_calls() {
                let name = link.begin_call(&call.id);
                arguments.insert(call.id.clone(), call.arguments.clone());
                told.push(calls::begun(&name, (&call.name, &call.arguments), cwd, "pending", false));
            }
            told
        }
        Message::ToolResult(result) => {
            let arguments = arguments.remove(&result.tool_call_id);
            if result.tool_name == quipu::TODO_TOOL && !result.is_error {
                *plan = arguments.as_ref().and_then(calls::plan).or(plan.take());
            }
            let name = link.call(&result.tool_call_id);
            vec![calls::ended(&name, arguments.as_ref(), result, cwd, false)]
        }
        Message::BashExecution(ran) => {
            let name = link.begin_call(&CallId::from("shell"));
            vec![updates::ran(&name, ran, cwd)]
        }
        Message::CompactionSummary(_) => {
            vec![json!({
                "sessionUpdate": "agent_thought_chunk",
                "content": { "type": "text", "text": "The context was compacted here." },
            })]
        }
        Message::Custom(_) | Message::BranchSummary(_) | Message::Other(_) => Vec::new(),
    }
}
