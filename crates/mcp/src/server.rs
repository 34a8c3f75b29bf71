//! One server for as long as a session wants it: started, listed, started again when it dies.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::Json;
use quipu_tools::ToolOutput;
use quipu_workspace::ProcessRegistry;
use serde_json::json;
use tokio::sync::{Notify, SetOnce, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::{Client, ClientInfo, RequestOptions, ServerInfo};
use crate::config::{ServerConfig, TransportConfig};
use crate::definition::{Definition, DefinitionIssue, definitions};
use crate::elicit::Elicitor;
use crate::error::{ConnectError, RequestError};
use crate::limits::{
    BACKOFF, DEFINITIONS_BYTES, FIRST_WAIT, LONGEST_BACKOFF, RESOURCE_READ, SERVER_TOOLS, STABLE, STARTS,
};
use crate::oauth::TokenStore;
use crate::prompts::{ServerPrompt, prompt_text};
use crate::resources::{ResourceContent, ServerResource, resource_content};
use crate::result::output;
use crate::stdio::{Complaints, Program};
use crate::visible::visible;

/// The shortest time between two readings of a list that keeps changing.
const RELIST: Duration = Duration::from_millis(250);

/// What servers are started with.
#[derive(Clone)]
pub struct ServerEnvironment {
    /// The directory of the session.
    pub cwd: PathBuf,
    /// Owns the programs.
    pub registry: Arc<ProcessRegistry>,
    /// What is changed in the environment that programs inherit; `None` removes.
    pub changes: Vec<(OsString, Option<OsString>)>,
    /// How the client presents itself.
    pub client: ClientInfo,
    /// Where logins to servers on the network are kept.
    pub tokens: Option<Arc<dyn TokenStore>>,
    /// Set once servers may begin; `None`: at once.
    pub begin: Option<Arc<SetOnce<()>>>,
}

impl std::fmt::Debug for ServerEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerEnvironment").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// How a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerStatus {
    /// It is being started.
    Starting,
    /// It answers.
    Ready(ServerInfo),
    /// It will be started again; why it ended.
    Waiting(String),
    /// It is left alone until it is needed; why it ended.
    Failed(String),
}

/// What a server declared last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Its tools that are used.
    pub definitions: Vec<Definition>,
    /// Why others are not.
    pub issues: Vec<DefinitionIssue>,
    /// Whether it has more than are read.
    pub is_cut: bool,
    /// Its prompts.
    pub prompts: Vec<ServerPrompt>,
}

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) status: ServerStatus,
    pub(crate) client: Option<Arc<Client>>,
    /// `None` before it was read for the first time.
    pub(crate) listing: Option<Arc<Listing>>,
}

/// A server that is started, and started again, until this is dropped.
pub struct Server {
    name: String,
    config: ServerConfig,
    state: watch::Receiver<State>,
    wake: Arc<Notify>,
    restart: Arc<Notify>,
    complaints: Complaints,
    _stop: DropGuard,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts it in the background; its configuration has variables of the environment in their places.
    pub fn start(name: &str, config: ServerConfig, environment: ServerEnvironment) -> Self {
        let state = State { status: ServerStatus::Starting, client: None, listing: None };
        let (sender, receiver) = watch::channel(state);
        let (stop, wake, complaints) =
            (CancellationToken::new(), Arc::new(Notify::new()), Complaints::default());
        let restart = Arc::new(Notify::new());
        let supervisor = Supervisor {
            name: name.to_owned(),
            config: config.clone(),
            environment,
            state: sender,
            wake: wake.clone(),
            restart: restart.clone(),
            stop: stop.clone(),
            complaints: complaints.clone(),
        };
        tokio::spawn(supervisor.run());
        Self {
            name: name.to_owned(),
            config,
            state: receiver,
            wake,
            restart,
            complaints,
            _stop: stop.drop_guard(),
        }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its configuration.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// How it stands.
    pub fn status(&self) -> ServerStatus {
        self.state.borrow().status.clone()
    }

    /// What it declared last; `None` before it did.
    pub fn listing(&self) -> Option<Arc<Listing>> {
        self.state.borrow().listing.clone()
    }

    /// The end of what it wrote to stderr, made visible.
    pub fn complaints(&self) -> String {
        visible(&self.complaints.text())
    }

    /// Calls a tool once the server is there. Nobody is asked whether that may be.
    ///
    /// # Errors
    /// Why there is no result.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Json,
        elicitor: Option<Arc<dyn Elicitor>>,
    ) -> Result<ToolOutput, RequestError> {
        let client = self.client(self.config.startup).await.map_err(RequestError::Closed)?;
        let options = RequestOptions { elicitor, ..RequestOptions::within(self.config.call) };
        let params = json!({ "name": tool, "arguments": arguments.value() });
        client.request("tools/call", params, options).await.map(|result| output(&result))
    }

    /// The text of a prompt, once the server is there.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, RequestError> {
        let client = self.client(self.config.startup).await.map_err(RequestError::Closed)?;
        let params = json!({ "name": name, "arguments": arguments });
        let result = client.request("prompts/get", params, RequestOptions::within(self.config.call)).await?;
        prompt_text(&result)
    }

    /// Whether it runs and has resources.
    pub fn has_resources(&self) -> bool {
        matches!(&self.state.borrow().status, ServerStatus::Ready(info) if info.has_resources)
    }

    /// The resources that it lists, once the server is there; none where it has no resources.
    ///
    /// # Errors
    /// Why they are not known within `limit`.
    pub async fn resources(&self, limit: Duration) -> Result<Vec<ServerResource>, RequestError> {
        let client = self.client(limit).await.map_err(RequestError::Closed)?;
        if !client.info().has_resources {
            return Ok(Vec::new());
        }
        client.list_resources(limit).await
    }

    /// Reads a resource once the server is there. It need not be among those that the server lists.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn resource(&self, uri: &str) -> Result<ResourceContent, RequestError> {
        let client = self.client(FIRST_WAIT).await.map_err(RequestError::Closed)?;
        if !client.info().has_resources {
            return Err(RequestError::Invalid("the server has no resources".into()));
        }
        let params = json!({ "uri": uri });
        let result = client.request("resources/read", params, RequestOptions::within(RESOURCE_READ)).await?;
        let (name, uri) = (self.name.clone(), uri.to_owned());
        // Images are made fit there.
        let read = tokio::task::spawn_blocking(move || resource_content(&name, &uri, &result)).await;
        read.unwrap_or_else(|_| Err(RequestError::Invalid("it could not be read".into())))
    }

    /// Ends the connection and starts the server again, at once and as if it had never failed. One that is being started stays as it is.
    pub fn reconnect(&self) {
        if self.status() != ServerStatus::Starting {
            self.restart.notify_one();
        }
    }

    /// Ends it, with time for the program to end by itself.
    pub async fn stop(self) {
        let client = self.state.borrow().client.clone();
        if let Some(client) = client {
            client.close().await;
        }
    }

    pub(crate) fn states(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Waits until it has declared its tools, or cannot; at most `limit`.
    pub async fn settled(&self, limit: Duration) -> ServerStatus {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| {
            state.listing.is_some()
                || matches!(state.status, ServerStatus::Waiting(_) | ServerStatus::Failed(_))
        });
        drop(tokio::time::timeout(limit, settled).await);
        self.status()
    }

    /// The connection, once there is one; a server that is left alone is started again.
    ///
    /// # Errors
    /// Why there is none within `limit`.
    pub(crate) async fn client(&self, limit: Duration) -> Result<Arc<Client>, String> {
        let mut state = self.state.clone();
        if matches!(state.borrow_and_update().status, ServerStatus::Failed(_)) {
            self.wake.notify_one();
            drop(tokio::time::timeout(limit, state.changed()).await);
        }
        let there = state.wait_for(|state| {
            // One that just ended is not forgotten yet.
            state.client.as_ref().is_some_and(|client| client.is_open())
                || matches!(state.status, ServerStatus::Failed(_))
        });
        let found = match tokio::time::timeout(limit, there).await {
            Ok(Ok(state)) => state.client.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        found.ok_or_else(|| match self.status() {
            ServerStatus::Failed(why) | ServerStatus::Waiting(why) => why,
            ServerStatus::Starting | ServerStatus::Ready(_) => {
                format!("it did not start within {} s", limit.as_secs_f64())
            }
        })
    }
}

/// How serving ended.
enum ServingEnd {
    /// By itself; why.
    Ended(String),
    /// Somebody wants another connection.
    Restart,
    /// It is not wanted any more.
    Stopped,
}

struct Supervisor {
    name: String,
    config: ServerConfig,
    environment: ServerEnvironment,
    state: watch::Sender<State>,
    wake: Arc<Notify>,
    restart: Arc<Notify>,
    stop: CancellationToken,
    complaints: Complaints,
}

impl Supervisor {
    async fn run(self) {
        let mut failures = 0_u32;
        if let Some(begin) = &self.environment.begin {
            tokio::select! {
                _ = begin.wait() => {}
                () = self.stop.cancelled() => return,
            }
        }
        loop {
            self.put(ServerStatus::Starting, None);
            let begun = Instant::now();
            let attempt = tokio::select! {
                attempt = tokio::time::timeout(self.config.startup, self.attempt()) => attempt,
                () = self.stop.cancelled() => return,
            };
            let why = match attempt {
                Ok(Ok((client, listing))) => {
                    let client = Arc::new(client);
                    let info = client.info();
                    self.state.send_modify(|state| {
                        state.listing = Some(Arc::new(listing));
                        state.client = Some(client.clone());
                        state.status = ServerStatus::Ready(info);
                    });
                    match self.serve(&client).await {
                        ServingEnd::Ended(why) => why,
                        ServingEnd::Restart => {
                            failures = 0;
                            continue;
                        }
                        ServingEnd::Stopped => return,
                    }
                }
                Ok(Err(error)) => self.with_complaint(error.to_string()),
                Err(_) => {
                    let limit = self.config.startup.as_secs_f64();
                    self.with_complaint(format!("it did not start within {limit} s"))
                }
            };
            failures = if begun.elapsed() > STABLE { 1 } else { failures + 1 };
            if failures < STARTS {
                self.put(ServerStatus::Waiting(why), None);
                let wait = BACKOFF.saturating_mul(2_u32.saturating_pow(failures - 1)).min(LONGEST_BACKOFF);
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.restart.notified() => failures = 0,
                    () = self.stop.cancelled() => return,
                }
            } else {
                self.put(ServerStatus::Failed(why), None);
                tokio::select! {
                    () = self.wake.notified() => {}
                    () = self.restart.notified() => failures = 0,
                    () = self.stop.cancelled() => return,
                }
            }
        }
    }

    fn put(&self, status: ServerStatus, client: Option<Arc<Client>>) {
        self.state.send_modify(|state| (state.status, state.client) = (status, client));
    }

    fn with_complaint(&self, why: String) -> String {
        let text = visible(&self.complaints.text());
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        match last {
            Some(last) if !why.contains(last) => {
                let last: String = last.chars().take(300).collect();
                format!("{why}; it last wrote: {last}")
            }
            _ => why,
        }
    }

    async fn attempt(&self) -> Result<(Client, Listing), ConnectError> {
        let ServerEnvironment { cwd, registry, changes, client, tokens, begin: _ } = &self.environment;
        let roots = vec![file_address(cwd)];
        let connection = match &self.config.transport {
            TransportConfig::Stdio { command, args, env, cwd: own } => {
                let mut environment = changes.clone();
                environment.extend(env.iter().map(|(name, value)| (name.into(), Some(value.into()))));
                let cwd = own.as_ref().map_or_else(|| cwd.clone(), |own| cwd.join(own));
                let (command, args, owner) = (command.clone(), args.clone(), self.name.clone());
                let program = Program { command, args, environment, cwd, owner };
                crate::stdio::connect(program, registry.clone(), &self.complaints, roots).await?
            }
            TransportConfig::Http { url, headers, .. } => {
                crate::http::connect(url, headers, tokens.clone(), roots)?
            }
        };
        connection.initialize(client, self.config.startup).await?;
        let listing = self.list(&connection).await?;
        Ok((connection, listing))
    }

    async fn list(&self, client: &Client) -> Result<Listing, ConnectError> {
        let prompts = match client.info().has_prompts {
            // A server that fails to list them still has its tools.
            true => client.list_prompts(self.config.startup).await.unwrap_or_default(),
            false => Vec::new(),
        };
        if !client.info().has_tools {
            return Ok(Listing { prompts, ..Listing::default() });
        }
        let limits = (SERVER_TOOLS, DEFINITIONS_BYTES);
        let listed = client.list_tools(self.config.startup, limits).await;
        let (raw, is_whole) =
            listed.map_err(|error| ConnectError::Request { method: "tools/list", error })?;
        let (mut definitions, issues) = definitions(raw.iter().map(|raw| &**raw));
        definitions.retain(|one| self.config.uses(&one.name));
        Ok(Listing { definitions, issues, is_cut: !is_whole, prompts })
    }

    /// Until it ends, or is not wanted any more.
    async fn serve(&self, client: &Arc<Client>) -> ServingEnd {
        let mut changes = client.changes();
        loop {
            tokio::select! {
                why = client.closed() => return ServingEnd::Ended(why),
                () = self.restart.notified() => {
                    // Calls from now on wait for the next connection.
                    self.put(ServerStatus::Starting, None);
                    client.close().await;
                    return ServingEnd::Restart;
                }
                () = self.stop.cancelled() => {
                    client.close().await;
                    return ServingEnd::Stopped;
                }
                Ok(()) = changes.changed() => {
                    let listed = tokio::select! {
                        listed = self.list(client) => listed,
                        () = self.stop.cancelled() => continue,
                    };
                    match listed {
                        Ok(listing) => {
                            self.state.send_if_modified(|state| {
                                let new = state.listing.as_deref() != Some(&listing);
                                if new {
                                    state.listing = Some(Arc::new(listing));
                                }
                                new
                            });
                        }
                        Err(error) => {
                            client.close().await;
                            return ServingEnd::Ended(error.to_string());
                        }
                    }
                    tokio::select! {
                        () = tokio::time::sleep(RELIST) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
    }
}

/// `file://` and the path, its bytes escaped where an address wants that.
fn file_address(path: &std::path::Path) -> String {
    let mut address = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            address.push(char::from(*byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    address
}
