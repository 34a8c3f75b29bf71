//! `quipu undo` and `quipu redo`: a session goes back over what moved it, and forward again.

use std::io::Write as _;

use clap::Args;
use quipu::{Engine, RestoreFiles, TimeStep};
use quipu_protocol::NodeId;
use quipu_store::SessionRow;

use crate::args::{RestoreArgs, StoreArg};
use crate::confirm::confirm;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::fork::engine;
use crate::memory::person::moved_by_a_person;
use crate::print::note;
use crate::restore_files;
use quipu_host::{Home, session_named};

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// The session: its id, the start of its id, or its name; also one that you removed or whose start you undid. Default: the newest of this directory.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// The number of steps. A step is a jump, a fork, a removal, or a turn: your message and everything that followed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    #[command(flatten)]
    restore: RestoreArgs,
    /// Do not change files, even if the steps restored files.
    #[arg(long, conflicts_with = "files")]
    keep_files: bool,
    /// Print JSON for programs: one object per step.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn undo(args: &StepArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let row = chosen(&engine, args.session.as_deref()).await?;
    moved_by_a_person(&row)?;
    let planned = engine.undoable(&row.id, args.steps()).await?;
    let how = restore_options(&home, &engine, &row, args).await?;
    if !agreed(how.as_ref(), &engine, args, &row, &planned, ["Undo", "undone"]).await? {
        return Ok(());
    }
    let (done, problems) = engine.undo_with_files(&row.id, args.steps(), how.as_ref()).await?;
    restore_files::warn(&problems);
    tell(&home, &row, &done, args.json, "undone")?;
    if !args.json {
        note(format!("To redo: `quipu redo {}{}`.", row.id, crate::home::store_flag(&home)));
    }
    Ok(())
}

pub(crate) async fn redo(args: &StepArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let row = chosen(&engine, args.session.as_deref()).await?;
    moved_by_a_person(&row)?;
    let planned = engine.redoable(&row.id, args.steps()).await?;
    let how = restore_options(&home, &engine, &row, args).await?;
    if !agreed(how.as_ref(), &engine, args, &row, &planned, ["Redo", "redone"]).await? {
        return Ok(());
    }
    let (done, problems) = engine.redo_with_files(&row.id, args.steps(), how.as_ref()).await?;
    restore_files::warn(&problems);
    tell(&home, &row, &done, args.json, "redone")
}

impl StepArgs {
    fn steps(&self) -> usize {
        usize::try_from(self.steps).unwrap_or(usize::MAX)
    }
}

/// How files go along, if they do: where that is said, and where they did so with what is undone or redone.
async fn restore_options(
    home: &Home,
    engine: &Engine,
    row: &SessionRow,
    args: &StepArgs,
) -> Result<Option<RestoreFiles>, Failure> {
    let holds_notes = quipu::holds_notes(row);
    if holds_notes && args.keep_files {
        return Err(Failure::usage("the changes of a memory are those of its files: leave out --keep-files"));
    }
    let goes =
        args.restore.files || holds_notes || (!args.keep_files && engine.moved_with_files(&row.id).await?);
    if goes && !args.restore.files && !holds_notes {
        note("Files are restored too, as they were before; `--keep-files` leaves them unchanged.");
    }
    let how = goes.then(|| restore_files::options(home, &row.cwd, args.restore.overwrite)).transpose()?;
    Ok(how.map(|how| match holds_notes {
        // They lie where tools write nothing, and a person who says so does.
        true => RestoreFiles { as_before: false, own: None, ..how },
        false => RestoreFiles { as_before: !args.restore.files, ..how },
    }))
}

/// Shows what would be changed, and asks. Whether it is to be done: not where it was only to be shown.
async fn agreed(
    how: Option<&RestoreFiles>,
    engine: &Engine,
    args: &StepArgs,
    row: &SessionRow,
    planned: &[TimeStep],
    [ask, done]: [&str; 2],
) -> Result<bool, Failure> {
    let RestoreArgs { dry_run, yes, .. } = args.restore;
    if let Some(how) = how {
        // What went along went with the last of them.
        let planned = if how.as_before { planned.get(..1).unwrap_or_default() } else { planned };
        let plan = engine.preview_steps(&row.id, planned, how).await?;
        if dry_run {
            restore_files::print(&plan, args.json)?;
            return Ok(false);
        }
        restore_files::show(&plan);
        if quipu::holds_notes(row)
            && (!plan.left.is_empty() || (plan.conflicts().count() > 0 && !how.overwrite))
        {
            return Err(Failure::failed(format!(
                "files of the memory cannot be put back, so nothing was {done}; `--overwrite` replaces those that changed since"
            )));
        }
    }
    // That there is nothing to do is the engine's word.
    if let (false, Some(first), Some(last)) = (yes, planned.first(), planned.last()) {
        let count = planned.len();
        let kinds: Vec<&str> = planned.iter().take(5).map(|step| step.kind.as_str()).collect();
        let more = if count > kinds.len() { ", …" } else { "" };
        let (from, to) = (place_name(first.from), place_name(last.to));
        let plan = format!("{count} step(s) ({}{more}) of session {}", kinds.join(", "), row.id);
        let question = format!(
            "{ask} {plan}? The session moves from {from} to {to}; the nodes it leaves stay in the graph."
        );
        confirm(&question, &format!("{plan} are {done}"), &format!("not {done}"))?;
    }
    Ok(true)
}

/// The session that is named, or the newest of this directory.
pub(crate) async fn chosen(engine: &Engine, named: Option<&str>) -> Result<SessionRow, Failure> {
    match named {
        Some(named) => Ok(session_named(&**engine.store(), named).await?),
        None => engine.newest(&current_dir()?).await?.ok_or_else(|| {
            Failure::usage(
                "this directory has no session; `quipu sessions --all` lists those of every directory",
            )
        }),
    }
}

fn tell(home: &Home, row: &SessionRow, done: &[TimeStep], json: bool, verb: &str) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    for TimeStep { from, to, kind } in done {
        if json {
            let value = serde_json::json!({ "session": row.id, "what": kind, "from": from, "to": to });
            writeln!(out, "{value}")?;
        } else {
            note(format!("{kind} {verb}: from {} to {}", place_name(*from), place_name(*to)));
        }
    }
    if let (false, Some(last)) = (json, done.last()) {
        match last.to {
            // Nobody talks in these.
            Some(to) if quipu::holds_notes(row) || row.id.as_str().starts_with(quipu_past::PAST_SESSION) => {
                writeln!(out, "{to}")?;
            }
            Some(to) => {
                note(format!(
                    "Continue with `quipu -p --session {}{} \"…\"`.",
                    row.id,
                    crate::home::store_flag(home)
                ));
                writeln!(out, "{to}")?;
            }
            None => note(format!("Session {} no longer exists; its nodes are kept.", row.id)),
        }
    }
    Ok(())
}

fn place_name(node: Option<NodeId>) -> String {
    node.map_or_else(|| "nowhere".into(), |node| node.short())
}
