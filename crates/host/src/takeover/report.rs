//! What became of the parts of a state directory.

use std::path::PathBuf;

/// A part of a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePart {
    /// A file or directory in it.
    Directory,
    /// An agent.
    Agent,
    /// A conversation and the session that it has.
    Conversation,
    /// A credential.
    Credential,
    /// What is approved of commands.
    Approval,
    /// A job.
    Job,
}

impl StatePart {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Directory => "file",
            Self::Agent => "agent",
            Self::Conversation => "conversation",
            Self::Credential => "credential",
            Self::Approval => "approval",
            Self::Job => "job",
        }
    }
}

/// What became of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateReport {
    /// What it is.
    pub part: StatePart,
    /// The file that it is in.
    pub file: PathBuf,
    /// Its name there; empty where the whole file is meant.
    pub key: String,
    /// The outcome.
    pub outcome: StateOutcome,
}

/// The outcome for a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOutcome {
    /// It was taken over: what it is here.
    Added(String),
    /// It is so already: what it is here.
    Same(String),
    /// There is another one here, which stays: which.
    Kept(String),
    /// It has no counterpart, or cannot be taken: why.
    Left(String),
    /// It was taken without a part, or otherwise than it was: how.
    Note(String),
    /// It could not be read or written: why.
    Failed(String),
}

impl StateOutcome {
    /// Its word: `added`, `same`, `kept`, `left`, `note`, `failed`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Same(_) => "same",
            Self::Kept(_) => "kept",
            Self::Left(_) => "left",
            Self::Note(_) => "note",
            Self::Failed(_) => "failed",
        }
    }

    /// What it says.
    pub fn text(&self) -> &str {
        match self {
            Self::Added(text)
            | Self::Same(text)
            | Self::Kept(text)
            | Self::Left(text)
            | Self::Note(text)
            | Self::Failed(text) => text,
        }
    }
}
