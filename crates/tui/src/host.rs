//! What the terminal needs beside a session's handle: other sessions, models, keys, and what commands print. The binary
//! gives it; tests give their own.

pub use quipu_host::{
    Cycled, FoundItem, FoundItems, Glimpse, KeyKept as Kept, LocalServer, LocalServers, ProviderItem, Reach,
    SessionItem, TreeKind, TreeRow,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use quipu::Session;
use quipu_host::Question;
use quipu_protocol::{BashExecutionMessage, Model, NodeId, Notice, SessionId, Thinking};

use tokio_util::sync::CancellationToken;

use crate::Theme;
use crate::editor::Candidate;

/// Why the host did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It failed.
    #[error("{message}")]
    Failed {
        /// What happened, in one line or a few.
        message: String,
    },
    /// The user stopped it.
    #[error("it was stopped")]
    Stopped,
}

/// Something that is being done.
pub type Doing<T> = Pin<Box<dyn Future<Output = Result<T, HostError>> + Send>>;

/// Hears what is printed.
pub type Tell = Box<dyn Fn(Arc<str>) + Send + Sync>;

/// The terminal's surroundings.
pub trait Host: Send + Sync + 'static {
    /// Opens a session. One that is at work in another process is gone on with as a branch, which
    /// [`Notice::Branched`] says.
    fn open(&self, open: Open) -> Pin<Box<dyn Future<Output = Result<Opened, NotOpened>> + Send>>;

    /// The end of the session that would be opened, before it is: opening may have to read all that the model is told.
    /// `None` for a new one, and for one that is not known without opening it.
    fn glimpse(&self, open: &Open) -> Doing<Option<Glimpse>>;

    /// Models that can be called.
    fn models(&self) -> Doing<Vec<Arc<Model>>>;

    /// Models that the keys for the next one and the one before go through.
    fn cycled(&self) -> Doing<Vec<Cycled>>;

    /// Levels of thinking that a model has, in order.
    fn levels(&self, model: &Model) -> Vec<Thinking>;

    /// All sessions, the last changed first.
    fn sessions(&self) -> Doing<Vec<SessionItem>>;

    /// A session as a tree, the oldest first, behind what it went on from unless it is to stand `below` its own row; or
    /// sessions, each a row with those that went on from it below it.
    fn tree(&self, reach: Reach, below: bool) -> Doing<Vec<TreeRow>>;

    /// The nodes of a [`TreeRow`] that stands for many.
    fn unfold(&self, below: NodeId, depth: u64, count: u64, level: usize) -> Doing<Vec<TreeRow>>;

    /// Where words are found in all sessions, in the order in which they are to be listed; words are those of the
    /// program's command, options among them.
    fn search(&self, words: Vec<String>) -> Doing<FoundItems>;

    /// Messages of the user that lead to a node, the newest first, a few thousand at most.
    fn said(&self, head: NodeId) -> Doing<Vec<(NodeId, String)>>;

    /// What a node says, for a preview.
    fn preview(&self, node: NodeId) -> Doing<String>;

    /// The node that somebody names: the beginning of its id, a bookmark, a session.
    fn resolve(&self, name: String) -> Doing<NodeId>;

    /// What two branches did since they parted, each named by the node that it ends in, in lines of so many columns.
    fn compare(&self, a: NodeId, b: NodeId, columns: usize) -> Doing<String>;

    /// What may follow a command of the terminal, for a session that stands at this node.
    fn arguments(&self, command: String, head: Option<NodeId>) -> Doing<Vec<Candidate>>;

    /// Keeps a setting of the user: its name and its value, in one line.
    fn set(&self, setting: String) -> Doing<SettingKept>;

    /// What follows from settings that the user edited.
    fn edited(&self) -> Doing<SettingKept>;

    /// Copies a session; the copy.
    fn clone_session(&self, session: SessionId) -> Doing<SessionId>;

    /// Runs a command of the program as on its command line; what it prints.
    fn command(&self, arguments: Vec<String>) -> Doing<Printed>;

    /// Runs a line in the shell while no session is open: nothing of it is kept. `tell` hears the end of what it printed
    /// so far.
    fn run_unkept(
        &self,
        line: String,
        hidden: bool,
        stop: CancellationToken,
        tell: Tell,
    ) -> Doing<BashExecutionMessage>;

    /// Model servers that listen on this machine, and where they were looked for. May take a second or two.
    fn local_servers(&self) -> Doing<LocalServers>;

    /// Providers for which a key can be kept.
    fn providers(&self) -> Doing<Vec<ProviderItem>>;

    /// Asks the provider whether it takes the key, and keeps it where it does. Keeps it at once when it is to be kept
    /// `unasked`. Dropped: nothing is kept.
    fn keep_key(&self, provider: String, key: String, unasked: bool) -> Doing<Kept>;

    /// The file of the user's settings.
    fn settings_path(&self) -> std::path::PathBuf;

    /// Runs a command of the program that has the terminal meanwhile. Dropped: it ends.
    fn foreground(&self, arguments: Vec<String>) -> Doing<()>;

    /// The branch that the directory's repository is on.
    fn git_branch(&self) -> Option<String>;
}

/// A setting that is kept.
#[derive(Debug, Clone, Default)]
pub struct SettingKept {
    /// What to say of it.
    pub told: String,
    /// How the terminal looks from now on, where that is said.
    pub theme: Option<Box<Theme>>,
    /// Whether the session has it when it is opened again, which it can be.
    pub reopens: bool,
}

/// Which session, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Open {
    /// Which.
    pub which: Which,
    /// Another model: provider and id.
    pub model: Option<(String, String)>,
    /// Another level of thinking.
    pub thinking: Option<Thinking>,
    /// What was asked while it was opened before, and answered.
    pub answers: Vec<(Question, bool)>,
}

/// Which session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Which {
    /// The one that the command line asked for.
    #[default]
    Asked,
    /// A new one.
    New,
    /// This one.
    Session(SessionId),
}

/// A session that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Its handle.
    pub session: Arc<Session>,
    /// What the user should know.
    pub troubles: Vec<Notice>,
    /// The model that answers.
    pub model: Arc<Model>,
    /// How hard it thinks.
    pub thinking: Thinking,
    /// Levels that the model has.
    pub levels: Vec<Thinking>,
    /// Its directory, for people.
    pub directory: String,
    /// What tools may do, in a word.
    pub permissions: String,
    /// Its end.
    pub end: Glimpse,
}

/// Why no session was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOpened {
    /// The model cannot be used, or none.
    NoModel {
        /// Why, in one line.
        why: String,
        /// Whether others could be.
        others: bool,
    },
    /// This has to be answered first, in words for people; then it is opened again with the answer.
    Asks(Box<Open>, Question, String),
    /// The session that is open is not left, in words for people.
    Stays(String),
    /// Anything else, for people.
    Failed(String),
}

/// What a command printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Printed {
    /// To stdout.
    pub out: String,
    /// To stderr.
    pub err: String,
    /// Whether it did what it should.
    pub ok: bool,
}
