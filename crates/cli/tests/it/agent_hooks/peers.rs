//! Other agents themselves, as `cargo xtask peers` installs them, with what is written into their configuration: what the hooks
//! give reaches the model, their turns arrive in the graph, and without the program they work as before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quipu_integrations::{ConfigurationContent, JsonValue, configuration, read_log};
use serde_json::{Value, json};

use super::filled;
use crate::peers::{ModelBlock, Reply, Server, installed, required, with_messages_at, with_responses_at};
use crate::support::*;

/// How long a turn may take to arrive.
const LIMIT: Duration = Duration::from_secs(180);

/// A call of a tool: its name and its arguments.
type PeerCall = (&'static str, Value);

/// An agent, as these tests run it.
struct HookedPeer {
    /// Its name on the command line of a hook, and in the store.
    host: &'static str,
    agent: &'static str,
    /// A command, reading a file, and changing it.
    shell: fn(&str) -> PeerCall,
    read: Option<fn(&Path) -> PeerCall>,
    edit: fn(&Path) -> PeerCall,
    /// Words of the turn that come in at once.
    arrives: &'static str,
    command: fn(&World, &Path, &str, &str) -> Command,
}

/// Writes what an agent needs to call hooks, as `setup` does.
fn configure(world: &World, host: &str, program: &Path) {
    let variable = |name: &str| (name == "HOME").then(|| world.path("home"));
    for file in configuration(host, program).unwrap().files {
        let path = file.path(&variable).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = match file.content {
            ConfigurationContent::Own(text) => text,
            ConfigurationContent::Json(additions) => {
                let found = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
                let mut value: Value = serde_json::from_str(&found).unwrap();
                for addition in additions {
                    let place = addition.members.iter().fold(&mut value, |value, member| &mut value[member]);
                    match addition.value {
                        JsonValue::Member(member) => *place = member,
                        JsonValue::Element(element) => match place {
                            Value::Array(list) => list.push(element),
                            place => *place = json!([element]),
                        },
                    }
                }
                value.to_string()
            }
        };
        std::fs::write(path, text).unwrap();
    }
}

fn script(peer: &HookedPeer, world: &World) -> Vec<Reply> {
    let says = |(tool, arguments): PeerCall, id: &'static str| {
        Reply::Says(vec![ModelBlock::Call(id, tool, arguments)])
    };
    let gate = world.path("work/gate.md");
    let mut script = vec![says((peer.shell)("cat hinges.cfg"), "call_1")];
    script.extend(peer.read.map(|read| says(read(&gate), "call_2")));
    script.push(says((peer.edit)(&gate), "call_3"));
    script.push(Reply::Says(vec![ModelBlock::Text("The gate is green now.")]));
    script
}

fn check(peer: &HookedPeer, program: &Path) {
    let world = filled();
    // Its own error, which was seen before.
    std::fs::remove_file(world.path("work/hinges.cfg")).unwrap();
    let server = Server::start();
    let converse = |prompt: &str| {
        server.load(&script(peer, &world));
        let before = server.asked().len();
        let mut command = (peer.command)(&world, program, &server.url, prompt);
        command.env("QUIPU_HOOK_DEADLINE_MS", "60000");
        let ran = RunningCommand::start(command).wait();
        println!("{:?}\n{}\n{}", ran.status, ran.text(), ran.err);
        assert!(ran.status.success(), "{:?}", ran.status);
        server.asked()[before..].iter().map(Value::to_string).collect::<Vec<_>>()
    };
    // Without the program it works as before. The agent's own settings are there first.
    drop((peer.command)(&world, program, &server.url, "x"));
    let own = configured(&world, peer.host);
    configure(&world, peer.host, Path::new("/no/such/program"));
    let asked = converse("Which paint colour?");
    assert_eq!(asked.len(), if peer.read.is_some() { 4 } else { 3 });
    assert!(!asked.concat().contains("archived history"), "{asked:?}");
    restore(own);

    std::fs::write(world.path("work/gate.md"), "# Gate\n\nPaint it green.\n").unwrap();
    configure(&world, peer.host, &world.program);
    let asked = converse("Which paint colour?");
    let problems = read_log(&world.path("home/.quipu/hooks"));
    let first = asked.first().unwrap();
    for part in ["Earlier sessions here", "Plan the gate", "Said here before:"] {
        assert!(first.contains(part), "{part} {problems:?}: {first}");
    }
    let last = asked.last().unwrap();
    for part in ["last changed by quipu", "Seen before:", "after that the command worked"] {
        assert!(last.contains(part), "{part} {problems:?}: {last}");
    }
    let began = Instant::now();
    loop {
        let found = world.run(&["search", peer.arrives, "--agent", peer.agent, "--json"]).text();
        if found.contains("\"node\"") {
            break;
        }
        let problems = read_log(&world.path("home/.quipu/hooks"));
        assert!(began.elapsed() < LIMIT, "the turn did not arrive: {problems:?}");
    }
}

/// The files of an agent that hooks are written into, and what they hold before.
fn configured(world: &World, host: &str) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let variable = |name: &str| (name == "HOME").then(|| world.path("home"));
    let files = configuration(host, Path::new("x")).unwrap().files;
    let paths = files.iter().map(|file| file.path(&variable).unwrap());
    paths.map(|path| (path.clone(), std::fs::read(&path).ok())).collect()
}

fn restore(files: Vec<(PathBuf, Option<Vec<u8>>)>) {
    for (path, content) in files {
        match content {
            Some(content) => std::fs::write(path, content).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
    }
}

#[test]
fn peer_with_projects_is_given_history_and_taken_in() {
    let Some(program) = installed(&["@anthropic-ai", "claude-code-*", "claude"]) else { return };
    let peer = HookedPeer {
        host: "claude-code",
        agent: "claude-code",
        shell: |line| ("Bash", json!({ "command": line, "description": "x" })),
        read: Some(|path| ("Read", json!({ "file_path": path }))),
        edit: |path| {
            ("Edit", json!({ "file_path": path, "old_string": "Paint it green.", "new_string": "Painted." }))
        },
        arrives: "gate is green now",
        command: |world, program, url, text| {
            let mut command = world.command(program);
            command.args(["-p", text, "--allowedTools", "Bash,Read,Edit"]);
            with_messages_at(&mut command, url);
            command
        },
    };
    check(&peer, &program);
}

#[test]
fn peer_with_rollouts_is_given_history_and_taken_in() {
    let Some(program) = required(&["@openai", "codex-*", "vendor", "*", "bin", "codex"]) else { return };
    let peer = HookedPeer {
        host: "codex",
        agent: "codex",
        shell: |line| ("exec_command", json!({ "cmd": line })),
        read: None,
        edit: |path| {
            let patch = format!(
                "*** Begin Patch\n*** Update File: {}\n@@\n-Paint it green.\n+Painted.\n*** End Patch\n",
                path.display()
            );
            ("exec_command", json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}EOF\n") }))
        },
        arrives: "gate is green now",
        command: |world, program, url, text| {
            let home = world.path("home/.codex");
            std::fs::create_dir_all(&home).unwrap();
            let settings = format!(
                "model = \"m\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
                 [model_providers.fake]\nname = \"fake\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"PEER_KEY\"\n\
                 request_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n"
            );
            std::fs::write(home.join("config.toml"), settings).unwrap();
            let mut command = world.command(program);
            // A person trusts hooks in its terminal.
            command.args(["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]);
            command.args(["--dangerously-bypass-approvals-and-sandbox", text]);
            command.env("PEER_KEY", "k").env("NO_PROXY", "127.0.0.1");
            command
        },
    };
    check(&peer, &program);
}

#[test]
fn peer_with_an_operation_log_is_given_history() {
    let Some(program) = installed(&["@google", "gemini-cli", "bundle", "gemini.js"]) else { return };
    let Some(_) = installed(&["node", "bin", "node"]) else { return };
    let peer = HookedPeer {
        host: "gemini",
        agent: "gemini-cli",
        shell: |line| ("run_shell_command", json!({ "command": line, "description": "x" })),
        read: Some(|path| ("read_file", json!({ "file_path": path }))),
        edit: |path| {
            let change = json!({ "file_path": path, "old_string": "Paint it green.", "new_string": "Painted.", "instruction": "x" });
            ("replace", change)
        },
        // Its last answer may still be written to for two minutes.
        arrives: "paint colour",
        command: |world, program, url, text| {
            let path = world.path("home/.gemini/settings.json");
            if !path.exists() {
                let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } },
                    "general": { "enableAutoUpdate": false }, "privacy": { "usageStatisticsEnabled": false } });
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, settings.to_string()).unwrap();
            }
            let mut command = world.command(program.ancestors().nth(4).unwrap().join("node/bin/node"));
            command.arg(program).args(["-p", text, "-y", "--skip-trust", "-m", "gemini-2.5-flash"]);
            for (name, value) in
                [("GOOGLE_GEMINI_BASE_URL", url), ("GEMINI_API_KEY", "k"), ("NO_PROXY", "127.0.0.1")]
            {
                command.env(name, value);
            }
            command
        },
    };
    check(&peer, &program);
}

#[test]
fn peer_with_an_event_chain_is_given_history() {
    let Some(program) = installed(&["@github", "copilot-*", "copilot"]) else { return };
    let peer = HookedPeer {
        host: "copilot",
        agent: "copilot-cli",
        shell: |line| ("bash", json!({ "command": line, "description": "x" })),
        read: Some(|path| ("view", json!({ "path": path }))),
        edit: |path| ("edit", json!({ "path": path, "old_str": "Paint it green.", "new_str": "Painted." })),
        arrives: "gate is green now",
        command: |world, program, url, text| {
            let mut command = world.command(program);
            command.args(["-p", text, "--allow-all-tools", "--allow-all-paths", "--no-auto-update"]);
            with_responses_at(&mut command, url);
            command
        },
    };
    check(&peer, &program);
}

#[test]
fn peer_with_a_database_is_given_history_and_taken_in() {
    let Some(program) = required(&["opencode-*", "bin", "opencode"]) else { return };
    let peer = HookedPeer {
        host: "opencode",
        agent: "opencode",
        shell: |line| ("bash", json!({ "command": line, "description": "x" })),
        read: Some(|path| ("read", json!({ "filePath": path }))),
        edit: |path| {
            ("edit", json!({ "filePath": path, "oldString": "Paint it green.", "newString": "Painted." }))
        },
        arrives: "gate is green now",
        command: |world, program, url, text| {
            let models = json!({ "m": { "name": "m", "limit": { "context": 1_000_000, "output": 8_000 } } });
            let options = json!({ "baseURL": format!("{url}/v1"), "apiKey": "k" });
            let provider = json!({ "fake": { "npm": "@ai-sdk/anthropic", "name": "fake", "options": options, "models": models } });
            let settings = json!({ "autoupdate": false, "share": "disabled", "model": "fake/m", "small_model": "fake/m",
                "permission": "allow", "provider": provider });
            let settings: PathBuf = world.file("../tmp/peer.json", settings.to_string());
            let mut command = world.command(program);
            command.args(["run", text]);
            command.env("OPENCODE_CONFIG", settings).env("NO_PROXY", "127.0.0.1");
            for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
                command.env(format!("OPENCODE_DISABLE_{name}"), "1");
            }
            command
        },
    };
    check(&peer, &program);
}
