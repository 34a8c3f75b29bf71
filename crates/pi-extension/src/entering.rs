//! The conversation at a node of another session, as messages that Pi can hold.

use std::sync::Arc;

use quipu_protocol::{Entry, Json, NodeId};
use quipu_store::{Graph, LineageEnd, decode_nodes};
use quipu_transcript::{context, message_of, project_messages};

use crate::error::HelperError;

/// Nodes of the other session that are read at most.
const NODES: usize = 20_000;
/// Messages that are entered at most.
const MESSAGES: usize = 2_000;
/// Bytes of them together at most.
const BYTES: usize = 8 << 20;

/// The messages that a model would be shown at a node, as a valid conversation. Summaries come as messages of the user.
///
/// # Errors
/// `Refused` where they are too many; what the store says.
pub(crate) async fn lineage_of(store: &Arc<dyn Graph>, node: NodeId) -> Result<Vec<Json>, HelperError> {
    let nodes = store.lineage(node, LineageEnd::Count(NODES)).await?;
    if nodes.len() >= NODES {
        return Err(HelperError::Refused(format!(
            "You cannot go to {}: more than {NODES} nodes lead there.",
            node.short()
        )));
    }
    let decoded = decode_nodes(&**store, &nodes).await?;
    let lineage: Vec<(NodeId, Entry)> =
        nodes.iter().map(|node| node.id).zip(decoded.into_iter().map(|decoded| decoded.entry)).collect();
    let shown = context(&lineage);
    let messages =
        shown.into_iter().filter_map(|at| message_of(&lineage[at].1)).map(|one| Arc::new(one.into_owned()));
    let messages = project_messages(messages);
    if messages.len() > MESSAGES {
        return Err(HelperError::Refused(format!(
            "You cannot go to {}: {} messages lead there, and the limit is {MESSAGES}.",
            node.short(),
            messages.len()
        )));
    }
    let mut bytes = 0;
    let mut entered = Vec::with_capacity(messages.len());
    for message in messages {
        let json = Json::of(&*message).map_err(|error| HelperError::Refused(error.to_string()))?;
        bytes += json.get().len();
        if bytes > BYTES {
            return Err(HelperError::Refused(format!(
                "You cannot go to {}: more than {BYTES} bytes of messages lead there.",
                node.short()
            )));
        }
        entered.push(json);
    }
    Ok(entered)
}
