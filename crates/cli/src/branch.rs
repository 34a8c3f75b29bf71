//! `quipu branch`: a session goes to another of its nodes, with a summary of what it leaves when that is wanted.

use std::io::Write as _;

use quipu::{ChangeError, JumpedWithFiles};
use quipu_protocol::{Command, Content, Event, JumpResult, Jumped, MoveFiles, Summarize, UserInput};

use crate::args::{BranchArgs, Task};
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, printable};
use crate::restore_files::{self, Words};
use crate::session_command::run_command;
use quipu_host::{Home, StartedSession};

pub(crate) async fn run(args: &BranchArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.out.store).await?;
    let node = quipu_host::resolve(&**engine.store(), &args.node, None).await?.node;
    let (label, mut files) = (args.label.as_deref(), None);
    let jumped = if args.summarize || args.focus.is_some() {
        let session = engine.session_to_jump(node).await?;
        drop(engine);
        summarized(&home, args, node, session.to_string()).await?
    } else if args.restore.files {
        let done =
            restore_files::jump(&home, &engine, node, Words::Label(label), &args.restore, args.out.json)
                .await?;
        let Some(JumpedWithFiles { jumped, plan, problems }) = done else { return Ok(()) };
        files = Some((plan, problems));
        jumped
    } else {
        let JumpedWithFiles { jumped, problems, .. } = engine.jump_along(node, label, None).await?;
        restore_files::warn(&problems);
        jumped
    };
    let Jumped { session, from, at, head, said, summary, usage } = &jumped;
    let text = said.as_ref().map(UserInput::text);
    let images =
        said.iter().flat_map(|said| &said.content).filter(|block| matches!(block, Content::Image(_)));
    let images = images.count();
    if args.out.json {
        let cost = usage.map(|usage| usage.cost.total);
        let value = serde_json::json!({
            "session": session, "from": from, "at": at, "head": head, "text": text, "images": images,
            "summary": summary, "cost": cost, "files": files.as_ref().map(|(plan, _)| plan),
            "problems": files.as_ref().map(|(_, problems)| problems),
        });
        return Ok(writeln!(crate::console::stdout(), "{value}")?);
    }
    if let Some(text) = text {
        let images = if images == 0 { String::new() } else { format!(" (and {images} image(s))") };
        let text = printable(&text);
        note(format!(
            "The session is now just before this message{images}, which you can edit and send again:\n\n{text}\n"
        ));
    }
    let store = crate::home::store_flag(&home);
    if from != head {
        let files_flag = if files.is_some() { " --files" } else { "" };
        note(format!("To go back: `quipu branch {}{files_flag}{store}`.", from.short()));
    }
    note(format!("Continue with `quipu -p --session {session}{store} \"…\"`."));
    Ok(writeln!(crate::console::stdout(), "{head}")?)
}

async fn summarized(
    home: &Home,
    args: &BranchArgs,
    node: quipu_protocol::NodeId,
    id: String,
) -> Result<Jumped, Failure> {
    let here = std::env::current_dir()?;
    let task = Task {
        session: Some(id.clone()),
        store: args.out.store.clone(),
        model: args.model.clone(),
        max_cost: args.max_cost,
        ..Task::default()
    };
    let StartedSession { opened, .. } = crate::home::open(home, &task, &here, None).await?;
    if opened.session.view().session.as_str() != id {
        opened.session.shutdown().await;
        return Err(ChangeError::Busy(id.as_str().into()).into());
    }
    let summary = Some(Summarize { focus: args.focus.clone() });
    let command = Command::Jump { to: node, summary, label: args.label.clone(), files: MoveFiles::Keep };
    let stopped = || Failure::failed("stopped; the session did not move");
    let jumped = run_command(opened, &here, command, |event| match event {
        Event::JumpEnded { result } => Some(match &**result {
            JumpResult::Done(jumped) => Ok((**jumped).clone()),
            JumpResult::Failed(why) => Err(Failure::failed(format!("the session did not move: {why}"))),
            JumpResult::Aborted => Err(stopped()),
        }),
        _ => None,
    });
    let jumped: Jumped = jumped.await?.ok_or_else(stopped)?;
    if let (None, true) = (jumped.summary, jumped.from != jumped.at) {
        note("No branch is left behind, so there was nothing to summarize.");
    }
    Ok(jumped)
}
