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
        /// Thinking level to set for the session; absent for the level of the session or of the settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Thinking>,
    },
    /// A command: answered with `ack` or `refused`.
    Command {
        /// The line's number.
        id: u64,
        /// The session, as `opened` names it.
        session: SessionId,
        /// The command as an object with a `type`. An unknown member makes the line invalid.
        command: Command,
    },
    /// Subscribe to a session: answered with `snapshot`, then `event` lines follow. A second subscription replaces the first.
    Subscribe {
        /// The line's number.
        id: u64,
        /// Name of the session from `opened`.
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
        /// Name of the session from `opened`.
        session: SessionId,
    },
    /// End a session; running work is aborted first. Answered with `done`, after its last event.
    Close {
        /// The line's number.
        id: u64,
        /// Name of the session from `opened`.
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
        /// Name of the slash command without the slash, as `commands` lists it.
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
    /// A session is open: the answer to `open`.
    Opened {
        /// The number of the line that asked.
        id: u64,
        /// Its name on this connection. It stays the same when the session branches and its own id changes.
        session: SessionId,
        /// Absolute path of the directory that the session works in.
        cwd: String,
        /// Notices about opening it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<Notice>,
    },
    /// A command was accepted.
    Ack {
        /// The number of the line that asked.
        id: u64,
        /// What the command caused: `"handled"`, or an object with one member, such as `{"started":RUN}`.
        ack: Ack,
    },
    /// A command was refused; nothing happened.
    Refused {
        /// The number of the line that asked.
        id: u64,
        /// The reason for a program: an object with a `type`.
        refused: Refusal,
        /// The reason for people, as text.
        message: String,
    },
    /// The state of a session; its events follow.
    Snapshot {
        /// The number of the line that asked.
        id: u64,
        /// Name of the session from `opened`, as in `subscribe`.
        session: SessionId,
        /// The whole state after the event with the number `seq`.
        snapshot: Box<Snapshot>,
    },
    /// An event of a subscribed session.
    Event {
        /// Name of the session from `opened`. The id in `envelope.session` can differ.
        session: SessionId,
        /// The event with its number, session id, run and time.
        envelope: Envelope,
    },
    /// A session ended; no more lines about it follow.
    Ended {
        /// Name of the session from `opened`.
        session: SessionId,
    },
    /// The answer to `unsubscribe` and `close`.
    Done {
        /// The number of the line that asked.
        id: u64,
    },
    /// The answer to `sessions`: what is open on this server.
    Sessions {
        /// The number of the line that asked.
        id: u64,
        /// Names from `opened`, sorted.
        sessions: Vec<SessionId>,
    },
    /// The answer to `commands`: what `run` can run.
    Commands {
        /// The number of the line that asked.
        id: u64,
        /// Name, arguments and help of each slash command.
        commands: Vec<CommandSpec>,
    },
    /// A slash command was run.
    CommandResult {
        /// The number of the line that asked.
        id: u64,
        /// A prompt for the client to send, a text to show, or nothing.
        value: CommandValue,
    },
    /// A message for people that belongs to no line and no session.
    Notice {
        /// True for a warning, false for information.
        warning: bool,
        /// Text for people, with advice if there is any.
        text: String,
    },
    /// A line was invalid, or its request failed.
    Error {
        /// The number of the line, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The reason for a program; `message` is for people.
        kind: FrameErrorKind,
        /// What happened and what to do, for a person.
        message: String,
    },
}

/// Why a line was invalid or its request failed. No kind of error ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FrameErrorKind {
    /// The first line is not `hello`, or has another version: the connection ends.
    Version,
    /// The line is not part of this protocol.
    Invalid,
    /// The line has more than 16 MiB and was skipped.
    TooLong,
    /// Too many requests are open.
    Busy,
    /// No such session is open.
    NoSession,
    /// The request needs an answer that nobody can give on this connection.
    NeedsAnswer,
    /// The request failed. `message` says why and what to do.
    Failed,
    /// The server is ending.
    Closing,
}

tagged!(ClientFrame, ServerFrame);
