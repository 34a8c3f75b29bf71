//! `quipu compact`: the context of a session summed up, and that undone.

use std::io::Write as _;

use quipu_protocol::{Command, CompactionResult, Event};

use crate::args::{CompactArgs, Task};
use crate::exit::Failure;
use crate::place::{place, request};
use crate::work::work;
use quipu_host::{self as setup, Place, Started};

pub(crate) async fn run(args: &CompactArgs) -> Result<(), Failure> {
    let place = place(&args.store)?;
    let here = std::env::current_dir()?;
    let task = Task {
        resume: args.session.is_none(),
        session: args.session.clone(),
        store: args.store.clone(),
        model: args.model.clone(),
        ..Task::default()
    };
    if args.undo {
        return undo(&place, &task, &here).await;
    }
    if setup::existing_session(&place, &request(&task, &here)?).await?.is_none() {
        return Err(no_session());
    }
    let Started { opened, .. } = crate::place::open(&place, &task, &here, None).await?;
    let command = Command::Compact { focus: args.focus.clone() };
    let stopped = || Failure::failed("stopped; the context is as it was");
    let node = work(opened, &here, command, |event| match event {
        Event::CompactionEnded { result, .. } => Some(match &**result {
            CompactionResult::Done { node, .. } => Ok(*node),
            CompactionResult::Failed(why) => {
                Err(Failure::failed(format!("not compacted, the context is as it was: {why}")))
            }
            CompactionResult::Aborted => Err(stopped()),
        }),
        _ => None,
    });
    let node = node.await?.ok_or_else(stopped)?;
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}

async fn undo(place: &Place, task: &Task, here: &std::path::Path) -> Result<(), Failure> {
    let Some(row) = setup::existing_session(place, &request(task, here)?).await? else {
        return Err(no_session());
    };
    let engine = place.engine(place.store().await?, &place.settings())?;
    let (node, problems) = engine.undo_compaction(&row.id).await?;
    crate::put_back::warn(&problems);
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}

fn no_session() -> Failure {
    Failure::usage("there is no session here; `quipu sessions --all` lists what there is")
}
