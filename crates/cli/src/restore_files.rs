//! Files that go with a jump: what would be changed is shown, and somebody agrees.

use std::io::Write as _;

use quipu::{ChangeError, Engine, FileConflict, FilePlan, FilesError, JumpedWithFiles, RestoreFiles};
use quipu_protocol::{FileState, NodeId};

use crate::args::RestoreArgs;
use crate::confirm::asked;
use crate::exit::Failure;
use crate::print::{Paint, note, printable};
use quipu_host::Home;

/// How files go along with a session that works in `cwd`: there, and in the directories that were added for it.
pub(crate) fn options(home: &Home, cwd: &str, overwrite: bool) -> Result<RestoreFiles, Failure> {
    let add_dirs = quipu_host::added_directories(home, std::path::Path::new(cwd))?;
    let (own, kept) = (Some(home.dir.clone()), home.config().files);
    Ok(RestoreFiles { overwrite, add_dirs, own, kept, ..RestoreFiles::default() })
}

/// Shows what would be changed.
pub(crate) fn show(plan: &FilePlan) {
    note(lines(plan, Paint::stderr()).join("\n"));
}

/// Prints what would be changed, and no more than that is wanted.
pub(crate) fn print(plan: &FilePlan, json: bool) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    if json {
        writeln!(out, "{}", serde_json::json!({ "files": plan }))?;
        return Ok(());
    }
    for line in lines(plan, Paint::stdout()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Tells what people should know of files.
pub(crate) fn warn(problems: &[String]) {
    for problem in problems {
        note(format!("warning: {}", printable(problem)));
    }
}

/// What is said at the place.
#[derive(Clone, Copy)]
pub(crate) enum Words<'a> {
    Label(Option<&'a str>),
    /// A message of the session to itself.
    Message(&'a str),
}

/// Shows what would be changed, and asks. How it is done then; `None` when it was only to be shown.
pub(crate) fn agree(
    how: RestoreFiles,
    plan: FilePlan,
    files: &RestoreArgs,
    json: bool,
) -> Result<Option<RestoreFiles>, Failure> {
    if files.dry_run {
        print(&plan, json)?;
        return Ok(None);
    }
    if !plan.is_empty() {
        show(&plan);
    }
    let conflicts = plan.conflicts().count();
    if conflicts > 0 && !files.overwrite {
        return Err(Failure::failed(format!(
            "{conflicts} of these files (marked with `!`) would lose content that cannot be restored; nothing was changed. `--overwrite` replaces them anyway; going back restores what could be saved"
        )));
    }
    if !plan.changes.is_empty() && !files.yes && !agreed(plan.shown().count())? {
        return Err(Failure::failed("canceled; nothing was changed"));
    }
    Ok(Some(RestoreFiles { agreed: Some(plan), ..how }))
}

/// Shows what would be changed, asks, and goes there. `None` when it was only to be shown.
pub(crate) async fn jump(
    home: &Home,
    engine: &Engine,
    node: NodeId,
    words: Words<'_>,
    files: &RestoreArgs,
    json: bool,
) -> Result<Option<JumpedWithFiles>, Failure> {
    let session = engine.session_to_jump(node).await?;
    let cwd = quipu_host::session_named(&**engine.store(), session.as_str()).await?.cwd;
    let how = options(home, &cwd, files.overwrite)?;
    let plan = match words {
        Words::Label(_) => engine.preview_files(node, &how).await?,
        Words::Message(_) => engine.preview_tobe_files(node, &how).await?,
    };
    let Some(how) = agree(how, plan, files, json)? else { return Ok(None) };
    let done = match words {
        Words::Label(label) => engine.jump_with_files(node, label, &how).await,
        Words::Message(message) => engine.tobe_with_files(node, message, &how).await,
    };
    let done = done.map_err(shown_if_stale)?;
    warn(&done.problems);
    Ok(Some(done))
}

/// Where files are no longer as they were when they were looked at: how they are now.
pub(crate) fn shown_if_stale(error: ChangeError) -> ChangeError {
    if let ChangeError::Files(FilesError::Stale(plan)) = &error {
        show(plan);
    }
    error
}

/// One line for each file.
fn lines(plan: &FilePlan, paint: Paint) -> Vec<String> {
    if plan.is_empty() {
        return vec!["No files would change.".into()];
    }
    let changes = plan.shown().map(|change| {
        let sign = match (&change.before, &change.after) {
            (FileState::Absent, _) => "+",
            (_, FileState::Absent) => "-",
            (_, _) => "~",
        };
        let is_directory = change.before.is_directory() || change.after.is_directory();
        let what = format!("{sign} {}{}", printable(&change.path), if is_directory { "/" } else { "" });
        let shown = match (&change.after, &change.before) {
            (FileState::File { size, mode, .. }, FileState::File { mode: old, .. }) if old != mode => {
                format!("{size} bytes, mode {mode:o} (now {old:o})")
            }
            (FileState::File { size, .. }, _) => format!("{size} bytes"),
            (FileState::Link { target }, _) => format!("link to {}", printable(target)),
            (FileState::Directory { .. }, _) => "empty directory".into(),
            (FileState::Absent | FileState::Unknown { .. }, _) => "removed".into(),
        };
        match change.conflict {
            None => format!("  {what}  {}", paint.dim(&shown)),
            Some(FileConflict::Changed) => {
                format!("{} {what}  {shown}; changed since then by somebody else", paint.red("!"))
            }
            Some(FileConflict::Lost(why)) => {
                format!("{} {what}  {shown}; its current content would be lost: {why}", paint.red("!"))
            }
        }
    });
    let stays = plan.stays().map(|line| paint.dim(&format!("  {}", printable(&line))));
    changes.chain(stays).collect()
}

/// Asks whoever sits at the terminal.
fn agreed(files: usize) -> Result<bool, Failure> {
    let nobody = || {
        Failure::usage(format!(
            "{files} files would change, and nobody is here to confirm; `--yes` changes them, `--dry-run` only lists them. Nothing was changed"
        ))
    };
    asked(&format!("Change these {files} files?"))?.ok_or_else(nobody)
}
