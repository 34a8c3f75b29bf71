//! An agent and a client that reads nothing, over pipes in memory and a model's server on loopback.

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use quipu_acp::{AcpAgent, ServeEnd};
    use quipu_host::{Home, OpenRequest, SessionTarget, SilentObserver};
    use quipu_testkit::{Answer, FakeServer};
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
        format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .into_bytes()
    }

    #[tokio::test]
    async fn client_that_never_reads_ends_and_its_session_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { dir.path().canonicalize().unwrap().join(name) };
        let long = "many words ".repeat(50_000);
        let server = FakeServer::start([Answer::new().text(&long).reply(), Answer::new().text("ok").reply()]);
        for made in ["home", "work"] {
            std::fs::create_dir(path(made)).unwrap();
        }
        let model = json!({ "id": "test-1", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
        let provider = json!({
            "baseUrl": server.url(), "apiKey": "key", "api": "anthropic-messages", "models": [model],
        });
        std::fs::write(path("home/models.json"), json!({ "providers": { "testing": provider } }).to_string())
            .unwrap();
        let home = Home::at(path("home"), Arc::new(SilentObserver));
        let agent = AcpAgent::new(home.clone(), OpenRequest::default());
        let agent = agent.with_patience(Duration::from_millis(200));
        let (ours, theirs) = tokio::io::duplex(4 << 10);
        let (read, write) = tokio::io::split(theirs);
        let served = tokio::spawn(agent.serve(read, write, std::future::pending()));
        let (read, mut write) = tokio::io::split(ours);
        let mut lines = BufReader::new(read).lines();
        write.write_all(&request(1, "initialize", &json!({ "protocolVersion": 1 }))).await.unwrap();
        lines.next_line().await.unwrap().unwrap();
        let open = json!({ "cwd": path("work"), "mcpServers": [] });
        write.write_all(&request(2, "session/new", &open)).await.unwrap();
        let opened: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Write a lot" }] });
        write.write_all(&request(3, "session/prompt", &prompt)).await.unwrap();
        // Nothing is read any more, and the connection stays open.
        let end = tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap();
        assert_eq!(end, ServeEnd::Stalled);
        drop((lines, write));

        let request = OpenRequest {
            which: SessionTarget::Session(session),
            here: path("work"),
            ..OpenRequest::default()
        };
        let opened = quipu_host::open(&home, &request).await.unwrap().opened;
        let (outcome, text) = opened.session.ask("Still there?").await.unwrap();
        assert_eq!((outcome, text.as_str()), (quipu_protocol::Outcome::Done, "ok"));
        opened.session.shutdown().await;
    }
}
