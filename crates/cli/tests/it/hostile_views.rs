//! Text of others on a terminal: whatever a session holds, no view of it lets a control or a mark of direction through.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::archive::{ID, assistant, conversation, entry, user};
use crate::export::import;
use crate::planning::answers as reply;
use crate::pty::{CTRL_C, CTRL_D, Terminal, says};
use crate::support::*;

/// A title and a colour by escapes of both forms, marks of direction, characters that nobody sees, and one huge line.
const HOSTILE: &str = "\u{1b}]0;OWNED\u{7}\u{1b}[31m\u{9b}32m\u{9d}0;OWNED\u{9c}\u{202e}\u{2066}\u{200b}\u{7f}\r\u{8}\u{c}\u{85}x";

fn hostile(word: &str) -> String {
    format!("{word}{HOSTILE}{}", "y".repeat(70_000))
}

/// The characters that should not be in what people are shown.
fn leaks(shown: &str) -> Vec<String> {
    let is_foreign = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut found: Vec<String> =
        shown.chars().filter(is_foreign).map(|c| c.escape_unicode().to_string()).collect();
    found.dedup();
    found.truncate(20);
    found
}

/// A session of another program in which every name and text is hostile.
fn entries(world: &World) -> Vec<Value> {
    let mut entries = conversation(world, ID);
    let name = |word: &str| format!("{word}{HOSTILE}");
    let call = json!([
        { "type": "thinking", "thinking": hostile("thought") },
        { "type": "text", "text": hostile("answer") },
        { "type": "toolCall", "id": name("c1"), "name": name("tool"), "arguments": { "path": name("/tmp/p"), "command": hostile("cmd") } },
        { "type": "toolCall", "id": "c2", "name": "todo", "arguments": { "items": [{ "text": hostile("item"), "status": "pending" }] } },
        { "type": "toolCall", "id": "c3", "name": "plan", "arguments": { "text": hostile("plan") } },
        { "type": "toolCall", "id": "c4", "name": "task", "arguments": { "agent": name("agent"), "prompt": hostile("prompt") } },
    ]);
    let mut answer = assistant("a4", "u4", &call, "error");
    answer["message"]["model"] = name("model").into();
    answer["message"]["provider"] = name("provider").into();
    answer["message"]["api"] = name("api").into();
    answer["message"]["errorMessage"] = hostile("error").into();
    let result = |id: &str, tool: &str, details: Value| {
        json!({ "type": "message", "message": {
            "role": "toolResult", "toolCallId": id, "toolName": tool, "isError": false, "timestamp": 7,
            "content": [{ "type": "text", "text": hostile("result") }, { "type": "image", "data": "AAAA", "mimeType": name("image/png") }],
            "details": details,
        } })
    };
    let todo = json!({ "todo": { "items": [{ "text": name("item"), "status": "pending" }] } });
    let plan = json!({ "plan": { "text": hostile("plan"), "outcome": "refused" } });
    entries.extend([
        user("u4", "l1", &hostile("said")),
        answer,
        entry("r1", Some("a4"), &result(&name("c1"), &name("tool"), json!({ "diff": hostile("diff") }))),
        entry("r2", Some("r1"), &result("c2", "todo", todo)),
        entry("r3", Some("r2"), &result("c3", "plan", plan)),
        entry("r4", Some("r3"), &result("c4", "task", json!({ "agent": name("agent") }))),
        entry("m4", Some("r4"), &json!({ "type": "model_change", "provider": name("provider"), "modelId": name("model") })),
        entry("x4", Some("m4"), &json!({ "type": "custom", "customType": name("custom"), "data": { "text": hostile("data") } })),
        entry("n4", Some("x4"), &json!({ "type": "custom_message", "customType": name("custom"), "content": hostile("note"), "display": true })),
        entry("l4", Some("n4"), &json!({ "type": "label", "targetId": "u4", "label": name("label") })),
        entry("i4", Some("l4"), &json!({ "type": "session_info", "name": name("named") })),
        entry("s4", Some("i4"), &json!({ "type": "branch_summary", "fromId": "u4", "summary": hostile("summary") })),
        entry("b4", Some("s4"), &json!({ "type": "message", "message": {
            "role": "bashExecution", "command": hostile("bash"), "output": hostile("output"), "exitCode": 1,
            "cancelled": false, "truncated": false, "timestamp": 8,
        } })),
    ]);
    entries
}

#[test]
fn no_view_lets_controls_of_a_session_through() {
    let world = World::new([]);
    import(&world, &entries(&world));
    let nodes = world.nodes_of(&[ID]);
    let mut views: Vec<Vec<String>> = Vec::new();
    let mut view = |words: &[&str]| views.push(words.iter().map(|word| (*word).to_owned()).collect());
    for words in [
        &["sessions", "--all"][..],
        &["tree", ID],
        &["tree", ID, "--all"],
        &["log", "--all", "--since", "2020-01-01"],
        &["show", ID],
        &["usage", "--since", "2020-01-01"],
        &["usage", "--since", "2020-01-01", "--by", "model"],
        &["usage", "--since", "2020-01-01", "--by", "session"],
        &["files", ID],
        &["search", "said"],
        &["search", "answer"],
        &["search", "item"],
        &["search", "plan"],
        &["bookmark", "list"],
        &["export", "--format", "markdown", ID],
        &["context", ID],
        &["trace", ID],
        &["agents"],
        &["doctor"],
    ] {
        view(words);
    }
    for node in &nodes {
        let id = node["id"].as_str().unwrap();
        view(&["show", id]);
        view(&["recall", id]);
        view(&["life", id]);
    }
    let (first, last) = (nodes[2]["id"].as_str().unwrap(), nodes.last().unwrap()["id"].as_str().unwrap());
    view(&["diff", first, last]);
    let mut leaking = Vec::new();
    for words in &views {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = world.run(&words);
        assert_ne!(ran.status.code(), Some(2), "{words:?}: {}", ran.err);
        let found = [leaks(&ran.text()), leaks(&ran.err)].concat();
        if !found.is_empty() {
            leaking.push(format!("{words:?}: {found:?}"));
        }
    }
    assert!(leaking.is_empty(), "{}", leaking.join("\n"));
}

/// What a model says, plans, calls its agents and lists to do.
fn replies() -> Vec<Reply> {
    let text = |word: &str| format!("{word}{HOSTILE}");
    let item = |word: &str| json!({ "items": [{ "text": text(word), "status": "in_progress" }] });
    vec![
        call("t", "todo", &item("item")),
        call(
            "u",
            "task",
            &json!({ "agent": text("agent"), "prompt": text("prompt"), "description": text("errand") }),
        ),
        call("p", "plan", &json!({ "text": format!("{}\n2. {}", text("1. plan"), text("more")) })),
        says(&text("It is done.")),
    ]
}

/// What a program writes that sets the title or another colour in the name of others.
fn is_owned(bytes: &[u8]) -> bool {
    [
        &b"\x1b]0;OWNED"[..],
        b"\xc2\x9d0;OWNED",
        b"\xc2\x9b32m",
        "\u{202e}".as_bytes(),
        "\u{2066}".as_bytes(),
        b"\x9b32m",
    ]
    .iter()
    .any(|part| contains(bytes, part))
}

#[test]
fn terminal_shows_plans_and_lists_without_their_controls() {
    let world = World::new(replies());
    let mut terminal = Terminal::open(&world, &["--plan"]);
    terminal.shows("test-1");
    terminal.types("go\r");
    terminal.shows("Accept this plan?");
    terminal.shows("item");
    reply(&mut terminal, "1");
    terminal.settles("It is done.");
    terminal.types("/tree\r");
    terminal.shows("type to search");
    terminal.types("\u{1b}");
    terminal.hides("type to search");
    terminal.types("/resume\r");
    terminal.shows("entries");
    terminal.types("\u{1b}");
    terminal.hides("entries");
    assert!(!is_owned(&terminal.bytes), "{:?}", String::from_utf8_lossy(&terminal.bytes));
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    terminal.ends();
    // The same session when it is opened again.
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("It is done.");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    terminal.ends();
    assert!(!is_owned(&terminal.bytes));
}

#[test]
fn printed_plan_shows_no_controls_on_a_terminal() {
    let mut replies = replies();
    // Nobody answers the plan, so the run ends with it.
    replies.pop();
    let world = World::new(replies);
    let (code, shown) = on_terminal(&world, &["-p", "--plan", "go"], "", 80);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("plan") && !is_owned(shown.as_bytes()), "{shown:?}");
    world.server.push(Answer::new().text(&format!("Fine.{HOSTILE}")).reply());
    let (_, shown) = on_terminal(&world, &["-p", "-c", "--permissions", "workspace", "go"], "", 80);
    assert!(shown.contains("Fine.") && !is_owned(shown.as_bytes()), "{shown:?}");
}
