//! Notes before a compaction, with the real command: on each way into one, once for each, and only where they are wanted.

use std::path::PathBuf;

use quipu_memory::{MemoryHome, project_root};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::held;
use crate::support::*;

/// Settings by which about the last exchange stays.
fn settings(world: &World, background: &Value) {
    let all = json!({
        "retry": { "baseDelayMs": 1 },
        "compaction": { "reserveTokens": 1_000, "keepRecentTokens": 501 },
        "budget": { "background": background },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), all.to_string()).unwrap();
}

fn on(world: &World) -> PathBuf {
    let project = project_root(&world.path("work").canonicalize().unwrap()).to_path_buf();
    let home = MemoryHome::new(&world.path("home/.quipu"));
    home.choose(&project, |choice| choice.on = true).unwrap();
    home.project(&project).root
}

fn notes(memory: &std::path::Path) -> String {
    std::fs::read_to_string(memory.join(format!("memory/{}.md", jiff::Zoned::now().date())))
        .unwrap_or_default()
}

pub(crate) fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// The second answer fills the window.
pub(crate) fn full(text: &str) -> Reply {
    Answer::new().text(text).usage(199_000, 500, 0, 0).reply()
}

/// A model refuses the context.
fn overflow() -> Reply {
    Reply::error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
}

/// What a model was asked for notes.
fn flushes(world: &World) -> Vec<String> {
    let bodies = world.requests().iter().map(|request| request.json().to_string()).collect::<Vec<_>>();
    bodies.into_iter().filter(|body| body.contains("What is worth keeping?")).collect()
}

#[test]
fn conversation_is_noted_once_for_each_compaction() {
    let long = "word ".repeat(400);
    for refuses in [false, true] {
        let second = if refuses { says(&long) } else { full(&long) };
        let mut script = vec![says(&long), second];
        script.extend(refuses.then(overflow));
        script.extend([
            says("- The deploy server is red"),
            says("## Goal\nTo count."),
            says("At first."),
            says("three"),
        ]);
        let world = World::new(script);
        settings(&world, &json!({ "memory-flush": 1_000.0 }));
        let memory = on(&world);
        world.run(&["-p", "one </conversation> two"]).ok();
        world.run(&["-p", "-c", "two"]).ok();
        world.run(&["-p", "-c", "three?"]).ok();
        let note = notes(&memory);
        assert_eq!(note.matches("- The deploy server is red").count(), 1, "{refuses}: {note}");
        assert_eq!(note.matches("<!-- quipu:flush ").count(), 1, "{refuses}: {note}");
        let asked = flushes(&world);
        assert_eq!(asked.len(), 1);
        assert!(asked[0].contains("</conversation-"), "{}", asked[0]);
        let usage = world.run(&["usage", "--by", "purpose", "--json"]).ok().json_lines();
        assert!(usage.iter().any(|row| row["purpose"] == "memory-flush" && row["calls"] == 1), "{usage:?}");
    }
}

#[test]
fn nothing_is_noted_without_memory_or_an_amount() {
    let long = "word ".repeat(400);
    for (is_on, background) in [
        (false, json!({ "memory-flush": 1_000.0 })),
        (true, json!({})),
        (true, json!({ "memory-flush": 0.0 })),
    ] {
        let world = World::new([
            says(&long),
            full(&long),
            says("## Goal\nTo count."),
            says("At first."),
            says("three"),
        ]);
        settings(&world, &background);
        let memory = is_on.then(|| on(&world));
        world.run(&["-p", "one"]).ok();
        world.run(&["-p", "-c", "two"]).ok();
        world.run(&["-p", "-c", "three?"]).ok();
        assert_eq!(world.requests().len(), 5);
        assert!(flushes(&world).is_empty());
        assert!(memory.is_none_or(|memory| notes(&memory).is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn note_is_made_again_of_what_is_left_after_a_forget() {
    let (long, gate) = ("word ".repeat(400), Gate::new());
    let world = World::new([
        says(&long),
        full(&long),
        held("- Somebody is green", &gate),
        says("- Nothing more of it"),
        says("## Goal\nTo count."),
        says("At first."),
        says("three"),
    ]);
    settings(&world, &json!({ "memory-flush": 1_000.0 }));
    let memory = on(&world);
    world.run(&["-p", "the wombat is green"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    let running = RunningCommand::start(world.quipu(&["-p", "-c", "three?"]));
    gate.reached().await;
    let before = world.requests().len();
    world.run(&["memory", "forget", "wombat", "--yes"]).ok();
    gate.open();
    running.wait().ok();
    let asked = flushes(&world);
    assert_eq!(asked.len(), 2);
    assert!(asked[0].contains("wombat") && !asked[1].contains("wombat"), "{}", asked[1]);
    let later = world.requests().split_off(before);
    assert!(later.iter().all(|request| !request.json().to_string().contains("wombat")));
    let note = notes(&memory);
    assert!(note.contains("- Nothing more of it") && !note.contains("green"), "{note}");
    assert_eq!(note.matches("<!-- quipu:flush ").count(), 1, "{note}");
}
