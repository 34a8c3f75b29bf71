//! What dreams keep in a store.

use quipu_protocol::NodeId;
use quipu_store::{
    ContentHolder as _, ContentQuery, Dreams, EraseTargets, OpenOptions, Promotion, SIGNAL_ENTRIES,
    SIGNALS_AT_ONCE, Selection, SignalChange, SignalKind, SignalPlace, SqliteStore, Store as _, StoreError,
    StoreHolder, TextSignal, salvage,
};
use std::sync::Arc;

use crate::support::*;

fn signal(key: &str, kind: SignalKind, query: &str, day: i64) -> TextSignal {
    TextSignal {
        key: key.into(),
        place: SignalPlace::Lines { path: "memory/2026-11-25.md".into(), first: 3, last: 4 },
        text: format!("what {key} says"),
        tags: vec!["deploy".into()],
        kind,
        score: 0.8,
        query: query.into(),
        day,
        at: T + day,
    }
}

fn promotion(id: &str, at: i64) -> Promotion {
    Promotion { id: id.into(), line: format!("line {id}"), how: "append".into(), at, sources: vec![] }
}

fn tables(store: &SqliteStore) -> Vec<String> {
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    let mut names = connection
        .prepare(
            "SELECT name FROM sqlite_master WHERE name IN ('quipu_recall', 'quipu_dream', 'quipu_promotion')",
        )
        .unwrap();
    names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn nothing_exists_before_the_first_recall() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("graph.db"), &OpenOptions::default()).unwrap();
    assert_eq!(store.recalls("user").await.unwrap(), []);
    assert_eq!(store.dream("user").await.unwrap(), None);
    assert_eq!(store.promotions("user").await.unwrap(), []);
    assert_eq!(store.dreamt_memories().await.unwrap(), Vec::<String>::new());
    assert_eq!(tables(&store), Vec::<String>::new());
    store.note_recalls("user", vec![signal("a", SignalKind::Search, "q", 1)]).await.unwrap();
    assert_eq!(tables(&store).len(), 3);
    assert_eq!(store.dreamt_memories().await.unwrap(), ["user"]);
}

#[tokio::test]
async fn recalls_are_counted_by_kind_query_and_day() {
    let store = SqliteStore::in_memory().unwrap();
    let search = |query: &str, day| signal("a", SignalKind::Search, query, day);
    let daily = |query: &str, day| signal("a", SignalKind::Daily, query, day);
    let signals =
        vec![search("q1", 5), search("q1", 3), search("q2", 5), daily("d", 5), daily("d", 6), daily("e", 6)];
    store.note_recalls("user", signals).await.unwrap();
    store.note_recalls("work", vec![search("q1", 1)]).await.unwrap();
    let entries = store.recalls("user").await.unwrap();
    let entry = &entries[0];
    // What stands in notes counts once for each query.
    assert_eq!((entry.recalls, entry.daily, entry.signals()), (3, 2, 5));
    assert_eq!((entry.queries.len(), entry.days.clone()), (4, vec![3, 5, 6]));
    assert_eq!((entry.first_at, entry.last_at), (T + 3, T + 6));
    assert!((entry.total_score - 4.0).abs() < 1e-9);
    assert_eq!(store.recalls("work").await.unwrap().len(), 1, "memories do not mix");
    let many = vec![search("q", 1); SIGNALS_AT_ONCE + 1];
    assert!(matches!(store.note_recalls("user", many).await, Err(StoreError::TooLarge { .. })));
    let wild = TextSignal { score: f64::NAN, text: "ü".repeat(9_000), ..search("q", 9) };
    store.note_recalls("user", vec![wild]).await.unwrap();
    let entry = store.recalls("user").await.unwrap().remove(0);
    assert!(entry.total_score.is_finite() && entry.text.len() <= 2_000);
}

#[tokio::test]
async fn step_of_a_dream_is_stored_once() {
    let store = SqliteStore::in_memory().unwrap();
    store.note_recalls("user", vec![signal("a", SignalKind::Search, "q", 1)]).await.unwrap();
    let changes = || {
        vec![
            SignalChange::Came(signal("b", SignalKind::Daily, "d", 1)),
            SignalChange::Light("a".into(), T),
            SignalChange::Rem("b".into(), T + 1),
            SignalChange::Promoted("a".into(), T + 2),
            SignalChange::Light("nobody".into(), T),
        ]
    };
    let step = |from, state: &str| {
        store.advance_dream("user", from, state.into(), changes(), vec![promotion("p", T)])
    };
    assert!(step(0, "1").await.unwrap());
    assert!(!step(0, "other").await.unwrap(), "another process was faster");
    assert!(!step(7, "other").await.unwrap());
    let progress = store.dream("user").await.unwrap().unwrap();
    assert_eq!((progress.step, progress.state.as_str()), (1, "1"));
    let entries = store.recalls("user").await.unwrap();
    let found: Vec<_> =
        entries.iter().map(|entry| (entry.key.as_str(), entry.light, entry.rem, entry.promoted)).collect();
    assert_eq!(found, [("a", (1, T), (0, 0), Some(T + 2)), ("b", (0, 0), (1, T + 1), None)]);
    assert!(store.advance_dream("user", 1, "two".into(), vec![], vec![promotion("p", T + 9)]).await.unwrap());
    assert_eq!(store.promotions("user").await.unwrap(), [promotion("p", T + 9)]);
}

#[tokio::test]
async fn texts_recalled_longest_ago_go_first() {
    let store = SqliteStore::in_memory().unwrap();
    let signals = (0..SIGNAL_ENTRIES + 10).map(|at| {
        let day = i64::try_from(at).unwrap();
        signal(&format!("{at:06}"), SignalKind::Search, "q", day)
    });
    store.note_recalls("user", signals.collect()).await.unwrap();
    let entries = store.recalls("user").await.unwrap();
    assert_eq!((entries.len(), entries[0].key.as_str()), (SIGNAL_ENTRIES, "000010"));
}

#[tokio::test]
async fn recalled_content_is_found_and_erased() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let node = NodeId([9; 32]);
    let of_node = TextSignal { place: SignalPlace::Node(node), ..signal("n", SignalKind::Search, "q", 1) };
    store
        .note_recalls("user", vec![signal("secret\"plan", SignalKind::Search, "q", 1), of_node])
        .await
        .unwrap();
    store
        .advance_dream("user", 0, "{\"x\":\"harmless\"}".into(), vec![], vec![promotion("p", T)])
        .await
        .unwrap();
    let holders = StoreHolder::all(&store, &(Arc::new(|_: &str| false) as _));
    let holder = holders.iter().find(|holder| holder.name() == "store.memory-dreams").unwrap();
    assert!(holder.bytes().await.unwrap() > 0);
    for (selection, left) in [
        (Selection { needles: vec![b"what secret\"plan says".to_vec()], ..Selection::default() }, 1),
        (Selection { nodes: vec![node], ..Selection::default() }, 0),
    ] {
        let query = ContentQuery::of(selection.clone());
        assert_eq!(holder.find(&query).await.unwrap().found.len(), 1);
        let erased = holder.erase(&EraseTargets { selection, why: "asked".into() }).await.unwrap();
        assert_eq!((erased.count, erased.kept.len()), (1, 0));
        assert_eq!(holder.find(&query).await.unwrap().found, []);
        assert_eq!(store.recalls("user").await.unwrap().len(), left);
    }
    let line = Selection { needles: vec![b"line p".to_vec()], ..Selection::default() };
    holder.erase(&EraseTargets { selection: line, why: "asked".into() }).await.unwrap();
    assert_eq!(store.promotions("user").await.unwrap(), []);
    assert!(store.dream("user").await.unwrap().is_some(), "the rest stays");
}

#[tokio::test]
async fn repair_carries_dreams_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.db");
    let store = SqliteStore::open(&path, &OpenOptions::default()).unwrap();
    store.commit(text_commit(None, "something", T).1).await.unwrap();
    store.note_recalls("user", vec![signal("a", SignalKind::Search, "q", 1)]).await.unwrap();
    assert!(
        store.advance_dream("user", 0, "{\"x\":1}".into(), vec![], vec![promotion("p", T)]).await.unwrap()
    );
    let before = (
        store.recalls("user").await.unwrap(),
        store.dream("user").await.unwrap(),
        store.promotions("user").await.unwrap(),
    );
    drop(store);
    salvage(&path).unwrap();
    let store = SqliteStore::open(&path, &OpenOptions::default()).unwrap();
    let after = (
        store.recalls("user").await.unwrap(),
        store.dream("user").await.unwrap(),
        store.promotions("user").await.unwrap(),
    );
    assert_eq!(after, before);
}
