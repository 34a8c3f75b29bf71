//! `quipu mcp serve`: the history for other agents, over pipes or on this machine's own network.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use nix::sys::stat::{SFlag, fstat};
use quipu_host::past::project_past;
use quipu_host::settings::SharedHistory;
use quipu_host::{
    Home, LookupMisses, PastTools, RANGE_TOOL, is_memory_on, memory_search, seal_credentials, watch_memory,
};
use quipu_mcp_server::{
    Access, GraphServer, MemoryAnswer, MemoryCall, MemoryDesk, MemoryToolList, MemoryToolSpec, ScopeSetting,
    ServeError, ServerOptions, StdioEnd, StoreOpenError, serve_http, serve_stdio,
};
use quipu_memory::search::{MemoryNotes, NOTE_TOOL, unavailable};
use quipu_seal::Sealer;
use quipu_store::Graph;
use tokio_util::sync::CancellationToken;

use crate::args::StoreArg;
use crate::bearer_token::bearer_token;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{note, printable};
use crate::signals::Signals;

/// The file of the token, in the directory of the user's files.
const TOKEN: &str = "mcp-server.token";

#[derive(Debug, Args, Default)]
pub(crate) struct McpServeArgs {
    /// Serve over HTTP at this address of this machine, such as 127.0.0.1:7600, in place of the pipes.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    store: StoreArg,
}

/// Whether another program is at the other end of the standard input.
pub(crate) fn is_client_there() -> bool {
    let found = fstat(std::io::stdin().as_fd());
    found.is_ok_and(|found| {
        let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
        kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
    })
}

pub(crate) async fn run(args: &McpServeArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let server = GraphServer::new(options(&home)?);
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let serve = async {
        match args.listen {
            None => stdio(server, stop.clone()).await,
            Some(address) => http(&home, server, address, stop.clone()).await,
        }
    };
    let serve = quipu_host::jobs::watch_alongside(&home, serve);
    tokio::pin!(serve);
    tokio::select! {
        served = &mut serve => return served,
        _ = signals.next() => stop.cancel(),
    }
    serve.await?;
    Err(Failure::silent(signals.exit()))
}

fn options(home: &Home) -> Result<ServerOptions, Failure> {
    let sealer = Arc::new(Sealer::new(home.seal_key()?));
    seal_credentials(&sealer, &home.settings());
    let scope = match home.config().shared_history {
        SharedHistory::Directory => ScopeSetting::Directory,
        SharedHistory::All => ScopeSetting::All,
    };
    let stores = home.clone();
    Ok(ServerOptions {
        opener: Arc::new(move || match stores.store_to_serve() {
            Ok(found) => Ok(found.map(|store| -> Arc<dyn Graph> { store })),
            Err(failure) => Err(StoreOpenError(failure.message)),
        }),
        sealer: sealer.clone(),
        directory: current_dir()?,
        scope,
        memory: Some(Arc::new(Memories {
            home: home.clone(),
            sealer: sealer.clone(),
            misses: LookupMisses::default(),
        })),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        notify: Arc::new(|line| note(format!("warning: {}", printable(line)))),
    })
}

/// The tools of memory, for the directories of clients.
struct Memories {
    home: Home,
    sealer: Arc<Sealer>,
    /// Of all clients together: none of them has a session of ours.
    misses: LookupMisses,
}

/// Whether a client that may see these directories sees all of the project of a directory.
fn sees_project(seen: Option<&[String]>, directory: &Path) -> bool {
    let root = quipu_memory::project_root(directory);
    seen.is_none_or(|seen| seen.iter().any(|seen| root.starts_with(seen)))
}

impl Memories {
    fn past(&self, store: Arc<dyn Graph>, directory: &Path) -> PastTools {
        PastTools::new(&self.home, store, self.sealer.clone(), project_past(directory), self.misses.clone())
    }
}

impl MemoryDesk for Memories {
    fn tools<'a>(
        &'a self,
        store: Option<Arc<dyn Graph>>,
        directory: &'a Path,
        projects: Option<Vec<String>>,
    ) -> MemoryToolList<'a> {
        Box::pin(async move {
            if !is_memory_on(&self.home, directory) {
                return Vec::new();
            }
            let past = match store.filter(|_| sees_project(projects.as_deref(), directory)) {
                Some(store) => self.past(store, directory).declarations().await.unwrap_or_default(),
                None => Vec::new(),
            };
            // What another agent thinks of the past is none of ours.
            let past = past.into_iter().filter(|(name, _, _)| *name == RANGE_TOOL);
            let spec = |(name, description, schema): (&'static str, &str, _)| {
                let read_only = name != NOTE_TOOL;
                // What our own sessions read a node with is called otherwise here.
                let description = description.replace("a node with recall", "a node with read");
                MemoryToolSpec { name, description, schema, read_only }
            };
            MemoryNotes::declarations().into_iter().chain(past).map(spec).collect()
        })
    }

    fn call<'a>(&'a self, call: MemoryCall<'a>) -> MemoryAnswer<'a> {
        Box::pin(async move {
            if call.name == RANGE_TOOL {
                // A client that sees a part of the project has no summaries of all of it.
                if !sees_project(call.projects.as_deref(), call.directory) {
                    let why = "the client sees a part of the project, and the summaries are of all of it";
                    return Some(unavailable(why, "Use memory_search."));
                }
                return self.past(call.store, call.directory).call(call.name, call.args, None).await;
            }
            match memory_search(&self.home, &call.store, &self.sealer, call.directory) {
                // What another agent notes is untrusted: it names no session of ours.
                Ok(search) => {
                    watch_memory(&self.home, call.directory, &call.store, &self.sealer, &search);
                    MemoryNotes::new(search, call.store.clone(), call.projects)
                        .call(call.name, call.args, None)
                        .await
                }
                Err(failure) => Some(unavailable(&failure.message, "Go on without memory.")),
            }
        })
    }
}

async fn stdio(server: GraphServer, stop: CancellationToken) -> Result<(), Failure> {
    match serve_stdio(server, tokio::io::stdin(), tokio::io::stdout(), stop).await {
        Ok(StdioEnd::Closed) => Ok(()),
        Ok(StdioEnd::Stalled) => Err(Failure::failed("the client stopped reading")),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

async fn http(
    home: &Home,
    server: GraphServer,
    address: SocketAddr,
    stop: CancellationToken,
) -> Result<(), Failure> {
    if !address.ip().is_loopback() {
        return Err(Failure::usage(ServeError::NotLoopback(address).to_string()));
    }
    let (path, token) = bearer_token(home, TOKEN)?;
    let access = Access::Token(token);
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!("{address} cannot be listened at: {error}; choose another port"))
    })?;
    let address = listener.local_addr()?;
    note(format!(
        "Serving http://{address}/mcp; clients send the header `Authorization: Bearer …` with the content of {}.",
        path.display()
    ));
    serve_http(server, listener, access, stop).await.map_err(|error| Failure::failed(error.to_string()))
}
