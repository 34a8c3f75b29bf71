//! Several processes on one file, and processes that die.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{LineageEnd, ReadModel as _, RefMove, RefName, Store, StoreError, Upkeep};

use crate::child::command;
use crate::foreign::old_file;
use crate::support::*;

/// How many: fewer at the desk than in CI.
fn many(desk: u32, full: u32) -> u32 {
    let full_run = ["CI", "QUIPU_FULL"].iter().any(|name| std::env::var_os(name).is_some());
    if full_run { full } else { desk }
}

#[tokio::test]
async fn two_processes_lose_nothing() {
    let count = many(1000, 10_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let began = Instant::now();
    let children: Vec<_> = ["left", "right"]
        .iter()
        .map(|name| {
            let mut command = command("commits", &path);
            command.env("QUIPU_STORE_COUNT", count.to_string()).env("QUIPU_STORE_SESSION", name);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    println!("two processes, {count} commits each: {:?}", began.elapsed());
    let store = open(&path);
    let mut heads = Vec::new();
    for name in ["left", "right"] {
        let head = store.head(&RefName::session(&SessionId::from(name))).await.unwrap().unwrap();
        assert_eq!(store.lineage(head, LineageEnd::Root).await.unwrap().len(), count as usize);
        assert_eq!(
            store.ancestor(head, count - 1).await.unwrap(),
            Some(head),
            "indexed by whoever came first"
        );
        heads.push(head);
    }
    let published = store.head(&RefName::PI_HEAD.into()).await.unwrap().unwrap();
    assert!(heads.contains(&published));
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.nodes, u64::from(count) * 2);
}

#[tokio::test]
async fn second_writer_of_a_session_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (one, two) = (open(&path), open(&path));
    let session = SessionId::from("shared");
    let name = RefName::session(&session);
    let (root, commit) = step(&session, None, "root", T);
    one.commit(commit).await.unwrap();
    let waiting = two.changed();
    let (left, commit) = step(&session, Some(root), "left", T + 1);
    one.commit(commit).await.unwrap();
    waiting.await.unwrap();
    let (right, commit) = step(&session, Some(root), "right", T + 1);
    let error = two.commit(commit.clone()).await.unwrap_err();
    assert_eq!(error, StoreError::Conflict { name: name.clone(), found: Some(left) });
    assert!(error.to_string().contains("branch"), "{error}");
    // It goes on as a branch of its own.
    let branch = RefName::session(&SessionId::from("branch"));
    let moves = vec![RefMove::swap(branch.clone(), None, right, "branched")];
    two.commit(quipu_store::Commit { moves, ..commit }).await.unwrap();
    assert_eq!(one.head(&branch).await.unwrap(), Some(right));
    assert_eq!(one.head(&name).await.unwrap(), Some(left));
    assert_eq!(one.fork_point(left, right).await.unwrap(), Some(root));
}

#[tokio::test]
async fn every_acknowledged_step_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let mut kept: Vec<NodeId> = Vec::new();
    for round in 0..many(8, 50) {
        let mut child = command("until killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut wanted = 1 + round * 7919 % 97;
        for line in lines.by_ref() {
            let Some(id) = line.unwrap().strip_prefix("kept ").map(|id| id.parse().unwrap()) else {
                continue;
            };
            kept.push(id);
            wanted -= 1;
            if wanted == 0 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died counts as well; its last line may be half.
        for line in lines.map_while(Result::ok) {
            kept.extend(line.strip_prefix("kept ").and_then(|id| id.parse::<NodeId>().ok()));
        }
        let store = open(&path);
        let head = store.head(&RefName::session(&SessionId::from("killed"))).await.unwrap().unwrap();
        let lineage: Vec<NodeId> =
            store.lineage(head, LineageEnd::Root).await.unwrap().iter().map(|node| node.id).collect();
        assert!(lineage.len() >= kept.len() && lineage[..kept.len()] == kept, "round {round}");
        assert_eq!(store.check().await.unwrap().problems, []);
        // At most the one step that was not yet told.
        assert!(lineage.len() <= kept.len() + 1, "{} of {}", lineage.len(), kept.len());
        kept = lineage;
    }
}

#[tokio::test]
async fn two_processes_upgrade_one_file_once() {
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("playfilo.db");
        let ids = old_file(
            &path,
            "CREATE TABLE blobs (hash TEXT PRIMARY KEY, type TEXT NOT NULL, content TEXT NOT NULL);
             CREATE TABLE nodes (id TEXT PRIMARY KEY, parent_id TEXT, role TEXT NOT NULL, parts_list TEXT NOT NULL,
               timestamp INTEGER NOT NULL);",
        );
        let spawn = |_| command("open", &path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let children: Vec<_> = (0..3).map(spawn).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let backups = names.filter(|name| name.to_string_lossy().contains(".bak.v1.")).count();
        assert_eq!(backups, 1);
        let store = open(&path);
        assert_eq!(store.lineage(ids[19], LineageEnd::Root).await.unwrap().len(), 20);
        assert_eq!(store.check().await.unwrap().problems, []);
    }
}

#[tokio::test]
async fn many_processes_make_one_new_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/quipu.db");
    let spawn = |_| command("open", &path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..6).map(spawn).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(open(&path).check().await.unwrap().problems, []);
}
