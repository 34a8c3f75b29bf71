//! `quipu proxy`: model calls of clients that cannot be extended, passed on and kept.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::{Args, Subcommand};
use quipu_host::{Home, now, seal_credentials};
use quipu_protocol::Model;
use quipu_proxy::{
    JumpState, PROXY_LIMITS, ProxiedSession, ProxyCounts, ProxyError, ProxyOptions, RecorderOptions,
    StateError, StoreOpenError, Upstreams,
};
use quipu_seal::Sealer;
use quipu_store::Graph;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::args::{OutArgs, StoreArg};
use crate::exit::{Exit, Failure};
use crate::home::{home, no_sessions, store_flag};
use crate::print::{note, printable};
use crate::signals::Signals;
use crate::wording::ago;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProxyArgs {
    #[command(subcommand)]
    action: Option<ProxyAction>,
    #[command(flatten)]
    serve: ProxyServeArgs,
}

#[derive(Debug, Args)]
struct ProxyServeArgs {
    /// Listen at this address of this machine.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// Send requests to this server instead of the vendor's: an address for all wires, or WIRE=ADDRESS with the wire
    /// messages, completions or responses, or other for paths of no wire. https, or of this machine. Repeatable.
    #[arg(long, value_name = "[WIRE=]ADDRESS")]
    upstream: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Debug, Subcommand)]
enum ProxyAction {
    /// Confirm a jump that was asked for in a conversation.
    Confirm {
        /// The id that the answer in the conversation named, or the session; the start of it is enough.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        store: StoreArg,
    },
    /// End the jumps of a conversation: its requests go out as they come again.
    Release {
        /// The session, or the id of the jump; the start of it is enough.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        store: StoreArg,
    },
    /// List the conversations that have a jump: asked for, or in force.
    Status(OutArgs),
}

pub(crate) async fn run(args: &ProxyArgs) -> Result<(), Failure> {
    match &args.action {
        None => serve(&args.serve).await,
        Some(ProxyAction::Confirm { id, store }) => confirm(id, store).await,
        Some(ProxyAction::Release { id, store }) => release(id, store).await,
        Some(ProxyAction::Status(out)) => status(out).await,
    }
}

async fn serve(args: &ProxyServeArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let upstreams = Upstreams::new(&args.upstream).map_err(Failure::usage)?;
    if !args.listen.ip().is_loopback() {
        return Err(Failure::usage(ProxyError::NotLoopback(args.listen)));
    }
    let lines = upstreams.lines();
    let recorder = recorder(&home)?;
    // What cannot be used is better said now than beside a conversation.
    drop(home.store().await?);
    let listener = tokio::net::TcpListener::bind(args.listen).await.map_err(|error| {
        Failure::failed(format!("{} cannot be listened at: {error}; choose another port", args.listen))
    })?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    note(format!("Serving http://{address}; requests go to {}.", lines.join(", ")));
    let options = ProxyOptions { upstreams, recorder, limits: PROXY_LIMITS };
    let serve = quipu_proxy::serve(options, listener, stop.clone());
    tokio::pin!(serve);
    let counts = tokio::select! {
        served = &mut serve => served,
        _ = signals.next() => {
            stop.cancel();
            serve.await
        }
    };
    let ProxyCounts { kept, unread, lost, rewritten } = counts.map_err(failure)?;
    note(format!(
        "{kept} exchanges kept, {unread} not readable, {lost} lost, {rewritten} sent as of an earlier point."
    ));
    Err(Failure::silent(signals.exit()))
}

fn recorder(home: &Home) -> Result<RecorderOptions, Failure> {
    let settings = home.settings();
    let sealer = Arc::new(Sealer::new(home.seal_key()?));
    seal_credentials(&sealer, &settings);
    let models: HashMap<(String, String), Arc<Model>> = settings
        .models()
        .into_iter()
        .map(|model| ((model.provider.clone(), model.id.clone()), model))
        .collect();
    let stores = home.clone();
    Ok(RecorderOptions {
        opener: Arc::new(move || match stores.open(&quipu_store::OpenOptions::default()) {
            Ok(store) => {
                let store: Arc<dyn Graph> = Arc::new(store);
                Ok(store)
            }
            Err(error) => Err(StoreOpenError(error.to_string())),
        }),
        sealer,
        models: Arc::new(move |provider, id| models.get(&(provider.to_owned(), id.to_owned())).cloned()),
        notify: Arc::new(|line| note(format!("quipu proxy: {}", printable(line)))),
        confirm_command: format!("quipu proxy confirm{}", store_flag(home)),
    })
}

fn failure(error: ProxyError) -> Failure {
    match error {
        ProxyError::NotLoopback(_) | ProxyError::Upstream(_) => Failure::usage(error),
        ProxyError::Network(_) => Failure::failed(error),
        ProxyError::Store(_) => Failure::new(Exit::Store, error),
    }
}

fn state_failure(error: StateError) -> Failure {
    match error {
        StateError::Unknown(_) | StateError::Several(_) | StateError::Gone(_) | StateError::Unreadable(_) => {
            Failure::usage(format!("{error}; `quipu proxy status` lists them"))
        }
        StateError::Store(error) => error.into(),
    }
}

async fn confirm(id: &str, store: &StoreArg) -> Result<(), Failure> {
    let home = home(store)?;
    let store = home.existing_store().await?.ok_or_else(|| no_sessions(&home))?;
    let done = quipu_proxy::confirm(&*store, id).await.map_err(state_failure)?;
    note(format!(
        "{}: back to {}; the next request of this conversation goes out so.",
        printable(done.session.as_str()),
        done.target.short()
    ));
    Ok(())
}

async fn release(id: &str, store: &StoreArg) -> Result<(), Failure> {
    let home = home(store)?;
    let store = home.existing_store().await?.ok_or_else(|| no_sessions(&home))?;
    let session = quipu_proxy::release(&*store, id).await.map_err(state_failure)?;
    note(format!("{}: requests go out as they come.", printable(session.as_str())));
    Ok(())
}

async fn status(out: &OutArgs) -> Result<(), Failure> {
    let home = home(&out.store)?;
    let sessions = match home.store_to_read()? {
        Some(store) => quipu_proxy::sessions(&*store).await?,
        None => Vec::new(),
    };
    let mut to = crate::console::stdout();
    for ProxiedSession { agent, session, jumps } in &sessions {
        for jump in jumps {
            if out.json {
                writeln!(to, "{}", as_json(agent, session.as_str(), jump))?;
            } else {
                let (agent, session) = (printable(agent), printable(session.as_str()));
                writeln!(to, "{agent} {session}: {}", in_words(jump))?;
            }
        }
    }
    if sessions.is_empty() && !out.json {
        note("No conversation has a jump.");
    }
    Ok(to.flush()?)
}

fn in_words(jump: &JumpState) -> String {
    match jump {
        JumpState::Asked { id, target, messages, at } => format!(
            "back to {} is asked for {}, without {messages} piece(s); confirm with `quipu proxy confirm {id}`",
            target.short(),
            ago(now(), *at)
        ),
        JumpState::Active { target, jumps, at } => format!(
            "requests go out as of {}, since {} ({jumps} jump(s)); end that with `quipu proxy release`",
            target.short(),
            ago(now(), *at)
        ),
    }
}

fn as_json(agent: &str, session: &str, jump: &JumpState) -> Value {
    let of = json!({ "agent": agent, "session": session });
    let more = match jump {
        JumpState::Asked { id, target, messages, at } => {
            json!({ "state": "asked", "id": id, "target": target.to_string(), "messages": messages, "at": at })
        }
        JumpState::Active { target, jumps, at } => {
            json!({ "state": "active", "target": target.to_string(), "jumps": jumps, "at": at })
        }
    };
    match (of, more) {
        (Value::Object(mut of), Value::Object(more)) => {
            of.extend(more);
            Value::Object(of)
        }
        (of, _) => of,
    }
}
