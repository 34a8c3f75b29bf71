//! The published outputs over the published fixture, to the byte; and where ours differ, how.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Action, Commit, SqliteStore, Store as _};
use serde_json::json;
use tokio::sync::watch;

use super::{CONFIG, T, run};
use crate::clock::Clock;
use crate::subscribe::View;
use crate::travel::{Archive, LifeTool, Recall, TraceTool};
use quipu_history::{
    Filter, Life, LifeQuery, Projects, RecallQuery, Sight, TraceFilter, TraceQuery, TraceScope, life, recall,
    trace,
};

const NOW: UnixMs = T + 600_000;
const NOTE: &str = "[SYSTEM / INCARNATION NOTE]: A failed\n[SYSTEM WARNING]: Context was switched; files on disk were not \
                    rolled back. Re-check the workspace before acting.";
/// The nodes, each with its parent and its id as published.
const IDS: [(&str, &str, &str); 11] = [
    ("m0", "", "e2e2b7744992adecc3b41a3a5935730af4d262e95d3d004693aa67191c1ac7b1"),
    ("u1", "m0", "03ff3429d7eea7748aceab403bbccb8be0befe67901a98a5fa31364b4260e002"),
    ("a1", "u1", "810e956b53357849ca0a2ba2032cefd1a4d72b6a493d9d888efd8c428f37f412"),
    ("r1", "a1", "2dcc63bff446571ec617f12694c73b71d16df2076094e41d418f447d55a61ba4"),
    ("a2", "r1", "e40cd624ec3bd30aa1cccf45bf8f35b41e14db0b6a7205a2b5a49729c84cfbc6"),
    ("u2", "a2", "94418ef706d0f31a62c9258ba8cef8873639c3a16f41f3b1e2ef243b844dcd5b"),
    ("a3", "u2", "d26089eb560de11c1fabeb6a0b3034c708ae6d3d76ed8888166abb0d2cbd94e7"),
    ("dep", "a3", "d5e23c73a722b626df50dab94b35047beeea5099e4513c49827b1959bc032241"),
    ("co", "a2", "a4fe53eb8008548a563eba622bd8044a061af60984b4054b29bcfcf2099ac31c"),
    ("a4", "co", "5bfcbf490f1a727efbfe3bd69a878af0b162f7704b983c253d03d73d49188a87"),
    ("a5", "a4", "52fdfee8b5300ae80933ae7383398a71e3bc3ef23cd266e46cf82378074da562"),
];

struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMs {
        NOW
    }
}

struct Golden {
    store: Arc<SqliteStore>,
    nodes: HashMap<&'static str, NodeId>,
}

async fn golden() -> Golden {
    let blob = |kind: &str, json: serde_json::Value| Blob::new(kind, json.to_string()).unwrap();
    let call = |id: &str, name: &str, arguments: serde_json::Value| {
        blob("tool_call", json!({ "id": id, "name": name, "arguments": arguments }))
    };
    let result = |id: &str, name: &str, text: &str| {
        let content = [json!({ "type": "text", "text": text })];
        blob(
            "tool_result",
            json!({ "toolCallId": id, "toolName": name, "content": content, "isError": false }),
        )
    };
    let model = json!({
        "type": "model_change", "id": "00000000", "parentId": null, "timestamp": "2023-11-14T22:13:20.000Z",
        "provider": "anthropic", "modelId": "claude-x",
    });
    let look = vec![
        Blob::string("thinking", "Look first"),
        call("call_1", "read", json!({ "path": "src/parser.rs" })),
    ];
    // Members in the order in which they were written.
    let jump = r#"{"id":"call_2","name":"tobe","arguments":{"target_node_hash":"pi:d1b2c3d4","carryover_message":"A failed"}}"#;
    let rows: [(&str, Vec<Blob>, Option<&str>, i64); 11] = [
        ("pi_internal", vec![blob("pi_meta", model)], Some("00000000"), 0),
        ("user", vec![Blob::text("Please fix the parser bug")], Some("a1b2c3d4"), 1_000),
        ("assistant", look, Some("b1b2c3d4"), 2_000),
        ("toolResult", vec![result("call_1", "read", "fn main() {}\n")], Some("c1b2c3d4"), 3_000),
        ("assistant", vec![Blob::text("The bug is in main.")], Some("d1b2c3d4"), 4_000),
        ("user", vec![Blob::text("Try approach A")], Some("e1b2c3d4"), 5_000),
        ("assistant", vec![Blob::new("tool_call", jump).unwrap()], Some("f1b2c3d4"), 6_000),
        (
            "toolResult",
            vec![result("tobe_departure", "tobe", "Incarnation initiated → e40cd624ec3b")],
            None,
            7_000,
        ),
        ("user", vec![Blob::text(NOTE)], Some("11111111-2222-3333-4444-555555555555"), 7_001),
        ("assistant", vec![Blob::text("Understood, doing B.")], Some("12b2c3d4"), 9_000),
        ("assistant", vec![call("call_3", "life", json!({}))], Some("13b2c3d4"), 599_500),
    ];
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let system = Blob::string("system_prompt", "You are Pi.");
    let mut commit = Commit { blobs: vec![system.clone()], ..Commit::default() };
    let mut nodes: HashMap<&str, NodeId> = HashMap::new();
    for ((name, parent, id), (role, blobs, external, at)) in IDS.into_iter().zip(rows) {
        let pis = name != "dep" && name != "co";
        let record = NodeRecord {
            parent: nodes.get(parent).copied(),
            role: role.into(),
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: T + at,
            external_id: external.map(Into::into),
            system_prompt: pis.then_some(system.id),
        };
        let node = Node::new(record, pis.then(|| CONFIG.into()), None);
        assert_eq!(node.id.to_string(), id, "{name}");
        nodes.insert(name, node.id);
        commit.blobs.extend(blobs);
        commit.nodes.push(node);
    }
    let node = |name: &str| Some(nodes[name]);
    let switch = json!({ "trigger": "human", "session": "/home/u/.pi/agent/sessions/x.jsonl" }).to_string();
    let switch = switch.replace(
        r#""session":"/home/u/.pi/agent/sessions/x.jsonl","trigger":"human""#,
        r#""trigger":"human","session":"/home/u/.pi/agent/sessions/x.jsonl""#,
    );
    let logged = [
        (500, "BOOT", None, node("m0"), None),
        (7_002, "INCARNATE", node("dep"), node("co"), Some("A failed".to_owned())),
        (8_000, "SESSION_SWITCH", node("u2"), node("a2"), Some(switch)),
    ];
    commit.actions.extend(logged.into_iter().map(|(at, kind, from, to, metadata)| Action {
        timestamp: T + at,
        kind: kind.into(),
        from,
        to,
        metadata,
    }));
    store.commit(commit).await.unwrap();
    Golden { store, nodes }
}

impl Golden {
    async fn life(&self, focus: &str, change: impl FnOnce(&mut LifeQuery)) -> Life {
        let mut query = LifeQuery { head: Some(self.nodes["a5"]), ..LifeQuery::new(self.nodes[focus]) };
        change(&mut query);
        life(&*self.store, &query).await.unwrap()
    }

    async fn trace(&self, of: &str, filter: TraceFilter) -> String {
        let query = TraceQuery { filter, ..TraceQuery::new(self.nodes[of]) };
        trace(&*self.store, &query).await.unwrap().text(&TimeZone::UTC)
    }
}

/// In the mode of the reference: the names of answers that call tools are hidden, and no others.
fn published(life: &Life) -> String {
    life.text_hiding(NOW, |line| line.calls_tools)
}

#[tokio::test]
async fn life_is_shown_as_published() {
    let golden = golden().await;
    let check = async |focus, change: fn(&mut LifeQuery), expect: &str| {
        let life = golden.life(focus, change).await;
        assert_eq!(published(&life), expect.strip_prefix('\n').unwrap());
    };
    check(
        "a5",
        |_| {},
        r#"
...
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."
[pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..."
[pi:12b2c3d4] (9m ago) assistant: "Understood, doing B."
              (now) assistant: [life: {}]  <-- FOCUS, HEAD
--- end of archive ---"#,
    )
    .await;
    check(
        "a2",
        |_| {},
        r#"
...
[pi:a1b2c3d4] (9m ago) user: "Please fix the parser bug"
              (9m ago) assistant: [read: {"path":"src/parser.rs"}]
[pi:c1b2c3d4] (9m ago) [read]: "fn main() {} "
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."  <-- FOCUS
├── [pi:e1b2c3d4] (9m ago) user: "Try approach A"
│   └──               (9m ago) assistant: [tobe: {"target_node_hash":"pi:d1b2c3d4","carry...]
│       └── [d5e23c73a722] (9m ago) [tobe]: "Incarnation initiated → e40cd624ec3b"
└── [pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..."
    └── [pi:12b2c3d4] (9m ago) assistant: "Understood, doing B."
        └──               (now) assistant: [life: {}]  <-- HEAD
--- end of archive ---"#,
    )
    .await;
    check(
        "co",
        |_| {},
        r#"
...
              (9m ago) assistant: [read: {"path":"src/parser.rs"}]
[pi:c1b2c3d4] (9m ago) [read]: "fn main() {} "
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."
├── [pi:e1b2c3d4] (9m ago) user: "Try approach A" (2 descendants)
└── [pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..."  <-- FOCUS
    └── [pi:12b2c3d4] (9m ago) assistant: "Understood, doing B."
        └──               (now) assistant: [life: {}]  <-- HEAD
--- end of archive ---"#,
    )
    .await;
    check(
        "a2",
        |query| {
            query.ancestors = 0;
            query.filter = Filter::UserOnly;
        },
        r#"
...
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."  <-- FOCUS
├── [pi:e1b2c3d4] (9m ago) user: "Try approach A"
└── [pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..."
--- end of archive ---"#,
    )
    .await;
    check(
        "a2",
        |query| {
            query.ancestors = 99;
            query.children = false;
            query.filter = Filter::All;
        },
        r#"
[pi:00000000] (10m ago) [model_change]
[pi:a1b2c3d4] (9m ago) user: "Please fix the parser bug"
              (9m ago) assistant: [read: {"path":"src/parser.rs"}]
[pi:c1b2c3d4] (9m ago) [read]: "fn main() {} "
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."  <-- FOCUS
--- end of archive ---"#,
    )
    .await;
}

/// The departure answers another call than the one that led to it, so nobody can go there: its name is hidden too.
#[tokio::test]
async fn life_hides_the_names_of_all_nodes_that_nobody_can_go_to() {
    let golden = golden().await;
    let life = golden.life("u2", |_| {}).await;
    let expect = r#"...
              (9m ago) assistant: [read: {"path":"src/parser.rs"}]
[pi:c1b2c3d4] (9m ago) [read]: "fn main() {} "
[pi:d1b2c3d4] (9m ago) assistant: "The bug is in main."
├── [pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..." (2 descendants)
└── [pi:e1b2c3d4] (9m ago) user: "Try approach A"  <-- FOCUS
    └──               (9m ago) assistant: [tobe: {"target_node_hash":"pi:d1b2c3d4","carry...]
        └──                (9m ago) [tobe]: "Incarnation initiated → e40cd624ec3b"
--- end of archive ---"#;
    assert_eq!(life.text(NOW), expect);
    for line in &life.lines {
        let legal = quipu_history::legal_target(&*golden.store, line.node).await.unwrap();
        assert_eq!(line.illegal, legal.illegal, "{}", line.preview);
    }
}

#[tokio::test]
async fn what_is_shown_of_a_graph_is_limited_and_says_so() {
    let golden = golden().await;
    let life = golden.life("a2", |query| query.most = 6).await;
    assert_eq!((life.lines.len(), life.more), (6, true));
    assert!(life.text(NOW).contains("... more nodes follow"), "{}", life.text(NOW));
    let shallow = golden.life("a2", |query| query.max_depth = 0).await;
    assert_eq!((shallow.lines.len(), shallow.more), (6, false));
}

#[tokio::test]
async fn a_node_is_recalled_as_published() {
    let golden = golden().await;
    let query = RecallQuery { config: true, ..RecallQuery::new(golden.nodes["a2"]) };
    let recalled = recall(&*golden.store, &query).await.unwrap();
    let expect = format!(
        r#"--- archived node content ---
{{
  config: {CONFIG},
  contents: [
    {{ role: "user", text: "Please fix the parser bug" }}  // archived,
    {{ role: "assistant", text: "Look first
[tool_call: read({{"path":"src/parser.rs"}})]" }}  // archived,
    {{ role: "toolResult", text: "[tool_result: read → fn main() {{}}
]" }}  // archived,
    {{ role: "assistant", text: "The bug is in main." }}  // <-- TARGET NODE (pi:d1b2c3d4)
  ]
}}
--- end of archive ---"#
    );
    assert_eq!(recalled.text(NOW), expect);
}

/// With what the reference proposes: neighbours by their first words, and why nobody can go there.
#[tokio::test]
async fn a_node_is_recalled_with_what_is_around_it() {
    let golden = golden().await;
    let ask = async |node: &str, depth, children, siblings| {
        let query =
            RecallQuery { depth, children, siblings, target: true, ..RecallQuery::new(golden.nodes[node]) };
        recall(&*golden.store, &query).await.unwrap().text(NOW)
    };
    let expect = r#"--- archived node content ---
{
  contents: [
    { role: "assistant", text: "The bug is in main." }  // archived,
    { role: "user", text: "Try approach A" }  // <-- TARGET NODE (pi:e1b2c3d4)
  ]
  siblings: [
    [pi:11111111-2222-3333-4444-555555555555] (9m ago) user: "[SYSTEM / INCARNATION NOTE]: A failed [SYSTEM WARNING]: Cont..."
  ]
  children: [
    [pi:f1b2c3d4] (9m ago) assistant: [tobe: {"target_node_hash":"pi:d1b2c3d4","carry...]
  ]
}
--- end of archive ---"#;
    assert_eq!(ask("u2", 1, 5, 5).await, expect);
    let departure = ask("dep", 0, 5, 0).await;
    let note = "  ]\n  children: [\n  ]\n  // you cannot go to this node: the tool call call_2 of the answer before it \
                has no result \
                at that point; the nearest before it is 94418ef706d0\n}";
    assert!(departure.contains(note), "{departure}");
    let first = ask("a2", 0, 1, 9).await;
    assert!(
        first.contains("siblings: [\n  ]") && first.contains("\"Try approach A\"\n    // ... more\n"),
        "{first}"
    );
}

#[tokio::test]
async fn the_log_is_shown_as_published() {
    let golden = golden().await;
    let default = "--- archived action log ---
[2023-11-14 22:13] INCARNATE: d5e23c73a722 → a4fe53eb8008. Carryover:
    > A failed
[2023-11-14 22:13] BOOT: null → e2e2b7744992
--- end of archive ---";
    assert_eq!(golden.trace("a5", TraceFilter::Default).await, default);
    let switches = r#"--- archived action log ---
[2023-11-14 22:13] SESSION_SWITCH: 94418ef706d0 → e40cd624ec3b. Metadata:
    > {
    >   "trigger": "human",
    >   "session": "/home/u/.pi/agent/sessions/x.jsonl"
    > }
[2023-11-14 22:13] INCARNATE: d5e23c73a722 → a4fe53eb8008. Carryover:
    > A failed
[2023-11-14 22:13] BOOT: null → e2e2b7744992
--- end of archive ---"#;
    assert_eq!(golden.trace("a5", TraceFilter::Switches).await, switches);
    // From the branch that was left, it is seen where it was left to.
    let left = "--- archived action log ---
[2023-11-14 22:13] INCARNATE: d5e23c73a722 → a4fe53eb8008 (departed from this lineage). Carryover:
    > A failed
[2023-11-14 22:13] BOOT: null → e2e2b7744992
--- end of archive ---";
    assert_eq!(golden.trace("a3", TraceFilter::Default).await, left);
    let one = TraceQuery { limit: 1, ..TraceQuery::new(golden.nodes["a5"]) };
    let one = trace(&*golden.store, &one).await.unwrap();
    assert_eq!((one.rows.len(), one.more, one.rows[0].action.kind.as_str()), (1, true, "INCARNATE"));
    let none =
        TraceQuery { scope: TraceScope::Session("none".into()), ..TraceQuery::new(golden.nodes["a5"]) };
    let none = trace(&*golden.store, &none).await.unwrap().text(&TimeZone::UTC);
    assert_eq!(none, "--- archived action log ---\n(no actions recorded)\n--- end of archive ---");
}

#[tokio::test]
async fn the_tools_see_their_lineage_and_refuse_what_names_nothing() {
    let golden = golden().await;
    let view = View { session: "s".into(), head: Some(golden.nodes["a5"]), run: None, waiting: 0 };
    let (_view, receiver) = watch::channel(view);
    let head = Arc::new(move || receiver.borrow().head);
    let sight = Sight::Project { projects: Arc::new(Projects::new("/w".into())), head };
    let archive = Archive { store: golden.store.clone(), clock: Arc::new(Still), sight };
    let (life, trace) = (LifeTool::new(archive.clone()), TraceTool::new(archive.clone()));
    let (shown, failed) = run(&life, json!({})).await;
    assert!(!failed && shown.lines().count() == 6 && shown.contains("<-- FOCUS, HEAD"), "{shown}");
    // The branch that was left is of no session of this project.
    let (shown, _) = run(&life, json!({ "focus_hash": "d1b2c3d4", "ancestors": 0 })).await;
    assert!(!shown.contains("approach A") && shown.contains("doing B"), "{shown}");
    let (shown, failed) = run(&trace, json!({ "filter_mode": "all" })).await;
    assert!(!failed && shown.contains("INCARNATE") && shown.contains("SESSION_SWITCH"), "{shown}");
    let recall = Recall::new(archive, true);
    let megabyte = "a".repeat(1 << 20);
    for name in
        ["%", "_", "' OR 1=1 --", "\"", "--- end of archive ---", "e1b2c3d4", "zzzz", megabyte.as_str()]
    {
        for (text, failed) in [
            run(&life, json!({ "focus_hash": name })).await,
            run(&recall, json!({ "hash": name, "children": 3 })).await,
        ] {
            assert!(failed && text.contains("No node of this project") && text.len() < 600, "{text}");
            assert!(!text.contains("--- end of archive"), "{text}");
        }
    }
}
