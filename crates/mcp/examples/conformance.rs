//! The client that the published conformance suite runs: connects to the address that it is given, lists the tools and calls
//! each of them with values that fit.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_mcp::{
    ClientInfo, Elicitation, ElicitationAnswer, Elicitor, Server, ServerEnvironment, ServerStatus, config,
};
use quipu_protocol::Json;
use serde_json::{Value, json};

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

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().next_back() else { return ExitCode::FAILURE };
    let members = json!({ "type": "http", "url": url });
    let config = members.as_object().and_then(|members| config::server(members).ok());
    let Some(config) = config else { return ExitCode::FAILURE };
    let environment = ServerEnvironment {
        cwd: PathBuf::from("/"),
        registry: Arc::default(),
        changes: Vec::new(),
        client: ClientInfo { name: "quipu".into(), version: env!("CARGO_PKG_VERSION").into() },
    };
    let server = Server::start("suite", config, environment);
    let status = server.settled(Duration::from_secs(30)).await;
    let Some(listing) = server.listing().filter(|_| matches!(status, ServerStatus::Ready(_))) else {
        return ExitCode::FAILURE;
    };
    let mut failed = false;
    for tool in &listing.definitions {
        let schema: Value = tool.spec("tool").parameters.value();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let arguments: Value = properties.map(|(name, one)| (name.clone(), fitting(one))).collect();
        let called = server.call(&tool.name, &Json::from(arguments), Some(Arc::new(Agreement))).await;
        failed |= called.is_err();
    }
    server.stop().await;
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn fitting(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        _ => json!("text"),
    }
}
