//! The profile of a session.

use clap::ValueEnum;
use quipu_protocol::SessionProfile;

/// How the model's answers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// The whole reply is one command of the shell, and its result is the next message; `exit` ends the run
    Shell,
}

impl From<ProfileArg> for SessionProfile {
    fn from(arg: ProfileArg) -> Self {
        match arg {
            ProfileArg::Shell => Self::Shell,
        }
    }
}
