//! What commands find in their environment beyond what all of a session find, by the node whose call starts them.

use std::path::Path;

use quipu_protocol::NodeId;

/// A command that is about to start.
#[derive(Debug, Clone, Copy)]
pub struct CommandOrigin<'a> {
    /// The answer of the model that holds the call.
    pub node: NodeId,
    /// The directory of the session.
    pub cwd: &'a Path,
    /// What the engine changes in the inherited environment: name and value; `None` removes.
    pub env: &'a [(String, Option<String>)],
}

/// Adds to the environment of commands of tools. Lines that a person types are no such commands.
pub trait CommandEnvironment: Send + Sync {
    /// Whether commands may get anything. Asked before a shell is started ahead of its call, which is not done where they may:
    /// the node is not known by then.
    fn applies(&self) -> bool;

    /// The variables of one command. Called outside the tasks of sessions, so it may read files.
    ///
    /// # Errors
    /// Why there are none, on one line for people. The command runs without.
    fn variables(&self, origin: &CommandOrigin<'_>)
    -> Result<Vec<(String, String)>, CommandEnvironmentError>;
}

/// Why a command has not all of its variables.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommandEnvironmentError(pub String);
