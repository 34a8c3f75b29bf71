//! How a model call goes, and what a tool call touches.

use std::path::PathBuf;
use std::time::Duration;

use crate::{AssistantMessage, Attempt, BackgroundId, Delta, Json, ModelError, Usage};

/// What an attempt may have been charged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Charge {
    /// Nothing: the server was not reached, or refused the request.
    Nothing,
    /// Tokens and cost that the answer reported.
    Told(Usage),
    /// It broke off, or told nothing: so much, and what else the request allows.
    AtLeast(Usage),
}

/// What happens during a call, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// The answer begins: headers came and the first event was read. `message` has no content yet.
    Started(Box<AssistantMessage>),
    /// A piece of the answer, to append to earlier pieces.
    Delta(Delta),
    /// What was streamed so far is void, or nothing came: the same bytes are sent again after `delay`.
    Retry {
        /// The attempt that will follow, from 2.
        attempt: u32,
        /// How long we wait, no shorter than the server asked.
        delay: Duration,
        /// What went wrong.
        error: ModelError,
    },
}

/// The answer or failure of a call, with each attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnd {
    /// The answer; what came of it when it failed (`stop_reason` error or aborted, usage as far as known).
    pub message: AssistantMessage,
    /// The failure; `None` when the answer is complete.
    pub error: Option<ModelError>,
    /// Each time that the body was sent, in order.
    pub attempts: Vec<Attempt>,
    /// What each of them may have been charged, in order. Empty: no more than the message tells.
    pub charges: Vec<Charge>,
    /// Events of the stream that this version does not know, verbatim.
    pub unknown: Vec<Json>,
}

/// Files and state that a tool call can use: calls that collide do not run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touches {
    /// Nothing that another call could notice.
    Nothing,
    /// Reads these files (resolved paths).
    Reads(Vec<PathBuf>),
    /// Changes these files.
    Writes(Vec<PathBuf>),
    /// Could touch any file, such as a shell command. Ordered with every file tool, not with its like.
    Anything,
    /// What a running command reads, which does with it what it likes. Ordered with file tools and with other input of that command.
    Input(CommandInput),
    /// Where the session stands: such a call waits for all calls before it, and those after it wait for it.
    Session,
}

/// Text for the standard input of a background command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInput {
    /// The command.
    pub id: BackgroundId,
    /// Its command line; `None` where no command with this id takes input.
    pub command: Option<String>,
    /// What is written.
    pub text: String,
    /// Whether the input ends behind it.
    pub is_last: bool,
    /// Whether a sandbox confines the command.
    pub is_confined: bool,
    /// Whether it has the network of the user.
    pub network: bool,
    /// Whether it may change what configures git, agents, editors and shells.
    pub protected: bool,
}
