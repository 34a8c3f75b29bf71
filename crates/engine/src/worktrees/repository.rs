//! The repository around a directory, as far as its files lead back to it.

use std::path::{Path, PathBuf};

use quipu_workspace::{Git, file_key, git_directories};
use tokio_util::sync::CancellationToken;

use super::WorktreeError;

/// Where a repository is.
pub(super) struct Repository {
    /// The directory with its `.git`.
    pub(super) top: PathBuf,
    /// The directory of its objects and refs.
    pub(super) common: PathBuf,
    /// The directory that was asked about, below the top.
    pub(super) prefix: PathBuf,
}

/// The repository around a directory. Files in the workspace say where it is, so it must be in there, or lead back.
pub(super) fn repository(cwd: &Path, cancel: &CancellationToken) -> Result<Repository, WorktreeError> {
    let cwd = file_key(cwd);
    let none = || WorktreeError::NoRepository(cwd.clone());
    let top = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).ok_or_else(none)?;
    let dot = top.join(".git");
    let words = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
    let common = file_key(Path::new(&Git::reading(top, cancel).line(&words)?));
    let is_own = match dot.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        true => common == dot,
        false => git_directories(top).contains(&common),
    };
    if !is_own {
        return Err(WorktreeError::Elsewhere(top.to_path_buf(), common));
    }
    let prefix = cwd.strip_prefix(top).map(Path::to_path_buf).map_err(|_| none())?;
    Ok(Repository { top: top.to_path_buf(), common, prefix })
}
