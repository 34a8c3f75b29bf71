//! Which sessions a client may see.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_history::{Projects, Sight};

/// What the user's setting allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScopeSetting {
    /// Sessions of the client's roots, or of the directory of the server, and of those below.
    #[default]
    Directory,
    /// Every session.
    All,
}

/// The sessions that a client may see: those that work in one of these directories or below it.
#[derive(Clone)]
pub(crate) struct Reach {
    /// None of them lies in another; `None` for every session.
    directories: Option<Vec<PathBuf>>,
    sight: Sight,
}

impl Reach {
    /// Every session.
    pub(crate) fn everything() -> Self {
        Self { directories: None, sight: Sight::Everything }
    }

    /// Sessions of these directories, without links, and of those below. At least one is named.
    pub(crate) fn of(directories: &[PathBuf]) -> Self {
        let mut kept: Vec<PathBuf> = Vec::new();
        let mut sorted = directories.to_vec();
        // A directory comes before what lies in it.
        sorted.sort();
        for directory in sorted {
            if !kept.iter().any(|above| directory.starts_with(above)) {
                kept.push(directory);
            }
        }
        let own = kept.first().map(|first| first.to_string_lossy().into_owned());
        // An empty name shows nothing.
        let projects = Projects::new(own.unwrap_or_default());
        kept.iter().for_each(|directory| projects.permit(&directory.to_string_lossy()));
        let sight = Sight::Project { projects: Arc::new(projects), head: Arc::new(|| None) };
        Self { directories: Some(kept), sight }
    }

    pub(crate) fn sight(&self) -> &Sight {
        &self.sight
    }

    /// The directories to ask the store about, one after another; one `None` for every session.
    pub(crate) fn projects(&self) -> Vec<Option<String>> {
        match &self.directories {
            None => vec![None],
            Some(some) => {
                some.iter().map(|directory| Some(directory.to_string_lossy().into_owned())).collect()
            }
        }
    }

    /// Whether a session that works in this directory may be seen.
    pub(crate) fn shows(&self, cwd: &str) -> bool {
        self.holds(Path::new(cwd))
    }

    /// Whether a file, by its path without links, may be looked at.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        let Some(directories) = &self.directories else { return true };
        directories.iter().any(|directory| path.starts_with(directory))
    }

    /// Where a relative path begins.
    pub(crate) fn base(&self) -> Option<&Path> {
        self.directories.as_ref()?.first().map(PathBuf::as_path)
    }

    /// In words, for results.
    pub(crate) fn words(&self) -> String {
        match self.directories.as_deref() {
            None => "every directory".into(),
            Some([]) => "no directory".into(),
            Some([one]) => format!("{} and below", one.display()),
            Some([one, rest @ ..]) => format!("{} and below, and {} more", one.display(), rest.len()),
        }
    }
}
