//! The engine: a store, a place for settings, and the sessions that are made over them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quipu_dag::Blob;
use quipu_history::{Projects, Sight};
use quipu_protocol::{
    BlobId, Entry, Epoch, Model, NodeId, Notice, SessionId, SessionStart, Snapshot, Thinking,
};
use quipu_providers::Provider;
use quipu_seal::Sealer;
use quipu_store::{RefName, SessionQuery, SessionRow, Store, StoreError};
use quipu_tools::Tool;
use quipu_workspace::ProcessRegistry;
use tokio_util::task::AbortOnDropHandle;

use crate::bodies::Bodies;
use crate::call::Caller;
use crate::clock::{Clock, SystemClock, fresh_id};
use crate::commit::Committer;
use crate::early::settle_early;
use crate::files::{FileSettings, Keeper, Settled};
use crate::follower::Follower;
use crate::identity::Prompt;
use crate::models::Models;
use crate::money::Purse;
use crate::moves::SessionMover;
use crate::outputs::Outputs;
use crate::owner::{Got, Lease};
use crate::policy::{AllowAll, Policy};
use crate::published::{Heads, PublishSettings};
use crate::resume::{Past, read_past, recover};
use crate::session::{Parts, Session};
use crate::toolbox::{Toolbox, ToolboxParts};
use crate::travel::{
    Archive, HistorySettings, LifeTool, Recall, SearchHistory, Standing, Tobe, TraceTool, TravelSettings,
};
use quipu_machine::{CompactionSettings, Draft, Limits, Machine, Prefix, PruneSettings, Start, Waiting};

/// A session could not be made or opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such session.
    #[error("there is no session `{0}` in the store")]
    NoSuchSession(String),
    /// The id is not one that a session can have.
    #[error("`{0}` cannot name a session: use letters, digits, `.`, `_` and `-`, at most 128")]
    BadId(String),
    /// The name stands for a session that exists already.
    #[error("a session `{0}` exists already; open it instead")]
    Exists(SessionId),
    /// Two tools have the same name, or one has none that a model could call.
    #[error("`{0}` cannot name a tool, or two tools have it")]
    BadTool(String),
    /// There is no such node.
    #[error("there is no node {0} in the store")]
    NoSuchNode(NodeId),
    /// Tool calls of the last answer have no result at this node.
    #[error(
        "nothing can go on from node {}: results are missing there ({}); choose the node of an answer, or the last \
         result behind it",
        node.short(),
        calls.join(", ")
    )]
    Incomplete {
        /// The node.
        node: NodeId,
        /// The tools that were called.
        calls: Vec<String>,
    },
    /// A lineage could not be read.
    #[error("session `{session}` could not be read: {why}")]
    Broken {
        /// The session.
        session: SessionId,
        /// What is wrong.
        why: String,
    },
    /// Files of an earlier move cannot take their places, so the session is not moved again.
    #[error(
        "session `{session}` stays where it is, because files of an earlier move of it are not in their places: {why}; \
         make that possible, and the next try brings it to its end"
    )]
    Unsettled {
        /// The session.
        session: SessionId,
        /// Which, and why.
        why: String,
    },
}

/// People are told this when a session goes on though its files could not be settled.
const NOT_SETTLED: &str = "Files of an earlier jump are not all in their places; that is tried again when the session is \
                           opened the next time.";

/// A store and what all sessions over it share. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu::protocol::{Model, Outcome};
/// use quipu::store::SqliteStore;
/// use quipu::{Engine, Opened, Script, ScriptStep, Sealer, SessionOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(SqliteStore::in_memory()?);
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
/// let Opened { session, troubles } = engine.open(&id, options).await?;
/// assert!(troubles.is_empty());
/// assert_eq!(session.ask("And?").await?.1, "Again.");
/// session.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
    outputs: Outputs,
    env: Arc<[(String, Option<String>)]>,
    processes: Arc<ProcessRegistry>,
    heads: Heads,
    ahead: Arc<Mutex<Option<Ahead>>>,
}

/// A session that is read before it is opened.
struct Ahead {
    session: SessionId,
    head: NodeId,
    past: AbortOnDropHandle<Result<Past, OpenError>>,
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
    /// The whole system prompt, as it will be sent (after sealing). `None` keeps that of a session that is
    /// resumed, and is no prompt at all for a new one.
    pub system: Option<String>,
    /// A text of the user's own that stands before the system prompt (after sealing). It is recorded with the session.
    /// `None` keeps that of a session that is resumed, and is none for a new one; an empty one takes it away.
    pub identity: Option<String>,
    /// The [`identity_hash`](crate::identity_hash) of a text that somebody did not want in the place of the one that a
    /// session goes on with; recorded, so that nobody is asked again.
    pub declined_identity: Option<BlobId>,
    /// The tools, in the order in which the model sees them. Names of 1 to 64 letters, digits, `_` and `-`, no
    /// two the same.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Who may run what.
    pub policy: Arc<dyn Policy>,
    /// Limits of each run.
    pub limits: Limits,
    /// Another store whose spending counts against the daily budget too, for a session whose own store keeps nothing.
    pub ledger: Option<Arc<dyn Store>>,
    /// When the context is compacted and what stays of it.
    pub compaction: CompactionSettings,
    /// When old results of tools are left out of requests. Off by default; when it is on, the model has the tool
    /// `recall` as well, unless one of `tools` has that name.
    pub prune: PruneSettings,
    /// Whether the model can search what was said and done before. Off by default. A tool of `tools` with the same name
    /// takes the place of ours.
    pub history: HistorySettings,
    /// What is kept of the files that tools change.
    pub files: FileSettings,
    /// Whether the model can look at the graph, and go to earlier points of its session. Off by default. A tool of `tools`
    /// with the name of one of ours takes its place.
    pub travel: TravelSettings,
    /// Models that the session may go on with instead of `model` while it is open; `None` for no others.
    pub models: Option<Arc<dyn Models>>,
    /// Told of every commit of the session.
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
            identity: None,
            declined_identity: None,
            tools: quipu_tools::builtin(),
            policy: Arc::new(AllowAll),
            limits: Limits::default(),
            ledger: None,
            compaction: CompactionSettings::default(),
            prune: PruneSettings::default(),
            history: HistorySettings::default(),
            files: FileSettings::default(),
            travel: TravelSettings::default(),
            models: None,
            follower: None,
            ask_deadline: Duration::from_secs(600),
            id: None,
        }
    }
}

/// A session that was opened, and what the user should know about it.
#[derive(Debug)]
pub struct Opened {
    /// The session.
    pub session: Session,
    /// What an earlier process left behind, or that the session had to branch.
    pub troubles: Vec<Notice>,
}

impl Engine {
    /// An engine over a store. Long outputs of tools are kept, sealed, in files in `outputs`, in a directory for each session,
    /// which goes when the session is [removed](Self::remove).
    pub fn new(store: Arc<dyn Store>, sealer: Arc<Sealer>, outputs: impl Into<PathBuf>) -> Self {
        let (clock, env) = (Arc::new(SystemClock), Arc::new([]));
        let (heads, ahead, processes) = (Heads::default(), Arc::default(), Arc::default());
        Self { store, sealer, clock, outputs: Outputs::new(outputs), env, heads, ahead, processes }
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
        self.env = env.into();
        self
    }

    /// Owns what [lines of people](quipu_protocol::Command::Shell) leave running in the shell; without it that ends
    /// with the engine and its sessions.
    #[must_use]
    pub fn with_processes(mut self, processes: Arc<ProcessRegistry>) -> Self {
        self.processes = processes;
        self
    }

    /// Moves heads of other programs along with our sessions. None, where nothing is said; names that
    /// [no head can have](PublishSettings::is_head) are left out.
    #[must_use]
    pub fn with_published_heads(mut self, settings: &PublishSettings) -> Self {
        self.heads = Heads::new(settings);
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
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

    pub(crate) fn now(&self) -> quipu_protocol::UnixMs {
        self.clock.now()
    }

    /// What seals text.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// A new session. Nothing is stored before its first message.
    ///
    /// Must be called within a Tokio runtime, whose tasks the session uses. Should somebody else take the name
    /// before the first message, the session goes on under a fresh one and says so
    /// ([`Notice::Branched`]).
    ///
    /// # Errors
    /// `BadId`, `Exists`, `BadTool`, `Store`.
    pub async fn create(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let id = self.fresh_session(&options).await?;
        let toolbox = self.toolbox(&options, None)?;
        let (epoch, prompt) = self.epoch(&options, &toolbox, None);
        let past = Past::default();
        let lease = Arc::new(Lease::new(self.store.clone()));
        lease.take(&RefName::session(&id)).await?;
        let first = vec![start_of(&id, &options, None, &epoch)];
        Ok(self.spawn(options, id, past, first, toolbox, epoch, prompt, lease))
    }

    /// Opens a session by its id and goes on from its last node. What a dead process left open is recorded as
    /// interrupted first. While a living writer holds it (another process, or a [`Session`] of this one that was
    /// not [shut down](Session::shutdown)), a branch is made instead and told as [`Notice::Branched`].
    ///
    /// Where its system prompt is missing from the store, it goes on with that of the options, or else with our own without
    /// project rules, in a new epoch, which is told as a [`Notice::note`]. [`has_lost_prompt`](crate::has_lost_prompt)
    /// says so before.
    ///
    /// A session that another program wrote, and that was imported, stays as it is: a new one begins below its last
    /// node, which is told as a [`Notice::note`].
    ///
    /// # Errors
    /// `NoSuchSession`, `BadTool`, `Broken`, `Store`.
    pub async fn open(&self, id: &SessionId, options: SessionOptions) -> Result<Opened, OpenError> {
        let name = RefName::session(id);
        let lease = Arc::new(Lease::new(self.store.clone()));
        let Some(head) = self.store.head(&name).await? else {
            return self.open_imported(id, options).await;
        };
        // The lease waits for the disk. Whoever held it until then may have gone on: that is seen afterwards.
        let (got, past) = tokio::join!(lease.take(&name), self.past_of(id, head));
        let mine = got? == Got::Yes;
        match self.open_leased(id, &name, options, lease.clone(), mine, (head, past)).await {
            Ok(opened) => Ok(opened),
            Err(error) => {
                // Or the next try would find the session held by this process.
                lease.release().await;
                Err(error)
            }
        }
    }

    /// Begins to read a session that will be opened soon and stands at `head`, beside what is done until then.
    /// [`open`](Self::open) takes what was read if it still stands there. Must be called within a Tokio runtime.
    pub fn read_ahead(&self, id: &SessionId, head: NodeId) {
        let store = self.store.clone();
        let read = async move { read_past(&*store, head).await };
        let past = AbortOnDropHandle::new(tokio::spawn(read));
        *self.ahead() = Some(Ahead { session: id.clone(), head, past });
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Ahead>> {
        // Nothing can break down while it is held.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn past_of(&self, id: &SessionId, head: NodeId) -> Result<Past, OpenError> {
        let ahead = self.ahead().take();
        if let Some(ahead) = ahead.filter(|ahead| ahead.session == *id && ahead.head == head)
            && let Ok(past) = ahead.past.await
        {
            return past;
        }
        read_past(&*self.store, head).await
    }

    async fn open_imported(&self, id: &SessionId, options: SessionOptions) -> Result<Opened, OpenError> {
        let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
        let row = self.store.sessions(query).await?.into_iter().next();
        let Some(SessionRow { head: Some(head), agent, .. }) = row else {
            return Err(OpenError::NoSuchSession(id.to_string()));
        };
        // Calls without a result are no reason to refuse: nobody will ever answer them.
        let past = self.past_of(id, head).await?;
        let Opened { session, .. } = self.begin_below(past, SessionOptions { id: None, ..options }).await?;
        let note = format!(
            "session {id} was written by another program ({agent}) and stays as it is; this goes on from it as session {}",
            session.view().session
        );
        Ok(Opened { session, troubles: vec![Notice::Note { text: note }] })
    }

    async fn open_leased(
        &self,
        id: &SessionId,
        name: &RefName,
        options: SessionOptions,
        lease: Arc<Lease>,
        mine: bool,
        (before, past): (NodeId, Result<Past, OpenError>),
    ) -> Result<Opened, OpenError> {
        let Some(head) = self.store.head(name).await? else {
            return Err(OpenError::NoSuchSession(id.to_string()));
        };
        let mut past = if head == before { past? } else { read_past(&*self.store, head).await? };
        past.name = self.name_of(id).await?;
        let toolbox = self.toolbox(&options, Some(&past))?;
        let mut troubles: Vec<Notice> = past.lost_prompt_notice().into_iter().collect();
        if mine {
            let Settled { mut told, waits } = self.settle_files(id).await?;
            told.extend(waits.then(|| NOT_SETTLED.to_owned()));
            troubles.extend(told.into_iter().map(Notice::note));
            let mut committer = self.committer(&past, past.epoch.clone(), Prompt::default());
            troubles.extend(
                recover(&*self.store, &mut committer, id, &mut past, &self.sealer, self.clock.now()).await?,
            );
        }
        let (epoch, prompt) = self.epoch(&options, &toolbox, Some(&past));
        let mut session = id.clone();
        let mut first = Vec::new();
        if !mine {
            session = fresh_id().into();
            lease.take(&RefName::session(&session)).await?;
            past.has_ref = false;
            past.steering.clear();
            past.follow_up.clear();
            past.waits = false;
            first.push(start_of(&session, &options, Some(id.clone()), &epoch));
            troubles.push(Notice::Branched { session: session.clone() });
        } else if epoch != past.epoch || past.lost_prompt.is_some() {
            // Also where the prompt is the one that was lost: it comes into the store with the node of an epoch.
            first.push(Draft::new(Entry::Epoch(epoch.clone())));
        }
        let session = self.spawn(options, session, past, first, toolbox, epoch, prompt, lease);
        Ok(Opened { session, troubles })
    }

    /// The name that people gave a session; empty for none.
    async fn name_of(&self, id: &SessionId) -> Result<String, OpenError> {
        let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
        let row = self.store.sessions(query).await?.into_iter().next();
        Ok(row.map_or_else(String::new, |row| row.called))
    }

    /// A new session that goes on from any node of the graph, also one in the middle of another session, which
    /// stays as it is. Its own first node is a child of `at` and is written with its first message; before it
    /// stands the conversation up to `at`. Options that leave the system prompt open keep that of `at`. Files are
    /// not touched: they are as they are now.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store::SqliteStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = Arc::new(SqliteStore::in_memory()?);
    /// # let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    /// # let says = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
    /// # let steps = ["Left or right?", "Left it is.", "Right it is."].map(says);
    /// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(steps.into())));
    /// # let options = SessionOptions::new(std::env::temp_dir(), model, script);
    /// let session = engine.create(options.clone()).await?;
    /// session.ask("Where to?").await?;
    /// let here = session.view().head.ok_or("no head")?;
    /// session.ask("Left.").await?;
    /// session.shutdown().await;
    ///
    /// let other = engine.fork(here, options).await?.session;
    /// assert_eq!(other.ask("Right.").await?.1, "Right it is.");
    /// other.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoSuchNode`; `Incomplete` where calls wait for results; `BadId`, `Exists`, `BadTool`, `Broken`, `Store`.
    pub async fn fork(&self, at: NodeId, options: SessionOptions) -> Result<Opened, OpenError> {
        if self.store.nodes(&[at]).await?.into_iter().flatten().next().is_none() {
            return Err(OpenError::NoSuchNode(at));
        }
        let past = read_past(&*self.store, at).await?;
        let calls = past.unanswered();
        if !calls.is_empty() {
            return Err(OpenError::Incomplete { node: at, calls });
        }
        self.begin_below(past, options).await
    }

    /// A new session that goes on from any node, as [`Engine::fork`] makes one, also where calls have no result: the
    /// model is told that there is none. For nodes that another program wrote, whose calls nobody will ever answer.
    ///
    /// # Errors
    /// As [`Engine::fork`], without `Incomplete`.
    pub async fn go_on_from(&self, at: NodeId, options: SessionOptions) -> Result<Opened, OpenError> {
        if self.store.nodes(&[at]).await?.into_iter().flatten().next().is_none() {
            return Err(OpenError::NoSuchNode(at));
        }
        let past = read_past(&*self.store, at).await?;
        self.begin_below(past, options).await
    }

    /// A new session that goes on from what was read.
    async fn begin_below(&self, mut past: Past, options: SessionOptions) -> Result<Opened, OpenError> {
        let id = self.fresh_session(&options).await?;
        let toolbox = self.toolbox(&options, Some(&past))?;
        past.has_ref = false;
        let (epoch, prompt) = self.epoch(&options, &toolbox, Some(&past));
        let mut first = vec![start_of(&id, &options, past.session.clone(), &epoch)];
        let lease = Arc::new(Lease::new(self.store.clone()));
        lease.take(&RefName::session(&id)).await?;
        let mut committer = self.committer(&past, epoch.clone(), prompt.clone());
        let settled = settle_early(&*self.store, &mut committer, &id, &mut past, &mut first).await;
        let lost = past.lost_prompt_notice();
        let troubles = match settled {
            Ok(trouble) => lost.into_iter().chain(trouble).collect(),
            Err(error) => {
                // Or the next try would find the session held by this process.
                lease.release().await;
                return Err(error);
            }
        };
        let session = self.spawn(options, id, past, first, toolbox, epoch, prompt, lease);
        Ok(Opened { session, troubles })
    }

    /// The id of a session that is to be made.
    async fn fresh_session(&self, options: &SessionOptions) -> Result<SessionId, OpenError> {
        let id = options.id.clone().unwrap_or_else(|| fresh_id().into());
        if !is_session_id(id.as_str()) {
            return Err(OpenError::BadId(id.to_string()));
        }
        if options.id.is_some() && self.store.head(&RefName::session(&id)).await?.is_some() {
            return Err(OpenError::Exists(id));
        }
        Ok(id)
    }

    /// The newest session of a directory.
    ///
    /// # Errors
    /// `Store`.
    pub async fn newest(&self, cwd: &Path) -> Result<Option<SessionRow>, OpenError> {
        let cwd = Some(cwd.to_string_lossy().into_owned());
        let rows =
            self.store.sessions(SessionQuery { cwd, limit: Some(1), ..SessionQuery::default() }).await?;
        Ok(rows.into_iter().next())
    }

    fn toolbox(&self, options: &SessionOptions, past: Option<&Past>) -> Result<Toolbox, OpenError> {
        let (mut tools, standing) = (options.tools.clone(), Standing::default());
        // Other tools would change the beginning of every request of a session that was begun without them.
        let began_without = |name: &str| {
            past.is_some_and(|past| {
                let tools = &past.epoch.tools;
                !tools.is_empty() && tools.iter().all(|spec| spec.name != name)
            })
        };
        let searches = options.history.enabled && !began_without(SearchHistory::NAME);
        let travels = options.travel.tools && !began_without(LifeTool::NAME);
        let projects = Arc::new(Projects::new(options.cwd.to_string_lossy().into_owned()));
        if searches && tools.iter().all(|tool| tool.spec().name != SearchHistory::NAME) {
            let (store, sealer) = (self.store.clone(), self.sealer.clone());
            let tool = SearchHistory::new(store, sealer, self.clock.clone(), projects.clone());
            tools.push(Arc::new(tool));
        }
        let stands = standing.clone();
        let head = Arc::new(move || stands.get().and_then(|view| view.borrow().head));
        let sight = Sight::Project { projects, head };
        let archive = Archive { store: self.store.clone(), clock: self.clock.clone(), sight };
        if (searches || travels || options.prune.enabled)
            && tools.iter().all(|tool| tool.spec().name != Recall::NAME)
        {
            tools.push(Arc::new(Recall::new(archive.clone(), travels)));
        }
        if travels {
            let ours: [Arc<dyn Tool>; 2] =
                [Arc::new(LifeTool::new(archive.clone())), Arc::new(TraceTool::new(archive))];
            let named = |name: &str| tools.iter().any(|tool| tool.spec().name == name);
            let ours: Vec<_> = ours.into_iter().filter(|tool| !named(&tool.spec().name)).collect();
            tools.extend(ours);
        }
        let began_without = past.is_some_and(|past| {
            let tools = &past.epoch.tools;
            !tools.is_empty() && tools.iter().all(|spec| spec.name != Tobe::NAME)
        });
        let own = tools.iter().any(|tool| tool.spec().name == Tobe::NAME);
        let ground = options.files.enabled.then(|| Arc::new(self.ground_of(options)));
        let tobe = (options.travel.tools && !began_without && !own).then(|| {
            let (store, standing) = (self.store.clone(), standing.clone());
            Arc::new(Tobe::new(store, standing, options.cwd.clone(), ground))
        });
        tools.extend(tobe.iter().map(|tobe| tobe.clone() as Arc<dyn Tool>));
        let mut names = std::collections::HashSet::new();
        for tool in &tools {
            let name = &tool.spec().name;
            let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            if name.is_empty() || name.len() > 64 || !fits || !names.insert(name) {
                return Err(OpenError::BadTool(name.clone()));
            }
        }
        let parts = ToolboxParts {
            policy: options.policy.clone(),
            sealer: self.sealer.clone(),
            clock: self.clock.clone(),
            cwd: options.cwd.clone(),
            outputs: self.outputs.clone(),
            env: self.env.clone(),
            processes: self.processes.clone(),
            sees_images: options.model.sees_images().into(),
        };
        let keeper = options
            .files
            .enabled
            .then(|| Keeper::new(self.store.clone(), self.sealer.clone(), &options.cwd, options.files));
        Ok(Toolbox::new(tools, parts, standing, keeper, tobe))
    }

    /// The epoch that the options ask for, and its system prompt.
    fn epoch(&self, options: &SessionOptions, toolbox: &Toolbox, past: Option<&Past>) -> (Epoch, Prompt) {
        let (identity, mut system) = (options.identity.as_deref(), options.system.as_deref());
        let own;
        // What is lost cannot be kept. A request without any prompt would be answered by another agent, as it were.
        if past.is_some_and(|past| past.lost_prompt.is_some() && past.prompt.system.is_none()) {
            own = crate::context::system_prompt(crate::SYSTEM_PROMPT, &[], &[], &options.cwd);
            system = system.or(Some(&own));
        }
        let prompt = Prompt::of(&self.sealer, identity, system, past.map(|past| &past.prompt));
        let identity = prompt.identity.as_ref().map(|blob| blob.id);
        let before = past.map(|past| &past.epoch).filter(|before| before.identity == identity);
        let epoch = Epoch {
            provider: options.model.provider.clone(),
            model: options.model.id.clone(),
            thinking: options.thinking,
            system: prompt.system.as_ref().map(|blob| blob.id),
            identity,
            declined: before.and_then(|before| options.declined_identity.or(before.declined)),
            tools: toolbox.specs().to_vec(),
            max_tokens: options.max_tokens,
            prune: options.prune.enabled,
        };
        (epoch, prompt)
    }

    pub(crate) fn committer(&self, past: &Past, epoch: Epoch, prompt: Prompt) -> Committer {
        let (store, clock, heads) = (self.store.clone(), self.clock.clone(), self.heads.clone());
        Committer::new(store, clock, past.last_time, epoch, prompt, heads)
    }

    #[expect(clippy::too_many_arguments, reason = "called from two places with the same values at hand")]
    fn spawn(
        &self,
        options: SessionOptions,
        session: SessionId,
        past: Past,
        first: Vec<Draft>,
        toolbox: Toolbox,
        epoch: Epoch,
        prompt: Prompt,
        lease: Arc<Lease>,
    ) -> Session {
        let system_text: Arc<str> =
            prompt.system.as_ref().map_or_else(|| "".into(), |blob| system_text(blob).into());
        let mut committer = self.committer(&past, epoch.clone(), prompt);
        committer.opened(past.head);
        let mover = Arc::new(SessionMover::new(self.clone(), &options));
        committer.with_mover(mover.clone());
        if let Some(ground) = toolbox.ground() {
            committer.with_files(ground);
        }
        // The first body is kept as a difference to the last.
        past.last_body.into_iter().for_each(|base| self.store.will_build_on(base));
        let Limits { daily_budget, wait, .. } = options.limits;
        let purse = Arc::new(Purse::new(daily_budget, wait, options.ledger));
        committer.with_purse(purse.clone());
        let caller = Caller {
            provider: options.provider.into(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            sealer: self.sealer.clone(),
            system: epoch.system,
            purse: purse.clone(),
            bodies: Bodies::after(past.last_body).into(),
        };
        let cwd = options.cwd.to_string_lossy().into_owned();
        let policy = options.policy.version();
        let (model, thinking) = (options.model.clone(), options.thinking);
        let queued = |items: &[Waiting]| items.iter().map(Waiting::queued).collect();
        let snapshot = Snapshot {
            name: past.name,
            head: past.head,
            permissions: policy.mode.clone().unwrap_or_default(),
            steering: queued(&past.steering),
            follow_up: queued(&past.follow_up),
            ..Snapshot::new(session.clone(), cwd.clone(), model, thinking)
        };
        let machine = Machine::new(Start {
            session,
            cwd,
            head: past.head,
            has_ref: past.has_ref,
            first,
            messages: past.messages,
            nodes: past.nodes,
            compacted: past.compacted,
            old: past.old,
            measured: past.measured,
            prunes: if options.prune.enabled { past.prunes } else { Vec::new() },
            prune: options.prune,
            compaction: options.compaction,
            prefix: Prefix { model: options.model, system: system_text, tools: toolbox.specs(), epoch },
            steering: past.steering,
            follow_up: past.follow_up,
            waits: past.waits,
            limits: options.limits,
            ask_deadline: options.ask_deadline,
            policy,
        });
        Session::spawn(Parts {
            mover,
            machine,
            snapshot,
            committer,
            caller: Arc::new(caller),
            toolbox: Arc::new(toolbox),
            clock: self.clock.clone(),
            lease,
            follower: options.follower,
            models: options.models,
        })
    }
}

/// The first node of a session.
fn start_of(id: &SessionId, options: &SessionOptions, parent: Option<SessionId>, epoch: &Epoch) -> Draft {
    Draft::new(Entry::Session(SessionStart {
        session: id.clone(),
        cwd: options.cwd.to_string_lossy().into_owned(),
        agent: crate::AGENT.into(),
        parent_session: parent,
        epoch: epoch.clone(),
    }))
}

/// Whether a text can name a session.
pub(crate) fn is_session_id(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

pub(crate) fn system_blob(text: &str) -> Blob {
    Blob::string("system_prompt", text)
}

/// The text of a `system_prompt` blob.
pub(crate) fn system_text(blob: &Blob) -> String {
    serde_json::from_str(&blob.content).unwrap_or_default()
}
