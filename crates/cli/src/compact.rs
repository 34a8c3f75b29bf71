//! `quipu compact`: the context of a session summed up, and that undone.

use std::io::Write as _;

use quipu::{Delivery, Opened, UndoError};
use quipu_protocol::{Command, CompactionResult, Event, Part};

use crate::args::{CompactArgs, Mode, Task};
use crate::exit::Failure;
use crate::run::{Front, Signals, refused, tell};
use crate::setup::{self, Place, Started};

pub(crate) async fn run(args: &CompactArgs) -> Result<(), Failure> {
    let place = Place::find(&args.store)?;
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
    if setup::existing_session(&place, &task, &here).await?.is_none() {
        return Err(no_session());
    }
    let Started { opened: Opened { session, troubles }, .. } =
        setup::open(&place, &task, &here, None).await?;
    for trouble in &troubles {
        tell(trouble);
    }
    let mut front = Front::new(Mode::Text, &session, &here.to_string_lossy())?;
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.map_err(refused)?;
    let mut signals = Signals::new()?;
    let mut result = None;
    let begun = session.compact(args.focus.clone()).await;
    while begun.is_ok() {
        tokio::select! {
            event = events.next() => {
                let Some(envelope) = event else { break };
                match &envelope.event {
                    Event::CompactionEnded { result: ended, .. } => result = Some(ended.clone()),
                    Event::Settled => break,
                    _ => {}
                }
                // A failure is told as one, at the end.
                if !matches!(result.as_deref(), Some(CompactionResult::Failed(_) | CompactionResult::Aborted)) {
                    front.show(&envelope)?;
                }
            }
            again = signals.next() => {
                if again {
                    return Err(Failure::silent(signals.exit()));
                }
                // A session that is closed has nothing to stop.
                drop(session.send(Command::Abort(Part::Compaction)).await);
            }
        }
    }
    session.shutdown().await;
    begun.map_err(refused)?;
    if let Some(failure) = signals.failure() {
        return Err(failure);
    }
    match result.as_deref() {
        Some(CompactionResult::Done { node, .. }) => Ok(writeln!(std::io::stdout(), "{node}")?),
        Some(CompactionResult::Failed(why)) => {
            Err(Failure::failed(format!("not compacted, the context is as it was: {why}")))
        }
        Some(CompactionResult::Aborted) | None => Err(Failure::failed("stopped; the context is as it was")),
    }
}

async fn undo(place: &Place, task: &Task, here: &std::path::Path) -> Result<(), Failure> {
    let Some(row) = setup::existing_session(place, task, here).await? else { return Err(no_session()) };
    let engine = place.engine(place.store().await?, &place.settings())?;
    let node = engine.undo_compaction(&row.id).await?;
    Ok(writeln!(std::io::stdout(), "{node}")?)
}

fn no_session() -> Failure {
    Failure::usage("there is no session here; `quipu sessions --all` lists what there is")
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::Open(error) => error.into(),
            UndoError::Busy(_) => Self::failed(error),
            UndoError::NotCompacted(_) | UndoError::WentOn { .. } => Self::usage(error),
        }
    }
}
