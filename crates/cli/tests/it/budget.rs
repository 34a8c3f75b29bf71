//! What may be spent in a day, over all sessions and processes of a store. A thousand tokens of an answer cost a dollar, and
//! input costs nothing, so that what a call can cost is known to the cent.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply, Wire};
use serde_json::{Value, json};

use crate::support::*;

fn settings(world: &World, budget: &Value) {
    let text =
        json!({ "retry": { "baseDelayMs": 1 }, "budget": budget, "compaction": { "keepRecentTokens": 1 } })
            .to_string();
    std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
}

/// A call costs two dollars at most: the model's answers have 2,000 tokens. `chat` is the same model on the other wire.
pub(crate) fn priced(replies: impl IntoIterator<Item = Reply>) -> World {
    priced_in(World::new(replies))
}

pub(crate) fn priced_in(world: World) -> World {
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let models = file["providers"]["testing"]["models"].as_array_mut().unwrap();
    models[0]["maxTokens"] = json!(2_000);
    models[0]["cost"] = json!({ "input": 0, "output": 1_000, "cacheRead": 0, "cacheWrite": 0 });
    let mut chat = models[0].clone();
    (chat["id"], chat["api"]) = (json!("chat"), json!("openai-completions"));
    models.push(chat);
    std::fs::write(&path, file.to_string()).unwrap();
    world
}

pub(crate) fn tokens(count: u64) -> Answer {
    Answer::new().text("Done.").usage(10, count, 0, 0)
}

/// Each costs a dollar.
pub(crate) fn answers(count: usize) -> Vec<Reply> {
    vec![tokens(1_000).reply(); count]
}

/// What the requests allowed each answer, in order.
pub(crate) fn allowed(world: &World) -> Vec<u64> {
    let limit = |request: Value| {
        let said =
            ["max_tokens", "max_completion_tokens"].into_iter().find_map(|name| request[name].as_u64());
        said.unwrap()
    };
    world.requests().iter().map(|request| limit(request.json())).collect()
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
    let world = priced(answers(5));
    assert!(doctor(&world).1.contains("no daily limit"), "{:?}", doctor(&world));
    settings(&world, &json!({ "daily": 2.5 }));
    world.run(&["-p", "one"]).ok();
    assert_eq!(doctor(&world).0, "good");
    assert!(
        doctor(&world).1.starts_with("$1.00 spent today of $2.50 (budget.daily in "),
        "{:?}",
        doctor(&world)
    );
    let ran = world.run(&["-p", "two"]).ok();
    assert!(ran.err.contains("the answer is limited to 1500 tokens instead of 2000"), "{}", ran.err);
    let ran = world.run(&["-p", "three"]);
    let words = [
        "$2.00 counts as spent today",
        "daily budget is $2.50",
        "budget.daily in ",
        "settings.json",
        "tomorrow",
    ];
    let why = "the next call may cost $2.00, or $1.02 with an answer of 1024 tokens, and $0.50 of today's budget is left";
    assert!(ran.err.contains(why), "{}", ran.err);
    for word in [&words[..], &["--daily-budget", "quipu -p -c"]].concat() {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    ran.exits(5);
    assert_eq!(allowed(&world), [2_000, 1_500], "nothing is sent");
    let ran = world.run(&["-p", "-c", "--mode", "json"]).exits(5);
    let lines = ran.json_lines();
    let end = lines.iter().find(|line| line["type"] == "agent_end").unwrap();
    assert_eq!(end["outcome"], json!({ "kind": "dailyBudget", "spent": 2.0, "budget": 2.5 }));
    let answered = world.sessions()[1]["id"].as_str().unwrap().to_owned();
    let compacted = world.run(&["compact", &answered]).exits(1);
    assert!(compacted.err.contains("today's budget"), "{}", compacted.err);
    assert_eq!(world.requests().len(), 2, "a summary is a model call, too");
    // What is kept nowhere counts what is kept; another store counts for itself.
    let ran = world.run(&["-p", "--no-session", "x"]).exits(5);
    assert!(ran.err.contains("$2.00 counts as spent today"), "{}", ran.err);
    world.run(&["-p", "--store", "other.db", "x"]).ok();
    // What was said waits for its answer.
    world.run(&["-p", "-c", "--daily-budget", "2"]).fails(5, &["daily budget is $2.00 (--daily-budget)"]);
    assert_eq!(world.run(&["-p", "-c", "--daily-budget", "4"]).ok().text(), "Done.\n");
    assert_eq!(doctor(&world).0, "note");
    assert_eq!(
        messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>(),
        ["three"]
    );
    for amount in ["0", "-1", "nan", "much"] {
        world.run(&["-p", "--daily-budget", amount, "x"]).fails(2, &["US dollars"]);
    }
}

#[test]
fn four_processes_under_one_limit_stay_within_it() {
    let gate = Gate::new();
    let step = |at: usize| {
        Answer::new().tool_call(&format!("c{at}"), "bash", r#"{"command":"true"}"#).usage(10, 1_000, 0, 0)
    };
    // The first four are under way at the same time.
    let held = (0..4).map(|at| Reply::sse("").then_gate(&gate).then(step(at).stream()));
    let world = priced(held.chain((4..60).map(|at| step(at).reply())));
    settings(&world, &json!({ "daily": 9.5 }));
    let running = ["one", "two", "three", "four"].map(|task| world.start(&["-p", task]));
    for _ in 0..4 {
        reached(&gate);
    }
    gate.open();
    for one in running {
        let ran = one.wait().exits(5);
        assert!(ran.err.contains("daily budget is $9.50"), "{}", ran.err);
    }
    let spent: f64 = world.sessions().iter().map(|row| row["cost"].as_f64().unwrap()).sum();
    assert!((spent - 9.0).abs() < 1e-9, "{spent}");
    assert_eq!(world.requests().len(), 9);
    assert!(doctor(&world).1.starts_with("$9.00 spent today"), "{:?}", doctor(&world));
}

/// Another process asks while a call of the first one is under way.
fn while_another_asks(daily: f64, wait: u64) -> (World, Gate, RunningCommand) {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate).then(tokens(1_000).stream());
    let world = priced(std::iter::once(held).chain(answers(3)));
    settings(&world, &json!({ "daily": daily, "waitMs": wait }));
    let first = world.start(&["-p", "one"]);
    reached(&gate);
    (world, gate, first)
}

#[test]
fn a_call_waits_for_what_others_reserved_and_goes_on() {
    let (world, gate, first) = while_another_asks(3.2, 30_000);
    let mut second = world.start(&["-p", "two"]);
    second.says("other calls have reserved $2.00 of today's budget");
    assert_eq!(world.requests().len(), 1);
    gate.open();
    first.wait().ok();
    second.wait().ok();
    assert_eq!(allowed(&world), [2_000, 2_000]);
}

#[test]
fn a_call_that_waited_takes_less_or_ends() {
    let (world, gate, first) = while_another_asks(3.2, 1);
    world.run(&["-p", "two"]).ok();
    assert_eq!(allowed(&world), [2_000, 1_200]);
    gate.open();
    first.wait().ok();

    let (world, gate, first) = while_another_asks(2.5, 1);
    let ran = world.run(&["-p", "two"]).exits(5);
    assert!(ran.err.contains("$0.50 of today's budget is left"), "{}", ran.err);
    // What is kept nowhere is reserved in the default store as well.
    world.run(&["-p", "--no-session", "three"]).exits(5);
    gate.open();
    first.wait().ok();
    assert_eq!(allowed(&world), [2_000]);
}

#[test]
fn a_call_whose_process_was_killed_counts_as_reserved() {
    let (world, gate, first) = while_another_asks(3.2, 1);
    first.signal(Signal::SIGKILL);
    drop(first.wait());
    gate.open();
    world.run(&["-p", "two"]).ok();
    assert_eq!(allowed(&world), [2_000, 1_200]);
    world.run(&["-p", "three"]).exits(5);
    world.unchecked();
}

#[test]
fn overspent_budget_counts_against_the_next_call() {
    let world = priced([tokens(3_000).reply(), tokens(3_000).reply(), tokens(1).reply()]);
    settings(&world, &json!({ "daily": 4.5 }));
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "two"]).ok();
    assert_eq!(allowed(&world), [2_000, 1_500]);
    world.run(&["-p", "three"]).fails(5, &["$6.00 counts as spent today"]);
}

/// Attempts that break off in the middle of the answer, and then good ones.
fn breaking(wire: Wire, times: usize) -> World {
    let broken = Reply::sse(Answer::on(wire).text("Do").unfinished()).then_reset();
    let good = Answer::on(wire).text("Done.").usage(10, 1_000, 0, 0).reply();
    priced(vec![broken; times].into_iter().chain(vec![good; 3]))
}

#[test]
fn attempts_that_break_off_count_against_both_limits() {
    for (model, wire) in [(MODEL, Wire::Messages), ("chat", Wire::Completions)] {
        let ask = |world: &World, more: &[&str]| world.run(&[&["-p", "--model", model, "x"], more].concat());
        let world = breaking(wire, 3);
        settings(&world, &json!({ "daily": 100 }));
        let ran = ask(&world, &["--max-cost", "2"]).exits(5);
        let why = "broke off and may have cost $2.00; another attempt may cost $2.00, and $0 of the run's cost limit \
                   is left";
        assert!(ran.err.replace("$0.0000", "$0").contains(why), "{}", ran.err);
        assert_eq!(world.requests().len(), 1);
        assert!(
            doctor(&world).1.starts_with("$0 spent today, plus $2.00 reserved for calls"),
            "{:?}",
            doctor(&world)
        );
        // What is left pays for the third attempt, and not for another call.
        ask(&world, &["--max-cost", "6"]).ok();
        assert_eq!(world.requests().len(), 4);
        assert!(doctor(&world).1.starts_with("$1.00 spent today, plus $6.00"), "{:?}", doctor(&world));

        let world = breaking(wire, 2);
        settings(&world, &json!({ "daily": 3.5, "waitMs": 1 }));
        let ran = ask(&world, &[]).exits(5);
        assert!(ran.err.contains("$1.50 of today's budget is left"), "{}", ran.err);
        assert_eq!(world.requests().len(), 1, "not once more");
        ask(&world, &[]).exits(5);
        assert_eq!(allowed(&world), [2_000, 1_500]);
        ask(&world, &[]).fails(5, &["$3.50 counts as spent today"]);
        // It stays so when the node of an answer comes between.
        ask(&world, &["--daily-budget", "6"]).ok();
        assert!(doctor(&world).1.starts_with("$1.00 spent today, plus $3.50"), "{:?}", doctor(&world));
        // Sessions that are kept nowhere count them as well.
        ask(&world, &["--no-session", "--daily-budget", "5"]).exits(5);
    }
}

#[test]
fn attempts_that_the_server_refused_cost_nothing() {
    let refused = Reply::error(529, "overloaded_error", "Overloaded");
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let said = Reply::sse(format!("event: error\ndata: {error}\n\n"));
    let world = priced([refused, said, tokens(1_000).reply()]);
    settings(&world, &json!({ "daily": 2 }));
    world.run(&["-p", "--max-cost", "2", "x"]).ok();
    assert_eq!(allowed(&world), [2_000; 3]);
    assert!(doctor(&world).1.starts_with("$1.00 spent today of"), "{:?}", doctor(&world));
}

#[test]
fn an_answer_without_usage_counts_as_reserved() {
    for (model, wire) in [(MODEL, Wire::Messages), ("chat", Wire::Completions)] {
        let silent = Answer::on(wire).text("Done.").usage(0, 0, 0, 0);
        let world = priced([silent.reply(), silent.reply()]);
        settings(&world, &json!({ "daily": 3.2 }));
        let ran = world.run(&["-p", "--model", model, "--mode", "json", "x"]).ok();
        let told = ran.json_lines().into_iter().find(|line| line["type"] == "quipu_trouble").unwrap();
        assert!(told["message"].as_str().unwrap().contains("$2.00 more is counted as spent"), "{told}");
        assert!(doctor(&world).1.starts_with("$0 spent today, plus $2.00"), "{:?}", doctor(&world));
        world.run(&["-p", "--model", model, "x"]).ok();
        assert_eq!(allowed(&world), [2_000, 1_200]);
        world.run(&["-p", "--model", model, "x"]).exits(5);
    }
}

/// The count at the beginning is not that of the answer.
#[test]
fn usage_at_the_beginning_of_an_answer_is_not_that_of_its_end() {
    let whole = Answer::new().text("Done.").usage(10, 7, 0, 0).stream();
    let begun = whole.replace(r#""input_tokens":10"#, r#""input_tokens":10,"output_tokens":1"#);
    let silent = begun.replace(r#","usage":{"output_tokens":7}"#, "");
    assert!(begun != whole && silent != begun, "{whole}");
    // Told in full, and broken off behind that: as told.
    let told = begun.replace("message_stop", "ping");
    let world = priced([Reply::sse(silent), Reply::sse(told).then_reset(), tokens(1_000).reply()]);
    settings(&world, &json!({ "daily": 100 }));
    world.run(&["-p", "x"]).ok();
    assert!(doctor(&world).1.contains("plus $2.00 reserved for calls"), "{:?}", doctor(&world));
    world.run(&["-p", "x"]).ok();
    assert!(doctor(&world).1.contains("plus $2.01 reserved for calls"), "{:?}", doctor(&world));
}

#[test]
fn an_answer_that_is_interrupted_counts_as_reserved() {
    for (model, wire) in [(MODEL, Wire::Messages), ("chat", Wire::Completions)] {
        let gate = Gate::new();
        let begun = Answer::on(wire).text("Do").unfinished();
        let world = priced([Reply::sse(begun).then_gate(&gate).then_hang()]);
        settings(&world, &json!({ "daily": 2.5, "waitMs": 1 }));
        let first = world.start(&["-p", "--model", model, "x"]);
        reached(&gate);
        first.signal(Signal::SIGINT);
        drop(first.wait());
        gate.open();
        let ran = world.run(&["-p", "--model", model, "--daily-budget", "3", "x"]).exits(5);
        assert!(ran.err.contains("$1.00 of today's budget is left"), "{}", ran.err);
        assert!(doctor(&world).1.starts_with("$0 spent today, plus $2.00"), "{:?}", doctor(&world));
        assert_eq!(world.requests().len(), 1);
    }
}

#[test]
fn runs_that_keep_nothing_count_one_after_another() {
    let world = priced(answers(3));
    settings(&world, &json!({ "daily": 2.5 }));
    let run = ["-p", "--no-session", "x"];
    world.run(&run).ok();
    assert!(doctor(&world).1.starts_with("$0 spent today, plus $1.00"), "{:?}", doctor(&world));
    world.run(&run).ok();
    world.run(&run).fails(5, &["$2.00 counts as spent today"]);
    world.run(&["-p", "x"]).fails(5, &["$2.00 counts as spent today"]);
    assert_eq!(allowed(&world), [2_000, 1_500]);
    assert_eq!(world.sessions().len(), 1, "of them, nothing else is kept");
    world.unchecked();
}

/// Whatever servers do, and whoever calls them: a server may bill all that a request allows where it tells nothing else.
#[test]
fn possible_cost_stays_within_the_daily_budget() {
    for seed in 1..4_usize {
        let mut state = seed * 7_919;
        let mut number = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // What each reply bills; `None`: as much as the request allows.
        let mut billed: Vec<Option<u64>> = Vec::new();
        let mut replies = Vec::new();
        for _ in 0..40 {
            let (bill, reply) = match number(6) {
                0 => (None, Reply::sse(Answer::new().text("Do").unfinished()).then_reset()),
                1 => (None, Reply::sse("").then_reset()),
                2 => (None, Answer::new().text("Done.").usage(0, 0, 0, 0).reply()),
                3 => (Some(0), Reply::error(529, "overloaded_error", "Overloaded")),
                _ => {
                    let count = number(1_025) as u64;
                    (Some(count), tokens(count.max(1)).reply())
                }
            };
            billed.push(bill);
            replies.push(reply);
        }
        let world = priced(replies);
        settings(&world, &json!({ "daily": 12, "waitMs": 1 }));
        for _ in 0..30 {
            let mut args = vec!["-p", "x"];
            args.extend((number(3) == 0).then_some("--no-session"));
            args.extend((number(3) == 0).then_some("--max-cost=3"));
            world.run(&args);
        }
        let spent: u64 =
            allowed(&world).iter().zip(&billed).map(|(allowed, billed)| billed.unwrap_or(*allowed)).sum();
        assert!(spent <= 12_000 && spent > 12_000 - 2 * 1_024, "{seed}: {spent}");
        world.unchecked();
    }
}

#[test]
fn a_window_in_a_file_does_not_lower_what_a_request_may_cost() {
    let world = priced(answers(1));
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = &mut file["providers"]["testing"]["models"][0];
    // A thousand tokens of input cost a dollar.
    model["cost"] = json!({ "input": 1_000, "output": 0 });
    model["contextWindow"] = json!(4_000);
    std::fs::write(&path, file.to_string()).unwrap();
    let long = "word ".repeat(3_000);
    let ran = world.run(&["-p", "--max-cost", "10", &long]).exits(5);
    assert!(ran.err.contains("of the run's cost limit is left"), "{}", ran.err);
    assert!(world.requests().is_empty());
}

#[test]
fn a_price_of_zero_is_known_where_somebody_gave_it() {
    let world = priced(answers(1));
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    file["providers"]["testing"]["models"][0]["cost"] = json!({ "input": 0, "output": 0 });
    std::fs::write(&path, file.to_string()).unwrap();
    let ran = world.run(&["-p", "--max-cost", "1", "--daily-budget", "1", "x"]).ok();
    assert!(!ran.err.contains("is unknown, so its calls count"), "{}", ran.err);
    assert_eq!(allowed(&world), [2_000]);
}

#[test]
fn budget_lowers_max_tokens_but_not_below_1024() {
    for (model, wire) in [(MODEL, Wire::Messages), ("chat", Wire::Completions)] {
        let answer = || Answer::on(wire).text("Done.").usage(10, 1_000, 0, 0);
        let call = answer().tool_call("c1", "bash", r#"{"command":"true"}"#);
        let world = priced([answer().reply(), call.reply()]);
        let ran = world.run(&["-p", "--model", model, "--mode", "json", "--max-cost", "1.5", "x"]).ok();
        assert_eq!(allowed(&world), [1_500]);
        let told = ran.json_lines().into_iter().find(|line| line["type"] == "quipu_trouble").unwrap();
        assert!(told["message"].as_str().unwrap().contains("1500 tokens instead of 2000"), "{told}");
        let ran = world.run(&["-p", "--model", model, "--max-cost", "1", "x"]).exits(5);
        assert!(ran.err.contains("$1.00 of the run's cost limit is left"), "{}", ran.err);
        // The second call of a run has what the first one left.
        world.run(&["-p", "--model", model, "--max-cost", "2", "x"]).exits(5);
        assert_eq!(allowed(&world), [1_500, 2_000]);
    }
}

#[test]
fn run_budget_covers_its_calls_and_not_the_next_run() {
    let step = |at: usize| {
        Answer::new()
            .tool_call(&format!("c{at}"), "bash", r#"{"command":"true"}"#)
            .usage(10, 1_000, 0, 0)
            .reply()
    };
    let world = priced((0..3).map(step).chain(answers(1)));
    let ran = world.run(&["-p", "--max-cost", "4", "count"]).exits(5);
    assert!(ran.err.contains("--max-cost") && ran.err.contains("quipu -p -c"), "{}", ran.err);
    assert_eq!(allowed(&world), [2_000, 2_000, 2_000]);
    assert!((world.sessions()[0]["cost"].as_f64().unwrap() - 3.0).abs() < 1e-9);
    world.run(&["-p", "-c", "--max-cost", "2", "go on"]).ok();
}

#[test]
fn a_model_elsewhere_without_a_price_is_refused() {
    let world = priced([]);
    // Nobody answers there.
    let far = json!({
        "baseUrl": "http://192.0.2.1:9", "apiKey": "none", "api": "anthropic-messages", "models": [{ "id": "secretive" }],
    });
    let file = json!({ "providers": { "far": far } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    for limit in ["--max-cost", "--daily-budget"] {
        let ran = world.run(&["-p", "--model", "secretive", limit, "100", "x"]).exits(1);
        assert!(ran.err.contains("the price of far/secretive is unknown"), "{}", ran.err);
        assert!(ran.err.contains("models.json") && ran.err.contains("remove the limit"), "{}", ran.err);
    }
}

#[test]
fn a_budget_that_cannot_be_read_stops_a_task() {
    let world = priced(answers(2));
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
    world.run(&["-p", "--daily-budget", "3", "x"]).ok();
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
    let world = priced(answers(5));
    let told = "the price of testing/thinker is unknown, so its calls count as $0";
    let think = ["-p", "--model", "thinker", "--thinking", "off", "x"];
    assert!(!world.run(&think).ok().err.contains(told));
    for limit in ["--max-cost", "--daily-budget"] {
        let ran = world.run(&[&think[..], &["--mode", "json", limit, "3"]].concat()).ok();
        assert_eq!(ran.err.matches(told).count(), 1, "{}", ran.err);
        let notes: Vec<Value> =
            ran.json_lines().into_iter().filter(|line| line["type"] == "quipu_trouble").collect();
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0]["kind"] == "note" && notes[0]["message"].as_str().unwrap().contains(told),
            "{notes:?}"
        );
    }
    assert!(!world.run(&["-p", "--max-cost", "3", "x"]).ok().err.contains("no price"));
    assert!(doctor(&world).1.starts_with("$1.00 spent today"), "{:?}", doctor(&world));
}

#[test]
fn replay_costs_nothing() {
    let world = priced(answers(1));
    world.run(&["-p", "--record", "tape", "x"]).ok();
    settings(&world, &json!({ "daily": 1 }));
    world.run(&["-p", "y"]).exits(5);
    assert_eq!(world.run(&["--replay", "tape"]).ok().text(), "Done.\n");
    assert!(doctor(&world).1.starts_with("$1.00 spent today"), "{:?}", doctor(&world));
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
    let world = priced_in(World::unprivileged(answers(3)));
    let Some(library) = crate::machine::in_place_of(&world, CLOCK) else { return };
    let noon: i64 = 1_795_176_000;
    assert_eq!(noon % 86_400, 43_200);
    let midnight = noon + 6 * 3600 + 15 * 60;
    let at = |now: i64, zone: &str| {
        let mut command = world.quipu(&["-p", "--daily-budget", "2.5", "x"]);
        command.env("LD_PRELOAD", &library).env("TEST_NOW", now.to_string()).env("TZ", zone);
        RunningCommand::start(command).wait()
    };
    at(noon, "NPT-5:45").ok();
    at(midnight - 60, "NPT-5:45").ok();
    for ran in [at(midnight - 1, "NPT-5:45"), at(midnight, "UTC0")] {
        let ran = ran.exits(5);
        assert!(ran.err.contains("$2.00 counts as spent today"), "{}", ran.err);
    }
    at(midnight, "NPT-5:45").ok();
    assert_eq!(world.requests().len(), 3);
}
