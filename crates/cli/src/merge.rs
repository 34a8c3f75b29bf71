//! `quipu merge`: what a branch came to, in another session.

use std::io::Write as _;

use clap::Args;
use quipu::{MergeSide, Merged};
use quipu_store::SessionRow;

use crate::args::{RestoreArgs, StoreArg};
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::fork::engine;
use crate::print::{note, one_line, printable};
use crate::restore_files;
use crate::undo::chosen;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The end of the branch: a node, a bookmark, or a session for its last node.
    #[arg(value_name = "FROM")]
    from: String,
    /// The session to merge into. Default: the newest of this directory.
    #[arg(long, value_name = "SESSION")]
    into: Option<String>,
    /// Text for the model, placed before the outcome of the branch.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    note: String,
    /// If both sides changed a file, keep the version of the session.
    #[arg(long, conflicts_with = "theirs")]
    ours: bool,
    /// If both sides changed a file, take the version of the branch.
    #[arg(long)]
    theirs: bool,
    #[command(flatten)]
    restore: RestoreArgs,
    /// Print JSON for programs: one object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &MergeArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let from = quipu_host::last_node(&**engine.store(), &args.from).await?;
    let SessionRow { id: into, cwd, .. } = chosen(&engine, args.into.as_deref()).await?;
    let side = match (args.ours, args.theirs) {
        (true, _) => Some(MergeSide::Ours),
        (_, true) => Some(MergeSide::Theirs),
        (false, false) => None,
    };
    let RestoreArgs { files: with_files, dry_run, yes, overwrite } = args.restore;
    if !yes && !dry_run {
        let merge = engine.merge_of(from, &into).await?;
        let plan = format!(
            "branch {} ({}; {} file(s) changed, {} of them here too) into session {into}",
            from.short(),
            one_line(&merge.conclusion, 60),
            merge.files.len(),
            merge.conflicts.len(),
        );
        confirm(&format!("Merge {plan}?"), &format!("{plan} is merged"), "not merged")?;
    }
    let how = if with_files {
        let how = restore_files::options(&home, &cwd, overwrite)?;
        let plan = engine.preview_merge_files(from, &into, side, &how).await?;
        let Some(how) = restore_files::agree(how, plan, &args.restore, args.json)? else { return Ok(()) };
        Some(how)
    } else {
        None
    };
    let done = engine.merge_along(from, &into, &args.note, side, how.as_ref()).await;
    let Merged { node, merge, plan, problems } = done.map_err(restore_files::shown_if_stale)?;
    restore_files::warn(&problems);
    if args.json {
        let value = serde_json::json!({
            "node": node, "session": into, "parents": [merge.head, from], "base": merge.base, "files": merge.files,
            "conflicts": merge.conflicts, "changed": how.is_some().then_some(plan), "problems": problems,
        });
        return Ok(writeln!(crate::console::stdout(), "{value}")?);
    }
    for file in &merge.conflicts {
        let stays = if how.is_some() { "" } else { "; files on disk are unchanged" };
        note(format!("Both changed {}{stays}.", printable(file)));
    }
    let store = crate::home::store_flag(&home);
    let files_flag = if how.is_some() { " --files" } else { "" };
    note(format!(
        "Continue with `quipu -p --session {into}{store}`; `quipu undo {into}{files_flag}{store}` undoes the merge."
    ));
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}
