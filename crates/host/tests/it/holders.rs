//! All places of a home that hold content, asked together; and what they do when one of them misbehaves.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use quipu_host::holders::{
    AddHolderError, Answer, ContentHolder, ContentQuery, EraseReport, EraseTargets, FilesHolder,
    FoundContent, FoundPage, FoundPlace, HolderFault, HolderFut, HolderLimits, Holders, KeptReason,
    LinesHolder, Selection, WrittenKind,
};
use quipu_host::{Home, PermissionItem, Record, SilentObserver};
use quipu_protocol::{AuthorClass, SessionId};
use quipu_store::{NoteChange, NoteChunk, OpenOptions, RecallIndex as _};

fn home(dir: &Path) -> Home {
    Home::at(dir, Arc::new(SilentObserver))
}

fn needle(text: &str) -> EraseTargets {
    EraseTargets::of_needle(text, "a test")
}

fn session(id: &str) -> EraseTargets {
    let selection = Selection { sessions: vec![SessionId::from(id)], ..Selection::default() };
    EraseTargets { selection, why: "a test".into() }
}

fn of<T: Clone>(answers: &[Answer<T>], name: &str) -> Result<T, HolderFault> {
    answers.iter().find(|answer| answer.holder == name).unwrap().answer.clone()
}

async fn found(holders: &Holders, name: &str, targets: &EraseTargets) -> Vec<FoundPlace> {
    let query = ContentQuery::of(targets.selection.clone());
    let page = holders.find_in(name, &query).await.unwrap().answer.unwrap();
    page.found.into_iter().map(|found| found.place).collect()
}

/// What a holder of a test does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Answer,
    Hang,
    Block,
    Panic,
    Flood,
    Names,
}

struct OddHolder {
    name: &'static str,
    does: Behavior,
    /// Holds a thread that blocks, until the test is over.
    gate: Mutex<Receiver<()>>,
    erased: AtomicBool,
}

impl OddHolder {
    fn new(name: &'static str, does: Behavior) -> (Arc<Self>, Sender<()>) {
        let (open, gate) = channel();
        (Arc::new(Self { name, does, gate: Mutex::new(gate), erased: AtomicBool::new(false) }), open)
    }

    async fn odd(&self) {
        match self.does {
            Behavior::Hang => pending().await,
            Behavior::Block => drop(self.gate.lock().unwrap().recv()),
            // As a panic, without the report of it that takes its time.
            Behavior::Panic => std::panic::resume_unwind(Box::new("a fault of this test")),
            Behavior::Answer | Behavior::Flood | Behavior::Names => {}
        }
    }
}

impl ContentHolder for OddHolder {
    fn name(&self) -> &str {
        self.name
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            self.odd().await;
            let mut page = FoundPage::begin(query);
            let long = if self.does == Behavior::Names { 20 << 20 } else { 3 };
            let place = FoundPlace::Row { table: "t".into(), key: "k".repeat(long) };
            let count = if self.does == Behavior::Flood { 1_001 } else { 1 };
            page.found = vec![FoundContent { place, bytes: 1 }; count];
            Ok(page)
        })
    }

    fn erase<'a>(&'a self, _: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(async move {
            self.odd().await;
            self.erased.store(true, Ordering::SeqCst);
            let mut erased = EraseReport::default();
            erased.add(1);
            if self.does == Behavior::Flood {
                let place = FoundPlace::Row { table: "t".into(), key: "k".into() };
                erased.keep(place, KeptReason::Failed, "");
                erased.kept = vec![erased.kept[0].clone(); 1_001];
            }
            Ok(erased)
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        Box::pin(async move {
            self.odd().await;
            Ok(7)
        })
    }
}

#[tokio::test]
async fn holder_that_hangs_panics_or_floods_ends_only_its_own_part() {
    let short = Duration::from_millis(400);
    let mut holders = Holders::new(HolderLimits { find: short, erase: short, bytes: short });
    let mut gates = Vec::new();
    let mut good = Vec::new();
    for (name, does) in [
        ("first", Behavior::Answer),
        ("hangs", Behavior::Hang),
        ("blocks", Behavior::Block),
        ("panics", Behavior::Panic),
        ("floods", Behavior::Flood),
        ("names", Behavior::Names),
        ("last", Behavior::Answer),
    ] {
        let (holder, gate) = OddHolder::new(name, does);
        if does == Behavior::Answer {
            good.push(holder.clone());
        }
        holders.add(holder).unwrap();
        gates.push(gate);
    }
    let late = HolderFault::TimedOut { after: short };
    let panicked = HolderFault::Panicked { message: "a fault of this test".into() };

    let pages = holders.find(&ContentQuery::of(needle("anything").selection)).await;
    for name in ["first", "last"] {
        assert_eq!(of(&pages, name).unwrap().found.len(), 1);
    }
    for (name, fault) in [
        ("hangs", late.clone()),
        ("blocks", late.clone()),
        ("panics", panicked.clone()),
        ("floods", HolderFault::Flooded { given: 1_001, limit: 1_000 }),
        ("names", HolderFault::Flooded { given: (20 << 20) + 2, limit: 16 << 20 }),
    ] {
        assert_eq!(of(&pages, name).unwrap_err(), fault, "{name}");
    }

    let erased = holders.erase(&needle("anything")).await;
    assert!(good.iter().all(|holder| holder.erased.load(Ordering::SeqCst)));
    let names: Vec<&str> = erased.iter().map(|answer| answer.holder.as_str()).collect();
    assert_eq!(names, holders.names());
    assert_eq!(of(&erased, "hangs").unwrap_err(), late);
    assert_eq!(of(&erased, "blocks").unwrap_err(), late);
    assert_eq!(of(&erased, "panics").unwrap_err(), panicked);
    assert_eq!(of(&erased, "floods").unwrap_err(), HolderFault::Flooded { given: 1_001, limit: 1_000 });
    assert_eq!(of(&erased, "last").unwrap().count, 1);

    let bytes = holders.bytes().await;
    assert_eq!(of(&bytes, "last"), Ok(7));
    assert_eq!(of(&bytes, "blocks"), Err(late));
    assert_eq!(of(&bytes, "panics"), Err(panicked));
}

#[test]
fn name_of_a_holder_is_one_and_its_own() {
    struct NamelessHolder;
    impl ContentHolder for NamelessHolder {
        fn name(&self) -> &str {
            panic!("no name")
        }
        fn find<'a>(&'a self, _: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
            Box::pin(async { Ok(FoundPage::default()) })
        }
        fn erase<'a>(&'a self, _: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
            Box::pin(async { Ok(EraseReport::default()) })
        }
        fn bytes(&self) -> HolderFut<'_, u64> {
            Box::pin(async { Ok(0) })
        }
    }
    let root = tempfile::tempdir().unwrap();
    let mut holders = Holders::of(&home(root.path()), None);
    let taken = holders.add(OddHolder::new("outputs", Behavior::Answer).0);
    assert_eq!(taken, Err(AddHolderError::Taken("outputs".into())));
    for name in ["", "Big", "a b", "a/b"] {
        assert_eq!(
            holders.add(OddHolder::new(name, Behavior::Answer).0),
            Err(AddHolderError::Name(name.into()))
        );
    }
    assert_eq!(holders.add(Arc::new(NamelessHolder)), Err(AddHolderError::Panicked));
    let names = ["memory", "store.copies", "outputs", "caches", "written", "permissions"];
    assert_eq!(holders.names(), names);
}

#[tokio::test]
async fn outputs_go_by_session_and_by_what_they_hold() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let root = here.outputs().root().to_owned();
    let (one, other) = ("01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002");
    let file = |session: &str, name: &str, text: &str| {
        std::fs::create_dir_all(root.join(session)).unwrap();
        let path = root.join(session).join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (mine, also) = (file(one, "a.txt", "mine"), file(one, "b.txt", "the tamarind"));
    // What is looked for lies across the windows that are read.
    let across = format!("{}the tamarind{}", "x".repeat((1 << 20) - 5), "y".repeat(100));
    let (theirs, long) = (file(other, "a.txt", "theirs"), file(other, "long.txt", &across));
    let of_another_store = file("@0123456789abcdef", "a.txt", "the tamarind of another store");
    let holders = Holders::of(&here, None);
    let file = |path: &PathBuf| FoundPlace::File { path: path.clone(), line: None };
    assert_eq!(found(&holders, "outputs", &needle("the tamarind")).await, [file(&also), file(&long)]);
    assert_eq!(found(&holders, "outputs", &session(one)).await, [file(&mine), file(&also)]);
    assert_eq!(of(&holders.bytes().await, "outputs"), Ok(4 + 12 + 6 + across.len() as u64));

    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "outputs").unwrap().count, 2);
    assert_eq!(found(&holders, "outputs", &needle("the tamarind")).await, []);
    assert_eq!(of(&holders.erase(&session(one)).await, "outputs").unwrap().count, 1);
    assert_eq!(found(&holders, "outputs", &session(one)).await, []);
    assert_eq!(of(&holders.erase(&session(one)).await, "outputs").unwrap(), EraseReport::default());
    assert_eq!(std::fs::read_to_string(theirs).unwrap(), "theirs");
    assert!(of_another_store.exists());
}

#[tokio::test]
async fn cached_file_goes_unless_a_session_has_its_layers() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let slot = here.cache_layers().join("project-1/0");
    std::fs::create_dir_all(slot.join("upper")).unwrap();
    std::fs::write(slot.join("upper/downloaded"), "the tamarind").unwrap();
    std::fs::write(slot.join("upper/other"), "nothing").unwrap();
    let lock = std::fs::File::create(slot.join("lock")).unwrap();
    lock.lock().unwrap();
    let holders = Holders::of(&here, None);
    let erased = of(&holders.erase(&needle("the tamarind")).await, "caches").unwrap();
    assert_eq!((erased.count, erased.kept_count), (0, 1));
    assert_eq!(erased.kept[0].why, KeptReason::InUse);
    drop(lock);
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "caches").unwrap().count, 1);
    assert_eq!(found(&holders, "caches", &needle("the tamarind")).await, []);
    assert!(slot.join("upper/other").exists());
}

#[tokio::test]
async fn grant_that_names_it_is_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let record = Record::of(&here, Path::new("/work"));
    for subject in ["echo the tamarind", "ls"] {
        record
            .add(PermissionItem::Grant { tool: "bash".into(), subject: subject.into(), files: vec![] })
            .unwrap();
    }
    let holders = Holders::of(&here, None);
    assert_eq!(found(&holders, "permissions", &needle("the tamarind")).await.len(), 1);
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "permissions").unwrap().count, 1);
    assert_eq!(found(&holders, "permissions", &needle("the tamarind")).await, []);
    let left = record.project().unwrap().entries;
    assert_eq!(left.len(), 1);
    assert!(matches!(&left[0].what, PermissionItem::Grant { subject, .. } if subject == "ls"));
    let text = std::fs::read_to_string(root.path().join("permissions.json")).unwrap();
    assert!(!text.contains("tamarind"));
}

#[tokio::test]
async fn text_of_notes_alone_goes_from_their_index_too() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let store = Arc::new(here.open(&OpenOptions::default()).unwrap());
    let file = root.path().join("memory/work-1/MEMORY.md");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "- the tamarind blooms\n- buy bread\n").unwrap();
    let chunk =
        |text: &str| NoteChunk { first: 1, last: 1, text: text.into(), at: 1, author: AuthorClass::Owner };
    let chunks = Some(vec![chunk("the tamarind blooms"), chunk("buy bread")]);
    let note = NoteChange { path: "MEMORY.md".into(), stamp: "1".into(), chunks };
    store.put_notes("work-1", vec![note], None).await.unwrap();
    let raw = || {
        let file = |end: &str| std::fs::read(root.path().join(format!("quipu.db{end}"))).unwrap_or_default();
        String::from_utf8_lossy(&[file(""), file("-wal")].concat()).into_owned()
    };
    assert!(raw().contains("tamarind"));
    let holders = Holders::of(&here, Some(&store));
    let targets = needle("the tamarind blooms");
    assert_eq!(found(&holders, "store.search", &targets).await.len(), 1);
    // The files first: whoever follows them makes the index of what is left.
    assert_eq!(holders.names()[0], "memory");
    let erased = holders.erase(&targets).await;
    assert_eq!(of(&erased, "memory").unwrap().count, 1);
    assert_eq!(of(&erased, "store.search").unwrap().count, 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "- buy bread\n");
    assert!(!raw().contains("tamarind"));
    assert_eq!(found(&holders, "store.search", &targets).await, []);
}

#[tokio::test]
async fn copies_of_the_store_are_named_and_stay() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let copy = root.path().join("quipu.db.bak.v3.1700000000000");
    std::fs::write(&copy, "an old store").unwrap();
    let holders = Holders::of(&here, None);
    let erased = of(&holders.erase(&needle("anything")).await, "store.copies").unwrap();
    assert_eq!((erased.count, erased.kept_count), (0, 1));
    assert_eq!(erased.kept[0].place, FoundPlace::File { path: copy.clone(), line: None });
    assert_eq!(erased.kept[0].why, KeptReason::Copy);
    assert!(copy.exists());
    assert_eq!(of(&holders.bytes().await, "store.copies"), Ok(12));
}

#[tokio::test]
async fn export_goes_as_it_was_written_and_stays_when_it_was_changed() {
    let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let here = home(root.path());
    let at = |name: &str| dir.path().join(name);
    for name in ["a.md", "b.md", "c.html"] {
        std::fs::write(at(name), format!("{name} with the tamarind")).unwrap();
    }
    here.wrote(&at("a.md"), WrittenKind::Export, &["s1".into()]);
    here.wrote(&at("b.md"), WrittenKind::Export, &["s1".into()]);
    here.wrote(&at("c.html"), WrittenKind::Picture, &["s2".into()]);
    std::fs::write(at("b.md"), "with the tamarind and my own notes").unwrap();
    let holders = Holders::of(&here, None);
    assert_eq!(found(&holders, "written", &session("s1")).await.len(), 2);
    assert_eq!(found(&holders, "written", &needle("the tamarind")).await.len(), 3);
    let erased = of(&holders.erase(&session("s1")).await, "written").unwrap();
    assert_eq!((erased.count, erased.kept_count), (1, 1));
    assert_eq!(erased.kept[0].why, KeptReason::Changed);
    assert!(!at("a.md").exists() && at("b.md").exists() && at("c.html").exists());
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "written").unwrap().count, 1);
    assert!(!at("c.html").exists());
    std::fs::remove_file(at("b.md")).unwrap();
    assert_eq!(found(&holders, "written", &needle("the tamarind")).await, []);
}

#[tokio::test]
async fn recording_goes_also_when_it_has_grown() {
    let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let here = home(root.path());
    let path = dir.path().join("tape.jsonl");
    std::fs::write(&path, "{}\n").unwrap();
    here.wrote(&path, WrittenKind::Recording, &["s1".into()]);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"{\"text\":\"the tamarind\"}\n").unwrap();
    let holders = Holders::of(&here, None);
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "written").unwrap().count, 1);
    assert!(!path.exists());
}

#[tokio::test]
async fn session_file_keeps_its_entries_and_its_length() {
    let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let here = home(root.path());
    let path = dir.path().join("session.jsonl");
    let entry = |id: &str, parent: &str, text: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","timestamp":"2026-01-01T00:00:00.000Z","message":{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let header = r#"{"type":"session","version":3,"id":"s1","cwd":"/work"}"#;
    let lines = [
        header.to_owned(),
        entry("e1", "", "hello"),
        entry("e2", "e1", "the tamarind"),
        entry("e3", "e2", "bye"),
    ];
    let text = format!("{}\n", lines.join("\n"));
    std::fs::write(&path, &text).unwrap();
    here.wrote(&path, WrittenKind::SessionFile, &["s1".into()]);
    let holders = Holders::of(&here, None);
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "written").unwrap().count, 1);
    assert_eq!(found(&holders, "written", &needle("the tamarind")).await, []);
    let left = std::fs::read_to_string(&path).unwrap();
    assert_eq!(left.len(), text.len());
    let after: Vec<&str> = left.lines().collect();
    assert_eq!([after[0], after[1], after[3]], [&lines[0], &lines[1], &lines[3]]);
    let erased: serde_json::Value = serde_json::from_str(after[2]).unwrap();
    assert_eq!((erased["id"].as_str(), erased["parentId"].as_str()), (Some("e2"), Some("e1")));
    // All of the session: its first line stays, and so do the ids.
    assert_eq!(of(&holders.erase(&session("s1")).await, "written").unwrap().count, 2);
    assert_eq!(found(&holders, "written", &session("s1")).await, []);
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(left.starts_with(header) && left.contains("e3") && !left.contains("bye"));
}

#[tokio::test]
async fn line_of_a_trace_goes_by_the_ids_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.jsonl");
    std::fs::write(&path, "{\"session\":\"01900000-aa\"}\n{\"session\":\"01900000-bb\"}\n").unwrap();
    // Whoever writes to it has it open all the time.
    let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut holders = Holders::new(HolderLimits::default());
    holders.add(Arc::new(LinesHolder::new("trace", vec![path.clone()]).with_ids())).unwrap();
    assert_eq!(of(&holders.erase(&session("01900000-aa")).await, "trace").unwrap().count, 1);
    assert_eq!(found(&holders, "trace", &session("01900000-aa")).await, []);
    std::io::Write::write_all(&mut writer, b"{\"session\":\"01900000-cc\"}\n").unwrap();
    let left = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        left.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines,
        [
            serde_json::json!({}),
            serde_json::json!({ "session": "01900000-bb" }),
            serde_json::json!({ "session": "01900000-cc" })
        ]
    );
}

#[tokio::test]
async fn file_that_cannot_be_read_is_an_error_and_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a directory");
    std::fs::create_dir(&path).unwrap();
    let holder = LinesHolder::new("lines", vec![path]);
    let error = holder.find(&ContentQuery::of(needle("anything").selection)).await.unwrap_err();
    assert!(error.to_string().contains("a directory"), "{error}");
}

#[tokio::test]
async fn locked_file_is_kept_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.jsonl");
    std::fs::write(&path, "{\"text\":\"the tamarind\"}\n").unwrap();
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let holder = LinesHolder::new("lines", vec![path]);
    let erased = holder.erase(&needle("the tamarind")).await.unwrap();
    assert_eq!((erased.count, erased.kept[0].why), (0, KeptReason::InUse));
    drop(lock);
    assert_eq!(holder.erase(&needle("the tamarind")).await.unwrap().count, 1);
}

#[tokio::test]
async fn too_many_ids_are_refused_and_none_is_left_out() {
    let holder = LinesHolder::new("trace", Vec::new()).with_ids();
    let sessions = |count: usize| (0..count).map(|at| SessionId::from(format!("session {at}"))).collect();
    let most = quipu_store::SELECTED;
    let needles = vec![b"the tamarind".to_vec()];
    let selection = Selection { sessions: sessions(most), needles, ..Selection::default() };
    let error = holder.find(&ContentQuery::of(selection)).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{} items", most + 1)), "{error}");
}

#[tokio::test]
async fn file_that_cannot_be_read_is_told_and_the_others_go() {
    let root = tempfile::tempdir().unwrap();
    let here = home(root.path());
    let at = |name: &str| root.path().join(name);
    for name in ["a.md", "b.md"] {
        std::fs::write(at(name), "the tamarind").unwrap();
        here.wrote(&at(name), WrittenKind::Export, &["s1".into()]);
    }
    // Nobody can open it, not even who may read everything.
    let path = at("list");
    std::fs::create_dir(&path).unwrap();
    let lines = LinesHolder::new("lines", vec![path, at("a.md")]);
    let erased = lines.erase(&needle("the tamarind")).await.unwrap();
    assert_eq!((erased.count, erased.kept_count, erased.kept[0].why), (1, 1, KeptReason::Failed));
    // A name that is too long for the system to look at.
    let list = std::fs::read_to_string(at("written.jsonl")).unwrap();
    std::fs::write(at("written.jsonl"), list.replacen("a.md", &"n".repeat(300), 1)).unwrap();
    let holders = Holders::of(&here, None);
    assert_eq!(found(&holders, "written", &session("s1")).await.len(), 2);
    let erased = of(&holders.erase(&session("s1")).await, "written").unwrap();
    assert_eq!((erased.count, erased.kept_count, erased.kept[0].why), (1, 1, KeptReason::Failed));
    assert!(!at("b.md").exists());
}

#[tokio::test]
async fn line_that_is_no_entry_goes_from_a_session_file() {
    let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let here = home(root.path());
    let path = dir.path().join("session.jsonl");
    let header = r#"{ "type": "session", "id": "s1", "cwd": "/work" }"#;
    let other = r#"{"type":"custom","id":"e1","data":{"type":"session","text":"told"}}"#;
    std::fs::write(&path, format!("{header}\n{other}\n the tamarind\n")).unwrap();
    here.wrote(&path, WrittenKind::SessionFile, &["s1".into()]);
    let holders = Holders::of(&here, None);
    assert_eq!(of(&holders.erase(&needle("the tamarind")).await, "written").unwrap().count, 1);
    let left = std::fs::read_to_string(&path).unwrap();
    assert_eq!(left, format!("{header}\n{other}\n{{}}           \n"));
    // What only names the word is an entry as others are.
    assert_eq!(of(&holders.erase(&session("s1")).await, "written").unwrap().count, 1);
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(left.starts_with(header) && left.contains("e1") && !left.contains("told"));
    assert_eq!(found(&holders, "written", &session("s1")).await, []);
}

#[tokio::test]
async fn pages_follow_the_order_of_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    for name in ["a/b", "a.txt", "a-1"] {
        std::fs::write(dir.path().join(name), "the tamarind").unwrap();
    }
    let holder = FilesHolder::new("files", dir.path().to_owned());
    let mut query = ContentQuery { limit: 1, ..ContentQuery::of(needle("the tamarind").selection) };
    let mut count = 0;
    loop {
        let page = holder.find(&query).await.unwrap();
        count += page.found.len();
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(count, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Lines of anything in two files, and files of anything: what holds the needle goes, all else is as it was.
    #[test]
    fn rest_of_files_is_byte_identical_after_a_needle_is_erased(
        lines in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..40),
        files in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..400), any::<bool>()), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("lines");
            let mut text = Vec::new();
            let mut expected = Vec::new();
            for (line, holds) in &lines {
                let mut line: Vec<u8> = line.iter().copied().filter(|byte| *byte != b'\n').collect();
                if *holds {
                    line.splice(line.len() / 2..line.len() / 2, *b"Qu3rtz!");
                }
                let mut left = line.clone();
                if *holds {
                    left.fill(b' ');
                    left[..2].copy_from_slice(b"{}");
                }
                text.extend([line, b"\n".to_vec()].concat());
                expected.extend([left, b"\n".to_vec()].concat());
            }
            std::fs::write(&path, &text).unwrap();
            let root = dir.path().join("files");
            std::fs::create_dir(&root).unwrap();
            for (at, (bytes, holds)) in files.iter().enumerate() {
                let mut bytes = bytes.clone();
                if *holds {
                    bytes.extend_from_slice(b"Qu3rtz!");
                }
                std::fs::write(root.join(at.to_string()), bytes).unwrap();
            }
            let mut holders = Holders::new(HolderLimits::default());
            holders.add(Arc::new(LinesHolder::new("lines", vec![path.clone()]))).unwrap();
            holders.add(Arc::new(FilesHolder::new("files", root.clone()))).unwrap();
            for answer in holders.erase(&needle("Qu3rtz!")).await {
                prop_assert!(answer.answer.unwrap().kept.is_empty());
            }
            prop_assert_eq!(std::fs::read(&path).unwrap(), expected);
            for (at, (bytes, holds)) in files.iter().enumerate() {
                let left = std::fs::read(root.join(at.to_string())).ok();
                prop_assert_eq!(left, (!holds).then(|| bytes.clone()));
            }
            Ok(())
        })?;
    }
}
