//! `quipu mcp`: servers of the Model Context Protocol.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use quipu_host::Home;
use quipu_host::mcp::{
    McpFile, McpFileUse, McpServer, accept_definitions, acceptance_of, add_server, begin_server_login,
    keep_server_login, mcp_files, project_mcp_file, remove_server, start_server, trust_mcp_file,
    user_mcp_file,
};
use quipu_mcp::{Acceptance, Listing, ServerStatus, TransportConfig, visible};
use serde_json::{Map, Value, json};
use tokio::io::AsyncBufReadExt as _;

use crate::args::StoreArg;
use crate::console::current_dir;
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::mcp_serve;
use crate::print::{Paint, counted, note, one_line, printable};

/// How long a person may take to log in.
const LOGIN: Duration = Duration::from_secs(600);
/// Columns of a description in a list.
const WIDTH: usize = 100;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    action: Option<McpAction>,
    #[command(flatten)]
    list: ListArgs,
}

impl McpArgs {
    /// To be a server over the pipes.
    pub(crate) fn serve() -> Self {
        let action = Some(McpAction::Serve(mcp_serve::McpServeArgs::default()));
        Self { action, list: ListArgs::default() }
    }
}

#[derive(Debug, Args, Default)]
struct ListArgs {
    /// Start the servers and list their tools, with what each server says of them.
    #[arg(long)]
    tools: bool,
    /// Print JSON for programs: one object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum McpAction {
    /// List the servers of this directory. The same as `quipu mcp` on a terminal.
    List(ListArgs),
    /// Be a server: other agents search and read the history. The same as `quipu mcp` behind a pipe.
    Serve(mcp_serve::McpServeArgs),
    /// Add a server: a program that is started, or an address.
    Add(AddArgs),
    /// Remove a server from your file.
    Remove {
        /// The name of the server.
        name: String,
        /// Use the file of the project: `.mcp.json` at the root of its repository.
        #[arg(long)]
        project: bool,
    },
    /// Log in to a server on the network, in a browser. The address that the browser ends at can also be pasted.
    Login {
        /// The name of the server.
        name: String,
    },
    /// Forget the login of a server.
    Logout {
        /// The name of the server.
        name: String,
    },
    /// Start a server, list its tools, and stop it.
    Test {
        /// The name of the server.
        name: String,
        /// Accept the definitions of its tools as they are shown.
        #[arg(long)]
        accept: bool,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// A name for the server: letters, digits, `_`, `-` and `.`.
    name: String,
    /// The address of a server on the network.
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "cwd"])]
    url: Option<String>,
    /// A header for each request to the address, such as `Authorization: Bearer ${TOKEN}`.
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// A variable in the environment of the program. `${NAME}` in a value is a variable of your own.
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The directory of the program.
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Use the file of the project: `.mcp.json` at the root of its repository.
    #[arg(long)]
    project: bool,
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// `quipu mcp`.
pub(crate) async fn run(args: &McpArgs) -> Result<(), Failure> {
    let serves = args.action.is_none() && !args.list.tools && !args.list.json && mcp_serve::is_client_there();
    if serves {
        return mcp_serve::run(&mcp_serve::McpServeArgs::default()).await;
    }
    let home = home(&StoreArg::default())?;
    match &args.action {
        None => list(&home, &args.list).await,
        Some(McpAction::Serve(args)) => mcp_serve::run(args).await,
        Some(McpAction::List(list_args)) => list(&home, list_args).await,
        Some(McpAction::Add(args)) => add(&home, args),
        Some(McpAction::Remove { name, project }) => remove(&home, name, *project),
        Some(McpAction::Login { name }) => login(&home, name).await,
        Some(McpAction::Logout { name }) => {
            if keep_server_login(&home, &named(&home, name)?, None)? {
                note(format!("the login of {} is forgotten", printable(name)));
                return Ok(());
            }
            Err(Failure::usage(format!("there is no login of `{}`", printable(name))))
        }
        Some(McpAction::Test { name, accept, json }) => test(&home, name, (*accept, *json)).await,
    }
}

fn file(home: &Home, of_project: bool) -> Result<PathBuf, Failure> {
    Ok(if of_project { project_mcp_file(&current_dir()?) } else { user_mcp_file(home) })
}

fn pair(text: &str, between: char) -> Result<(String, Value), Failure> {
    let (name, value) = text.split_once(between).ok_or_else(|| {
        Failure::usage(format!("`{}` has no `{between}` between name and value", printable(text)))
    })?;
    Ok((name.trim().to_owned(), value.trim().into()))
}

fn add(home: &Home, args: &AddArgs) -> Result<(), Failure> {
    let mut server = Map::new();
    match (&args.url, args.command.split_first()) {
        (Some(url), None) => {
            server.insert("type".into(), "http".into());
            server.insert("url".into(), url.as_str().into());
            let headers: Map<String, Value> =
                args.header.iter().map(|header| pair(header, ':')).collect::<Result<_, _>>()?;
            if !headers.is_empty() {
                server.insert("headers".into(), headers.into());
            }
        }
        (None, Some((command, arguments))) => {
            server.insert("command".into(), command.as_str().into());
            server.insert("args".into(), arguments.into());
            let env: Map<String, Value> =
                args.env.iter().map(|env| pair(env, '=')).collect::<Result<_, _>>()?;
            if !env.is_empty() {
                server.insert("env".into(), env.into());
            }
            if let Some(cwd) = &args.cwd {
                server.insert("cwd".into(), cwd.as_str().into());
            }
        }
        _ => {
            return Err(Failure::usage(
                "name the program behind `--`, or an address with --url: `quipu mcp add files -- server --root .`",
            ));
        }
    }
    let path = file(home, args.project)?;
    let was_accepted = !args.project || is_accepted(home, &path)?;
    add_server(&path, &args.name, server)?;
    accept_again(home, &path, args.project && was_accepted)?;
    note(format!(
        "added {} to {}; `quipu mcp test {}` shows its tools",
        args.name,
        path.display(),
        args.name
    ));
    Ok(())
}

fn remove(home: &Home, name: &str, of_project: bool) -> Result<(), Failure> {
    let path = file(home, of_project)?;
    let was_accepted = of_project && is_accepted(home, &path)?;
    if !remove_server(&path, name)? {
        let (shown, path) = (printable(name), path.display());
        return Err(Failure::usage(format!("{path} has no server `{shown}`; `quipu mcp list` lists them")));
    }
    accept_again(home, &path, was_accepted)?;
    note(format!("removed {} from {}", printable(name), path.display()));
    Ok(())
}

/// Whether a file of the project counts as it is, or is not there yet.
fn is_accepted(home: &Home, path: &std::path::Path) -> Result<bool, Failure> {
    let files = mcp_files(home, &current_dir()?).files;
    let found = files.iter().find(|file| file.path == *path);
    Ok(match found {
        Some(file) => file.counts == McpFileUse::Accepted,
        None => !path.exists(),
    })
}

/// You changed it, and you had accepted what it was.
fn accept_again(home: &Home, path: &std::path::Path, accepts: bool) -> Result<(), Failure> {
    let here = current_dir()?;
    if accepts && let Some(file) = mcp_files(home, &here).files.iter().find(|file| file.path == *path) {
        trust_mcp_file(home, &here, file)?;
    }
    Ok(())
}

async fn list(home: &Home, args: &ListArgs) -> Result<(), Failure> {
    let here = current_dir()?;
    let files = mcp_files(home, &here);
    let servers = files.servers();
    let listings = match args.tools {
        true => join_all(servers.iter().map(|server| listed(home, server))).await,
        false => servers.iter().map(|_| Ok(None)).collect(),
    };
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    for (server, listing) in servers.iter().zip(&listings) {
        if args.json {
            writeln!(out, "{}", server_json(home, server, listing))?;
        } else {
            let state = if server.config.enabled { "" } else { "  (disabled)" };
            let (name, address) = (printable(&server.name), printable(&address(server)));
            writeln!(out, "{name:<16} {address}{state}")?;
            describe(&mut out, home, server, listing)?;
        }
    }
    out.flush()?;
    for file in &files.files {
        for problem in &file.problems {
            note(format!("warning: {problem}"));
        }
        if file.counts == McpFileUse::Untrusted && file.problems.is_empty() {
            let names: Vec<&str> = file.servers.iter().map(|(name, _)| name.as_str()).collect();
            note(format!(
                "{} is ignored ({}); `quipu config trust` accepts it in its current form",
                file.path.display(),
                names.join(", ")
            ));
        }
    }
    if files.files.is_empty() && !args.json {
        note("There are no MCP servers. `quipu mcp add NAME -- COMMAND` adds one");
    }
    Ok(())
}

/// What a server declares; `None` for one that is not used.
async fn listed(home: &Home, server: &McpServer) -> Result<Option<Arc<Listing>>, String> {
    if !server.config.enabled {
        return Ok(None);
    }
    let here = current_dir().map_err(|failure| failure.message)?;
    let started = start_server(home, &here, server).map_err(|failure| failure.message)?;
    let status = started.settled(server.config.startup).await;
    let listing = started.listing();
    let result = match (listing, status) {
        (Some(listing), _) => Ok(Some(listing)),
        (None, ServerStatus::Waiting(why) | ServerStatus::Failed(why)) => Err(why),
        (None, ServerStatus::Starting | ServerStatus::Ready(_)) => Err("it does not answer".to_owned()),
    };
    started.stop().await;
    result
}

fn address(server: &McpServer) -> String {
    match &server.config.transport {
        TransportConfig::Stdio { command, args, .. } => {
            one_line(&format!("{command} {}", args.join(" ")), WIDTH).trim().to_owned()
        }
        TransportConfig::Http { url, .. } => one_line(url, WIDTH),
    }
}

fn acceptance_word(acceptance: Acceptance) -> &'static str {
    match acceptance {
        Acceptance::Accepted => "accepted",
        Acceptance::Changed => "changed",
        Acceptance::New => "new",
    }
}

fn server_json(home: &Home, server: &McpServer, listing: &Result<Option<Arc<Listing>>, String>) -> Value {
    let mut line = json!({
        "name": server.name,
        "file": server.path,
        "scope": match server.counts {
            McpFileUse::User => "user",
            McpFileUse::Package => "package",
            McpFileUse::Accepted | McpFileUse::Untrusted => "project",
        },
        "enabled": server.config.enabled,
    });
    match &server.config.transport {
        TransportConfig::Stdio { command, args, .. } => {
            line["command"] = command.as_str().into();
            line["args"] = args.as_slice().into();
        }
        TransportConfig::Http { url, .. } => line["url"] = url.as_str().into(),
    }
    match listing {
        Ok(None) => {}
        Ok(Some(listing)) => {
            line["tools"] = listing
                .definitions
                .iter()
                .map(|one| {
                    json!({
                        "name": one.name,
                        "tool": quipu_mcp::tool_name(&server.name, &one.name),
                        "hash": one.hash,
                        "state": acceptance_word(acceptance_of(home, server, one)),
                        "invisibleCharacters": one.is_suspicious,
                        "definition": one.raw,
                    })
                })
                .collect();
            line["leftOut"] =
                listing.issues.iter().map(|issue| json!({ "tool": issue.tool, "why": issue.why })).collect();
        }
        Err(why) => line["error"] = why.as_str().into(),
    }
    line
}

fn describe(
    out: &mut impl std::io::Write,
    home: &Home,
    server: &McpServer,
    listing: &Result<Option<Arc<Listing>>, String>,
) -> Result<(), Failure> {
    let paint = Paint::stdout();
    let listing = match listing {
        Ok(None) => return Ok(()),
        Ok(Some(listing)) => listing,
        Err(why) => {
            writeln!(out, "  {}", paint.red(&printable(why)))?;
            return Ok(());
        }
    };
    for one in &listing.definitions {
        let state = acceptance_word(acceptance_of(home, server, one));
        writeln!(out, "  {:<24} {state:<9} {}", printable(&one.name), &one.hash[..12])?;
        for line in visible(&one.description).lines() {
            writeln!(out, "    {}", printable(line))?;
        }
    }
    for issue in &listing.issues {
        writeln!(out, "  {} is left out: {}", printable(&issue.tool), printable(&issue.why))?;
    }
    if listing.is_cut {
        writeln!(out, "  the server has more tools, which are left out")?;
    }
    Ok(())
}

fn named(home: &Home, name: &str) -> Result<McpServer, Failure> {
    let files = mcp_files(home, &current_dir()?);
    if let Some(server) = files.servers().into_iter().find(|server| server.name == name) {
        return Ok(server);
    }
    let name_shown = printable(name);
    let has = |file: &&McpFile| file.servers.iter().any(|(known, _)| known == name);
    Err(Failure::usage(match files.files.iter().find(has) {
        Some(file) => format!(
            "the server `{name_shown}` is in {}, a file of this project that nobody accepted in its current form; read it, then \
             `quipu config trust` accepts it",
            file.path.display()
        ),
        None => format!("there is no server `{name_shown}`; `quipu mcp list` lists them"),
    }))
}

async fn login(home: &Home, name: &str) -> Result<(), Failure> {
    let server = named(home, name)?;
    let login = begin_server_login(&server).await?;
    note(format!("Open this page in a browser:\n{}", login.url));
    let paste = async {
        let mut line = String::new();
        let mut stdin = tokio::io::BufReader::new(tokio::io::stdin());
        match stdin.read_line(&mut line).await {
            Ok(1..) if !line.trim().is_empty() => Some(line),
            Ok(_) | Err(_) => None,
        }
    };
    let finished = tokio::time::timeout(LOGIN, login.finish(paste)).await;
    let finished =
        finished.map_err(|_| Failure::new(Exit::Credential, "the login was not completed in time"))?;
    let tokens = finished.map_err(|error| Failure::new(Exit::Credential, error))?;
    keep_server_login(home, &server, Some(&tokens))?;
    note(format!("logged in to {0}; `quipu mcp test {0}` shows its tools", printable(name)));
    Ok(())
}

async fn test(home: &Home, name: &str, (accept, json): (bool, bool)) -> Result<(), Failure> {
    let server = &named(home, name)?;
    if !server.config.enabled {
        return Err(Failure::usage(format!("the server `{name}` is disabled in {}", server.path.display())));
    }
    let listing = listed(home, server).await;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if json {
        writeln!(out, "{}", server_json(home, server, &listing))?;
    } else if listing.is_ok() {
        describe(&mut out, home, server, &listing)?;
    }
    out.flush()?;
    match listing {
        Ok(Some(listing)) => {
            let count = counted(listing.definitions.len() as u64, "tool");
            if accept {
                accept_definitions(home, server, &listing)?;
                note(format!("{name} works: {count}, accepted in their current form"));
            } else {
                note(format!("{name} works: {count}"));
            }
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(why) => Err(Failure::failed(format!("the server `{name}` does not work: {}", printable(&why)))),
    }
}
