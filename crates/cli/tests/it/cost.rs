//! What sessions cost: each command that says it says the same.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, ENTER, Terminal};
use crate::support::*;

/// Dollars for an answer of `MODEL`: 15 tokens at $1,000 for a million.
const PRICE: f64 = 0.015;
const OTHER: &str = "other";

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// Two models with a price, the second for twice as much; agents; compaction that leaves the last exchange.
fn configure(world: &World) {
    let model = |id: &str, dollars: u32| {
        json!({
            "id": id, "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text"],
            "compat": { "supportsWebSearch": true },
            "cost": { "input": dollars, "output": dollars, "cacheRead": 0, "cacheWrite": 0 },
        })
    };
    let models = [model(MODEL, 1_000), model(OTHER, 2_000)];
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": models });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    let settings = json!({
        "retry": { "enabled": false }, "fallbackModels": [format!("testing/{OTHER}")], "agents": { "tool": "on" },
        "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

fn sum(lines: &[Value]) -> f64 {
    lines.iter().map(|line| line["cost"].as_f64().unwrap()).sum()
}

/// What each command says that all cost.
#[track_caller]
fn agree(world: &World, dollars: f64) {
    let same = |found: f64, by: &str| {
        assert!((found - dollars).abs() < 0.000_001, "{by}: {found}, not {dollars}");
    };
    for by in ["day", "project", "model", "agent", "session"] {
        let mut lines = world.run(&["usage", "--json", "--by", by]).ok().json_lines();
        let end = lines.pop().unwrap();
        assert_eq!(end["behind"], 0);
        same(end["cost"].as_f64().unwrap(), by);
        same(sum(&lines), by);
    }
    let log =
        world.run(&["log", "--json", "--all", "--limit", "0", "--since", "2020-01-01"]).ok().json_lines();
    let sessions: Vec<Value> = log.into_iter().filter(|line| line["type"] == "session").collect();
    same(sum(&sessions), "log");
    same(sum(&world.sessions()), "sessions");
    // Session by session.
    let used = world.run(&["usage", "--json", "--by", "session"]).ok().json_lines();
    for session in world.sessions() {
        let used = used.iter().find(|line| line["session"] == session["id"]);
        let used = used.map_or(0.0, |line| line["cost"].as_f64().unwrap());
        assert!((used - session["cost"].as_f64().unwrap()).abs() < 0.000_001, "{session}: {used}");
    }
}

fn head(world: &World) -> String {
    let sessions = world.sessions();
    let own = sessions.iter().find(|row| !row["id"].as_str().unwrap().starts_with("child-")).unwrap();
    own["head"].as_str().unwrap().to_owned()
}

#[test]
fn commands_agree_on_what_sessions_cost() {
    let long = "word ".repeat(400);
    let world = World::new([Reply::error(529, "overloaded_error", "Overloaded"), says("From the other.")]);
    configure(&world);
    let run = |arguments: &[&str], replies: Vec<Reply>| {
        replies.into_iter().for_each(|reply| world.server.push(reply));
        world.run(arguments)
    };
    // A fallback model.
    world.run(&["-p", "first"]).ok();
    let mut cost = 2.0 * PRICE;
    agree(&world, cost);
    let begin = head(&world);
    // A sub-agent: two calls of the parent, one of the child.
    let task = call("c1", "task", &json!({ "prompt": "Look.", "description": "Look" }));
    run(&["-p", "-c", "delegate"], vec![task, says("Seen."), says("Done.")]).ok();
    cost += 3.0 * PRICE;
    agree(&world, cost);
    // A compaction, which is undone.
    run(&["-p", "-c", "more"], vec![says(&long)]).ok();
    run(&["-p", "-c", "even more"], vec![says(&long)]).ok();
    run(&["compact"], vec![says("## Goal\nTo count.")]).ok();
    run(&["compact", "--undo"], vec![]).ok();
    cost += 3.0 * PRICE;
    agree(&world, cost);
    // Back and forth, and a summary of the branch that is left.
    run(&["undo", "--yes"], vec![]).ok();
    run(&["redo", "--yes"], vec![]).ok();
    run(&["branch", &begin, "--summarize"], vec![says("## Goal\nTo summarize.")]).ok();
    cost += PRICE;
    agree(&world, cost);
    // A fork does not pay again for what it begins with.
    run(&["-p", "--fork", &begin, "elsewhere"], vec![says("Forked.")]).ok();
    // A search of the provider.
    let found = Answer::new().web_search("knots", &["https://a.example/1"]).text("Found.").reply();
    run(&["-p", "-c", "--web-search", "search"], vec![found]).ok();
    // What nobody keeps is no part of it.
    run(&["-p", "--no-session", "hidden"], vec![says("Gone.")]).ok();
    world.unchecked();
    cost += 2.0 * PRICE;
    agree(&world, cost);
    // An answer that breaks off, and whatever it cost.
    let begun = Answer::new().text("half an answer that breaks").unfinished();
    let broken = || Reply::sse(begun[..begun.len() * 2 / 3].to_owned()).then_cut();
    run(&["-p", "-c", "break"], vec![broken(), broken()]).exits(1);
    let end = world.run(&["usage", "--json"]).ok().json_lines().pop().unwrap();
    agree(&world, end["cost"].as_f64().unwrap());
}

#[test]
fn status_of_the_terminal_agrees_after_jumps_and_a_resume() {
    let world = World::new([says("Uniquely one."), says("Two.")]);
    configure(&world);
    world.run(&["-p", "first"]).ok();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("$0.015");
    terminal.types("second");
    terminal.types(ENTER);
    terminal.shows("$0.030");
    world.server.push(says("## Goal\nTo summarize."));
    terminal.types("/tree\r");
    terminal.shows("type to search");
    terminal.types("uniquely\r");
    terminal.shows("Go there with a summary");
    terminal.types("with a summary\r");
    terminal.shows("The session is now at");
    terminal.shows("$0.045");
    // A sub-agent is a session of its own.
    let task = call("c1", "task", &json!({ "prompt": "Look.", "description": "Look" }));
    [task, says("Seen."), says("Delegated.")].into_iter().for_each(|reply| world.server.push(reply));
    terminal.types("delegate");
    terminal.types(ENTER);
    terminal.shows("Delegated.");
    terminal.shows("$0.075");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("$0.075");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    agree(&world, 6.0 * PRICE);
}

#[test]
fn imported_summaries_cost_the_same_everywhere() {
    let world = World::new([]);
    let usage = json!({ "input": 7, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 7, "cost": { "total": 0.5 } });
    let entry = |id: &str, parent: Value, more: Value| {
        let mut line = json!({ "id": id, "parentId": parent, "timestamp": "2025-01-02T03:04:05.000Z" });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let user = json!({ "role": "user", "content": "Count.", "timestamp": 5 });
    let answer = json!({ "role": "assistant", "content": [{ "type": "text", "text": "One." }], "api": "x", "provider": "p",
        "model": "m", "usage": usage, "stopReason": "stop", "timestamp": 6 });
    let lines = [
        json!({ "type": "session", "version": 3, "id": "0199aaaa-0000-7000-8000-000000000001",
            "timestamp": "2025-01-02T03:04:00.000Z", "cwd": world.path("work") }),
        entry("u1", Value::Null, json!({ "type": "message", "message": user })),
        entry("a1", "u1".into(), json!({ "type": "message", "message": answer })),
        entry(
            "s1",
            "u1".into(),
            json!({ "type": "branch_summary", "fromId": "a1", "summary": "One.", "usage": usage }),
        ),
    ];
    world.file("session.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    world.run(&["import", "pi", "session.jsonl"]).ok();
    agree(&world, 1.0);
}
