//! `quipu label` and `quipu rename`: words for nodes and sessions.

use crate::args::{LabelArgs, RenameArgs};
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::note;
use quipu_host::session_named;

pub(crate) async fn run(args: &LabelArgs) -> Result<(), Failure> {
    let (_, engine) = engine(&args.store).await?;
    let found = quipu_host::resolve(&**engine.store(), &args.node, None).await?;
    let text = args.text.join(" ");
    engine.label(found.node, &text).await?;
    let done = if text.trim().is_empty() { "no longer has a label" } else { "is labelled" };
    note(format!("{} {done}.", found.node.short()));
    Ok(())
}

pub(crate) async fn rename(args: &RenameArgs) -> Result<(), Failure> {
    let (_, engine) = engine(&args.store).await?;
    let row = session_named(&**engine.store(), &args.session).await?;
    let name = args.name.join(" ");
    engine.rename(&row.id, &name).await?;
    let done = if name.trim().is_empty() { "no longer has a name" } else { "is renamed" };
    note(format!("Session {} {done}.", row.id));
    Ok(())
}
