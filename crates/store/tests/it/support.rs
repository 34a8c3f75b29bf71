//! Small things that many tests need.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{ChunkId, Entry, Epoch, Message, NodeId, SessionId, SessionStart, StepInfo};
use quipu_store::{Commit, NewChunk, OpenOptions, RefMove, RefName, SqliteStore};
use quipu_transcript::encode;
use sha2::{Digest as _, Sha256};

/// A fixed time, so that ids are the same on every run.
pub(crate) const T: i64 = 1_700_000_000_000;

pub(crate) fn options() -> OpenOptions {
    OpenOptions { writer: "test".to_owned(), ..OpenOptions::default() }
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &options()).unwrap()
}

pub(crate) fn open_impatient(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &OpenOptions { busy: Duration::from_millis(100), ..options() }).unwrap()
}

/// A node of plain text with its blob.
pub(crate) fn text_node(parent: Option<NodeId>, role: &str, text: &str, at: i64) -> (Node, Blob) {
    let blob = Blob::text(text);
    let record = NodeRecord {
        parent,
        role: role.to_owned(),
        parts: vec![blob.id],
        timestamp: at,
        external_id: None,
        system_prompt: None,
    };
    (Node::new(record, None, None), blob)
}

/// A commit of one node of text, without a ref.
pub(crate) fn text_commit(parent: Option<NodeId>, text: &str, at: i64) -> (NodeId, Commit) {
    let (node, blob) = text_node(parent, "user", text, at);
    (node.id, Commit { blobs: vec![blob], nodes: vec![node], ..Commit::default() })
}

/// A commit of one node that moves the ref of `session` from its parent to it.
pub(crate) fn step(session: &SessionId, parent: Option<NodeId>, text: &str, at: i64) -> (NodeId, Commit) {
    let (id, mut commit) = text_commit(parent, text, at);
    commit.moves.push(RefMove::swap(RefName::session(session), parent, id, "step"));
    (id, commit)
}

/// The commit of any entry as one node of ours.
pub(crate) fn entry_commit(parent: Option<NodeId>, entry: &Entry, at: i64) -> (NodeId, Commit) {
    let encoded = encode(entry, &StepInfo::default());
    let record = NodeRecord {
        parent,
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: at,
        external_id: Some(format!("0190a5c0-0000-7000-8000-{:012x}", at - T)),
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let chunks = encoded
        .chunks
        .into_iter()
        .map(|(id, bytes)| NewChunk::Full { id, bytes: Arc::from(bytes) })
        .collect();
    (node.id, Commit { blobs: encoded.blobs, chunks, nodes: vec![node], ..Commit::default() })
}

pub(crate) fn session_start(session: &SessionId, cwd: &str, parent: Option<SessionId>) -> Entry {
    Entry::Session(SessionStart {
        session: session.clone(),
        cwd: cwd.to_owned(),
        agent: "quipu".to_owned(),
        parent_session: parent,
        epoch: Epoch { provider: "demo".to_owned(), model: "demo-1".to_owned(), ..Epoch::default() },
    })
}

pub(crate) fn user(text: &str, at: i64) -> Entry {
    Entry::Message(Message::user(text, at))
}

pub(crate) fn chunk_id(bytes: &[u8]) -> ChunkId {
    ChunkId(Sha256::digest(bytes).into())
}

/// Bytes that do not repeat and hardly compress, the same for the same seed.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
