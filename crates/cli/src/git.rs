//! `quipu git`: the user's consent to trailers in the commits of a repository.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use quipu_host::commit_trailers::{NODE_TRAILER, Repository, TrailerConsent, TrailerState};

use crate::args::StoreArg;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{iso, note, printable};

/// Variables that commands of sessions have.
const OF_COMMANDS: [&str; 2] = ["QUIPU_PROCESS", "QUIPU_NODE"];

#[derive(Debug, Args)]
pub(crate) struct GitArgs {
    #[command(subcommand)]
    action: Option<GitAction>,
    /// Print JSON for programs: one object for each repository with a consent, then the one here.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum GitAction {
    /// Say whether commits name their node here, and in which other repositories.
    Status,
    /// From the next command of the model on, commits that its commands make in this repository name their node.
    Enable,
    /// Commits in this repository name no node any more. Those that exist stay as they are.
    Disable {
        /// Another repository, also one that is gone, as `quipu git` lists it.
        path: Option<PathBuf>,
    },
}

/// `quipu git`.
pub(crate) fn run(args: &GitArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let consent = TrailerConsent::of(&home);
    let here = Repository::of(&current_dir()?);
    match &args.action {
        None | Some(GitAction::Status) => status(&consent, here, args.json),
        Some(GitAction::Enable) => {
            // The consent is a person's: a command of the model, also one without confinement, gives none.
            if let Some(name) = OF_COMMANDS.iter().find(|name| std::env::var_os(name).is_some()) {
                return Err(Failure::usage(format!(
                    "A command that Quipu runs cannot enable trailers ({name} is set); run `quipu git enable` in a terminal of your own"
                )));
            }
            let here = here?;
            let shown = printable(&here.directory().to_string_lossy());
            note(match consent.enable(&here)? {
                true => format!(
                    "Commits that commands of the model make in {shown} get a trailer `{NODE_TRAILER}: …`, and `quipu blame` reads \
                     it. Sessions that are open may need to be opened again. `quipu git disable` ends it."
                ),
                false => format!("{shown} is enabled already"),
            });
            Ok(())
        }
        Some(GitAction::Disable { path }) => {
            let directory = match path {
                None => here?.directory().to_owned(),
                Some(path) => listed(&consent, path)?,
            };
            let shown = printable(&directory.to_string_lossy());
            note(match consent.disable(&directory)? {
                true => format!(
                    "{shown} is disabled, also for open sessions; commits that exist stay as they are"
                ),
                false => format!("{shown} is not enabled"),
            });
            Ok(())
        }
    }
}

/// The directory of a repository that is named by itself, by its worktree, or by anything within.
fn listed(consent: &TrailerConsent, path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path)?;
    let names = [path.clone(), path.join(".git")];
    if let Some(one) = consent.list()?.into_iter().find(|one| names.contains(&one.directory)) {
        return Ok(one.directory);
    }
    Ok(Repository::of(&path)?.directory().to_owned())
}

fn status(
    consent: &TrailerConsent,
    here: Result<Repository, quipu_host::Failure>,
    json: bool,
) -> Result<(), Failure> {
    let all = consent.list()?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let here = here.ok();
    let state = here.as_ref().map(|here| consent.state(here)).transpose()?;
    if json {
        for one in &all {
            let line = serde_json::json!({
                "type": "repository", "directory": one.directory, "since": one.since, "there": one.is_there(),
            });
            writeln!(out, "{line}")?;
        }
        let word = state.map(|state| match state {
            TrailerState::Enabled(_) => "enabled",
            TrailerState::Disabled => "disabled",
            TrailerState::Replaced => "replaced",
        });
        let line = serde_json::json!({
            "type": "here", "directory": here.as_ref().map(Repository::directory), "state": word,
        });
        writeln!(out, "{line}")?;
        return Ok(out.flush()?);
    }
    match here.as_ref().zip(state) {
        None => writeln!(out, "This directory is in no git repository that can be read.")?,
        Some((here, state)) => {
            let shown = printable(&here.directory().to_string_lossy());
            match state {
                TrailerState::Enabled(since) => writeln!(out, "{shown}: enabled since {}", iso(since))?,
                TrailerState::Disabled => writeln!(out, "{shown}: disabled; `quipu git enable` enables it")?,
                TrailerState::Replaced => writeln!(
                    out,
                    "{shown}: disabled; it was enabled for another repository at this path. `quipu git enable` enables this one"
                )?,
            }
        }
    }
    let others = all.iter().filter(|one| here.as_ref().is_none_or(|here| one.directory != here.directory()));
    for one in others {
        let gone = if one.is_there() { "" } else { "  (not there)" };
        writeln!(out, "{}  since {}{gone}", printable(&one.directory.to_string_lossy()), iso(one.since))?;
    }
    Ok(out.flush()?)
}
