//! What is kept of the editor, with processes that are killed and processes that write at once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use quipu::Sealer;
use quipu_tui::editor::Editor;
use quipu_tui::{DraftFile, SentFile};

const HOME: &str = "QUIPU_TEST_KEPT_HOME";
const WHO: &str = "QUIPU_TEST_KEPT_WHO";
const DIRECTORY: &str = "/some/project";
const TEXTS: usize = 40;

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new([7; 32]))
}

/// Runs one of the tests below in a process of its own, where it plays its part.
fn start(part: &str, home: &Path, who: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .env(WHO, who)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the process has said a word.
fn wait_for(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(word)), "it ended without a word");
}

/// Keeps a draft, says so, and waits to be killed.
#[test]
fn part_that_writes_a_draft() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let (mut file, found) = DraftFile::claim(Path::new(&home), Path::new(DIRECTORY), &sealer()).unwrap();
    assert_eq!(found, None);
    let mut editor = Editor::default();
    editor.insert(&std::env::var(WHO).unwrap());
    editor.paste(&"a long paste\n".repeat(50_000));
    file.save(&editor.draft()).unwrap();
    println!("KEPT");
    std::io::stdin().lines().next();
}

#[test]
fn drafts_survive_their_processes() {
    let home = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = ["first ", "second "]
        .map(|who| {
            let mut child = start("kept::part_that_writes_a_draft", home.path(), who);
            wait_for(&mut child, "KEPT");
            child
        })
        .into();
    let claim = || DraftFile::claim(home.path(), Path::new(DIRECTORY), &sealer()).unwrap();
    assert_eq!(claim().1, None, "both are at work");
    let mut found = Vec::new();
    let mut places = Vec::new();
    for child in &mut children {
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        let (place, draft) = claim();
        let mut editor = Editor::default();
        editor.restore(&draft.unwrap());
        found.push(editor.text());
        places.push(place);
    }
    let long = "a long paste\n".repeat(50_000);
    assert_eq!(found, [format!("first {long}"), format!("second {long}")]);
    assert_eq!(claim().1, None, "each draft is one process's");
}

/// Adds its texts as soon as it is told to.
#[test]
fn part_that_adds_to_the_history() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let who = std::env::var(WHO).unwrap();
    println!("READY");
    std::io::stdin().lines().next();
    let file = SentFile::new(Path::new(&home), &sealer());
    for at in 0..TEXTS {
        file.append(&format!("{who} {at} {}", "long ".repeat(2_000))).unwrap();
    }
}

#[test]
fn processes_add_to_the_history_at_once() {
    let home = tempfile::tempdir().unwrap();
    let whose = ["a", "b", "c", "d"];
    let mut children = whose.map(|who| {
        let mut child = start("kept::part_that_adds_to_the_history", home.path(), who);
        wait_for(&mut child, "READY");
        child
    });
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let texts = SentFile::new(home.path(), &sealer()).load().unwrap();
    for who in whose {
        let numbers: Vec<usize> = texts
            .iter()
            .filter_map(|text| text.strip_prefix(who)?.split_whitespace().next()?.parse().ok())
            .collect();
        assert_eq!(numbers, (0..TEXTS).collect::<Vec<_>>(), "of {who}, in order");
    }
}
