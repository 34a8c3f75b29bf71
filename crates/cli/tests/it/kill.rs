//! `kill -9` at any moment of a running task: every acknowledged step is there, the session goes on, and nothing
//! runs twice.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// A task of four turns. Each command leaves a line in `ran`, and each line must be there once at most.
fn task(round: u64) -> Vec<Reply> {
    let effect = |name: &str, more: &str| {
        json!({ "command": format!("echo {name}-{round} >> ran{more}") }).to_string()
    };
    let edit = json!({ "path": "notes.txt", "edits": [{ "oldText": "one", "newText": "one, two" }] });
    vec![
        Answer::new()
            .text("I begin with three things at once.")
            .tool_call("c1", "bash", &effect("a", ""))
            .tool_call("c2", "bash", &effect("b", "; seq 3000"))
            .tool_call("c3", "read", r#"{"path":"notes.txt"}"#)
            .reply(),
        Answer::new()
            .thinking("Then one that writes.", "c2ln")
            .tool_call("c4", "write", &json!({ "path": "notes.txt", "content": "one\n" }).to_string())
            .tool_call("c5", "edit", &edit.to_string())
            .reply(),
        Answer::new().text("And one more.").tool_call("c1", "bash", &effect("c", "; echo done")).reply(),
        Answer::new().text("That is all. ".repeat(20).trim()).reply(),
    ]
}

/// How many events such a task has, about.
const EVENTS: u64 = 70;

#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn at_any_moment() {
    let full = std::env::var_os("QUIPU_FULL").is_some();
    let rounds: u64 = if full { 1000 } else { 50 };
    let seed: u64 = match std::env::var("QUIPU_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => {
            u64::from(std::process::id()) << 20 | u64::from(Instant::now().elapsed().subsec_nanos()) | 1
        }
    };
    println!("QUIPU_SEED={seed}");
    // As many as there are processors; each has a world and a seed of its own.
    let (next, pruned) = (AtomicU64::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // A session that has grown is killed as well as a new one, but not all its history is checked
                // each time.
                loop {
                    let first = next.fetch_add(5, Ordering::Relaxed);
                    if first >= rounds {
                        return;
                    }
                    let mut world = World::new([]);
                    world.file("notes.txt", "nothing yet\n");
                    // In every second world old results are left out of requests as soon as there are some.
                    if first % 10 == 5 {
                        let prune = json!({
                            "enabled": true, "triggerPercent": 1, "clearAtLeastPercent": 1, "keepTurns": 1,
                            "minCharacters": 2000,
                        });
                        let settings =
                            json!({ "retry": { "baseDelayMs": 1 }, "context": { "prune": prune } });
                        std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string())
                            .unwrap();
                    }
                    let mut done = KillLog::default();
                    for round in first..rounds.min(first + 5) {
                        one(&mut world, round, Random(seed.wrapping_mul(round * 2 + 1) | 1), &mut done);
                    }
                    let nodes = world.nodes().into_iter();
                    let steps = nodes.filter(|node| node["entry"]["customType"] == "quipu.prune").count();
                    pruned.fetch_add(steps, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(pruned.load(Ordering::Relaxed) > 0, "results were left out in between");
}

#[derive(Default)]
struct KillLog {
    /// Nodes that were acknowledged, of all rounds.
    acknowledged: HashSet<String>,
}

fn one(world: &mut World, round: u64, mut random: Random, done: &mut KillLog) {
    world.another_server(task(round));
    let args = if round.is_multiple_of(5) {
        vec!["-p", "--mode", "json", "do it"]
    } else {
        vec!["-p", "-c", "--mode", "json", "do it"]
    };
    let mut running = world.start(&args);
    // Each tenth dies before it says a word, somewhere between its start and its first step.
    let early = random.below(10) == 0;
    let lines = if early { 0 } else { random.below(EVENTS) };
    for _ in 0..lines {
        if running.line().is_none() {
            break;
        }
    }
    // Then somewhere within the next step.
    let until = Instant::now() + Duration::from_micros(random.below(if early { 100_000 } else { 4_000 }));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    kill(running.pid(), Signal::SIGKILL).unwrap();
    let ran = running.wait();
    let context = format!("round {round}, after {lines} lines");

    // Every node that was named is there.
    let named = ran
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|event| event["node"].as_str().map(str::to_owned))
        .collect::<Vec<_>>();
    done.acknowledged.extend(named.iter().cloned());
    let kept = if world.store().exists() { ids(world) } else { HashSet::new() };
    for node in &done.acknowledged {
        assert!(kept.contains(node), "{context}: {node} was acknowledged and is lost");
    }
    let doctor = world.run(&["doctor", "--json"]).ok().json();
    assert_eq!(doctor["healthy"], true, "{context}: {doctor}");

    // It goes on with a request that the wire accepts, and runs nothing again.
    let ran_before = effects(world);
    world.another_server([Answer::new().text("On I go.").reply()]);
    let ran = world.run(&["-p", "-c", "go on"]).ok();
    assert_eq!(ran.text(), "On I go.\n", "{context}");
    valid(world.requests().last().unwrap(), &context);
    assert_eq!(effects(world), ran_before, "{context}: something ran again");
    for (effect, times) in effects(world) {
        assert_eq!(times, 1, "{context}: {effect} ran {times} times");
    }
    let kept = ids(world);
    assert!(done.acknowledged.iter().all(|node| kept.contains(node)), "{context}");
}

pub(crate) fn ids(world: &World) -> HashSet<String> {
    let mut ids = HashSet::new();
    for session in world.sessions() {
        for node in world.nodes_of(&[session["id"].as_str().unwrap()]) {
            ids.insert(node["id"].as_str().unwrap().to_owned());
        }
    }
    ids
}

pub(crate) fn effects(world: &World) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for line in std::fs::read_to_string(world.path("work/ran")).unwrap_or_default().lines() {
        *times.entry(line.to_owned()).or_default() += 1;
    }
    times
}

/// What the wire asks of a conversation: it begins and ends with the user, every call has its result in the next
/// message, every result a call in the one before, and ids are used once.
fn valid(request: &quipu_testkit::CapturedRequest, context: &str) {
    let said = messages(request);
    let blocks = |message: &Value, kind: &str| -> Vec<String> {
        let id = if kind == "tool_use" { "id" } else { "tool_use_id" };
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        let blocks = blocks.iter().filter(|block| block["type"] == kind);
        blocks.map(|block| block[id].as_str().unwrap().to_owned()).collect()
    };
    let mut seen = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for message in &said {
        let mut results = blocks(message, "tool_result");
        results.sort();
        open.sort();
        assert_eq!(results, open, "{context}: {said:?}");
        open = blocks(message, "tool_use");
        assert!(open.is_empty() || message["role"] == "assistant", "{context}: {said:?}");
        assert!(open.iter().all(|id| seen.insert(id.clone())), "{context}: an id twice: {said:?}");
        assert!(
            message["content"].as_array().is_some_and(|content| !content.is_empty()),
            "{context}: {said:?}"
        );
    }
    assert!(open.is_empty(), "{context}: {said:?}");
    for end in [said.first(), said.last()] {
        assert_eq!(end.unwrap()["role"], "user", "{context}: {said:?}");
    }
    let answers = said.windows(2).filter(|pair| pair.iter().all(|message| message["role"] == "assistant"));
    assert_eq!(answers.count(), 0, "{context}: {said:?}");
}
