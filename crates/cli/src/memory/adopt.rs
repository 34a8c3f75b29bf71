//! `quipu memory adopt`: the memory of a project that was moved or renamed.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use quipu_host::memory::memory_home;
use quipu_memory::{LostMemory, MemoryHome, project_root};
use serde_json::json;

use crate::args::OutArgs;
use crate::confirm::confirm;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{note, printable};

/// Directories that are named.
const NAMED: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The directory that the project had, as `quipu memory status` names it.
    #[arg(value_name = "DIR")]
    former: PathBuf,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    out: OutArgs,
}

pub(super) fn adopt(args: &AdoptArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let project = project_root(&current_dir()?);
    let memory = memory_home(&home);
    // Links on the way to it are not there any more either.
    let former = std::path::absolute(&args.former)?;
    if !args.yes {
        let question = format!(
            "Give {} the memory of {}? Notes that were written there are read here from now on.",
            printable(&project.to_string_lossy()),
            printable(&former.to_string_lossy())
        );
        confirm(&question, "the memory is adopted", "nothing was adopted")?;
    }
    let place = memory.adopt(&project, &former).map_err(quipu_host::Failure::from)?;
    if args.out.json {
        let line = json!({ "adopted": former, "project": project, "memory": place.id, "root": place.root });
        writeln!(crate::console::stdout(), "{line}")?;
    } else {
        note(format!("Memory is on in {}: {}", project.display(), place.root.display()));
    }
    Ok(())
}

/// Memories of projects that are not where they were, where this project has none.
pub(super) fn lost(memory: &MemoryHome, project: &std::path::Path) -> Result<Vec<LostMemory>, Failure> {
    let choices = memory.choices().map_err(quipu_host::Failure::from)?;
    if choices.of(project).is_some_and(|choice| choice.on) {
        return Ok(Vec::new());
    }
    Ok(memory.lost(project).map_err(quipu_host::Failure::from)?)
}

pub(super) fn tell_lost(lost: &[LostMemory], out: &mut impl std::io::Write) -> Result<(), Failure> {
    for LostMemory { project, .. } in lost.iter().take(NAMED) {
        let former = project.to_string_lossy();
        writeln!(
            out,
            "The project that was in {0} is not there any more. If it is this one, `quipu memory adopt {0}` brings its memory here.",
            printable(&former)
        )?;
    }
    Ok(())
}
