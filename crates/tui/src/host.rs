//! What the terminal needs beside a session's handle: other sessions, models, keys, and what commands print. The binary
//! gives it; tests give their own.

pub use quipu_host::{
    CycleModel, FoundItem, FoundItems, Glimpse, KeyOutcome, LocalServer, LocalServers, LoginMethod,
    LoginOffer, ModelChoice, PastRow, ProviderItem, ProviderLogin, Reach, SessionItem, TreeKind, TreeRow,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use quipu::Session;
use quipu_host::{CommandRegistry, Mentions, Question};
use quipu_protocol::{BashExecutionMessage, Model, NodeId, Notice, SessionId, Thinking};

use tokio_util::sync::CancellationToken;

use crate::Theme;
use crate::editor::Candidate;

/// Why the host did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The request failed.
    #[error("{message}")]
    Failed {
        /// What happened, in one line or a few.
        message: String,
    },
    /// The user stopped it.
    #[error("canceled")]
    Stopped,
}

/// The result of a request to the host, once it is done.
pub type HostFuture<T> = Pin<Box<dyn Future<Output = Result<T, HostError>> + Send>>;

/// Receives the output of a running line.
pub type OutputSink = Box<dyn Fn(Arc<str>) + Send + Sync>;

/// The terminal's surroundings.
pub trait Host: Send + Sync + 'static {
    /// Opens a session. One that is at work in another process is gone on with as a branch, which
    /// [`Notice::Branched`] says.
    fn open(
        &self,
        open: SessionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<OpenedSession, OpenError>> + Send>>;

    /// The end of the session that would be opened, before it is: opening may have to read all that the model is told.
    /// `None` for a new one, and for one that is not known without opening it.
    fn glimpse(&self, open: &SessionRequest) -> HostFuture<Option<Glimpse>>;

    /// Models that can be called.
    fn models(&self) -> HostFuture<Vec<Arc<Model>>>;

    /// Models that the keys for the next one and the one before go through.
    fn cycled(&self) -> HostFuture<Vec<CycleModel>>;

    /// Keeps a choice of model or level, for sessions that begin later in this directory or with this model.
    fn keep_choice(&self, choice: ModelChoice) -> HostFuture<()>;

    /// Levels of thinking that a model has, in order.
    fn levels(&self, model: &Model) -> Vec<Thinking>;

    /// All sessions, the last changed first.
    fn sessions(&self) -> HostFuture<Vec<SessionItem>>;

    /// A session as a tree, the oldest first, behind what it went on from unless it is to stand `below` its own row; or
    /// sessions, each a row with those that went on from it below it.
    fn tree(&self, reach: Reach, below: bool) -> HostFuture<Vec<TreeRow>>;

    /// The nodes of a [`TreeRow`] that stands for many.
    fn unfold(&self, below: NodeId, depth: u64, count: u64, level: usize) -> HostFuture<Vec<TreeRow>>;

    /// What stands below the row of a past or of a chunk.
    fn past_rows(&self, row: PastRow) -> HostFuture<Vec<TreeRow>>;

    /// The nodes that a chunk stands on, each with why.
    fn past_sources(&self, row: PastRow) -> HostFuture<FoundItems>;

    /// Where words are found in all sessions, in the order in which they are to be listed; words are those of the
    /// program's command, options among them.
    fn search(&self, words: Vec<String>) -> HostFuture<FoundItems>;

    /// Messages of the user that lead to a node, the newest first, a few thousand at most.
    fn user_messages(&self, head: NodeId) -> HostFuture<Vec<(NodeId, String)>>;

    /// What a node says, for a preview.
    fn preview(&self, node: NodeId) -> HostFuture<String>;

    /// The node that somebody names: the beginning of its id, a bookmark, a session.
    fn resolve(&self, name: String) -> HostFuture<NodeId>;

    /// What two branches did since they parted, each named by the node that it ends in, in lines of so many columns.
    fn compare(&self, a: NodeId, b: NodeId, columns: usize) -> HostFuture<String>;

    /// The commands that this offers beside the terminal's own; the terminal puts its own there.
    fn commands(&self) -> CommandRegistry {
        CommandRegistry::default()
    }

    /// What messages of the open session may mention beside files.
    fn mentions(&self) -> Mentions {
        Mentions::default()
    }

    /// What may follow a command of the terminal, for a session that stands at this node.
    fn arguments(&self, command: String, head: Option<NodeId>) -> HostFuture<Vec<Candidate>>;

    /// Keeps a setting of the user: its name and its value, in one line.
    fn set(&self, setting: String) -> HostFuture<SettingOutcome>;

    /// What follows from settings that the user edited.
    fn edited(&self) -> HostFuture<SettingOutcome>;

    /// Copies a session; the copy.
    fn clone_session(&self, session: SessionId) -> HostFuture<SessionId>;

    /// Runs a command of the program as on its command line; what it prints.
    fn command(&self, arguments: Vec<String>) -> HostFuture<CommandOutput>;

    /// The same for one that takes long: `tell` hears how far it is. Dropped: it ends.
    fn long_command(&self, arguments: Vec<String>, tell: OutputSink) -> HostFuture<CommandOutput> {
        drop(tell);
        self.command(arguments)
    }

    /// Runs a line in the shell while no session is open: nothing of it is kept. `tell` hears the end of what it printed
    /// so far.
    fn run_unkept(
        &self,
        line: String,
        hidden: bool,
        stop: CancellationToken,
        tell: OutputSink,
    ) -> HostFuture<BashExecutionMessage>;

    /// Model servers that listen on this machine, and where they were looked for. May take a second or two.
    fn local_servers(&self) -> HostFuture<LocalServers>;

    /// Providers for which a key can be kept.
    fn providers(&self) -> HostFuture<Vec<ProviderItem>>;

    /// Asks the provider whether it takes the key, and keeps it where it does. Keeps it at once when it is to be kept
    /// `unasked`. Dropped: nothing is kept.
    fn keep_key(&self, provider: String, key: String, unasked: bool) -> HostFuture<KeyOutcome>;

    /// Begins the login that was offered, whose restriction the user has accepted, and opens its page where there is a
    /// browser. Dropped: it ends.
    fn begin_login(&self, offer: LoginOffer, method: LoginMethod) -> HostFuture<ProviderLogin>;

    /// The file of the user's settings.
    fn settings_path(&self) -> std::path::PathBuf;

    /// Runs a command of the program that has the terminal meanwhile. Dropped: it ends.
    fn foreground(&self, arguments: Vec<String>) -> HostFuture<()>;

    /// The branch that the directory's repository is on.
    fn git_branch(&self) -> Option<String>;
}

/// The result of storing a setting.
#[derive(Debug, Clone, Default)]
pub struct SettingOutcome {
    /// What to say of it.
    pub message: String,
    /// How the terminal looks from now on, where that is said.
    pub theme: Option<Box<Theme>>,
    /// Whether the session has it when it is opened again, which it can be.
    pub reopens: bool,
}

/// A request to open a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionRequest {
    /// The session to open.
    pub which: OpenTarget,
    /// Another model: provider and id.
    pub model: Option<(String, String)>,
    /// Another level of thinking.
    pub thinking: Option<Thinking>,
    /// What was asked while it was opened before, and answered.
    pub answers: Vec<(Question, bool)>,
}

/// The session to open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OpenTarget {
    /// The one that the command line asked for.
    #[default]
    Asked,
    /// A new session.
    New,
    /// The session of this id.
    Session(SessionId),
}

/// An open session, with what the terminal shows of it.
#[derive(Debug)]
pub struct OpenedSession {
    /// Its handle.
    pub session: Arc<Session>,
    /// What the user should know.
    pub notices: Vec<Notice>,
    /// What the session has of the project and of the user, such as rules and skills, in one line.
    pub resources: Option<String>,
    /// The model that answers.
    pub model: Arc<Model>,
    /// How hard it thinks.
    pub thinking: Thinking,
    /// Levels that the model has.
    pub levels: Vec<Thinking>,
    /// Its directory.
    pub directory: String,
    /// The same for people: `~` stands for the user's home.
    pub place: String,
    /// What tools may do, in a word.
    pub permissions: String,
    /// The end of its conversation.
    pub end: Glimpse,
}

/// Why no session was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// The model cannot be used, or none.
    NoModel {
        /// Why, in one line.
        why: String,
        /// Whether others could be.
        others: bool,
    },
    /// This has to be answered first, in words for people; then it is opened again with the answer.
    Asks(Box<SessionRequest>, Question, String),
    /// The session that is open is not left, in words for people.
    Stays(String),
    /// Anything else, for people.
    Failed(String),
}

/// What a command printed, and whether it succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandOutput {
    /// What it printed, in order.
    pub pieces: Vec<OutputPiece>,
    /// Whether it did what it should.
    pub ok: bool,
}

impl CommandOutput {
    /// What went to stdout.
    pub fn results(&self) -> String {
        let pieces = self.pieces.iter().filter(|piece| piece.stream == OutputStream::Out);
        pieces.map(|piece| piece.text.as_str()).collect()
    }

    /// Adds text for people.
    pub fn push_note(&mut self, text: impl Into<String>) {
        self.pieces.push(OutputPiece { stream: OutputStream::Err, text: text.into() });
    }
}

/// What a command printed to one stream in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Where to.
    pub stream: OutputStream,
    /// The text, with the ends of its lines.
    pub text: String,
}

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Results: stdout.
    Out,
    /// For people: stderr.
    Err,
}
