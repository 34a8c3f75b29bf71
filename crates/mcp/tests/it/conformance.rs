//! The client side of the published conformance suite, which `cargo xtask peers` installs. What does not apply stands in
//! `docs/mcp.md`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use quipu_mcp::{
    ClientInfo, DefinitionStoreError, Elicitation, ElicitationAnswer, Elicitor, OauthClient, OauthLogin,
    OauthTokens, RequestError, Server, ServerEnvironment, ServerStatus, TokenStore, config,
};
use quipu_protocol::Json;
use serde_json::{Value, json};

use crate::support::LIMIT;

/// Scenarios that apply.
const SCENARIOS: &[&str] = &[
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
];

/// The address of the suite's server, for the process that is its client.
const ADDRESS: &str = "QUIPU_SUITE_ADDRESS";

/// The suite, and a Node that runs it; `None` where nobody installed them.
fn suite() -> Option<(PathBuf, PathBuf)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let peers = std::env::var_os("QUIPU_PEERS").map_or_else(|| root.join("target/peers"), PathBuf::from);
    let modules = peers.join("node_modules");
    let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
    let node = modules.join("node/bin/node");
    if suite.is_file() && node.is_file() {
        return Some((node, suite));
    }
    assert!(
        std::env::var("QUIPU_REQUIRE_PEERS").is_err(),
        "{} is missing: run `cargo xtask peers`",
        suite.display()
    );
    println!("left out: {} is missing", suite.display());
    None
}

#[test]
fn suite_passes_for_each_scenario_that_applies() {
    let Some((node, suite)) = suite() else { return };
    let dir = tempfile::tempdir().unwrap();
    let client = dir.path().join("client.sh");
    let this = std::env::current_exe().unwrap();
    let run = format!(
        "{ADDRESS}=\"$1\" exec \"{}\" --exact conformance::client_of_the_suite_calls_each_tool --nocapture\n",
        this.display()
    );
    std::fs::write(&client, run).unwrap();
    let mut failed = Vec::new();
    for scenario in SCENARIOS {
        let output = Command::new(&node)
            .arg(&suite)
            .args(["client", "--scenario", scenario, "--command"])
            .arg(format!("sh {}", client.display()))
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        if !output.status.success() || said.contains("FAILURE") {
            failed.push(format!("{scenario}: {said}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Accepts each form without changing a value.
struct Agreement;

impl Elicitor for Agreement {
    fn elicit(&self, request: Elicitation) -> BoxFuture<'static, ElicitationAnswer> {
        let answer = match request {
            Elicitation::Form { .. } => ElicitationAnswer::Accept(Some(Json::object())),
            Elicitation::Page { .. } => ElicitationAnswer::Decline,
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Logins in memory.
#[derive(Default)]
struct MemoryTokens(Mutex<HashMap<String, OauthTokens>>);

impl TokenStore for MemoryTokens {
    fn tokens(&self, url: &str) -> Option<OauthTokens> {
        self.0.lock().unwrap().get(url).cloned()
    }

    fn keep(&self, url: &str, tokens: Option<&OauthTokens>) -> Result<(), DefinitionStoreError> {
        let mut kept = self.0.lock().unwrap();
        match tokens {
            Some(tokens) => kept.insert(url.to_owned(), tokens.clone()),
            None => kept.remove(url),
        };
        Ok(())
    }
}

/// Logs in as a browser would: the page of the suite sends it on at once.
async fn log_in(url: &str, registered: &OauthClient, challenge: Option<&str>, tokens: &MemoryTokens) {
    let login = OauthLogin::begin(url, registered, challenge).await.unwrap();
    let page = login.url.clone();
    let browser = async {
        let address = reqwest::Url::parse(&page).unwrap();
        let client =
            quipu_providers::net::client(&address, quipu_providers::net::LocalRoute::default()).unwrap();
        let answer = client.get(address).send().await.unwrap();
        Some(answer.headers()["location"].to_str().unwrap().to_owned())
    };
    let gotten = login.finish(browser).await.unwrap();
    tokens.keep(url, Some(&gotten)).unwrap();
}

/// The client that the suite starts: this same program, with an address. Without one there is nothing to do.
#[tokio::test]
async fn client_of_the_suite_calls_each_tool() {
    let Ok(url) = std::env::var(ADDRESS) else { return };
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|context| serde_json::from_str(&context).ok())
        .unwrap_or_default();
    let registered = OauthClient {
        id: context["client_id"].as_str().map(str::to_owned),
        secret: context["client_secret"].as_str().map(str::to_owned),
    };
    let members = json!({ "type": "http", "url": url });
    let config = config::server(members.as_object().unwrap()).unwrap();
    let tokens = Arc::new(MemoryTokens::default());
    let environment = ServerEnvironment {
        cwd: PathBuf::from("/"),
        registry: Arc::default(),
        changes: Vec::new(),
        client: ClientInfo { name: "quipu".into(), version: "0".into() },
        tokens: Some(tokens.clone()),
        begin: None,
    };
    let mut server = Server::start("suite", config.clone(), environment.clone());
    let mut status = server.settled(LIMIT).await;
    let wants_login = matches!(&status, ServerStatus::Waiting(why) if why.contains("wants a login"));
    if wants_login {
        log_in(&url, &registered, None, &tokens).await;
        server = Server::start("suite", config, environment);
        status = server.settled(LIMIT).await;
    }
    assert!(matches!(status, ServerStatus::Ready(_)), "{status:?}");
    for tool in &server.listing().unwrap().definitions {
        let schema = tool.spec("tool").parameters.value();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let arguments: Value = properties.map(|(name, one)| (name.clone(), fitting(one))).collect();
        let mut logins = 0;
        loop {
            let arguments = Json::from(arguments.clone());
            match server.call(&tool.name, &arguments, Some(Arc::new(Agreement))).await {
                Ok(_) => break,
                // A server that wants more each time does not get it.
                Err(RequestError::Unauthorized { challenge, .. }) if logins < 2 => {
                    logins += 1;
                    log_in(&url, &registered, challenge.as_deref(), &tokens).await;
                }
                Err(error) if logins > 0 => return println!("given up: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    server.stop().await;
}

fn fitting(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        _ => json!("text"),
    }
}
