//! Lines that are posted, and answers as an event stream.

use super::*;

/// A client of an event stream.
struct Client<'a> {
    server: &'a Server,
    path: String,
    events: BufReader<TcpStream>,
}

impl<'a> Client<'a> {
    fn new(server: &'a Server) -> Self {
        let made = server.request("POST", "/v1/clients", &[], "");
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/v1/clients/{}", made.json()["client"].as_str().unwrap());
        assert!(made.head.contains(&format!("location: {path}")), "{made:?}");
        let events = Self::attached(server, &path);
        Self { server, path, events }
    }

    fn attached(server: &Server, path: &str) -> BufReader<TcpStream> {
        let mut events = BufReader::new(server.send("GET", &format!("{path}/events"), &[], ""));
        let head = head_of(&mut events).to_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
        events
    }

    fn post(&self, lines: &[Value]) -> HttpAnswer {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.server.request("POST", &self.path, &[], &lines)
    }

    /// The name of the next event, and its data.
    fn next(&mut self) -> (String, Value) {
        let mut name = "message".to_owned();
        loop {
            let mut line = String::new();
            assert!(self.events.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(other) = line.strip_prefix("event: ") {
                name = other.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next line of this type.
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let (_, line) = self.next();
            if line["type"] == kind || line["envelope"]["event"]["type"] == kind {
                return line;
            }
        }
    }
}

#[test]
fn posted_lines_are_answered_in_the_event_stream() {
    let world = world([says("Streamed.")]);
    let server = Server::start(&world);
    let mut client = Client::new(&server);
    let hello = json!({ "type": "hello", "version": 2 });
    let open = json!({ "type": "open", "id": 1, "cwd": world.path("work") });
    let posted = client.post(&[hello, open]);
    assert_eq!((posted.status, posted.json()), (202, json!({ "lines": 2 })));
    assert_eq!(client.next_of("hello")["version"], 2);
    let session = client.next_of("opened")["session"].clone();
    let prompt = json!({ "type": "prompt", "input": [{ "type": "text", "text": "Go." }], "when": "now" });
    client.post(&[
        json!({ "type": "subscribe", "id": 2, "session": session }),
        json!({ "type": "command", "id": 3, "session": session, "command": prompt }),
    ]);
    client.next_of("snapshot");
    let mut text = String::new();
    loop {
        let (_, line) = client.next();
        text.push_str(line["envelope"]["event"]["delta"]["text"].as_str().unwrap_or_default());
        if line["envelope"]["event"]["type"] == "settled" {
            break;
        }
    }
    assert_eq!(text, "Streamed.");
    // One stream for a client; another one where that is gone.
    server.get(&format!("{}/events", client.path)).refuses(409, "events_taken");
    assert_eq!(server.metric(r#"quipu_clients{kind="events"}"#), Some(1.0));
    let removed = server.request("DELETE", &client.path, &[], "");
    assert_eq!(removed.status, 204, "{removed:?}");
    assert_eq!(client.next(), ("end".to_owned(), json!({ "reason": "left" })));
    server.get(&format!("{}/events", client.path)).refuses(404, "no_client");
    client.post(&[json!({})]).refuses(404, "no_client");
    server.request("POST", "/v1/clients/none", &[], "").refuses(404, "no_client");
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn client_of_an_event_stream_is_closed_with_a_reason() {
    let world = world([]);
    let server = Server::start(&world);
    let mut client = Client::new(&server);
    client.post(&[json!({ "type": "hello", "version": 99 })]);
    assert_eq!(client.next_of("error")["kind"], "version");
    assert_eq!(client.next(), ("end".to_owned(), json!({ "reason": "version" })));
    let mut client = Client::new(&server);
    client.post(&[json!({ "type": "hello", "version": 2 }), json!("garbage")]);
    client.next_of("hello");
    assert_eq!(client.next_of("error")["kind"], "invalid");
    let posting = server.send("POST", &client.path, &[], &"[]\n".repeat(6_000));
    let end = loop {
        let (name, data) = client.next();
        if name == "end" {
            break data;
        }
    };
    assert_eq!(end, json!({ "reason": "flood" }));
    answer_of(posting).refuses(429, "flood");
    server.ends(Signal::SIGTERM, 0);
}
