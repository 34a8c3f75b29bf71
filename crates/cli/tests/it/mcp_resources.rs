//! Resources of MCP servers that a message mentions.

use std::path::PathBuf;
use std::process::Stdio;

use quipu_testkit::Answer;
use serde_json::json;

use crate::pty::{CTRL_D, ENTER, Terminal};
use crate::support::*;

const TOKEN: &str = "abcdefgh-12345678";

/// The user's own server `srv`.
fn own(world: &World) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/it/server.py");
    let env = json!({ "SERVER_LOG": world.path("tmp/log"), "SERVER_TOKEN": TOKEN });
    let server = json!({ "command": "python3", "args": [script, "good"], "env": env });
    let gone = json!({ "command": "/nowhere/server" });
    let file = json!({ "mcpServers": { "srv": server, "gone": gone } });
    std::fs::write(world.path("home/.quipu/mcp.json"), file.to_string()).unwrap();
}

/// What the model gets, and what people see.
fn told(world: &World, arguments: &[&str], piped: &str) -> (String, String) {
    world.server.push(Answer::new().text("Well.").reply());
    let mut command = world.quipu(arguments);
    command.stdin(Stdio::piped());
    let mut running = RunningCommand::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, piped.as_bytes()).unwrap();
    drop(stdin);
    let ran = running.wait().ok();
    let last = messages(world.requests().last().unwrap()).pop().unwrap();
    (last.to_string(), ran.err)
}

#[test]
fn mentioned_resources_are_read_bounded_and_kept() {
    let world = World::new([]);
    own(&world);
    let (message, said) = told(&world, &["-p", "See @srv:doc://notes/today, (@srv:doc://picture)."], "");
    for part in
        ["See @srv:doc://notes/today", "Resource doc://notes/today", "not instructions", "Buy milk. Key"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.contains("REDACTED:mcp") && !message.contains(TOKEN) && !message.contains('\u{200b}'));
    assert!(message.contains("image") && !said.contains("could not be read"), "{said}");
    // The node has it, with its source: a resumed session sends the same bytes, and reads nothing again.
    let nodes: Vec<String> = world.nodes().iter().map(ToString::to_string).collect();
    let node = nodes.iter().find(|node| node.contains("Buy milk.")).unwrap();
    assert!(node.contains("\"author\":\"untrusted\"") && node.contains("MCP server srv"), "{node}");
    assert!(!nodes.concat().contains(TOKEN));
    std::fs::write(world.path("tmp/log"), "").unwrap();
    let (again, _) = told(&world, &["-p", "-c", "again"], "");
    assert!(again.contains("again"), "{again}");
    let first = messages(world.requests().last().unwrap())[0].to_string();
    assert_eq!(first, message.replace(r#","cache_control":{"type":"ephemeral"}"#, ""));
    assert!(!std::fs::read_to_string(world.path("tmp/log")).unwrap().contains("read "));
}

#[test]
fn resources_that_cannot_be_read_are_named_in_a_line() {
    let world = World::new([]);
    own(&world);
    let task = "@srv:doc://none @srv:doc://binary @srv:doc://huge @gone:a://b @other:a://b @other:b";
    let (message, said) = told(&world, &["-p", task], "");
    for part in [
        "@srv:doc://none could not be read: the server answered with error -32002: Resource not found",
        "@srv:doc://binary could not be read: the answer is not valid: doc://binary: 6 bytes of application/x-thing",
        "@srv:doc://huge is not whole. Left out: 786432 bytes of text: a resource has at most 256 KiB",
        "@gone:a://b could not be read: the connection ended: the program /nowhere/server could not be started",
        "@other:a://b could not be read: this session has no MCP server other",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("@other:b") && message.contains("this session has no MCP server other"));
    world.unchecked();
    let (_, said) = told(&world, &["-p", "see @srv:doc://die", "--no-session"], "");
    assert!(said.contains("@srv:doc://die could not be read: the connection ended"), "{said}");
}

#[test]
fn text_that_nobody_typed_mentions_nothing() {
    let world = World::new([]);
    own(&world);
    world.file("notes.txt", "@srv:doc://notes/today");
    let (message, _) = told(&world, &["-p", "@notes.txt", "sum up"], "@srv:doc://picture\n");
    assert!(message.contains("sum up") && !message.contains("Buy milk"), "{message}");
    // The text of a server's prompt names no file and no resource.
    for path in ["@srv:doc://notes/today", "@notes.txt", "@secret.gif"] {
        world.file("secret.gif", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;".as_slice());
        let prompt = format!("/mcp__srv__plain_text path={path}");
        let (message, _) = told(&world, &["-p", &prompt], "");
        assert!(message.contains(path) && !message.contains("Buy milk"), "{message}");
        assert!(!message.contains("<file") && !message.contains("image"), "{message}");
    }
    assert!(!std::fs::read_to_string(world.path("tmp/log")).unwrap().contains("read "));
}

#[test]
fn terminal_completes_and_reads_a_resource() {
    let world = World::new([]);
    own(&world);
    world.server.push(Answer::new().text("Bought.").reply());
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/mcp");
    terminal.types(ENTER);
    terminal.shows("ready 13 tools");
    terminal.types("see @sr");
    terminal.shows("srv:");
    terminal.types(ENTER);
    terminal.shows("doc://notes/today");
    terminal.types("today");
    terminal.types(ENTER);
    terminal.shows("@srv:doc://notes/today");
    terminal.types("and @srv:doc://none");
    terminal.types(ENTER);
    terminal.shows("Bought.");
    terminal.shows("@srv:doc://none could not be read");
    let message = messages(world.requests().last().unwrap()).pop().unwrap().to_string();
    assert!(message.contains("Buy milk."), "{message}");
    // A person sees and gets back what they typed.
    terminal.until("one message", |shown| {
        !shown.contains("Buy milk.") && shown.matches("see @srv:doc://notes/today").count() == 1
    });
    let title = world.run(&["sessions", "--json"]).ok().json();
    assert_eq!(title["title"], "see @srv:doc://notes/today and @srv:doc://none");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
