//! Where session files are.

use std::path::{Path, PathBuf};

use crate::ArchiveError;
use crate::session_files::{SessionFiles, files_with};

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

/// Finds the session files of `path`: itself when it is no directory. Links to directories are not followed.
///
/// # Errors
/// `File` when `path` is not there or cannot be read.
pub fn session_files(path: &Path) -> Result<SessionFiles, ArchiveError> {
    files_with(path, &["jsonl"])
}
