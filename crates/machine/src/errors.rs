//! What goes wrong when effects are carried out.

/// Why nobody can leave a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KillError {
    /// Something that its calls left running does not end.
    #[error("what it left running could not be ended.")]
    StillRunning,
}

/// Why a person's line did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellRunError {
    /// There is no shell, or no way to start it.
    #[error("{why}")]
    NotStarted {
        /// What happened.
        why: String,
    },
    /// Whoever runs lines broke down.
    #[error("the program failed inside; this is a bug of it")]
    Broken,
}
