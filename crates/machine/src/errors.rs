//! What goes wrong when effects are carried out.

/// Why nobody can leave a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KillError {
    /// Something that its calls left running does not end.
    #[error("a process that the run started did not end.")]
    StillRunning,
}

/// Why a shell line of a person has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellRunError {
    /// There is no shell, or no way to start it.
    #[error("{why}")]
    NotStarted {
        /// What happened.
        why: String,
    },
    /// It was started, and killed when its output or its end could not be read.
    #[error("{why}")]
    Lost {
        /// What happened.
        why: String,
    },
    /// The task that runs lines panicked. The line may have started.
    #[error("the shell runner panicked, so this line may have run, wholly or in part; this is a bug")]
    Broken,
}
