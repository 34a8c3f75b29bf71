//! The engine: a store, a place for settings, and the sessions that are made over them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quipu_machine::{CacheExpiry, CompactionSettings, Limits, PruneSettings};
use quipu_protocol::{BlobId, Model, NodeId, SessionId, SessionProfile, Thinking};
use quipu_providers::Provider;
use quipu_seal::Sealer;
use quipu_store::{Commit, Graph, RefExpectation, RefMove, RefName, StoreError};
use quipu_tools::Tool;
use quipu_workspace::{EditorFiles, ProcessRegistry};
use tokio_util::task::AbortOnDropHandle;

use crate::agents::AgentSettings;
use crate::background::BackgroundWake;
use crate::calls::Accounts;
use crate::clock::{Clock, SystemClock};
use crate::command_environment::CommandEnvironment;
use crate::error::OpenError;
use crate::files::FileSettings;
use crate::follower::Follower;
use crate::hooks::Hook;
use crate::image_tool::ImageQuestions;
use crate::models::Models;
use crate::outputs::Outputs;
use crate::planning_settings::PlanningSettings;
use crate::policies::ToolPolicy;
use crate::policy::{AllowAll, Policy};
use crate::published::{Heads, PublishSettings};
use crate::resume::Past;
use crate::shared_values::SharedValues;
use crate::sources::{ContextSource, ToolFilter, ToolSource};
use crate::travel::{HistorySettings, TravelSettings};

/// Changes of the environment of child processes.
static ENVIRONMENTS: SharedValues<[(String, Option<String>)]> = SharedValues::new();

/// A store and what all sessions over it share. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu::protocol::{Model, Outcome};
/// use quipu::{Engine, OpenedSession, Script, ScriptStep, Sealer, SessionOptions, store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = store::in_memory()?;
/// let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
///
/// // A script in place of a model. A real one comes from `quipu_providers::Settings`.
/// let says = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
/// let script = Arc::new(Script::new(vec![says("Hello."), says("Again.")]));
/// let model = Arc::new(Model { id: "script".into(), ..Model::default() });
/// let options = SessionOptions::new(std::env::temp_dir(), model, script);
///
/// let session = engine.create(options.clone()).await?;
/// let id = session.view().session;
/// assert_eq!(session.ask("Hi!").await?, (Outcome::Done, "Hello.".into()));
/// session.shutdown().await;
///
/// // Later, and in another process if the store is a file:
/// let OpenedSession { session, notices } = engine.open(&id, options).await?;
/// assert!(notices.is_empty());
/// assert_eq!(session.ask("And?").await?.1, "Again.");
/// session.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outputs: Outputs,
    pub(crate) env: Arc<[(String, Option<String>)]>,
    pub(crate) processes: Arc<ProcessRegistry>,
    pub(crate) command_environment: Option<Arc<dyn CommandEnvironment>>,
    heads: Heads,
    /// A session that is read before it is opened.
    pub(crate) ahead: Arc<Mutex<Option<Prefetch>>>,
}

/// A session that is read before it is opened.
pub(crate) struct Prefetch {
    pub(crate) session: SessionId,
    pub(crate) head: NodeId,
    pub(crate) past: AbortOnDropHandle<Result<Past, OpenError>>,
}

/// What a session is made of.
#[derive(Clone)]
pub struct SessionOptions {
    /// The directory that it works in; absolute. Relative paths of tools start there, commands run there.
    pub cwd: PathBuf,
    /// The model that answers.
    pub model: Arc<Model>,
    /// What carries requests to it.
    pub provider: Arc<dyn Provider>,
    /// How hard it thinks.
    pub thinking: Thinking,
    /// Output tokens of one answer at most; `None` for the model's own limit.
    pub max_tokens: Option<u64>,
    /// The system prompt before the sections of [context sources](Self::context_sources), and the whole of it where there are
    /// none, as it will be sent (after sealing). `None` keeps that of a session that is resumed, with its sections, and is
    /// no prompt at all for a new one.
    pub system: Option<String>,
    /// What stands at the end of the system prompt, behind the sections of context sources; none by default. Not looked at
    /// where the prompt is kept.
    pub system_end: Option<String>,
    /// A text of the user's own that stands before the system prompt (after sealing). It is recorded with the session.
    /// `None` keeps that of a session that is resumed, and is none for a new one; an empty one takes it away.
    pub identity: Option<String>,
    /// The [`identity_hash`](crate::identity_hash) of a text that somebody did not want in the place of the one that a
    /// session continues with; recorded, so that nobody is asked again.
    pub declined_identity: Option<BlobId>,
    /// How the model's answers are read. `None` keeps that of a session that is resumed, and is none for a new one. With
    /// [`SessionProfile::Shell`] no tool is declared, and of `tools` only `bash` counts; there are no tool sources, sub-agents,
    /// to-do lists and tools of the history, and no results are left out.
    pub profile: Option<SessionProfile>,
    /// The tools, in the order in which the model sees them. Names of 1 to 64 letters, digits, `_` and `-`, no
    /// two the same.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Who may run what: the permissions, which decide first.
    pub policy: Arc<dyn Policy>,
    /// Decide on tool calls behind `policy`, in this order. Of all verdicts the strictest counts.
    pub policies: Vec<Arc<dyn ToolPolicy>>,
    /// Limits of each run.
    pub limits: Limits,
    /// Another store whose spending counts against the daily budget too, for a session whose own store keeps nothing.
    pub ledger: Option<Arc<dyn Graph>>,
    /// Of whose budgets the calls are, together with those of other sessions: of agents and jobs. `None` for nobody's. Those of
    /// sub-agents and of hooks count as well.
    pub accounts: Option<Arc<dyn Accounts>>,
    /// When the context is compacted and what stays of it.
    pub compaction: CompactionSettings,
    /// When old results of tools are left out of requests. Off by default; when it is on, the model has the tool
    /// `recall` as well, unless one of `tools` has that name.
    pub prune: PruneSettings,
    /// What requests leave out when the provider's cache has expired; `None`, the default, for nothing.
    pub cache_expiry: Option<Arc<CacheExpiry>>,
    /// Whether the model can search earlier sessions. Off by default. A tool of `tools` with the same name
    /// takes the place of ours.
    pub history: HistorySettings,
    /// What is kept of the files that tools change.
    pub files: FileSettings,
    /// An editor in front of the session: its tools read what is not saved there, and tell it what they write. None by default.
    pub editor: Option<Arc<dyn EditorFiles>>,
    /// Whether the model can look at the graph, and go to earlier points of its session. Off by default. A tool of `tools`
    /// with the name of one of ours takes its place.
    pub travel: TravelSettings,
    /// Sub-agents that the model can send with the tool `task`; `None`, the default, for none. A session that began without
    /// the tool keeps what it sends: it is not offered there. A tool of `tools` with its name takes its place.
    pub agents: Option<Arc<AgentSettings>>,
    /// Whether the model can ask another one about images with the tool `image`. Off by default. A session that began without the
    /// tool is not offered it, and a tool of `tools` with its name takes its place.
    pub images: ImageQuestions,
    /// Whether there is plan mode, and a to-do list of the model. Off by default.
    pub planning: PlanningSettings,
    /// Models that the session may continue with instead of `model` while it is open; `None` for no others.
    pub models: Option<Arc<dyn Models>>,
    /// Models with which a run continues when its own cannot: `provider/model`, the first one to try in front. Found by
    /// `models`; at most [`MOST_FALLBACKS`](crate::MOST_FALLBACKS) count.
    pub fallbacks: Vec<String>,
    /// See its steps, and may change or stop them: the first is called first.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// Give it tools, which may come and go between two turns, behind `tools`.
    pub tool_sources: Vec<Arc<dyn ToolSource>>,
    /// Decides which of all these tools, and of those of Quipu itself, the session offers; `None` for all. Sub-agents have it too.
    pub tool_filter: Option<Arc<dyn ToolFilter>>,
    /// Give it sections of its system prompt, in this order.
    pub context_sources: Vec<Arc<dyn ContextSource>>,
    /// What happens when a background command ended while the session is idle.
    pub background: BackgroundWake,
    /// Gets every commit of the session.
    pub follower: Option<Arc<dyn Follower>>,
    /// How long a question waits for an answer before it counts as refused; ten minutes by default.
    pub ask_deadline: Duration,
    /// The id of a new session: at most 128 letters, digits, `.`, `_` and `-`. `None` for a fresh UUIDv7. Not
    /// looked at by [`Engine::open`].
    pub id: Option<SessionId>,
}

impl SessionOptions {
    /// The built-in tools, no limits, every call allowed, our own system prompt without project rules.
    pub fn new(cwd: impl Into<PathBuf>, model: Arc<Model>, provider: Arc<dyn Provider>) -> Self {
        let cwd = cwd.into();
        let system = crate::context::system_prompt(crate::SYSTEM_PROMPT, &[], &[], &cwd);
        Self {
            cwd,
            model,
            provider,
            thinking: Thinking::Off,
            max_tokens: None,
            system: Some(system),
            system_end: None,
            identity: None,
            declined_identity: None,
            profile: None,
            tools: quipu_tools::builtin(),
            policy: Arc::new(AllowAll),
            policies: Vec::new(),
            limits: Limits::default(),
            ledger: None,
            accounts: None,
            compaction: CompactionSettings::default(),
            prune: PruneSettings::default(),
            cache_expiry: None,
            history: HistorySettings::default(),
            files: FileSettings::default(),
            editor: None,
            travel: TravelSettings::default(),
            agents: None,
            images: ImageQuestions::default(),
            planning: PlanningSettings::default(),
            models: None,
            fallbacks: Vec::new(),
            hooks: Vec::new(),
            tool_sources: Vec::new(),
            tool_filter: None,
            context_sources: Vec::new(),
            background: BackgroundWake::default(),
            follower: None,
            ask_deadline: Duration::from_secs(600),
            id: None,
        }
    }
}

impl Engine {
    /// An engine over a store. Long outputs of tools are kept, sealed, in files in `outputs`, in a directory for each session,
    /// which goes when the session is [removed](Self::remove).
    pub fn new(store: Arc<dyn Graph>, sealer: Arc<Sealer>, outputs: impl Into<PathBuf>) -> Self {
        let (clock, env) = (Arc::new(SystemClock), Arc::new([]));
        let (heads, ahead, processes) = (Heads::default(), Arc::default(), Arc::default());
        let outputs = Outputs::new(outputs);
        Self { store, sealer, clock, outputs, env, heads, ahead, processes, command_environment: None }
    }

    /// Keeps long outputs elsewhere, such as for as long as the program runs ([`Outputs::temporary`]).
    #[must_use]
    pub fn with_outputs(mut self, outputs: Outputs) -> Self {
        self.outputs = outputs;
        self
    }

    /// Where long outputs are kept.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Reads the time from another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Changes the environment of the tools' child processes: name and value; `None` removes the name. Remove
    /// the names that hold your keys.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(String, Option<String>)>) -> Self {
        self.env = ENVIRONMENTS.shared(env);
        self
    }

    /// Adds to the environment of the tools' commands by the node whose call starts them.
    #[must_use]
    pub fn with_command_environment(mut self, commands: Arc<dyn CommandEnvironment>) -> Self {
        self.command_environment = Some(commands);
        self
    }

    /// Owns what [lines of people](quipu_protocol::Command::Shell) leave running in the shell; without it that ends
    /// with the engine and its sessions.
    #[must_use]
    pub fn with_processes(mut self, processes: Arc<ProcessRegistry>) -> Self {
        self.processes = processes;
        self
    }

    /// Moves heads of other programs along with our sessions. None by default; names that
    /// [no head can have](PublishSettings::is_head) are left out.
    #[must_use]
    pub fn with_published_heads(mut self, settings: &PublishSettings) -> Self {
        self.heads = Heads::new(settings);
        self
    }

    /// The same, whose sessions move no heads of other programs.
    pub(crate) fn unpublished(mut self) -> Self {
        self.heads = Heads::default();
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Graph> {
        &self.store
    }

    pub(crate) fn env(&self) -> &[(String, Option<String>)] {
        &self.env
    }

    pub(crate) fn processes(&self) -> &Arc<ProcessRegistry> {
        &self.processes
    }

    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now(&self) -> quipu_protocol::UnixMs {
        self.clock.now()
    }

    /// What seals text.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Adds to a commit that moves a session from `stood` to `to` that it is the newest now.
    pub(crate) async fn publish(
        &self,
        commit: &mut Commit,
        session: &SessionId,
        stood: Option<NodeId>,
        to: NodeId,
        why: &str,
    ) -> Result<(), StoreError> {
        let heads = self.heads();
        commit.actions.extend(heads.switch(&**self.store(), session, stood, to, self.now()).await?);
        commit.moves.extend(heads.moves(to, why));
        Ok(())
    }

    /// The move that goes with the end of a session that stood there: where it was the newest, none is. Heads of other
    /// programs stay; they know no session that ends.
    pub(crate) async fn unpublish(&self, stood: NodeId, why: &str) -> Result<Option<RefMove>, StoreError> {
        let name = RefName::from(RefName::NEWEST);
        let stands = self.store().head(&name).await? == Some(stood);
        Ok(stands.then(|| RefMove {
            name,
            expect: RefExpectation::Any,
            to: None,
            fence: None,
            why: why.to_owned(),
        }))
    }
}
