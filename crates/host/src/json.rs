//! Sessions and nodes as programs read them.

use std::collections::HashMap;

use quipu_dag::Node;
use quipu_protocol::{Entry, Message, SessionId, StepInfo};
use quipu_store::{Graph, SessionRow};
use quipu_transcript::{DecodedEntry, role_with};

use crate::Failure;

/// How many nodes have a label that was given in each session.
pub async fn label_counts(
    store: &dyn Graph,
    sessions: &[SessionId],
) -> Result<HashMap<SessionId, usize>, Failure> {
    let mut counts = HashMap::new();
    for label in store.labels(sessions).await? {
        *counts.entry(label.session).or_default() += 1;
    }
    Ok(counts)
}

/// A session as a program reads it. Times in milliseconds since the epoch, cost in US dollars.
pub fn session_json(row: &SessionRow, labels: &HashMap<SessionId, usize>) -> serde_json::Value {
    serde_json::json!({
        "id": row.id,
        "cwd": row.cwd,
        "cwdGone": !std::path::Path::new(&row.cwd).is_dir(),
        "name": row.called,
        "title": row.title,
        "agent": row.agent,
        "model": row.model,
        "head": row.head,
        "base": row.base,
        "parentSession": row.parent,
        "created": row.created,
        "updated": row.updated,
        "entries": row.entries,
        "cost": row.cost,
        "labels": labels.get(&row.id).copied().unwrap_or(0),
    })
}

/// A node as a program reads it.
pub fn node_json(node: &Node, decoded: &DecodedEntry) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct NodeJson<'a> {
        id: quipu_protocol::NodeId,
        parent: Option<quipu_protocol::NodeId>,
        role: &'a str,
        timestamp: i64,
        external_id: &'a Option<String>,
        parts: &'a [quipu_protocol::BlobId],
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a Message>,
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<&'a quipu_protocol::SessionStart>,
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<&'a quipu_protocol::Epoch>,
        #[serde(skip_serializing_if = "Option::is_none")]
        compaction: Option<&'a quipu_protocol::Compaction>,
        #[serde(skip_serializing_if = "Option::is_none")]
        entry: Option<&'a quipu_protocol::Json>,
        /// Of a merge: the node that it hangs on, and the ends of the other branches.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        merge: &'a [quipu_protocol::NodeId],
        #[serde(skip_serializing_if = "Option::is_none")]
        provenance: Option<&'a quipu_protocol::Provenance>,
        /// Blocks of the message that came from elsewhere.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        added: &'a [quipu_protocol::AddedBlock],
        step: &'a StepInfo,
    }
    let mut shown = NodeJson {
        id: node.id,
        parent: node.record.parent,
        role: role_with(node, &decoded.entry),
        timestamp: node.record.timestamp,
        external_id: &node.record.external_id,
        parts: &node.record.parts,
        message: None,
        session: None,
        epoch: None,
        compaction: None,
        entry: None,
        merge: &decoded.step.merge,
        provenance: decoded.step.provenance.as_ref(),
        added: &decoded.step.added,
        step: &decoded.step,
    };
    match &decoded.entry {
        Entry::Message(message) => shown.message = Some(message),
        Entry::Session(start) => shown.session = Some(start),
        Entry::Epoch(epoch) => shown.epoch = Some(epoch),
        Entry::Compaction(compaction) => shown.compaction = Some(compaction),
        Entry::Meta(json) => shown.entry = Some(json),
    }
    serde_json::to_string(&shown).map_err(Failure::failed)
}
