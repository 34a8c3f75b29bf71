//! What memory asks models for, with a model that has a price: each part counts its calls, tokens and cost.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::dreams::{distilled, ready, settings};
use crate::flush::{full, says};
use crate::schedule_jobs::add;
use crate::support::*;

#[test]
fn week_tells_calls_tokens_and_cost_of_each_part() {
    let world = World::new([]);
    let money = json!({ "background": { "dream": 1_000, "memory-flush": 1_000, "active-memory": 1_000 } });
    // About the last exchange stays behind a compaction.
    let compaction = json!({ "reserveTokens": 1_000, "keepRecentTokens": 501 });
    settings(&world, &json!({ "budget": money, "compaction": compaction }));
    ready(&world);
    world.server.push(distilled("Deploys go to the red server in Oslo"));
    world.run(&["dream", "--now"]).ok();
    let long = "word ".repeat(400);
    let noted = Answer::new().text("- The pump is blue").usage(20, 30, 0, 0).reply();
    let script =
        [says(&long), full(&long), noted, says("## Goal\nTo count."), says("At first."), says("three")];
    script.into_iter().for_each(|reply| world.server.push(reply));
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["-p", "-c", "three?"]).ok();
    world.run(&["config", "set", "memory.active.mode", "always"]).ok();
    world.server.push(Answer::new().text("It is in Oslo.").usage(7, 3, 0, 0).reply());
    world.server.push(says("In Oslo."));
    world.run(&["-p", "Where does the deploy server live?"]).ok();
    add(&world, &["--budget", "50", "--notify", "none", "x"]);
    world.server.push(Answer::new().text("Done.").usage(5, 6, 0, 0).reply());
    world.run(&["schedule", "run", "job"]).ok();

    let near = |cost: &Value, expect: f64| (cost.as_f64().unwrap() - expect).abs() < 1e-9;
    let usage = world.run(&["usage", "--by", "purpose", "--json"]).ok().json_lines();
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let parts = status["week"].as_array().unwrap();
    assert_eq!(status["behind"], 0);
    // A dollar for a thousand tokens of each kind.
    for (purpose, input, output) in
        [("dream", 10, 100), ("memory-flush", 20, 30), ("active-memory", 7, 3), ("schedule", 5, 6)]
    {
        let (tokens, cost) = (input + output, f64::from(input + output) / 1_000.0);
        let row = usage.iter().find(|row| row["purpose"] == purpose).unwrap();
        assert_eq!(
            (&row["calls"], &row["input"], &row["output"]),
            (&json!(1), &json!(input), &json!(output))
        );
        assert!(near(&row["cost"], cost), "{row}");
        // A job is no part of memory.
        let Some(part) = parts.iter().find(|part| part["purpose"] == purpose) else {
            assert_eq!(purpose, "schedule");
            continue;
        };
        assert_eq!((&part["calls"], &part["tokens"]), (&json!(1), &json!(tokens)), "{part}");
        assert!(near(&part["cost"], cost), "{part}");
    }
    let shown = world.run(&["memory", "status"]).ok().text();
    for line in [
        "dream this week: 1 calls, 110 tokens, $0.1100",
        "memory-flush this week: 1 calls, 50 tokens, $0.0500",
        "active-memory this week: 1 calls, 10 tokens, $0.0100",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}
