//! Pages of a session while some of it is forgotten.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quipu_dag::{Node, NodeRecord};
use quipu_mcp_server::{GraphServer, ScopeSetting, serve_stdio};
use quipu_protocol::{Entry, Epoch, Message, NodeId, SessionId, SessionStart, StepInfo};
use quipu_store::{
    Commit, HiddenNodes, HiddenSnapshot, HiddenSource, RefMove, RefName, SqliteStore, Store as _,
};
use quipu_transcript::encode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, split};
use tokio_util::sync::CancellationToken;

use crate::support::server_over;

/// Forgets a node right after it was read so often.
#[derive(Default)]
struct List {
    nodes: Mutex<HashSet<NodeId>>,
    reads: AtomicU64,
    later: Mutex<Option<(u64, NodeId)>>,
}

struct ForgottenNodes(HashSet<NodeId>);

impl HiddenSource for List {
    fn now(&self) -> HiddenSnapshot {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let now = self.nodes.lock().unwrap().clone();
        if let Some((_, node)) = self.later.lock().unwrap().take_if(|(at, _)| reads >= *at) {
            self.nodes.lock().unwrap().insert(node);
        }
        HiddenSnapshot::of(Arc::new(ForgottenNodes(now)))
    }
}

impl HiddenNodes for ForgottenNodes {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn hides(&self, node: &NodeId) -> bool {
        self.0.contains(node)
    }
}

async fn put(store: &SqliteStore, parent: Option<NodeId>, entry: &Entry, at: i64) -> NodeId {
    let encoded = encode(entry, &StepInfo::default());
    let record = NodeRecord {
        parent,
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: at,
        external_id: None,
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let id = node.id;
    store.commit(Commit { blobs: encoded.blobs, nodes: vec![node], ..Commit::default() }).await.unwrap();
    id
}

/// A session of forty messages in a project.
async fn session(store: &SqliteStore) -> Vec<NodeId> {
    let id = SessionId::from("s1");
    let start = Entry::Session(SessionStart {
        session: id.clone(),
        cwd: "/w".into(),
        agent: "quipu".into(),
        parent_session: None,
        epoch: Epoch { provider: "p".into(), model: "m".into(), ..Epoch::default() },
    });
    let mut nodes = vec![put(store, None, &start, 1_000).await];
    for n in 1..=40 {
        let entry = Entry::Message(Message::user(format!("message {n} of the fox"), 1_000 + n));
        nodes.push(put(store, nodes.last().copied(), &entry, 1_000 + n).await);
    }
    let moves = vec![RefMove::publish(RefName::session(&id), nodes[40], "test")];
    store.commit(Commit { moves, ..Commit::default() }).await.unwrap();
    nodes
}

/// What `read` gives of the session.
async fn page(server: GraphServer) -> String {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = split(theirs);
    let served = tokio::spawn(serve_stdio(server, reader, writer, CancellationToken::new()));
    let (answers, mut writer) = split(ours);
    let begin = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "read", "arguments": { "id": "s1" } },
    });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let mut lines = BufReader::new(answers).lines();
    writer.write_all(format!("{begin}\n").as_bytes()).await.unwrap();
    lines.next_line().await.unwrap().unwrap();
    writer.write_all(format!("{ready}\n{call}\n").as_bytes()).await.unwrap();
    let text = loop {
        let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        if line["id"] == 1 {
            break line["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        }
    };
    served.abort();
    text
}

#[tokio::test]
async fn page_goes_on_when_a_node_is_forgotten_meanwhile() {
    for reads in 1.. {
        let (store, list) = (Arc::new(SqliteStore::in_memory().unwrap()), Arc::<List>::default());
        store.hide(list.clone());
        let nodes = session(&store).await;
        *list.later.lock().unwrap() = Some((list.reads.load(Ordering::SeqCst) + reads, nodes[38]));
        let text = page(server_over(store, ScopeSetting::Directory, "/w")).await;
        let has_cursor = text.contains("call again with cursor") && text.contains("message 40 of the fox");
        assert!(has_cursor && text.contains("message 36 of the fox"), "{reads}: {text}");
        if list.later.lock().unwrap().is_some() {
            assert!(reads > 1);
            break;
        }
    }
}
