//! Summaries of the past by a model: only when a budget says so, for what was estimated, and each paid for once.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, CapturedRequest, Gate, Reply};
use serde_json::{Value, json};

use crate::past::{hours, import};
use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

/// Tokens and bytes of a summary of nodes, and of one of summaries.
const LEAF: u64 = 512;
const PARENT: u64 = 768;
const TOKEN: u64 = 4;

/// A world with eight turns of an hour each: eight leaves and a parent.
pub(crate) fn world(script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    world.unchecked();
    price(&world);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 8));
    world
}

/// What the past may cost a day.
pub(crate) fn allow(world: &World, dollars: f64) {
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "budget": { "background": { "past": dollars } } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

fn said(nth: usize) -> Reply {
    Answer::new().text(&format!("The work went on, part {nth}.")).usage(10, 500, 0, 0).reply()
}

/// Tokens of a request, as they are counted.
fn tokens(request: &CapturedRequest) -> u64 {
    fn texts(value: &Value) -> u64 {
        match value {
            Value::String(text) => text.len() as u64,
            Value::Array(blocks) => blocks.iter().map(|block| texts(&block["text"])).sum(),
            _ => 0,
        }
    }
    let body = request.json();
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1);
    (texts(&body["system"]) + texts(&messages[0]["content"])).div_ceil(TOKEN)
}

fn build(world: &World) -> Value {
    world.run(&["past", "build", "--json"]).ok().json()
}

#[test]
fn no_model_is_asked_until_a_budget_says_so() {
    let world = world([]);
    for amount in [None, Some(0.0)] {
        amount.inspect(|amount| allow(&world, *amount));
        let estimated = world.run(&["past", "estimate", "--json"]).ok().json();
        assert_eq!(
            (&estimated["calls"], &estimated["cost"], &estimated["model"]),
            (&json!(0), &json!(0), &Value::Null)
        );
    }
    build(&world);
    allow(&world, 100.0);
    let estimated = world.run(&["past", "estimate", "--json"]).ok().json();
    assert_eq!((&estimated["calls"], &estimated["superseded"]), (&json!(9), &json!(9)));
    let extractive = world.run(&["past", "build", "--extractive", "--json"]).ok().json();
    assert_eq!((&extractive["leaves"], &extractive["calls"]), (&json!(0), &json!(0)));
    assert!(world.requests().is_empty());
}

#[test]
fn build_has_the_calls_tokens_and_cost_of_its_estimate() {
    let full = |tokens: u64| {
        "word ".repeat(usize::try_from(tokens * TOKEN).unwrap() / 5 + 1)
            [..usize::try_from(tokens * TOKEN).unwrap() - 1]
            .to_owned()
            + "."
    };
    let answers = |input: &[u64]| -> Vec<Reply> {
        let of = |(nth, input): (usize, &u64)| {
            let most = if nth < 8 { LEAF } else { PARENT };
            Answer::new().text(&full(most)).usage(*input, most, 0, 0).reply()
        };
        input.iter().enumerate().map(of).collect()
    };
    // Once to see what is sent: a server counts it.
    let seen = world(answers(&[1; 9]));
    allow(&seen, 100.0);
    build(&seen);
    let sent: Vec<u64> = seen.requests().iter().map(tokens).collect();
    let world = world(answers(&sent));
    allow(&world, 100.0);
    let estimated = world.run(&["past", "estimate", "--json"]).ok().json();
    assert!(world.requests().is_empty());
    assert_eq!(estimated["calls"], 9);
    assert_eq!(estimated["inputTokens"], sent.iter().sum::<u64>());
    assert_eq!(estimated["outputTokens"], 8 * LEAF + PARENT);
    assert_eq!(estimated["model"], format!("testing/{MODEL}"));
    let mut built = build(&world);
    let (cost, expected) = (built["cost"].as_f64().unwrap(), estimated["cost"].as_f64().unwrap());
    assert!((cost - expected).abs() < 1e-9 && (cost - 4.864).abs() < 1e-9, "{cost} and {expected}");
    built["cost"] = estimated["cost"].clone();
    assert_eq!(built, estimated);
    assert_eq!(world.requests().iter().map(tokens).collect::<Vec<_>>(), sent);
    let usage = world.run(&["usage", "--by", "purpose", "--json"]).ok().json_lines();
    let past = usage.iter().find(|row| row["purpose"] == "past").unwrap();
    assert!(past["calls"] == 9 && (past["cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{usage:?}");
    // The chunk says how it was made.
    let root = world.run(&["past", "--json"]).ok().json_lines().remove(0);
    assert_eq!(
        (&root["method"]["by"], &root["method"]["model"]),
        (&json!("model"), &json!(format!("testing/{MODEL}")))
    );
    assert_eq!(root["method"]["prompt"].as_str().unwrap().len(), 64);
    assert!(root["summary"].as_str().unwrap().starts_with("word word"));
    // The past of all sessions has the same answers: nobody pays twice.
    let all = world.run(&["past", "build", "--all", "--json"]).ok().json();
    assert_eq!((&all["recorded"], &all["calls"], &all["cost"]), (&json!(9), &json!(0), &json!(0)));
    assert_eq!(world.requests().len(), 9);
}

#[test]
fn build_that_is_killed_at_each_call_pays_for_none_twice() {
    let gates: Vec<Gate> = (0..9).map(|_| Gate::new()).collect();
    let script = gates.iter().enumerate().flat_map(|(nth, gate)| [Reply::sse("").then_gate(gate), said(nth)]);
    let world = world(script);
    allow(&world, 100.0);
    for (nth, gate) in gates.iter().enumerate() {
        let building = world.start(&["past", "build"]);
        reached(gate);
        building.signal(Signal::SIGKILL);
        building.wait();
        let left = world.run(&["past", "estimate", "--json"]).ok().json();
        assert_eq!(left["calls"], 9 - nth, "what was answered is there");
    }
    let built = build(&world);
    assert_eq!((&built["calls"], &built["left"]), (&json!(1), &Value::Null));
    let bodies: Vec<Value> = world.requests().iter().map(CapturedRequest::json).collect();
    assert_eq!(bodies.len(), 18);
    let prompts: Vec<String> = bodies.iter().map(|body| body["messages"].to_string()).collect();
    for (nth, pair) in prompts.chunks(2).enumerate() {
        assert_eq!(pair[0], pair[1], "only what was never answered is asked again");
        assert!(!prompts[..nth * 2].contains(&pair[0]), "an answer was asked for twice");
    }
    assert_eq!(build(&world)["calls"], 0);
    let check = world.run(&["past", "check", "--json"]).ok().json();
    assert_eq!(
        (&check["levels"], &check["roots"], &check["faultCount"]),
        (&json!([8, 1]), &json!(1), &json!(0))
    );
}

#[test]
fn budget_of_the_past_is_never_exceeded_and_the_rest_is_shown() {
    let world = world((0..9).map(said));
    // Half a dollar for each call; one may cost up to 51.2 cents.
    allow(&world, 2.0);
    let stopped = world.run(&["past", "build", "--json"]);
    let told = stopped.fails(5, &["budget.background", "6 chunks left", "at most $", "goes on from there"]);
    let built: Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!(
        (&built["calls"], &built["leaves"], &built["left"]["left"]["calls"]),
        (&json!(3), &json!(3), &json!(6))
    );
    assert_eq!((built["left"]["budget"].as_bool(), built["cost"].as_f64()), (Some(true), Some(1.5)));
    assert_eq!(world.requests().len(), 3);
    world.run(&["past", "build"]).fails(5, &["6 chunks left"]);
    assert_eq!(world.requests().len(), 3, "nothing is asked without money");
    allow(&world, 100.0);
    let rest = build(&world);
    assert_eq!((&rest["calls"], &rest["parents"]), (&json!(6), &json!(1)));
    assert_eq!(world.requests().len(), 9);
}

#[test]
fn answer_that_never_comes_leaves_the_rest_for_the_next_build() {
    let refused = Reply::error(403, "permission_error", "this key may not");
    let world = world([said(0), refused].into_iter().chain((1..9).map(said)));
    allow(&world, 100.0);
    world.run(&["past", "build"]).fails(1, &["this key may not", "8 chunks left"]);
    assert_eq!(build(&world)["calls"], 8);
    assert_eq!(world.requests().len(), 10);
}

#[test]
fn request_that_is_invalid_for_one_chunk_does_not_end_builds() {
    let refused = || Reply::error(400, "invalid_request_error", "no such parameter");
    let script = [said(0), refused()].into_iter().chain((1..8).map(said)).chain([refused(), refused()]);
    let world = world(script);
    allow(&world, 100.0);
    let built = build(&world);
    assert_eq!((&built["replacedCount"], &built["left"]), (&json!(1), &Value::Null));
    assert!(built["replaced"][0]["why"].as_str().unwrap().contains("no such parameter"), "{built}");
    assert_eq!(world.requests().len(), 9);
    // It is asked for once more by each of two builds, and then no more.
    for sent in [10, 11, 11] {
        build(&world);
        assert_eq!(world.requests().len(), sent);
    }
    let shown = world.run(&["past", built["replaced"][0]["range"].as_str().unwrap()]).ok().text();
    assert!(shown.contains("extractive") && shown.contains("no such parameter"), "{shown}");
    // A model that takes no request is not asked for all.
    let world = self::world((0..9).map(|_| refused()));
    allow(&world, 100.0);
    world.run(&["past", "build"]).fails(1, &["no such parameter", "7 chunks left"]);
    assert_eq!(world.requests().len(), 3);
}

#[test]
fn parallel_builds_stay_within_the_budget_together() {
    let gate = Gate::new();
    let held = Reply::sse("")
        .then_gate(&gate)
        .then(Answer::new().text("The work went on, part 0.").usage(10, 500, 0, 0).stream());
    let world = world([held].into_iter().chain((1..9).map(said)));
    // One call may cost up to 51.2 cents.
    let settings = json!({ "budget": { "background": { "past": 0.6 }, "waitMs": 1 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let first = world.start(&["past", "build"]);
    reached(&gate);
    // Another past, so that nothing but the money is in its way.
    world.run(&["past", "build", "--all"]).fails(5, &["budget.background", "9 chunks left"]);
    assert_eq!(world.requests().len(), 1, "what the first one may cost is reserved");
    gate.open();
    first.wait().exits(5);
    assert_eq!(world.requests().len(), 1);
}

#[test]
fn answers_that_are_no_summaries_are_replaced_and_told() {
    let hidden = "\u{200b}\u{e0041}\u{202e}".repeat(20);
    let large = "All went well. ".repeat(700_000);
    for (answer, why) in [
        (" \n", "the answer is empty"),
        (&hidden, "the answer is empty"),
        ("I cannot help with that.", "the model declined"),
        (&large, "large"),
    ] {
        let text = |text: &str| Answer::new().text(text).usage(10, 500, 0, 0).reply();
        let world = World::new([text(answer)]);
        world.unchecked();
        price(&world);
        import(&world, "a.jsonl", &hours(&world, "alpha", 0, 1));
        allow(&world, 100.0);
        let built = build(&world);
        assert_eq!((&built["leaves"], &built["replacedCount"]), (&json!(1), &json!(1)), "{why}");
        if why != "large" {
            assert_eq!(built["replaced"][0]["why"], why);
        }
        let chunk = world.run(&["past", "2025-01-01", "--json"]).ok().json();
        assert_eq!(
            (&chunk["method"]["by"], &chunk["method"]["instead"]["model"]),
            (&json!("extractive"), &json!(format!("testing/{MODEL}")))
        );
        assert!(world.run(&["past", "2025-01-01"]).ok().text().contains("gave no summary"));
        let sent = world.requests().len();
        build(&world);
        assert_eq!(world.requests().len(), sent, "it is not asked again");
    }
}

#[test]
fn past_is_built_by_a_job_and_after_a_session() {
    let world = world((0..9).map(said));
    let add = ["schedule", "add", "past", "--every", "6h"];
    assert_eq!(world.run(&add).ok().text(), "past/1\n");
    allow(&world, 2.0);
    world.run(&["schedule", "run", "past/1"]).ok();
    let log = world.run(&["schedule", "log", "past/1", "--json"]).ok().json_lines();
    assert_eq!((&log[0]["state"], log[0]["cost"].as_f64()), (&json!("limit"), Some(1.5)), "{log:?}");
    assert!(log[0]["text"].as_str().unwrap().starts_with("3 summaries made"), "{log:?}");
    allow(&world, 100.0);
    world.run(&["schedule", "run", "past/1"]).ok();
    let log = world.run(&["schedule", "log", "past/1", "--json"]).ok().json_lines();
    assert_eq!((&log[0]["state"], world.requests().len()), (&json!("done"), 9), "{log:?}");
    world.run(&["schedule", "add", "past", "--all", "--agent", "pi", "--in", "1h"]).fails(2, &["--agent"]);
    world
        .run(&["schedule", "add", "past", "--agent", "nosuch", "--in", "1h"])
        .fails(2, &["no session is of"]);

    let world = World::says("Hello.");
    world.unchecked();
    world.run(&["-p", "hi"]).ok();
    assert_eq!(world.run(&["schedule", "list", "--json"]).ok().text(), "", "off until somebody says so");
    world.run(&["config", "set", "past.build", "after-session"]).ok();
    world.server.push(Answer::new().text("Again.").reply());
    world.run(&["-p", "-c", "hi"]).ok();
    let jobs = world.run(&["schedule", "list", "--json"]).ok().json_lines();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let key = job["key"].as_str().unwrap();
    assert!(key.starts_with("past-project-"), "{job}");
    let wait = (job["due"].as_i64().unwrap() - quipu_host::now()) / 60_000;
    assert!((28..=31).contains(&wait), "when the conversation counts as over: {wait}");
    world.run(&["schedule", "run", key]).ok();
    let log = world.run(&["schedule", "log", key, "--json"]).ok().json_lines();
    assert_eq!(log[0]["state"], "done", "{log:?}");
}

/// A job builds it in the process of the session, and its model says nothing yet.
#[test]
fn turn_does_not_wait_for_a_build_of_the_past() {
    let gate = Gate::new();
    let summary = Answer::new().text("The work went on, part 0.").usage(10, 500, 0, 0).stream();
    let held = Reply::sse("").then_gate(&gate).then(summary);
    let answer = Answer::new().text("Nobody waited.").reply();
    let world = world([held, answer].into_iter().chain((1..9).map(said)));
    allow(&world, 100.0);
    world.run(&["schedule", "add", "past", "--every", "10s"]).ok();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    reached(&gate);
    terminal.types("hello\r");
    terminal.shows("Nobody waited.");
    let made = || world.run(&["past", "estimate", "--json"]).ok().json()["calls"].clone();
    assert_eq!(made(), 9, "the build goes on behind the turn");
    gate.open();
    while made() != 0 {
        std::thread::yield_now();
    }
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
