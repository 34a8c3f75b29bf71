//! Which memories there are.

use std::path::PathBuf;

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The user's own: for every project.
    User,
    /// Of one project, below the user's own directory.
    Project,
    /// A directory of another agent's form that is used where it lies.
    Workspace,
    /// In the files of a repository: read, never written, and untrusted until a person accepts it.
    Repository,
}

impl MemoryKind {
    /// What stands before the paths of its files where a model names them.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::User => "user:",
            Self::Repository => "repository:",
            Self::Project | Self::Workspace => "",
        }
    }
}

/// A memory and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryPlace {
    /// A name that is the same in every process: `user`, or one made of the project.
    pub id: String,
    /// Whose it is.
    pub kind: MemoryKind,
    /// Its directory: `MEMORY.md`, `USER.md`, `DREAMS.md` and `memory/` lie there.
    pub root: PathBuf,
}
