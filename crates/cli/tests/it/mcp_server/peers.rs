//! Other agents themselves as clients, as `cargo xtask peers` installs them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::filled;
use crate::peers::{ModelBlock, Reply, Server, installed, required, walk, with_messages_at};
use crate::support::*;

/// A model that calls a tool of the server once.
fn searches(tool: &'static str) -> Server {
    let server = Server::start();
    let call = ModelBlock::Call("call_1", tool, json!({ "query": "paint" }));
    server.load(&[Reply::Says(vec![call]), Reply::Says(vec![ModelBlock::Text("I see.")])]);
    server
}

/// Whether the files that an agent wrote below a directory hold what the tool found.
fn found_in(dir: &Path) -> bool {
    walk(dir).iter().any(|file| {
        let text = std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        text.is_ok_and(|text| text.contains("archived history") && text.contains("Blue paint it is."))
    })
}

fn ran(command: Command) -> CommandOutput {
    let ran = RunningCommand::start(command).wait();
    println!("{:?}\n{}\n{}", ran.status, ran.text(), ran.err);
    ran
}

#[test]
fn peer_with_projects_lists_the_server_and_calls_it() {
    let Some(program) = installed(&["@anthropic-ai", "claude-code-*", "claude"]) else { return };
    let world = filled();
    let model = searches("mcp__quipu__search");
    let peer = |args: &[&str]| {
        let mut command = world.command(&program);
        command.args(args);
        with_messages_at(&mut command, &model.url);
        for (name, value) in [
            // A busy machine starts the server late; the first message waits for it.
            ("MCP_CONNECTION_NONBLOCKING", "0"),
            ("MCP_CONNECT_TIMEOUT_MS", "90000"),
            ("MCP_TIMEOUT", "90000"),
        ] {
            command.env(name, value);
        }
        ran(command)
    };
    let quipu = world.program.to_str().unwrap().to_owned();
    peer(&["mcp", "add", "--scope", "user", "quipu", "--", &quipu, "mcp", "serve"]).ok();
    let listed = peer(&["mcp", "list"]).ok().text();
    assert!(listed.contains("quipu") && listed.contains("Connected"), "{listed}");
    peer(&["-p", "Which paint?", "--allowedTools", "mcp__quipu__search"]).ok();
    assert!(found_in(&world.path("home/.claude/projects")));
}

#[test]
fn peer_with_rollouts_calls_the_server() {
    let Some(program) = required(&["@openai", "codex-*", "vendor", "*", "bin", "codex"]) else { return };
    let world = filled();
    let model = searches("mcp__quipu::search");
    let home = world.path("home/.codex");
    std::fs::create_dir_all(&home).unwrap();
    let settings = format!(
        "model = \"m\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
         [model_providers.fake]\nname = \"fake\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"PEER_KEY\"\n\
         request_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n\
         [mcp_servers.quipu]\ncommand = \"{}\"\nargs = [\"mcp\", \"serve\"]\nstartup_timeout_sec = 90\n",
        model.url,
        world.program.display()
    );
    std::fs::write(home.join("config.toml"), settings).unwrap();
    let mut command = world.command(&program);
    command.args([
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "Which paint?",
    ]);
    command.env("CODEX_HOME", &home).env("PEER_KEY", "k").env("NO_PROXY", "127.0.0.1");
    ran(command);
    assert!(found_in(&home.join("sessions")));
}

#[test]
fn peer_with_a_database_lists_the_server() {
    let Some(program) = required(&["opencode-*", "bin", "opencode"]) else { return };
    let world = filled();
    let server = json!({ "type": "local", "command": [world.program, "mcp", "serve"], "enabled": true, "timeout": 90000 });
    let settings: Value = json!({ "mcp": { "quipu": server } });
    let mut command = world.command(&program);
    command.args(["mcp", "list"]);
    command.env("OPENCODE_CONFIG_CONTENT", settings.to_string());
    for what in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
        command.env(format!("OPENCODE_DISABLE_{what}"), "1");
    }
    command.env("NO_PROXY", "127.0.0.1");
    let listed = ran(command);
    let listed = listed.text() + &listed.err;
    assert!(listed.contains("quipu") && listed.contains("connected"), "{listed}");
}

#[test]
fn peer_with_code_calls_lists_the_server_and_calls_it() {
    let program = ["..", "packed", "pi-coding-agent", "package", "dist", "bundle", "cli.js"];
    let (Some(node), Some(program)) = (required(&["node", "bin", "node"]), required(&program)) else {
        return;
    };
    let world = filled();
    let code = "text(await tools.mcp__quipu__search({ query: 'paint' }))";
    let model = Server::start();
    let call = ModelBlock::Call("call_1", "codemode", json!({ "code": code }));
    model.load(&[Reply::Says(vec![call]), Reply::Says(vec![ModelBlock::Text("I see.")])]);
    let peer = |args: &[&str]| {
        let mut command = world.command(&node);
        command.arg(&program).args(args).env("PI_OFFLINE", "1").env("NO_PROXY", "127.0.0.1");
        ran(command)
    };
    let quipu = world.program.to_str().unwrap().to_owned();
    peer(&["mcp", "add", "quipu", "--", &quipu, "mcp", "serve"]).ok();
    let listed = peer(&["mcp", "list"]).ok().text();
    assert!(listed.contains("quipu: connected, 5 tools"), "{listed}");
    let models = json!({ "providers": { "fake": { "baseUrl": model.url, "api": "anthropic-messages",
        "apiKey": "k", "models": [{ "id": "m", "contextWindow": 100_000 }] } } });
    let agent = world.path("home/.pi/agent");
    std::fs::write(agent.join("models.json"), models.to_string()).unwrap();
    peer(&["--model", "fake/m", "-p", "Which paint?"]).ok();
    assert!(found_in(&agent.join("sessions")));
}
