//! What the terminal needs beside a session's handle: other sessions, models, keys, and what commands print. The binary
//! gives it; tests give their own.

pub use quipu_host::KeyKept as Kept;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use quipu::Session;
use quipu_host::Question;
use quipu_protocol::{BashExecutionMessage, Entry, Model, NodeId, Notice, SessionId, Thinking, UnixMs};

use tokio_util::sync::CancellationToken;

use crate::Theme;
use crate::editor::Candidate;

/// Something that is being done; the error is for people, in one line or a few.
pub type Doing<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// Hears what is printed.
pub type Tell = Box<dyn Fn(Arc<str>) + Send + Sync>;

/// A model that is gone through, with the level of thinking that the user wants with it.
pub type Cycled = (Arc<Model>, Option<Thinking>);

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

/// The end of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Glimpse {
    /// Its name; empty for none.
    pub name: String,
    /// Its last entries, the oldest first.
    pub tail: Vec<(NodeId, Entry)>,
    /// How many stand before them.
    pub earlier: u64,
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
    /// Anything else, for people.
    Failed(String),
}

/// Model servers on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalServers {
    /// Those that listen.
    pub found: Vec<LocalServer>,
    /// Where they were looked for, for people: names and ports.
    pub looked_for: Vec<String>,
}

/// A model server that listens on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// What it is called.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// The provider's id.
    pub provider: String,
    /// Ids of its models; never empty.
    pub models: Vec<String>,
}

/// A provider for which a key can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderItem {
    /// Its id.
    pub id: String,
    /// Where a key is from already.
    pub source: Option<String>,
    /// Variables of the environment that a key is taken from, the usual one first.
    pub variables: Vec<String>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionItem {
    /// The session.
    pub id: SessionId,
    /// Its name, or what was said first.
    pub title: String,
    /// Its directory.
    pub cwd: String,
    /// The program that wrote it.
    pub agent: String,
    /// When it was changed last.
    pub updated: UnixMs,
    /// How many nodes it has.
    pub entries: u64,
    /// US dollars.
    pub cost: f64,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundItems {
    /// What was found.
    pub found: Vec<FoundItem>,
    /// What is to be known of the search, in lines: such as that not all is indexed yet.
    pub told: Vec<String>,
}

/// A node in which words were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundItem {
    /// The node.
    pub node: NodeId,
    /// Its session; `None` where it is in none that stands.
    pub session: Option<SessionId>,
    /// Who said or did it, and what stands around the words, in one line.
    pub text: String,
    /// Its session, for people.
    pub detail: String,
}

/// How far a navigator reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// This session.
    Session(SessionId),
    /// The sessions of the directory.
    Project,
    /// The sessions of all directories and agents.
    All,
}

/// What a row of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// The user said it.
    User,
    /// The model said it.
    Assistant,
    /// A tool returned it.
    Tool,
    /// A summary.
    Summary,
    /// No message: a session's start, another model, an entry of another program.
    Other,
    /// So many nodes that are not read yet.
    Folded {
        /// The node behind them.
        below: NodeId,
        /// Nodes before the first of them.
        depth: u64,
        /// How many.
        count: u64,
    },
    /// A session that goes on from the row before.
    Session,
}

/// A row of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// The node; of a session its first one.
    pub node: NodeId,
    /// What it is.
    pub kind: TreeKind,
    /// How many branches it is away from what leads to where the session stands.
    pub level: usize,
    /// Whether a branch begins here.
    pub starts: bool,
    /// One line of what it says.
    pub text: String,
    /// Its label; empty for none.
    pub label: String,
    /// Whether the session stands here.
    pub head: bool,
    /// Of a session: which.
    pub session: Option<SessionId>,
    /// Of a node: the session that it is shown for, where that is not the one that is open.
    pub of: Option<SessionId>,
}

impl TreeRow {
    /// A row of the outermost level that is only what it is and says.
    pub fn new(node: NodeId, kind: TreeKind, text: impl Into<String>) -> Self {
        Self {
            node,
            kind,
            level: 0,
            starts: false,
            text: text.into(),
            label: String::new(),
            head: false,
            session: None,
            of: None,
        }
    }
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
