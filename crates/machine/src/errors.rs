//! What goes wrong when effects are carried out.

/// Why nobody can leave a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClearError {
    /// Something that its calls left running does not end.
    #[error("a process that the run started did not end.")]
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
    #[error("the shell runner panicked; this is a bug")]
    Broken,
}
