//! What may be spent in a day, over all sessions and processes of a store. Each call costs 0.015 dollars.

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn settings(world: &World, budget: &Value) {
    let text =
        json!({ "retry": { "baseDelayMs": 1 }, "budget": budget, "compaction": { "keepRecentTokens": 1 } })
            .to_string();
    std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
}

fn answers(count: usize) -> Vec<Reply> {
    vec![Answer::new().text("Done.").reply(); count]
}

/// What `quipu doctor` says of the budget: state and detail.
fn doctor(world: &World) -> (String, String) {
    let found = world.run(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&found.out).unwrap();
    let found = found["findings"].as_array().unwrap().iter().find(|one| one["what"] == "budget").unwrap();
    (found["state"].as_str().unwrap().to_owned(), found["detail"].as_str().unwrap().to_owned())
}

#[test]
fn is_one_for_all_sessions_and_the_session_goes_on_with_another() {
    let world = World::new(answers(5));
    assert!(doctor(&world).1.contains("no daily limit"), "{:?}", doctor(&world));
    settings(&world, &json!({ "daily": 0.03 }));
    world.run(&["-p", "one"]).ok();
    assert_eq!(doctor(&world).0, "good");
    assert!(
        doctor(&world).1.starts_with("$0.01 spent today of $0.03 (budget.daily in "),
        "{:?}",
        doctor(&world)
    );
    world.run(&["-p", "two"]).ok();
    let ran = world.run(&["-p", "three"]);
    let words =
        ["$0.03 was spent today", "daily budget is $0.03", "budget.daily in ", "settings.json", "tomorrow"];
    ran.fails(5, &[&words[..], &["--daily-budget", "quipu -p -c"]].concat());
    assert_eq!(world.requests().len(), 2, "nothing is sent");
    assert_eq!(doctor(&world).0, "note");
    let ran = world.run(&["-p", "-c", "--mode", "json"]).exits(5);
    let lines = ran.json_lines();
    let end = lines.iter().find(|line| line["type"] == "agent_end").unwrap();
    assert_eq!(end["outcome"], json!({ "kind": "dailyBudget", "spent": 0.03, "budget": 0.03 }));
    let answered = world.sessions()[1]["id"].as_str().unwrap().to_owned();
    world.run(&["compact", &answered]).fails(1, &["not compacted", "today's budget"]);
    assert_eq!(world.requests().len(), 2, "a summary is a model call, too");
    // What is kept nowhere counts what is kept; another store counts for itself.
    world.run(&["-p", "--no-session", "x"]).fails(5, &["$0.03 was spent today"]);
    world.run(&["-p", "--store", "other.db", "x"]).ok();
    // What was said waits for its answer.
    world.run(&["-p", "-c", "--daily-budget", "0.02"]).fails(5, &["daily budget is $0.02 (--daily-budget)"]);
    assert_eq!(world.run(&["-p", "-c", "--daily-budget", "0.04"]).ok().text(), "Done.\n");
    assert_eq!(
        messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>(),
        ["three"]
    );
    for amount in ["0", "-1", "nan", "much"] {
        world.run(&["-p", "--daily-budget", amount, "x"]).fails(2, &["US dollars"]);
    }
}

#[test]
fn two_processes_exceed_it_by_no_more_than_the_calls_under_way() {
    let gate = Gate::new();
    let step = |at: usize| Answer::new().tool_call(&format!("c{at}"), "bash", r#"{"command":"true"}"#);
    // The first two are under way at the same time.
    let held = (0..2).map(|at| Reply::sse("").then_gate(&gate).then(step(at).stream()));
    let world = World::new(held.chain((2..40).map(|at| step(at).reply())));
    settings(&world, &json!({ "daily": 0.1 }));
    let running = ["left", "right"].map(|task| world.start(&["-p", task]));
    reached(&gate);
    gate.open();
    for one in running {
        one.wait().fails(5, &["was spent today", "daily budget is $0.10"]);
    }
    let calls = world.requests().len();
    assert!((7..=8).contains(&calls), "{calls}: 7 reach the limit, and one may have been under way");
    let spent: f64 = world.sessions().iter().map(|row| row["cost"].as_f64().unwrap()).sum();
    assert!((spent - 0.015 * f64::from(u32::try_from(calls).unwrap())).abs() < 1e-9, "{spent}");
    assert!(doctor(&world).1.starts_with(&format!("${spent:.2} spent today")), "{:?}", doctor(&world));
}

#[test]
fn a_budget_that_cannot_be_read_stops_a_task() {
    let world = World::new(answers(2));
    for budget in
        [json!(5), json!({ "daily": "5" }), json!({ "daily": 0 }), json!({ "daily": -1 }), json!([])]
    {
        settings(&world, &budget);
        world.run(&["-p", "x"]).fails(1, &["settings.json", "budget", "--daily-budget"]);
        world.run(&["doctor"]).exits(4);
    }
    let path = world.path("home/.quipu/settings.json");
    std::fs::write(&path, r#"{"budget":{"daily":5}"#).unwrap();
    world.run(&["-p", "x"]).fails(1, &["settings.json", "cannot be read", "--daily-budget"]);
    assert!(world.requests().is_empty());
    world.run(&["-p", "--daily-budget", "1", "x"]).ok();
    // Where none was set, none is missed.
    std::fs::write(&path, "{").unwrap();
    world.run(&["-p", "x"]).ok();
    for budget in [json!(null), json!({}), json!({ "daily": null }), json!({ "daily": 1e300 })] {
        settings(&world, &budget);
        world.run(&["doctor"]).ok();
    }
}

#[test]
fn a_model_without_a_price_is_told_once() {
    let world = World::new(answers(5));
    let told = "no price is known of testing/thinker, so its calls count as $0";
    let think = ["-p", "--model", "thinker", "--thinking", "off", "x"];
    assert!(!world.run(&think).ok().err.contains(told));
    for limit in ["--max-cost", "--daily-budget"] {
        let ran = world.run(&[&think[..], &["--mode", "json", limit, "1"]].concat()).ok();
        assert_eq!(ran.err.matches(told).count(), 1, "{}", ran.err);
        let notes: Vec<Value> =
            ran.json_lines().into_iter().filter(|line| line["type"] == "quipu_trouble").collect();
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0]["kind"] == "note" && notes[0]["message"].as_str().unwrap().contains(told),
            "{notes:?}"
        );
    }
    assert!(!world.run(&["-p", "--max-cost", "1", "x"]).ok().err.contains("no price"));
    assert!(doctor(&world).1.starts_with("$0.01 spent today"), "{:?}", doctor(&world));
}

#[test]
fn what_is_replayed_costs_nothing() {
    let world = World::new(answers(1));
    world.run(&["-p", "--record", "tape", "x"]).ok();
    settings(&world, &json!({ "daily": 0.01 }));
    world.run(&["-p", "y"]).exits(5);
    assert_eq!(world.run(&["--replay", "tape"]).ok().text(), "Done.\n");
    assert!(doctor(&world).1.starts_with("$0.01 spent today"), "{:?}", doctor(&world));
    assert_eq!(world.sessions().iter().filter(|row| row["cost"] == 0.0).count(), 2);
}

/// A day begins where the user is: at 18:15 UTC in Kathmandu.
#[cfg(target_os = "linux")]
#[test]
fn a_day_is_the_users() {
    const CLOCK: &str = "#include <stdlib.h>\n#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int clock_gettime(clockid_t id, struct timespec *at) {\n\
          int got = syscall(SYS_clock_gettime, id, at);\n\
          if (id == CLOCK_REALTIME) at->tv_sec = atol(getenv(\"TEST_NOW\"));\n\
          return got;\n}\n";
    let world = World::unprivileged(answers(3));
    let Some(library) = crate::machine::in_place_of(&world, CLOCK) else { return };
    let noon: i64 = 1_795_176_000;
    assert_eq!(noon % 86_400, 43_200);
    let midnight = noon + 6 * 3600 + 15 * 60;
    let at = |now: i64, zone: &str| {
        let mut command = world.quipu(&["-p", "--daily-budget", "0.02", "x"]);
        command.env("LD_PRELOAD", &library).env("TEST_NOW", now.to_string()).env("TZ", zone);
        Running::start(command).wait()
    };
    at(noon, "NPT-5:45").ok();
    at(midnight - 60, "NPT-5:45").ok();
    at(midnight - 1, "NPT-5:45").fails(5, &["$0.03 was spent today"]);
    at(midnight, "UTC0").fails(5, &["$0.03 was spent today"]);
    at(midnight, "NPT-5:45").ok();
    assert_eq!(world.requests().len(), 3);
}
