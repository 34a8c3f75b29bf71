//! The real Pi with the extension, spoken to by its own protocol.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use quipu_pi_extension::{EXTENSION_FILE, extension_source};
use quipu_testkit::peer_files;
use serde_json::{Value, json};

use crate::support::*;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(90);

/// Writes what Pi needs to reach the world's server, and the extension with this command.
pub(super) fn install(world: &World, command: &[&str]) {
    let home = world.path("home/.pi/agent");
    std::fs::create_dir_all(home.join("extensions")).unwrap();
    let model = json!({ "id": MODEL, "contextWindow": 1_000_000_000, "maxTokens": 8_000 });
    let provider = json!({ "baseUrl": world.server.url(), "api": "anthropic-messages", "apiKey": KEY, "models": [model] });
    let models = json!({ "providers": { "testing": provider } });
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let settings = json!({ "enableInstallTelemetry": false, "quietStartup": true, "compaction": { "enabled": false },
        "retry": { "enabled": false } });
    std::fs::write(home.join("settings.json"), settings.to_string()).unwrap();
    std::fs::write(home.join("extensions").join(EXTENSION_FILE), extension_source(command)).unwrap();
    world.unchecked();
}

/// The same with the helper of this build.
pub(super) fn install_helper(world: &World) {
    let program = world.program.display().to_string();
    install(world, &[&program, "pi-helper"]);
}

/// The newest Pi, where `cargo xtask peers` put it.
pub(super) fn newest() -> Option<[PathBuf; 2]> {
    peer_files(["node/bin/node", "../packed/pi-coding-agent/package/dist/bundle/cli.js"])
}

pub(super) fn command([node, program]: &[PathBuf; 2], world: &World, args: &[&str]) -> Command {
    let mut command = world.command(node);
    command
        .arg(program)
        .args(["--offline", "--provider", "testing", "--model", MODEL])
        .args(args)
        .env("PI_OFFLINE", "1")
        .env("PI_SKIP_VERSION_CHECK", "1")
        .env("PI_TELEMETRY", "0");
    command
}

/// One prompt without a person.
pub(super) fn print(peer: &[PathBuf; 2], world: &World, args: &[&str]) -> CommandOutput {
    RunningCommand::start(command(peer, world, &[&["--print"], args].concat())).wait()
}

/// Pi with a person at the other end of two pipes.
pub(super) struct Pi {
    pub(super) child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    /// What the person says when asked.
    pub(super) consents: bool,
    /// What happens, once, before the next question is answered.
    pub(super) when_asked: Option<Box<dyn FnOnce()>>,
    /// Questions and notices so far.
    pub(super) asked: Vec<Value>,
    pub(super) told: Vec<String>,
    /// Results of tools, by the ids of their calls.
    pub(super) results: BTreeMap<String, Value>,
}

impl Pi {
    pub(super) fn start(peer: &[PathBuf; 2], world: &World, args: &[&str]) -> Self {
        let mut command = command(peer, world, &[&["--mode", "rpc"], args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (lines, output) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { continue };
                if lines.send(event).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            output,
            consents: true,
            when_asked: None,
            asked: Vec::new(),
            told: Vec::new(),
            results: BTreeMap::new(),
        }
    }

    pub(super) fn send(&mut self, command: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
    }

    /// The next event; questions are answered.
    pub(super) fn event(&mut self) -> Option<Value> {
        let event = match self.output.recv_timeout(LIMIT) {
            Ok(event) => event,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("Pi says nothing; it told {:?}", self.told),
        };
        match event["type"].as_str() {
            Some("extension_ui_request") if event["method"] == "confirm" => {
                if let Some(happen) = self.when_asked.take() {
                    happen();
                }
                let answer =
                    json!({ "type": "extension_ui_response", "id": event["id"], "confirmed": self.consents });
                self.asked.push(event.clone());
                self.send(&answer);
            }
            Some("extension_ui_request") if event["method"] == "notify" => {
                self.told.push(event["message"].as_str().unwrap().to_owned());
            }
            Some("extension_error") => panic!("{event}"),
            Some("tool_execution_end") => {
                let id = event["toolCallId"].as_str().unwrap().to_owned();
                self.results.insert(id, event.clone());
            }
            _ => {}
        }
        Some(event)
    }

    /// Waits for an event of this type.
    pub(super) fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().unwrap_or_else(|| panic!("Pi ended before {kind}"));
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// Waits until this notice came.
    pub(super) fn tells(&mut self, part: &str) -> String {
        loop {
            if let Some(text) = self.told.iter().find(|text| text.contains(part)) {
                return text.clone();
            }
            assert!(self.event().is_some(), "Pi ended before it told {part:?}: {:?}", self.told);
        }
    }

    /// Sends a prompt and waits until everything that follows is over.
    pub(super) fn prompt(&mut self, text: &str) {
        self.send(&json!({ "type": "prompt", "message": text }));
        self.until("agent_settled");
    }

    /// Runs a command of the extension, and waits until it is done.
    pub(super) fn run(&mut self, text: &str) {
        self.send(&json!({ "type": "prompt", "id": "command", "message": text }));
        loop {
            let event = self.event().expect("Pi is there");
            if event["type"] == "response" && event["id"] == "command" {
                assert_eq!(event["success"], true, "{event}");
                return;
            }
        }
    }

    /// The text of a tool's result.
    pub(super) fn result(&self, call: &str) -> String {
        let found =
            self.results.get(call).unwrap_or_else(|| panic!("no result of {call}: {:?}", self.results));
        found["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    /// What Pi says of itself.
    pub(super) fn state(&mut self) -> Value {
        self.send(&json!({ "type": "get_state", "id": "state" }));
        loop {
            let event = self.event().expect("Pi is there");
            if event["type"] == "response" && event["id"] == "state" {
                return event["data"].clone();
            }
        }
    }

    pub(super) fn session(&mut self) -> String {
        self.state()["sessionId"].as_str().unwrap().to_owned()
    }

    pub(super) fn file(&mut self) -> PathBuf {
        PathBuf::from(self.state()["sessionFile"].as_str().unwrap())
    }

    /// Ends in order.
    pub(super) fn close(mut self) {
        drop(self.input.take());
        while self.event().is_some() {}
        assert!(self.child.wait().unwrap().success());
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The process of the helper.
    pub(super) fn helper(&self) -> i32 {
        let own = self.child.id().to_string();
        let until = Instant::now() + LIMIT;
        loop {
            for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
                let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
                let rest = &stat[stat.rfind(')').unwrap()..];
                let is_child = rest.split_whitespace().nth(2) == Some(&own[..]);
                if is_child && contains(&line, b"pi-helper") && !rest.starts_with(") Z") {
                    return entry.file_name().to_str().unwrap().parse().unwrap();
                }
            }
            assert!(Instant::now() < until, "there is no helper");
            std::thread::yield_now();
        }
    }
}

/// The store is locked against other writers until this is dropped: the byte beside it that stands for that. Who writes
/// just now ends first.
pub(super) fn lock_writes(world: &World) -> std::fs::File {
    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    let mut path = world.store().into_os_string();
    path.push("-shm");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
        l_start: 120,
        l_len: 1,
        l_pid: 0,
    };
    let until = Instant::now() + LIMIT;
    loop {
        match fcntl(&file, FcntlArg::F_SETLK(&lock)) {
            Ok(_) => return file,
            Err(Errno::EAGAIN | Errno::EACCES) => {
                assert!(Instant::now() < until, "another process does not end its write");
                std::thread::yield_now();
            }
            Err(failure) => panic!("cannot lock the store: {failure}"),
        }
    }
}

/// The nodes of a session of Pi in this store, in the order of the tree; none before it is there.
pub(super) fn nodes(world: &World, session: &str, store: &[&str]) -> Vec<Value> {
    let ran = world.run(&[&["show", session, "--json"], store].concat());
    if ran.status.success() { ran.json()["nodes"].as_array().unwrap().clone() } else { Vec::new() }
}

/// Waits until the nodes of a session are as they should be.
pub(super) fn wait_for_nodes(world: &World, session: &str, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let until = Instant::now() + LIMIT;
    loop {
        let found = nodes(world, session, &[]);
        if fits(&found) {
            return found;
        }
        assert!(Instant::now() < until, "the nodes of {session} do not come: {found:?}");
    }
}

pub(super) fn ids(nodes: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = nodes.iter().map(|node| node["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

/// What an import of the file makes elsewhere is what is here, and an import here adds nothing.
#[track_caller]
pub(super) fn agrees_with_import(world: &World, session: &str, file: &Path) {
    let name = file.to_str().unwrap();
    let report = world.run(&["import", "pi", name, "--json"]).ok().json_lines().remove(0);
    if report["unchanged"] == false {
        assert_eq!((&report["added"], &report["changed"]), (&json!(0), &json!(0)), "{report}");
    }
    let other = format!("other-{}.db", std::fs::metadata(file).unwrap().len());
    world.run(&["import", "pi", name, "--store", &other]).ok();
    // With all branches.
    let export =
        |store: &[&str]| world.run(&[&["export", "--format", "pi", session], store].concat()).ok().text();
    assert_eq!(export(&[]), export(&["--store", &other]));
    let (mut here, there) = (nodes(world, session, &[]), nodes(world, session, &["--store", &other]));
    // Where a jump departed stands beside the file's entries.
    here.retain(|node| node["role"] != "toolResult" || node["externalId"].is_string());
    assert_eq!(ids(&here), ids(&there));
    assert!(!here.is_empty());
}
