//! Sessions are made, opened and continued with.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use quipu_machine::{
    Draft, EpochReason, Limits, Machine, Prefix, QueuedInput, Start, TODO_WIDGET, todo_lines,
};
use quipu_protocol::{
    Entry, Epoch, EpochContext, NodeId, Notice, SessionId, SessionProfile, SessionStart, Snapshot,
};
use quipu_store::{RefName, SessionQuery, SessionRow};
use quipu_tools::Tool;
use tokio_util::task::AbortOnDropHandle;

use crate::agents::TASK_TOOL;
use crate::background::{commands_after, left_behind};
use crate::calls::Caller;
use crate::calls::bodies::Bodies;
use crate::calls::money::Purse;
use crate::children::Children;
use crate::clock::{fresh_id, is_session_id};
use crate::commit::Committer;
use crate::early::settle_early;
use crate::engine::{Engine, Prefetch, SessionOptions};
use crate::error::OpenError;
use crate::files::{FileSnapshotter, SettleReport};
use crate::hooks::{HOOKS, HookSections, Hooks, SessionOrigin};
use crate::identity::{Prompt, system_text};
use crate::image_tool::{IMAGE_TOOL, ImageQuestions, ImageTool};
use crate::moves::SessionMover;
use crate::own_tools::{TravelOptions, TravelSource};
use crate::owner::{Lease, LeaseResult};
use crate::planning::{PlanMode, PlanRoute, epoch_plan, with_planning};
use crate::policies::{Policies, with_steps};
use crate::profile::{profile_of, profile_prompt};
use crate::resume::{Past, read_past, recover};
use crate::runner::{Backend, RUNNER_DEPTH, Runner};
use crate::session::{LiveAgents, MOST_FALLBACKS, Parts, Session};
use crate::shared_values::SharedValues;
use crate::sources::{
    ContextSource, FixedTools, InstalledFilter, OpeningPrompt, SourceOptions, Sources, ToolSet, ToolSource,
    is_tool_name, recorded_sections,
};
use crate::task_tool::TaskTool;
use crate::toolbox::{Toolbox, ToolboxParts};
use crate::travel::{SessionView, Tobe};

/// A notice for people when a session continues though its files could not be settled.
const NOT_SETTLED: &str = "Some files of an earlier jump are not restored yet. Quipu tries again when you next open \
                           the session.";

/// The system prompts that sessions begin with.
static SYSTEM_TEXTS: SharedValues<str> = SharedValues::new();

/// A session that was opened, and what the user should know about it.
#[derive(Debug)]
pub struct OpenedSession {
    /// A handle of the running session.
    pub session: Session,
    /// What an earlier process left behind, or that the session had to branch.
    pub notices: Vec<Notice>,
}

/// What options make of a session.
struct SessionParts {
    toolbox: Toolbox,
    sources: Sources,
    epoch: Epoch,
    prompt: Prompt,
    /// What people should know.
    notices: Vec<String>,
    /// Begins sessions for its hooks and sources, where it has any.
    children: Option<Children>,
    /// Sends sub-agents, where the model may.
    task: Option<Arc<TaskTool>>,
    /// Asks about images, where the model may.
    images: Option<Arc<ImageTool>>,
    plan: Option<Arc<PlanMode>>,
    /// What the session begins with in place of the model of its options.
    plan_route: Option<PlanRoute>,
}

/// What the ids of sessions begin with that hold the changes of memories.
const NOTES: &str = "memory-";
/// What the ids of sessions begin with that hold the summaries of a past.
const PAST: &str = "past-";
/// Sessions of a directory that are looked at for the newest: those of memories are left out.
const NEWEST: usize = 4;

/// Whether a session holds the changes of a memory: no model ever spoke in it.
#[must_use]
pub fn holds_notes(row: &SessionRow) -> bool {
    holds(row, NOTES)
}

/// Whether a session takes no prompts, as it holds the changes of a memory or the summaries of a past.
#[must_use]
pub fn takes_no_prompts(row: &SessionRow) -> bool {
    holds(row, NOTES) || holds(row, PAST)
}

fn holds(row: &SessionRow, prefix: &str) -> bool {
    row.id.as_str().starts_with(prefix) && row.model.is_empty() && row.agent == crate::AGENT
}

impl Engine {
    /// A new session. Nothing is stored before its first message.
    ///
    /// Must be called within a Tokio runtime, whose tasks the session uses. Should somebody else take the name
    /// before the first message, the session continues under a fresh one and says so
    /// ([`Notice::Branched`]).
    ///
    /// # Errors
    /// `BadId`, `Exists`, `BadTool`, `Store`.
    pub async fn create(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let id = self.fresh_session(&options).await?;
        let made = self.make(&id, &options, None, 0).await?;
        let first = vec![start_of(&id, &options, None, &made.epoch)];
        self.begin(options, id, first, made).await
    }

    /// A new session that is begun for another one, or for a job. Behind its first node stands `mark`.
    pub(crate) async fn begin_child(
        &self,
        options: SessionOptions,
        parent: Option<SessionId>,
        mark: Draft,
        depth: u32,
    ) -> Result<Session, OpenError> {
        let id = self.fresh_session(&options).await?;
        let made = self.make(&id, &options, None, depth).await?;
        let first = vec![start_of(&id, &options, parent, &made.epoch), mark];
        self.begin(options, id, first, made).await
    }

    async fn begin(
        &self,
        options: SessionOptions,
        id: SessionId,
        first: Vec<Draft>,
        made: SessionParts,
    ) -> Result<Session, OpenError> {
        let lease = Arc::new(Lease::new(self.store.clone()));
        lease.take(&RefName::session(&id)).await?;
        Ok(self.spawn(options, id, (Past::default(), first), made, lease, SessionOrigin::New))
    }

    /// Opens a session by its id and continues from its last node. What a dead process left open is recorded as
    /// interrupted first. While a living writer holds it (another process, or a [`Session`] of this one that was
    /// not [shut down](Session::shutdown)), a branch is made instead and reported as [`Notice::Branched`].
    ///
    /// Where its system prompt is missing from the store, it continues with that of the options, or else with our own without
    /// project rules, in a new epoch, which is reported as a [`Notice::note`]. [`has_lost_prompt`](crate::has_lost_prompt)
    /// says so before.
    ///
    /// A session that another program wrote, and that was imported, stays as it is: a new one begins below its last
    /// node, which is reported as a [`Notice::note`].
    ///
    /// # Errors
    /// `NoSuchSession`, `Notes`, `BadTool`, `Broken`, `Store`.
    pub fn open<'a>(
        &'a self,
        id: &'a SessionId,
        options: SessionOptions,
    ) -> BoxFuture<'a, Result<OpenedSession, OpenError>> {
        // Boxed in this crate: each crate that awaits an `async fn` gets a copy of its code.
        Box::pin(self.open_standing(id, options))
    }

    async fn open_standing(
        &self,
        id: &SessionId,
        options: SessionOptions,
    ) -> Result<OpenedSession, OpenError> {
        if [NOTES, PAST].iter().any(|prefix| id.as_str().starts_with(prefix)) {
            let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
            if self.store.sessions(query).await?.iter().any(takes_no_prompts) {
                return Err(OpenError::Notes(id.clone()));
            }
        }
        let name = RefName::session(id);
        let lease = Arc::new(Lease::new(self.store.clone()));
        let Some(head) = self.store.head(&name).await? else {
            return self.open_imported(id, options).await;
        };
        // The lease waits for the disk. Whoever held it until then may have gone on: that is seen afterwards.
        let (got, past) = tokio::join!(lease.take(&name), self.past_of(id, head));
        let mine = got? == LeaseResult::Acquired;
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
        *self.ahead() = Some(Prefetch { session: id.clone(), head, past });
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Prefetch>> {
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

    async fn open_imported(
        &self,
        id: &SessionId,
        options: SessionOptions,
    ) -> Result<OpenedSession, OpenError> {
        let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
        let row = self.store.sessions(query).await?.into_iter().next();
        let Some(SessionRow { head: Some(head), agent, .. }) = row else {
            return Err(OpenError::NoSuchSession(id.to_string()));
        };
        // Calls without a result are no reason to refuse: nobody will ever answer them.
        let past = self.past_of(id, head).await?;
        let options = SessionOptions { id: None, ..options };
        let OpenedSession { session, .. } = self.begin_below(past, options, SessionOrigin::Resumed).await?;
        let note = format!(
            "session {id} belongs to another program ({agent}) and is not changed; this conversation continues as \
             session {}",
            session.view().session
        );
        Ok(OpenedSession { session, notices: vec![Notice::Note { text: note }] })
    }

    async fn open_leased(
        &self,
        id: &SessionId,
        name: &RefName,
        options: SessionOptions,
        lease: Arc<Lease>,
        mine: bool,
        (before, past): (NodeId, Result<Past, OpenError>),
    ) -> Result<OpenedSession, OpenError> {
        let Some(head) = self.store.head(name).await? else {
            return Err(OpenError::NoSuchSession(id.to_string()));
        };
        let mut past = if head == before { past? } else { read_past(&*self.store, head).await? };
        past.name = self.name_of(id).await?;
        // Before anything of it is changed.
        let mut made = self.make(id, &options, Some(&past), 0).await?;
        let mut notices: Vec<Notice> = past.lost_prompt_notice().into_iter().collect();
        notices.extend(made.notices.drain(..).map(Notice::note));
        if mine {
            let SettleReport { mut notes, is_pending } = self.settle_files(id).await?;
            notes.extend(is_pending.then(|| NOT_SETTLED.to_owned()));
            notices.extend(notes.into_iter().map(Notice::note));
            let mut committer = self.committer(&past, past.epoch.clone(), Prompt::default());
            notices.extend(
                recover(&*self.store, &mut committer, id, &mut past, &self.sealer, self.clock.now()).await?,
            );
        }
        let epoch = &made.epoch;
        let mut session = id.clone();
        let mut first = Vec::new();
        if !mine {
            session = fresh_id().into();
            lease.take(&RefName::session(&session)).await?;
            past.has_ref = false;
            past.steering.clear();
            past.follow_up.clear();
            past.pending_self_message = false;
            first.push(start_of(&session, &options, Some(id.clone()), epoch));
            notices.push(Notice::Branched { session: session.clone() });
        } else if *epoch != past.epoch || past.lost_prompt.is_some() {
            // Also where the prompt is the one that was lost: it comes into the store with the node of an epoch.
            first.push(Draft::new(Entry::Epoch(epoch.clone())));
        }
        let origin = if mine { SessionOrigin::Resumed } else { SessionOrigin::Forked };
        let session = self.spawn(options, session, (past, first), made, lease, origin);
        Ok(OpenedSession { session, notices })
    }

    /// The name that people gave a session; empty for none.
    async fn name_of(&self, id: &SessionId) -> Result<String, OpenError> {
        let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
        let row = self.store.sessions(query).await?.into_iter().next();
        Ok(row.map_or_else(String::new, |row| row.called))
    }

    /// A new session that continues from any node of the graph, also one in the middle of another session, which
    /// stays as it is. Its own first node is a child of `at` and is written with its first message; before it
    /// stands the conversation up to `at`. Options that leave the system prompt open keep that of `at`. Files are
    /// not touched: they are as they are now.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = store::in_memory()?;
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
    pub async fn fork(&self, at: NodeId, options: SessionOptions) -> Result<OpenedSession, OpenError> {
        if self.store.nodes(&[at]).await?.into_iter().flatten().next().is_none() {
            return Err(OpenError::NoSuchNode(at));
        }
        let past = read_past(&*self.store, at).await?;
        let calls = past.unanswered();
        if !calls.is_empty() {
            return Err(OpenError::Incomplete { node: at, calls });
        }
        self.begin_below(past, options, SessionOrigin::Forked).await
    }

    /// A new session that continues from any node, as [`Engine::fork`] makes one, also where calls have no result: the
    /// model gets a note that there is none. For nodes that another program wrote, whose calls nobody will ever answer.
    ///
    /// # Errors
    /// As [`Engine::fork`], without `Incomplete`.
    pub async fn continue_from(
        &self,
        at: NodeId,
        options: SessionOptions,
    ) -> Result<OpenedSession, OpenError> {
        if self.store.nodes(&[at]).await?.into_iter().flatten().next().is_none() {
            return Err(OpenError::NoSuchNode(at));
        }
        let past = read_past(&*self.store, at).await?;
        self.begin_below(past, options, SessionOrigin::Forked).await
    }

    /// A new session that continues from what was read.
    async fn begin_below(
        &self,
        mut past: Past,
        options: SessionOptions,
        origin: SessionOrigin,
    ) -> Result<OpenedSession, OpenError> {
        let id = self.fresh_session(&options).await?;
        let mut made = self.make(&id, &options, Some(&past), 0).await?;
        past.has_ref = false;
        let mut first = vec![start_of(&id, &options, past.session.clone(), &made.epoch)];
        let lease = Arc::new(Lease::new(self.store.clone()));
        lease.take(&RefName::session(&id)).await?;
        let mut committer = self.committer(&past, made.epoch.clone(), made.prompt.clone());
        let settled = settle_early(&*self.store, &mut committer, &id, &mut past, &mut first).await;
        let notices = made.notices.drain(..).map(Notice::note);
        let lost = past.lost_prompt_notice().into_iter().chain(notices);
        let notices = match settled {
            Ok(trouble) => lost.chain(trouble).collect(),
            Err(error) => {
                // Or the next try would find the session held by this process.
                lease.release().await;
                return Err(error);
            }
        };
        let session = self.spawn(options, id, (past, first), made, lease, origin);
        Ok(OpenedSession { session, notices })
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
        let query = SessionQuery { cwd, limit: Some(NEWEST), ..SessionQuery::default() };
        Ok(self.store.sessions(query).await?.into_iter().find(|row| !takes_no_prompts(row)))
    }

    /// What the options make of a session: its tools, and what its requests begin with. Asks its sources.
    fn make<'a>(
        &'a self,
        id: &'a SessionId,
        options: &'a SessionOptions,
        past: Option<&'a Past>,
        depth: u32,
    ) -> BoxFuture<'a, Result<SessionParts, OpenError>> {
        // As in [`Engine::open`].
        Box::pin(self.make_parts(id, options, past, depth))
    }

    async fn make_parts(
        &self,
        id: &SessionId,
        options: &SessionOptions,
        past: Option<&Past>,
        depth: u32,
    ) -> Result<SessionParts, OpenError> {
        let profile = profile_of(options, past)?;
        let mut options = options.clone();
        options.take_profile(profile);
        let (mut options, plan) = with_planning(options, past, &self.sealer, depth);
        if profile == Some(SessionProfile::Shell) {
            // A plan is what it says in the end.
            options.keep_only_shell();
        }
        let (mut epoch_with_plan, mut plan_route, mut plan_notice) = (None, None, None);
        if let Some(mode) = &plan {
            (epoch_with_plan, plan_route, plan_notice) = epoch_plan(&options, past, mode).await;
        }
        if let Some(route) = &plan_route {
            options.take_route(route);
        }
        let options = &options;
        let mut names = HashSet::new();
        for tool in &options.tools {
            let name = &tool.spec().name;
            if !is_tool_name(name) || !names.insert(name) {
                return Err(OpenError::BadTool(name.clone()));
            }
        }
        let standing = SessionView::default();
        let travel = TravelSource::new(TravelOptions {
            store: self.store.clone(),
            sealer: self.sealer.clone(),
            clock: self.clock.clone(),
            standing: standing.clone(),
            cwd: options.cwd.clone(),
            restorer: options.files.enabled.then(|| Arc::new(self.restorer_of(options))),
            history: options.history,
            travel: options.travel,
            prunes: options.prune.enabled,
            own: &options.tools,
            had: past.map_or(&[], |past| &past.epoch.tools),
        });
        let tobe = travel.as_ref().and_then(|travel| travel.tobe.clone());
        let own = travel.map(|travel| Arc::new(travel) as Arc<dyn ToolSource>);
        let system_of_ours;
        let mut system = options.system.as_deref();
        // What is lost cannot be kept. A request without any prompt would be answered by another agent, as it were.
        if past.is_some_and(|past| past.lost_prompt.is_some() && past.prompt.system.is_none()) {
            let base = profile.map_or(crate::SYSTEM_PROMPT, profile_prompt);
            system_of_ours = crate::context::system_prompt(base, &[], &[], &options.cwd);
            system = system.or(Some(&system_of_ours));
        }
        let task = task_tool(options, past, depth);
        let mut tools = options.tools.clone();
        tools.extend(task.iter().map(|task| task.clone() as Arc<dyn Tool>));
        let images = image_tool(options, past);
        tools.extend(images.iter().map(|images| images.clone() as Arc<dyn Tool>));
        let asks = !(options.hooks.is_empty()
            && options.tool_sources.is_empty()
            && options.context_sources.is_empty()
            && task.is_none()
            && images.is_none());
        let children = asks.then(|| {
            let of_children = SessionOptions {
                profile: None,
                // Each has a prompt of its own.
                system: None,
                system_end: None,
                identity: None,
                ..options.clone()
            };
            Children::new(self.clone(), of_children, Some(id.clone()), depth)
        });
        let backend = children.clone().map(|children| Arc::new(children) as Arc<dyn Backend>);
        let mut context_sources = options.context_sources.clone();
        let sections = self.hook_sections(options, past, &mut context_sources);
        let wanted = SourceOptions {
            runner: Runner::new(backend, None),
            sealer: self.sealer.clone(),
            store: self.store.clone(),
            cwd: options.cwd.clone(),
            standing: standing.clone(),
            model: &options.model,
            tools: FixedTools { tools, are_declared: profile.is_none() },
            filter: options.tool_filter.clone().map(|filter| InstalledFilter { filter, depth }),
            own,
            tool_sources: &options.tool_sources,
            context_sources: &context_sources,
            identity: options.identity.as_deref(),
            system,
            system_end: options.system_end.as_deref(),
        };
        let (sources, OpeningPrompt { prompt, context, notices }) = Sources::open(wanted, past).await;
        let toolbox = self.toolbox(options, sources.set(), standing, tobe, sections, past);
        let mut epoch = self.epoch(options, &sources, (&prompt, context), past);
        (epoch.plan, epoch.profile) = (epoch_with_plan, profile);
        let notices = plan_notice.into_iter().chain(notices).collect();
        Ok(SessionParts {
            toolbox,
            sources,
            epoch,
            prompt,
            notices,
            children,
            task,
            images,
            plan,
            plan_route,
        })
    }

    /// What hooks say in the system prompt; where there are hooks, one more source gives it.
    fn hook_sections(
        &self,
        options: &SessionOptions,
        past: Option<&Past>,
        sources: &mut Vec<Arc<dyn ContextSource>>,
    ) -> Arc<HookSections> {
        let recorded = match options.hooks.is_empty() {
            true => BTreeMap::new(),
            false => past
                .map(|past| recorded_sections(&past.prompt.rest(), past.epoch.context.as_ref(), HOOKS))
                .unwrap_or_default(),
        };
        let sections = Arc::new(HookSections::new(&options.hooks, recorded));
        if !options.hooks.is_empty() {
            sources.push(sections.clone());
        }
        sections
    }

    fn toolbox(
        &self,
        options: &SessionOptions,
        tools: Arc<ToolSet>,
        standing: SessionView,
        tobe: Option<Arc<Tobe>>,
        sections: Arc<HookSections>,
        past: Option<&Past>,
    ) -> Toolbox {
        let parts = ToolboxParts {
            policy: with_steps(options.policy.clone(), &options.policies),
            sealer: self.sealer.clone(),
            clock: self.clock.clone(),
            cwd: options.cwd.clone(),
            outputs: self.outputs.clone(),
            env: self.env.clone(),
            command_environment: self.command_environment.clone(),
            editor: options.editor.clone(),
            processes: self.processes.clone(),
            sees_images: options.model.sees_images().into(),
        };
        let snapshotter = options.files.enabled.then(|| {
            FileSnapshotter::new(self.store.clone(), self.sealer.clone(), &options.cwd, options.files)
        });
        let (sealer, cwd) = (self.sealer.clone(), options.cwd.clone());
        let hooks =
            Hooks::new(options.hooks.clone(), sealer.clone(), cwd.clone(), standing.clone(), sections);
        let policies =
            Policies::new(&options.policies, options.policy.clone(), sealer, cwd, standing.clone());
        let background = commands_after(past.into_iter().flat_map(|past| &past.messages).map(|one| &**one));
        Toolbox::new(tools, parts, standing, snapshotter, tobe, (hooks, policies), background)
    }

    /// The epoch that the options ask for.
    fn epoch(
        &self,
        options: &SessionOptions,
        sources: &Sources,
        (prompt, context): (&Prompt, Option<EpochContext>),
        past: Option<&Past>,
    ) -> Epoch {
        let identity = prompt.identity.as_ref().map(|blob| blob.id);
        let before = past.map(|past| &past.epoch).filter(|before| before.identity == identity);
        let tools = sources.set();
        Epoch {
            provider: options.model.provider.clone(),
            model: options.model.id.clone(),
            thinking: options.thinking,
            system: prompt.system.as_ref().map(|blob| blob.id),
            identity,
            declined: before.and_then(|before| options.declined_identity.or(before.declined)),
            tools: tools.specs().clone(),
            max_tokens: options.max_tokens,
            prune: options.prune.enabled,
            context,
            tool_sources: tools.from().clone(),
            fallback: None,
            plan: None,
            profile: None,
        }
    }

    pub(crate) fn committer(&self, past: &Past, epoch: Epoch, prompt: Prompt) -> Committer {
        let (store, clock, heads) = (self.store.clone(), self.clock.clone(), self.heads().clone());
        Committer::new(store, clock, past.last_time, epoch, prompt, heads)
    }

    fn spawn(
        &self,
        mut options: SessionOptions,
        session: SessionId,
        // What there is, and what is written first.
        (past, first): (Past, Vec<Draft>),
        made: SessionParts,
        lease: Arc<Lease>,
        origin: SessionOrigin,
    ) -> Session {
        let SessionParts {
            toolbox,
            sources,
            epoch,
            prompt,
            notices,
            children,
            task,
            images,
            plan,
            plan_route,
        } = made;
        options.take_profile(epoch.profile);
        let before_plan = plan_route.map(|route| options.take_route(&route));
        let system_text: Arc<str> =
            SYSTEM_TEXTS.shared(prompt.system.as_deref().map(system_text).unwrap_or_default());
        let mut committer = self.committer(&past, epoch.clone(), prompt);
        committer.opened(past.head);
        let mover = Arc::new(SessionMover::new(self.clone(), &options));
        committer.with_mover(mover.clone());
        // The first body is kept as a difference to the last.
        if let (Some(base), Some(local)) = (past.last_body, self.store.local()) {
            local.will_build_on(base);
        }
        let Limits { daily_budget, wait, .. } = options.limits;
        let purse = Arc::new(Purse::new(daily_budget, wait, options.ledger, options.accounts));
        committer.with_purse(purse.clone());
        let learns = self.sealer.clone();
        let caller = Caller {
            learn: Arc::new(move |secret: &str| learns.know("credential", secret)),
            provider: options.provider.into(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            sealer: self.sealer.clone(),
            purse: purse.clone(),
            retries: Arc::new(AtomicBool::new(true)),
            bodies: Bodies::after(past.last_body).into(),
            unanswered: past.unanswered_call.map(Box::new).into(),
        };
        let was = (&past.epoch.provider, &past.epoch.model);
        let is_other = past.head.is_some() && was != (&epoch.provider, &epoch.model);
        let due = is_other.then_some(EpochReason::ModelChange).into_iter().collect();
        let cwd = options.cwd.to_string_lossy().into_owned();
        let policy = toolbox.parts.policy.version();
        let (model, thinking) = (options.model.clone(), options.thinking);
        let queued = |items: &[QueuedInput]| items.iter().map(QueuedInput::queued).collect();
        let mut snapshot = Snapshot {
            name: past.name,
            head: past.head,
            profile: epoch.profile,
            permissions: policy.mode.clone().unwrap_or_default(),
            steering: queued(&past.steering),
            follow_up: queued(&past.follow_up),
            ..Snapshot::new(session.clone(), cwd.clone(), model, thinking)
        };
        let reminders = left_behind(past.messages.iter().map(|message| &**message), self.clock.now());
        let todo = todo_lines(&past.messages);
        if !todo.is_empty() {
            snapshot.widgets.insert(TODO_WIDGET.into(), todo);
        }
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
            prunes: options.prune.applied(past.prunes),
            prune: options.prune,
            cache_expiry: options.cache_expiry,
            compaction: options.compaction,
            prefix: Prefix { model: options.model, system: system_text, tools: toolbox.specs(), epoch },
            steering: past.steering,
            follow_up: past.follow_up,
            pending_self_message: past.pending_self_message,
            reminders,
            limits: options.limits,
            ask_deadline: options.ask_deadline,
            policy,
            refreshes: sources.refreshes(),
            due,
            fallbacks: match options.models {
                Some(_) => options.fallbacks.len().min(MOST_FALLBACKS),
                None => 0,
            },
            before_plan: before_plan.as_ref().map(|(model, _)| model.clone()),
            has_hooks: !toolbox.hooks.is_empty(),
            hooks_change_requests: toolbox.hooks.change_requests() || toolbox.hooks.change_payloads(),
        });
        Session::spawn(Parts {
            mover,
            machine,
            snapshot,
            committer,
            caller: Arc::new(caller),
            toolbox: Arc::new(toolbox),
            sources: Arc::new(sources),
            notices,
            clock: self.clock.clone(),
            lease,
            follower: options.follower,
            models: options.models,
            fallbacks: options.fallbacks.into_iter().take(MOST_FALLBACKS).collect(),
            origin,
            children,
            task,
            images,
            agents: LiveAgents::default(),
            wake: options.background,
            plan,
            before_plan,
        })
    }
}

/// What sends sub-agents, where the options say so and the level allows it.
fn task_tool(options: &SessionOptions, past: Option<&Past>, depth: u32) -> Option<Arc<TaskTool>> {
    let settings = options.agents.clone()?;
    let is_task = |name: &str| name == TASK_TOOL;
    let is_taken = options.tools.iter().any(|tool| is_task(&tool.spec().name));
    // It would change the beginning of every request of a session that was begun without it.
    let had = past.map_or(&[][..], |past| &past.epoch.tools);
    let began_without = !had.is_empty() && !had.iter().any(|spec| is_task(&spec.name));
    let fits = depth < settings.limits.max_depth.min(RUNNER_DEPTH) && !is_taken && !began_without;
    fits.then(|| Arc::new(TaskTool::new(settings)))
}

/// What asks about images, where the options say so.
fn image_tool(options: &SessionOptions, past: Option<&Past>) -> Option<Arc<ImageTool>> {
    let is_image = |name: &str| name == IMAGE_TOOL;
    let is_taken = options.tools.iter().any(|tool| is_image(&tool.spec().name));
    // It would change the beginning of every request of a session that was begun without it.
    let had = past.map_or(&[][..], |past| &past.epoch.tools);
    let began_without = !had.is_empty() && !had.iter().any(|spec| is_image(&spec.name));
    let is_shell = options.profile == Some(SessionProfile::Shell);
    let fits = options.images == ImageQuestions::Answered && !is_taken && !began_without && !is_shell;
    fits.then(|| Arc::new(ImageTool::new(options.models.clone(), options.provider.clone())))
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
