//! Files of sessions, as they are found in directories.

use std::path::{Path, PathBuf};

use crate::ArchiveError;

/// Directories inside each other at most.
const DEEPEST: usize = 8;

/// The session files of a directory.
#[derive(Debug, Default)]
pub struct SessionFiles {
    /// `*.jsonl`, also in directories within, by name.
    pub files: Vec<PathBuf>,
    /// Directories that could not be read, and why.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

/// The same for files with one of these extensions; for all when there is none.
pub(crate) fn files_with(path: &Path, extensions: &[&str]) -> Result<SessionFiles, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let mut found = SessionFiles::default();
    if !std::fs::metadata(path).map_err(fail)?.is_dir() {
        found.files.push(path.to_owned());
        return Ok(found);
    }
    let mut open = vec![(path.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(fail(error)),
            Err(error) => {
                found.unreadable.push((dir, error));
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    found.unreadable.push((dir.clone(), error));
                    break;
                }
            };
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth + 1 < DEEPEST {
                    open.push((path, depth + 1));
                } else {
                    let error = std::io::Error::other(format!("more than {DEEPEST} directories deep"));
                    found.unreadable.push((path, error));
                }
            } else if extensions.is_empty()
                || path.extension().is_some_and(|found| extensions.iter().any(|one| found == *one))
            {
                found.files.push(path);
            }
        }
    }
    found.files.sort();
    Ok(found)
}
