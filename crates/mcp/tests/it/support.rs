//! Servers of one test, and what is known of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quipu_mcp::{
    Acceptance, ClientInfo, DefinitionStore, DefinitionStoreError, McpSource, Server, ServerEnvironment,
    config,
};
use quipu_protocol::Json;
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_workspace::{Access, OutputPlace, ProcessRegistry};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Long enough for anything that happens at all.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Definitions in memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) known: Mutex<HashMap<String, Vec<Json>>>,
    pub(crate) accepted: Mutex<HashMap<(String, String), Vec<String>>>,
}

impl DefinitionStore for MemoryStore {
    fn known(&self, server: &str) -> Option<Vec<Json>> {
        self.known.lock().unwrap().get(server).cloned()
    }

    fn remember(&self, server: &str, definitions: &[Json]) -> Result<(), DefinitionStoreError> {
        self.known.lock().unwrap().insert(server.to_owned(), definitions.to_vec());
        Ok(())
    }

    fn acceptance(&self, server: &str, tool: &str, hash: &str) -> Acceptance {
        match self.accepted.lock().unwrap().get(&(server.to_owned(), tool.to_owned())) {
            Some(hashes) if hashes.iter().any(|known| known == hash) => Acceptance::Accepted,
            Some(_) => Acceptance::Changed,
            None => Acceptance::New,
        }
    }

    fn accept(&self, server: &str, tool: &str, hash: &str) -> Result<(), DefinitionStoreError> {
        let key = (server.to_owned(), tool.to_owned());
        self.accepted.lock().unwrap().entry(key).or_default().push(hash.to_owned());
        Ok(())
    }
}

/// A directory, a registry, and what was noticed.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) registry: Arc<ProcessRegistry>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let (store, notices) = (Arc::default(), Arc::default());
        Self { dir: tempfile::tempdir().unwrap(), registry: Arc::default(), store, notices }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log of the servers has a text.
    pub(crate) async fn logs(&self, part: &str) {
        let until = std::time::Instant::now() + LIMIT;
        while !self.log().contains(part) {
            assert!(std::time::Instant::now() < until, "the log never has {part:?}: {}", self.log());
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
    }

    /// A server that behaves in this way, with more members in its configuration.
    pub(crate) fn server(&self, mode: &str, more: &Value) -> Arc<Server> {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/server.py");
        let mut members = json!({
            "command": "python3",
            "args": [script, mode],
            "env": { "SERVER_LOG": self.path("log"), "CHANGED": self.path("changed"), "OWN": "own" },
        });
        for (name, value) in more.as_object().unwrap() {
            members[name] = value.clone();
        }
        let config = config::server(members.as_object().unwrap()).unwrap();
        let environment = ServerEnvironment {
            cwd: self.dir.path().canonicalize().unwrap(),
            registry: self.registry.clone(),
            changes: vec![("HIDDEN".into(), None)],
            client: ClientInfo { name: "test".into(), version: "0".into() },
            tokens: None,
            begin: None,
        };
        Arc::new(Server::start("srv", config, environment))
    }

    pub(crate) fn source(&self, server: &Arc<Server>) -> McpSource {
        let notices = self.notices.clone();
        let notice = Arc::new(move |text| notices.lock().unwrap().push(text));
        McpSource::new(vec![(server.clone(), "srv".into())], self.store.clone(), Vec::new(), notice)
    }

    /// A server of a mode, ready, and its tools.
    pub(crate) async fn ready(&self, mode: &str, more: &Value) -> (Arc<Server>, McpSource) {
        let server = self.server(mode, more);
        server.settled(LIMIT).await;
        let source = self.source(&server);
        source.settled().await;
        (server, source)
    }

    pub(crate) async fn call(&self, source: &McpSource, tool: &str, args: Value) -> ToolOutput {
        self.call_until(source, tool, args, CancellationToken::new()).await.0
    }

    /// The result of a call and its reports.
    pub(crate) async fn call_until(
        &self,
        source: &McpSource,
        tool: &str,
        args: Value,
        cancel: CancellationToken,
    ) -> (ToolOutput, Vec<String>) {
        self.run_until(&find(source, tool), args, cancel).await
    }

    pub(crate) async fn run(&self, tool: &Arc<dyn Tool>, args: Value) -> ToolOutput {
        self.run_until(tool, args, CancellationToken::new()).await.0
    }

    async fn run_until(
        &self,
        tool: &Arc<dyn Tool>,
        args: Value,
        cancel: CancellationToken,
    ) -> (ToolOutput, Vec<String>) {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let kept = reports.clone();
        let cx = ToolContext {
            session: None,
            run: "run".into(),
            cwd: self.dir.path().to_owned(),
            env: Arc::new([]),
            outputs: OutputPlace::nowhere("none here"),
            progress: Arc::new(move |text: &str| kept.lock().unwrap().push(text.to_owned())),
            cancel,
            sees_images: true,
            access: Access::default(),
            sandbox: None,
            background: None,
        };
        let output = tool.run(Invocation { id: "c".into(), args: Json::from(args) }, &cx).await;
        let reports = reports.lock().unwrap().clone();
        (output, reports)
    }
}

pub(crate) fn names(source: &McpSource) -> Vec<String> {
    source.known_tools().iter().map(|tool| tool.spec().name.clone()).collect()
}

pub(crate) fn find(source: &McpSource, name: &str) -> Arc<dyn Tool> {
    let tools = source.known_tools();
    tools.iter().find(|tool| tool.spec().name == name).unwrap_or_else(|| panic!("no tool {name}")).clone()
}

pub(crate) fn text(output: &ToolOutput) -> String {
    output.content.iter().filter_map(|one| one.as_text()).collect::<Vec<_>>().join("|")
}
