//! The rule over lineages of every shape, in a store.

use std::sync::Arc;

use proptest::prelude::*;
use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{
    AssistantMessage, CallId, Content, Entry, Json, Message, NodeId, StepInfo, StopReason, ToolCall,
    ToolResultMessage,
};
use quipu_store::{Commit, SqliteStore, Store as _, decode_nodes};
use quipu_transcript::{INTERNAL, encode, project_messages};
use serde_json::json;

use super::{IllegalTarget, legal_target};

const T: i64 = 1_700_000_000_000;

/// One node of a generated lineage.
#[derive(Debug, Clone)]
enum Kind {
    User,
    /// Calls with these ids, in a node of ours.
    Answer(Vec<u8>),
    /// The same in a node of a program that names things otherwise.
    Foreign(Vec<u8>),
    Dropped(Vec<u8>),
    Silent,
    Result(u8),
    ForeignResult(u8),
    Internal,
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let ids = || prop::collection::vec(0_u8..4, 0..4);
    let one = prop_oneof![
        2 => Just(Kind::User),
        3 => ids().prop_map(Kind::Answer),
        1 => ids().prop_map(Kind::Foreign),
        1 => ids().prop_map(Kind::Dropped),
        1 => Just(Kind::Silent),
        6 => (0_u8..4).prop_map(Kind::Result),
        1 => (0_u8..4).prop_map(Kind::ForeignResult),
        1 => Just(Kind::Internal),
    ];
    prop::collection::vec(one, 1..24)
}

fn call(id: u8) -> CallId {
    format!("call_{id}").as_str().into()
}

fn answer(ids: &[u8], text: &str, stop_reason: StopReason) -> Entry {
    let calls = ids.iter().map(|id| {
        let arguments = Json::object();
        Content::ToolCall(ToolCall {
            id: call(*id),
            name: "read".into(),
            arguments,
            thought_signature: None,
            namespace: None,
        })
    });
    let content = (!text.is_empty()).then(|| Content::text(text)).into_iter().chain(calls).collect();
    Entry::Message(Message::Assistant(AssistantMessage {
        content,
        stop_reason,
        ..AssistantMessage::default()
    }))
}

fn result(id: u8) -> Entry {
    Entry::Message(Message::ToolResult(ToolResultMessage {
        tool_call_id: call(id),
        tool_name: "read".into(),
        content: vec![Content::text("found")],
        details: None,
        usage: None,
        is_error: false,
        timestamp: 0,
    }))
}

fn blob(kind: &str, json: &serde_json::Value) -> Blob {
    Blob::new(kind, json.to_string()).unwrap()
}

impl Kind {
    /// The role and the parts that it is written with.
    fn written(&self) -> (String, Vec<Blob>) {
        let ours = |entry: &Entry| {
            let encoded = encode(entry, &StepInfo::default());
            (encoded.role, encoded.blobs)
        };
        match self {
            Self::User => ours(&Entry::Message(Message::user("go on", 1))),
            Self::Answer(ids) => ours(&answer(ids, "so", StopReason::ToolUse)),
            Self::Dropped(ids) => ours(&answer(ids, "no", StopReason::Aborted)),
            Self::Silent => ours(&answer(&[], "", StopReason::Stop)),
            Self::Result(id) => ours(&result(*id)),
            Self::Internal => {
                (INTERNAL.into(), vec![blob("pi_meta", &json!({ "type": "session_info", "name": "n" }))])
            }
            Self::Foreign(ids) => {
                let calls = ids.iter().map(|id| {
                    blob("function", &json!({ "id": call(*id), "name": "read", "args": { "path": "a" } }))
                });
                ("model".into(), [Blob::string("words", "so")].into_iter().chain(calls).collect())
            }
            Self::ForeignResult(id) => {
                let result = json!({ "toolCallId": call(*id), "toolName": "read", "content": "found" });
                ("function".into(), vec![blob("tool_result", &result)])
            }
        }
    }
}

/// A lineage of these nodes in a store, the root first.
async fn lineage(kinds: &[Kind]) -> (SqliteStore, Vec<Node>) {
    let store = SqliteStore::in_memory().unwrap();
    let mut commit = Commit::default();
    for (at, kind) in kinds.iter().enumerate() {
        let (role, blobs) = kind.written();
        let record = NodeRecord {
            parent: commit.nodes.last().map(|node: &Node| node.id),
            role,
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: T + i64::try_from(at).unwrap(),
            external_id: None,
            system_prompt: None,
        };
        commit.nodes.push(Node::new(record, None, None));
        commit.blobs.extend(blobs);
    }
    let nodes = commit.nodes.clone();
    store.commit(commit).await.unwrap();
    (store, nodes)
}

/// The rule in other words, over the whole lineage: of the last answer that counts, each id has as many results as
/// calls, up to an answer that does not count.
fn is_whole(kinds: &[Kind]) -> bool {
    let last = kinds.iter().rposition(|kind| matches!(kind, Kind::Answer(_) | Kind::Foreign(_)));
    let Some(last) = last else { return true };
    let (Kind::Answer(ids) | Kind::Foreign(ids)) = &kinds[last] else { unreachable!() };
    let over = |kind: &Kind| matches!(kind, Kind::Dropped(_) | Kind::Silent);
    let results = || kinds[last..].iter().take_while(|kind| !over(kind));
    ids.iter().all(|id| {
        let called = ids.iter().filter(|other| *other == id).count();
        called
            == results()
                .filter(|kind| matches!(kind, Kind::Result(of) | Kind::ForeignResult(of) if of == id))
                .count()
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn a_target_is_legal_where_its_turn_is_whole(kinds in kinds()) {
        block_on(async {
            let (store, nodes) = lineage(&kinds).await;
            let decoded = decode_nodes(&store, &nodes).await.unwrap();
            let mut nearest = None;
            for (at, node) in nodes.iter().enumerate() {
                let legal = legal_target(&store, node.id).await.unwrap();
                prop_assert_eq!(legal.illegal.is_none(), is_whole(&kinds[..=at]), "{:?}: {:?}", &kinds[..=at], legal);
                if legal.illegal.is_none() {
                    nearest = Some(node.id);
                }
                prop_assert_eq!(legal.nearest, nearest, "{:?}", &kinds[..=at]);
                // A model is shown no result that we made up for the last answer.
                let messages: Vec<Arc<Message>> = decoded[..=at]
                    .iter()
                    .filter_map(|one| match &one.entry {
                        Entry::Message(message) => Some(Arc::new(message.clone())),
                        _ => None,
                    })
                    .collect();
                let shown = project_messages(messages);
                let made_up = shown.iter().rev().map_while(|message| match &**message {
                    Message::Assistant(_) => None,
                    Message::ToolResult(result) => Some(result.content != [Content::text("found")]),
                    _ => Some(false),
                });
                prop_assert!(legal.illegal.is_some() || !made_up.collect::<Vec<_>>().contains(&true), "{:?}", shown);
            }
            Ok(())
        })?;
    }
}

#[test]
fn illegal_target_names_the_problem() {
    let check = |kinds: &[Kind], expect: &str| {
        block_on(async {
            let (store, nodes) = lineage(kinds).await;
            let legal = legal_target(&store, nodes.last().unwrap().id).await.unwrap();
            assert_eq!(
                legal.illegal.map_or_else(|| "legal".to_owned(), |illegal| illegal.to_string()),
                expect
            );
        });
    };
    let batch = Kind::Answer(vec![1, 2]);
    let unanswered = "the tool call call_2 of the answer before it has no result at that point";
    check(&[Kind::User, batch.clone(), Kind::Result(1)], unanswered);
    check(&[batch.clone(), Kind::Result(1), Kind::User, Kind::Internal], unanswered);
    check(&[batch.clone(), Kind::Result(1), Kind::Result(2), Kind::User], "legal");
    check(
        &[batch.clone(), Kind::Result(3)],
        "each of 2 tool calls of the answer before it has no result at that point",
    );
    let twice = "the tool call call_1 of the answer before it has more than one result at that point";
    check(&[batch.clone(), Kind::Result(1), Kind::Result(2), Kind::Result(1)], twice);
    check(&[batch.clone(), Kind::Answer(vec![])], "legal");
    // An answer that was cut off is not shown to the model, and neither are its calls.
    check(&[Kind::User, Kind::Dropped(vec![1]), Kind::User], "legal");
}

#[tokio::test]
async fn a_long_way_without_an_answer_is_not_walked_for_ever() {
    let (store, nodes) = lineage(&vec![Kind::User; 6_000]).await;
    let check = async |at: usize| legal_target(&store, nodes[at].id).await.unwrap().illegal;
    assert_eq!(check(4_000).await, None);
    assert!(matches!(check(5_999).await, Some(IllegalTarget::Far(4_096..))), "{:?}", check(5_999).await);
    let nobody = legal_target(&store, NodeId([7; 32])).await;
    assert!(matches!(nobody, Err(quipu_store::StoreError::Missing { .. })), "{nobody:?}");
}
