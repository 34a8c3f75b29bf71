//! `quipu setup`: the real command on real files, and the real agents that read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use quipu_testkit::peer_files;
use serde_json::{Value, json};

use crate::peers::{QUIET_WITH_PROJECTS, installed, required};
use crate::support::*;

const JSON_SETTINGS: &str = "{\n  \"theme\": \"dark\"\n}\n";
const TOML_SETTINGS: &str = "# mine\nmodel = \"m\"\n";

/// Two agents with settings, two without.
fn world() -> World {
    let world = World::new([]);
    world.unchecked();
    for directory in [".claude", ".codex", ".gemini", ".pi/agent"] {
        std::fs::create_dir_all(world.path("home").join(directory)).unwrap();
    }
    std::fs::write(world.path("home/.claude.json"), JSON_SETTINGS).unwrap();
    std::fs::write(world.path("home/.codex/config.toml"), TOML_SETTINGS).unwrap();
    world
}

/// All files of the home directory with their bytes, apart from Quipu's own.
fn files(world: &World) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<(PathBuf, Vec<u8>)> = crate::peers::walk(&world.path("home"))
        .into_iter()
        .filter(|path| !path.starts_with(world.path("home/.quipu")))
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn setup_shows_asks_writes_and_takes_out_again() {
    let world = world();
    let before = files(&world);
    // Where nobody can be asked, nothing happens.
    let ran = world.run(&["setup"]).fails(2, &["only after you confirm", "--yes"]);
    assert!(ran.text().contains("+  \"mcpServers\": {"), "{}", ran.text());
    world.run(&["setup", "--check"]).exits(1);
    let shown = world.run(&["setup", "--dry-run"]).ok().text();
    for part in [
        "Claude Code",
        "Codex",
        "Gemini CLI",
        "+[mcp_servers.quipu]",
        " # mine",
        "+args = [\"mcp\", \"serve\"]",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(files(&world), before);
    assert!(!world.path("home/.quipu/setup.json").exists());

    let ran = world.run(&["setup", "--yes"]).ok();
    assert!(
        ran.err.contains("Gemini CLI is set up") && ran.err.contains("folders that you trust"),
        "{}",
        ran.err
    );
    let checked = world.run(&["setup", "--check", "--json"]).ok().json_lines();
    let states: Vec<&Value> = checked.iter().map(|agent| &agent["state"]).collect();
    assert_eq!(states, ["complete"; 4]);
    let settings: Value =
        serde_json::from_slice(&std::fs::read(world.path("home/.claude.json")).unwrap()).unwrap();
    assert_eq!(settings["mcpServers"]["quipu"]["args"], json!(["mcp", "serve"]));
    assert_eq!(settings["mcpServers"]["quipu"]["command"], json!(world.program));
    let extension = std::fs::read_to_string(world.path("home/.pi/agent/extensions/quipu.ts")).unwrap();
    assert!(extension.contains(world.program.to_str().unwrap()));
    // A hook of a program that is gone says nothing and fails nothing.
    let hooks: Value =
        serde_json::from_slice(&std::fs::read(world.path("home/.claude/settings.json")).unwrap()).unwrap();
    let hook = hooks["hooks"]["SessionStart"][0]["hooks"][0]["command"].as_str().unwrap().to_owned();
    assert!(hook.contains("hook claude-code SessionStart"), "{hook}");
    let mut command = world.command("/bin/sh");
    command.args(["-c", &hook.replace(world.program.to_str().unwrap(), "/nowhere/quipu")]);
    let ran = RunningCommand::start(command).wait().ok();
    assert_eq!((ran.text(), ran.err), (String::new(), String::new()));
    let during = files(&world);
    let ran = world.run(&["setup", "--yes"]).ok();
    assert_eq!(ran.err.matches("nothing to do").count(), 4, "{}", ran.err);
    assert_eq!(files(&world), during);
    let doctor = world.run(&["doctor"]).ok().text();
    assert!(doctor.contains("Claude Code: set up") && doctor.contains("Codex: set up"), "{doctor}");

    // One agent alone, by another name; what the user writes meanwhile stays.
    world.run(&["setup", "claude", "--remove", "--yes"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("home/.claude.json")).unwrap(), JSON_SETTINGS);
    let mine = std::fs::read_to_string(world.path("home/.codex/config.toml")).unwrap() + "\n[tui]\nx = 1\n";
    std::fs::write(world.path("home/.codex/config.toml"), mine).unwrap();
    let removed = world.run(&["setup", "--remove", "--yes", "--json"]).ok().json_lines();
    assert_eq!(removed[1]["changes"][0]["action"], "edit", "{removed:?}");
    let mut expect = before;
    for (path, bytes) in &mut expect {
        if path.ends_with("config.toml") {
            *bytes = format!("{TOML_SETTINGS}\n[tui]\nx = 1\n").into_bytes();
        }
    }
    assert_eq!(files(&world), expect);
    assert!(!world.path("home/.quipu/setup.json").exists());
}

#[test]
fn setup_without_agents_says_so() {
    let world = World::new([]);
    world.unchecked();
    let ran = world.run(&["setup"]).ok();
    assert!(ran.err.contains("none of the agents") && ran.err.contains("Claude Code"), "{}", ran.err);
    world.run(&["setup", "--check"]).ok();
    world.run(&["setup", "--remove"]).ok();
    world.run(&["setup", "nobody"]).fails(2, &["no agent `nobody`", "claude-code"]);
    world.run(&["setup", "codex", "--yes"]).fails(2, &["Codex is not installed"]);
    assert_eq!(files(&world), []);
    // A program on the PATH is enough.
    let program = world.path("home/bin/codex");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    set_mode(&program, 0o755);
    let mut command = world.quipu(&["setup", "--dry-run"]);
    command.env("PATH", program.parent().unwrap());
    let shown = RunningCommand::start(command).wait().ok().text();
    assert!(shown.contains("new") && shown.contains("config.toml"), "{shown}");
}

#[test]
fn setup_asks_for_each_agent_and_runs_once() {
    let world = world();
    let lock = std::fs::File::create(world.path("home/.quipu/setup.lock")).unwrap();
    let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    world.run(&["setup", "--yes"]).fails(1, &["another setup is running"]);
    drop(lock);
    let (code, shown) = on_terminal(&world, &["setup"], "y\nn\ny\ny\n", 100);
    for title in ["Claude Code", "Codex", "Gemini CLI"] {
        assert!(shown.contains(&format!("Change these files of {title}? [y/N]")), "{shown}");
        assert!(shown.contains(&format!("{title}: its hooks give pieces of the history")), "{shown}");
    }
    assert!(shown.contains("integrations.history off") && !shown.contains("Pi: its hooks"), "{shown}");
    assert!(code == Some(1) && shown.contains("Codex was not changed"), "{shown}");
    assert_ne!(std::fs::read_to_string(world.path("home/.claude.json")).unwrap(), JSON_SETTINGS);
    assert_eq!(std::fs::read_to_string(world.path("home/.codex/config.toml")).unwrap(), TOML_SETTINGS);
    assert!(world.path("home/.gemini/settings.json").exists());
}

#[test]
fn setup_names_broken_files_and_keeps_them() {
    let world = World::unprivileged([]);
    world.unchecked();
    for (directory, file, text) in [
        (".claude", ".claude.json", "{\n  \"theme\": \n}\n"),
        (".codex", ".codex/config.toml", TOML_SETTINGS),
        (".gemini", ".gemini/settings.json", "{}"),
    ] {
        let home = world.path("home");
        std::fs::create_dir_all(home.join(directory)).unwrap();
        std::fs::write(home.join(file), text).unwrap();
        if nix::unistd::geteuid().is_root() {
            for path in [directory, file] {
                std::os::unix::fs::chown(home.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
    }
    set_mode(&world.path("home/.codex"), 0o500);
    let before = files(&world);
    let ran = world.run(&["setup", "--yes"]).exits(1);
    for part in [
        ".claude.json: line 3",
        "config.toml cannot be written",
        "Gemini CLI is set up",
        "2 agents were not changed",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    set_mode(&world.path("home/.codex"), 0o700);
    let after = files(&world);
    assert_eq!((after.len(), &after[..2]), (before.len(), &before[..2]));
    let checked = world.run(&["setup", "--check"]).exits(1).text();
    assert!(checked.contains("Codex          not set up") && checked.contains("line 3"), "{checked}");
    // The program is elsewhere now.
    let moved = world.path("moved");
    std::fs::copy(&world.program, &moved).unwrap();
    let mut command = world.command(&moved);
    command.args(["doctor"]);
    let doctor = RunningCommand::start(command).wait().text();
    assert!(doctor.contains("Gemini CLI: set up by an earlier version, or for another program"), "{doctor}");
}

#[test]
fn setup_gives_servers_the_directory_that_the_user_chose() {
    let world = world();
    let mut command = world.quipu(&["setup", "--yes"]);
    command.env("QUIPU_HOME", world.path("home/elsewhere"));
    RunningCommand::start(command).wait().ok();
    let settings = std::fs::read_to_string(world.path("home/.codex/config.toml")).unwrap();
    let expect = format!("env = {{ QUIPU_HOME = \"{}\" }}", world.path("home/elsewhere").display());
    assert!(settings.contains(&expect), "{settings}");
    // Hooks and the extension use the same directory.
    let directory = world.path("home/elsewhere");
    let hooks = std::fs::read_to_string(world.path("home/.codex/hooks.json")).unwrap();
    assert!(hooks.contains(&format!("\"QUIPU_HOME={} ", directory.display())), "{hooks}");
    let extension = std::fs::read_to_string(world.path("home/.pi/agent/extensions/quipu.ts")).unwrap();
    let expect = json!(["env", format!("QUIPU_HOME={}", directory.display()), world.program, "pi-helper"]);
    assert!(extension.contains(&expect.to_string()), "{extension}");
}

fn ran(mut command: Command) -> String {
    command.envs(QUIET_WITH_PROJECTS);
    for (name, value) in [
        ("MCP_TIMEOUT", "90000"),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
    ] {
        command.env(name, value);
    }
    let ran = RunningCommand::start(command).wait();
    println!("{:?}\n{}\n{}", ran.status, ran.text(), ran.err);
    ran.text() + &ran.err
}

#[test]
fn own_plugin_entry_stays_and_is_told_with_what_it_lacks() {
    let world = world();
    let settings = world.path("home/.openclaw/openclaw.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let own = |entry: &str| {
        std::fs::write(&settings, format!("{{\"plugins\":{{\"entries\":{{\"quipu\":{entry}}}}}}}")).unwrap();
    };
    own(r#"{"enabled":true}"#);
    let lacks = "setup would write {\"enabled\":true,\"hooks\":{\"allowConversationAccess\":true}} as plugins.entries.quipu";
    // Each time, and not only by the run that changes the rest.
    for _ in 0..2 {
        let said = world.run(&["setup", "openclaw", "--yes"]).ok().err;
        assert!(said.contains("plugins.entries.quipu in ") && said.contains(lacks), "{said}");
    }
    assert!(std::fs::read_to_string(&settings).unwrap().contains(r#""quipu":{"enabled":true}"#));
    let checked = world.run(&["setup", "openclaw", "--check"]).exits(1).text();
    assert!(checked.contains("is left alone; ") && checked.contains(lacks), "{checked}");
    let checked = world.run(&["setup", "openclaw", "--check", "--json"]).exits(1).json();
    let pieces = checked["pieces"].as_array().unwrap();
    let entry = pieces.iter().find(|piece| piece["name"] == "plugins.entries.quipu").unwrap();
    assert_eq!(entry["state"], "changed");
    assert!(entry["wanted"].as_str().unwrap().contains("allowConversationAccess"), "{entry}");
    // With that, all is well.
    own(r#"{"enabled":true,"hooks":{"allowConversationAccess":true}}"#);
    world.run(&["setup", "openclaw", "--yes"]).ok();
    assert!(world.run(&["setup", "openclaw", "--check"]).ok().text().contains("set up"));
}

/// Sets an agent up, asks its own program, and takes it out again.
fn lists_the_server(program: &Path, agent: &str, file: &str, text: &str, connected: &str) {
    let world = World::new([]);
    world.unchecked();
    let path = world.path("home").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::create_dir_all(world.path("home/.claude")).unwrap();
    std::fs::write(&path, text).unwrap();
    let list = || {
        let mut command = world.command(program);
        command.args(["mcp", "list"]);
        ran(command)
    };
    world.run(&["setup", agent, "--yes"]).ok();
    let listed = list();
    assert!(listed.contains("quipu") && listed.contains(connected), "{listed}");
    // What the agent itself wrote meanwhile stays.
    let meanwhile = std::fs::read_to_string(&path).unwrap();
    let checked = world.run(&["setup", agent, "--check"]).ok().text();
    assert!(checked.contains("set up"), "{checked}");
    world.run(&["setup", agent, "--remove", "--yes"]).ok();
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(!left.contains("quipu"), "{left}");
    if left != text {
        // The agent added members of its own: ours is all that went.
        let mut expect: Value = serde_json::from_str(&meanwhile).unwrap();
        expect.as_object_mut().unwrap().shift_remove("mcpServers");
        assert_eq!(serde_json::from_str::<Value>(&left).unwrap(), expect);
    }
    let listed = list();
    assert!(!listed.contains("quipu"), "{listed}");
}

#[test]
fn peer_with_projects_lists_the_server_while_set_up() {
    let Some(program) = installed(&["@anthropic-ai", "claude-code-*", "claude"]) else { return };
    lists_the_server(&program, "claude-code", ".claude.json", JSON_SETTINGS, "Connected");
}

#[test]
fn peer_with_rollouts_lists_the_server_while_set_up() {
    let Some(program) = required(&["@openai", "codex-*", "vendor", "*", "bin", "codex"]) else { return };
    lists_the_server(&program, "codex", ".codex/config.toml", TOML_SETTINGS, "enabled");
}

#[test]
fn peer_with_a_database_lists_the_server_while_set_up() {
    let Some(program) = required(&["opencode-*", "bin", "opencode"]) else { return };
    let text = "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  // mine\n  \"theme\": \"x\",\n}\n";
    lists_the_server(&program, "opencode", ".config/opencode/opencode.jsonc", text, "connected");
}

#[test]
fn peer_with_chats_lists_the_server_while_set_up() {
    let files = peer_files(["node/bin/node", "@google/gemini-cli/bundle/gemini.js"]);
    let Some([node, program]) = files else { return };
    let directory = tempfile::tempdir().unwrap();
    let wrapper = directory.path().join("peer");
    let script = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", node.display(), program.display());
    std::fs::write(&wrapper, script).unwrap();
    set_mode(&wrapper, 0o755);
    let text = "{\n  // mine\n  \"security\": { \"folderTrust\": { \"enabled\": false } }\n}\n";
    lists_the_server(&wrapper, "gemini", ".gemini/settings.json", text, "Connected");
}

#[test]
fn peer_with_events_lists_the_server_while_set_up() {
    let Some(program) = installed(&["@github", "copilot-*", "copilot"]) else { return };
    lists_the_server(&program, "copilot", ".copilot/mcp-config.json", "{\n}\n", "quipu (local)");
}

#[test]
fn peer_with_extensions_loads_ours_while_set_up() {
    let Some([node, program]) =
        peer_files(["node/bin/node", "@earendil-works/pi-coding-agent/dist/bundle/cli.js"])
    else {
        return;
    };
    let world = world();
    let request = world.path("request");
    std::fs::write(&request, "{\"type\":\"get_commands\",\"id\":\"1\"}\n").unwrap();
    let commands = || {
        let mut command = world.command(&node);
        command.arg(&program).args(["--mode", "rpc"]).stdin(std::fs::File::open(&request).unwrap());
        command.env("PI_OFFLINE", "1").env("PI_TELEMETRY", "0").env("PI_SKIP_VERSION_CHECK", "1");
        ran(command)
    };
    world.run(&["setup", "pi", "--yes"]).ok();
    let found = commands();
    assert!(found.contains("get_commands") && found.contains("extensions/quipu.ts"), "{found}");
    world.run(&["setup", "pi", "--remove", "--yes"]).ok();
    let found = commands();
    assert!(found.contains("get_commands") && !found.contains("extensions/quipu.ts"), "{found}");
}
