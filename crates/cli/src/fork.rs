//! `quipu fork` and `quipu clone`: a new session from what another one said.

use std::io::Write as _;
use std::path::Path;

use quipu::{ChangeError, Engine, ForkReport};
use quipu_store::Graph;

use crate::args::{CloneArgs, ForkArgs, StoreArg};
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::print::{note, printable};
use quipu_host::{Home, session_named};

pub(crate) async fn run(args: &ForkArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.out.store).await?;
    let store: &dyn Graph = &**engine.store();
    let at = quipu_host::last_node(store, &args.what).await?;
    let forked = match engine.fork_from(at, args.cwd.as_deref()).await {
        // What another program wrote may say no directory.
        Err(ChangeError::NoSession(_)) => engine.fork_from(at, Some(&current_dir()?)).await?,
        other => other?,
    };
    if args.out.json {
        let value = serde_json::json!({
            "session": forked.session, "base": forked.base, "at": forked.at, "text": forked.text, "images": forked.images,
        });
        writeln!(crate::console::stdout(), "{value}")?;
        return Ok(());
    }
    if let Some(text) = &forked.text {
        let images = match forked.images {
            0 => String::new(),
            count => format!(" (and {count} image(s))"),
        };
        note(format!(
            "The new session starts just before this message{images}, which you can edit and send again:\n\n{}\n",
            printable(text)
        ));
    }
    tell(&home, &engine, &forked).await
}

pub(crate) async fn clone(args: &CloneArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let row = session_named(&**engine.store(), &args.session).await?;
    let forked = engine.clone_session(&row.id).await?;
    tell(&home, &engine, &forked).await
}

async fn tell(home: &Home, engine: &Engine, forked: &ForkReport) -> Result<(), Failure> {
    let row = session_named(&**engine.store(), forked.session.as_str()).await?;
    let cwd = if Path::new(&row.cwd).is_dir() { "" } else { " --cwd ." };
    note(format!(
        "Continue with `quipu -p --session {}{cwd}{} \"…\"`.",
        forked.session,
        crate::home::store_flag(home)
    ));
    Ok(writeln!(crate::console::stdout(), "{}", forked.session)?)
}

/// An engine over a store that exists.
pub(crate) async fn engine(store: &StoreArg) -> Result<(Home, Engine), Failure> {
    let home = home(store)?;
    let Some(store) = home.existing_store().await? else {
        return Err(no_sessions(&home));
    };
    let engine = home.engine(store, &home.settings())?;
    Ok((home, engine))
}
