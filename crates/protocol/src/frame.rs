//! Lines between a program and a server of sessions: which session is meant, and what answers what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Ack, Command, CommandSpec, CommandValue, Envelope, Notice, Refused, SessionId, Snapshot, Thinking,
};

/// A line of a client. The first one is `hello`; each other one carries a number that its answer has as well.
///
/// JSON form: an object with a `type`. A member that is not known makes the line invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum ClientFrame {
    /// Which version is spoken: answered with `hello`.
    Hello {
        /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
        version: u32,
    },
    /// Make or open a session: answered with `opened`.
    Open {
        /// The line's number.
        id: u64,
        /// Where: an absolute path of a directory.
        cwd: String,
        /// The session: its id, the beginning of it, or its name; `None` for a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The node that a new one goes on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fork: Option<String>,
        /// The model: its id, `provider/id`, or a part of its name; `None` for the one that is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// How hard it thinks.
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
    /// Follow a session: answered with `snapshot`, and then `event`s come. Once more begins anew.
    Subscribe {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
        /// Whether it can lag behind: it gets fewer events then, and never holds the session up.
        #[serde(default)]
        live: bool,
        /// Whether a person here answers questions: without one, they are refused.
        #[serde(default)]
        answers: bool,
    },
    /// Follow it no more: answered with `done`.
    Unsubscribe {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
    },
    /// End a session; what runs in it is aborted first. Answered with `done`, after its last event.
    Close {
        /// The line's number.
        id: u64,
        /// The session.
        session: SessionId,
    },
    /// Name the sessions that are open here: answered with `sessions`.
    Sessions {
        /// The line's number.
        id: u64,
    },
    /// List the commands that can be run here: answered with `commands`.
    Commands {
        /// The line's number.
        id: u64,
    },
    /// Run one of them: answered with `ran`.
    Run {
        /// The line's number.
        id: u64,
        /// The session that it is run in; `None` for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// Its name.
        name: String,
        /// What follows the name.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        arguments: String,
    },
}

/// A line of the server. JSON form: an object with a `type`; later versions may add types and members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum ServerFrame {
    /// The version that is spoken.
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
        /// What it is called here. Its own id changes when it has to branch, which events and snapshots say; this stays.
        session: SessionId,
        /// Where it works.
        cwd: String,
        /// What there is to know of how it was opened.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<Notice>,
    },
    /// A command was accepted.
    Ack {
        /// The number of the line that asked.
        id: u64,
        /// What became of it.
        ack: Ack,
    },
    /// A command was not accepted; nothing happened.
    Refused {
        /// The number of the line that asked.
        id: u64,
        /// Why.
        refused: Refused,
        /// Why, for people.
        message: String,
    },
    /// How a session stands; its events follow.
    Snapshot {
        /// The number of the line that asked.
        id: u64,
        /// The session.
        session: SessionId,
        /// How it stands.
        snapshot: Box<Snapshot>,
    },
    /// Something happened in a session that is followed.
    Event {
        /// The session.
        session: SessionId,
        /// What.
        envelope: Envelope,
    },
    /// A session has ended; nothing more comes of it.
    Ended {
        /// The session.
        session: SessionId,
    },
    /// What was asked for is done.
    Done {
        /// The number of the line that asked.
        id: u64,
    },
    /// The sessions that are open here.
    Sessions {
        /// The number of the line that asked.
        id: u64,
        /// They.
        sessions: Vec<SessionId>,
    },
    /// The commands that can be run here.
    Commands {
        /// The number of the line that asked.
        id: u64,
        /// They.
        commands: Vec<CommandSpec>,
    },
    /// A command was run.
    Ran {
        /// The number of the line that asked.
        id: u64,
        /// What it came to.
        value: CommandValue,
    },
    /// Something that a person should know.
    Notice {
        /// Whether something is wrong.
        warns: bool,
        /// What.
        text: String,
    },
    /// A line could not be taken, or what it asked for failed.
    Error {
        /// The number of the line, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// Of what kind.
        kind: FrameErrorKind,
        /// What happened and what to do, for people.
        message: String,
    },
}

/// Of what kind an error of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FrameErrorKind {
    /// The first line is not `hello`, or speaks another version: the connection ends.
    Version,
    /// The line is no line of this protocol.
    Invalid,
    /// The line is too long.
    TooLong,
    /// So much is asked for already that nothing more is taken.
    Busy,
    /// No such session is open here.
    NoSession,
    /// A question would have to be answered first, which nobody can here.
    Asks,
    /// What was asked for failed.
    Failed,
    /// The server is ending.
    Closing,
}

tagged!(ClientFrame, ServerFrame);
