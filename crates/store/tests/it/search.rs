//! What is found, and that nothing but a search makes anybody wait for it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{Entry, Json, Message, NodeId, SessionId};
use quipu_store::{
    Commit, Graph, INDEXED_WORDS, IndexBacklog, MatchKind, MatchMode, OpenOptions, Order, ProblemKind,
    QUERY_LIMIT, ReadModel as _, SearchHits, SearchIndex, SearchQuery, SessionQuery, Speaker, SqliteStore,
    Store as _, StoreError, Upkeep,
};
use rusqlite::Connection;

use crate::support::*;

fn words(words: &str) -> SearchQuery {
    SearchQuery { words: words.to_owned(), limit: 20, ..SearchQuery::default() }
}

fn whole(text: &str) -> SearchQuery {
    SearchQuery { matching: MatchMode::Words, ..words(text) }
}

fn part(text: &str) -> SearchQuery {
    SearchQuery { matching: MatchMode::Substrings, ..words(text) }
}

/// The excerpts with their marks, in order.
fn shown(found: &SearchHits) -> Vec<String> {
    let mark = |hit: &quipu_store::Hit| {
        let mut text = hit.excerpt.text.clone();
        for mark in hit.excerpt.marks.iter().rev() {
            text.insert(mark.end, ']');
            text.insert(mark.start, '[');
        }
        text
    };
    found.hits.iter().map(mark).collect()
}

async fn check(store: &dyn Graph, query: SearchQuery, expect: &[&str]) {
    let found = store.search(query.clone()).await.unwrap();
    assert_eq!(shown(&found), expect, "{query:?}");
    assert_eq!((found.behind, found.cut), (IndexBacklog::default(), false), "{query:?}");
}

#[tokio::test]
async fn reader_leaves_indexing_to_searches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let asked = OpenOptions { search_index: SearchIndex::Asked, ..options() };
    let store = SqliteStore::open(&path, &asked).unwrap();
    let (_, commit) = entry_commit(None, &user("a lantern", T), T);
    store.commit(commit).await.unwrap();
    drop(store);
    let derived = || -> i64 {
        let count = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'quipu_x_%'";
        Connection::open(&path).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
    };
    let before = derived();
    let store = SqliteStore::open(&path, &asked).unwrap();
    store.sessions(SessionQuery::default()).await.unwrap();
    drop(store);
    assert_eq!(derived(), before);
    let store = SqliteStore::open(&path, &asked).unwrap();
    check(&store, whole("lantern"), &["a [lantern]"]).await;
    assert!(derived() > before);
}

/// An answer as another program writes it: one blob for each part.
async fn foreign(store: &dyn Graph, parent: NodeId, role: &str, parts: &[(&str, &str)], at: i64) -> NodeId {
    let blobs: Vec<Blob> = parts.iter().map(|(kind, content)| Blob::new(*kind, *content).unwrap()).collect();
    let record = NodeRecord {
        parent: Some(parent),
        role: role.to_owned(),
        parts: blobs.iter().map(|blob| blob.id).collect(),
        timestamp: at,
        external_id: None,
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let id = node.id;
    store.commit(Commit { blobs, nodes: vec![node], ..Commit::default() }).await.unwrap();
    id
}

/// Two sessions in two directories.
struct SampleSessions {
    one: NodeId,
    side: NodeId,
    main: NodeId,
}

async fn fill(store: &dyn Graph) -> SampleSessions {
    let put = async |parent, entry: &Entry, at| {
        let (id, commit) = entry_commit(parent, entry, at);
        store.commit(commit).await.unwrap();
        id
    };
    let one = SessionId::from("one");
    let start = put(None, &session_start(&one, "/w/app", None), T).await;
    let asked =
        put(Some(start), &user("Fix the red button in the café, see src/store/api.rs", T + 1), T + 1).await;
    let call = foreign(
        store,
        asked,
        "assistant",
        &[
            ("text", r#""I read it.\n```rust\nfn get_user_name() -> String\n```\nDone.""#),
            ("tool_call", r#"{"id":"c1","name":"read","arguments":{"path":"src/store/api.rs","limit":3}}"#),
            ("tool_call", r#"{"id":"c2","name":"bash","arguments":{"command":"cargo test -p quipu-store"}}"#),
        ],
        T + 2,
    )
    .await;
    let result = |id: &str, tool: &str, text: &str| {
        format!(
            r#"{{"toolCallId":"{id}","toolName":"{tool}","content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#
        )
    };
    let first = foreign(
        store,
        call,
        "toolResult",
        &[("tool_result", &result("c1", "read", "the trait with red edges"))],
        T + 3,
    )
    .await;
    let main =
        foreign(store, first, "toolResult", &[("tool_result", &result("c2", "bash", "12 passed"))], T + 4)
            .await;
    let side = put(Some(first), &user("no, the blue button", T + 5), T + 5).await;
    let two = SessionId::from("two");
    let other = put(None, &session_start(&two, "/w/other", None), T + 6).await;
    put(Some(other), &user("全文検索 of a red fox", T + 7), T + 7).await;
    SampleSessions { one: asked, side, main }
}

async fn conform(store: &dyn Graph) {
    let SampleSessions { one, side, main } = fill(store).await;
    let button = "Fix the [red] [button] in the café, see src/store/api.rs";
    check(store, whole("button RED"), &[button]).await;
    check(store, whole("\"red button\""), &["Fix the [red button] in the café, see src/store/api.rs"]).await;
    check(store, whole("\"button red\""), &[]).await;
    check(store, whole("cafe"), &["Fix the red button in the [café], see src/store/api.rs"]).await;
    // Newest first, in messages, results and calls.
    let red = [
        "全文検索 of a [red] fox",
        "the trait with [red] edges",
        "Fix the [red] button in the café, see src/store/api.rs",
    ];
    check(store, whole("red"), &red).await;
    check(store, SearchQuery { limit: 1, ..whole("red") }, &red[..1]).await;
    check(store, SearchQuery { per_session: Some(1), ..whole("red") }, &red[..2]).await;
    check(store, whole("検索"), &["全文[検索] of a red fox"]).await;
    check(store, whole("rust cargo"), &["I read it. ```[rust] fn get_user_name() -> String ``` Done. read src/store/api.rs bash [cargo] test -p quipu-store"]).await;
    check(store, whole("nothing-of-the-kind"), &[]).await;
    check(store, whole("->"), &[]).await;
    check(store, whole(""), &[]).await;
    // Parts: of code, arguments and paths, not of messages.
    check(
        store,
        part("t_user_n"),
        &["fn ge[t_user_n]ame() -> String src/store/api.rs cargo test -p quipu-store"],
    )
    .await;
    check(
        store,
        part("-> string"),
        &["fn get_user_name() [->] [String] src/store/api.rs cargo test -p quipu-store"],
    )
    .await;
    check(
        store,
        part("\"-> string\""),
        &["fn get_user_name() [-> String] src/store/api.rs cargo test -p quipu-store"],
    )
    .await;
    check(
        store,
        part("STORE/API"),
        &["fn get_user_name() -> String src/[store/api].rs cargo test -p quipu-store"],
    )
    .await;
    check(store, part("utto"), &[]).await;
    // Both: parts where there are not enough words.
    let both = store.search(words("ser_nam")).await.unwrap();
    assert_eq!(both.hits.iter().map(|hit| hit.by).collect::<Vec<_>>(), [MatchKind::Substring]);
    let short = store.search(part("u8")).await.unwrap();
    assert_eq!((short.hits.len(), short.too_short), (0, vec!["u8".to_owned()]));
    // Conditions.
    let fox = "全文検索 of a [red] fox";
    check(store, SearchQuery { project: Some("/w/other".into()), ..whole("red") }, &[fox]).await;
    // The call and the result of a tool that is left out; without anything else to go by, nothing is found.
    let without = |tools: &[&str], query| SearchQuery {
        without_tools: tools.iter().map(ToString::to_string).collect(),
        ..query
    };
    check(store, without(&["read"], whole("red")), &[red[0], red[2]]).await;
    check(store, without(&["other"], whole("red")), &red).await;
    check(store, without(&["bash", "read"], part("t_user_n")), &[]).await;
    check(store, without(&["read"], SearchQuery { project: Some("/w".into()), ..part("t_user_n") }), &[])
        .await;
    let standing = |query| SearchQuery { sessions: quipu_store::Sessions::Standing, ..query };
    check(store, standing(whole("red")), &[]).await;
    check(store, SearchQuery { project: Some("/w".into()), ..whole("red") }, &red).await;
    check(store, SearchQuery { project: Some("/".into()), ..whole("red") }, &red).await;
    check(store, SearchQuery { project: Some("/w/o".into()), ..whole("red") }, &[]).await;
    check(store, SearchQuery { agent: Some("quipu".into()), ..whole("fox") }, &["全文検索 of a red [fox]"])
        .await;
    check(store, SearchQuery { agent: Some("pi".into()), ..whole("fox") }, &[]).await;
    check(store, SearchQuery { speakers: vec![Speaker::Tool], ..whole("red") }, &red[1..2]).await;
    check(store, SearchQuery { tool: Some("bash".into()), ..whole("passed") }, &["12 [passed]"]).await;
    check(store, SearchQuery { tool: Some("read".into()), ..whole("passed") }, &[]).await;
    let calls = SearchQuery { tool: Some("bash".into()), ..part("get_user") };
    assert_eq!(store.search(calls).await.unwrap().hits.len(), 1);
    check(store, SearchQuery { tool: Some("grep".into()), ..part("get_user") }, &[]).await;
    check(store, SearchQuery { since: Some(T + 7), ..whole("red") }, &red[..1]).await;
    check(store, SearchQuery { file: Some("store/api.rs".into()), ..whole("red") }, &red[1..2]).await;
    check(store, SearchQuery { file: Some("store/api.r".into()), ..whole("red") }, &[]).await;
    check(store, SearchQuery { file: Some("//".into()), ..whole("red") }, &[]).await;
    assert_eq!(
        store.search(SearchQuery { file: Some("api.rs".into()), ..words("") }).await.unwrap().hits.len(),
        2
    );
    check(
        store,
        SearchQuery { branch: Some(side), ..whole("button") },
        &["no, the blue [button]", "Fix the red [button] in the café, see src/store/api.rs"],
    )
    .await;
    check(
        store,
        SearchQuery { branch: Some(main), ..whole("button") },
        &["Fix the red [button] in the café, see src/store/api.rs"],
    )
    .await;
    check(store, SearchQuery { branch: Some(NodeId([9; 32])), ..whole("button") }, &[]).await;
    // What says most about it.
    let best = store.search(SearchQuery { order: Order::Best, ..whole("red") }).await.unwrap();
    assert_eq!(best.hits.len(), 3);
    assert!(best.hits.iter().all(|hit| hit.score.is_some_and(|score| score > 0.0)));
    assert_eq!(best.hits[2].node, one, "the longest text says least");
    let hit = &store.search(whole("passed")).await.unwrap().hits[0];
    assert_eq!(
        (hit.node, hit.at, hit.role.as_str(), hit.tool.as_deref()),
        (main, T + 4, "toolResult", Some("bash"))
    );
    assert_eq!(hit.session, Some("one".into()));
    let long = words(&"x".repeat(QUERY_LIMIT + 1));
    assert!(matches!(store.search(long).await, Err(StoreError::TooLarge { .. })));
}

#[tokio::test]
async fn in_memory() {
    let store = SqliteStore::in_memory().unwrap();
    assert_eq!(store.search(words("red")).await.unwrap(), SearchHits::default());
    conform(&store).await;
    store.rebuild().await.unwrap();
    assert_eq!(store.search(whole("red")).await.unwrap().hits.len(), 3);
}

#[tokio::test]
async fn in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    conform(&store).await;
    let before = store.search(words("button")).await.unwrap();
    store.rebuild().await.unwrap();
    assert_eq!(store.search(words("button")).await.unwrap(), before);
    assert_eq!(store.check().await.unwrap().problems, []);
    drop(store);
    // From a file that cannot be written, what is indexed is found as well.
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(open(&path).search(words("button")).await.unwrap(), before);
}

/// No character of a search has a meaning of its own, and none makes it fail.
#[tokio::test]
async fn hostile_words() {
    let store = SqliteStore::in_memory().unwrap();
    fill(&store).await;
    for text in [
        "\"",
        "\"\"",
        "'",
        "*",
        "red*",
        "^red",
        "-red",
        "+red",
        "NOT red",
        "red OR fox",
        "red NEAR fox",
        "NEAR(red fox)",
        "text:red",
        "about : red",
        "{text} : red",
        "(red",
        "red)",
        "\\",
        "\u{0}",
        "red\u{0}fox",
        "\u{fffd}",
        "\u{202e}red",
        "; DROP TABLE nodes; --",
        "%",
        "_",
        "?1",
        ":zq",
        "🦊",
        "\u{301}",
        "\"red",
        "a\"b\"c",
    ] {
        for matching in [MatchMode::Any, MatchMode::Words, MatchMode::Substrings] {
            let query = SearchQuery { matching, file: Some(text.to_owned()), ..words(text) };
            assert!(store.search(query).await.is_ok(), "{text:?}");
            let query = SearchQuery { matching, order: Order::Best, ..words(text) };
            let found = store.search(query).await.unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert!(text.contains("red") || found.hits.is_empty(), "{text:?}");
        }
    }
    // A word of the language is a word.
    assert_eq!(store.search(whole("red OR fox")).await.unwrap().hits.len(), 0);
}

/// Long and odd content: found as far as it is indexed, and nothing stops the index.
#[tokio::test]
async fn hostile_content() {
    let store = SqliteStore::in_memory().unwrap();
    let (root, commit) = text_commit(None, "root", T);
    store.commit(commit).await.unwrap();
    let long = format!("early {} late", "filler ".repeat(INDEXED_WORDS / 7));
    let huge = format!("begin {} end", "0123456789 ".repeat(400_000));
    let encoded = format!("before {} after", "QUJD".repeat(5_000));
    let lone = "\"lone \\ud800 surrogate\"";
    let text = |text: &str| serde_json::to_string(text).unwrap();
    let deep = format!("{}\"deep\"{}", "[".repeat(1_500), "]".repeat(1_500));
    for (n, (kind, content)) in [
        ("text", text(&long)),
        ("text", text(&huge)),
        ("text", text(&encoded)),
        ("text", lone.to_owned()),
        ("text", "{\"odd\":{\"text\":\"shape\"}}".to_owned()),
        ("tool_call", "17".to_owned()),
        ("tool_call", format!("{{\"arguments\":{deep}}}")),
        ("tool_result", "null".to_owned()),
        (
            "pi_meta",
            "{\"type\":\"message\",\"message\":{\"content\":[{\"text\":\"kept whole\"}]}}".to_owned(),
        ),
        ("something new", "{\"text\":\"unknown kind\"}".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        foreign(&store, root, "user", &[(kind, &content)], T + 1 + n as i64).await;
    }
    let count = async |query| store.search(query).await.unwrap().hits.len();
    for (text, hits) in [
        ("early", 1),
        ("late", 0),
        ("begin", 1),
        ("end", 0),
        ("before after", 1),
        ("lone surrogate", 1),
        ("shape", 1),
        ("kept whole", 1),
        ("unknown kind", 1),
    ] {
        assert_eq!(count(whole(text)).await, hits, "{text}");
    }
    assert_eq!(count(part("QUJDQUJD")).await, 0, "encoded data is left out");
    assert_eq!(count(part("deep")).await, 1);
}

#[tokio::test]
async fn foreign_nodes_are_found_by_agent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let (root, commit) = text_commit(None, "root", T);
    store.commit(commit).await.unwrap();
    // A child before its parent, as merged files have them.
    let session = SessionId::from("late");
    let (start, start_commit) = entry_commit(None, &session_start(&session, "/late", None), T);
    let (node, blob) = text_node(Some(start), "user", "an early bird", T + 1);
    let (plain, plain_blob) = text_node(Some(root), "user", "foreign words", T + 2);
    let bare = Connection::open(&path).unwrap();
    let put = |node: &Node, blobs: &[Blob]| {
        for blob in blobs {
            bare.execute(
                "INSERT INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
                [blob.id.to_string(), blob.kind.clone(), blob.content.clone()],
            )
            .unwrap();
        }
        bare.execute(
            "INSERT INTO nodes (id, parent_id, role, parts_list, timestamp) VALUES (?1, ?2, ?3, ?4, ?5)",
            rusqlite::params![
                node.id.to_string(),
                node.record.parent.map(|id| id.to_string()),
                node.record.role,
                quipu_dag::write_parts_list(&node.record.parts),
                node.record.timestamp
            ],
        )
        .unwrap();
    };
    put(&node, &[blob]);
    put(&plain, &[plain_blob]);
    assert_eq!(store.search(whole("foreign")).await.unwrap().hits[0].node, plain.id);
    let here = |text| SearchQuery { project: Some("/late".into()), ..whole(text) };
    let orphan = store.search(whole("bird")).await.unwrap();
    assert_eq!((orphan.hits[0].node, orphan.hits[0].session.clone()), (node.id, None));
    assert_eq!(store.search(here("bird")).await.unwrap().hits.len(), 0);
    store.commit(start_commit).await.unwrap();
    assert_eq!(store.search(here("bird")).await.unwrap().hits[0].session, Some(session));
    // A program that gives its rows other numbers: what is not so any more is not told.
    bare.execute_batch("UPDATE nodes SET rowid = rowid + 100").unwrap();
    assert_eq!(store.search(here("foreign")).await.unwrap().hits.len(), 0);
    store.rebuild().await.unwrap();
    assert_eq!(store.search(whole("foreign")).await.unwrap().hits[0].node, plain.id);
}

/// Nobody searches: the index follows by itself.
#[tokio::test]
async fn index_follows_commits_when_idle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let (_, commit) = text_commit(None, "quiet words", T);
    store.commit(commit).await.unwrap();
    let reader = Connection::open(&path).unwrap();
    let indexed = || -> rusqlite::Result<i64> {
        reader.query_row("SELECT min(seq) FROM quipu_x_search", [], |row| row.get(0))
    };
    while indexed().unwrap_or(0) == 0 {
        // Reads are no reason to index, and do not keep the writer from its rest.
        store.nodes(&[]).await.unwrap();
    }
    let found: i64 = reader
        .query_row("SELECT rowid FROM quipu_x_words WHERE quipu_x_words MATCH 'quiet'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(found, 1);
}

/// What nodes say is read many nodes at once: one text in several nodes, long ones, and those of one answer are all there.
#[tokio::test]
async fn prefetched_texts_are_indexed_for_each_node() {
    let dir = tempfile::tempdir().unwrap();
    let asked = OpenOptions { search_index: SearchIndex::Asked, ..options() };
    let store = SqliteStore::open(&dir.path().join("quipu.db"), &asked).unwrap();
    let nodes: usize = 400;
    let mut batch = Commit::default();
    let mut parent = None;
    for n in 0..nodes {
        let mut texts = vec![format!("word{n}")];
        match n % 40 {
            3 => texts.push("fellow\n```\nlet fel_low = 1;\n```".to_owned()),
            7 => texts.push(format!("{} end{n}", "filler ".repeat(12_000))),
            _ => {}
        }
        let blobs: Vec<Blob> = texts.iter().map(|text| Blob::text(text)).collect();
        let record = NodeRecord {
            parent,
            role: "user".to_owned(),
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: T + n as i64,
            external_id: None,
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        parent = Some(node.id);
        batch.blobs.extend(blobs);
        batch.nodes.push(node);
    }
    let ids: Vec<NodeId> = batch.nodes.iter().map(|node| node.id).collect();
    store.commit(batch).await.unwrap();
    while store.index().await.unwrap() != IndexBacklog::default() {}
    let found = async |query: SearchQuery| -> Vec<NodeId> {
        let found = store.search(SearchQuery { limit: nodes, ..query }).await.unwrap();
        found.hits.iter().map(|hit| hit.node).collect()
    };
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(found(whole(&format!("word{n}"))).await, [*id], "{n}");
    }
    let every_40th = |from: usize| -> Vec<NodeId> { ids[from..].iter().step_by(40).rev().copied().collect() };
    assert_eq!(found(whole("fellow")).await, every_40th(3));
    assert_eq!(found(part("l_lo")).await, every_40th(3));
    assert_eq!(found(whole("filler")).await, every_40th(7));
    assert_eq!(found(whole("end47")).await, [ids[47]]);
}

/// A derived table that is damaged is made anew, and no commit fails for it.
#[tokio::test]
async fn damaged_index_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    fill(&store).await;
    assert_eq!(store.search(whole("red")).await.unwrap().hits.len(), 3);
    let bare = Connection::open(&path).unwrap();
    bare.execute_batch("DELETE FROM quipu_x_words_data WHERE id > 10").unwrap();
    let report = store.check().await.unwrap();
    assert!(report.problem_count > 0, "the damage is seen");
    assert!(report.problems.iter().all(|problem| problem.kind == ProblemKind::Derived), "{report:?}");
    drop(store);
    bare.execute_batch("UPDATE quipu_x_words_data SET block = x'00ff00ff' WHERE id > 1").unwrap();
    drop(bare);
    let store = open(&path);
    let (_, commit) = text_commit(None, "red after the damage", T + 50);
    store.commit(commit).await.unwrap();
    store.rebuild().await.unwrap();
    assert_eq!(store.search(whole("red")).await.unwrap().hits.len(), 4);
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Killed while it indexes, many times: whatever is there in the end is found, once.
#[tokio::test]
async fn index_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let mut kept = 0;
    for _ in 0..4 {
        let mut child =
            crate::child::command("search until killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("kept ") {
                kept = number.parse::<i64>().unwrap();
                if kept % 30 == 29 {
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let store = open(&path);
    assert!(kept > 80, "{kept}");
    for n in 0..=kept {
        let found = store.search(whole(&format!("word{n}"))).await.unwrap();
        assert_eq!((found.hits.len(), found.behind), (1, IndexBacklog::default()), "{n}");
    }
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Commits and searches without end, for `index_survives_a_kill`.
pub(crate) async fn until_killed(path: &std::path::Path) {
    use std::io::Write as _;
    let store = open(path);
    let mut out = std::io::stdout();
    writeln!(out).unwrap();
    let mut first = 0;
    while store.search(whole(&format!("word{first}"))).await.unwrap().hits.len() == 1 {
        first += 1;
    }
    for n in first.. {
        let (_, commit) = text_commit(None, &format!("word{n} {}", "and more ".repeat(200)), T + n);
        store.commit(commit).await.unwrap();
        writeln!(out, "kept {n}").unwrap();
        out.flush().unwrap();
        store.index().await.unwrap();
    }
}

/// Entries of ours: the summary of a compaction and what is in custom entries.
#[tokio::test]
async fn own_entries_are_found_by_their_text() {
    let store = SqliteStore::in_memory().unwrap();
    let session = SessionId::from("ours");
    let (start, commit) = entry_commit(None, &session_start(&session, "/w", None), T);
    store.commit(commit).await.unwrap();
    let meta = Json::parse("{\"type\":\"label\",\"id\":\"hidden\",\"label\":\"a landmark\"}").unwrap();
    let bash: Message = serde_json::from_str(
        "{\"role\":\"bashExecution\",\"command\":\"make pies\",\"output\":\"baked\",\"exitCode\":0,\"cancelled\":false,\"truncated\":false,\"timestamp\":1}",
    )
    .unwrap();
    for (n, entry) in [Entry::Meta(meta), Entry::Message(bash)].into_iter().enumerate() {
        let (_, commit) = entry_commit(Some(start), &entry, T + 1 + n as i64);
        store.commit(commit).await.unwrap();
    }
    for (text, hits) in [("landmark", 1), ("pies baked", 1), ("hidden", 0)] {
        assert_eq!(store.search(whole(text)).await.unwrap().hits.len(), hits, "{text}");
    }
}

/// A reader that looked at the index before knows an older form of it.
#[tokio::test]
async fn repeated_check_sees_the_present_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let session: SessionId = "s".into();
    let mut head = None;
    for round in 0..12 {
        for n in 0..20 {
            let text = format!("round {round} step {n} {}", "words that are many ".repeat(20));
            let (next, commit) = step(&session, head, &text, T + round * 100 + n);
            store.commit(commit).await.unwrap();
            head = Some(next);
            store.index().await.unwrap();
        }
        assert_eq!(store.check().await.unwrap().problems, [], "round {round}");
    }
}

/// Everything that is derived: the plain tables as they are, of the indexes each word with its places.
fn derived(path: &std::path::Path) -> Vec<String> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let connection = Connection::open(path).unwrap();
    let tables: Vec<String> = connection
        .prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'quipu_x_%' ORDER BY name",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let inner = |name: &str| ["quipu_x_words", "quipu_x_parts"].iter().any(|index| name.starts_with(index));
    let mut queries: Vec<(String, String)> = tables
        .iter()
        .filter(|name| !inner(name))
        .map(|name| (name.clone(), format!("SELECT * FROM {name}")))
        .collect();
    assert!(queries.len() > 8, "{tables:?}");
    for index in ["quipu_x_words", "quipu_x_parts"] {
        let vocabulary =
            format!("CREATE VIRTUAL TABLE temp.v_{index} USING fts5vocab(main, {index}, instance)");
        connection.execute_batch(&vocabulary).unwrap();
        queries.push((index.to_owned(), format!("SELECT * FROM temp.v_{index}")));
    }
    let mut dump = Vec::new();
    for (name, query) in queries {
        let mut statement = connection.prepare(&query).unwrap();
        let columns = statement.column_count();
        let mut rows: Vec<u64> = statement
            .query_map([], |row| {
                let mut hasher = DefaultHasher::new();
                for column in 0..columns {
                    format!("{:?}", row.get_ref(column)?).hash(&mut hasher);
                }
                Ok(hasher.finish())
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        rows.sort_unstable();
        let mut hasher = DefaultHasher::new();
        rows.hash(&mut hasher);
        dump.push(format!("{name}: {} rows, {:x}", rows.len(), hasher.finish()));
    }
    dump
}

/// A rebuild that is stopped goes on in the next process, and what it makes is what a fresh index is.
#[tokio::test]
async fn rebuild_resumes_and_equals_a_fresh_index() {
    use quipu_store::{DerivedTables, RebuildBacklog, RebuildStart};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let filled = fill(&store).await;
    for n in 0..6 {
        let text = format!("part {n} ```rust\nfn part_{n}()\n``` {}", format!("word{n} ").repeat(25_000));
        let (_, commit) = text_commit(Some(filled.main), &text, T + 100 + n);
        store.commit(commit).await.unwrap();
        store.index().await.unwrap();
    }
    let found = store.search(whole("red")).await.unwrap();
    while store.index().await.unwrap() != IndexBacklog::default() {}
    drop(store);
    let before = derived(&path);

    for what in [DerivedTables::Search, DerivedTables::All] {
        let store = open(&path);
        assert_eq!(store.begin_rebuild(what).await.unwrap(), RebuildStart::Anew);
        drop(store);
        // Nothing is there, or as much as the writer indexed until it was stopped.
        let store = open(&path);
        assert_eq!(store.begin_rebuild(DerivedTables::Search).await.unwrap(), RebuildStart::Resumed);
        let left = store.continue_rebuild().await.unwrap();
        drop(store);
        let store = open(&path);
        if left != RebuildBacklog::default() {
            assert_eq!(store.begin_rebuild(what).await.unwrap(), RebuildStart::Resumed);
        }
        while store.continue_rebuild().await.unwrap() != RebuildBacklog::default() {}
        assert_eq!(store.search(whole("red")).await.unwrap(), found);
        drop(store);
        assert_eq!(derived(&path), before, "{what:?}");
    }
    // Done: the next one begins anew. One of the search makes way for one of all.
    let store = open(&path);
    assert_eq!(store.begin_rebuild(DerivedTables::Search).await.unwrap(), RebuildStart::Anew);
    assert_eq!(store.begin_rebuild(DerivedTables::All).await.unwrap(), RebuildStart::Anew);
    while store.continue_rebuild().await.unwrap() != RebuildBacklog::default() {}
    assert_eq!(store.search(whole("red")).await.unwrap(), found);
    assert!(store.check().await.unwrap().problems.is_empty());
}

/// More hits of others than are looked at one by one, newer and older than those in question.
#[tokio::test]
async fn hits_of_many_others_hide_none_in_question() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let mut at = T;
    for (session, cwd, speaker, count) in [
        ("first", "/here", "user", 3),
        ("second", "/there", "assistant", 150),
        ("third", "/here", "user", 2),
        ("fourth", "/here", "assistant", 100),
    ] {
        let (mut last, commit) = entry_commit(None, &session_start(&SessionId::from(session), cwd, None), at);
        store.commit(commit).await.unwrap();
        for number in 0..count {
            at += 1;
            let text = format!("\"a red boat, {session} {number}\"");
            last = foreign(&store, last, speaker, &[("text", &text)], at).await;
        }
    }
    let wanted = ["third 1", "third 0", "first 2", "first 1", "first 0"]
        .map(|wanted| format!("a [red] [boat], {wanted}"));
    let wanted = wanted.each_ref().map(String::as_str);
    let of_user = SearchQuery { speakers: vec![Speaker::User], ..words("red boat") };
    for query in [
        SearchQuery { project: Some("/here".into()), ..of_user.clone() },
        SearchQuery { agent: Some("quipu".into()), ..of_user.clone() },
        SearchQuery { matching: MatchMode::Words, per_session: Some(9), ..of_user },
    ] {
        check(&store, query, &wanted).await;
    }
    let here = SearchQuery { project: Some("/here".into()), limit: 200, ..words("red") };
    assert_eq!(store.search(here.clone()).await.unwrap().hits.len(), 105);
    let few = SearchQuery { per_session: Some(2), ..here };
    let hits = store.search(few).await.unwrap().hits;
    let more: Vec<u64> = hits.iter().map(|hit| hit.more).collect();
    assert_eq!(more, [0, 98, 0, 0, 0, 1]);
}
