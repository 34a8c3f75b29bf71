//! `quipu memory on` and `off`.

use std::io::Write as _;

use quipu_host::memory::memory_home;
use quipu_memory::files::list_files;
use quipu_memory::{MemoryHome, project_root, project_tree};
use serde_json::json;

use super::OnArgs;
use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::note;

pub(super) async fn on(args: &OnArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let cwd = current_dir()?;
    let project = project_root(&cwd);
    let workspace = match &args.workspace {
        Some(dir) => match dir.canonicalize() {
            Ok(real) if real.is_dir() => Some(real),
            Ok(_) => return Err(Failure::usage(format!("{} is not a directory", dir.display()))),
            Err(error) => return Err(Failure::usage(format!("{}: {error}", dir.display()))),
        },
        None => None,
    };
    let memory = memory_home(&home);
    if let (Some(root), Ok(own)) = (&workspace, memory.root().canonicalize())
        && (root.starts_with(&own) || own.starts_with(root))
    {
        return Err(Failure::usage(format!(
            "{} is where your own memories are; a workspace lies elsewhere",
            root.display()
        )));
    }
    let named = workspace.clone();
    memory
        .choose(&project, |choice| {
            choice.on = true;
            choice.workspace = named.or(choice.workspace.take());
        })
        .map_err(quipu_host::Failure::from)?;
    let places = memory.open(&cwd).map_err(quipu_host::Failure::from)?;
    if args.out.json {
        let roots: Vec<_> = places.iter().map(|place| place.root.to_string_lossy()).collect();
        writeln!(
            crate::console::stdout(),
            "{}",
            json!({ "on": true, "project": project, "memories": roots })
        )?;
        return Ok(());
    }
    note(format!("Memory is on in {}. New sessions read:", project.display()));
    for place in &places {
        note(format!("  {}", place.root.display()));
    }
    if !home.config().memory.enabled {
        note(
            "`memory.enabled` is false in your settings, so nothing is read; `quipu config unset memory.enabled` changes that.",
        );
    }
    let repository = MemoryHome::repository(&project_tree(&cwd));
    let unknown = workspace.is_some_and(|root| !list_files(&root).files.is_empty())
        || places.iter().any(|place| place.root == repository.root);
    if unknown {
        note("Lines that are there already count once you accept them: `quipu memory review`.");
    }
    note("Nothing is paid for it: no model is called in the background unless you set a budget.");
    Ok(())
}

pub(super) fn off(out: &OutArgs) -> Result<(), Failure> {
    let home = home(&out.store)?;
    let cwd = current_dir()?;
    let project = project_root(&cwd);
    let memory = memory_home(&home);
    memory.choose(&project, |choice| choice.on = false).map_err(quipu_host::Failure::from)?;
    if out.json {
        writeln!(crate::console::stdout(), "{}", json!({ "on": false, "project": project }))?;
    } else {
        note(format!("Memory is off in {}. Its files stay.", project.display()));
    }
    Ok(())
}
