//! A server on this machine that has another API, or other models, than `models.json` says.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use quipu_protocol::{Content, Model, ModelErrorKind};
use quipu_providers::{Call, CallOptions, Credentials};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::encode::{request, user};
use crate::wires::{self, WIRES, Wire, api};

/// Answers 404 to the call, and `list` to the request for models; gives the address, and the requests that came.
fn serve(list: &'static str, requests: usize) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = move || {
        let mut seen = Vec::new();
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; 64 << 10];
            let read = stream.read(&mut bytes).unwrap();
            let asked = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let (status, body) = match asked.starts_with("GET /v1/models ") {
                true => ("200 OK", list),
                false => ("404 Not Found", "404 page not found"),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            seen.push(asked);
        }
        seen
    };
    (url, std::thread::spawn(answer))
}

/// The message of the call that fails.
async fn failure(wire: Wire, url: &str) -> String {
    let model = Model {
        id: "mine".into(),
        provider: "toy".into(),
        api: api(wire).into(),
        base_url: url.into(),
        context_window: 1_000,
        max_tokens: 100,
        ..Model::default()
    };
    let key = quipu_providers::Secret::new("sk-local-0123456789");
    let key = quipu_providers::Credential::new("a key", quipu_providers::Scheme::Key(key));
    let options = CallOptions { max_retries: 0, ..CallOptions::default() };
    let provider = wires::provider(&model, Credentials::fixed(key), &[], options).unwrap();
    let request = Arc::new(request(model, vec![user(vec![Content::text("Hi")])]));
    let body = provider.encode(&request).unwrap();
    let (events, mut read) = mpsc::channel(16);
    let end = provider.send(Call::new(request, body, events, CancellationToken::new()));
    let (end, ()) = tokio::join!(end, async { while read.recv().await.is_some() {} });
    let error = end.error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::UnknownModel);
    error.message
}

#[tokio::test]
async fn local_server_with_another_api_is_named() {
    for wire in WIRES {
        let (url, thread) = serve(r#"{"data":[{"id":"small"},{"id":"large"}]}"#, 2);
        let message = failure(wire, &url).await;
        let expected = match wire {
            Wire::Completions | Wire::Chunks => "This server has no model mine; it has small, large.",
            _ => r#"set "api": "openai-completions" for it in models.json."#,
        };
        assert!(message.ends_with(expected), "{wire:?}: {message}");
        let asked = thread.join().unwrap();
        assert!(!asked[1].contains("sk-local"), "the list is asked for without the key: {}", asked[1]);
    }
}

#[tokio::test]
async fn local_server_without_a_list_adds_nothing() {
    for list in ["", "[]", "<html>", r#"{"data":7}"#] {
        let (url, thread) = serve(list, 2);
        let message = failure(Wire::Messages, &url).await;
        assert!(message.ends_with("Check the model's name and the base URL of the provider."), "{message}");
        thread.join().unwrap();
    }
}
