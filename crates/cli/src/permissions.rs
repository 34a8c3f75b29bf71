//! `quipu permissions`.

use std::io::Write as _;
use std::path::Path;

use crate::console::current_dir;
use quipu::PermissionMode;
use quipu_host::{PermissionItem, Record};

use crate::args::{PermissionsAction, PermissionsArgs, StoreArg};
use crate::exit::Failure;
use crate::home::home;
use crate::print::{note, printable};

/// The mode that a command of the program sets, if it sets one.
pub(crate) fn mode_set_by(words: &[String]) -> Option<PermissionMode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["permissions", "set", mode] | ["permissions", mode] => quipu_host::mode_named(mode),
        _ => None,
    }
}

/// `quipu permissions`.
pub(crate) fn run(args: &PermissionsArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let cwd = current_dir()?;
    let record = Record::of(&home, &cwd);
    match &args.action {
        None | Some(PermissionsAction::List) => list(&record, args.json),
        Some(PermissionsAction::Set { mode }) => set(&record, &cwd, (*mode).into()),
        Some(PermissionsAction::Ask) => set(&record, &cwd, PermissionMode::Ask),
        Some(PermissionsAction::Workspace) => set(&record, &cwd, PermissionMode::Workspace),
        Some(PermissionsAction::Full) => set(&record, &cwd, PermissionMode::Full),
        Some(PermissionsAction::Accept { file }) => accept(&record, file),
        Some(PermissionsAction::Revoke { id }) => {
            if record.revoke(id)? {
                note(format!("{id} is revoked, also for open sessions"));
                return Ok(());
            }
            Err(Failure::usage(format!("there is no permission `{id}`; `quipu permissions list` lists them")))
        }
    }
}

fn accept(record: &Record, file: &Path) -> Result<(), Failure> {
    let path = quipu_host::accept_rules(record, file)?;
    note(format!(
        "{} is accepted in its current form, for this directory; new sessions read it",
        path.display()
    ));
    Ok(())
}

fn set(record: &Record, cwd: &Path, mode: PermissionMode) -> Result<(), Failure> {
    record.set(mode)?;
    note(format!("permissions of {} are now `{}`", cwd.display(), mode.word()));
    Ok(())
}

fn list(record: &Record, json: bool) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    for (directory, project) in &record.all()? {
        let mode = project.mode.unwrap_or_default().word();
        if json {
            let line = serde_json::json!({ "project": directory, "mode": mode, "entries": project.entries });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(out, "{mode:<10} {}", printable(directory))?;
        for entry in &project.entries {
            let cache;
            let (kind, what) = match &entry.what {
                PermissionItem::Directory { path } => ("directory", path.as_str()),
                PermissionItem::Grant { tool, subject } => (tool.as_str(), subject.as_str()),
                PermissionItem::Rules { path, .. } => ("rules", path.as_str()),
                PermissionItem::Settings { path, .. } => ("settings", path.as_str()),
                PermissionItem::Resources { path, used: true, .. } => ("skills", path.as_str()),
                PermissionItem::Resources { path, used: false, .. } => {
                    cache = format!("{path} (not used)");
                    ("skills", cache.as_str())
                }
                PermissionItem::Cache { variable, path, write } => {
                    let how = if *write { "written by commands" } else { "kept separate" };
                    cache = format!("{variable}={path} ({how})");
                    ("cache", cache.as_str())
                }
            };
            writeln!(
                out,
                "  {:<6} {:<10} {}",
                entry.id,
                printable(kind),
                printable(what).replace('\n', "\\n")
            )?;
        }
    }
    out.flush()?;
    Ok(())
}
