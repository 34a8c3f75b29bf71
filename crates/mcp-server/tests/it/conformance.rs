//! The server side of the published conformance suite, which `cargo xtask peers` installs. What does not apply stands in
//! `docs/mcp-server.md`.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use quipu_mcp_server::{Access, serve_http};
use quipu_testkit::{needs_peers, peer_modules, skip_without};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::support::server;

/// How long a scenario may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Scenarios that apply. The others call tools, resources and prompts of a server that is made for the suite.
const SCENARIOS: &[&str] = &[
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
];

/// The suite, and a Node that runs it; `None` where nobody installed them.
fn suite() -> Option<(PathBuf, PathBuf)> {
    let suite = peer_modules().join("@modelcontextprotocol/conformance/dist/index.js");
    let node = peer_modules().join("node/bin/node");
    if suite.is_file() && node.is_file() {
        return Some((node, suite));
    }
    assert!(!needs_peers(), "{} is missing", suite.display());
    skip_without("@modelcontextprotocol/conformance");
    None
}

#[tokio::test]
async fn suite_passes_for_each_scenario_that_applies() {
    let Some((node, suite)) = suite() else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let served = tokio::spawn(serve_http(server(), listener, Access::Anyone, stop.clone()));
    let dir = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    for scenario in SCENARIOS {
        let mut command = Command::new(&node);
        command.arg(&suite).args(["server", "--scenario", scenario, "--url", &url]).current_dir(dir.path());
        command.stdin(Stdio::null()).kill_on_drop(true);
        let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
            failed.push(format!("{scenario} took more than {} s", LIMIT.as_secs()));
            continue;
        };
        let output = output.unwrap();
        let said =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        if !output.status.success() || said.contains("FAILURE") || !said.contains(", 0 failed, 0 warnings") {
            failed.push(format!("{scenario}: {said}"));
        }
    }
    stop.cancel();
    served.await.unwrap().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
