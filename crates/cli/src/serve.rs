//! `quipu serve`: sessions for programs, over standard input and output or on this machine's own network.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::SocketAddr as SocketPath;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use quipu_host::units::UnitPurpose;
use quipu_host::{Home, OpenRequest};
use quipu_runtime::{Desk, ServeEnd};
use quipu_server::{Access, SERVER_LIMITS, ServerAddress, ServerError, ServerListener, ServerOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::args::{OutArgs, StoreArg};
use crate::bearer_token::bearer_token;
use crate::console::current_dir;
use crate::exit::{Exit, Failure, advised};
use crate::home::home;
use crate::print::note;
use crate::signals::Signals;
use crate::units::{UnitRequest, install, uninstall};

/// The file of the token, in the directory of the user's files.
const TOKEN: &str = "serve.token";
/// Where a service listens that is not told where.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7800);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    action: Option<ServeAction>,
    #[command(flatten)]
    place: ServePlace,
    /// Print where it listens as a JSON object on stdout.
    #[arg(long, requires = "place")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ServeAction {
    /// Write a systemd service of yours, or a launchd agent, that serves all the time. Shows the file and asks first.
    Install(InstallArgs),
    /// Remove what `install` wrote.
    Uninstall(UninstallArgs),
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Where to serve. Default: --listen 127.0.0.1:7800.
    #[command(flatten)]
    place: ServePlace,
    /// Do it without asking.
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct UninstallArgs {
    /// Do it without asking.
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    out: OutArgs,
}

/// Where to serve, and for whom.
#[derive(Debug, Args)]
struct ServePlace {
    /// Serve over HTTP and WebSocket at this address of this machine, such as 127.0.0.1:7800; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS:PORT", group = "place")]
    listen: Option<SocketAddr>,
    /// Serve over HTTP and WebSocket at this Unix socket.
    #[arg(long, value_name = "PATH", group = "place")]
    socket: Option<PathBuf>,
    /// Ask no token of clients: only with --socket.
    #[arg(long, requires = "socket")]
    no_token: bool,
    /// The directory of sessions that /v1/chat/completions begins. Default: this one.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &ServeArgs) -> Result<(), Failure> {
    match &args.action {
        None => {}
        Some(ServeAction::Install(args)) => return args.install(),
        Some(ServeAction::Uninstall(args)) => {
            let home = &home(&args.out.store)?;
            let request =
                UnitRequest { home, purpose: UnitPurpose::Server, yes: args.yes, json: args.out.json };
            return uninstall(&request);
        }
    }
    let home = home(&args.place.store)?;
    match args.place.listen.is_some() || args.place.socket.is_some() {
        true => on_network(&home, args).await,
        false if args.place.cwd.is_some() => Err(Failure::usage("--cwd needs --listen or --socket")),
        false => on_pipes(&home).await,
    }
}

async fn on_pipes(home: &Home) -> Result<(), Failure> {
    let desk = Desk::new(home.clone(), OpenRequest::default()).worded_by(advised);
    let mut signals = Signals::new()?;
    let serve = async {
        tokio::select! {
            served = desk.serve(tokio::io::stdin(), tokio::io::stdout()) => Some(served),
            _ = signals.next() => None,
        }
    };
    let served = quipu_host::jobs::run_alongside(home, serve).await;
    // Also where the client is gone: what runs is recorded as aborted.
    desk.shutdown().await;
    match served {
        Some(ServeEnd::Left | ServeEnd::Closed) => Ok(()),
        Some(ServeEnd::OtherVersion) => Err(Failure::usage(
            "the client does not speak this protocol, or speaks another version of it (docs/serve.md)",
        )),
        Some(ServeEnd::Stalled) => Err(Failure::failed("the client stopped reading")),
        None => Err(Failure::silent(signals.exit())),
    }
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::NotLoopback(_)
        | ServerError::NoToken
        | ServerError::NotSocket(_)
        | ServerError::PathTooLong(_) => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

impl InstallArgs {
    fn install(&self) -> Result<(), Failure> {
        let home = &home(&self.place.store)?;
        let mut words = vec![PathBuf::from("serve")];
        match (&self.place.socket, self.place.listen.unwrap_or(LISTEN)) {
            (Some(path), _) => {
                let path = std::path::absolute(path)?;
                if SocketPath::from_pathname(&path).is_err() {
                    return Err(failure(ServerError::PathTooLong(path)));
                }
                words.extend(["--socket".into(), path]);
            }
            (None, address) if !address.ip().is_loopback() => {
                return Err(failure(ServerError::NotLoopback(address)));
            }
            (None, _) if self.place.no_token => return Err(failure(ServerError::NoToken)),
            (None, address) => words.extend(["--listen".into(), address.to_string().into()]),
        }
        if self.place.no_token {
            words.push("--no-token".into());
        }
        words.extend(["--cwd".into(), self.place.directory()?]);
        let request = UnitRequest { home, purpose: UnitPurpose::Server, yes: self.yes, json: self.json };
        install(&request, words)
    }
}

impl ServePlace {
    /// The directory of new sessions, without links.
    fn directory(&self) -> Result<PathBuf, Failure> {
        match &self.cwd {
            Some(dir) => dir
                .canonicalize()
                .ok()
                .filter(|dir| dir.is_dir())
                .ok_or_else(|| Failure::usage(format!("--cwd: {} is not a directory", dir.display()))),
            None => current_dir(),
        }
    }

    async fn listener(&self) -> Result<ServerListener, Failure> {
        let listener = match (&self.socket, self.listen) {
            (Some(path), _) => ServerListener::unix(&std::path::absolute(path)?).await,
            // Before it is announced.
            (None, Some(_)) if self.no_token => Err(ServerError::NoToken),
            (None, Some(address)) => ServerListener::loopback(address).await,
            (None, None) => return Err(Failure::usage("say where: --listen or --socket")),
        };
        listener.map_err(failure)
    }
}

async fn on_network(home: &Home, args: &ServeArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    // Before anything is written, an address of other machines is refused.
    let listener = args.place.listener().await?;
    // Before clients learn where it is: one that cannot be used is no server.
    drop(home.store().await?);
    let (file, access) = match args.place.no_token {
        true => (None, Access::Anyone),
        false => {
            let (file, token) = bearer_token(home, TOKEN)?;
            (Some(file), Access::Token(token))
        }
    };
    let mut signals = Signals::new()?;
    announce(&listener.address(), file.as_deref(), args.json)?;
    let options = ServerOptions {
        home: home.clone(),
        request: OpenRequest::default(),
        wording: advised,
        directory,
        access,
        limits: SERVER_LIMITS,
    };
    let stop = CancellationToken::new();
    let serve = quipu_server::serve(options, listener, stop.clone());
    let mut serve = std::pin::pin!(quipu_host::jobs::run_alongside(home, serve));
    tokio::select! {
        served = &mut serve => return served.map_err(failure),
        _ = signals.next() => stop.cancel(),
    }
    // A second signal waits for nothing.
    tokio::select! {
        served = &mut serve => served.map_err(failure)?,
        _ = signals.next() => return Err(Failure::silent(signals.exit())),
    }
    match signals.exit() {
        // The usual end of a service.
        Exit::Terminated => Ok(()),
        exit => Err(Failure::silent(exit)),
    }
}

/// Says where clients connect, and how.
fn announce(address: &ServerAddress, token: Option<&std::path::Path>, is_json: bool) -> Result<(), Failure> {
    let (url, socket) = match address {
        ServerAddress::Loopback(address) => (Some(format!("http://{address}")), None),
        ServerAddress::Unix(path) => (None, Some(path.display().to_string())),
    };
    let token = token.map(|path| path.display().to_string());
    let place =
        url.clone().or_else(|| Some(format!("the socket {}", socket.as_deref()?))).unwrap_or_default();
    if is_json {
        let object = json!({ "url": url, "socket": socket, "tokenFile": token });
        let mut stdout = crate::console::stdout();
        writeln!(stdout, "{object}")?;
        stdout.flush()?;
    }
    match token {
        Some(file) => note(format!(
            "Serving {place}; clients send the header `Authorization: Bearer …` with the content of {file}."
        )),
        None => note(format!("Serving {place}, without a token.")),
    }
    Ok(())
}
