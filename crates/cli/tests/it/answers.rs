//! `--ask-on-stdin`: another program answers what is asked.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// A run that asks, and the program that answers it.
struct AskingRun {
    running: RunningCommand,
    stdin: Option<ChildStdin>,
    lines: Vec<Value>,
}

fn write(path: &str) -> Reply {
    call("c1", "write", &json!({ "path": path, "content": "x" }))
}

impl AskingRun {
    fn start(world: &World, calls: Vec<Reply>, args: &[&str]) -> Self {
        calls.into_iter().for_each(|reply| world.server.push(reply));
        world.server.push(Answer::new().text("I see.").reply());
        let args = [&["-p", "--mode", "json", "--ask-on-stdin", "go on"], args].concat();
        let mut command = world.quipu(&args);
        command.stdin(Stdio::piped());
        let mut running = RunningCommand::start(command);
        let stdin = running.child.stdin.take();
        Self { running, stdin, lines: Vec::new() }
    }

    /// The next line of this type.
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let line = self.running.line().unwrap_or_else(|| panic!("no {kind}: {:?}", self.lines));
            let line: Value = serde_json::from_str(&line).unwrap();
            self.lines.push(line.clone());
            if line["type"] == kind {
                return line;
            }
        }
    }

    /// The next question; it stands in the events as well.
    fn asked(&mut self) -> Value {
        let event = self.next("quipu_asked");
        let asked = self.next("extension_ui_request");
        assert_eq!((&asked["id"], &asked["method"]), (&event["id"], &json!("select")));
        assert!(asked["title"].as_str().unwrap().contains(event["subject"].as_str().unwrap()), "{asked}");
        asked
    }

    fn send(&mut self, line: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_ref()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    fn answer(&mut self, asked: &Value, mut members: Value) {
        members["type"] = "extension_ui_response".into();
        members["id"] = asked["id"].clone();
        self.send(members.to_string());
    }

    /// The error that a line got.
    fn told(&mut self) -> String {
        let told = self.next("response");
        assert_eq!(told["success"], false);
        told["error"].as_str().unwrap().to_owned()
    }

    /// What became of the question that was asked last.
    fn closed(&mut self) -> Value {
        self.next("quipu_ask_closed")
    }

    fn end(mut self) -> CommandOutput {
        let stdin = self.stdin.take();
        let ran = self.running.wait().ok();
        drop(stdin);
        ran
    }
}

/// The text of the result that the model was told last.
fn result(world: &World) -> String {
    let last = messages(world.requests().last().unwrap()).pop().unwrap();
    wire_text(&last["content"][0])
}

#[test]
fn once_is_for_one_call() {
    let world = World::new([]);
    let mut asking = AskingRun::start(&world, vec![write("../once"), write("../once")], &[]);
    let asked = asking.asked();
    assert_eq!(asked["options"], json!(["once", "session", "always", "no"]));
    assert_eq!(asked["timeout"], 600_000);
    asking.answer(&asked, json!({ "value": "once" }));
    assert_eq!(asking.closed()["answer"], "allow");
    let asked = asking.asked();
    assert!(world.path("once").exists());
    asking.answer(&asked, json!({ "confirmed": true }));
    asking.end();
    assert!(!world.path("home/.quipu/permissions.json").exists());
}

#[test]
fn session_is_until_its_end() {
    let world = World::new([]);
    let mut asking = AskingRun::start(&world, vec![write("../session"), write("../session")], &[]);
    let asked = asking.asked();
    asking.answer(&asked, json!({ "value": "session" }));
    let ran = asking.end();
    assert_eq!(ran.text().matches("quipu_asked").count(), 1, "the second is not asked");
    let mut asking = AskingRun::start(&world, vec![write("../session")], &[]);
    let asked = asking.asked();
    asking.answer(&asked, json!({ "cancelled": true }));
    asking.end();
    assert!(result(&world).contains("The user did not allow this call."), "{}", result(&world));
}

/// Whatever the first answer was, and where nobody is there for a second one.
#[test]
fn file_linked_while_asked_is_asked_again() {
    let world = World::new([]);
    let (victim, file) = (world.path("victim"), world.path("file"));
    std::fs::write(&victim, "old").unwrap();
    let swap = || {
        std::fs::remove_file(&file).ok();
        std::fs::hard_link(&victim, &file).unwrap();
    };
    for (value, leaves) in [("once", false), ("once", true), ("session", false), ("always", false)] {
        std::fs::remove_file(&file).ok();
        std::fs::write(&file, "plain").unwrap();
        let mut asking = AskingRun::start(&world, vec![write("../file")], &[]);
        let asked = asking.asked();
        swap();
        asking.answer(&asked, json!({ "value": value }));
        if leaves {
            asking.stdin = None;
            asking.end();
            let told = result(&world);
            assert!(told.contains("was not run") || told.contains("nobody could answer"), "{told}");
        } else {
            assert_eq!(asking.closed()["answer"], "allow");
            let again = asking.asked();
            assert!(again["title"].as_str().unwrap().contains("other names (hard links)"), "{again}");
            assert_eq!(again["options"], json!(["once", "no"]));
            asking.answer(&again, json!({ "value": "no" }));
            asking.end();
            assert!(result(&world).contains("did not allow"), "{}", result(&world));
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "old", "{value}");
    }
    assert!(!world.path("home/.quipu/permissions.json").exists(), "what was not shown is not kept");
}

#[test]
fn always_is_kept_listed_and_revoked() {
    let world = World::new([]);
    let mut asking = AskingRun::start(&world, vec![write("../always")], &[]);
    let asked = asking.asked();
    asking.answer(&asked, json!({ "value": "always" }));
    asking.end();
    let listed = world.run(&["permissions", "list"]).ok().text();
    assert!(listed.contains("p1") && listed.contains("write") && listed.contains("/always"), "{listed}");
    let ran = AskingRun::start(&world, vec![write("../always")], &[]).end();
    assert!(!ran.text().contains("quipu_asked"));
    world.run(&["permissions", "revoke", "p1"]).ok();
    let mut asking = AskingRun::start(&world, vec![write("../always")], &[]);
    let asked = asking.asked();
    asking.answer(&asked, json!({ "value": "no" }));
    asking.end();
}

#[test]
fn no_tells_the_model_why() {
    let world = World::new([]);
    let mut asking = AskingRun::start(&world, vec![write("../no")], &[]);
    let asked = asking.asked();
    asking.answer(&asked, json!({ "value": "no", "reason": "not there" }));
    let closed = asking.closed();
    assert_eq!((&closed["answer"], &closed["reason"]), (&json!("deny"), &json!("not there")));
    asking.end();
    assert!(!world.path("no").exists());
    assert_eq!(result(&world), "The user did not allow this call: not there");
}

#[test]
fn invalid_answer_is_reported_and_the_question_stays() {
    let world = World::new([]);
    std::fs::create_dir(world.path("home/.ssh")).unwrap();
    std::fs::write(world.path("home/.ssh/config"), "Host h").unwrap();
    let read = call("c1", "read", &json!({ "path": "~/.ssh/config" }));
    let mut asking = AskingRun::start(&world, vec![read], &["--no-session"]);
    world.unchecked();
    // Before anything is asked.
    asking.send(r#"{"type":"extension_ui_response","id":"a1","value":"once"}"#);
    assert!(asking.told().contains("no open question `a1`"));
    let asked = asking.asked();
    assert_eq!(asked["options"], json!(["once", "no"]), "secrets are asked each time");
    for (line, told) in [
        ("garbage".as_bytes().to_vec(), "Failed to parse command"),
        (b"\xff\xfe".to_vec(), "Failed to parse command"),
        (vec![b' '; 3 << 20], "longer than"),
        (br#"{"type":"abort"}"#.to_vec(), "Unknown command: abort"),
        (br#"{"type":"extension_ui_response","id":"a9","value":"once"}"#.to_vec(), "no open question `a9`"),
    ] {
        asking.send(line);
        assert!(asking.told().contains(told), "{told}");
    }
    asking.send("\r");
    for value in ["always", "session", "yes"] {
        asking.answer(&asked, json!({ "value": value }));
        assert!(asking.told().contains("not an option"), "{value}");
    }
    assert!(!asking.lines.iter().any(|line| line["type"] == "quipu_ask_closed"));
    // Twice: the first counts.
    asking.answer(&asked, json!({ "value": "once" }));
    asking.answer(&asked, json!({ "value": "no" }));
    assert!(asking.told().contains("no open question"));
    asking.end();
    assert!(result(&world).contains("Host h"));
}

#[test]
fn a_closed_stdin_refuses_what_is_asked() {
    let world = World::new([]);
    let both = || {
        let both = Answer::new().tool_call("c1", "write", r#"{"path":"../a","content":"x"}"#);
        both.tool_call("c2", "write", r#"{"path":"../b","content":"x"}"#).reply()
    };
    // While two questions are open; the last line has no end.
    let mut asking = AskingRun::start(&world, vec![both(), write("../c")], &[]);
    let (first, _) = (asking.asked(), asking.asked());
    let line = json!({ "type": "extension_ui_response", "id": first["id"], "value": "once" }).to_string();
    asking.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert_eq!(asking.closed()["answer"], "allow");
    let closed = asking.closed();
    assert_eq!(closed["answer"], "deny");
    assert!(closed["reason"].as_str().unwrap().contains("stdin is closed"), "{closed}");
    let ran = asking.end();
    assert_eq!(ran.err.matches("stdin is closed, so nobody can answer").count(), 2, "{}", ran.err);
    assert!(world.path("a").exists() && !world.path("b").exists() && !world.path("c").exists());
    assert!(result(&world).contains("nobody could answer"), "{}", result(&world));
    // From the beginning; who is never asked is not missed.
    for reply in [write("../d"), Answer::new().text("I see.").reply(), Answer::new().text("Fine.").reply()] {
        world.server.push(reply);
    }
    let flags = ["-p", "--mode", "json", "--ask-on-stdin", "x"];
    assert!(world.run(&flags).ok().err.contains("nobody can answer"));
    assert!(!world.run(&flags).ok().err.contains("nobody can answer"));
    assert!(!world.path("d").exists());
}

#[test]
fn without_the_flag_it_is_refused_at_once_and_the_events_say_so() {
    let world = World::new([write("../x"), Answer::new().text("I see.").reply()]);
    let lines = world.run_with(&["-p", "--mode", "json", "x"], "piped").ok().json_lines();
    assert!(!lines.iter().any(|line| line["type"] == "quipu_asked"));
    let end = lines.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert!(end["isError"] == true && end.to_string().contains("nobody is here to give it"), "{end}");
    // Stdin is the task, or it is the answers.
    assert_eq!(wire_text(&messages(&world.requests()[0])[0]), "piped\nx");
    world.server.push(Answer::new().text("Fine.").reply());
    world.run_with(&["-p", "--mode", "json", "--ask-on-stdin", "x"], "not JSON").ok();
    assert_eq!(wire_text(&messages(world.requests().last().unwrap())[0]), "x");
    world.run(&["-p", "--ask-on-stdin", "x"]).fails(2, &["--ask-on-stdin", "--mode json"]);
}
