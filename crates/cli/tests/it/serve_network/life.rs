//! Its end, its restart, and its socket.

use std::os::unix::net::UnixStream;

use quipu_testkit::Gate;

use super::*;

const PATH: &str = "/v1/chat/completions";

fn asks(text: &str) -> Value {
    json!({ "model": "quipu", "user": "ann", "messages": [{ "role": "user", "content": text }] })
}

#[test]
fn killed_server_loses_nothing_that_it_acknowledged() {
    let world = world([says("Noted."), says("Seen."), says("Again."), says("It was 7.")]);
    let server = Server::start(&world);
    let first = server.post(PATH, &asks("Remember 7."));
    assert_eq!(first.status, 200, "{first:?}");
    let mut socket = server.socket();
    let session = socket.open(&world);
    socket.subscribe(&session);
    socket.prompt(&session, "Look here.");
    socket.events_to("settled");
    let token = server.token.clone();
    drop(server);
    // Another process finds all of it.
    let server = Server::start(&world);
    assert_eq!(server.token, token, "clients keep it in their settings");
    let mut socket = server.socket();
    let opened = socket.ask(json!({ "type": "open", "cwd": world.path("work"), "session": session }));
    assert_eq!(opened["type"], "opened", "{opened}");
    let name = opened["session"].as_str().unwrap().to_owned();
    socket.subscribe(&name);
    socket.prompt(&name, "What did I say?");
    socket.events_to("settled");
    let texts: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert!(texts[0].ends_with("Look here.") && texts[1] == "Seen.", "{texts:?}");
    let again = server.post(PATH, &asks("Which number?"));
    assert_eq!(again.json()["choices"][0]["message"]["content"], "It was 7.");
    let texts: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert!(texts[0].ends_with("Remember 7.") && texts[1] == "Noted.", "{texts:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn prompt_survives_a_kill_within_its_run() {
    let gate = Gate::new();
    let begun = Answer::new().text("I begin").unfinished();
    let world = world([Reply::sse(begun).then_gate(&gate), says("Back.")]);
    world.unchecked();
    let server = Server::start(&world);
    let mut socket = server.socket();
    let session = socket.open(&world);
    socket.prompt(&session, "Do it.");
    reached(&gate);
    drop(server);
    gate.open();
    let server = Server::start(&world);
    let mut socket = server.socket();
    let opened = socket.ask(json!({ "type": "open", "cwd": world.path("work"), "session": session }));
    let name = opened["session"].as_str().unwrap().to_owned();
    socket.subscribe(&name);
    socket.prompt(&name, "Where were we?");
    socket.events_to("settled");
    let texts: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert!(texts[0].contains("Do it."), "{texts:?}");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn signal_ends_the_server_in_order() {
    for (signal, code) in [(Signal::SIGTERM, 0), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let gate = Gate::new();
        let begun = Answer::new().text("I begin").unfinished();
        let world = world([Reply::sse(begun.clone()).then_gate(&gate), Reply::sse(begun).then_gate(&gate)]);
        world.unchecked();
        let server = Server::start(&world);
        let mut socket = server.socket();
        let session = socket.open(&world);
        socket.subscribe(&session);
        socket.prompt(&session, "Go.");
        reached(&gate);
        let body =
            json!({ "model": "quipu", "stream": true, "messages": [{ "role": "user", "content": "Go." }] });
        let mut stream = BufReader::new(server.send("POST", PATH, &[], &body.to_string()));
        // Once the answer has a head, the prompt is kept.
        head_of(&mut stream);
        let address = server.address.clone();
        let closed = std::thread::spawn(move || socket.closed());
        server.ends(signal, code);
        assert_eq!(closed.join().unwrap(), (1001, "closing: the server is shutting down".to_owned()));
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains(r#""code":"closing""#), "{rest}");
        assert!(TcpStream::connect(&address).is_err());
        gate.open();
        let shown = world.run(&["show", "--json", &session]).ok().text();
        assert!(shown.contains("Go."), "{shown}");
        assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
    }
}

/// The answer to a request over a socket.
fn over(path: &std::path::Path, method: &str, what: &str, headers: &str, body: &str) -> HttpAnswer {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!(
        "{method} {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    answer_of(stream)
}

#[test]
fn socket_is_for_its_owner_and_needs_no_token_if_told_so() {
    let world = world([says("Over a socket.")]);
    let path = world.path("tmp/quipu.sock");
    let name = path.to_str().unwrap();
    let start = |args: &[&str]| {
        let mut command = world.start(&[&["serve", "--socket", name, "--json"], args].concat());
        let place: Value = serde_json::from_str(&command.line().unwrap()).unwrap();
        assert_eq!((&place["socket"], &place["url"]), (&json!(name), &Value::Null));
        command
    };
    let first = start(&[]);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(over(&path, "GET", "/health", "", "").status, 200);
    over(&path, "GET", "/v1/models", "", "").refuses(401, "invalid_api_key");
    over(&path, "GET", "/health", "Origin: http://localhost\r\n", "").refuses(403, "origin_not_allowed");
    world.run(&["serve", "--socket", name]).fails(1, &["answers at", "already"]);
    // One that is killed leaves its file, which the next one takes.
    first.signal(Signal::SIGKILL);
    drop(first.wait());
    assert!(path.exists());
    let second = start(&["--no-token"]);
    let asks = json!({ "model": "quipu", "messages": [{ "role": "user", "content": "Hello" }] }).to_string();
    let answer = over(&path, "POST", PATH, "Content-Type: application/json\r\n", &asks);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Over a socket.", "{answer:?}");
    second.signal(Signal::SIGTERM);
    second.wait().exits(0);
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    world.run(&["serve", "--socket", name]).fails(2, &["is no socket"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn token_file_of_others_is_refused() {
    let world = world([]);
    let server = Server::start(&world);
    server.ends(Signal::SIGTERM, 0);
    set_mode(&world.path("home/.quipu/serve.token"), 0o644);
    world.run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, &["open to other users", "chmod 600"]);
    set_mode(&world.path("home/.quipu/serve.token"), 0o600);
    std::fs::write(world.path("home/.quipu/serve.token"), "short").unwrap();
    world.run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, &["remove it to get another token"]);
}

#[test]
fn server_without_a_usable_store_does_not_start() {
    let world = world([]);
    world.unchecked();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
    std::fs::write(world.store(), "just some words, and enough of them that no header fits\n".repeat(200))
        .unwrap();
    world.run(&serve).fails(4, &["quipu.db", "--store"]);
    std::fs::remove_file(world.store()).unwrap();
    std::fs::create_dir(world.store()).unwrap();
    world.run(&serve).fails(4, &["quipu.db", "not a store"]);
}
