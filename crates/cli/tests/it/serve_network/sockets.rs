//! Lines over WebSockets.

use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::*;

#[test]
fn two_clients_of_a_session_see_the_same_events() {
    let text = "A long answer. ".repeat(50);
    let world = world([says(&text), says("And another.")]);
    let server = Server::start(&world);
    let (mut one, mut two) = (server.socket(), server.socket());
    let session = one.open(&world);
    let snapshots = (one.subscribe(&session), two.subscribe(&session));
    assert_eq!(snapshots.0["snapshot"], snapshots.1["snapshot"]);
    one.prompt(&session, "Tell me.");
    let events = one.events_to("settled");
    assert_eq!(events, two.events_to("settled"));
    // The other one may drive it as well.
    two.prompt(&session, "More.");
    let more = two.events_to("settled");
    assert_eq!(more, one.events_to("settled"));
    let numbers: Vec<u64> =
        events.iter().chain(&more).map(|event| event["envelope"]["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let said = |events: &[Value]| -> String {
        let deltas = events.iter().filter_map(|event| event["envelope"]["event"]["delta"]["text"].as_str());
        deltas.collect()
    };
    assert_eq!((said(&events), said(&more)), (text, "And another.".to_owned()));
    assert_eq!(server.metric("quipu_sessions_open"), Some(1.0));
    assert_eq!(server.metric(r#"quipu_clients{kind="websocket"}"#), Some(2.0));
    assert_eq!(server.metric(r#"quipu_runs_total{outcome="done"}"#), Some(2.0));
    assert_eq!(server.metric(r#"quipu_tokens_total{kind="output"}"#), Some(10.0));
    // A client that is gone takes nothing with it.
    drop(one);
    let listed = two.ask(json!({ "type": "sessions" }));
    assert_eq!(listed["sessions"], json!([session]));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn broken_lines_are_answered_and_the_next_is_taken() {
    let world = world([]);
    let server = Server::start(&world);
    let mut socket = server.socket();
    for line in ["nothing", "{", "{\"type\":\"open\"}", "{\"type\":\"fly\",\"id\":1}", "[]", "\u{0}"] {
        socket.text(line);
        let error = socket.next();
        assert_eq!((&error["type"], &error["kind"]), (&json!("error"), &json!("invalid")), "{line}: {error}");
    }
    assert_eq!(socket.ask(json!({ "type": "sessions" }))["sessions"], json!([]));
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn client_that_breaks_the_rules_is_closed_with_a_reason() {
    let world = world([says("Untouched.")]);
    let server = Server::start(&world);
    let mut other = server.socket();
    let session = other.open(&world);
    other.subscribe(&session);
    let mut socket = server.silent_socket();
    socket.send(&json!({ "type": "hello", "version": 99 }));
    assert_eq!(socket.next()["kind"], "version");
    assert_eq!(socket.closed().0, 1002);
    let mut socket = server.socket();
    socket.socket.send(Message::binary(vec![0; 7])).unwrap();
    assert_eq!(socket.closed(), (1003, "invalid: frames are text".to_owned()));
    let mut socket = server.socket();
    let not_utf8 = b"{\"type\":\"\xff\"}".to_vec();
    let frame = Frame::message(not_utf8, OpCode::Data(Data::Text), true);
    socket.socket.send(Message::Frame(frame)).unwrap();
    assert_eq!(socket.closed(), (1007, "invalid: a frame is UTF-8".to_owned()));
    let mut socket = server.socket();
    socket.text("{\"type\":\"sessions\",\"id\":1}\n{\"type\":\"sessions\",\"id\":2}");
    assert_eq!(socket.closed(), (1007, "invalid: a frame is one line".to_owned()));
    // One that is too long is not even read.
    let mut socket = server.socket();
    socket.socket.send(Message::text("x".repeat((16 << 20) + 1))).ok();
    assert_eq!(socket.closed(), (1009, "tooLong: a frame has more than 16 MiB".to_owned()));
    // One that floods, and reads what it is told.
    let mut socket = server.socket();
    let mut reader = Socket {
        socket: WebSocket::from_raw_socket(
            socket.socket.get_ref().try_clone().unwrap(),
            tokio_tungstenite::tungstenite::protocol::Role::Client,
            None,
        ),
        number: 0,
        kept: Vec::new(),
    };
    let closed = std::thread::spawn(move || reader.closed());
    for _ in 0..20_000 {
        if socket.socket.send(Message::text("{}")).is_err() {
            break;
        }
    }
    assert_eq!(closed.join().unwrap(), (1008, "flood: too many lines in ten seconds".to_owned()));
    other.prompt(&session, "And you?");
    let events = other.events_to("settled");
    assert!(events.iter().any(|event| event.to_string().contains("Untouched.")));
    assert_eq!(server.metric(r#"quipu_clients_closed_total{reason="flood"}"#), Some(1.0));
    server.ends(Signal::SIGTERM, 0);
}
