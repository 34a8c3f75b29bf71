//! The tools of all servers of a session, as a source.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::{BoxFuture, join_all};
use quipu::{SourceContext, SourceError, SourceVersion, ToolSource};
use quipu_protocol::Json;
use quipu_tools::Tool;
use quipu_transcript::estimate_text;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::call::ServerTool;
use crate::deciders::Deciders;
use crate::definition::{Definition, tool_names};
use crate::limits::{
    DEFINITION_COUNT, DEFINITION_TOKENS, DEFINITIONS_BYTES, FIRST_WAIT, LOADED_TOOLS, SERVER_TOOLS, STARTUP,
};
use crate::search::{OfferedTool, SearchTool, ToolIndex};
use crate::server::{Listing, Server, ServerStatus};
use crate::store::{Acceptance, DefinitionStore, DefinitionStoreError};
use crate::visible::one_line;

/// A server, and what is known of its tools as far as this session goes.
#[derive(Debug)]
struct SessionServer {
    server: Arc<Server>,
    /// Its name in the store of definitions.
    key: String,
    /// What it declares as far as is known; `None` while nothing is.
    known: Mutex<Option<Vec<Definition>>>,
}

/// What a source, its policy and its search share.
pub struct McpTools {
    servers: Vec<SessionServer>,
    store: Arc<dyn DefinitionStore>,
    version: SourceVersion,
    /// Names of tools that a search made callable, the oldest first.
    loaded: Mutex<Vec<String>>,
    /// Tools as they were made last, by name: the same definition is the same tool.
    made: Mutex<HashMap<String, Arc<ServerTool>>>,
    /// Who answers questions during a call.
    deciders: Arc<Deciders>,
    /// Tells people.
    notice: Arc<dyn Fn(String) + Send + Sync>,
    /// Counts listings, and servers that cannot give one.
    listings: watch::Sender<u64>,
    this: Weak<McpTools>,
}

impl std::fmt::Debug for McpTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpTools").field("servers", &self.servers).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a session the tools of servers.
pub struct McpSource {
    tools: Arc<McpTools>,
    /// End with it.
    _watchers: JoinSet<()>,
}

impl std::fmt::Debug for McpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpSource").field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl McpSource {
    /// The name of the source in records and notices.
    pub const NAME: &'static str = "mcp";

    /// For servers that are started, each with its name in the store. `loaded` are tools that a search made callable before, in
    /// the same session.
    pub fn new(
        mut servers: Vec<(Arc<Server>, String)>,
        store: Arc<dyn DefinitionStore>,
        loaded: Vec<String>,
        notice: Arc<dyn Fn(String) + Send + Sync>,
    ) -> Self {
        servers.sort_by(|(one, _), (other, _)| one.name().cmp(other.name()));
        let servers: Vec<SessionServer> = servers
            .into_iter()
            .map(|(server, key)| {
                let known = store.known(&key).map(|raw| {
                    let read =
                        raw.iter().enumerate().filter_map(|(at, raw)| Definition::read(raw.get(), at).ok());
                    read.filter(|one| server.config().uses(&one.name)).collect()
                });
                SessionServer { server, key, known: Mutex::new(known) }
            })
            .collect();
        let tools = Arc::new_cyclic(|this| McpTools {
            servers,
            store,
            version: SourceVersion::new(),
            loaded: Mutex::new(loaded),
            made: Mutex::default(),
            deciders: Arc::default(),
            notice,
            listings: watch::channel(0).0,
            this: this.clone(),
        });
        let mut watchers = JoinSet::new();
        for place in 0..tools.servers.len() {
            watchers.spawn(watch(Arc::downgrade(&tools), place));
        }
        Self { tools, _watchers: watchers }
    }

    /// Its tools as they are known now; nothing is waited for.
    pub fn known_tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.current()
    }

    /// Waits, for a time, until each server of which nothing was known has declared its tools, or cannot.
    pub async fn settled(&self) {
        self.tools.wait_for_unknown().await;
    }

    /// What its servers are now, for as long as the source is there.
    pub fn servers(&self) -> Weak<McpTools> {
        Arc::downgrade(&self.tools)
    }

    pub(crate) fn shared(&self) -> Arc<McpTools> {
        self.tools.clone()
    }
}

/// Follows what a server declares.
async fn watch(tools: Weak<McpTools>, place: usize) {
    let Some(mut states) = tools.upgrade().map(|tools| tools.servers[place].server.states()) else { return };
    let mut said = None::<String>;
    let mut listed = None::<Arc<Listing>>;
    loop {
        let state = states.borrow_and_update().clone();
        let Some(tools) = tools.upgrade() else { return };
        if let ServerStatus::Waiting(why) | ServerStatus::Failed(why) = &state.status
            && said.as_ref() != Some(why)
        {
            let name = tools.servers[place].server.name();
            (tools.notice)(format!("The MCP server {name} is not running: {why}"));
            said = Some(why.clone());
            tools.listings.send_modify(|count| *count += 1);
        }
        if let Some(listing) = state.listing
            && !listed.as_ref().is_some_and(|before| Arc::ptr_eq(before, &listing))
        {
            tools.took(place, &listing);
            listed = Some(listing);
            tools.listings.send_modify(|count| *count += 1);
        }
        drop(tools);
        if states.changed().await.is_err() {
            return;
        }
    }
}

/// A server of a session as it is now.
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// The server.
    pub server: Arc<Server>,
    /// Its tools: the name that the model calls, the definition, and whether it was accepted.
    pub tools: Vec<(String, Definition, Acceptance)>,
}

impl McpTools {
    /// The servers of the session as they are now.
    pub fn reports(&self) -> Vec<ServerReport> {
        self.take_listings();
        let mut offered = self.offered();
        let report = |one: &SessionServer| {
            let (own, others): (Vec<_>, Vec<_>) =
                offered.drain(..).partition(|tool| Arc::ptr_eq(&tool.server, &one.server));
            offered = others;
            let tools = own.into_iter().map(|tool| {
                let acceptance = self.acceptance(&tool);
                (tool.name, tool.definition, acceptance)
            });
            ServerReport { server: one.server.clone(), tools: tools.collect() }
        };
        self.servers.iter().map(report).collect()
    }

    /// The servers of the session.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        self.servers.iter().map(|one| one.server.clone()).collect()
    }

    /// Accepts the definitions of a server as they are known now. How many there are; `None` where there is none of the name.
    ///
    /// # Errors
    /// Where that cannot be kept.
    pub fn accept(&self, server: &str) -> Result<Option<usize>, DefinitionStoreError> {
        if self.servers.iter().all(|one| one.server.name() != server) {
            return Ok(None);
        }
        let own: Vec<_> = self.offered().into_iter().filter(|tool| tool.server.name() == server).collect();
        for tool in &own {
            self.store.accept(&tool.key, &tool.definition.name, &tool.definition.hash)?;
        }
        Ok(Some(own.len()))
    }

    /// Another number whenever a server listed what it has, or could not be started.
    pub fn listings(&self) -> watch::Receiver<u64> {
        self.listings.subscribe()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.number()
    }

    /// A server declared something.
    fn took(&self, place: usize, listing: &Listing) {
        let SessionServer { server, key, known } = &self.servers[place];
        let name = server.name();
        let changed = {
            let mut known = lock(known);
            let changed = known.as_ref() != Some(&listing.definitions);
            if changed {
                *known = Some(listing.definitions.clone());
            }
            changed
        };
        if !changed {
            return;
        }
        let raw: Vec<Json> = listing.definitions.iter().map(|one| one.raw.clone()).collect();
        if let Err(error) = self.store.remember(key, &raw) {
            (self.notice)(format!("The tools of the MCP server {name} could not be saved: {error}"));
        }
        for issue in listing.issues.iter().take(3) {
            (self.notice)(format!("The MCP server {name}: {} is left out: {}", issue.tool, issue.why));
        }
        if listing.issues.len() > 3 {
            let more = listing.issues.len() - 3;
            (self.notice)(format!("The MCP server {name}: {more} more tools are left out"));
        }
        if listing.is_cut {
            let count = listing.definitions.len();
            (self.notice)(format!(
                "The MCP server {name} declares too many tools (more than {SERVER_TOOLS}, or {} MiB, or too many pages); what comes after that is left out, and {count} are used",
                DEFINITIONS_BYTES >> 20
            ));
        }
        let hidden: Vec<String> = listing
            .definitions
            .iter()
            .filter(|one| one.is_suspicious)
            .take(5)
            .map(|one| one_line(&one.name, 80))
            .collect();
        if !hidden.is_empty() {
            (self.notice)(format!(
                "The MCP server {name} has invisible characters in the definition of {}. They are not sent to the model.",
                hidden.join(", ")
            ));
        }
        self.version.change();
    }

    pub(crate) fn offered_as(&self, name: &str) -> Option<OfferedTool> {
        self.offered().into_iter().find(|one| one.name == name)
    }

    /// Whether the definition of a tool was accepted.
    pub(crate) fn acceptance(&self, tool: &OfferedTool) -> Acceptance {
        self.store.acceptance(&tool.key, &tool.definition.name, &tool.definition.hash)
    }

    pub(crate) fn deciders(&self) -> &Deciders {
        &self.deciders
    }

    /// The tools of the session as they are known now.
    fn current(&self) -> Vec<Arc<dyn Tool>> {
        let offered = self.offered();
        let tokens = offered.iter().fold(0_u64, |sum, one| {
            let spec = one.definition.spec(&one.name);
            let of = |text: &str| estimate_text(text);
            sum.saturating_add(of(&spec.name) + of(&spec.description) + of(spec.parameters.get()))
        });
        if tokens <= DEFINITION_TOKENS && offered.len() <= DEFINITION_COUNT {
            return offered.into_iter().map(|one| self.tool(one)).collect();
        }
        let counts: Vec<(String, usize)> = self
            .servers
            .iter()
            .map(|one| (one.server.name().to_owned(), lock(&one.known).as_ref().map_or(0, Vec::len)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let mut tools: Vec<Arc<dyn Tool>> =
            vec![Arc::new(SearchTool::new(&counts, self.this.clone() as Weak<dyn ToolIndex>))];
        for name in lock(&self.loaded).clone() {
            let found = offered.iter().find(|one| one.name == name);
            tools.extend(found.map(|one| self.tool(one.clone())));
        }
        tools
    }

    fn tool(&self, OfferedTool { name, definition, server, key }: OfferedTool) -> Arc<dyn Tool> {
        let mut made = lock(&self.made);
        if let Some(tool) = made.get(&name)
            && tool.definition == definition
        {
            return tool.clone();
        }
        let (spec, store, deciders) = (definition.spec(&name), self.store.clone(), self.deciders.clone());
        let tool = Arc::new(ServerTool { spec, definition, server, key, store, deciders });
        made.insert(name, tool.clone());
        tool
    }

    /// Waits for servers of which nothing is known yet.
    async fn wait_for_unknown(&self) {
        let unknown = self.servers.iter().filter(|one| lock(&one.known).is_none());
        join_all(unknown.map(|one| one.server.settled(FIRST_WAIT))).await;
        self.take_listings();
    }

    /// What was listed meanwhile may not have been taken yet.
    fn take_listings(&self) {
        for (place, one) in self.servers.iter().enumerate() {
            if let Some(listing) = one.server.listing() {
                self.took(place, &listing);
            }
        }
    }
}

impl ToolIndex for McpTools {
    fn offered(&self) -> Vec<OfferedTool> {
        let mut all = Vec::new();
        for SessionServer { server, key, known } in &self.servers {
            let mut known = lock(known).clone().unwrap_or_default();
            known.sort_by(|one, other| one.name.cmp(&other.name));
            all.extend(known.into_iter().map(|definition| (server.clone(), key.clone(), definition)));
        }
        let names = tool_names(all.iter().map(|(server, _, one)| (server.name(), one.name.as_str())));
        let offered = names.into_iter().zip(all);
        offered
            .map(|(name, (server, key, definition))| OfferedTool { name, definition, server, key })
            .collect()
    }

    fn load(&self, names: &[String]) {
        let mut loaded = lock(&self.loaded);
        let before = loaded.clone();
        for name in names {
            if !loaded.contains(name) {
                loaded.push(name.clone());
            }
        }
        if loaded.len() > LOADED_TOOLS {
            let cut = loaded.len() - LOADED_TOOLS;
            loaded.drain(..cut);
        }
        let changed = *loaded != before;
        drop(loaded);
        if changed {
            self.version.change();
        }
    }
}

impl ToolSource for McpSource {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn version(&self) -> SourceVersion {
        self.tools.version.clone()
    }

    fn deadline(&self) -> std::time::Duration {
        FIRST_WAIT + STARTUP
    }

    fn tools<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Vec<Arc<dyn Tool>>, SourceError>> {
        Box::pin(async move {
            let is_unknown = self.tools.servers.iter().any(|one| lock(&one.known).is_none());
            if cx.session.is_some() {
                self.tools.wait_for_unknown().await;
            } else if is_unknown {
                // The session opens without them, and asks again before its first call of the model.
                self.tools.version.change();
            }
            Ok(self.tools.current())
        })
    }
}
