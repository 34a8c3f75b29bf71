//! Logins that expire: renewed at the authority that gave them, or refused by it. Both are one server on loopback.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use quipu_mcp::{
    ClientInfo, DefinitionStoreError, OauthTokens, Server, ServerEnvironment, ServerStatus, TokenStore,
    config,
};
use quipu_protocol::Json;
use serde_json::{Value, json};

use crate::support::{LIMIT, text};

/// What the authority gives and the server takes.
#[derive(Default)]
struct Grants {
    /// The access token that the server takes.
    access: String,
    /// The refresh token that the authority takes, once.
    refresh: Option<String>,
    given: usize,
    /// Each request: its path, its token, and what it was about.
    seen: Vec<String>,
}

struct Authority {
    url: String,
    grants: Arc<Mutex<Grants>>,
}

impl Authority {
    fn start(access: &str, refresh: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let grants =
            Grants { access: access.to_owned(), refresh: refresh.map(str::to_owned), ..Grants::default() };
        let grants = Arc::new(Mutex::new(grants));
        let shared = grants.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut headers) = (String::new(), HashMap::new());
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let Some((name, value)) = line.trim().split_once(": ") else { break };
                    headers.insert(name.to_lowercase(), value.to_owned());
                }
                let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let (status, answer) = shared.lock().unwrap().answer(&first, &headers, &body);
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    answer.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { url, grants }
    }

    fn seen(&self) -> Vec<String> {
        self.grants.lock().unwrap().seen.clone()
    }

    fn login(&self, access: &str, refresh: Option<&str>, expires: Option<u64>) -> OauthTokens {
        let members = json!({
            "access": access, "refresh": refresh, "expires": expires, "method": "none", "clientId": "c",
            "resource": format!("{}/mcp", self.url), "tokenUrl": format!("{}/token", self.url),
        });
        serde_json::from_value(members).unwrap()
    }
}

impl Grants {
    fn answer(
        &mut self,
        first: &str,
        headers: &HashMap<String, String>,
        body: &[u8],
    ) -> (&'static str, String) {
        let path = first.split(' ').nth(1).unwrap();
        if path == "/token" {
            let form = String::from_utf8_lossy(body).into_owned();
            self.seen.push(format!("token {form}"));
            let is_right =
                self.refresh.take_if(|known| form.contains(&format!("refresh_token={known}&"))).is_some();
            if !is_right {
                return ("400 Bad Request", json!({ "error": "invalid_grant" }).to_string());
            }
            self.given += 1;
            self.access = format!("renewed-{}", self.given);
            let next = format!("again-{}", self.given);
            self.refresh = Some(next.clone());
            let answer = json!({ "access_token": self.access, "token_type": "Bearer", "refresh_token": next, "expires_in": 3600 });
            return ("200 OK", answer.to_string());
        }
        if first.starts_with("GET") || first.starts_with("DELETE") {
            return ("405 Method Not Allowed", String::new());
        }
        let message: Value = serde_json::from_slice(body).unwrap();
        let token = headers.get("authorization").cloned().unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        self.seen.push(format!("{method} {token}"));
        if token != format!("Bearer {}", self.access) {
            return ("401 Unauthorized", String::new());
        }
        let result = match method {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "far", "version": "1" } }),
            "tools/list" => json!({ "tools": [{ "name": "add", "inputSchema": { "type": "object" } }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "3" }] }),
            _ => return ("202 Accepted", String::new()),
        };
        ("200 OK", json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string())
    }
}

/// Logins in memory.
#[derive(Default)]
struct Logins(Mutex<Option<OauthTokens>>);

impl TokenStore for Logins {
    fn tokens(&self, _: &str) -> Option<OauthTokens> {
        self.0.lock().unwrap().clone()
    }

    fn keep(&self, _: &str, tokens: Option<&OauthTokens>) -> Result<(), DefinitionStoreError> {
        *self.0.lock().unwrap() = tokens.cloned();
        Ok(())
    }
}

fn server(authority: &Authority, login: OauthTokens) -> (Server, Arc<Logins>) {
    let members = json!({ "type": "http", "url": format!("{}/mcp", authority.url) });
    let config = config::server(members.as_object().unwrap()).unwrap();
    let logins = Arc::new(Logins(Mutex::new(Some(login))));
    let environment = ServerEnvironment {
        cwd: std::env::temp_dir(),
        registry: Arc::default(),
        changes: Vec::new(),
        client: ClientInfo { name: "test".into(), version: "0".into() },
        tokens: Some(logins.clone()),
        begin: None,
    };
    (Server::start("far", config, environment), logins)
}

#[tokio::test]
async fn expired_login_is_renewed_before_a_request() {
    let authority = Authority::start("never", Some("refresh-1"));
    let (server, logins) = server(&authority, authority.login("old", Some("refresh-1"), Some(1)));
    let status = server.settled(LIMIT).await;
    assert!(matches!(status, ServerStatus::Ready(_)), "{status:?}");
    let seen = authority.seen();
    assert!(
        seen[0].starts_with("token grant_type=refresh_token&refresh_token=refresh-1&resource="),
        "{seen:?}"
    );
    assert_eq!(seen[1], "initialize Bearer renewed-1");
    assert!(seen.iter().all(|one| !one.contains("old")), "the expired token is not sent: {seen:?}");
    // What the authority gave is kept for the next time: the refresh token rotates.
    let kept = logins.tokens("").unwrap();
    assert_eq!((kept.access.as_str(), kept.refresh.as_deref()), ("renewed-1", Some("again-1")));
    assert!(kept.expires.is_some_and(|expires| expires > 1));
}

#[tokio::test]
async fn login_refused_in_mid_session_is_renewed_once() {
    let authority = Authority::start("good", Some("refresh-1"));
    let (server, _) = server(&authority, authority.login("good", Some("refresh-1"), None));
    let nothing = Json::from(json!({}));
    let add = || server.call("add", &nothing, None);
    server.settled(LIMIT).await;
    assert_eq!(text(&add().await.unwrap()), "3");
    // The server takes the token no more: another one is had, and the call is made again with it.
    authority.grants.lock().unwrap().access = "other".to_owned();
    assert_eq!(text(&add().await.unwrap()), "3");
    let tokens = |seen: Vec<String>| seen.iter().filter(|one| one.starts_with("token ")).count();
    assert_eq!(tokens(authority.seen()), 1);
    // A server that refuses what is new, too, gets no third.
    {
        let mut grants = authority.grants.lock().unwrap();
        (grants.access, grants.refresh) = ("other".to_owned(), None);
    }
    let error = add().await.unwrap_err().to_string();
    assert!(error.contains("wants a login"), "{error}");
    assert_eq!(tokens(authority.seen()), 2);
}

#[tokio::test]
async fn refused_renewal_says_that_a_login_is_wanted() {
    let authority = Authority::start("never", None);
    let (server, logins) = server(&authority, authority.login("old", Some("refresh-1"), Some(1)));
    let status = server.settled(LIMIT).await;
    let ServerStatus::Waiting(why) = status else { panic!("{status:?}") };
    assert!(why.contains("wants a login"), "{why}");
    assert!(!why.contains("refresh-1") && !why.contains("old"), "{why}");
    let seen = authority.seen();
    assert_eq!(seen.iter().filter(|one| one.starts_with("token ")).count(), 1, "{seen:?}");
    // The login stays: the authority may only be out of order.
    assert_eq!(logins.tokens("").unwrap().refresh.as_deref(), Some("refresh-1"));
    // Without a refresh token nobody is asked.
    let authority = Authority::start("never", None);
    let (server, _) = self::server(&authority, authority.login("old", None, Some(1)));
    assert!(matches!(server.settled(LIMIT).await, ServerStatus::Waiting(_)));
    assert!(authority.seen().iter().all(|one| !one.starts_with("token ")));
}
