//! Lines between a client program and a session server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Ack, Command, CommandSpec, CommandValue, Envelope, Notice, Refusal, SessionId, Snapshot, Thinking,
};

/// A line of a client. The first line is `hello`; every other line has a number, which its answer repeats.
///
/// JSON form: an object with a `type`. An unknown member makes the line invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum ClientFrame {
    /// Announce the protocol version: answered with `hello`.
    Hello {
        /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
        version: u32,
    },
    /// Create or open a session: answered with `opened`.
    Open {
        /// The line's number.
        id: u64,
        /// The directory: an absolute path.
        cwd: String,
        /// The session: its id, a prefix of it, or its name; `None` for a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The node that a new session continues from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fork: Option<String>,
        /// The model: its id, `provider/id`, or a part of its name; `None` for the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The thinking level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Thinking>,
    },
    /// A command: answered with `ack` or `refused`.
    Command {
        /// The line's number.
        id: u64,
        /// The session, as `opened` names it.
        session: SessionId,
        /// The command.
        command: Command,
    },
    /// Subscribe to a session: answered with `snapshot`, then `event` lines follow. A second subscription replaces the first.
    Subscribe {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
        /// Whether events may be skipped, so that a slow client never blocks the session.
        #[serde(default)]
        live: bool,
        /// Whether this client answers questions. Without such a client, they are refused.
        #[serde(default)]
        answers: bool,
    },
    /// End the subscription: answered with `done`.
    Unsubscribe {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
    },
    /// End a session; running work is aborted first. Answered with `done`, after its last event.
    Close {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
    },
    /// List the open sessions: answered with `sessions`.
    Sessions {
        /// The line's number.
        id: u64,
    },
    /// List the slash commands: answered with `commands`.
    Commands {
        /// The line's number.
        id: u64,
    },
    /// Run a slash command: answered with `commandResult`.
    Run {
        /// The line's number.
        id: u64,
        /// The session to run it in; `None` for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// Its name.
        name: String,
        /// The text after the name.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        arguments: String,
    },
}

/// A line of the server. JSON form: an object with a `type`; later versions may add types and members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum ServerFrame {
    /// The protocol version of the server.
    Hello {
        /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
        version: u32,
        /// The program and its version.
        server: String,
    },
    /// A session is open.
    Opened {
        /// The number of the line that asked.
        id: u64,
        /// Its name on this connection. It stays the same when the session branches and its own id changes.
        session: SessionId,
        /// Its directory.
        cwd: String,
        /// Notices about opening it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<Notice>,
    },
    /// A command was accepted.
    Ack {
        /// The number of the line that asked.
        id: u64,
        /// The acknowledgement.
        ack: Ack,
    },
    /// A command was refused; nothing happened.
    Refused {
        /// The number of the line that asked.
        id: u64,
        /// Why.
        refused: Refusal,
        /// Why, for people.
        message: String,
    },
    /// The state of a session; its events follow.
    Snapshot {
        /// The number of the line that asked.
        id: u64,
        /// The session.
        session: SessionId,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// An event of a subscribed session.
    Event {
        /// The session.
        session: SessionId,
        /// The event.
        envelope: Envelope,
    },
    /// A session ended; no more lines about it follow.
    Ended {
        /// The session.
        session: SessionId,
    },
    /// The request is done.
    Done {
        /// The number of the line that asked.
        id: u64,
    },
    /// The open sessions.
    Sessions {
        /// The number of the line that asked.
        id: u64,
        /// The sessions.
        sessions: Vec<SessionId>,
    },
    /// The slash commands.
    Commands {
        /// The number of the line that asked.
        id: u64,
        /// The commands.
        commands: Vec<CommandSpec>,
    },
    /// A slash command was run.
    CommandResult {
        /// The number of the line that asked.
        id: u64,
        /// The result.
        value: CommandValue,
    },
    /// A notice for a person.
    Notice {
        /// Whether it is a warning.
        warning: bool,
        /// The notice.
        text: String,
    },
    /// A line was invalid, or its request failed.
    Error {
        /// The number of the line, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The kind of error.
        kind: FrameErrorKind,
        /// What happened and what to do, for a person.
        message: String,
    },
}

/// The kind of an error line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FrameErrorKind {
    /// The first line is not `hello`, or has another version: the connection ends.
    Version,
    /// The line is not part of this protocol.
    Invalid,
    /// The line is too long.
    TooLong,
    /// Too many requests are open.
    Busy,
    /// No such session is open.
    NoSession,
    /// The request needs an answer that nobody can give on this connection.
    NeedsAnswer,
    /// The request failed.
    Failed,
    /// The server is ending.
    Closing,
}

tagged!(ClientFrame, ServerFrame);
