//! `quipu branch`: a session goes to another of its nodes, with a summary of what it leaves when that is wanted.

use std::io::Write as _;

use quipu::{ChangeError, Delivery, Opened};
use quipu_protocol::{Command, Content, Event, JumpResult, Jumped, Part, Summarize};

use crate::args::{BranchArgs, Mode, Task};
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, printable};
use crate::run::{Front, Signals, refused, tell};
use crate::setup::{self, Place, Started};

pub(crate) async fn run(args: &BranchArgs) -> Result<(), Failure> {
    let (place, engine) = engine(&args.store).await?;
    let node = crate::show::resolve(&**engine.store(), &args.node, None).await?.node;
    let jumped = if args.summarize || args.focus.is_some() {
        let session = engine.session_to_jump(node).await?;
        drop(engine);
        summarized(&place, args, node, session.to_string()).await?
    } else {
        engine.jump(node, args.label.as_deref()).await?
    };
    let Jumped { session, from, at, head, said, summary, usage } = &jumped;
    let text = said.as_ref().map(|said| {
        let texts: Vec<&str> = said.0.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    });
    let images = said.iter().flat_map(|said| &said.0).filter(|block| matches!(block, Content::Image(_)));
    let images = images.count();
    if args.json {
        let cost = usage.map(|usage| usage.cost.total);
        let value = serde_json::json!({
            "session": session, "from": from, "at": at, "head": head, "text": text, "images": images,
            "summary": summary, "cost": cost,
        });
        return Ok(writeln!(std::io::stdout(), "{value}")?);
    }
    if let Some(text) = text {
        let images = if images == 0 { String::new() } else { format!(" (and {images} image(s))") };
        let text = printable(&text);
        note(format!("It stands before this message{images}, to be said in other words:\n\n{text}\n"));
    }
    let store = place.store_flag();
    if from != head {
        note(format!("Back to where it stood: `quipu branch {}{store}`.", from.short()));
    }
    note(format!("Go on with `quipu -p --session {session}{store} \"…\"`."));
    Ok(writeln!(std::io::stdout(), "{head}")?)
}

async fn summarized(
    place: &Place,
    args: &BranchArgs,
    node: quipu_protocol::NodeId,
    id: String,
) -> Result<Jumped, Failure> {
    let here = std::env::current_dir()?;
    let task = Task {
        session: Some(id.clone()),
        store: args.store.clone(),
        model: args.model.clone(),
        max_cost: args.max_cost,
        ..Task::default()
    };
    let Started { opened: Opened { session, troubles }, .. } = setup::open(place, &task, &here, None).await?;
    if session.view().session.as_str() != id {
        session.shutdown().await;
        return Err(ChangeError::Busy(id.as_str().into()).into());
    }
    for trouble in &troubles {
        tell(trouble);
    }
    let mut front = Front::new(Mode::Text, &session, &here.to_string_lossy())?;
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.map_err(refused)?;
    let mut signals = Signals::new()?;
    let mut result = None;
    let summary = Some(Summarize { focus: args.focus.clone() });
    let begun = session.jump(node, summary, args.label.clone()).await;
    while begun.is_ok() {
        tokio::select! {
            event = events.next() => {
                let Some(envelope) = event else { break };
                match &envelope.event {
                    Event::JumpEnded { result: ended } => result = Some(ended.clone()),
                    Event::Settled => break,
                    _ => front.show(&envelope)?,
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
        Some(JumpResult::Done(jumped)) => {
            if let (None, true) = (jumped.summary, jumped.from != jumped.at) {
                note("Nothing is left behind, so there was nothing to sum up.");
            }
            Ok((**jumped).clone())
        }
        Some(JumpResult::Failed(why)) => {
            Err(Failure::failed(format!("not moved, the session stands where it stood: {why}")))
        }
        Some(JumpResult::Aborted) | None => {
            Err(Failure::failed("stopped; the session stands where it stood"))
        }
    }
}
