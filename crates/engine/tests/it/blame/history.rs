//! The history of a repository, each commit a turn: what git tells of its lines is the truth.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{CWD, Disk, Replay, Score, score};

/// Part of the history of this project: a hundred commits and more, with their names taken away.
const BUNDLE: &[u8] = include_bytes!("history.bundle");

fn git(at: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "core.autocrlf=false", "-c", "advice.detachedHead=false"]).args(args);
    command.current_dir(at).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn disk(root: &Path) -> Disk {
    let files = crate::file_travel::tree(root).into_iter().filter(|(name, _)| !name.starts_with(".git/"));
    files.map(|(name, (_, bytes))| (name, String::from_utf8(bytes).unwrap())).collect()
}

/// Whose each line is by git: the place of the commit.
fn truth(root: &Path, name: &str, commits: &HashMap<&str, usize>) -> Vec<Option<usize>> {
    let told = git(root, &["blame", "-M", "-C", "--line-porcelain", "HEAD", "--", name]);
    let mut lines = Vec::new();
    let mut of = None;
    for line in told.lines() {
        if line.starts_with('\t') {
            lines.push(of);
        } else if let Some(at) = line.split(' ').next().and_then(|hash| commits.get(hash)) {
            // The first commit is what a person had.
            of = at.checked_sub(1);
        }
    }
    lines
}

#[tokio::test]
async fn a_public_history_is_told_as_git_tells_it() {
    let dir = crate::support::scratch();
    std::fs::write(dir.path().join("history.bundle"), BUNDLE).unwrap();
    git(dir.path(), &["clone", "-q", "-b", "main", "history.bundle", "work"]);
    let root = dir.path().join("work");
    let log = git(&root, &["log", "--reverse", "--format=%H"]);
    let commits: Vec<&str> = log.lines().collect();
    let mut replay = Replay::new();
    for (at, commit) in commits.iter().enumerate() {
        git(&root, &["checkout", "-q", "-f", commit]);
        let disk = disk(&root);
        if at == 0 {
            replay.found(&disk);
        } else {
            replay.turn("bash", &json!({ "command": format!("./work-on {at}") }), &disk);
        }
    }
    replay.write().await;
    let places: HashMap<&str, usize> = commits.iter().enumerate().map(|(at, commit)| (*commit, at)).collect();
    let now = disk(&root);
    let mut sum = Score::default();
    for name in now.keys() {
        let truth = truth(&root, name, &places);
        let path = format!("{CWD}/{name}");
        sum.add(score(&*replay.store, &replay.turns, &path, &now, &truth).await);
    }
    eprintln!("a public history: {sum}");
    sum.check("a public history");
}
