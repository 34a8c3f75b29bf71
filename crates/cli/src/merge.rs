//! `quipu merge`: what a branch came to, in another session.

use std::io::Write as _;

use clap::Args;
use quipu::MergeSide;

use crate::args::StoreArg;
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, one_line, printable};
use crate::undo::chosen;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The end of the branch: a node, a bookmark, or a session, which means where it stands.
    #[arg(value_name = "FROM")]
    from: String,
    /// The session that it goes into; the newest of this directory without it.
    #[arg(long, value_name = "SESSION")]
    into: Option<String>,
    /// Words of your own for the model, before what the branch came to.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// Where both sides changed a file: the model is told to keep that of the session that is merged into.
    #[arg(long, conflicts_with = "theirs")]
    ours: bool,
    /// Where both sides changed a file: the model is told that it shall be as the branch left it.
    #[arg(long)]
    theirs: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &MergeArgs) -> Result<(), Failure> {
    let (place, engine) = engine(&args.store).await?;
    let from = crate::show::last_node(&**engine.store(), &args.from).await?;
    let into = chosen(&engine, args.into.as_deref()).await?.id;
    let side = match (args.ours, args.theirs) {
        (true, _) => Some(MergeSide::Ours),
        (_, true) => Some(MergeSide::Theirs),
        (false, false) => None,
    };
    if !args.yes {
        let merge = engine.merge_of(from, &into).await?;
        let plan = format!(
            "branch {} ({}; {} file(s) changed, {} of them here, too) into session {into}",
            from.short(),
            one_line(&merge.conclusion, 60),
            merge.files.len(),
            merge.conflicts.len(),
        );
        confirm(&format!("Merge {plan}?"), &format!("{plan} is merged"), "not merged")?;
    }
    let (node, merge) = engine.merge(from, &into, &args.note, side).await?;
    if args.json {
        let value = serde_json::json!({
            "node": node, "session": into, "parents": [merge.head, from], "base": merge.base, "files": merge.files,
            "conflicts": merge.conflicts,
        });
        return Ok(writeln!(std::io::stdout(), "{value}")?);
    }
    for file in &merge.conflicts {
        note(format!("Both changed {}; files on disk are as they were.", printable(file)));
    }
    let store = place.store_flag();
    note(format!("Go on with `quipu -p --session {into}{store}`; `quipu undo {into}{store}` takes it back."));
    Ok(writeln!(std::io::stdout(), "{node}")?)
}
