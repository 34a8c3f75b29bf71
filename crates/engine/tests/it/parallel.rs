//! Calls of one batch that touch the same file.

use quipu::protocol::Outcome;
use serde_json::json;

use crate::support::{World, call};

/// 20 calls on one file: each edit turns line `at` from `old` into `new at`, each read sees all edits before it
/// and none after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_reads_and_edits_of_one_file_are_as_if_sequential() {
    let runs = if std::env::var_os("QUIPU_FULL").is_some() { 1_000 } else { 100 };
    let mut world = World::new();
    world.tools = quipu::builtin();
    let mut live = world.create().await;
    for run in 0..runs {
        if run % 10 == 9 {
            // The model is shown all that was before: a new session keeps that short.
            live.finish().await;
            live = world.create().await;
        }
        let file = world.cwd().join("f");
        let lines: Vec<String> = (0..20).map(|at| format!("line {at:02} old")).collect();
        std::fs::write(&file, lines.join("\n")).unwrap();
        let mut now = lines.clone();
        let mut calls = Vec::new();
        let mut expect = Vec::new();
        for at in 0..20 {
            // Another mixture in each run; some spellings of the same path.
            let path = if (run + at) % 3 == 0 { "./f" } else { "f" };
            if (run * 7 + at * at) % 5 < 2 {
                calls.push(("read", json!({ "path": path })));
                expect.push(now.join("\n"));
            } else {
                let new = format!("line {at:02} new {run}");
                calls.push((
                    "edit",
                    json!({ "path": path, "edits": [{ "oldText": now[at], "newText": new }] }),
                ));
                now[at] = new;
                expect.push(format!("Successfully replaced 1 block(s) in {path}."));
            }
        }
        world.fake.push([call(&calls)]);
        let before = live.results().len();
        assert_eq!(live.run("go").await, Outcome::Done);
        let results: Vec<String> = live.results().drain(before..).map(|(_, text, _)| text).collect();
        assert_eq!(results, expect, "run {run}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), now.join("\n"));
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_waits_for_earlier_edits_and_blocks_later_ones() {
    let mut world = World::with([call(&[
        ("write", json!({ "path": "f", "content": "1" })),
        ("bash", json!({ "command": "cat f; printf 2 > f" })),
        ("read", json!({ "path": "f" })),
        ("edit", json!({ "path": "f", "edits": [{ "oldText": "2", "newText": "3" }] })),
        ("bash", json!({ "command": "cat f" })),
    ])]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let texts: Vec<String> = live.results().into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts[1..3], ["1", "2"]);
    assert_eq!(texts[4], "3");
    live.finish().await;
    world.check().await;
}
