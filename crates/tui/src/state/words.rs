//! What a state hears, and what it asks for.

use std::sync::Arc;

use quipu::Refused;
use quipu_protocol::{
    Ack, BashExecutionMessage, Command, Envelope, Model, NodeId, RunId, SessionId, Thinking,
};

use crate::editor::{Candidate, Query};
use crate::host::{
    Cycled, FoundItems, Glimpse, Kept, LocalServers, NotOpened, Open, Opened, Printed, ProviderItem, Reach,
    SessionItem, SettingKept, TreeRow,
};
use crate::{Key, Size};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A key.
    Key(Key),
    /// Text that was pasted.
    Paste(String),
    /// Lines, where the kernel edits them.
    Line(String),
    /// What is under way shall stop.
    Interrupt,
    /// Nothing more is typed.
    Finished,
    /// What is behind text is light, or dark: the built-in theme that fits counts.
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
    Sent(Purpose, Result<Ack, Refused>),
    /// The end of the session that is being opened.
    Glimpsed(Glimpse),
    /// A session was opened, or not.
    Opened(Box<Result<Opened, NotOpened>>),
    /// The session has ended by itself.
    Ended,
    /// Something is to be told.
    Note(String),
    /// What a line that no session has printed so far.
    UnkeptOutput(RunId, Arc<str>),
    /// It is over, or was not run.
    UnkeptEnded(RunId, Result<BashExecutionMessage, String>),
    /// A command that had the terminal is over.
    Returned(Result<(), String>),
    /// What was asked of the host.
    Got(Got),
    /// What may be meant, for the question of this number; whether more may come.
    Offered(u64, Vec<Candidate>, bool),
    /// The path of an image, or why there is none.
    Image(Result<std::path::PathBuf, String>),
    /// The settings were edited.
    EditedSettings,
    /// What the external editor left.
    Edited(Result<Option<String>, String>),
}

/// Why a command was sent: what its answer means.
#[derive(Debug, Clone, PartialEq)]
pub enum Purpose {
    /// Something was said; the text goes back to the editor when it is not taken.
    Say(String),
    /// What waited is taken back into the editor.
    TakeBack,
    /// The session is to go on with another model or level.
    Set,
    /// The session is moved, or something is noted of it; the command by its name.
    Move(&'static str),
    /// A line is to run in the shell.
    Shell,
    /// Nothing more is to be done.
    Else,
}

/// What the host answered.
#[derive(Debug)]
pub enum Got {
    /// Models to choose from.
    Models(Result<Vec<Arc<Model>>, String>),
    /// Models to go through, and which way.
    Cycled(Result<Vec<Cycled>, String>, ModelChoice),
    /// Sessions; with what to filter them by at first.
    Sessions(Result<Vec<SessionItem>, String>, String),
    /// A tree; whether it is to stand below the row of its session.
    Tree(Reach, Result<Vec<TreeRow>, String>, bool),
    /// Rows in place of one that stood for many.
    Unfolded(NodeId, Result<Vec<TreeRow>, String>),
    /// What a node says.
    Preview(NodeId, Result<String, String>),
    /// What two branches did.
    Compared(Result<String, String>),
    /// What going to a node would do to files.
    Foreseen(NodeId, Result<String, String>),
    /// Settings that can be made.
    Settings(Result<Vec<Candidate>, String>),
    /// A setting was kept, or not.
    Set(Result<SettingKept, String>),
    /// What was found, and the words.
    Found(Result<FoundItems, String>, String),
    /// The node that somebody named.
    Resolved(Result<NodeId, String>),
    /// What the user said.
    Said(Result<Vec<(NodeId, String)>, String>),
    /// What a command printed; the words say which.
    Printed(String, Result<Printed, String>),
    /// The copy of a session.
    Made(Result<SessionId, String>),
    /// Servers on this machine.
    LocalServers(Result<LocalServers, String>),
    /// Providers; with the one that a key is for, if that was said.
    Providers(Result<Vec<ProviderItem>, String>, String),
    /// What became of a provider's key.
    Kept(String, String, Result<Kept, String>),
}

/// Which way models are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelChoice {
    /// The one after the one that answers.
    Next,
    /// The one before it.
    Previous,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send a command to the session.
    Send(Command, Purpose),
    /// Open a session; the one that is open is ended first.
    Open(Open),
    /// Models to choose from; they come back.
    Models,
    /// The next model, or the one before.
    Cycle(ModelChoice),
    /// As it says; the words filter them at first.
    Sessions(String),
    /// As it says; whether it is to stand below the row of its session.
    Tree(Reach, bool),
    /// As it says.
    Unfold(TreeRow),
    /// As it says.
    Preview(NodeId),
    /// As it says.
    Compare(NodeId, NodeId),
    /// What going to this node would do to files.
    Foresee(NodeId),
    /// Settings that can be made.
    Settings,
    /// Keep a setting.
    KeepSetting(String),
    /// Find out what follows from the settings as they are now.
    ReadSettings,
    /// Look for words in all sessions.
    Search(String),
    /// Messages of the user before this node.
    Said(NodeId),
    /// The node that this names.
    Resolve(String),
    /// Run a command of the program: what it prints comes back.
    Command(Vec<String>),
    /// Copy a session, and go on with the copy.
    Clone(SessionId),
    /// As it says.
    LocalServers,
    /// Providers, for a key for the one of this name.
    Providers(String),
    /// Check a provider's key and keep it.
    KeepKey(String, String),
    /// Keep a provider's key unchecked.
    KeepUnchecked(String, String),
    /// Stop checking a key: it is not kept.
    StopChecking,
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
    /// Find what may follow a command.
    Arguments(u64, String, Option<NodeId>),
    /// Keep what is being written: it is another text now.
    Draft,
    /// Keep what was sent.
    Sent(String),
    /// Stop until the shell says to go on.
    Suspend,
    /// Leave.
    Leave,
}
