//! Which session is opened, and how: what a front was asked for, in plain values.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use quipu::{BackgroundWake, EditorFiles, Hook, PermissionMode, Tool};
use quipu_mcp::ServerConfig;
use quipu_policy::{ChatGroup, Sender};
use quipu_protocol::{SessionProfile, Thinking};
use quipu_replay::Replay;
use quipu_store::Graph;

use crate::CallPrices;

/// The session to open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionTarget {
    /// A session without a conversation.
    #[default]
    New,
    /// The newest one of the directory; a new one where there is none.
    Newest,
    /// This one: its id, the beginning of it, its name, or a session file of Pi (a path, or a name that ends in `.jsonl`).
    Session(String),
    /// A new one that continues from this node.
    Fork(String),
}

/// What must be known before a session can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Its directory is gone: does it go on here, as a session of its own?
    Here,
    /// The user's text before the system prompt is another one now: does it go on with that?
    NewText,
    /// Places that the user's environment names for tools: do commands write there?
    Caches,
    /// The project brings along skills, templates and rules: are they used?
    Resources,
    /// Memory is used elsewhere: is one kept for this project?
    Memory,
    /// Dreams are on and nobody said what they may cost: may a model be asked?
    DreamBudget,
}

/// What is asked for the tools of a session.
#[derive(Debug, Clone, Default)]
pub struct PermissionRequest {
    /// How much is asked from now on in the directory.
    pub mode: Option<PermissionMode>,
    /// Whether the session is in plan mode; `None`: as it was, and a new one as the settings say.
    pub plan: Option<bool>,
    /// Directories to add for good.
    pub add_dirs: Vec<PathBuf>,
    /// The model may go back to earlier points of its session without asking.
    pub allow_tobe: bool,
    /// Commands that say that they need the network have it without asking.
    pub allow_network: bool,
    /// Commands that say so change protected files without asking.
    pub allow_protected: bool,
    /// Commands are kept off the network.
    pub no_network: bool,
}

/// For whom a session works: what of the policies of tools, and of the budgets, counts for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionAudience {
    /// The agent, by its id in `agents.byId`; `None` for a session of no agent.
    pub agent: Option<String>,
    /// The group that the conversation is in.
    pub group: Option<ChatGroup>,
    /// Who sent the message; `None` where the person in front did.
    pub sender: Option<Sender>,
    /// The agent must be set up, unless it is `main`: a session of another one is not opened, as nothing would narrow its tools any more.
    pub is_known_only: bool,
}

/// Which conversation a session is for, as sandboxes of a scope tell them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationPlace {
    /// Its agent.
    pub agent: String,
    /// The name of the conversation.
    pub name: String,
    /// Whether it is the main one of its agent.
    pub is_main: bool,
}

/// Puts a tool in the place of another one.
pub type ToolAdapter = Arc<dyn Fn(Arc<dyn Tool>) -> Arc<dyn Tool> + Send + Sync>;

/// A session to open.
#[derive(Clone, Default)]
pub struct OpenRequest {
    /// The session to open.
    pub which: SessionTarget,
    /// Where the front is: a directory without symbolic links in its path.
    pub here: PathBuf,
    /// The directory that the session goes on in, where that is another one.
    pub cwd: Option<PathBuf>,
    /// Nothing is kept on disk.
    pub in_memory: bool,
    /// Several programs or people take part in the session.
    pub is_shared: bool,
    /// What happens when a background command ended while the session is idle.
    pub background_wake: BackgroundWake,
    /// The store of a session that is not kept and is opened again; `None` for a new one.
    pub memory: Option<Arc<dyn Graph>>,
    /// The store of the home, where the front has it open already: sessions that are open at once share it then.
    pub store: Option<Arc<dyn Graph>>,
    /// The provider of the model.
    pub provider: Option<String>,
    /// The model: its id, `provider/id`, or a part of its name.
    pub model: Option<String>,
    /// How hard it thinks.
    pub thinking: Option<Thinking>,
    /// The key to use, for this session only.
    pub api_key: Option<String>,
    /// A recording to play in place of a model.
    pub replay: Option<Arc<Replay>>,
    /// A new file to keep requests and answers in.
    pub record: Option<PathBuf>,
    /// Ends a run after so many turns.
    pub max_turns: Option<u32>,
    /// Ends a run when it has cost so many US dollars.
    pub max_cost: Option<f64>,
    /// Which models it may call at all.
    pub prices: CallPrices,
    /// Ends a run when the store's sessions have cost so many US dollars today.
    pub daily_budget: Option<f64>,
    /// What tools may do.
    pub permissions: PermissionRequest,
    /// For whom it works.
    pub audience: SessionAudience,
    /// The budgets that its calls count for, beside that of its agent.
    pub accounts: Vec<quipu::AccountBudget>,
    /// The system prompt in place of ours.
    pub system_prompt: Option<String>,
    /// Added to the system prompt.
    pub append_system_prompt: Vec<String>,
    /// How the model's answers are read; `None` keeps that of a session that goes on.
    pub profile: Option<SessionProfile>,
    /// The model may search the web at its provider.
    pub web_search: bool,
    /// The JSON Schema that the last answer of each run is to fit. Whoever asks checks it.
    pub output_schema: Option<quipu_protocol::Json>,
    /// The built-in tools to offer, in the place of those of the settings.
    pub tools: Option<Vec<String>>,
    /// Nobody is in front of the session: a schedule began it.
    pub is_unattended: bool,
    /// Rules of the project are left out.
    pub no_context_files: bool,
    /// Of the rules of the project and the files of the workspace, a new session has `HEARTBEAT.md` alone in its prompt.
    pub is_light: bool,
    /// Hooks of the program, before those of the settings. Those that run before a session is there (a project's trust, files of
    /// rules) are these alone.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// What was answered so far to questions that come up; `None` where nobody could be asked.
    pub answers: Vec<(Question, Option<bool>)>,
    /// An editor in front, which holds files with changes that are not saved.
    pub editor: Option<Arc<dyn EditorFiles>>,
    /// Takes the tool that runs commands, and gives the one that is offered.
    pub shell: Option<ToolAdapter>,
    /// The conversation that the session is for; `None` for one of a person at this machine, which counts as the main one of an agent
    /// `main`.
    pub conversation: Option<ConversationPlace>,
    /// Servers of tools that the front brings along, by name, behind those of files.
    pub servers: Vec<(String, ServerConfig)>,
    /// Tools of the front, behind Quipu's own.
    pub added_tools: Vec<Arc<dyn Tool>>,
    /// Places of caches that the environment names are offered.
    pub offers_caches: bool,
}

impl fmt::Debug for OpenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_struct("OpenRequest")
            .field("which", &self.which)
            .field("here", &self.here)
            .finish_non_exhaustive()
    }
}

impl OpenRequest {
    /// Whether the newest session of the directory is meant.
    pub(crate) fn is_newest(&self) -> bool {
        self.which == SessionTarget::Newest
    }

    /// The session that is named.
    pub(crate) fn session(&self) -> Option<&str> {
        match &self.which {
            SessionTarget::Session(session) => Some(session),
            SessionTarget::New | SessionTarget::Newest | SessionTarget::Fork(_) => None,
        }
    }

    /// The node that is gone on from.
    pub(crate) fn fork(&self) -> Option<&str> {
        match &self.which {
            SessionTarget::Fork(node) => Some(node),
            SessionTarget::New | SessionTarget::Newest | SessionTarget::Session(_) => None,
        }
    }

    /// What was answered to a question; `None` where nobody could be asked.
    ///
    /// # Errors
    /// [`FailureKind::Asks`](crate::FailureKind::Asks) where it has to be asked first, with this text.
    pub(crate) fn answer(&self, question: Question, text: &str) -> Result<Option<bool>, crate::Failure> {
        match self.answers.iter().find(|(answered, _)| *answered == question) {
            Some((_, answer)) => Ok(*answer),
            None => Err(crate::Failure::asks(question, text)),
        }
    }
}
