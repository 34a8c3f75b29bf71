//! A server with small limits, its clients over real connections, and a model's server on loopback.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::{SinkExt as _, StreamExt as _};
    use quipu_host::{Home, OpenRequest, SilentObserver};
    use quipu_loopback::BearerToken;
    use quipu_server::{
        Access, SERVER_LIMITS, ServerAddress, ServerError, ServerLimits, ServerListener, ServerOptions, serve,
    };
    use quipu_testkit::{Answer, FakeServer, Gate, Reply};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    use tokio_tungstenite::{WebSocketStream, client_async};
    use tokio_util::sync::CancellationToken;

    const TOKEN: &str = "0123456789abcdef";
    /// A client that waits longer hangs.
    const LIMIT: Duration = Duration::from_secs(60);

    struct World {
        dir: tempfile::TempDir,
        _model: FakeServer,
        stop: CancellationToken,
        served: JoinHandle<Result<(), ServerError>>,
        address: String,
    }

    impl World {
        async fn start(script: impl IntoIterator<Item = Reply>, limits: ServerLimits) -> Self {
            let (dir, model) = (tempfile::tempdir().unwrap(), FakeServer::start(script));
            for made in ["home", "work"] {
                std::fs::create_dir(dir.path().join(made)).unwrap();
            }
            let row = json!({ "id": "test-1", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
            let provider = json!({
                "baseUrl": model.url(), "apiKey": "key", "api": "anthropic-messages", "models": [row],
            });
            let models = json!({ "providers": { "testing": provider } });
            std::fs::write(dir.path().join("home/models.json"), models.to_string()).unwrap();
            let settings = json!({ "defaultModel": "test-1" });
            std::fs::write(dir.path().join("home/settings.json"), settings.to_string()).unwrap();
            let listener = ServerListener::loopback("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let ServerAddress::Loopback(address) = listener.address() else { panic!() };
            let options = options(dir.path(), Access::Token(BearerToken::new(TOKEN).unwrap()), limits);
            let stop = CancellationToken::new();
            let served = tokio::spawn(serve(options, listener, stop.clone()));
            Self { dir, _model: model, stop, served, address: address.to_string() }
        }

        fn work(&self) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join("work")
        }

        /// Sends a request on a connection of its own, which stays open.
        async fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                self.address,
                body.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        }

        /// The status of the answer to a request, and all of it.
        async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
            whole(self.send(method, path, body).await).await
        }

        /// The status of the answer to a request, where there is one.
        async fn try_ask(&self, method: &str, path: &str) -> Option<u16> {
            let mut answer = Vec::new();
            self.send(method, path, "").await.read_to_end(&mut answer).await.ok()?;
            String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
        }

        async fn chat(&self, user: &str, text: &str) -> TcpStream {
            let body = json!({ "user": user, "messages": [{ "role": "user", "content": text }] });
            self.send("POST", "/v1/chat/completions", &body.to_string()).await
        }

        async fn socket(&self) -> Result<Socket, u16> {
            let mut request = format!("ws://{}/v1/socket", self.address).into_client_request().unwrap();
            request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
            let stream = TcpStream::connect(&self.address).await.unwrap();
            match client_async(request, stream).await {
                Ok((socket, _)) => {
                    let mut socket = Socket(socket);
                    socket.send(&json!({ "type": "hello", "version": 2 })).await;
                    assert_eq!(socket.next().await.unwrap()["type"], "hello");
                    Ok(socket)
                }
                Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
                Err(error) => panic!("{error}"),
            }
        }

        async fn ends(self) {
            self.stop.cancel();
            tokio::time::timeout(LIMIT, self.served).await.unwrap().unwrap().unwrap();
        }
    }

    fn options(dir: &Path, access: Access, limits: ServerLimits) -> ServerOptions {
        ServerOptions {
            home: Home::at(dir.join("home"), Arc::new(SilentObserver)),
            request: OpenRequest::default(),
            wording: |text, _| text.to_owned(),
            directory: dir.canonicalize().unwrap().join("work"),
            access,
            limits,
        }
    }

    async fn whole(mut stream: TcpStream) -> (u16, String) {
        let mut answer = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no answer: {answer}")), answer)
    }

    struct Socket(WebSocketStream<TcpStream>);

    impl Socket {
        async fn send(&mut self, line: &Value) {
            self.0.send(Message::text(line.to_string())).await.unwrap();
        }

        /// The next line; the reason where the server closes.
        async fn next(&mut self) -> Result<Value, String> {
            loop {
                match tokio::time::timeout(LIMIT, self.0.next()).await.unwrap() {
                    Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(Some(frame)))) => return Err(frame.reason.to_string()),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => return Err(format!("{other:?}")),
                }
            }
        }

        async fn next_of(&mut self, kind: &str) -> Value {
            loop {
                let line = self.next().await.unwrap();
                if line["type"] == kind || line["envelope"]["event"]["type"] == kind {
                    return line;
                }
            }
        }

        async fn open(&mut self, world: &World) -> Value {
            self.send(&json!({ "type": "open", "id": 1, "cwd": world.work() })).await;
            let session = self.next_of("opened").await["session"].clone();
            self.send(&json!({ "type": "subscribe", "id": 2, "session": session })).await;
            self.next_of("snapshot").await;
            session
        }
    }

    fn says(text: &str) -> Reply {
        Answer::new().text(text).reply()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn address_without_a_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let listener = ServerListener::loopback("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let options = options(dir.path(), Access::Anyone, SERVER_LIMITS);
        let refused = serve(options, listener, CancellationToken::new()).await.unwrap_err();
        assert!(matches!(refused, ServerError::NoToken), "{refused}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_and_connections_have_a_limit() {
        let limits = ServerLimits { clients: 2, connections: 4, ..SERVER_LIMITS };
        let world = World::start([], limits).await;
        let first = world.socket().await.unwrap();
        assert_eq!(world.ask("POST", "/v1/clients", "").await.0, 201);
        let (status, body) = world.ask("POST", "/v1/clients", "").await;
        assert!(status == 503 && body.contains("too_many_clients"), "{body}");
        assert_eq!(world.socket().await.err(), Some(503));
        let mut idle = Vec::new();
        for _ in 0..4 {
            idle.push(TcpStream::connect(&world.address).await.unwrap());
        }
        let (status, answer) = world.ask("GET", "/v1/models", "").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(status == 503 && head.contains("Retry-After: 1"), "{answer}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "too_many_connections", "{body}");
        // A place that is left is free again.
        drop(idle);
        while world.try_ask("GET", "/health").await != Some(200) {
            tokio::task::yield_now().await;
        }
        drop(first);
        while world.socket().await.is_err() {
            tokio::task::yield_now().await;
        }
        world.ends().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn completion_without_room_for_a_session_is_told_to_wait() {
        let world = World::start([], SERVER_LIMITS).await;
        let mut client = world.socket().await.unwrap();
        for id in 0..quipu_runtime::SESSIONS {
            client.send(&json!({ "type": "open", "id": id, "cwd": world.work() })).await;
            client.next_of("opened").await;
        }
        let (status, answer) = whole(world.chat("ann", "Hi").await).await;
        assert!(status == 503 && answer.contains("too_many_sessions"), "{answer}");
        assert!(answer.contains("retry-after: 1") && !answer.contains("x-should-retry"), "{answer}");
        world.ends().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stalled_client_is_closed_and_others_go_on() {
        let limits = ServerLimits { stalled: Duration::from_secs(1), lines: usize::MAX, ..SERVER_LIMITS };
        let world = World::start([says("Short.")], limits).await;
        let mut other = world.socket().await.unwrap();
        let own = other.open(&world).await;
        // It asks for more and more, and reads nothing.
        let mut stalled = world.socket().await.unwrap();
        let asking = tokio::spawn(async move {
            while stalled.0.send(Message::text(r#"{"type":"commands","id":1}"#)).await.is_ok() {}
        });
        let prompt = json!({ "type": "prompt", "input": [{ "type": "text", "text": "Go." }], "when": "now" });
        other.send(&json!({ "type": "command", "id": 3, "session": own, "command": prompt })).await;
        other.next_of("settled").await;
        let closed = r#"quipu_clients_closed_total{reason="stalled"} 1"#;
        while !world.ask("GET", "/metrics", "").await.1.contains(closed) {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(LIMIT, asking).await.unwrap().unwrap();
        other.send(&json!({ "type": "sessions", "id": 4 })).await;
        assert_eq!(other.next_of("sessions").await["sessions"], json!([own]));
        world.ends().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_without_an_event_stream_ends() {
        let limits = ServerLimits { detached: Duration::from_millis(100), ..SERVER_LIMITS };
        let world = World::start([], limits).await;
        assert_eq!(world.ask("POST", "/v1/clients", "").await.0, 201);
        let closed = r#"quipu_clients_closed_total{reason="detached"} 1"#;
        while !world.ask("GET", "/metrics", "").await.1.contains(closed) {
            tokio::task::yield_now().await;
        }
        world.ends().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_for_answers_have_a_limit() {
        let gate = Gate::new();
        let begun = Answer::new().text("I begin").unfinished();
        let limits = ServerLimits { chats: 2, waiting: 1, ..SERVER_LIMITS };
        // One that comes before the second is answered, too.
        let script =
            [Reply::sse(begun).then_gate(&gate)].into_iter().chain((0..2_000).map(|_| says("Second.")));
        let world = World::start(script, limits).await;
        let first = world.chat("ann", "One").await;
        gate.reached().await;
        // It is refused where one of the others is answered just then.
        let second = async {
            loop {
                let answer = whole(world.chat("ann", "Two").await).await;
                if answer.0 != 429 {
                    break answer;
                }
            }
        };
        let third = async {
            let mut third = whole(world.chat("bob", "Three").await).await;
            // The second may not be there yet.
            while third.0 == 200 {
                third = whole(world.chat("bob", "Three").await).await;
            }
            assert!(third.0 == 429 && third.1.contains("too_many_requests"), "{third:?}");
            drop(first);
            gate.open();
        };
        let (second, ()) = tokio::join!(second, third);
        assert!(second.0 == 200 && second.1.contains("Second."), "{second:?}");
        world.ends().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_request_is_given_up() {
        let limits = ServerLimits { request: Duration::from_millis(200), ..SERVER_LIMITS };
        let world = World::start([], limits).await;
        let mut stream = TcpStream::connect(&world.address).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHo").await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.unwrap().ok();
        let mut stream = TcpStream::connect(&world.address).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\n{{",
            world.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        tokio::time::timeout(LIMIT, stream.read_exact(&mut begun)).await.unwrap().unwrap();
        assert_eq!(&begun, b"HTTP/1.1 408");
        world.ends().await;
    }
}
