//! What the extension asks: the fields of each operation.

use std::path::PathBuf;

use quipu_protocol::{Json, NodeId, SessionId};
use serde::Deserialize;

/// What every request has. The rest is read when the operation is known.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestHead {
    /// A number or a text, given back with the answer.
    pub(crate) id: serde_json::Value,
    pub(crate) op: String,
}

/// `open`: a session begins or goes on.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenSession {
    /// The header of the session file.
    pub(crate) header: Json,
    /// The file, which may not be there yet; none for a session that is not kept in one.
    pub(crate) file: Option<PathBuf>,
    /// The id of the entry where the session stands.
    pub(crate) leaf: Option<String>,
    /// Why it was opened, in Pi's words.
    #[serde(default)]
    pub(crate) reason: String,
}

/// `append`: entries were made.
#[derive(Debug, Deserialize)]
pub(crate) struct Append {
    pub(crate) session: SessionId,
    /// The place of the first of them, from 0.
    pub(crate) first: u64,
    pub(crate) entries: Vec<Json>,
    /// The id of the entry where the session stands then.
    pub(crate) leaf: Option<String>,
}

/// `tool`: a tool that reads.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) session: SessionId,
    pub(crate) name: String,
    pub(crate) arguments: Json,
    /// The id of the entry where the session stands.
    pub(crate) leaf: Option<String>,
}

/// `plan`: where a `tobe` would go.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) session: SessionId,
    pub(crate) leaf: Option<String>,
    pub(crate) target_node_hash: String,
    pub(crate) carryover_message: String,
}

/// `jump`: a person agreed, and the entries that make it are there.
#[derive(Debug, Deserialize)]
pub(crate) struct Jump {
    pub(crate) session: SessionId,
    pub(crate) first: u64,
    pub(crate) entries: Vec<Json>,
    /// The entry where the session stood.
    pub(crate) from: String,
    pub(crate) target: NodeId,
    /// The entry of the message to itself.
    pub(crate) carryover: String,
    pub(crate) message: String,
}

/// `restore`: the session's file is written from the graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Restore {
    pub(crate) session: SessionId,
    pub(crate) file: PathBuf,
}

/// `state` and `close`: a session as it is, and one that ends.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionName {
    pub(crate) session: SessionId,
}

/// `cancel`: nobody waits for an answer any more.
#[derive(Debug, Deserialize)]
pub(crate) struct Cancel {
    pub(crate) target: serde_json::Value,
}
