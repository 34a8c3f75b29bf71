//! A session's file, written again from the graph.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::ArchiveError;
use quipu_archive::pi::export;
use quipu_protocol::SessionId;
use quipu_store::{Graph, SessionQuery};
use serde::Serialize;

use crate::error::HelperError;

/// The end of the name of a file that is not whole yet.
const UNFINISHED: &str = ".tmp";
/// Names that are tried for a copy of the file that was there.
const NAMES: u32 = 100;

/// What became of the file.
#[derive(Debug, Serialize)]
pub(crate) struct RestoredFile {
    file: PathBuf,
    /// Entries that it has now.
    entries: u64,
    /// Where the file went that was there before.
    kept: Option<PathBuf>,
}

/// Writes the file of a session. What was there stays beside it under another name; the new one takes its place whole.
pub(crate) async fn restore(
    store: &Arc<dyn Graph>,
    session: &SessionId,
    file: &Path,
) -> Result<RestoredFile, HelperError> {
    let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
    let Some(row) = store.sessions(query).await?.into_iter().next() else {
        return Err(HelperError::NotOpen(session.to_string()));
    };
    let fail = |doing| move |source| ArchiveError::File { path: file.to_owned(), doing, source };
    remove_leftovers(file);
    let new = beside(file, &format!("{}{UNFINISHED}", std::process::id()));
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(fail("made"))?;
    let written = async {
        // For as long as somebody writes it, it is no leftover. Not every file system has locks.
        match out.lock() {
            Err(error) if error.kind() != std::io::ErrorKind::Unsupported => {
                return Err(fail("locked")(error).into());
            }
            _ => {}
        }
        let mut out = BufWriter::new(&out);
        let summary = export(&**store, &row, &mut out).await?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(fail("written"))?;
        Ok::<_, HelperError>(summary)
    };
    let done = match written.await {
        Ok(summary) => take_place(&new, file).map(|kept| (summary, kept)).map_err(HelperError::from),
        Err(error) => Err(error),
    };
    match done {
        Ok((summary, kept)) => Ok(RestoredFile { file: file.to_owned(), entries: summary.entries, kept }),
        Err(error) => {
            // It is ours, and nobody reads it.
            drop(std::fs::remove_file(&new));
            Err(error)
        }
    }
}

/// Puts the new file in the place of the old one, which gets another name first.
fn take_place(new: &Path, file: &Path) -> Result<Option<PathBuf>, ArchiveError> {
    let fail = |doing| move |source| ArchiveError::File { path: file.to_owned(), doing, source };
    let mut kept = None;
    if file.symlink_metadata().is_ok() {
        let names = (1..=NAMES).map(|number| beside(file, &format!("torn-{number}")));
        let Some(name) = names.into_iter().find(|name| name.symlink_metadata().is_err()) else {
            return Err(fail("kept under another name")(std::io::ErrorKind::AlreadyExists.into()));
        };
        // A link, so that the file is never without a name.
        std::fs::hard_link(file, &name).map_err(fail("kept under another name"))?;
        kept = Some(name);
    }
    if let Err(error) = std::fs::rename(new, file) {
        // The file has its own name still.
        kept.into_iter().for_each(|name| drop(std::fs::remove_file(name)));
        return Err(fail("replaced")(error));
    }
    if let Some(directory) = file.parent().and_then(|directory| File::open(directory).ok()) {
        directory.sync_all().map_err(fail("written"))?;
    }
    Ok(kept)
}

/// Removes what helpers left beside the file that were killed while they wrote it.
fn remove_leftovers(file: &Path) {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else { return };
    let name = name.to_string_lossy();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let found = found.to_string_lossy();
        let process = found.strip_prefix(&*name).and_then(|rest| rest.strip_prefix('.'));
        let process = process.and_then(|rest| rest.strip_suffix(UNFINISHED));
        let is_ours = process.is_some_and(|process| process.parse::<u32>().is_ok());
        let is_file = is_ours && entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && File::open(entry.path()).is_ok_and(|left| left.try_lock().is_ok()) {
            // What cannot be removed is in nobody's way.
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}
