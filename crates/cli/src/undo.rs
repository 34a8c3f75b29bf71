//! `quipu undo` and `quipu redo`: a session goes back over what moved it, and forward again.

use std::io::Write as _;

use clap::Args;
use quipu::{Engine, TimeStep};
use quipu_protocol::NodeId;
use quipu_store::SessionRow;

use crate::args::StoreArg;
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, printable};
use crate::put_back;
use crate::setup::{Place, current_dir, session_named};

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The session: its id, the beginning of it, or its name; also one that was removed. The newest of this directory
    /// without it.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// So many steps. A step is a jump, a fork, that a session was removed, or a turn: what you said, and what followed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// The files that tools changed go along: each becomes what it was there. What would be changed is shown first.
    #[arg(long)]
    files: bool,
    /// Also files that somebody else changed since, or that cannot be kept as they are.
    #[arg(long, requires = "files")]
    overwrite: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// One JSON object for each step.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct RedoArgs {
    /// The session: its id, the beginning of it, or its name; also one that is gone because that was undone. The newest
    /// of this directory without it.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// The files that tools changed go along, as with `quipu undo --files`.
    #[arg(long)]
    files: bool,
    /// Also files that somebody else changed since, or that cannot be kept as they are.
    #[arg(long, requires = "files")]
    overwrite: bool,
    /// So many steps.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// One JSON object for each step.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &UndoArgs) -> Result<(), Failure> {
    let (place, engine) = engine(&args.store).await?;
    let row = chosen(&engine, args.session.as_deref()).await?;
    let steps = usize::try_from(args.steps).unwrap_or(usize::MAX);
    let how = args.files.then(|| put_back::how(&place, args.overwrite));
    if let Some(how) = &how {
        put_back::show(&engine.preview_undo_files(&row.id, steps, how).await?);
    }
    if !args.yes {
        let planned = engine.undoable(&row.id, steps).await?;
        if let (Some(first), Some(last)) = (planned.first(), planned.last()) {
            let count = planned.len();
            let what: Vec<&str> = planned.iter().take(5).map(|step| step.what.as_str()).collect();
            let more = if count > what.len() { ", …" } else { "" };
            let (from, to) = (place_name(first.from), place_name(last.to));
            let plan = format!("{count} step(s) ({}{more}) of session {}", what.join(", "), row.id);
            let question =
                format!("Undo {plan}? It goes from {from} to {to}; what is left behind stays in the graph.");
            confirm(&question, &format!("{plan} are undone"), "not undone")?;
        }
    }
    let done = match &how {
        Some(how) => warned(engine.undo_with_files(&row.id, steps, how).await?),
        None => engine.undo(&row.id, steps).await?,
    };
    tell(&place, &row, &done, args.json, "undone")?;
    if !args.json {
        note(format!("`quipu redo {}{}` takes that back.", row.id, place.store_flag()));
    }
    Ok(())
}

pub(crate) async fn redo(args: &RedoArgs) -> Result<(), Failure> {
    let (place, engine) = engine(&args.store).await?;
    let row = chosen(&engine, args.session.as_deref()).await?;
    let steps = usize::try_from(args.steps).unwrap_or(usize::MAX);
    let done = match args.files.then(|| put_back::how(&place, args.overwrite)) {
        Some(how) => warned(engine.redo_with_files(&row.id, steps, &how).await?),
        None => engine.redo(&row.id, steps).await?,
    };
    tell(&place, &row, &done, args.json, "done again")
}

/// The steps, after files that did not take their places were told.
fn warned((steps, problems): (Vec<TimeStep>, Vec<String>)) -> Vec<TimeStep> {
    for problem in problems {
        note(format!("warning: {}", printable(&problem)));
    }
    steps
}

/// The session that is named, or the newest of this directory.
pub(crate) async fn chosen(engine: &Engine, named: Option<&str>) -> Result<SessionRow, Failure> {
    match named {
        Some(named) => session_named(&**engine.store(), named).await,
        None => engine.newest(&current_dir()?).await?.ok_or_else(|| {
            Failure::usage("there is no session here; `quipu sessions --all` lists what there is")
        }),
    }
}

fn tell(place: &Place, row: &SessionRow, done: &[TimeStep], json: bool, verb: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    for TimeStep { from, to, what } in done {
        if json {
            let value = serde_json::json!({ "session": row.id, "what": what, "from": from, "to": to });
            writeln!(out, "{value}")?;
        } else {
            note(format!("{what} {verb}: from {} to {}", place_name(*from), place_name(*to)));
        }
    }
    if let (false, Some(last)) = (json, done.last()) {
        match last.to {
            Some(to) => {
                note(format!("Go on with `quipu -p --session {}{} \"…\"`.", row.id, place.store_flag()));
                writeln!(out, "{to}")?;
            }
            None => note(format!("Session {} is not there any more; its nodes stay.", row.id)),
        }
    }
    Ok(())
}

fn place_name(node: Option<NodeId>) -> String {
    node.map_or_else(|| "nowhere".into(), |node| node.short())
}
