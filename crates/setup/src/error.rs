//! What can go wrong.

use std::path::{Path, PathBuf};

use crate::edit::EditError;
use crate::json::line_of;

/// Why nothing was changed, or not all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file is not valid.
    #[error("{path}: line {line}: {what}; correct it first, nothing was changed")]
    Syntax {
        /// The file.
        path: PathDisplay,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A value of a file cannot hold ours.
    #[error("{path}: `{name}` cannot hold the entry, it is in another form; add it by hand")]
    Shape {
        /// The file.
        path: PathDisplay,
        /// The names of the value.
        name: String,
    },
    /// A change could not be taken back exactly.
    #[error("{path} is written in a way that a change could not be undone exactly; add the entry by hand")]
    Unfaithful {
        /// The file.
        path: PathDisplay,
    },
    /// A file must not be written.
    #[error("{path} {why}; nothing was changed")]
    Refused {
        /// The file.
        path: PathDisplay,
        /// Why.
        why: String,
    },
    /// A file is not as it was shown.
    #[error("{path} was changed in the meantime; nothing was written to it, try again")]
    Concurrent {
        /// The file.
        path: PathDisplay,
    },
    /// Another setup is under way.
    #[error("another setup is running ({path} is locked); try again when it has ended")]
    Busy {
        /// The lock.
        path: PathDisplay,
    },
    /// The ledger cannot be used.
    #[error("{path} cannot be used: {why}; move it away, what it lists is then found by its content")]
    Ledger {
        /// The ledger.
        path: PathDisplay,
        /// Why.
        why: String,
    },
    /// Input or output failed.
    #[error("{path} cannot be {action}: {source}")]
    Io {
        /// The file.
        path: PathDisplay,
        /// What failed, such as `written`.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// A path in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDisplay(pub PathBuf);

impl std::fmt::Display for PathDisplay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(formatter)
    }
}

impl From<&Path> for PathDisplay {
    fn from(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl SetupError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, action, source }
    }

    pub(crate) fn refused(path: &Path, why: impl Into<String>) -> Self {
        Self::Refused { path: path.into(), why: why.into() }
    }

    pub(crate) fn edit(path: &Path, text: &str, error: EditError) -> Self {
        let path = path.into();
        match error {
            EditError::Syntax { at, what } => Self::Syntax { path, line: line_of(text, at), what },
            EditError::Shape(name) if name.is_empty() => {
                Self::Syntax { path, line: 1, what: "it is not an object".to_owned() }
            }
            EditError::Shape(name) => Self::Shape { path, name },
            EditError::Unfaithful => Self::Unfaithful { path },
        }
    }
}
