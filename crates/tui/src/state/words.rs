//! What a state hears, and what it asks for.

use std::sync::Arc;

use quipu::Refusal;
use quipu_protocol::{Ack, BashExecutionMessage, Command, Envelope, RunId, Thinking};
use quipu_workspace::HelperError;

use crate::editor::{Candidate, Query};
use crate::host::{Glimpse, HostError, ModelChoice, OpenError, OpenedSession, SessionRequest};
use crate::request::{Reply, Request, Stop};
use crate::{ClipboardError, Key, Size};

/// Why the user's editor left no text.
#[derive(Debug, thiserror::Error)]
pub enum EditorError {
    /// No editor is set.
    #[error("neither VISUAL nor EDITOR names an editor: set one in the shell, such as `export EDITOR=nano`")]
    NotNamed,
    /// What is set is not run.
    #[error("the editor `{named}` cannot start: {error}")]
    Refused {
        /// The line that was set.
        named: String,
        /// Why.
        error: HelperError,
    },
    /// It does not start.
    #[error("{name}: {error}")]
    NotStarted {
        /// The program.
        name: String,
        /// Why.
        error: std::io::Error,
    },
    /// It ended with a failure.
    #[error("{name} ended with {status}")]
    Failed {
        /// The program.
        name: String,
        /// How.
        status: std::process::ExitStatus,
    },
    /// The text did not reach it, or did not come back.
    #[error("the text could not be passed to an editor: {0}")]
    Text(#[source] std::io::Error),
}

/// An event that the terminal's state reacts to.
#[derive(Debug)]
pub enum UiEvent {
    /// A key was pressed.
    Key(Key),
    /// Text that was pasted.
    Paste(String),
    /// Lines, where the kernel edits them.
    Line(String),
    /// What is under way shall stop.
    Interrupt,
    /// Nothing more is typed.
    Finished,
    /// What is behind text is light, or dark: the built-in theme that fits counts, unless one was named.
    Ground {
        /// As above.
        light: bool,
    },
    /// The terminal has another size.
    Resize(Size),
    /// The terminal is looked at, or not any more.
    Focus(bool),
    /// Time passed; comes about once a second while something is under way.
    Tick,
    /// The session tells something.
    Event(Arc<Envelope>),
    /// The repository is on this branch.
    Branch(Option<String>),
    /// Levels of thinking that the model has which answers from now on.
    Levels(Vec<Thinking>),
    /// A command was taken, or not.
    Sent(Purpose, Result<Ack, Refusal>),
    /// The end of the session that is being opened.
    Glimpsed(Glimpse),
    /// A session was opened, or not.
    Opened(Box<Result<OpenedSession, OpenError>>),
    /// The session has ended by itself.
    Ended,
    /// Something is to be told.
    Note(String),
    /// What a line that no session has printed so far.
    UnkeptOutput(RunId, Arc<str>),
    /// It is over, or was not run.
    UnkeptEnded(RunId, Result<BashExecutionMessage, HostError>),
    /// A command that had the terminal is over.
    Returned(Result<(), HostError>),
    /// What was asked of the host came to this.
    Reply(Reply),
    /// What may be meant, for the question of this number; whether more may come.
    Offered(u64, Vec<Candidate>, bool),
    /// The path of an image, or why there is none.
    Image(Result<std::path::PathBuf, ClipboardError>),
    /// The settings were edited.
    EditedSettings,
    /// What the external editor left.
    Edited(Result<Option<String>, EditorError>),
}

/// Why a command was sent: what its answer means.
#[derive(Debug, Clone, PartialEq)]
pub enum Purpose {
    /// Something was said; the text goes back to the editor when it is not taken.
    Say(String),
    /// What waited is taken back into the editor.
    TakeBack,
    /// The session continues with another model or level; the host keeps this choice once the session has it.
    Set(ModelChoice),
    /// The session is moved, or something is noted of it; the command by its name.
    Move(&'static str),
    /// A line is to run in the shell.
    Shell,
    /// Nothing more is to be done.
    Else,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send a command to the session.
    Send(Command, Purpose),
    /// Open a session; the one that is open is ended first.
    Open(SessionRequest),
    /// Ask the host for something; the reply comes back.
    Ask(Request),
    /// Stop asking.
    Stop(Stop),
    /// Let a command of the program have the terminal.
    Foreground(Vec<String>),
    /// Let the user's editor have the terminal, for this text.
    Edit(String),
    /// Let the user's editor have the terminal, for the settings.
    EditSettings,
    /// Put the clipboard's image into a file, and its path into the editor.
    PasteImage,
    /// Put text on the clipboard.
    Copy(String),
    /// Somebody is needed: what for.
    Notify(String),
    /// Find what may be meant.
    Complete(u64, Query),
    /// Keep what is being written: it is another text now.
    Draft,
    /// Keep what was sent.
    Sent(String),
    /// Stop until the shell says to go on.
    Suspend,
    /// End the terminal.
    Leave,
}
