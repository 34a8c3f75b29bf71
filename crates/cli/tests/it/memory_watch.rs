//! Notes that other programs change are in the index without a search, while a front runs whose session has a memory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quipu_memory::{MemoryHome, project_root};
use quipu_store::{OpenOptions, RecallIndex as _, RecallQuery, SqliteStore};
use serde_json::json;

use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

/// How long a test waits: a machine may be busy.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Notes {
    id: String,
    pub(crate) root: PathBuf,
    store: Arc<SqliteStore>,
    runtime: tokio::runtime::Runtime,
}

impl Notes {
    pub(crate) fn of(world: &World) -> Self {
        let project = project_root(&world.path("work").canonicalize().unwrap()).to_path_buf();
        let place = MemoryHome::new(&world.path("home/.quipu")).project(&project);
        std::fs::create_dir_all(place.root.join("memory")).unwrap();
        let store = Arc::new(SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { id: place.id, root: place.root, store, runtime }
    }

    /// Lines that the index has for a word. Nothing is indexed for that.
    fn indexed(&self, word: &str) -> usize {
        let question = word.to_owned();
        let query =
            RecallQuery { question, memories: vec![self.id.clone()], limit: 100, ..RecallQuery::default() };
        self.runtime.block_on(self.store.recall(query, None)).unwrap().hits.len()
    }

    /// How long it takes until the index has so many.
    #[track_caller]
    pub(crate) fn until(&self, word: &str, count: usize) -> Duration {
        let began = Instant::now();
        while self.indexed(word) != count {
            assert!(began.elapsed() < LONG, "{word}: {} of {count}", self.indexed(word));
        }
        began.elapsed()
    }
}

/// Another program writes.
pub(crate) fn put(path: &Path, text: &str) {
    let done =
        Command::new("/bin/sh").args(["-c", "printf %s \"$2\" > \"$1\"", "sh"]).arg(path).arg(text).status();
    assert!(done.unwrap().success());
}

/// What a process has of the kernel's reports.
#[cfg(target_os = "linux")]
fn watches(pid: i32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("inotify")).count()
}

#[test]
fn note_of_another_program_is_indexed_while_a_session_is_open() {
    let world = World::new([]);
    world.run(&["memory", "on"]).ok();
    let notes = Notes::of(&world);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    let (path, inner) =
        (notes.root.join("memory/2026-11-01.md"), notes.root.join("memory/later/2026-11-02.md"));
    put(&path, "- The zebrafish is red.\n");
    notes.until("zebrafish", 1);
    let mut times = Vec::new();
    for number in 0..5 {
        let began = Instant::now();
        put(&path, &format!("- The wombat{number} is blue.\n"));
        notes.until(&format!("wombat{number}"), 1);
        times.push(began.elapsed());
    }
    println!("a changed note was in the index after {times:?}");
    // In a directory that was not there.
    std::fs::create_dir_all(inner.parent().unwrap()).unwrap();
    put(&inner, "- The quokka is green.\n");
    notes.until("quokka", 1);
    std::fs::remove_file(&path).unwrap();
    notes.until("wombat4", 0);
    // Another directory in the place of the memory.
    std::fs::rename(&notes.root, notes.root.with_extension("away")).unwrap();
    notes.until("quokka", 0);
    std::fs::create_dir_all(notes.root.join("memory")).unwrap();
    put(&path, "- The okapi is here.\n");
    notes.until("okapi", 1);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn many_notes_at_once_hold_up_no_turn() {
    let world = World::says("Here I am.");
    world.run(&["memory", "on"]).ok();
    let notes = Notes::of(&world);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    for number in 0..2_000 {
        let text = format!("- The zebrafish {number} is red.\n");
        std::fs::write(notes.root.join(format!("memory/{number}.md")), text).unwrap();
    }
    terminal.types("are you there?\r");
    terminal.settles("Here I am.");
    let indexed = || notes.runtime.block_on(notes.store.indexed_notes(&notes.id)).unwrap().len();
    let began = Instant::now();
    while indexed() < 2_000 {
        assert!(began.elapsed() < LONG, "{}", indexed());
    }
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn notes_are_watched_only_while_memory_is_on() {
    let world = World::new([]);
    let threads = |pid: i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap()).collect::<Vec<_>>()
    };
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    let pid = terminal.pid().as_raw();
    assert_eq!(watches(pid), 0, "{:?}", threads(pid));
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    // Switched off while it runs, what was watched is let go of.
    world.run(&["memory", "on"]).ok();
    let notes = Notes::of(&world);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    put(&notes.root.join("MEMORY.md"), "- The zebrafish is red.\n");
    notes.until("zebrafish", 1);
    let pid = terminal.pid().as_raw();
    assert_eq!(watches(pid), 1);
    world.run(&["memory", "off"]).ok();
    let began = Instant::now();
    while watches(pid) > 0 {
        assert!(began.elapsed() < LONG);
    }
    // And on again: the same session follows it.
    world.run(&["memory", "on"]).ok();
    let began = Instant::now();
    while watches(pid) == 0 {
        assert!(began.elapsed() < LONG);
    }
    put(&notes.root.join("MEMORY.md"), "- The okapi is green.\n");
    notes.until("okapi", 1);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn served_session_with_a_memory_has_its_notes_indexed() {
    let world = World::new([]);
    world.run(&["memory", "on"]).ok();
    std::fs::write(
        world.path("home/.quipu/settings.json"),
        json!({ "memory": { "shared": true } }).to_string(),
    )
    .unwrap();
    let notes = Notes::of(&world);
    let mut command = world.quipu(&["serve"]);
    command.stdin(Stdio::piped());
    let mut serve = RunningCommand::start(command);
    let mut stdin = serve.child.stdin.take().unwrap();
    let open = json!({ "type": "open", "id": 1, "cwd": world.path("work") });
    write!(stdin, "{}\n{open}\n", json!({ "type": "hello", "version": 2 })).unwrap();
    while !serve.line().unwrap().contains("\"opened\"") {}
    put(&notes.root.join("MEMORY.md"), "- The zebrafish is red.\n");
    notes.until("zebrafish", 1);
    drop(stdin);
    serve.wait().ok();
}
