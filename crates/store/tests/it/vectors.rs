//! Vectors beside nodes: made once, of one model, and compared.

use quipu_protocol::{Entry, NodeId, SessionId};
use quipu_store::{
    DerivedTables, EmbeddingBatch, Hit, MatchKind, OpenOptions, RefMove, RefName, SearchQuery, Sessions,
    Speaker, SqliteStore, Store, StoreError, Upkeep, Vectors,
};

use crate::support::*;

const MODEL: &str = "a model";

/// A session in `cwd` whose user says these, one node each.
async fn say(store: &SqliteStore, name: &str, cwd: &str, texts: &[&str], at: i64) -> Vec<NodeId> {
    let session = SessionId::from(name);
    let put = async |parent, entry: &Entry, at| {
        let (id, mut commit) = entry_commit(parent, entry, at);
        commit.moves.push(RefMove::swap(RefName::session(&session), parent, id, "step"));
        store.commit(commit).await.unwrap();
        id
    };
    let mut last = put(None, &session_start(&session, cwd, None), at).await;
    let mut nodes = Vec::new();
    for (n, text) in (1..).zip(texts) {
        last = put(Some(last), &user(text, at + n), at + n).await;
        nodes.push(last);
    }
    nodes
}

/// The letters of a text, counted: texts of the same letters mean the same.
fn letters(text: &str) -> Vec<f32> {
    let count = |letter: u8| text.bytes().filter(|byte| *byte == letter).count();
    (b'a'..=b'e').map(|letter| f32::from(u8::try_from(count(letter)).unwrap())).collect()
}

async fn batch(store: &SqliteStore, model: &str, most: usize) -> EmbeddingBatch {
    store.without_vectors(model, most).await.unwrap()
}

fn texts(batch: &EmbeddingBatch) -> Vec<&str> {
    batch.texts.iter().map(|(_, text)| text.as_str()).collect()
}

async fn keep(store: &SqliteStore, model: &str, batch: &EmbeddingBatch) {
    let vectors: Vec<Vec<f32>> = batch.texts.iter().map(|(_, text)| letters(text)).collect();
    store.keep_vectors(model, batch, &vectors).await.unwrap();
}

/// Makes all vectors; gives the texts in the order in which they were asked for.
async fn fill(store: &SqliteStore, model: &str) -> Vec<String> {
    let mut asked = Vec::new();
    loop {
        let next = batch(store, model, 2).await;
        if next.is_done() {
            return asked;
        }
        asked.extend(next.texts.iter().map(|(_, text)| text.clone()));
        keep(store, model, &next).await;
    }
}

async fn near(store: &SqliteStore, query: SearchQuery, like: &str) -> Vec<Hit> {
    let found = store.nearest(query, MODEL, &letters(like)).await.unwrap();
    assert_eq!((found.left, found.cut), (0, false));
    assert!(
        found.hits.iter().all(|hit| hit.by == MatchKind::Semantic && hit.score.is_some_and(|it| it > 0.0))
    );
    found.hits
}

fn said(hits: &[Hit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.excerpt.text.as_str()).collect()
}

#[tokio::test]
async fn vectors_are_made_once_and_the_nearest_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    assert!(batch(&store, MODEL, 10).await.is_done());
    let one = say(&store, "one", "/w/app", &["aab", "ccc", "xyz", "b a a"], T).await;
    say(&store, "two", "/w/other", &["dab", "ccccccc"], T + 100).await;
    // Without a vector nothing is near, and it is said what was not compared.
    let none = store.nearest(SearchQuery::default(), MODEL, &letters("aab")).await.unwrap();
    assert_eq!((none.hits.len(), none.left), (0, 8));

    assert_eq!(fill(&store, MODEL).await, ["ccccccc", "dab", "b a a", "xyz", "ccc", "aab"]);
    assert!(batch(&store, MODEL, 10).await.is_done());
    let all = SearchQuery { words: "aab".to_owned(), ..SearchQuery::default() };
    let hits = near(&store, all.clone(), "aab").await;
    // Of equal ones the newest first; what points elsewhere, or nowhere, is not among them.
    assert_eq!(said(&hits), ["b a a", "aab", "dab"]);
    assert_eq!((hits[1].node, hits[1].session.clone()), (one[0], Some("one".into())));
    assert_eq!(hits[1].excerpt.marks, vec![0..3], "words that are there are marked all the same");
    assert_eq!(near(&store, all.clone(), "xyz").await, []);

    // New ones are asked for alone.
    say(&store, "three", "/w/app", &["aaaa", "bb"], T + 200).await;
    let next = batch(&store, MODEL, 10).await;
    assert_eq!((texts(&next), next.left), (vec!["aaaa", "bb"], 0));
    keep(&store, MODEL, &next).await;
    assert_eq!(said(&near(&store, all.clone(), "aaa").await)[..2], ["aaaa", "b a a"]);

    // Conditions.
    let app = SearchQuery { project: Some("/w/other".into()), ..all.clone() };
    assert_eq!(said(&near(&store, app, "aab").await), ["dab"]);
    let tools = SearchQuery { speakers: vec![Speaker::Tool], ..all.clone() };
    assert_eq!(near(&store, tools, "aab").await, []);
    let users = SearchQuery { speakers: vec![Speaker::User], project: Some("/w".into()), ..all.clone() };
    assert_eq!(near(&store, users, "aab").await.len(), 5);
    let since = SearchQuery { since: Some(T + 150), ..all.clone() };
    assert_eq!(said(&near(&store, since, "aab").await), ["aaaa", "bb"]);
    let branch = SearchQuery { branch: Some(one[1]), ..all.clone() };
    assert_eq!(said(&near(&store, branch, "aab").await), ["aab"]);
    let name = RefName::session(&"one".into());
    let gone =
        RefMove { name, expect: quipu_store::RefExpectation::Any, to: None, fence: None, why: "rm".into() };
    store.commit(quipu_store::Commit { moves: vec![gone], ..Default::default() }).await.unwrap();
    let standing = SearchQuery { sessions: Sessions::Standing, ..all.clone() };
    assert_eq!(said(&near(&store, standing, "aab").await), ["aaaa", "dab", "bb"]);

    // Another model: its vectors are not compared with these, and all are made anew.
    let other = store.nearest(all.clone(), "another", &letters("aab")).await.unwrap();
    assert_eq!(other.hits, []);
    assert_eq!(fill(&store, "another").await.len(), 8);
    assert_eq!(store.nearest(all.clone(), MODEL, &letters("aab")).await.unwrap().hits, []);
    assert_eq!(store.nearest(all.clone(), "another", &letters("aab")).await.unwrap().hits.len(), 5);
    // Vectors of another length are passed over.
    assert_eq!(store.nearest(all, "another", &[1.0]).await.unwrap().hits, []);
    // A rebuild drops them.
    store.begin_rebuild(DerivedTables::Search).await.unwrap();
    while store.continue_rebuild().await.unwrap() != quipu_store::RebuildBacklog::default() {}
    assert_eq!(batch(&store, "another", 100).await.texts.len(), 8);
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn concurrent_vector_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (one, two) = (open(&path), open(&path));
    say(&one, "s", "/w", &["a", "b", "c", "d"], T).await;
    let mine = batch(&one, MODEL, 2).await;
    let theirs = batch(&two, MODEL, 3).await;
    assert_eq!((texts(&mine), texts(&theirs)), (vec!["d", "c"], vec!["d", "c", "b"]));
    keep(&two, MODEL, &theirs).await;
    keep(&one, MODEL, &mine).await;
    assert_eq!(fill(&one, MODEL).await, ["a"]);
    let short = batch(&one, "another", 2).await;
    let failed = one.keep_vectors("another", &short, &[vec![1.0]]).await;
    assert!(matches!(failed, Err(StoreError::Missing { .. })), "{failed:?}");
    assert_eq!(near(&one, SearchQuery::default(), "abcd").await.len(), 4, "nothing was dropped for it");
}

#[tokio::test]
async fn vectors_are_small_and_damaged_ones_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    say(&store, "s", "/w", &["a", "b"], T).await;
    fill(&store, MODEL).await;
    store.index().await.unwrap();
    assert_eq!(near(&store, SearchQuery::default(), "a").await.len(), 1);
    drop(store);
    // What is kept is small whole numbers.
    let rows = rusqlite::Connection::open(&path).unwrap();
    let bytes: Vec<u8> =
        rows.query_row("SELECT bytes FROM quipu_x_vector ORDER BY seq", [], |row| row.get(0)).unwrap();
    assert_eq!(bytes, [127, 0, 0, 0, 0]);
    // Damaged rows are passed over.
    rows.execute("UPDATE quipu_x_vector SET bytes = x'ff'", []).unwrap();
    drop(rows);
    let store = SqliteStore::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(near(&store, SearchQuery::default(), "a").await, []);
}
