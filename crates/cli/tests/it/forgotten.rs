//! What a person had forgotten is in no request, tool, hook or list of what was done; the history keeps it.

use std::io::Write as _;

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::continued::{WIRES, check, configure};
use crate::mcp_server::client::{Client, text};
use crate::support::*;

/// A word that nobody else says, and one that stands beside it.
const WORD: &str = "Wombatson";
const BESIDE: &str = "curtains";

fn body(world: &World) -> String {
    String::from_utf8(world.requests().last().unwrap().body.to_vec()).unwrap()
}

fn is_clean(what: &str, text: &str) {
    for word in [WORD, BESIDE] {
        assert!(!text.contains(word), "{what} says {word}: {text}");
    }
}

/// A session in which a person, a model and a tool say the word, and a note that says it.
fn told() -> (World, String) {
    let world = World::new([
        bash("c1", &format!("echo planned > note.txt; echo {WORD} likes green {BESIDE}")),
        Answer::new().text(&format!("{WORD} has green {BESIDE}.")).reply(),
    ]);
    std::fs::write(
        world.path("home/.quipu/settings.json"),
        json!({ "retry": { "baseDelayMs": 1 }, "compaction": { "reserveTokens": 1000, "keepRecentTokens": 1 },
            "memory": { "dreaming": { "enabled": true } } })
        .to_string(),
    )
    .unwrap();
    world.run(&["memory", "on"]).ok();
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let root = std::path::PathBuf::from(status["memories"][0]["root"].as_str().unwrap());
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("MEMORY.md"), format!("- uses tabs\n- {WORD} likes {BESIDE}\n")).unwrap();
    world.run(&["memory", "review", "--accept-all"]).ok();
    world.run(&["-p", &format!("{WORD} likes green {BESIDE}."), "--permissions", "full"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    (world, session)
}

fn forget(world: &World) {
    let ran = world.run(&["memory", "forget", WORD, "--yes"]).ok();
    assert!(ran.err.contains("until they are erased"), "{}", ran.err);
}

fn says(world: &World, text: &str) {
    world.server.push(Answer::new().text(text).reply());
}

#[test]
fn forgotten_text_is_in_no_later_request() {
    let (world, session) = told();
    assert!(body(&world).contains(WORD) && body(&world).contains("uses tabs"));
    says(&world, "Well.");
    world.run(&["-c", "-p", "and the fox"]).ok();
    forget(&world);
    // Resumed by another process: prompt, call, result and answer are placeholders, and the line of the notes is.
    says(&world, "Well.");
    world.run(&["-c", "-p", "go on"]).ok();
    is_clean("the resumed session", &body(&world));
    let sent = messages(world.requests().last().unwrap());
    let result = sent[2]["content"][0].clone();
    assert_eq!((&result["type"], &result["tool_use_id"]), (&json!("tool_result"), &json!("c1")), "{result}");
    assert!(wire_text(&sent[2]).contains("forgotten"), "{result}");
    assert!(body(&world).contains("and the fox") && body(&world).contains("uses tabs"));
    // What was sent before stays in the history, and is what it was.
    let nodes = world.nodes_of(&[&session]);
    let shown = |node: &Value| world.run(&["show", node["id"].as_str().unwrap()]).ok().text();
    assert!(nodes.iter().filter(|node| shown(node).contains(BESIDE)).count() >= 4);
    // Forked, and compacted.
    says(&world, "Well.");
    world.run(&["-p", "--fork", &session, "elsewhere"]).ok();
    is_clean("the fork", &body(&world));
    // A turn that is cut is summed up by itself.
    says(&world, "## Goal\nTo go on.");
    says(&world, "## Goal\nTo go on.");
    let before = world.requests().len();
    world.run(&["compact", &session]).ok();
    for request in &world.requests()[before..] {
        is_clean("the compaction", std::str::from_utf8(&request.body).unwrap());
    }
    // A question that active memory would answer with it.
    says(&world, "Nobody knows.");
    world.run(&["-p", "Who likes green things at the windows?"]).ok();
    is_clean("active memory", &body(&world));
    // An export is the history, and keeps it.
    assert!(world.run(&["export", "--format", "markdown", &session]).ok().text().contains(WORD));
}

#[test]
fn forgotten_result_leaves_a_valid_request_on_each_wire() {
    for wire in WIRES {
        // The command does not say the word.
        let arguments = |text: &str| json!({ "command": format!("echo {text}") }).to_string();
        let world = World::new([
            Answer::on(wire)
                .text("I look.")
                .tool_call("c1", "bash", &arguments("Wombat''son likes green"))
                .tool_call("c2", "bash", &arguments("and the fox"))
                .reply(),
            Answer::on(wire).text("Done.").reply(),
            Answer::on(wire).tool_call("c3", "bash", &arguments("more")).reply(),
            Answer::on(wire).text("Yes.").reply(),
        ]);
        configure(&world, wire);
        // What is checked at the end is of another provider.
        world.unchecked();
        world.run(&["memory", "on"]).ok();
        let asks = |args: &[&str]| {
            let mut command = world.quipu(&[&["--permissions", "full"], args].concat());
            // One wire names a project in its requests.
            command.env("GOOGLE_CLOUD_PROJECT", "project-7");
            RunningCommand::start(command).wait().ok();
        };
        asks(&["-p", "Look.", "--model", "p/m"]);
        assert!(body(&world).contains(WORD), "{wire:?}");
        let before = world.requests().len();
        forget(&world);
        asks(&["-c", "-p", "go on"]);
        let requests = world.requests();
        assert_eq!(requests.len(), before + 2, "{wire:?}");
        for (place, request) in requests[before..].iter().enumerate() {
            let sent = request.json();
            let text = sent.to_string();
            assert!(!text.contains(WORD) && text.contains("[forgotten"), "{wire:?}: {text}");
            assert!(text.contains("and the fox"), "{wire:?}: {text}");
            // The second one ends with a result.
            if place == 0 {
                check(wire, &sent);
            }
        }
    }
}

#[test]
fn forgotten_text_is_in_no_view_and_no_tool() {
    let (world, session) = told();
    let nodes = world.nodes_of(&[&session]);
    let ids: Vec<String> = nodes.iter().filter_map(|node| node["id"].as_str().map(str::to_owned)).collect();
    let views: Vec<Vec<&str>> = vec![
        vec!["life", &session],
        vec!["recall", &session],
        vec!["trace", "--all"],
        vec!["tree", &session],
        vec!["log"],
        vec!["blame", "note.txt"],
        vec!["diff", &ids[1], ids.last().unwrap()],
        vec!["sessions", "--all"],
        vec!["search", "green"],
        vec!["memory", "search", "what is green?"],
        vec!["dream", "--dry-run", "--json"],
    ];
    let all = |world: &World| -> Vec<(String, String)> {
        let shown = |view: &Vec<&str>| (view[0].to_owned(), world.run(view).text());
        views.iter().map(shown).collect()
    };
    let before = all(&world);
    for name in ["life", "recall", "tree", "log", "sessions", "search"] {
        let (_, text) = before.iter().find(|(view, _)| view == name).unwrap();
        assert!(text.contains(WORD) || text.contains(BESIDE), "{name} says nothing before: {text}");
    }
    forget(&world);
    for (view, text) in all(&world) {
        is_clean(&view, &text);
    }
    // Tools of a model.
    let last = ids.last().unwrap().as_str();
    let calls = [
        ("life", json!({ "hash": last })),
        ("recall", json!({ "hash": last })),
        ("recall", json!({ "hash": ids[0] })),
        ("trace", json!({ "scope": "project", "filter_mode": "all" })),
        ("search_history", json!({ "query": "green" })),
        ("memory_search", json!({ "query": "what is green?" })),
        ("memory_get", json!({ "path": "MEMORY.md" })),
    ];
    let mut answer = Answer::new();
    for (at, (tool, arguments)) in calls.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), tool, &arguments.to_string());
    }
    world.server.push(answer.reply());
    says(&world, "Nobody knows.");
    world.run(&["-p", "Look around."]).ok();
    is_clean("tools", &body(&world));
    // Other agents: their server and their hooks.
    let mut client = Client::started(&world);
    for (tool, arguments) in [
        ("memory_search", json!({ "query": "what is green?" })),
        ("memory_get", json!({ "path": "MEMORY.md" })),
        ("read", json!({ "id": session })),
        ("read", json!({ "id": last })),
        ("around", json!({ "id": last })),
        ("how", json!({ "id": last })),
        ("why", json!({ "file": world.path("work/note.txt") })),
    ] {
        is_clean(tool, &text(&client.call(tool, &arguments)));
    }
    let listed = client.ask("resources/list", &json!({})).to_string();
    is_clean("resources", &listed);
    let done = client.ask("prompts/get", &json!({ "name": "what-did-we-do-here" })).to_string();
    is_clean("prompts", &done);
    client.ends(0);
    for (event, more) in [
        ("UserPromptSubmit", json!({ "prompt": "What is green at the windows? Who likes green?" })),
        ("SessionStart", json!({ "source": "startup" })),
    ] {
        let mut payload = json!({ "session_id": "s-1", "cwd": world.path("work"), "hook_event_name": event });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut command = world.quipu(&["hook", "claude-code", event]);
        command.env("QUIPU_HOOK_DEADLINE_MS", "60000").stdin(std::process::Stdio::piped());
        let mut running = RunningCommand::start(command);
        running.child.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
        is_clean(event, &running.wait().text());
    }
    // The nodes are as they were.
    let kept: Vec<Value> = ids.iter().map(|id| world.run(&["show", id, "--json"]).ok().json()).collect();
    assert!(kept.iter().filter(|node| node.to_string().contains(WORD)).count() >= 4, "{kept:?}");
}

#[test]
fn unreadable_list_stops_sessions_and_searches() {
    let (world, _) = told();
    forget(&world);
    let list = world.path("home/.quipu/memory-state/forgotten.json");
    let before = std::fs::read(&list).unwrap();
    std::fs::write(&list, "no list").unwrap();
    let requests = world.requests().len();
    let refused = world.run(&["-c", "-p", "go on"]);
    assert!(!refused.status.success(), "{}", refused.err);
    assert!(refused.err.contains("no session is continued") && refused.err.contains("forgotten.json"));
    assert_eq!(world.requests().len(), requests);
    for view in [&["search", "green"][..], &["memory", "search", "what is green?"]] {
        let ran = world.run(view);
        assert!(ran.err.contains("forgotten.json"), "{view:?}: {}", ran.err);
        is_clean(view[0], &ran.text());
    }
    let refused = world.run(&["memory", "forget", "tabs", "--yes"]);
    assert!(!refused.status.success() && refused.err.contains("forgotten.json"), "{}", refused.err);
    std::fs::write(&list, before).unwrap();
    says(&world, "Well.");
    world.run(&["-c", "-p", "go on"]).ok();
    is_clean("the session", &body(&world));
}
