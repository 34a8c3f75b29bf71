//! `quipu compact`: the context of a session summed up, and that undone.

use std::io::Write as _;

use quipu_protocol::{Command, CompactionResult, Event};

use crate::args::{CompactArgs, Task};
use crate::exit::Failure;
use crate::home::{home, request};
use crate::session_command::run_command;
use quipu_host::{self as setup, Home, StartedSession};

pub(crate) async fn run(args: &CompactArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let here = std::env::current_dir()?;
    let task = Task {
        resume: args.session.is_none(),
        session: args.session.clone(),
        store: args.store.clone(),
        model: args.model.clone(),
        ..Task::default()
    };
    if args.undo {
        return undo(&home, &task, &here).await;
    }
    if setup::existing_session(&home, &request(&task, &here)?).await?.is_none() {
        return Err(no_session());
    }
    let StartedSession { opened, .. } = crate::home::open(&home, &task, &here, None).await?;
    let command = Command::Compact { focus: args.focus.clone() };
    let stopped = || Failure::failed("stopped; the context is unchanged");
    let node = run_command(opened, &here, command, |event| match event {
        Event::CompactionEnded { result, .. } => Some(match &**result {
            CompactionResult::Done { node, .. } => Ok(*node),
            CompactionResult::Failed(why) => {
                Err(Failure::failed(format!("not compacted, the context is unchanged: {why}")))
            }
            CompactionResult::Aborted => Err(stopped()),
        }),
        _ => None,
    });
    let node = node.await?.ok_or_else(stopped)?;
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}

async fn undo(home: &Home, task: &Task, here: &std::path::Path) -> Result<(), Failure> {
    let Some(row) = setup::existing_session(home, &request(task, here)?).await? else {
        return Err(no_session());
    };
    let engine = home.engine(home.store().await?, &home.settings())?;
    let (node, problems) = engine.undo_compaction(&row.id).await?;
    crate::restore_files::warn(&problems);
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}

fn no_session() -> Failure {
    Failure::usage("this directory has no session; `quipu sessions --all` lists those of every directory")
}
