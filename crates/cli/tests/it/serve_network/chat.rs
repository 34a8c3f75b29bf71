//! Requests for an answer, in front of an agent.

use quipu_testkit::Gate;

use super::*;

const PATH: &str = "/v1/chat/completions";

fn asks(text: &str) -> Value {
    json!({ "model": "quipu", "messages": [{ "role": "user", "content": text }] })
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

/// The chunks of a stream, which must end as the API says.
#[track_caller]
fn chunks(answer: &HttpAnswer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: text/event-stream"), "{answer:?}");
    let mut data: Vec<&str> = answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{answer:?}");
    data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn session_of(answer: &HttpAnswer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("x-quipu-session-id: "));
    line.unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[test]
fn completion_is_the_answer_of_an_agent_with_its_tools() {
    let calls =
        Answer::new().text("I look.").tool_call("c1", "bash", r#"{"command":"cat note.txt"}"#).reply();
    let script = || [calls.clone(), says("It says blue.")];
    let world = world(script().into_iter().chain(script()));
    world.file("note.txt", "blue\n");
    let server = Server::start(&world);
    let body = asks("What does note.txt say?");
    let answer = server.post(PATH, &body);
    let whole = answer.json();
    assert_eq!(answer.status, 200, "{answer:?}");
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["content"], "I look.\n\nIt says blue.", "{whole}");
    assert_eq!((&choice["message"]["role"], &choice["finish_reason"]), (&json!("assistant"), &json!("stop")));
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("quipu")));
    // Two calls of ten tokens in and five out.
    let usage = json!({ "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30 });
    for (name, count) in usage.as_object().unwrap() {
        assert_eq!(&whole["usage"][name], count, "{whole}");
    }
    let session = session_of(&answer);
    assert!(world.sessions().iter().any(|found| found["id"] == session.as_str()));
    // The same in pieces.
    let body = with(with(body, "stream", json!(true)), "stream_options", json!({ "include_usage": true }));
    let answer = server.post(PATH, &body);
    let chunks = chunks(&answer);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"])
    );
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "I look.\n\nIt says blue.");
    let [.., finish, last] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "stop", "{finish}");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(30)), "{last}");
    assert!(finish["usage"].is_null() && finish.as_object().unwrap().contains_key("usage"));
    // A request without a name has a session of its own, which is closed again.
    assert_ne!(session_of(&answer), session);
    assert_eq!(server.metric("quipu_sessions_open"), Some(0.0));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn usage_of_a_stream_comes_only_when_asked_for() {
    let world = world([says("Hi.")]);
    let server = Server::start(&world);
    let chunks = chunks(&server.post(PATH, &with(asks("Hello"), "stream", json!(true))));
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{chunks:?}");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn named_session_goes_on_and_others_get_earlier_messages() {
    let world = world([says("Noted."), says("It was 7."), says("You said 7."), says("Fresh.")]);
    let server = Server::start(&world);
    let named = |text: &str| with(asks(text), "user", json!("ann"));
    let first = server.post(PATH, &named("Remember 7."));
    assert_eq!(first.json()["choices"][0]["message"]["content"], "Noted.");
    // What the client sends of the past is not said twice where the session has it.
    let mut second = named("Which number?");
    second["messages"] = json!([
        { "role": "user", "content": "Remember 7." },
        { "role": "assistant", "content": "Noted." },
        { "role": "user", "content": "Which number?" },
    ]);
    let answer = server.post(PATH, &second);
    assert_eq!(session_of(&answer), session_of(&first));
    let sent = messages(&world.requests()[1]);
    let texts: Vec<String> = sent.iter().map(wire_text).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(
        texts[0].ends_with("Remember 7.") && texts[1] == "Noted." && texts[2] == "Which number?",
        "{texts:?}"
    );
    // The header names a session too, before `user`; this one is new, so it gets the past as text.
    let answer = server.request("POST", PATH, &[("X-Quipu-Session-Key", "bob")], &second.to_string());
    assert_ne!(session_of(&answer), session_of(&first));
    let sent = messages(&world.requests()[2]);
    let text = wire_text(sent.last().unwrap());
    assert!(text.contains("Earlier messages of this conversation"), "{text}");
    assert!(
        text.contains("user: Remember 7.\n\nassistant: Noted.") && text.ends_with("Which number?"),
        "{text}"
    );
    // Without a name, a system message is told as well.
    let mut body = asks("Hello");
    body["messages"] =
        json!([{ "role": "system", "content": "Be a pirate." }, { "role": "user", "content": "Hello" }]);
    server.post(PATH, &body);
    let text = wire_text(messages(&world.requests()[3]).last().unwrap());
    assert!(text.contains("Be a pirate.") && text.ends_with("Hello"), "{text}");
    server.ends(Signal::SIGTERM, 0);
}

/// As the same conversation is by its other routes.
#[test]
fn completions_for_conversations_work_in_their_sandbox() {
    let world = world([]);
    configure(&world, &json!({ "sandbox": { "mode": "non-main", "scope": "session" } }));
    let server = Server::start(&world);
    let folder = world.path("home/.quipu/sandboxes").display().to_string();
    let works_in = |key: &str| {
        world.server.push(bash("c1", "pwd"));
        world.server.push(says("Done."));
        let answer = server.request("POST", PATH, &[("X-Quipu-Session-Key", key)], &asks("Go").to_string());
        assert_eq!(answer.json()["choices"][0]["message"]["content"], "Done.", "{answer:?}");
        let request = world.requests().pop().unwrap();
        wire_text(messages(&request).last().unwrap())
    };
    let (one, other) =
        (works_in("agent:main:telegram:group:-100"), works_in("agent:main:telegram:group:-200"));
    assert!(one.starts_with(&folder) && other.starts_with(&folder) && one != other, "{one} {other}");
    assert_eq!(works_in("agent:main:telegram:group:-100"), one);
    assert!(!works_in("agent:main:main").starts_with(&folder));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn models_are_the_agent_and_those_that_can_be_called() {
    let world = world([says("By the other.")]);
    let server = Server::start(&world);
    let listed = server.get("/v1/models").json();
    let ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids[0], "quipu", "{ids:?}");
    assert!(ids.contains(&"testing/test-1") && ids.contains(&"testing/thinker"), "{ids:?}");
    assert_eq!(server.get("/v1/models/quipu").json()["object"], "model");
    assert_eq!(server.get("/v1/models/testing%2Fthinker").json()["id"], "testing/thinker");
    server.get("/v1/models/none").refuses(404, "model_not_found");
    server.post(PATH, &with(asks("hi"), "model", json!("no-such-model"))).refuses(404, "model_not_found");
    let answer = server.post(PATH, &with(asks("hi"), "model", json!("testing/thinker")));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(world.requests()[0].json()["model"], "thinker");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn images_reach_a_model_that_sees_them() {
    let world = world([says("A dot.")]);
    let server = Server::start(&world);
    let image =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let asks = |url: &str| {
        let parts = json!([{ "type": "text", "text": "What is it?" }, { "type": "image_url", "image_url": { "url": url } }]);
        json!({ "model": "quipu", "messages": [{ "role": "user", "content": parts }] })
    };
    let answer = server.post(PATH, &asks(&format!("data:image/png;base64,{image}")));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(world.requests()[0].json().to_string().contains(r#""media_type":"image/png""#));
    let refused = server.post(PATH, &asks("https://example.com/cat.png"));
    refused.refuses(400, "invalid_request");
    assert!(refused.body.contains("data URL"), "{refused:?}");
    let blind = with(asks(&format!("data:image/png;base64,{image}")), "model", json!("testing/thinker"));
    server.post(PATH, &blind).refuses(400, "images_unsupported");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn failure_of_the_model_is_not_retried_by_clients() {
    let refuses = || Reply::error(400, "invalid_request_error", "no such thing");
    let world = world([refuses(), refuses()]);
    let server = Server::start(&world);
    let failed = server.post(PATH, &asks("hi"));
    failed.refuses(502, "model_failed");
    assert!(failed.head.contains("x-should-retry: false"), "{failed:?}");
    assert_eq!(failed.json()["error"]["type"], "server_error");
    // A stream has begun by then: the error is its last event.
    let failed = server.post(PATH, &with(asks("hi"), "stream", json!(true)));
    assert_eq!(failed.status, 200, "{failed:?}");
    let last = failed.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    assert_eq!(serde_json::from_str::<Value>(last).unwrap()["error"]["code"], "model_failed", "{failed:?}");
    for (member, value) in [("n", json!(2)), ("tools", json!([{ "type": "function" }])), ("stop", json!("x"))]
    {
        let refused = server.post(PATH, &with(asks("hi"), member, value));
        refused.refuses(400, "unsupported_parameter");
        assert_eq!(refused.json()["error"]["param"], member);
    }
    assert_eq!(server.metric(r#"quipu_errors_total{kind="model"}"#), Some(2.0));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn run_ends_when_its_client_leaves() {
    for is_stream in [true, false] {
        let gate = Gate::new();
        let begun = Answer::new().text("I begin").unfinished();
        let world = world([Reply::sse(begun).then_gate(&gate), says("Next.")]);
        let server = Server::start(&world);
        let body = with(with(asks("Go."), "stream", json!(is_stream)), "user", json!("ann"));
        let stream = server.send("POST", PATH, &[], &body.to_string());
        reached(&gate);
        drop(stream);
        // The name is free once the run is recorded.
        let answer = server.post(PATH, &with(asks("And now?"), "user", json!("ann")));
        assert_eq!(answer.json()["choices"][0]["message"]["content"], "Next.", "{answer:?}");
        assert_eq!(server.metric(r#"quipu_runs_total{outcome="aborted"}"#), Some(1.0));
        gate.open();
        server.ends(Signal::SIGTERM, 0);
        world.unchecked();
    }
}

#[test]
fn socket_joins_a_session_that_a_request_began() {
    let gate = Gate::new();
    let begun = Answer::new().text("I begin").unfinished();
    let world = world([Reply::sse(begun).then_gate(&gate)]);
    world.unchecked();
    let server = Server::start(&world);
    let stream = server.send("POST", PATH, &[], &with(asks("Go."), "stream", json!(true)).to_string());
    reached(&gate);
    let mut socket = server.socket();
    let listed = socket.ask(json!({ "type": "sessions" }));
    let session = listed["sessions"][0].as_str().unwrap().to_owned();
    socket.subscribe(&session);
    let abort = json!({ "type": "abort", "target": "run" });
    socket.ask(json!({ "type": "command", "session": session, "command": abort }));
    socket.events_to("settled");
    let answer = answer_of(stream);
    assert!(answer.body.contains(r#""code":"aborted""#), "{answer:?}");
    // Somebody else uses it now, so it stays open.
    assert_eq!(server.metric("quipu_sessions_open"), Some(1.0));
    gate.open();
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn limit_before_anything_is_said_is_no_empty_answer() {
    let world = world([]);
    configure(&world, &json!({ "budget": { "daily": 0.5 } }));
    let world = crate::budget::priced_in(world);
    let server = Server::start(&world);
    for body in [asks("hi"), with(asks("hi"), "stream", json!(true))] {
        let refused = server.post(PATH, &body);
        refused.refuses(429, "daily_budget");
        let text = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(text.contains("$0.00 of $0.50 used today"), "{text}");
        assert!(refused.head.contains("x-should-retry: false"), "{refused:?}");
    }
    assert_eq!(world.requests().len(), 0);
    server.ends(Signal::SIGTERM, 0);
}
