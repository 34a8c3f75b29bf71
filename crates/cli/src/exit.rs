//! How the program ends.

use std::fmt;
use std::process::ExitCode;

/// An exit code; the table is in the help and in `docs/exit-codes.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Credential = 3,
    Store = 4,
    Limit = 5,
    Departed = 6,
    Hangup = 129,
    Interrupted = 130,
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What went wrong, for people, and the code to leave with. An empty message was told already.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What has to be answered first, where whoever called can ask: see [`crate::args::Task::answers`].
    pub(crate) asks: Option<quipu_tui::Question>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), asks: None }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Leaves without a word: stdout is closed, as `head` does.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new(), asks: None }
    }

    /// Nothing is done before this is answered.
    pub(crate) fn asks(question: quipu_tui::Question, message: impl fmt::Display) -> Self {
        Self { asks: Some(question), ..Self::usage(message) }
    }
}

impl From<quipu_store::StoreError> for Failure {
    fn from(error: quipu_store::StoreError) -> Self {
        Self::new(Exit::Store, error)
    }
}

impl From<quipu::OpenError> for Failure {
    fn from(error: quipu::OpenError) -> Self {
        let exit = match &error {
            quipu::OpenError::Store(_) | quipu::OpenError::Broken { .. } => Exit::Store,
            quipu::OpenError::Unsettled { .. } => Exit::Failed,
            quipu::OpenError::NoSuchSession(_)
            | quipu::OpenError::NoSuchNode(_)
            | quipu::OpenError::Incomplete { .. }
            | quipu::OpenError::BadId(_)
            | quipu::OpenError::Exists(_)
            | quipu::OpenError::BadTool(_) => Exit::Usage,
        };
        Self::new(exit, error)
    }
}

impl From<quipu::RecordingError> for Failure {
    fn from(error: quipu::RecordingError) -> Self {
        Self::usage(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Failed);
        }
        Self::failed(format!("input or output failed: {error}"))
    }
}
