//! The client side of the published conformance suite, which `cargo xtask peers` installs. What does not apply stands in
//! `docs/mcp.md`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_mcp::{
    ClientInfo, Elicitation, ElicitationAnswer, Elicitor, Server, ServerEnvironment, ServerStatus, config,
};
use quipu_protocol::Json;
use serde_json::{Value, json};

use crate::support::LIMIT;

/// Scenarios that do not need a login.
const SCENARIOS: &[&str] = &["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"];

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
fn suite_passes_for_each_scenario_without_a_login() {
    let Some((node, suite)) = suite() else { return };
    let dir = tempfile::tempdir().unwrap();
    let client = dir.path().join("client.sh");
    let this = std::env::current_exe().unwrap();
    let run = format!(
        "{ADDRESS}=\"$1\" exec \"{}\" --exact conformance::client_of_the_suite_calls_each_tool --nocapture\n",
        this.display()
    );
    std::fs::write(&client, run).unwrap();
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
        assert!(output.status.success(), "{scenario}: {said}");
        assert!(!said.contains("FAILURE"), "{scenario}: {said}");
    }
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

/// The client that the suite starts: this same program, with an address. Without one there is nothing to do.
#[tokio::test]
async fn client_of_the_suite_calls_each_tool() {
    let Ok(url) = std::env::var(ADDRESS) else { return };
    let members = json!({ "type": "http", "url": url });
    let config = config::server(members.as_object().unwrap()).unwrap();
    let environment = ServerEnvironment {
        cwd: PathBuf::from("/"),
        registry: Arc::default(),
        changes: Vec::new(),
        client: ClientInfo { name: "quipu".into(), version: "0".into() },
    };
    let server = Server::start("suite", config, environment);
    let status = server.settled(LIMIT).await;
    assert!(matches!(status, ServerStatus::Ready(_)), "{status:?}");
    for tool in &server.listing().unwrap().definitions {
        let schema = tool.spec("tool").parameters.value();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let arguments: Value = properties.map(|(name, one)| (name.clone(), fitting(one))).collect();
        server.call(&tool.name, &Json::from(arguments), Some(Arc::new(Agreement))).await.unwrap();
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
