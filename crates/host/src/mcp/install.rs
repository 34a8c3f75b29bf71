//! Servers for a session: started behind its prompt.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use quipu::{PermissionMode, Sealer, SessionOptions};
use quipu_mcp::{
    Acceptance, ClientInfo, Definition, DefinitionStore as _, Listing, McpPolicy, McpSource, OauthLogin,
    OauthTokens, Server, ServerConfig, ServerEnvironment, TokenStore as _, TransportConfig,
};
use quipu_protocol::Epoch;
use sha2::{Digest as _, Sha256};
use tokio::sync::SetOnce;

use super::files::{McpFileUse, McpServer, mcp_files};
use super::store::FileStore;
use super::tokens::FileTokens;
use crate::packages::ROOT_VARIABLE;
use crate::saved::SavedPermissions;
use crate::{Advice, Failure, Home, env};

/// What an installation is made of.
pub(crate) struct InstallOptions<'a> {
    pub(crate) home: &'a Home,
    pub(crate) cwd: &'a Path,
    pub(crate) sealer: &'a Sealer,
    /// How the session stood when it was written last.
    pub(crate) last: Option<&'a Epoch>,
    pub(crate) permissions: Arc<SavedPermissions>,
    /// Variables that programs do not inherit.
    pub(crate) hidden: Vec<String>,
    /// Whether anything is written to the home.
    pub(crate) keeps: bool,
    /// Set once the session is open: servers that begin before would delay it.
    pub(crate) begin: Arc<SetOnce<()>>,
    /// Servers that the front brings along, by name.
    pub(crate) servers: &'a [(String, ServerConfig)],
}

/// Gives a session the tools of the servers that files configure. Nothing is waited for.
pub(crate) fn install(options: &mut SessionOptions, wanted: InstallOptions<'_>) {
    let InstallOptions { home, cwd, sealer, last, permissions, hidden, keeps, begin, servers: brought } =
        wanted;
    let files = mcp_files(home, cwd);
    for file in &files.files {
        if file.counts == McpFileUse::Untrusted && file.problems.is_empty() {
            let text =
                format!("{} is ignored: nobody has accepted it in its current form", file.path.display());
            home.warn_with(text, Advice::TrustProject);
        }
        for problem in &file.problems {
            home.warn(problem.clone());
        }
    }
    let mut servers = Vec::new();
    for server in files.servers().into_iter().filter(|server| server.config.enabled) {
        match expanded(&server) {
            Ok(config) => {
                know_secrets(&home.dir, sealer, &config);
                let key = server.key();
                let environment =
                    ServerEnvironment { begin: Some(begin.clone()), ..environment(home, cwd, &hidden) };
                servers.push((Arc::new(Server::start(&server.name, config, environment)), key));
            }
            Err(failure) => home.warn(failure.message),
        }
    }
    for (name, config) in brought {
        if servers.iter().any(|(server, _): &(Arc<Server>, String)| server.name() == name) {
            home.warn(format!(
                "the MCP server {name} is configured here already; the one of the client is not used"
            ));
            continue;
        }
        know_secrets(&home.dir, sealer, config);
        let environment = ServerEnvironment { begin: Some(begin.clone()), ..environment(home, cwd, &hidden) };
        servers.push((Arc::new(Server::start(name, config.clone(), environment)), client_key(name, config)));
    }
    if servers.is_empty() {
        super::commands::offer(home, cwd, None);
        return;
    }
    let store = if keeps { FileStore::keeping(&home.dir) } else { FileStore::unkept(&home.dir) };
    let loaded = last.and_then(|epoch| epoch.tool_sources.get(McpSource::NAME)).cloned().unwrap_or_default();
    let observer = home.clone();
    let notice = Arc::new(move |text: String| observer.warn(text));
    let source = McpSource::new(servers, Arc::new(store), loaded, notice);
    let asks_new = Arc::new(move || permissions.mode() != PermissionMode::Full);
    options.policies.push(Arc::new(McpPolicy::new(&source, asks_new)));
    super::commands::offer(home, cwd, Some(&source));
    options.tool_sources.push(Arc::new(source));
}

/// The name of a client's server where definitions are kept: another program of this name is another server.
fn client_key(name: &str, config: &ServerConfig) -> String {
    let reached = match &config.transport {
        TransportConfig::Stdio { command, args, .. } => format!("{command}\0{}", args.join("\0")),
        TransportConfig::Http { url, .. } => url.clone(),
    };
    let hash = Sha256::digest(reached.as_bytes());
    format!("client#{name}#{}", quipu_protocol::hex(&hash[..8]))
}

fn expanded(server: &McpServer) -> Result<ServerConfig, Failure> {
    let variable = |name: &str| match &server.package {
        Some(package) if name == ROOT_VARIABLE => package.to_str().map(str::to_owned),
        _ => env(name),
    };
    server.config.expanded(&variable).map_err(|error| {
        Failure::request(format!(
            "{}: the server {} is not used: {error}",
            server.path.display(),
            server.name
        ))
    })
}

fn environment(home: &Home, cwd: &Path, hidden: &[String]) -> ServerEnvironment {
    let changes: Vec<(OsString, Option<OsString>)> =
        hidden.iter().map(|name| (OsString::from(name), None)).collect();
    ServerEnvironment {
        cwd: cwd.to_owned(),
        registry: home.processes(),
        changes,
        client: ClientInfo { name: quipu::AGENT.into(), version: env!("CARGO_PKG_VERSION").into() },
        tokens: Some(Arc::new(FileTokens::of(&home.dir))),
        begin: None,
    }
}

/// Whether a variable or header is named like a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    const WORDS: &[&str] = &["key", "token", "secret", "password", "authorization", "cookie", "credential"];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// Values that a server gets and nobody else should: they are replaced where it repeats them.
fn know_secrets(home: &Path, sealer: &Sealer, config: &ServerConfig) {
    let values = match &config.transport {
        TransportConfig::Stdio { env, .. } => env,
        TransportConfig::Http { url, headers, .. } => {
            if let Some(tokens) = FileTokens::of(home).tokens(url) {
                sealer.know("mcp", &tokens.access);
                tokens.refresh.iter().for_each(|refresh| sealer.know("mcp", refresh));
            }
            headers
        }
    };
    for (name, value) in values {
        if is_secret_name(name) {
            let value = value.strip_prefix("Bearer ").unwrap_or(value);
            sealer.know("mcp", value);
        }
    }
}

/// Begins a login to a server on the network.
///
/// # Errors
/// Where the server is none of the network, or gives no login.
pub async fn begin_server_login(server: &McpServer) -> Result<OauthLogin, Failure> {
    let TransportConfig::Http { url, client, .. } = expanded(server)?.transport else {
        return Err(Failure::request(format!(
            "the server {} is a program, which needs no login",
            server.name
        )));
    };
    OauthLogin::begin(&url, &client, None).await.map_err(|error| Failure::failed(error.to_string()))
}

/// Keeps the login of a server; `None` forgets it. Whether there was one.
///
/// # Errors
/// Where the file cannot be written.
pub fn keep_server_login(
    home: &Home,
    server: &McpServer,
    tokens: Option<&OauthTokens>,
) -> Result<bool, Failure> {
    let TransportConfig::Http { url, .. } = expanded(server)?.transport else { return Ok(false) };
    let store = FileTokens::of(&home.dir);
    let had = store.tokens(&url).is_some();
    store.keep(&url, tokens).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(had)
}

/// Starts a server by itself, to be looked at.
///
/// # Errors
/// Where its configuration cannot be used.
pub fn start_server(home: &Home, cwd: &Path, server: &McpServer) -> Result<Server, Failure> {
    let hidden = home.settings().env_keys();
    Ok(Server::start(&server.name, expanded(server)?, environment(home, cwd, &hidden)))
}

/// What is known of a definition.
pub fn acceptance_of(home: &Home, server: &McpServer, definition: &Definition) -> Acceptance {
    FileStore::keeping(&home.dir).acceptance(&server.key(), &definition.name, &definition.hash)
}

/// Accepts the definitions of a server as they were listed.
///
/// # Errors
/// Where that cannot be kept.
pub fn accept_definitions(home: &Home, server: &McpServer, listing: &Listing) -> Result<(), Failure> {
    let store = FileStore::keeping(&home.dir);
    for one in &listing.definitions {
        store
            .accept(&server.key(), &one.name, &one.hash)
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(())
}
