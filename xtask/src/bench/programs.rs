//! The programs that are measured, each on a stage of its own: a home, a project and a model server that no other
//! has, and no variable of this process.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::measure::{self, Cost};
use super::server::{ModelServer, ServedRequest};
use super::wires::{Api, Reply, Wire};
use super::{Context, Peers};

/// One program in one way of running it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    /// Ours, as it is without settings: commands are confined.
    Quipu,
    /// Ours, commands with all rights.
    QuipuOpen,
    /// Pi; it has no sandbox.
    Pi,
    /// Codex without its sandbox.
    Codex,
    /// Codex with its sandbox for the workspace.
    CodexConfined,
}

impl Contender {
    /// What rows say after what was measured.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Quipu => "",
            Self::QuipuOpen => " (not confined)",
            Self::Pi => " (Pi)",
            Self::Codex => " (Codex)",
            Self::CodexConfined => " (Codex, confined)",
        }
    }

    /// Peers may fail without ending the run.
    pub(super) fn is_peer(self) -> bool {
        match self {
            Self::Quipu | Self::QuipuOpen => false,
            Self::Pi | Self::Codex | Self::CodexConfined => true,
        }
    }

    /// The tool that runs a command line, and its arguments for this one.
    pub(super) fn shell(self, line: &str) -> (&'static str, String) {
        match self {
            Self::Quipu | Self::QuipuOpen | Self::Pi => ("bash", json!({ "command": line }).to_string()),
            Self::Codex | Self::CodexConfined => ("exec_command", json!({ "cmd": line }).to_string()),
        }
    }
}

/// Where one program runs, gone when it is dropped.
pub(super) struct Stage<'a> {
    context: &'a Context,
    pub(super) who: Contender,
    /// The API of its model.
    api: Api,
    directory: tempfile::TempDir,
    server: ModelServer,
}

/// What one run of a program did.
pub(super) struct Sample {
    pub(super) cost: Cost,
    /// Its requests, in order.
    pub(super) served: Vec<ServedRequest>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(context: &'a Context, who: Contender) -> Result<Self> {
        Self::on(context, who, Api::MESSAGES)
    }

    /// One on which the program calls a model with this API; Codex has one alone.
    pub(super) fn on(context: &'a Context, who: Contender, api: Api) -> Result<Self> {
        let directory = tempfile::tempdir_in(&context.scratch)?;
        let server = ModelServer::start()?;
        let stage = Self { context, who, api, directory, server };
        for folder in [stage.home(), stage.project(), stage.settings(), stage.path("tmp")] {
            std::fs::create_dir_all(folder)?;
        }
        // No context is ever so full that a program compacts it by itself.
        let models = |base: &str| {
            let model = json!({ "id": "m", "contextWindow": 1_000_000_000, "maxTokens": 4_000 });
            let base = format!("{base}{}", api.path);
            json!({ "providers": { "fake": { "baseUrl": base, "api": api.name, "apiKey": api.key, "models": [model] }}})
        };
        let files = match who {
            Contender::Quipu | Contender::QuipuOpen => {
                vec![("models.json", models(&stage.server.url()).to_string())]
            }
            Contender::Pi => {
                let settings = json!({
                    "enableInstallTelemetry": false, "quietStartup": true,
                    "compaction": { "enabled": false }, "retry": { "enabled": false },
                    // The same transport as ours, where it has another.
                    "transport": "sse"
                });
                vec![
                    ("models.json", models(&stage.server.url()).to_string()),
                    ("settings.json", settings.to_string()),
                ]
            }
            Contender::Codex | Contender::CodexConfined => {
                vec![("config.toml", codex_settings(&stage.server.url()))]
            }
        };
        for (name, text) in files {
            std::fs::write(stage.settings().join(name), text)?;
        }
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The working directory; empty at first.
    pub(super) fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// The program's own folder for settings and sessions.
    pub(super) fn settings(&self) -> PathBuf {
        self.home().join(match self.who {
            Contender::Quipu | Contender::QuipuOpen => ".quipu",
            Contender::Pi => ".pi/agent",
            Contender::Codex | Contender::CodexConfined => ".codex",
        })
    }

    fn peers(&self) -> Result<&Peers> {
        self.context.peers.as_ref().context("no peers were given")
    }

    fn isolated(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            // A variable that says where tools build makes the terminal ask about it.
            .env_clear()
            .current_dir(self.project())
            .env("HOME", self.home())
            .env("TMPDIR", self.path("tmp"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("NO_PROXY", "127.0.0.1")
            // What one of the APIs asks for beside a key; Pi speaks HTTP/2 to it otherwise.
            .env("AWS_REGION", "us-east-1")
            .env("AWS_BEDROCK_FORCE_HTTP1", "1");
        command
    }

    /// The program without arguments, kept from everything that is not on its stage.
    pub(super) fn program(&self) -> Result<Command> {
        Ok(match self.who {
            Contender::Quipu | Contender::QuipuOpen => {
                let mut command = self.isolated(&self.context.quipu);
                command.env("QUIPU_HOME", self.settings());
                command
            }
            Contender::Pi => {
                let mut command = self.node()?;
                command.arg(&self.peers()?.pi);
                command
            }
            Contender::Codex | Contender::CodexConfined => {
                let mut command = self.isolated(&self.peers()?.codex);
                command.env("CODEX_HOME", self.settings()).env("BENCH_KEY", "bench");
                command
            }
        })
    }

    /// Our program beside the one of this stage, with files in the same home.
    pub(super) fn ours(&self) -> Command {
        let mut command = self.isolated(&self.context.quipu);
        command.env("QUIPU_HOME", self.home().join(".quipu"));
        command
    }

    /// The address of its model server.
    pub(super) fn server_url(&self) -> String {
        self.server.url()
    }

    /// Pi's Node, for Pi and for scripts that use its modules.
    pub(super) fn node(&self) -> Result<Command> {
        let mut command = self.isolated(&self.peers()?.node);
        command
            .env("PI_CODING_AGENT_DIR", self.settings())
            // Otherwise it looks for a new version and for its tools on the network, before the first request.
            .env("PI_OFFLINE", "1")
            .env("PI_SKIP_VERSION_CHECK", "1")
            .env("PI_TELEMETRY", "0");
        Ok(command)
    }

    /// One prompt in a new session, or in the one that is named.
    pub(super) fn prompt(&self, session: Option<&str>, text: &str) -> Result<Command> {
        let mut command = self.program()?;
        let model = ["--print", "--provider", "fake", "--model", "m"];
        match self.who {
            Contender::Quipu => command.args(model),
            Contender::QuipuOpen => command.args(model).args(["--permissions", "full"]),
            Contender::Pi => command.arg("--offline").args(model),
            Contender::Codex => {
                command.args(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"])
            }
            Contender::CodexConfined => {
                command.args(["exec", "--skip-git-repo-check", "--sandbox", "workspace-write"])
            }
        };
        if let Some(session) = session {
            command.args(["--session", session]);
        }
        command.arg(text);
        Ok(command)
    }

    /// The program on a terminal, in a new session.
    pub(super) fn interactive(&self) -> Result<Command> {
        let mut command = self.program()?;
        let model = ["--provider", "fake", "--model", "m"];
        match self.who {
            Contender::Quipu | Contender::QuipuOpen => command.args(model),
            Contender::Pi => command.arg("--offline").args(model),
            Contender::Codex | Contender::CodexConfined => {
                let project = self.project().canonicalize()?;
                let trusted = format!("projects.{:?}.trust_level=\"trusted\"", project.display().to_string());
                command.args(["--dangerously-bypass-approvals-and-sandbox", "-c", &trusted])
            }
        };
        command.env("TERM", "xterm-256color");
        Ok(command)
    }

    /// What its model server is to answer from now on.
    pub(super) fn load(&self, script: impl IntoIterator<Item = Reply>) {
        self.server.load(script);
    }

    /// Answers what no script has a reply for by what is asked.
    pub(super) fn answer_by(&self, reader: impl Fn(&str) -> Reply + Send + 'static) {
        self.server.answer_by(reader);
    }

    /// The requests that were made since the last call of this or of [`Stage::load`].
    pub(super) fn served(&self) -> Vec<ServedRequest> {
        self.server.take()
    }

    /// Runs a program against this script, which it has to ask for to the end and no further.
    pub(super) fn run(&self, command: &Command, script: impl IntoIterator<Item = Reply>) -> Result<Sample> {
        let script: Vec<Reply> = script.into_iter().collect();
        let wanted = script.len();
        self.server.load(script);
        let cost = measure::once(command)?;
        let served = self.server.take();
        ensure!(served.len() == wanted, "{} of {wanted} requests were made", served.len());
        Ok(Sample { cost, served })
    }

    /// Runs the program twice with a short prompt: the first makes its files, and gives the cost of the second.
    pub(super) fn warm_up(&self) -> Result<Cost> {
        let command = self.prompt(None, "hello")?;
        self.run(&command, [self.hello()])?;
        Ok(self.run(&command, [self.hello()])?.cost)
    }

    /// The last request that the program made.
    pub(super) fn last_request(&self) -> String {
        self.server.last_request()
    }

    /// The shortest answer.
    pub(super) fn hello(&self) -> Reply {
        self.wire().text(&["Hello.".to_owned()])
    }

    /// What the program is answered in.
    pub(super) fn wire(&self) -> Wire {
        match self.who {
            Contender::Quipu | Contender::QuipuOpen | Contender::Pi => self.api.wire,
            Contender::Codex | Contender::CodexConfined => Wire::Responses,
        }
    }
}

/// A provider on this server, and nothing that goes elsewhere.
fn codex_settings(url: &str) -> String {
    format!(
        r#"model = "m"
model_provider = "fake"
model_context_window = 1000000000
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "BENCH_KEY"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[otel]
exporter = "none"
"#
    )
}

impl Sample {
    /// Milliseconds from the start of the program to the first byte of its first request.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
    pub(super) fn first_request_ms(&self) -> Option<f64> {
        let first = self.served.first()?.first_byte_ns;
        Some(first.saturating_sub(self.cost.started_ns) as f64 / 1e6)
    }

    /// Milliseconds between each answer and the first byte of the request after it.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
    pub(super) fn gaps_ms(&self) -> Vec<f64> {
        let ended = |one: &ServedRequest| one.replied_ns.load(std::sync::atomic::Ordering::Relaxed);
        let gap = |pair: &[ServedRequest]| pair[1].first_byte_ns.saturating_sub(ended(&pair[0])) as f64 / 1e6;
        self.served.windows(2).map(gap).collect()
    }
}
