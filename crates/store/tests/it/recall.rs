//! Questions: what answers them comes first, and the index depends on the graph alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{AuthorClass, NodeId, SessionId};
use quipu_store::{
    Commit, NoteChange, NoteChunk, QUESTION_LIMIT, RecallHits, RecallIndex as _, RecallKind, RecallPlace,
    RecallQuery, RecallSignal, RefMove, RefName, SqliteStore, Store as _, StoreError, Upkeep as _,
    WordVectors,
};
use rusqlite::Connection;

use crate::support::*;

const DAY: i64 = 86_400_000;
const LONG: Duration = Duration::from_secs(60);

/// A session in a directory, with what is said in turn, a day's beginning as its time.
async fn say(store: &SqliteStore, name: &str, cwd: &str, at: i64, texts: &[&str]) -> Vec<NodeId> {
    let session = SessionId::from(name);
    let (mut last, mut all) = {
        let (node, commit) = entry_commit(None, &session_start(&session, cwd, None), at);
        let moves = vec![RefMove::publish(RefName::session(&session), node, "test")];
        store.commit(Commit { moves, ..commit }).await.unwrap();
        (node, Vec::new())
    };
    for (text, n) in texts.iter().zip(1..) {
        let (node, commit) = entry_commit(Some(last), &user(text, at + n), at + n);
        store.commit(commit).await.unwrap();
        last = node;
        all.push(node);
    }
    all
}

fn ask(question: &str) -> RecallQuery {
    RecallQuery { question: question.to_owned(), limit: 10, ..RecallQuery::default() }
}

async fn recall(store: &SqliteStore, query: RecallQuery) -> RecallHits {
    assert_eq!(store.index_recall(None, LONG).await.unwrap(), 0);
    store.recall(query, None).await.unwrap()
}

/// The nodes and notes that were found, in order.
fn places(found: &RecallHits) -> Vec<String> {
    let place = |place: &RecallPlace| match place {
        RecallPlace::Node { node, .. } => node.short(),
        RecallPlace::Note { memory, path, first, last } => format!("{memory}/{path}#{first}-{last}"),
    };
    found.hits.iter().map(|hit| place(&hit.place)).collect()
}

fn shorts(nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(NodeId::short).collect()
}

#[tokio::test]
async fn question_finds_stems_neighbours_and_dates() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let may =
        say(&store, "a", "/w", 19_485 * DAY, &["We paint fences.", "Only the blue one?", "Nothing else."])
            .await;
    let june = say(&store, "b", "/w", 19_516 * DAY, &["The dog barked.", "It was hungry."]).await;
    let found = recall(&store, ask("Who painted the fence?")).await;
    assert_eq!(places(&found)[..2], shorts(&may[..2]), "the turn itself, then the one after it");
    assert_eq!(found.hits[0].score, 1.0);
    assert!(found.hits.iter().all(|hit| hit.by == RecallSignal::Words && hit.kind == RecallKind::User));
    assert_eq!(places(&recall(&store, ask("What happened in June?")).await).len(), 2, "by the date alone");
    assert_eq!(places(&recall(&store, ask("Was the hungry dog barking?")).await), shorts(&june));
    let nothing = recall(&store, ask("Who are you?")).await;
    assert!(nothing.wordless && nothing.hits.is_empty());
    let long = store.recall(ask(&"x".repeat(QUESTION_LIMIT + 1)), None).await;
    assert!(matches!(long, Err(StoreError::TooLarge { .. })), "{long:?}");
}

#[tokio::test]
async fn conditions_hold_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let here = say(&store, "a", "/w/one", 19_000 * DAY, &["a lantern"]).await;
    let there = say(&store, "b", "/w/two", 19_010 * DAY, &["a lantern"]).await;
    let of = async |query: RecallQuery| places(&recall(&store, query).await);
    let lantern = || ask("lantern");
    assert_eq!(of(lantern()).await.len(), 2);
    let below = |directory: &str| RecallQuery { projects: Some(vec![directory.to_owned()]), ..lantern() };
    assert_eq!(of(below("/w/one")).await, shorts(&here));
    assert_eq!(of(below("/w")).await.len(), 2);
    assert_eq!(of(below("/w/on")).await, Vec::<String>::new());
    assert_eq!(of(RecallQuery { since: Some(19_005 * DAY), ..lantern() }).await, shorts(&there));
    assert_eq!(of(RecallQuery { until: Some(19_005 * DAY), ..lantern() }).await, shorts(&here));
    assert_eq!(
        of(RecallQuery { kinds: vec![RecallKind::Assistant], ..lantern() }).await,
        Vec::<String>::new()
    );
    assert_eq!(of(RecallQuery { authors: vec![AuthorClass::Owner], ..lantern() }).await.len(), 2);
    assert_eq!(
        of(RecallQuery { authors: vec![AuthorClass::Agent], ..lantern() }).await,
        Vec::<String>::new()
    );
    // A session that was removed is not shown.
    let gone = RefMove {
        name: RefName::session(&SessionId::from("b")),
        expect: quipu_store::RefExpectation::Any,
        to: None,
        fence: None,
        why: "test".to_owned(),
    };
    store.commit(Commit { moves: vec![gone], ..Commit::default() }).await.unwrap();
    assert_eq!(of(lantern()).await, shorts(&here));
}

/// All rows of the index, as text.
fn rows(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut all = Vec::new();
    for (table, columns) in [
        ("quipu_x_recall", "seq, units, words, groups"),
        ("quipu_x_recall_unit", "block, hex(bytes)"),
        ("quipu_x_recall_word", "word, first, n, hex(bytes)"),
        ("quipu_x_recall_group", "num, words, first, last"),
    ] {
        let query = format!("SELECT '{table} ' || concat_ws(' ', {columns}) FROM {table} ORDER BY 1");
        let mut statement = connection.prepare(&query).unwrap();
        all.extend(statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap));
    }
    all
}

#[tokio::test]
async fn index_is_the_same_however_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let tables = || -> i64 {
        let count = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'quipu_x_recall%'";
        Connection::open(&path).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
    };
    for n in 0..150 {
        let texts =
            [format!("lantern number {n}"), "the same words each time".to_owned(), format!("{n} lights")];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        say(&store, &format!("s{n}"), "/w", (19_000 + n) * DAY, &texts).await;
        if n < 100 {
            assert_eq!(tables(), 0, "nobody asked yet");
        }
        // Now and then, and then all at once.
        if n >= 100 && n % 3 == 0 {
            store.index_recall(None, Duration::ZERO).await.unwrap();
        }
    }
    assert_eq!(store.index_recall(None, LONG).await.unwrap(), 0);
    let by_and_by = rows(&path);
    assert!(by_and_by.iter().any(|row| row.starts_with("quipu_x_recall_word lantern ")), "{by_and_by:?}");
    store.rebuild().await.unwrap();
    assert_eq!(tables(), 0, "made again when somebody asks");
    assert_eq!(store.index_recall(None, LONG).await.unwrap(), 0);
    assert_eq!(rows(&path), by_and_by);
}

fn note(path: &str, lines: &[&str]) -> NoteChange {
    let chunk = |(line, text): (u32, &&str)| NoteChunk {
        first: line,
        last: line,
        text: (*text).to_owned(),
        at: 19_000 * DAY,
        author: AuthorClass::Owner,
    };
    let chunks = Some((1..).zip(lines).map(chunk).collect());
    NoteChange { path: path.to_owned(), stamp: "1".to_owned(), chunks }
}

#[tokio::test]
async fn notes_are_found_in_their_memories_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    say(&store, "a", "/w", 19_000 * DAY, &["Nothing of the kind."]).await;
    let changes =
        vec![note("MEMORY.md", &["prefers tabs", "lives in Oslo"]), note("memory/a.md", &["tabs again"])];
    store.put_notes("mine", changes, None).await.unwrap();
    store.put_notes("other", vec![note("MEMORY.md", &["tabs are for others"])], None).await.unwrap();
    let of = |memory: &str| RecallQuery { memories: vec![memory.to_owned()], ..ask("tabs or spaces") };
    let found = recall(&store, of("mine")).await;
    let mut mine = places(&found);
    mine.sort();
    assert_eq!(
        mine,
        ["mine/MEMORY.md#1-1", "mine/MEMORY.md#2-2", "mine/memory/a.md#1-1"],
        "the second by its neighbour"
    );
    assert_eq!(places(&recall(&store, of("other")).await), ["other/MEMORY.md#1-1"]);
    assert_eq!(places(&recall(&store, ask("tabs or spaces")).await), Vec::<String>::new());
    // A change replaces what the file said.
    let gone = NoteChange { path: "memory/a.md".to_owned(), stamp: String::new(), chunks: None };
    store.put_notes("mine", vec![note("MEMORY.md", &["prefers nothing"]), gone], None).await.unwrap();
    assert_eq!(places(&recall(&store, of("mine")).await), Vec::<String>::new());
    let known: Vec<String> =
        store.indexed_notes("mine").await.unwrap().into_iter().map(|note| note.path).collect();
    assert_eq!(known, ["MEMORY.md"]);
    // Of what is dropped no stem is left in the file.
    store.put_notes("mine", vec![note("MEMORY.md", &["wombatson wombatson"])], None).await.unwrap();
    store.drop_notes().await.unwrap();
    let left = |table: &str| {
        let connection = rusqlite::Connection::open(dir.path().join("quipu.db")).unwrap();
        let known = "SELECT count(*) FROM sqlite_master WHERE name = ?1";
        connection.query_row(known, [table], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((left("quipu_x_note_word"), left("quipu_x_note_file")), (0, 0));
    assert_eq!(store.indexed_notes("mine").await.unwrap().len(), 0);
}

#[tokio::test]
async fn index_of_another_form_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let words: Arc<dyn WordVectors> = Arc::new(Synonyms);
    let store = open(&path);
    let car = say(&store, "a", "/w", 19_000 * DAY, &["the vehicle was repaired", "a lantern"]).await;
    let lantern = || vec![note("MEMORY.md", &["a lantern"])];
    store.put_notes("mine", lantern(), Some(words.clone())).await.unwrap();
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let as_made = rows(&path);
    // As the tables were before: no form, blocks of other sizes, vectors by the block.
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "ALTER TABLE quipu_x_recall DROP COLUMN form; ALTER TABLE quipu_x_note DROP COLUMN form;
             DROP TABLE quipu_x_recall_term; DROP TABLE quipu_x_recall_term_sign; DROP TABLE quipu_x_note_vector;
             UPDATE quipu_x_recall_word SET bytes = x'00020000ff', n = 7; UPDATE quipu_x_note_word SET bytes = x'00020000ff';
             DROP TABLE quipu_x_recall_sign; DROP TABLE quipu_x_recall_vector; DROP TABLE quipu_x_note_memory;
             CREATE TABLE quipu_x_recall_vector (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
        )
        .unwrap();
    drop(store);
    let store = open(&path);
    // A quiet moment does not go on with it, and it answers nothing.
    let found = store.recall(ask("lantern"), Some(words.clone())).await.unwrap();
    assert_eq!((found.hits, found.left), (Vec::new(), 3));
    assert_eq!(store.indexed_notes("mine").await.unwrap(), Vec::new());
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    assert_eq!(rows(&path), as_made);
    store.put_notes("mine", lantern(), Some(words.clone())).await.unwrap();
    let query = RecallQuery { memories: vec!["mine".to_owned()], ..ask("lantern") };
    let found = store.recall(query, Some(words.clone())).await.unwrap();
    assert_eq!(places(&found), ["mine/MEMORY.md#1-1".to_owned(), car[1].short(), car[0].short()]);
    let found = store.recall(ask("fix my car"), Some(words)).await.unwrap();
    assert_eq!(places(&found)[0], car[0].short());
}

/// Words that mean the same have the same vector.
struct Synonyms;

impl WordVectors for Synonyms {
    fn id(&self) -> &str {
        "synonyms"
    }

    fn width(&self) -> usize {
        4
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let vector: &[f32] = match word {
            "car" | "vehicle" => &[1.0, 0.0, 0.0, 0.0],
            "fix" | "repaired" => &[0.0, 1.0, 0.0, 0.0],
            "lunch" | "soup" => &[0.0, 0.0, 1.0, 0.0],
            _ => &[],
        };
        vector.into()
    }
}

#[tokio::test]
async fn vectors_find_what_no_word_finds() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    say(&store, "a", "/w", 19_000 * DAY, &["soup for everybody", "later"]).await;
    let car = say(&store, "b", "/w", 19_001 * DAY, &["the vehicle was repaired"]).await;
    let words: Arc<dyn WordVectors> = Arc::new(Synonyms);
    assert_eq!(places(&recall(&store, ask("fix my car")).await), Vec::<String>::new());
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let found = store.recall(ask("fix my car"), Some(words.clone())).await.unwrap();
    assert_eq!(places(&found)[0], car[0].short());
    assert_eq!(found.hits[0].by, RecallSignal::Semantic);
    // Notes have vectors too, and what is said later.
    store
        .put_notes("mine", vec![note("MEMORY.md", &["repaired the vehicle"])], Some(words.clone()))
        .await
        .unwrap();
    let again = say(&store, "c", "/w", 19_002 * DAY, &["a vehicle, repaired"]).await;
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let query = RecallQuery { memories: vec!["mine".to_owned()], ..ask("fix my car") };
    let found = places(&store.recall(query, Some(words)).await.unwrap());
    for place in [car[0].short(), again[0].short(), "mine/MEMORY.md#1-1".to_owned()] {
        assert!(found.contains(&place), "{place} in {found:?}");
    }
}

/// Words of one kind are near each other, as much as their numbers say.
struct Kinds;

impl WordVectors for Kinds {
    fn id(&self) -> &str {
        "kinds"
    }

    fn width(&self) -> usize {
        4
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let vector: &[f32] = match word {
            "car" => &[1.0, 0.0, 0.0, 0.0],
            "truck" => &[0.9, 0.3, 0.0, 0.0],
            "wheels" => &[0.7, 0.7, 0.0, 0.0],
            "boat" => &[0.1, 0.0, 0.9, 0.0],
            "r2d2" => &[1.0, 0.0, 0.0, 0.1],
            _ => &[0.0, 0.0, 0.0, 1.0],
        };
        vector.into()
    }
}

#[tokio::test]
async fn words_near_those_of_a_question_find_as_they_are_near() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let filler = "and nothing else was noted that day about anything at all in this place";
    let said = |word: &str| format!("{word} {filler}");
    let mut nodes = Vec::new();
    for (n, word) in (0_i64..).zip(["boat", "wheels", "truck", "r2d2", "car"]) {
        nodes.push(say(&store, word, "/w", (19_000 + n) * DAY, &[&said(word)]).await.remove(0).short());
    }
    let [_, wheels, truck, _, car] = <[String; 5]>::try_from(nodes).unwrap();
    let words: Arc<dyn WordVectors> = Arc::new(Kinds);
    assert_eq!(places(&recall(&store, ask("car")).await), std::slice::from_ref(&car), "by the word alone");
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let found = store.recall(ask("car"), Some(words.clone())).await.unwrap();
    assert_eq!(places(&found)[..3], [car.clone(), truck.clone(), wheels], "{found:?}");
    assert_eq!(found.hits[1].by, RecallSignal::Semantic);
    // Words that were said later are known as well, and those of notes.
    let mut later = say(&store, "later", "/w", 19_100 * DAY, &[&said("truck")]).await;
    store.put_notes("mine", vec![note("MEMORY.md", &[&said("truck")])], Some(words.clone())).await.unwrap();
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let query = RecallQuery { memories: vec!["mine".to_owned()], ..ask("car") };
    let found = places(&store.recall(query, Some(words)).await.unwrap());
    assert_eq!(found[0], car);
    for place in [truck, later.remove(0).short(), "mine/MEMORY.md#1-1".to_owned()] {
        assert!(found[1..4].contains(&place), "{place} in {found:?}");
    }
    // Of dropped notes no word is left.
    store.drop_notes().await.unwrap();
    let connection = Connection::open(dir.path().join("quipu.db")).unwrap();
    let known = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'quipu_x_note%'";
    assert_eq!(connection.query_row(known, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn questions_are_not_answered_by_what_is_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let vehicle = say(&store, "a", "/w", 19_000 * DAY, &["the vehicle was repaired"]).await;
    let soup = say(&store, "b", "/w", 19_001 * DAY, &["soup for everybody", "and bread"]).await;
    let asked = say(&store, "asking", "/w", 19_002 * DAY, &["please fix my car"]).await;
    let words: Arc<dyn WordVectors> = Arc::new(Synonyms);
    assert_eq!(store.index_recall(Some(words.clone()), LONG).await.unwrap(), 0);
    let found = async |query: RecallQuery| store.recall(query, Some(words.clone())).await.unwrap();
    // The question itself answers all of it.
    let all = found(ask("fix my car")).await;
    assert!(places(&all).contains(&asked[0].short()), "{all:?}");
    assert!(all.hits.iter().all(|hit| hit.score > 0.0), "{all:?}");
    let others = [
        RecallQuery { asking: Some(SessionId::from("asking")), ..ask("fix my car") },
        RecallQuery { without: asked.clone(), ..ask("fix my car") },
    ];
    for query in others {
        let found = found(query).await;
        assert_eq!(places(&found)[0], vehicle[0].short());
        assert_eq!(found.hits[0].score, 1.0);
        assert!(!places(&found).contains(&asked[0].short()), "{found:?}");
    }
    let query = RecallQuery { asking: Some(SessionId::from("nobody")), without: soup, ..ask("soup") };
    assert!(found(query).await.hits.is_empty());
}
