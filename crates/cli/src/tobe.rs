//! `quipu tobe`: a session goes to one of its nodes with a message to itself.

use std::io::Write as _;

use clap::Args;
use quipu::{Engine, JumpWithFiles};
use quipu_protocol::{JumpReport, NodeId};
use quipu_store::SessionQuery;

use crate::args::{RestoreArgs, StoreArg};
use crate::confirm::confirm;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, printable};
use crate::restore_files::{self, Words};

#[derive(Debug, Args)]
pub(crate) struct TobeArgs {
    /// The node to continue from: its hash or the start of it, a bookmark, or `ext:ID`. Its session moves there. Below a node that another program wrote, a new session starts.
    #[arg(value_name = "NODE")]
    node: String,
    /// What the session should know of the part that it leaves, as a message to itself. Nothing else is carried over.
    #[arg(value_name = "MESSAGE", required = true)]
    message: Vec<String>,
    #[command(flatten)]
    restore: RestoreArgs,
    /// Print JSON for programs: one object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &TobeArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let node = quipu_host::resolve(&**engine.store(), &args.node, None).await?.node;
    refuse_records(&engine, node).await?;
    let message = args.message.join(" ");
    let travel = engine.travel(node, &message).await?;
    let RestoreArgs { files: with_files, dry_run, yes, .. } = args.restore;
    if !yes && !dry_run {
        let plan = printable(&if with_files { travel.way() } else { travel.plan() });
        let (who, stays) = match travel.begins {
            true => ("a new session", "nothing was changed"),
            false => ("this session", "the session did not move"),
        };
        confirm(&format!("May {who} {plan}?"), &format!("{who} would {plan}; that happens"), stays)?;
    }
    let mut files = None;
    let jumped = if with_files {
        let words = Words::Message(&message);
        let done = restore_files::jump(&home, &engine, node, words, &args.restore, args.json).await?;
        let Some(JumpWithFiles { jumped, plan, problems }) = done else { return Ok(()) };
        files = Some((plan, problems));
        jumped
    } else {
        let JumpWithFiles { jumped, problems, .. } = engine.tobe_in(node, &message, &current_dir()?).await?;
        restore_files::warn(&problems);
        jumped
    };
    let JumpReport { session, from, at, head, .. } = jumped;
    if args.json {
        let value = serde_json::json!({
            "session": session, "from": from, "at": at, "head": head, "messages": travel.messages, "turns": travel.turns,
            "files": files.as_ref().map(|(plan, _)| plan), "problems": files.as_ref().map(|(_, problems)| problems),
        });
        return Ok(writeln!(crate::console::stdout(), "{value}")?);
    }
    let store = crate::home::store_flag(&home);
    note(format!(
        "The message is not answered yet; to get the answer: `quipu -p --session {session}{store}`."
    ));
    note(format!("`quipu undo {session}{store}` undoes the jump."));
    Ok(writeln!(crate::console::stdout(), "{head}")?)
}

/// What holds the changes of a memory or the summaries of a past has no conversation to go back in.
async fn refuse_records(engine: &Engine, node: NodeId) -> Result<(), Failure> {
    let store = engine.store();
    let Some(id) = store.sessions_of(&[node]).await?.into_iter().flatten().next() else { return Ok(()) };
    let query = SessionQuery { id: Some(id), limit: Some(1), ..SessionQuery::default() };
    match store.sessions(query).await?.into_iter().find(quipu::takes_no_prompts) {
        Some(row) => Err(quipu_host::Failure::from(quipu::OpenError::Notes(row.id)).into()),
        None => Ok(()),
    }
}
