//! The files of memories: what holds a text goes line by line, and the rest of the file stays.

use std::io::Write as _;
use std::path::Path;

use quipu_store::{EraseReport, FoundPlace, KeptReason, Needles};

use super::disk;
use super::files::FilesHolder;
use crate::Home;

/// Bytes of a file that is rewritten: no file of a memory has more.
const MOST: u64 = 1 << 20;

/// The memories of a home. Those of repositories and of other agents lie in files that belong to others.
pub(super) fn memory_files(home: &Home) -> FilesHolder {
    FilesHolder::erased_by("memory", crate::memory::memory_home(home).root(), rewritten)
}

/// Rewrites a file without the lines that hold what is looked for.
fn rewritten(_: &Path, file: &disk::DiskFile, needles: &Needles, erased: &mut EraseReport) {
    match without_lines(file, needles) {
        Ok(bytes) => erased.add(bytes),
        Err(error) => {
            let place = FoundPlace::File { path: file.path.clone(), line: None };
            let why = format!("it could not be rewritten: {error}; edit it by hand");
            erased.keep(place, KeptReason::Failed, why);
        }
    }
}

/// Takes the lines out that hold what is looked for; all of them where it stands in several lines. How many bytes went.
fn without_lines(file: &disk::DiskFile, needles: &Needles) -> std::io::Result<u64> {
    if file.bytes > MOST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    let bytes = std::fs::read(&file.path)?;
    let mut kept: Vec<u8> = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if !needles.are_in(line) {
            kept.extend(line);
        }
    }
    if needles.are_in(&kept) || kept.len() == bytes.len() {
        kept.clear();
    }
    let dir = file.path.parent().unwrap_or(&file.path);
    let mut aside = tempfile::Builder::new().prefix(".quipu-").tempfile_in(dir)?;
    aside.write_all(&kept)?;
    aside.as_file().sync_all()?;
    aside.persist(&file.path).map_err(|error| error.error)?;
    Ok((bytes.len() - kept.len()) as u64)
}
