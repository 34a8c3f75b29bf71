//! Plans in fronts beside the terminal's own dialog: an editor, a program on stdin, and clients of `quipu serve`.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use quipu_testkit::Reply;
use serde_json::{Value, json};

use crate::planning::answers as reply;
use crate::pty::{CTRL_C, CTRL_D, says};
use crate::slash::with_editor;
use crate::support::*;

const CTRL_G: &str = "\u{7}";

fn plan(text: &str) -> Reply {
    call("p", "plan", &json!({ "text": text }))
}

fn write() -> Reply {
    call("w", "write", &json!({ "path": "made", "content": "x" }))
}

/// What the last note to the model says.
fn last_said(world: &World) -> String {
    wire_text(messages(world.requests().last().unwrap()).last().unwrap())
}

/// What became of the last plan of the only session.
fn outcomes(world: &World) -> Vec<(String, String)> {
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let shown = world.run(&["show", "--json", &id]).ok().json();
    let mut found = Vec::new();
    collect(&shown, &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            if let (Some(text), Some(outcome)) =
                (value["plan"]["text"].as_str(), value["plan"]["outcome"].as_str())
            {
                found.push((text.to_owned(), outcome.to_owned()));
            }
            members.values().for_each(|member| collect(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// A program that writes lines and reads lines.
pub(crate) struct LineClient {
    running: RunningCommand,
    stdin: Option<ChildStdin>,
}

impl LineClient {
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.quipu(args);
        command.stdin(Stdio::piped());
        let mut running = RunningCommand::start(command);
        let stdin = running.child.stdin.take();
        Self { running, stdin }
    }

    pub(crate) fn send(&mut self, line: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next line for which this holds.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.running.line().unwrap_or_else(|| panic!("it ended before {what}"));
            let line: Value = serde_json::from_str(&line).unwrap();
            if holds(&line) {
                return line;
            }
        }
    }

    pub(crate) fn end(mut self) -> CommandOutput {
        drop(self.stdin.take());
        self.running.wait()
    }
}

/// A client of `quipu serve` with a session in plan mode, and its name.
fn planning_client(world: &World) -> (LineClient, String) {
    let mut client = LineClient::start(world, &["serve"]);
    client.send(&json!({ "type": "hello", "version": 2 }));
    client.send(&json!({ "type": "open", "id": 1, "cwd": world.path("work") }));
    let opened = client.until("opened", |line| line["type"] == "opened");
    let session = opened["session"].as_str().unwrap().to_owned();
    client.send(&json!({ "type": "subscribe", "id": 2, "session": session, "answers": true }));
    client.until("the snapshot", |line| line["type"] == "snapshot");
    commands(&mut client, &session, 3, json!({ "type": "set", "setting": { "type": "plan", "on": true } }));
    client.until("the ack", |line| line["id"] == 3);
    let input = json!([{ "type": "text", "text": "plan it" }]);
    commands(&mut client, &session, 4, json!({ "type": "prompt", "input": input, "when": "now" }));
    (client, session)
}

fn commands(client: &mut LineClient, session: &str, id: u64, command: Value) {
    let mut line = json!({ "type": "command", "id": id, "session": session });
    line["command"] = command;
    client.send(&line);
}

/// The next question: its id and kind.
fn asked(client: &mut LineClient) -> (String, Value) {
    let line = client.until("a question", |line| line.to_string().contains("\"askOpened\""));
    let ask = &line["envelope"]["event"]["ask"];
    (ask["id"].as_str().unwrap().to_owned(), ask["kind"].clone())
}

fn answers(client: &mut LineClient, session: &str, id: u64, ask: &str, answer: Value) {
    let mut command = json!({ "type": "answer", "ask": ask });
    command["answer"] = answer;
    commands(client, session, id, command);
}

fn chooses(option: &str) -> Value {
    json!({ "type": "choose", "option": option })
}

fn settled(client: &mut LineClient) {
    client.until("the end of the run", |line| line.to_string().contains("\"runEnded\""));
}

#[test]
fn editor_changes_a_plan_in_the_terminal() {
    let world = World::new([plan("# Steps\n\n1. Write the file.\n"), write(), says("It is done.")]);
    let mut terminal =
        with_editor(&world, "printf '# Changed\\n\\n1. Write **made**.\\n' > \"$1\"", &["--plan"]);
    terminal.shows("test-1");
    terminal.types("plan it\r");
    terminal.shows("Accept this plan?");
    // Markdown is laid out, also in the question.
    terminal.shows("Steps");
    reply(&mut terminal, "2");
    terminal.shows("Edit the plan");
    reply(&mut terminal, "w");
    terminal.shows("Enter answers");
    terminal.types(CTRL_G);
    // Back from the editor, the first line of what it left stands there.
    terminal.shows("# Changed");
    terminal.types("\r");
    terminal.settles("It is done.");
    assert!(terminal.seen().contains("Write made."), "{}", terminal.seen());
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    let told = wire_text(messages(&world.requests()[1]).last().unwrap());
    assert!(told.contains("1. Write **made**."), "{told}");
    assert_eq!(outcomes(&world)[0].1, "edited");
    assert!(world.path("work/made").exists());
    world.check();
}

#[test]
fn program_on_stdin_refuses_edits_and_accepts_plans() {
    let world = World::new([plan("One.\nTwo."), plan("Less."), write(), says("Done.")]);
    let mut client =
        LineClient::start(&world, &["-p", "--plan", "--mode", "json", "--ask-on-stdin", "plan it"]);
    let next = |client: &mut LineClient, method: &str| {
        let line = client.until(method, |line| line["type"] == "extension_ui_request");
        assert_eq!(line["method"], method, "{line}");
        line
    };
    let answer = |client: &mut LineClient, asked: &Value, value: &str| {
        client.send(&json!({ "type": "extension_ui_response", "id": asked["id"], "value": value }));
    };
    let choice = next(&mut client, "select");
    assert!(choice["title"].as_str().unwrap().contains("One.\nTwo."), "the plan is in it: {choice}");
    let options: Vec<String> = serde_json::from_value(choice["options"].clone()).unwrap();
    // What is no option leaves the question open.
    answer(&mut client, &choice, "perhaps");
    client.until("the refusal", |line| line["type"] == "response" && line["success"] == false);
    answer(&mut client, &choice, &options[2]);
    let why = next(&mut client, "input");
    answer(&mut client, &why, "too much");
    let choice = next(&mut client, "select");
    answer(&mut client, &choice, &options[1]);
    let text = next(&mut client, "editor");
    assert_eq!(text["prefill"], "Less.");
    answer(&mut client, &text, "Nothing else.");
    client.end().ok();
    let told: Vec<String> =
        world.requests().iter().map(|one| wire_text(messages(one).last().unwrap())).collect();
    assert!(told[1].contains("too much") && told[2].contains("Nothing else."), "{told:?}");
    assert!(world.path("work/made").exists());
    let outcomes = outcomes(&world);
    let of: Vec<&str> = outcomes.iter().map(|(_, outcome)| outcome.as_str()).collect();
    assert_eq!(of, ["refused", "edited"]);
    world.check();
}

#[test]
fn unanswered_plan_ends_the_run_and_keeps_plan_mode() {
    let world = World::new([plan("Wait."), says("Still planning.")]);
    let mut client =
        LineClient::start(&world, &["-p", "--plan", "--mode", "json", "--ask-on-stdin", "plan it"]);
    client.until("the question", |line| line["type"] == "extension_ui_request");
    // Its end is no answer.
    client.end().ok();
    assert!(!world.path("work/made").exists());
    assert_eq!(outcomes(&world), [("Wait.".to_owned(), "unanswered".to_owned())]);
    world.run(&["-p", "-c", "more"]).ok();
    assert!(last_said(&world).contains("Plan mode is on"), "{}", last_said(&world));
    world.check();
}

#[test]
fn client_of_serve_accepts_edits_and_refuses_plans() {
    let world = World::new([plan("Too much."), plan("Less."), write(), says("Done.")]);
    let (mut client, session) = planning_client(&world);
    let (ask, kind) = asked(&mut client);
    assert!(kind.to_string().contains("Too much."), "{kind}");
    answers(&mut client, &session, 5, &ask, chooses("refuse"));
    let (ask, _) = asked(&mut client);
    answers(&mut client, &session, 6, &ask, json!({ "type": "text", "text": "fewer steps" }));
    let (ask, _) = asked(&mut client);
    // A bad answer is refused, and the question is still open.
    answers(&mut client, &session, 7, &ask, chooses("none of these"));
    client.until("the refusal", |line| line["id"] == 7 && line["type"] == "refused");
    answers(&mut client, &session, 8, &ask, chooses("edit"));
    let (ask, kind) = asked(&mut client);
    assert!(kind.to_string().contains("Less."), "{kind}");
    answers(&mut client, &session, 9, &ask, json!({ "type": "text", "text": "Only this." }));
    settled(&mut client);
    client.end().ok();
    assert!(world.path("work/made").exists());
    let outcomes = outcomes(&world);
    assert_eq!(outcomes, [("Too much.".into(), "refused".into()), ("Only this.".into(), "edited".into())]);
    world.check();
}

#[test]
fn plan_waits_for_no_client_that_is_gone() {
    let world = World::new([plan("First."), says("Again.")]);
    let (mut client, session) = planning_client(&world);
    asked(&mut client);
    // The only client that answers stops listening: nobody accepted it.
    client.send(&json!({ "type": "unsubscribe", "id": 10, "session": session }));
    client.until("done", |line| line["id"] == 10);
    client.end().ok();
    assert_eq!(outcomes(&world), [("First.".to_owned(), "unanswered".to_owned())]);
    world.run(&["-p", "-c", "more"]).ok();
    assert!(last_said(&world).contains("Plan mode is on"), "{}", last_said(&world));
    // One that dies while a plan waits leaves a session that goes on in plan mode.
    world.server.push(plan("Second."));
    world.server.push(says("Yet again."));
    let (mut client, _) = planning_client(&world);
    asked(&mut client);
    client.running.signal(nix::sys::signal::Signal::SIGKILL);
    drop(client.stdin.take());
    drop(client.running.wait());
    world.run(&["-p", "-c", "more"]).ok();
    assert!(last_said(&world).contains("Plan mode is on"), "{}", last_said(&world));
    assert!(!world.path("work/made").exists());
}
