//! What becomes of a run that its server did not end: the next server continues it, unless people went on themselves or stopped it.

use std::path::PathBuf;
use std::time::Instant;

use quipu_testkit::Gate;

use super::conversations::*;
use super::*;

fn asks(server: &Server, text: &str) -> String {
    queued(server, MAIN, &json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0 } }))
}

/// The session of the only conversation.
fn session(world: &World) -> String {
    world.run(&["sessions", "--json"]).ok().json_lines()[0]["id"].as_str().unwrap().to_owned()
}

/// A text, and a call that the answer waits for.
fn works(text: &str) -> Reply {
    let arguments = json!({ "path": "note.txt", "content": "made" });
    Answer::new().text(text).tool_call("c1", "write", &arguments.to_string()).reply()
}

/// Asks something whose first answer is taken, and kills the server at its second; the id of the message.
fn killed_behind(world: &World, first: &str, second: &Gate) -> String {
    let server = Server::start(world);
    let id = asks(&server, "Go.");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), first);
    reached(second);
    drop(server);
    second.open();
    id
}

/// A hook that holds up prompts that say so.
struct HoldingHook {
    held: PathBuf,
    released: PathBuf,
}

impl HoldingHook {
    const WORDS: &str = "Hold this.";

    /// With a world that has it.
    fn of(script: impl IntoIterator<Item = Reply>) -> (Self, World) {
        let world = world(script);
        let pipe = |name: &str| {
            let path = world.path(name);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            path
        };
        let hook = Self { held: pipe("held"), released: pipe("released") };
        let (held, released) = (hook.held.display(), hook.released.display());
        let command =
            format!("if grep -q '{}'; then echo >'{held}'; cat '{released}'; fi; exit 0", Self::WORDS);
        let command = json!({ "type": "command", "command": command, "timeout": 600 });
        let hooks = json!({ "UserPromptSubmit": [{ "hooks": [command] }] });
        configure(&world, &json!({ "hooks": hooks }));
        (hook, world)
    }

    /// Waits until it holds a prompt up.
    fn holds(&self) {
        let held = self.held.clone();
        in_time(move || drop(std::fs::read(held).unwrap()));
    }

    fn releases(&self) {
        let released = self.released.clone();
        in_time(move || std::fs::write(released, "").unwrap());
    }
}

/// Does what could wait for ever.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).ok();
    });
    is_done.recv_timeout(LIMIT).expect("the hook is not where it was waited for");
}

#[test]
fn message_that_a_hook_held_is_aborted_with_the_stopped_run() {
    let (gate, never) = (Gate::new(), Gate::new());
    let (hook, world) = HoldingHook::of([gated(&gate, "Never."), gated(&never, "Never.")]);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    asks(&server, "Go.");
    reader.status("started");
    reached(&gate);
    let steered = json!({ "text": HoldingHook::WORDS, "queue": { "mode": "steer", "debounceMs": 0 } });
    queued(&server, MAIN, &steered);
    hook.holds();
    let are_aborted = |runs: f64| {
        let until = Instant::now() + LIMIT;
        while server.metric(r#"quipu_runs_total{outcome="aborted"}"#) != Some(runs) {
            assert!(Instant::now() < until, "{runs} aborted runs");
        }
    };
    let stopped = server.send("POST", &format!("/v1/conversations/{MAIN}/stop"), &[], "{}");
    // The run is over; the message begins another one, which nobody wants any more.
    are_aborted(1.0);
    hook.releases();
    assert_eq!(answer_of(stopped).status, 204);
    are_aborted(2.0);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn server_ends_in_time_although_a_hook_does_not() {
    let (hook, world) = HoldingHook::of([says("Held.")]);
    let server = Server::start(&world);
    asks(&server, HoldingHook::WORDS);
    hook.holds();
    server.ends(Signal::SIGTERM, 0);
    // The message waits for the next server.
    let server = Server::start(&world);
    std::thread::spawn(move || (hook.holds(), hook.releases()));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "Held.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn continued_run_says_when_it_begins_and_ends() {
    let (never, gate) = (Gate::new(), Gate::new());
    let world = world([works("One."), gated(&never, "Never."), gated(&gate, "Two."), says("Three.")]);
    world.unchecked();
    let id = killed_behind(&world, "One.", &never);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    reached(&gate);
    gate.open();
    let reply = reader.reply();
    assert_eq!((&reply["text"], &reply["key"]), (&json!("Two."), &json!(format!("turn-{id}/1"))));
    let ended = reader.status("ended");
    assert_eq!((&ended["messages"], &ended["outcome"]), (&json!([id]), &json!("done")), "{ended}");
    assert_eq!(acknowledge(&server, &reply).status, 204);
    asks(&server, "More.");
    assert_eq!(taken(&server, &mut reader), "Three.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn run_that_was_moved_back_is_answered_under_a_new_key() {
    let gate = Gate::new();
    let world = world([works("One."), works("Two."), gated(&gate, "Never."), says("Three."), says("Four.")]);
    world.unchecked();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let id = asks(&server, "Go.");
    for text in ["One.", "Two."] {
        assert_eq!(taken(&server, &mut reader), text);
    }
    reached(&gate);
    server.ends(Signal::SIGTERM, 0);
    gate.open();
    // To the result of the first call: the second answer is not in the way to it.
    let nodes = world.nodes();
    let result = nodes.iter().find(|node| node["role"] == "toolResult").unwrap()["id"].as_str().unwrap();
    world.run(&["branch", result, "--yes"]).ok();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let reply = reader.reply();
    assert_eq!((&reply["text"], &reply["key"]), (&json!("Three."), &json!(format!("turn-{id}/2"))));
    assert_eq!(acknowledge(&server, &reply).status, 204);
    asks(&server, "More.");
    assert_eq!(taken(&server, &mut reader), "Four.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn answers_to_people_are_not_sent_to_the_chat() {
    let gate = Gate::new();
    let world = world([works("One."), gated(&gate, "Never."), says("Private."), says("For all.")]);
    world.unchecked();
    killed_behind(&world, "One.", &gate);
    let private = world.run(&["-p", "--session", &session(&world), "Between us"]).ok();
    assert_eq!(private.text().trim(), "Private.");
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    asks(&server, "And now?");
    assert_eq!(taken(&server, &mut reader), "For all.");
    let asked: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert!(asked.contains(&"Between us".to_owned()), "{asked:?}");
    server.ends(Signal::SIGTERM, 0);
}

/// The session takes it in the run of the next message, which is over by then.
#[test]
fn prompt_that_a_person_queued_is_not_answered_to_the_chat() {
    let gate = Gate::new();
    let world = world([says("One."), gated(&gate, "Never."), says("Two."), says("Private."), says("Three.")]);
    world.unchecked();
    let server = Server::start(&world);
    asks(&server, "First.");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "One.");
    server.ends(Signal::SIGTERM, 0);
    let server = Server::start(&world);
    let mut socket = server.socket();
    let named = session(&world);
    let opened = socket.ask(json!({ "type": "open", "cwd": world.path("work"), "session": named }));
    let opened = opened["session"].as_str().unwrap().to_owned();
    socket.prompt(&opened, "Work.");
    reached(&gate);
    let command =
        json!({ "type": "prompt", "input": [{ "type": "text", "text": "Between us" }], "when": "followUp" });
    let ack = socket.ask(json!({ "type": "command", "session": opened, "command": command }));
    assert_eq!(ack["type"], "ack", "{ack}");
    drop(server);
    gate.open();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    asks(&server, "Second.");
    assert_eq!(taken(&server, &mut reader), "Two.");
    asks(&server, "Third.");
    assert_eq!(taken(&server, &mut reader), "Three.");
    let asked: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert!(asked.last().unwrap().contains("Between us"), "{asked:?}");
    server.ends(Signal::SIGTERM, 0);
}

/// A client of the API tries again by itself when its server is killed: it must not end what was accepted before.
#[test]
fn completion_waits_for_the_answer_that_a_killed_server_owes() {
    let gate = Gate::new();
    let world = world([works("One."), gated(&gate, "Never."), says("Owed."), says("After.")]);
    world.unchecked();
    let id = killed_behind(&world, "One.", &gate);
    let server = Server::start(&world);
    let body = json!({ "model": "quipu", "messages": [{ "role": "user", "content": "And?" }] }).to_string();
    let answer = server.request("POST", "/v1/chat/completions", &[("X-Quipu-Session-Key", MAIN)], &body);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "After.", "{answer:?}");
    let reply = Reader::of(&server, MAIN).reply();
    assert_eq!(reply["text"], "Owed.", "{reply}");
    assert!(reply["key"].as_str().unwrap().contains(&id), "{reply}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn stopped_run_stays_stopped_behind_a_kill() {
    let (gate, again, hung) = (Gate::new(), Gate::new(), Gate::new());
    let begun = |gate: &Gate| Reply::sse(Answer::new().text("I begin").unfinished()).then_gate(gate);
    let world = world([begun(&gate), begun(&again), begun(&hung), says("After.")]);
    world.unchecked();
    let server = Server::start(&world);
    asks(&server, "Go.");
    reached(&gate);
    let stop = |server: &Server| server.post(&format!("/v1/conversations/{MAIN}/stop"), &json!({}));
    assert_eq!(stop(&server).status, 204);
    drop(server);
    gate.open();
    // Also a run that the next server continues.
    let server = Server::start(&world);
    asks(&server, "Go on.");
    reached(&again);
    drop(server);
    again.open();
    let server = Server::start(&world);
    reached(&hung);
    assert_eq!(stop(&server).status, 204);
    drop(server);
    hung.open();
    let server = Server::start(&world);
    asks(&server, "And then?");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "After.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn second_server_says_that_it_has_no_conversations() {
    let world = world([says("One.")]);
    let first = Server::start(&world);
    asks(&first, "Go.");
    let reply = Reader::of(&first, MAIN).reply();
    let second = Server::start(&world);
    says_to(&second, MAIN, &json!({ "text": "Here?" })).refuses(503, "held_elsewhere");
    acknowledge(&second, &reply).refuses(503, "held_elsewhere");
    assert_eq!(acknowledge(&first, &reply).status, 204);
    second.ends(Signal::SIGTERM, 0);
    first.ends(Signal::SIGTERM, 0);
}

#[test]
fn message_that_waits_behind_a_private_answer_is_answered_alone() {
    let gate = Gate::new();
    let world = world([works("One."), gated(&gate, "Never."), says("Private."), says("Steered.")]);
    world.unchecked();
    let server = Server::start(&world);
    asks(&server, "Go.");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "One.");
    reached(&gate);
    queued(&server, MAIN, &json!({ "text": "Also this.", "queue": { "mode": "steer", "debounceMs": 0 } }));
    drop(server);
    gate.open();
    world.run(&["-p", "--session", &session(&world), "Between us"]).ok();
    let server = Server::start(&world);
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "Steered.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn stop_drops_what_was_handed_to_the_run_also_behind_a_kill() {
    let gate = Gate::new();
    let world = world([gated(&gate, "Never."), says("After.")]);
    world.unchecked();
    let server = Server::start(&world);
    asks(&server, "Go.");
    reached(&gate);
    queued(&server, MAIN, &json!({ "text": "Also this.", "queue": { "mode": "steer", "debounceMs": 0 } }));
    assert_eq!(server.post(&format!("/v1/conversations/{MAIN}/stop"), &json!({})).status, 204);
    drop(server);
    gate.open();
    let server = Server::start(&world);
    asks(&server, "And then?");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "After.");
    let asked: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert!(
        asked.contains(&"And then?".to_owned()) && !asked.contains(&"Also this.".to_owned()),
        "{asked:?}"
    );
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn run_whose_prompt_was_left_sends_nothing() {
    let gate = Gate::new();
    let world = world([says("One."), works("Two."), gated(&gate, "Never."), says("Three.")]);
    world.unchecked();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    for (text, answer) in [("First.", "One."), ("Go.", "Two.")] {
        asks(&server, text);
        assert_eq!(taken(&server, &mut reader), answer);
    }
    reached(&gate);
    drop((reader, server));
    gate.open();
    // Back to the answer of the turn before.
    let nodes = world.nodes();
    let before = nodes.iter().find(|node| node["role"] == "assistant").unwrap()["id"].as_str().unwrap();
    world.run(&["branch", before, "--yes"]).ok();
    let server = Server::start(&world);
    asks(&server, "And then?");
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "Three.");
    let asked: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert_eq!(asked, ["First.", "One.", "And then?"]);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn blocked_message_ends_and_holds_up_no_other() {
    let command = r#"grep -q password && { echo "no passwords" >&2; exit 2; }; exit 0"#;
    let hooks = json!({ "UserPromptSubmit": [{ "hooks": [{ "type": "command", "command": command }] }] });
    let world = world_with([says("Hello.")], &json!({ "hooks": hooks }));
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let id = asks(&server, "my password is x");
    let ended = reader.status("ended");
    assert_eq!((&ended["messages"], &ended["outcome"]), (&json!([id]), &json!("failed")), "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains("no passwords"), "{ended}");
    asks(&server, "Hi");
    assert_eq!(taken(&server, &mut reader), "Hello.");
    server.ends(Signal::SIGTERM, 0);
}

/// A message whose agent is removed while it waits never runs with the tools of everybody.
#[test]
fn messages_of_a_removed_agent_wait_until_it_is_set_up_again() {
    const RESTRICTED: &str = "agent:ro:main";
    let gate = Gate::new();
    let running = Reply::sse("").then_gate(&gate);
    let world = world([running, says("I am the other one."), says("First."), says("Second.")]);
    let with_agent = json!({ "agents": { "byId": { "ro": { "tools": { "deny": ["*"] } } } } });
    configure(&world, &with_agent);
    let server = Server::start(&world);
    let asks = |text: &str| {
        let queue = json!({ "mode": "followup", "debounceMs": 0 });
        queued(&server, RESTRICTED, &json!({ "text": text, "queue": queue }));
    };
    asks("one");
    reached(&gate);
    asks("two");
    drop(server);
    gate.open();
    configure(&world, &json!({}));
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Who are you?" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "I am the other one.");
    assert_eq!(world.requests().len(), 2, "nobody answers for the agent");
    configure(&world, &with_agent);
    let mut reader = Reader::of(&server, RESTRICTED);
    assert_eq!([taken(&server, &mut reader), taken(&server, &mut reader)], ["First.", "Second."]);
    for request in &world.requests()[2..] {
        assert!(request.json()["tools"].as_array().is_none_or(Vec::is_empty), "{}", request.json()["tools"]);
    }
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn message_that_waited_behind_a_killed_run_says_how_it_ends() {
    let (first, again) = (Gate::new(), Gate::new());
    let refuses = Reply::error(400, "invalid_request_error", "no such thing");
    let world = world([gated(&first, "Never."), gated(&again, "Gone on."), refuses]);
    let server = Server::start(&world);
    asks(&server, "Go.");
    reached(&first);
    let waits = asks(&server, "And then?");
    drop(server);
    first.open();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    reached(&again);
    again.open();
    let mut of = |status: &str| {
        let mut news = reader.status(status);
        while news["messages"] != json!([waits]) {
            news = reader.status(status);
        }
        news
    };
    of("started");
    let ended = of("ended");
    assert_eq!(ended["outcome"], "failed", "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains("no such thing"), "{ended}");
    server.ends(Signal::SIGTERM, 0);
}

/// A client of lines that has the session of a conversation holds that up as long as it is there.
#[test]
fn session_whose_clients_are_gone_is_given_back() {
    let world = world([says("One."), says("Bob."), says("Two."), says("Bob again.")]);
    let server = Server::start(&world);
    asks(&server, "First");
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(taken(&server, &mut reader), "One.");
    let session = session(&world);
    drop(reader);
    server.ends(Signal::SIGTERM, 0);
    let server = Server::start(&world);
    let completes = || {
        let messages = json!([{ "role": "user", "content": "Hi" }]);
        server.post("/v1/chat/completions", &json!({ "model": "quipu", "user": "bob", "messages": messages }))
    };
    assert_eq!(completes().status, 200);
    let all = world.run(&["sessions", "--json"]).ok().json_lines();
    let of_bob = all.iter().find(|row| row["id"] != session.as_str()).unwrap()["id"].clone();

    let mut client = server.socket();
    for session in [json!(session), of_bob] {
        let open = json!({ "type": "open", "cwd": world.path("work"), "session": session });
        assert_eq!(client.ask(open)["type"], "opened");
    }
    asks(&server, "Second");
    let mut reader = Reader::of(&server, MAIN);
    reader.status("failing");
    completes().refuses(409, "session_in_use");
    drop(client);
    assert_eq!(taken(&server, &mut reader), "Two.");
    let again = completes();
    assert_eq!(again.json()["choices"][0]["message"]["content"], "Bob again.", "{again:?}");
    server.ends(Signal::SIGTERM, 0);
}
