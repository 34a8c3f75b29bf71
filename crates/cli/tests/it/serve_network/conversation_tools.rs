//! What a model can do with conversations behind a server: messages in the middle of a run, and other conversations.

use std::collections::BTreeSet;

use quipu_testkit::{CapturedRequest, Gate};

use super::conversations::*;
use super::*;

const ANNA: &str = "agent:main:direct:anna";
const OURS: [&str; 5] = ["sessions_list", "sessions_history", "sessions_send", "session_status", "message"];

fn followup(text: &str) -> Value {
    json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0 } })
}

/// The conversation tools that a request offers.
fn offered(request: &CapturedRequest) -> Vec<String> {
    let body = request.json();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned));
    names.filter(|name| OURS.contains(&name.as_str())).collect()
}

/// The results of tools in a request, each with the id of its call.
fn results(request: &CapturedRequest) -> Vec<(String, String)> {
    let messages = messages(request);
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results.map(|block| (block["tool_use_id"].as_str().unwrap().to_owned(), wire_text(block))).collect()
}

/// Those of the last request.
fn last_results(world: &World) -> Vec<String> {
    results(world.requests().last().unwrap()).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn message_of_a_tool_is_a_reply_and_not_repeated() {
    let world = world([
        call("call|1/x y", "message", &json!({ "text": "The report is on its way." })),
        says("Done, see above."),
        call("c2", "message", &json!({ "text": "The second report is ready." })),
        says("The second report is ready."),
        call("c3", "message", &json!({ "text": "x".repeat(65_537) })),
        call("c4", "message", &json!({ "text": " " })),
        call("c5", "message", &json!({ "text": "hi", "to": "elsewhere" })),
        call("c6", "message", &json!({ "text": "the token is ghp_16C7e42F292c6912E7710c838347Ae178B4a" })),
        says("Fourth."),
    ]);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let id = queued(&server, MAIN, &followup("Report."));
    let first = reader.reply();
    assert_eq!((first["text"].as_str(), &first["part"]), (Some("The report is on its way."), &json!(0)));
    assert_eq!(first["route"], json!({ "channel": "http", "to": MAIN }), "{first}");
    let key = first["key"].as_str().unwrap();
    assert!(key.starts_with("message-") && !key.contains("call"), "{key}");
    // Until it is acknowledged, each reader has it, and nothing comes behind it.
    assert_eq!(Reader::new(&server, "/v1/replies").reply(), first);
    assert_eq!(acknowledge(&server, &first).status, 204);
    acknowledge(&server, &first).refuses(404, "no_reply");
    let last = reader.reply();
    assert_eq!((&last["text"], &last["key"]), (&json!("Done, see above."), &json!(format!("turn-{id}/1"))));
    assert_eq!(acknowledge(&server, &last).status, 204);
    // An answer that says the same is no second reply.
    queued(&server, MAIN, &followup("And the second?"));
    assert_eq!(taken(&server, &mut reader), "The second report is ready.");
    reader.status("ended");
    queued(&server, MAIN, &followup("Bad ones."));
    let sealed = taken(&server, &mut reader);
    assert!(sealed.starts_with("the token is ") && !sealed.contains("16C7e42F"), "{sealed}");
    assert_eq!(taken(&server, &mut reader), "Fourth.");
    let told = last_results(&world);
    assert_eq!(told[..2], ["Sent.", "Sent."]);
    assert!(told[2].contains("at most 65536 bytes"), "{told:?}");
    assert!(told[3].contains("the message is empty"), "{told:?}");
    assert!(told[4].contains("no chat `elsewhere`"), "{told:?}");
    assert_eq!(told[5], "Sent.");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn conversation_tools_see_what_the_sender_may_see() {
    let history = |id: &str, key: &str| call(id, "sessions_history", &json!({ "session": key }));
    let world = world_with(
        [
            says("The word is rope."),
            says("Of ops."),
            call("c1", "sessions_list", &json!({})),
            history("c2", ANNA),
            history("c3", "agent:ops:main"),
            history("c4", "agent:main:direct:nobody"),
            history("c5", "agent:main:\u{1}"),
            call("c6", "sessions_history", &json!({ "session": { "a": 1 } })),
            call("c7", "sessions_send", &json!({ "session": "agent:ops:main", "text": "Do it." })),
            call("c8", "sessions_send", &json!({ "session": ANNA, "text": "x".repeat(65_537) })),
            call("c9", "sessions_send", &json!({ "session": ANNA, "text": "Which word?" })),
            says("Rope, as I said."),
            call("c10", "session_status", &json!({ "session": ANNA })),
            says("It is rope."),
            call("c11", "sessions_list", &json!({})),
            history("c12", MAIN),
            says("Nothing to see."),
        ],
        &json!({ "agents": { "byId": { "ops": {} } } }),
    );
    let server = Server::start(&world);
    for (key, text) in [(ANNA, "I am Anna."), ("agent:ops:main", "I am ops.")] {
        queued(&server, key, &followup(text));
        taken(&server, &mut Reader::of(&server, key));
    }
    queued(&server, MAIN, &followup("What is her word?"));
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(taken(&server, &mut reader), "It is rope.");
    let told = last_results(&world);
    assert!(told[0].contains(ANNA) && told[0].contains(MAIN) && !told[0].contains("ops"), "{told:?}");
    assert_eq!(told[1], "[user] I am Anna.\n\n[assistant] The word is rope.");
    for unknown in [&told[2], &told[3], &told[4], &told[6]] {
        assert!(unknown.starts_with("There is no conversation `"), "{told:?}");
    }
    assert!(told[5].contains("Validation failed"), "{told:?}");
    assert!(told[7].contains("1 to 65536 bytes"), "{told:?}");
    assert_eq!(told[8], format!("[{ANNA}] Rope, as I said."));
    assert!(told[9].starts_with(&format!("conversation: {ANNA}\nstate: idle\n")), "{told:?}");
    // What answers another conversation goes to no chat, and a stranger sees the own one alone.
    queued(&server, ANNA, &json!({ "text": "Show me all.", "authority": { "sender": "eve" } }));
    assert_eq!(taken(&server, &mut Reader::of(&server, ANNA)), "Nothing to see.");
    let told = last_results(&world);
    let [listed, refused] = &told[told.len() - 2..] else { panic!("{told:?}") };
    assert!(listed.contains(ANNA) && !listed.contains(MAIN), "{listed}");
    assert!(refused.starts_with("There is no conversation `"), "{refused}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn conversation_tools_follow_agent_group_and_sender() {
    let world = world_with(
        ["main", "ops", "group", "sender", "completion"].map(says),
        &json!({
            "tools": {
                "byGroup": { "irc:g": { "deny": ["message"] } },
                "bySender": { "id:eve": { "deny": ["sessions*"] }, "*": {} },
            },
            "agents": { "byId": { "ops": { "tools": { "deny": ["sessions_send", "session_status"] } } } },
        }),
    );
    let server = Server::start(&world);
    for (key, sender) in [
        (MAIN, Value::Null),
        ("agent:ops:main", Value::Null),
        ("agent:main:irc:group:g", Value::Null),
        (MAIN, json!("eve")),
    ] {
        queued(&server, key, &json!({ "text": "Hi", "authority": { "sender": sender } }));
        taken(&server, &mut Reader::of(&server, key));
    }
    // An answer to a request says all that there is to say.
    let body = json!({ "model": "quipu", "user": "x", "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    let requests = world.requests();
    let offered = |at: usize| -> BTreeSet<String> { offered(&requests[at]).into_iter().collect() };
    let but = |left_out: &[&str]| -> BTreeSet<String> {
        OURS.into_iter().filter(|name| !left_out.contains(name)).map(str::to_owned).collect()
    };
    assert_eq!(offered(0), but(&[]));
    assert_eq!(offered(1), but(&["sessions_send", "session_status"]));
    assert_eq!(offered(2), but(&["message"]));
    assert_eq!(offered(3), but(&["sessions_list", "sessions_history", "sessions_send"]));
    assert_eq!(offered(4), BTreeSet::new());
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn message_of_a_tool_survives_a_kill_under_its_key() {
    let gate = Gate::new();
    let world = world([
        call("c1", "message", &json!({ "text": "The report is on its way." })),
        gated(&gate, "never"),
        call("c2", "message", &json!({ "text": "The report is on its way." })),
        says("The report is on its way. All of it."),
        says("Next."),
    ]);
    let server = Server::start(&world);
    let id = queued(&server, MAIN, &followup("Report."));
    let first = Reader::of(&server, MAIN).reply();
    reached(&gate);
    drop(server);
    gate.open();
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    assert_eq!(reader.reply(), first, "the same one");
    assert_eq!(acknowledge(&server, &first).status, 204);
    // The run that goes on says it once more, by the tool and in its answer: neither is a second reply.
    queued(&server, MAIN, &followup("And now?"));
    let next = reader.reply();
    assert_eq!(next["text"], "Next.", "{next}");
    assert!(!next["key"].as_str().unwrap().contains(&id), "{next}");
    let told = last_results(&world);
    assert!(told[0] == "Sent." && told[1].contains("was sent already"), "{told:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn killed_servers_deliver_messages_of_tools_under_one_key() {
    let rounds = if std::env::var_os("QUIPU_FULL").is_some() { 100 } else { 4 };
    let note = |number: usize| format!("Note {number} of the work.");
    let pair = |number: usize| {
        [call(&format!("c{number}"), "message", &json!({ "text": note(number) })), says("Answered.")]
    };
    let world = world((0..rounds * 12 + 200).flat_map(pair));
    world.unchecked();
    let mut killed = KilledServers::of(&world, rounds);
    let server = Server::start(&world);
    let mut reader = Reader::new(&server, "/v1/replies");
    loop {
        // What a tool said that it sent must come.
        let told = world.requests().iter().flat_map(results).collect::<Vec<_>>();
        let sent = told.iter().filter(|(_, text)| text == "Sent.");
        let mut sent = sent.map(|(id, _)| note(id.trim_start_matches('c').parse().unwrap()));
        let came = |of: &String| killed.replies.contains_key(of);
        if killed.posted.iter().all(came) && sent.all(|note| came(&note)) {
            break;
        }
        killed.take(&server, &mut reader);
    }
    killed.assert_none_doubled();
    server.ends(Signal::SIGTERM, 0);
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
}
