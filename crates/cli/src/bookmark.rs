//! `quipu bookmark`: names for nodes.

use std::io::Write as _;

use clap::Args;
use quipu::Bookmark;

use crate::args::StoreArg;
use crate::exit::Failure;
use crate::fork::engine;
use crate::home::home;
use crate::print::{ago, note, one_line, printable};
use crate::undo::chosen;
use quipu_host::now;

#[derive(Debug, Args)]
pub(crate) struct BookmarkArgs {
    /// The name, at most 256 bytes. Default: list all bookmarks.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The node to name. Default: the last node of the newest session of this directory.
    #[arg(value_name = "NODE", conflicts_with = "rm")]
    node: Option<String>,
    /// Remove the name. The node is kept.
    #[arg(long, requires = "name")]
    rm: bool,
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Says that the list is empty, to people.
fn say_none(args: &BookmarkArgs) {
    if !args.json {
        note(
            "There are no bookmarks yet. `quipu bookmark NAME` names the last node of this directory's session.",
        );
    }
}

pub(crate) async fn run(args: &BookmarkArgs) -> Result<(), Failure> {
    if args.name.is_none() && home(&args.store)?.existing_store().await?.is_none() {
        say_none(args);
        return Ok(());
    }
    let (_, engine) = engine(&args.store).await?;
    let store = engine.store();
    let Some(name) = &args.name else {
        let bookmarks = engine.bookmarks().await?;
        if bookmarks.is_empty() {
            say_none(args);
            return Ok(());
        }
        let mut out = crate::console::stdout();
        for Bookmark { name, node, owner, at } in bookmarks {
            if args.json {
                let value = serde_json::json!({ "name": name, "node": node, "owner": owner, "at": at });
                writeln!(out, "{value}")?;
            } else {
                let when = at.map_or_else(|| "by another program".into(), |at| ago(now(), at));
                writeln!(out, "{}  {}  {when}", node.short(), one_line(&name, 60))?;
            }
        }
        return Ok(());
    };
    if args.rm {
        let node = engine.remove_bookmark(name).await?;
        if args.json {
            let value = serde_json::json!({ "name": name, "node": node, "removed": true });
            return Ok(writeln!(crate::console::stdout(), "{value}")?);
        }
        note(format!("Removed bookmark `{}`; it named {}.", printable(name), node.short()));
        return Ok(());
    }
    let node = match &args.node {
        Some(node) => quipu_host::last_node(&**store, node).await?,
        None => {
            let row = chosen(&engine, None).await?;
            row.head.unwrap_or(row.base)
        }
    };
    let Bookmark { name, node, owner, at } = engine.bookmark(name, node).await?;
    if args.json {
        let value = serde_json::json!({ "name": name, "node": node, "owner": owner, "at": at });
        return Ok(writeln!(crate::console::stdout(), "{value}")?);
    }
    note(format!("Bookmark `{}` names {}.", printable(&name), node.short()));
    Ok(writeln!(crate::console::stdout(), "{node}")?)
}
