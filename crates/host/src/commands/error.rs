//! What can go wrong with commands.

use std::fmt;

/// Why a command was not taken, or did not go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// The name is none.
    Name {
        /// The name as it was given, cut short.
        name: String,
    },
    /// What it says of itself cannot be listed.
    Spec {
        /// The name of the command.
        name: String,
    },
    /// A source or a registry has more commands than `limit`.
    TooMany {
        /// The name of the command.
        name: String,
        /// How many there may be.
        limit: usize,
    },
    /// Another has the name.
    Taken {
        /// The name that both commands have.
        name: String,
        /// Whose command it stays.
        kept: String,
        /// Whose is not used.
        refused: String,
    },
    /// There is no such command.
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Only the terminal can run it.
    OfTerminal {
        /// The name of the command.
        name: String,
    },
    /// It did not end in time.
    TimedOut {
        /// The name of the command.
        name: String,
        /// Where it comes from.
        origin: String,
        /// How long it had.
        seconds: u64,
    },
    /// The code of the command panicked; the session continues.
    Panicked {
        /// The name of the command.
        name: String,
        /// Where it comes from.
        origin: String,
    },
    /// It gave too much.
    TooLarge {
        /// The name of the command.
        name: String,
        /// Where it comes from.
        origin: String,
        /// Bytes at most.
        limit: usize,
    },
    /// It says that it failed.
    Failed {
        /// The name of the command.
        name: String,
        /// Where it comes from.
        origin: String,
        /// The reason, in the command's words.
        why: String,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name } => {
                write!(f, "`{name}` is not a valid command name: use 1 to 64 of a-z, 0-9, `:`, `_` and `-`")
            }
            Self::Spec { name } => write!(
                f,
                "the command /{name} is not used: its help, arguments and source must each be one line of at most 200 \
                 characters, and help and source not empty"
            ),
            Self::TooMany { name, limit } => {
                write!(f, "the command /{name} is not used: the limit of {limit} commands is reached")
            }
            Self::Taken { name, kept, refused } => {
                write!(
                    f,
                    "the command /{name} of {refused} is not used: {kept} already has a command of this name"
                )
            }
            Self::Unknown { name } => write!(f, "there is no command /{name}"),
            Self::OfTerminal { name } => {
                write!(f, "/{name} works only in the terminal")
            }
            Self::TimedOut { name, origin, seconds } => {
                write!(f, "/{name} of {origin} did not end within {seconds} seconds and was stopped")
            }
            Self::Panicked { name, origin } => {
                write!(f, "/{name} of {origin} panicked; this is a bug of the command")
            }
            Self::TooLarge { name, origin, limit } => {
                write!(f, "/{name} of {origin} returned more than the limit of {limit} bytes")
            }
            Self::Failed { name, origin, why } => write!(f, "/{name} of {origin} failed: {why}"),
        }
    }
}

impl std::error::Error for CommandError {}
