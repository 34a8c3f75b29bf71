//! Messages of conversations and their replies, over restarts and kills.

use std::collections::{BTreeMap, BTreeSet};

use quipu_store::{OpenOptions, SqliteStore, Store as _, conversation_inbox};
use quipu_testkit::Gate;

use super::*;

pub(super) const MAIN: &str = "agent:main:main";

/// A world whose agents and queues are set up so.
pub(super) fn world_with(script: impl IntoIterator<Item = Reply>, more: &Value) -> World {
    let world = World::new(script);
    configure(&world, more);
    world
}

/// An answer that begins when the gate opens.
pub(super) fn gated(gate: &Gate, text: &str) -> Reply {
    Reply::sse("").then_gate(gate).then(Answer::new().text(text).stream())
}

pub(super) fn says_to(server: &Server, key: &str, body: &Value) -> HttpAnswer {
    server.post(&format!("/v1/conversations/{key}/messages"), body)
}

/// It must be taken; its id.
#[track_caller]
pub(super) fn queued(server: &Server, key: &str, body: &Value) -> String {
    let answer = says_to(server, key, body);
    assert_eq!((answer.status, answer.json()["status"].as_str()), (202, Some("queued")), "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Who reads replies.
pub(super) struct Reader(BufReader<TcpStream>);

impl Reader {
    pub(super) fn new(server: &Server, path: &str) -> Self {
        let mut reader = BufReader::new(server.send("GET", path, &[], ""));
        let head = head_of(&mut reader).to_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
        Self(reader)
    }

    pub(super) fn of(server: &Server, key: &str) -> Self {
        Self::new(server, &format!("/v1/conversations/{key}/replies"))
    }

    /// The name of the next event, and its data; `None` at the end of the stream.
    pub(super) fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(other) = line.strip_prefix("event: ") {
                name = other.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).unwrap()));
            }
        }
    }

    pub(super) fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("the stream ended before {kind}"));
            if name == kind {
                return data;
            }
        }
    }

    pub(super) fn reply(&mut self) -> Value {
        self.next_of("reply")
    }

    /// The next news of a message with this status.
    pub(super) fn status(&mut self, status: &str) -> Value {
        loop {
            let news = self.next_of("status");
            if news["status"] == status {
                return news;
            }
        }
    }
}

pub(super) fn acknowledge(server: &Server, reply: &Value) -> HttpAnswer {
    acknowledge_at(server, reply["conversation"].as_str().unwrap(), reply)
}

/// The same with the key as an address has it.
fn acknowledge_at(server: &Server, key: &str, reply: &Value) -> HttpAnswer {
    let id = reply["id"].as_str().unwrap();
    server.request("POST", &format!("/v1/conversations/{key}/replies/{id}/ack"), &[], "")
}

/// The next reply, which is acknowledged; what it says.
#[track_caller]
pub(super) fn taken(server: &Server, reader: &mut Reader) -> String {
    let reply = reader.reply();
    let answer = acknowledge(server, &reply);
    assert_eq!(answer.status, 204, "{answer:?}");
    reply["text"].as_str().unwrap().to_owned()
}

#[test]
fn reply_is_offered_under_one_key_until_acknowledged() {
    let world = world([says("Hello."), says("Again."), says("Third.")]);
    let server = Server::start(&world);
    let id = queued(&server, MAIN, &json!({ "text": "Hi", "messageId": "m1" }));
    let mut reader = Reader::of(&server, MAIN);
    let first = reader.reply();
    assert_eq!((first["text"].as_str(), first["conversation"].as_str()), (Some("Hello."), Some(MAIN)));
    assert_eq!(first["key"], format!("turn-{id}/0"), "{first}");
    assert_eq!(first["route"], json!({ "channel": "http", "to": MAIN }));
    // The same message is taken once.
    let again = says_to(&server, MAIN, &json!({ "text": "Hi", "messageId": "m1" }));
    assert_eq!((again.status, again.json()["status"].as_str()), (200, Some("duplicate")), "{again:?}");
    // Whoever reads sees it until it is acknowledged, also after a crash.
    assert_eq!(Reader::new(&server, "/v1/replies").reply(), first);
    let more = queued(&server, MAIN, &json!({ "text": "More" }));
    while reader.status("ended")["messages"] != json!([more]) {}
    drop((reader, server));
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(reader.reply(), first);
    let other = acknowledge(&server, &json!({ "conversation": "agent:main:direct:bob", "id": first["id"] }));
    other.refuses(404, "no_reply");
    let answer = acknowledge(&server, &first);
    assert_eq!(answer.status, 204, "{answer:?}");
    acknowledge(&server, &first).refuses(404, "no_reply");
    assert_eq!(taken(&server, &mut reader), "Again.");
    server.ends(Signal::SIGTERM, 0);
    // What was acknowledged is not offered again.
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Still there?" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "Third.");
    let texts: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert!(texts[0].ends_with("Hi") && texts.contains(&"Again.".to_owned()), "{texts:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn accepted_messages_are_answered_after_a_kill() {
    let gate = Gate::new();
    let world = world([gated(&gate, "never"), says("One."), says("Two."), says("Bob.")]);
    let server = Server::start(&world);
    let followup = |text: &str| json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0 } });
    queued(&server, MAIN, &followup("first"));
    reached(&gate);
    queued(&server, MAIN, &followup("second"));
    drop(server);
    gate.open();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(taken(&server, &mut reader), "One.");
    assert_eq!(taken(&server, &mut reader), "Two.");
    queued(&server, "agent:main:direct:bob", &json!({ "text": "third" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, "agent:main:direct:bob")), "Bob.");
    let texts: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert!(texts[0].ends_with("first") && texts[1..] == ["One.", "second"], "{texts:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn run_that_a_signal_ended_is_continued_by_the_next_server() {
    let gate = Gate::new();
    let begun = Answer::new().text("I begin").unfinished();
    let world = world([Reply::sse(begun).then_gate(&gate), says("Whole.")]);
    let server = Server::start(&world);
    let id = queued(&server, MAIN, &json!({ "text": "Go." }));
    reached(&gate);
    server.ends(Signal::SIGTERM, 0);
    gate.open();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let reply = reader.reply();
    assert_eq!(reply["text"], "Whole.", "{reply}");
    assert!(reply["key"].as_str().unwrap().starts_with(&format!("turn-{id}/")), "{reply}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn stop_word_ends_what_its_sender_may_stop() {
    let (gate, second) = (Gate::new(), Gate::new());
    let begun = || Answer::new().text("I begin").unfinished();
    let script =
        [Reply::sse(begun()).then_gate(&gate), Reply::sse(begun()).then_gate(&second), says("After.")];
    let world = world(script);
    world.unchecked();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let anna = json!({ "sender": "anna" });
    queued(&server, MAIN, &json!({ "text": "Go.", "authority": anna }));
    reached(&gate);
    let stop = |authority: Value| says_to(&server, MAIN, &json!({ "text": "stop!", "authority": authority }));
    // Somebody else stops nothing of hers; she does.
    assert_eq!(stop(json!({ "sender": "bob" })).json()["status"], "stopped");
    assert_eq!(stop(anna).json()["status"], "stopped");
    assert_eq!(reader.status("ended")["outcome"], "aborted");
    queued(&server, MAIN, &json!({ "text": "Again.", "authority": { "sender": "anna" } }));
    reached(&second);
    let stopped = server.post(&format!("/v1/conversations/{MAIN}/stop"), &json!({}));
    assert_eq!(stopped.status, 204, "the owner stops all: {stopped:?}");
    assert_eq!(reader.status("ended")["outcome"], "aborted");
    gate.open();
    second.open();
    queued(&server, MAIN, &json!({ "text": "Once more." }));
    assert_eq!(taken(&server, &mut reader), "After.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn messages_are_queued_as_the_settings_say() {
    let gate = Gate::new();
    let world = world_with(
        [gated(&gate, "First."), says("Both."), says("Bob's.")],
        &json!({ "messages": { "queue": { "mode": "collect", "debounceMs": 0 } } }),
    );
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let from =
        |name: &str, text: &str| json!({ "text": text, "from": name, "authority": { "sender": name } });
    queued(&server, MAIN, &from("anna", "one"));
    reached(&gate);
    queued(&server, MAIN, &from("anna", "two"));
    queued(&server, MAIN, &from("anna", "three"));
    queued(&server, MAIN, &from("bob", "four"));
    gate.open();
    let told: Vec<String> = (0..3).map(|_| taken(&server, &mut reader)).collect();
    assert_eq!(told, ["First.", "Both.", "Bob's."]);
    let last = |at: usize| wire_text(messages(&world.requests()[at]).last().unwrap());
    let both = last(1);
    assert!(both.contains("two") && both.contains("three") && !both.contains("four"), "{both}");
    assert!(last(2).ends_with("four"), "{}", last(2));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn failed_run_is_told_to_those_who_read() {
    let world = world([Reply::error(400, "invalid_request_error", "no such thing"), says("Better.")]);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let id = queued(&server, MAIN, &json!({ "text": "Hi" }));
    assert_eq!(reader.status("started")["messages"], json!([id]));
    let ended = reader.status("ended");
    assert_eq!((&ended["outcome"], &ended["messages"]), (&json!("failed"), &json!([id])), "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains("no such thing"), "{ended}");
    queued(&server, MAIN, &json!({ "text": "Again" }));
    assert_eq!(taken(&server, &mut reader), "Better.");
    assert_eq!(server.metric(r#"quipu_runs_total{outcome="failed"}"#), Some(1.0));
    assert_eq!(server.metric("quipu_sessions_open"), Some(1.0));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn agent_of_a_conversation_has_its_model_and_workspace() {
    let world = world_with([says("Here.")], &json!({}));
    let workspace = world.path("agent-home");
    std::fs::create_dir(&workspace).unwrap();
    let agents = json!({ "ops": { "model": "testing/thinker", "workspace": workspace } });
    let settings = json!({ "defaultModel": MODEL, "agents": { "byId": agents } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let server = Server::start(&world);
    let key = "agent:ops:irc:group:g";
    queued(&server, key, &json!({ "text": "Where are you?" }));
    let mut reader = Reader::of(&server, key);
    let reply = reader.reply();
    assert_eq!(reply["route"], json!({ "channel": "irc", "to": "g" }), "{reply}");
    assert_eq!(world.requests()[0].json()["model"], "thinker");
    let sessions = world.sessions();
    assert_eq!(sessions[0]["cwd"], workspace.to_str().unwrap(), "{sessions:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn rules_of_an_agent_hold_in_the_sandbox_of_its_groups() {
    let world = world_with([bash("c1", "printf ran"), says("Denied.")], &json!({}));
    let workspace = world.path("agent-home");
    std::fs::create_dir(&workspace).unwrap();
    let mut command = world.quipu(&["permissions", "add", "deny", "bash"]);
    command.current_dir(&workspace);
    RunningCommand::start(command).wait().ok();
    let settings = json!({
        "defaultModel": MODEL,
        "agents": { "byId": { "ops": { "workspace": workspace } } },
        "sandbox": { "mode": "non-main" },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let server = Server::start(&world);
    let key = "agent:ops:telegram:group:-5";
    let mut reader = Reader::of(&server, key);
    queued(&server, key, &json!({ "text": "Run it." }));
    assert_eq!(taken(&server, &mut reader), "Denied.");
    let result = wire_text(messages(world.requests().last().unwrap()).last().unwrap());
    assert!(result.contains("`bash` denies this call"), "{result}");
    let folder = world.path("home/.quipu/sandboxes").display().to_string();
    assert!(world.sessions()[0]["cwd"].as_str().unwrap().starts_with(&folder));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn agent_behind_a_server_stays_within_its_daily_budget() {
    let answer = || Answer::new().text("Done.").usage(10, 1_000, 0, 0).reply();
    let agents = json!({ "ops": { "budget": { "daily": 2.5 } }, "main": {} });
    let world = world_with((0..4).map(|_| answer()), &json!({ "agents": { "byId": agents } }));
    let world = crate::budget::priced_in(world);
    let server = Server::start(&world);
    let key = "agent:ops:irc:group:g";
    let mut reader = Reader::of(&server, key);
    queued(&server, key, &json!({ "text": "one" }));
    assert_eq!(taken(&server, &mut reader), "Done.");
    // The other route counts for the same.
    let asks = |user: &str| {
        let body =
            json!({ "model": "quipu", "user": user, "messages": [{ "role": "user", "content": "two" }] });
        server.post("/v1/chat/completions", &body)
    };
    assert_eq!(asks("agent:ops:other").json()["choices"][0]["message"]["content"], "Done.");
    queued(&server, key, &json!({ "text": "three" }));
    let ended = loop {
        let ended = reader.status("ended");
        if ended["outcome"] != "done" {
            break ended;
        }
    };
    let reason = ended["reason"].as_str().unwrap();
    assert_eq!(ended["outcome"], "limit", "{ended}");
    assert!(reason.contains("agent `ops`") && reason.contains("$2.00 of $2.50 used today"), "{reason}");
    asks("agent:ops:other").refuses(429, "daily_budget");
    assert_eq!(world.requests().len(), 2, "what does not fit is not sent");
    assert_eq!(asks("agent:main:main").json()["choices"][0]["message"]["content"], "Done.", "another agent");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn broken_messages_are_refused_and_others_unharmed() {
    let gate = Gate::new();
    let world = world([gated(&gate, "Free.")]);
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Go." }));
    reached(&gate);
    for key in ["agent", "agent:main", "%00", "%ff", ":", "agent:main:main:heartbeat", &"k".repeat(2_000)] {
        says_to(&server, key, &json!({ "text": "hi" })).refuses(400, "invalid_key");
    }
    says_to(&server, "agent:nobody:main", &json!({ "text": "hi" })).refuses(404, "unknown_agent");
    for body in [json!({}), json!({ "text": "" }), json!({ "text": "hi", "queue": { "mode": "later" } })] {
        says_to(&server, MAIN, &body).refuses(400, "invalid_request");
    }
    let path = format!("/v1/conversations/{MAIN}/messages");
    server.request("POST", &path, &[], "{\"text\":").refuses(400, "invalid_request");
    let huge = json!({ "text": "x".repeat(2 << 20) });
    says_to(&server, MAIN, &huge).refuses(413, "request_too_large");
    server.get(&path).refuses(405, "method_not_allowed");
    server
        .request("POST", &path, &[("Authorization", "")], r#"{"text":"hi"}"#)
        .refuses(401, "invalid_api_key");
    server.get("/v1/conversations/x/replies/a/b").refuses(404, "not_found");
    server.post("/v1/conversations/x/replies/none/ack", &json!({})).refuses(404, "no_reply");
    // A flood fills its own conversation alone.
    let queue = json!({ "mode": "followup", "cap": 3, "drop": "new" });
    let flood = |text: String| says_to(&server, MAIN, &json!({ "text": text, "queue": queue }));
    let statuses: Vec<u16> = (0..10).map(|at| flood(format!("message {at}")).status).collect();
    assert_eq!(statuses, [vec![202; 3], vec![429; 7]].concat());
    flood("one more".to_owned()).refuses(429, "queue_full");
    let stopped = server.post(&format!("/v1/conversations/{MAIN}/stop"), &json!({}));
    assert_eq!(stopped.status, 204, "{stopped:?}");
    gate.open();
    world.unchecked();
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn second_server_takes_over_when_the_first_ends() {
    let world = world([says("By the first."), says("By the second.")]);
    let first = Server::start(&world);
    queued(&first, MAIN, &json!({ "text": "one" }));
    assert_eq!(taken(&first, &mut Reader::of(&first, MAIN)), "By the first.");
    let second = Server::start(&world);
    let body = || json!({ "text": "two", "messageId": "m2" });
    says_to(&second, MAIN, &body()).refuses(503, "held_elsewhere");
    first.ends(Signal::SIGTERM, 0);
    while says_to(&second, MAIN, &body()).status == 503 {}
    assert_eq!(taken(&second, &mut Reader::of(&second, MAIN)), "By the second.");
    second.ends(Signal::SIGTERM, 0);
}

#[test]
fn completions_and_messages_share_a_conversation() {
    let world = world([says("Noted."), says("It was 7."), says("Still 7."), says("Yes, 7.")]);
    let server = Server::start(&world);
    let asks = |text: &str| {
        let body =
            json!({ "model": "quipu", "user": "Ann", "messages": [{ "role": "user", "content": text }] });
        let answer = server.post("/v1/chat/completions", &body).json();
        answer["choices"][0]["message"]["content"].as_str().map(str::to_owned)
    };
    assert_eq!(asks("Remember 7.").as_deref(), Some("Noted."));
    queued(&server, "ann", &json!({ "text": "Which number?" }));
    let mut reader = Reader::of(&server, "ann");
    assert_eq!(taken(&server, &mut reader), "It was 7.");
    assert_eq!(asks("And now?").as_deref(), Some("Still 7."));
    queued(&server, "ann", &json!({ "text": "Sure?" }));
    assert_eq!(taken(&server, &mut reader), "Yes, 7.");
    let texts: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    let wanted = ["Noted.", "Which number?", "It was 7.", "And now?", "Still 7.", "Sure?"];
    assert!(texts[0].ends_with("Remember 7.") && texts[1..] == wanted, "{texts:?}");
    assert_eq!(world.sessions().len(), 1);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn completion_keeps_its_conversation_going_to_its_end() {
    let gate = Gate::new();
    let world = world([gated(&gate, "Hello.")]);
    let server = Server::start(&world);
    let body = json!({ "model": "quipu", "user": "Ann", "messages": [{ "role": "user", "content": "Hi" }] });
    let asked = server.send("POST", "/v1/chat/completions", &[], &body.to_string());
    reached(&gate);
    let now = quipu_host::now();
    while quipu_host::now() <= now {}
    gate.open();
    assert_eq!(answer_of(asked).json()["choices"][0]["message"]["content"], "Hello.");
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let work = runtime.block_on(store.pending(&conversation_inbox("ann"))).unwrap();
    let said = work.inbox.iter().find(|row| row.id.as_str() == "said").unwrap();
    let said: Value = said.input.read().unwrap();
    assert!(said["at"].as_i64() > Some(now), "{said}");
    drop(store);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn heartbeat_runs_when_woken_and_its_alert_is_a_reply() {
    let heartbeat = json!({ "every": "24h", "prompt": "Look after the disk." });
    let world = world_with(
        [says("The disk is full."), says("HEARTBEAT_OK"), says("Hello.")],
        &json!({ "agents": { "byId": { "main": { "heartbeat": heartbeat } } } }),
    );
    let server = Server::start(&world);
    let wake = |server: &Server, key: &str| server.post(&format!("/v1/conversations/{key}/wake"), &json!({}));
    wake(&server, "agent:main:direct:anna").refuses(404, "no_heartbeat");
    assert_eq!(wake(&server, MAIN).status, 204);
    let alert = Reader::of(&server, MAIN).reply();
    assert_eq!(alert["text"], "The disk is full.", "{alert}");
    assert!(alert["key"].as_str().unwrap().starts_with("heartbeat-"), "{alert}");
    let asked = wire_text(messages(&world.requests()[0]).last().unwrap());
    assert!(asked.ends_with("Look after the disk."), "{asked}");
    drop(server);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(reader.reply(), alert, "it is offered again under its key");
    assert_eq!(acknowledge(&server, &alert).status, 204);
    // Nothing to report is no reply.
    assert_eq!(wake(&server, MAIN).status, 204);
    while server.metric(r#"quipu_runs_total{outcome="done"}"#) != Some(1.0) {}
    queued(&server, MAIN, &json!({ "text": "Hi" }));
    assert_eq!(taken(&server, &mut reader), "Hello.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn heartbeat_follows_its_settings_in_a_running_server() {
    let world = world_with([says("The disk is full.")], &json!({}));
    // What is no file holds nothing up.
    nix::unistd::mkfifo(&world.path("work/HEARTBEAT.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let server = Server::start(&world);
    let set = |every: &str| {
        let agents = json!({ "byId": { "main": { "heartbeat": { "every": every } } } });
        let settings = json!({ "defaultModel": MODEL, "agents": agents });
        std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    };
    let wake = || server.post(&format!("/v1/conversations/{MAIN}/wake"), &json!({}));
    let stop = || server.post(&format!("/v1/conversations/{MAIN}/messages"), &json!({ "text": "stop" }));
    wake().refuses(404, "no_heartbeat");
    set("24h");
    assert_eq!(stop().status, 200);
    // Its time comes without anybody waking it.
    set("1s");
    assert_eq!(stop().status, 200);
    let alert = Reader::of(&server, MAIN).reply();
    assert_eq!(alert["text"], "The disk is full.", "{alert}");
    set("0m");
    wake().refuses(404, "no_heartbeat");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn heartbeat_is_a_job_that_follows_the_settings() {
    let heartbeat = |every: &str| json!({ "byId": { "main": { "heartbeat": { "every": every } } } });
    let world = world_with([says("The disk is full.")], &json!({ "agents": heartbeat("24h") }));
    let server = Server::start(&world);
    let jobs = || world.run(&["schedule", "list", "--json"]).ok().json_lines();
    while jobs().is_empty() {}
    let job = jobs().remove(0);
    assert_eq!((&job["key"], &job["kind"]), (&json!("heartbeat/agent:main:main"), &json!("heartbeat")));
    // Nobody else runs it, or speaks of it.
    assert_eq!(world.run(&["schedule", "run", "--once", "--json"]).ok().text(), "");
    assert_eq!(world.requests().len(), 0);
    world.run(&["schedule", "retry", "heartbeat/agent:main:main"]).ok();
    // It looks each minute, and when it learns of other settings.
    let asks = json!({ "byId": { "main": { "heartbeat": { "every": "24h", "prompt": "Look." } } } });
    configure(&world, &json!({ "agents": asks }));
    let stop = json!({ "text": "stop" });
    assert_eq!(server.post(&format!("/v1/conversations/{MAIN}/messages"), &stop).status, 200);
    let alert = Reader::of(&server, MAIN).reply();
    assert_eq!(alert["text"], "The disk is full.", "{alert}");
    let again = jobs().remove(0);
    assert!(again["due"].as_i64() > job["due"].as_i64(), "{again}");
    configure(&world, &json!({ "agents": heartbeat("0m") }));
    server.post(&format!("/v1/conversations/{MAIN}/wake"), &json!({})).refuses(404, "no_heartbeat");
    while !jobs().is_empty() {}
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn heartbeat_is_woken_by_the_end_of_a_command() {
    let start = r#"{"command":"true","run_in_background":true}"#;
    let bash = Answer::new().tool_call("c1", "bash", start).reply();
    let more = ["Started.", "It ended.", "It ended.", "It ended."].map(says);
    let heartbeat = json!({ "every": "24h" });
    let world = world_with(
        std::iter::once(bash).chain(more),
        &json!({ "agents": { "byId": { "main": { "heartbeat": heartbeat } } } }),
    );
    let server = Server::start(&world);
    queued(&server, "agent:main:direct:anna", &json!({ "text": "Start it." }));
    let mut reader = Reader::of(&server, MAIN);
    let alert = reader.reply();
    assert!(alert["key"].as_str().unwrap().starts_with("heartbeat-"), "{alert}");
    world.unchecked();
    server.ends(Signal::SIGTERM, 0);
}

/// Posts messages until the server is gone; the ids of those that it took.
fn post_until_gone(address: &str, token: &str, round: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for at in 0..12 {
        let key = format!("agent:main:direct:peer{}", at % 3);
        let text = format!("message {at} of round {round}");
        let body = json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0, "cap": 256, "drop": "new" } });
        let path = format!("/v1/conversations/{key}/messages");
        let mut answer = String::new();
        let stream = TcpStream::connect(address);
        let Ok(mut stream) = stream else { break };
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            address,
            token,
            body.len()
        );
        let sent = stream.write_all(format!("{head}{body}").as_bytes());
        if sent.is_err() || stream.read_to_string(&mut answer).is_err() {
            break;
        }
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { break };
        if head.starts_with("HTTP/1.1 202") {
            let body: Value = serde_json::from_str(body).unwrap();
            taken.push(body["id"].as_str().unwrap().to_owned());
        }
    }
    taken
}

/// What servers took and gave, each of which was killed in the middle of its work.
#[derive(Default)]
pub(super) struct KilledServers {
    /// The ids of messages that they took.
    pub(super) posted: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// The ids of replies, by the message that they answer, and of others by what they say.
    pub(super) replies: BTreeMap<String, BTreeSet<String>>,
}

impl KilledServers {
    /// So many, one after the other.
    pub(super) fn of(world: &World, rounds: usize) -> Self {
        let mut this = Self::default();
        for round in 0..rounds {
            let server = Server::start(world);
            let mut reader = Reader::new(&server, "/v1/replies");
            let (address, token) = (server.address.clone(), server.token.clone());
            let taken = std::thread::scope(|scope| {
                let posting = scope.spawn(|| post_until_gone(&address, &token, round));
                for left in (0..=(round * 5) % 11).rev() {
                    let reply = reader.reply();
                    let id = this.see(&reply);
                    // The last one is left for the next server.
                    if left > 0 && acknowledge(&server, &reply).status == 204 {
                        this.acknowledged.insert(id);
                    }
                }
                server.command.as_ref().unwrap().signal(Signal::SIGKILL);
                posting.join().unwrap()
            });
            this.posted.extend(taken);
        }
        this
    }

    /// A reply came: it must not have been acknowledged before.
    #[track_caller]
    fn see(&mut self, reply: &Value) -> String {
        let (id, key) = (reply["id"].as_str().unwrap(), reply["key"].as_str().unwrap());
        assert!(!self.acknowledged.contains(id), "{id} was acknowledged");
        let of = match key.strip_prefix("turn-") {
            Some(turn) => turn.split('/').next().unwrap(),
            None => reply["text"].as_str().unwrap(),
        };
        self.replies.entry(of.to_owned()).or_default().insert(id.to_owned());
        id.to_owned()
    }

    /// Takes the next reply of a server that stays.
    #[track_caller]
    pub(super) fn take(&mut self, server: &Server, reader: &mut Reader) {
        let reply = reader.reply();
        let id = self.see(&reply);
        assert_eq!(acknowledge(server, &reply).status, 204, "{reply}");
        self.acknowledged.insert(id);
    }

    /// Each reply came under one key.
    #[track_caller]
    pub(super) fn assert_none_doubled(&self) {
        let doubled: Vec<_> = self.replies.iter().filter(|(_, ids)| ids.len() != 1).collect();
        assert!(doubled.is_empty(), "under two keys: {doubled:?}");
    }
}

#[test]
fn killed_servers_lose_no_message_and_answer_under_one_key() {
    let rounds = if std::env::var_os("QUIPU_FULL").is_some() { 100 } else { 5 };
    let world = world((0..rounds * 12 + 400).map(|_| says("Answered.")));
    world.unchecked();
    let mut killed = KilledServers::of(&world, rounds);
    let server = Server::start(&world);
    let mut reader = Reader::new(&server, "/v1/replies");
    // What was on its way when a server was killed may have been taken, too.
    while killed.posted.iter().any(|id| !killed.replies.contains_key(id)) {
        killed.take(&server, &mut reader);
    }
    killed.assert_none_doubled();
    assert!(killed.posted.len() >= rounds, "{}", killed.posted.len());
    server.ends(Signal::SIGTERM, 0);
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
}

#[test]
fn end_of_a_command_is_answered_where_it_was_asked_for() {
    let fifo = "gate";
    let start = json!({ "command": format!("read -r line < {fifo}; echo $line"), "run_in_background": true });
    let bash = Answer::new().tool_call("c1", "bash", &start.to_string()).reply();
    let gate = Gate::new();
    let world = world_with(
        [bash, says("It runs."), says("Hello, Bob."), gated(&gate, "It is built."), says("Yes.")],
        &json!({}),
    );
    nix::unistd::mkfifo(&world.path("work").join(fifo), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let server = Server::start(&world);
    let key = "agent:main:irc:group:#ops";
    let says = |who: &str, text: &str| {
        let body =
            json!({ "text": text, "authority": { "sender": who }, "route": { "channel": "irc", "to": who } });
        queued(&server, &key.replace('#', "%23"), &body)
    };
    let mut reader = Reader::new(&server, "/v1/replies");
    let mut next = || {
        let reply = reader.reply();
        assert_eq!(acknowledge_at(&server, &key.replace('#', "%23"), &reply).status, 204);
        (reply["route"]["to"].as_str().unwrap().to_owned(), reply["text"].as_str().unwrap().to_owned())
    };
    let pair = |to: &str, text: &str| (to.to_owned(), text.to_owned());
    says("ann", "Build it, and tell me.");
    assert_eq!(next(), pair("ann", "It runs."));
    says("bob", "Hi.");
    assert_eq!(next(), pair("bob", "Hello, Bob."));
    std::fs::write(world.path("work").join(fifo), "done\n").unwrap();
    while world.requests().len() < 4 {}
    // Who writes meanwhile gets their own answer alone.
    says("bob", "Is anybody there?");
    gate.open();
    assert_eq!(next(), pair("ann", "It is built."));
    assert_eq!(next(), pair("bob", "Yes."));
    let asked = wire_text(&messages(&world.requests()[3]).pop().unwrap());
    assert!(asked.contains("Background command b1 exited with code 0"), "{asked}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn run_about_the_end_of_a_command_can_be_stopped() {
    let start = r#"{"command":"read -r line < gate","run_in_background":true}"#;
    let bash = Answer::new().tool_call("c1", "bash", start).reply();
    let ended = Gate::new();
    let world = world_with([bash, says("Started."), gated(&ended, "It ended."), says("Hi.")], &json!({}));
    let gate = world.path("work/gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Start it." }));
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(taken(&server, &mut reader), "Started.");
    std::fs::write(&gate, "done\n").unwrap();
    while world.requests().len() < 3 {}
    assert_eq!(server.post(&format!("/v1/conversations/{MAIN}/stop"), &json!({})).status, 204);
    queued(&server, MAIN, &json!({ "text": "Hello?" }));
    assert_eq!(taken(&server, &mut reader), "Hi.");
    ended.open();
    world.unchecked();
    server.ends(Signal::SIGTERM, 0);
}
