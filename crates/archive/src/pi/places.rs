//! Where session files are.

use std::path::{Path, PathBuf};

use crate::ArchiveError;

/// Directories inside each other at most.
const DEEPEST: usize = 8;

/// Where this agent keeps its sessions: `PI_CODING_AGENT_SESSION_DIR`, else `sessionDir` of its settings, else
/// `sessions` in its directory, which is `PI_CODING_AGENT_DIR` or `.pi/agent` in the home directory. `None` when
/// there is no home.
pub fn sessions_dir(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let home = env("HOME");
    let expanded = |path: PathBuf| match (path.strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    };
    if let Some(dir) = env("PI_CODING_AGENT_SESSION_DIR") {
        return Some(expanded(dir));
    }
    let agent = match env("PI_CODING_AGENT_DIR") {
        Some(dir) => expanded(dir),
        None => home.clone()?.join(".pi/agent"),
    };
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Settings {
        session_dir: Option<PathBuf>,
    }
    let settings = std::fs::read(agent.join("settings.json")).ok();
    let settings = settings.and_then(|text| serde_json::from_slice::<Settings>(&text).ok());
    Some(match settings.and_then(|settings| settings.session_dir) {
        Some(dir) => expanded(dir),
        None => agent.join("sessions"),
    })
}

/// The session files of a directory.
#[derive(Debug, Default)]
pub struct SessionFiles {
    /// `*.jsonl`, also in directories within, by name.
    pub files: Vec<PathBuf>,
    /// Directories that could not be read, and why.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

/// Finds the session files of `path`: itself when it is no directory. Links to directories are not followed.
///
/// # Errors
/// `File` when `path` is not there or cannot be read.
pub fn session_files(path: &Path) -> Result<SessionFiles, ArchiveError> {
    files_with(path, &["jsonl"])
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
