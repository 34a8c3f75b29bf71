//! What an agent or a job may use in a day, over all of its sessions and processes. A thousand tokens of an answer cost a dollar,
//! and input costs nothing, so that what a call can cost is known to the cent: two dollars at most.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::budget::{allowed, answers, priced, tokens};
use crate::schedule_jobs::{jobs, log};
use crate::support::*;

fn set(world: &World, agents: &Value) {
    let text = json!({
        "retry": { "baseDelayMs": 1 }, "budget": { "waitMs": 1 }, "agents": { "byId": agents },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), text.to_string()).unwrap();
}

fn ops(daily: f64) -> Value {
    json!({ "ops": { "budget": { "daily": daily } } })
}

/// What `quipu doctor` says of the budgets of agents: states and details.
fn doctor(world: &World) -> Vec<(String, String)> {
    let found: Value = serde_json::from_slice(&world.run(&["doctor", "--json"]).out).unwrap();
    let found = found["findings"].as_array().unwrap().iter().filter(|one| one["what"] == "agent budget");
    found.map(|one| (one["state"].as_str().unwrap().into(), one["detail"].as_str().unwrap().into())).collect()
}

#[test]
fn agent_stops_at_its_daily_budget_and_others_go_on() {
    let world = priced(answers(6));
    set(&world, &ops(2.5));
    assert_eq!(doctor(&world), [("good".into(), "`ops`: $0.00 of $2.50 used today".into())]);
    world.run(&["-p", "--agent", "ops", "one"]).ok();
    let ran = world.run(&["-p", "--agent", "ops", "two"]).ok();
    assert!(ran.err.contains("the answer is limited to 1500 tokens instead of 2000"), "{}", ran.err);
    let ran = world.run(&["-p", "--agent", "ops", "three"]);
    for words in [
        "the next call may use $1.02, and $0.50 of the daily budget of the agent `ops` is left",
        "$2.00 of $2.50 used today",
        "begins anew at midnight",
        "`agents.byId.ops.budget.daily` in the settings",
        "quipu -p --agent ops -c",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    ran.exits(5);
    assert_eq!(allowed(&world), [2_000, 1_500], "nothing is sent");
    let ran = world.run(&["-p", "--agent", "ops", "-c", "--mode", "json"]).exits(5);
    let lines = ran.json_lines();
    let end = &lines.iter().find(|line| line["type"] == "agent_end").unwrap()["outcome"];
    assert_eq!(
        (&end["kind"], &end["holder"], &end["name"], &end["spent"], &end["budget"]),
        (&json!("accountBudget"), &json!("agent"), &json!("ops"), &json!(2.0), &json!(2.5))
    );
    // What is kept nowhere counts what is kept; nobody else is in the way.
    world.run(&["-p", "--agent", "ops", "--no-session", "x"]).exits(5);
    world.run(&["-p", "x"]).ok();
    assert_eq!(doctor(&world)[0], ("good".into(), "`ops`: $2.00 of $2.50 used today".into()));
    set(&world, &ops(4.0));
    world.run(&["-p", "--agent", "ops", "four"]).ok();
    world.run(&["-p", "--agent", "nobody", "x"]).fails(2, &["no agent `nobody` is set up"]);
}

#[test]
fn agent_without_a_readable_budget_calls_no_model() {
    let world = priced(answers(1));
    for budget in [json!("much"), json!({ "daily": -1 }), json!({ "dailyTokens": 1.5 }), json!({ "day": 1 })]
    {
        set(&world, &json!({ "ops": { "budget": budget } }));
        let ran = world.run(&["-p", "--agent", "ops", "x"]).exits(5);
        assert!(
            ran.err.contains("the agent `ops` may call no model: its daily budget is 0, or cannot be read"),
            "{budget}: {}",
            ran.err
        );
        let found = String::from_utf8(world.run(&["doctor"]).out).unwrap();
        assert!(found.contains("agents.byId.ops.budget must be an object with `daily`"), "{budget}: {found}");
    }
    set(&world, &json!(["ops"]));
    assert!(world.run(&["-p", "--agent", "ops", "x"]).exits(5).err.contains("may call no model"));
    assert_eq!(world.requests().len(), 0);
    world.run(&["-p", "x"]).ok();
}

#[test]
fn processes_of_an_agent_together_stay_within_its_budget() {
    let gate = Gate::new();
    let step = |at: usize| {
        Answer::new().tool_call(&format!("c{at}"), "bash", r#"{"command":"true"}"#).usage(10, 1_000, 0, 0)
    };
    // The first three are under way at the same time.
    let held = (0..3).map(|at| Reply::sse("").then_gate(&gate).then(step(at).stream()));
    let world = priced(held.chain((3..40).map(|at| step(at).reply())));
    set(&world, &ops(7.5));
    let running = ["one", "two", "three"].map(|task| world.start(&["-p", "--agent", "ops", task]));
    for _ in 0..3 {
        reached(&gate);
    }
    gate.open();
    for one in running {
        let ran = one.wait().exits(5);
        assert!(ran.err.contains("of $7.50 used today"), "{}", ran.err);
    }
    let spent: f64 = world.sessions().iter().map(|row| row["cost"].as_f64().unwrap()).sum();
    assert!((5.0..=7.5).contains(&spent), "{spent}");
    let said = format!("`ops`: ${spent:.2} of $7.50 used today");
    assert_eq!(doctor(&world)[0].1, said, "the calls of all processes, each once");
}

#[test]
fn killed_call_of_an_agent_counts_as_reserved() {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate).then(tokens(1_000).stream());
    let world = priced([tokens(1_000).reply(), held].into_iter().chain(answers(3)));
    set(&world, &ops(4.2));
    world.run(&["-p", "--agent", "ops", "one"]).ok();
    let running = world.start(&["-p", "--agent", "ops", "two"]);
    reached(&gate);
    running.signal(Signal::SIGKILL);
    drop(running.wait());
    gate.open();
    // One dollar was spent before it, and two are held for what it may have cost.
    world.run(&["-p", "--agent", "ops", "three"]).ok();
    assert_eq!(allowed(&world), [2_000, 2_000, 1_200]);
    world.run(&["-p", "--agent", "ops", "four"]).exits(5);
    world.unchecked();
}

#[test]
fn job_ends_its_run_at_its_budget_of_the_day() {
    let world = priced(answers(4));
    set(&world, &json!({}));
    let add = |key: &str, options: &[&str]| {
        let every = ["schedule", "add", "prompt", "--every", "1d", "--notify", "none", "--name", key];
        world.run(&[&every, options].concat()).ok();
    };
    add("job", &["--daily-budget", "2.5", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    let today = |world: &World| jobs(world)[0]["today"].clone();
    assert_eq!(today(&world), json!({ "dollars": 1.0, "tokens": 0 }));
    world.run(&["schedule", "run", "job"]).ok();
    world.run(&["schedule", "run", "job"]).ok();
    let run = &log(&world)[0];
    let text = run["text"].as_str().unwrap();
    assert_eq!(run["state"], "limit", "{run}");
    for words in ["the daily budget of the job `job`", "$2.00 of $2.50 used today", "midnight"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(allowed(&world), [2_000, 1_500]);
    let listed = world.run(&["schedule"]).ok().text();
    assert!(listed.contains("$2.00 of $2.50 today"), "{listed}");
    // Another one has its own, which can count tokens.
    add("a/b", &["--daily-tokens", "900000", "--budget", "9", "y"]);
    world.run(&["schedule", "run", "a/b"]).ok();
    assert_eq!(jobs(&world)[0]["today"], json!({ "dollars": 0.0, "tokens": 1_010 }));
    for amount in ["0", "-1", "nan", "much"] {
        let option = format!("--daily-budget={amount}");
        world.run(&["schedule", "add", "prompt", "--in", "1h", &option, "x"]).exits(2);
    }
    let refused = world.run(&["schedule", "add", "prompt", "--in", "1h", "--daily-tokens", "0", "x"]);
    refused.fails(2, &["a budget of tokens is a whole number above 0"]);
}
