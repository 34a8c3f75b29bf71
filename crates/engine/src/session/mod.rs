//! A session at work: the handle that fronts hold. The task behind it is in `task`.

mod agent_place;
mod asks;
mod background;
mod calling;
mod effects;
mod falling_back;
mod forgetting;
mod hooking;
mod live_agents;
mod planning;
mod running;
mod shell;
mod sides;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::mailbox;
use futures_util::future::BoxFuture;
use quipu_protocol::{
    AbortTarget, Ack, Answer, Ask, AskId, AskKind, Command, Ending, Event, ItemId, Json, Message, Model,
    MoveFiles, NodeId, Notice, Outcome, QueueMode, Refusal, RunId, Scope, SessionId, SessionProfile, Setting,
    Snapshot, Summarize, Ui, UserInput,
};
use quipu_providers::Provider;
use quipu_seal::Sealer;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::asks::Question;
pub use self::falling_back::MOST_FALLBACKS;
pub use self::live_agents::LiveAgent;
pub(crate) use self::live_agents::LiveAgents;
use self::planning::FoundPlan;
use self::sides::{SessionRunner, SideAsk};
use self::task::Task;
use crate::background::{BackgroundNews, BackgroundWake};
use crate::calls::money::Purse;
use crate::calls::{Caller, seal_content};
use crate::children::Children;
use crate::clock::Clock;
use crate::commit::Committer;
use crate::follower::Follower;
use crate::hooks::SessionOrigin;
use crate::image_tool::ImageTool;
use crate::models::{ModelLookupError, Models};
use crate::moves::{SessionMover, refused};
use crate::owner::Lease;
use crate::planning::PlanMode;
use crate::policy::{Grant, SharedPolicy};
use crate::profile::last_words;
use crate::runner::Backend;
use crate::sessions::clean;
use crate::sources::Sources;
use crate::subscribe::{Delivery, Events, Subscriber, View};
use crate::task_tool::TaskTool;
use crate::toolbox::Toolbox;
use quipu_machine::FallbackResult;
use quipu_machine::Machine;
use quipu_machine::{LiveChanges, PolicyVersion};
use quipu_transcript::FilePlan;

/// Commands and answers that may wait for the session task.
const MAILBOX: usize = 256;
/// How long [`Session::shutdown`] waits for what runs.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// Everything that a session task needs.
pub(crate) struct Parts {
    /// Makes moves.
    pub(crate) mover: Arc<SessionMover>,
    pub(crate) machine: Machine,
    /// How the session stands before its first event.
    pub(crate) snapshot: Snapshot,
    pub(crate) committer: Committer,
    pub(crate) caller: Arc<Caller>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) sources: Arc<Sources>,
    /// What people should know who cannot be reached before the first command.
    pub(crate) notices: Vec<String>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) follower: Option<Arc<dyn Follower>>,
    pub(crate) models: Option<Arc<dyn Models>>,
    /// Names of the models that continue a run.
    pub(crate) fallbacks: Vec<String>,
    /// How it begins.
    pub(crate) origin: SessionOrigin,
    /// Begins sessions for its hooks and sources, where it has any.
    pub(crate) children: Option<Children>,
    /// Sends sub-agents, where the model may.
    pub(crate) task: Option<Arc<TaskTool>>,
    /// Asks about images, where the model may.
    pub(crate) images: Option<Arc<ImageTool>>,
    /// Those at work.
    pub(crate) agents: LiveAgents,
    /// Whether it begins a run when a background command ended.
    pub(crate) wake: BackgroundWake,
    /// Its plan mode, where it has one.
    pub(crate) plan: Option<Arc<PlanMode>>,
    /// The model to which it goes back when plan mode ends, where it begins with the one for plans.
    pub(crate) before_plan: Option<(Arc<Model>, Arc<dyn Provider>)>,
}

/// A model, and what carries requests to it.
type ModelRoute = (Arc<Model>, Arc<dyn Provider>);

/// A model that continues a run, on its way to the machine.
struct FoundFallback {
    run: RunId,
    result: FallbackResult,
    route: Option<ModelRoute>,
}

/// What a command needs to know of what is outside.
enum CommandInfo {
    Nothing,
    /// The model that it names.
    Model(ModelRoute),
    /// Which rules the policy goes by.
    Policy(PolicyVersion),
    /// The same, where plan mode is switched, and the model for plans.
    Plan(PolicyVersion, FoundPlan),
    /// The line as it was given, which runs so, and what hooks did to it.
    Line(String, Vec<Json>),
    /// The inbox that holds the message already, and its id there.
    Stored(SessionId, ItemId),
}

enum Mail {
    /// With what was found for it.
    Command(Command, CommandInfo, oneshot::Sender<Result<Ack, Refusal>>),
    Subscribe(Subscriber, oneshot::Sender<Snapshot>),
    /// An open question.
    FindAsk(AskId, oneshot::Sender<Option<Arc<Ask>>>),
    /// A question of somebody beside the run.
    Ask(Question),
    /// Something for people to see.
    Show(Ui),
    /// A change that is not recorded.
    Tune(LiveChanges),
    /// A call of a model for a hook or a source, or a child session.
    Side(Box<SideAsk>),
    /// A background command began or ended.
    Background(Box<BackgroundNews>),
    /// A sub-agent began or ended.
    Child(Box<Event>),
}

/// A handle of a session at work. Clones are handles of the same session.
///
/// [`Session::shutdown`] ends the session and waits until that is recorded. Dropping the last handle ends it in the same
/// way, and nobody waits: when the runtime stops before that, the next [`Engine::open`](crate::Engine::open) reports what
/// was interrupted.
///
/// ```
/// # use std::sync::Arc;
/// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, store};
/// use quipu::Delivery;
/// use quipu::protocol::{Delta, Ending, Event, Model};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = store::in_memory()?;
/// # let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
/// # let step = ScriptStep { text: "Hello.".into(), ..ScriptStep::default() };
/// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![step])));
/// # let session = engine.create(SessionOptions::new(std::env::temp_dir(), model, script)).await?;
/// let (_, mut events) = session.subscribe(Delivery::Lossless).await?;
/// session.prompt("Hi!").await?;
/// let mut text = String::new();
/// while let Some(envelope) = events.next().await {
///     match &envelope.event {
///         Event::MessageDelta { delta: Delta::Text { text: piece, .. }, .. } => text.push_str(piece),
///         // The provider is asked again.
///         Event::MessageEnded { ending: Ending::Dropped(_), .. } => text.clear(),
///         Event::Settled => break,
///         _ => {}
///     }
/// }
/// assert_eq!(text, "Hello.");
/// session.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Session(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mail: mailbox::Sender<Mail>,
    policy: SharedPolicy,
    purse: Arc<Purse>,
    retries: Arc<AtomicBool>,
    toolbox: Arc<Toolbox>,
    view: watch::Receiver<View>,
    cwd: std::path::PathBuf,
    sealer: Arc<Sealer>,
    mover: Arc<SessionMover>,
    /// Answers on their way that changed the policy.
    granting: Arc<AtomicUsize>,
    models: ModelLookup,
    agents: LiveAgents,
    plan: Option<Arc<PlanMode>>,
    profile: Option<SessionProfile>,
    /// Who holds it puts the next command into the mailbox.
    order: tokio::sync::Mutex<()>,
    /// Kills what runs.
    stop: CancellationToken,
    /// The task is over.
    ended: CancellationToken,
}

impl Session {
    /// US dollars that may be spent in a day, from the next call on, whether one is under way or not. `None`: no limit.
    pub fn set_daily_budget(&self, dollars: Option<f64>) {
        self.purse().set_daily(dollars);
    }

    /// Whether requests that failed for reasons that pass are sent again, from the next failure on.
    pub fn set_auto_retry(&self, on: bool) {
        self.0.retries.store(on, Ordering::Relaxed);
    }

    /// US dollars that all of its calls cost, or may have cost, since it was opened: also calls beside the conversation and
    /// those of its child sessions.
    pub fn spent(&self) -> f64 {
        self.purse().book.spent()
    }
}

impl Session {
    pub(crate) fn spawn(parts: Parts) -> Self {
        let (mail, inbox) = mailbox::channel(MAILBOX);
        let (view_tx, view) = watch::channel(view_of(&parts.machine));
        // Each toolbox has one session.
        drop(parts.toolbox.standing.set(view.clone()));
        let mover = parts.mover.clone();
        let granting = Arc::new(AtomicUsize::new(0));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let cwd = parts.toolbox.parts.cwd.clone();
        let sealer = parts.toolbox.parts.sealer.clone();
        let toolbox = parts.toolbox.clone();
        if !toolbox.hooks.is_empty() || toolbox.policies.is_some() {
            let asker = asks::asker(&mail);
            if let Some(policies) = &toolbox.policies {
                policies.asks_through(asker.clone());
            }
            toolbox.hooks.asks_through(asker);
        }
        if let Some(children) = &parts.children {
            let (mail, sealer, children) = (mail.downgrade(), sealer.clone(), children.clone());
            let runner: Arc<dyn Backend> = Arc::new(SessionRunner { mail, sealer, children });
            toolbox.hooks.runs_through(runner.clone());
            if let Some(task) = &parts.task {
                task.runs_through(runner.clone());
            }
            if let Some(images) = &parts.images {
                images.runs_through(runner.clone());
            }
            parts.sources.runs_through(runner);
        }
        let agents = parts.agents.clone();
        toolbox.background.observe(background::observer(background::teller(&mail), &toolbox, parts.wake));
        let plan = parts.plan.clone();
        if let Some(plan) = &plan {
            planning::connect(plan, &mail, &parts.toolbox.parts.policy);
        }
        let profile = parts.snapshot.profile;
        let (models, purse) = (ModelLookup(parts.models.clone()), parts.caller.purse.clone());
        let retries = parts.caller.retries.clone();
        let policy = SharedPolicy(parts.toolbox.parts.policy.clone());
        // Moved as a whole, it would stand in the future twice.
        let task = Box::new(Task::new(parts, inbox, view_tx, stop.clone(), granting.clone()));
        let over = ended.clone().drop_guard();
        // Its owner is the mailbox: it ends soon after the last handle is gone.
        tokio::spawn(async move {
            task.serve().await;
            drop(over);
        });
        let order = tokio::sync::Mutex::default();
        Self(Arc::new(Inner {
            mail,
            policy,
            purse,
            retries,
            toolbox,
            view,
            cwd,
            sealer,
            mover,
            granting,
            models,
            agents,
            plan,
            profile,
            order,
            stop,
            ended,
        }))
    }

    pub(crate) fn purse(&self) -> &Arc<Purse> {
        &self.0.purse
    }

    /// How its answers are read; `None` where they are answers with tool calls.
    pub fn profile(&self) -> Option<SessionProfile> {
        self.0.profile
    }

    /// Sends a command. Resolves when it is accepted and durable, not when it is done.
    ///
    /// # Errors
    /// [`Refusal`] says why; nothing happened then.
    pub async fn send(&self, command: Command) -> Result<Ack, Refusal> {
        self.send_with(command, CommandInfo::Nothing).await
    }

    fn send_with(&self, command: Command, found: CommandInfo) -> BoxFuture<'_, Result<Ack, Refusal>> {
        // Boxed in this crate: each crate that awaits an `async fn` gets a copy of its code.
        Box::pin(self.carry_out(command, found))
    }

    async fn carry_out(&self, mut command: Command, mut found: CommandInfo) -> Result<Ack, Refusal> {
        let mut _granting = None;
        // Here and not in the task, which must not be held up by a large message.
        match &mut command {
            Command::Prompt { input, .. } => seal_content(&mut input.content, &self.0.sealer),
            Command::Answer { ask, answer } => _granting = self.take_answer(ask, answer).await?,
            Command::Compact { focus: Some(focus) } => *focus = self.0.sealer.seal(focus).into_owned(),
            Command::Merge { note, .. } => *note = self.0.sealer.seal(note).into_owned(),
            Command::Label { text: Some(text), .. } | Command::Rename { name: text } => {
                *text =
                    clean(&self.0.sealer, text).map_err(|characters| Refusal::LabelTooLong { characters })?;
            }
            Command::Fork { at } => {
                let at = *at;
                self.hook_move(&command).await?;
                return self.fork(at).await;
            }
            Command::Jump { summary, label, .. } => {
                if let Some(Summarize { focus: Some(focus) }) = summary {
                    *focus = self.0.sealer.seal(focus).into_owned();
                }
                if let Some(text) = label.take() {
                    let text = clean(&self.0.sealer, &text)
                        .map_err(|characters| Refusal::LabelTooLong { characters })?;
                    *label = Some(text).filter(|text| !text.is_empty());
                }
            }
            Command::Shell { line, .. } => {
                let sealed = self.0.sealer.seal(line).into_owned();
                found = CommandInfo::Line(std::mem::replace(line, sealed), Vec::new());
            }
            Command::Compact { focus: None }
            | Command::Continue
            | Command::Unqueue { .. }
            | Command::Abort { .. }
            | Command::Set { .. }
            | Command::Undo { .. }
            | Command::Redo { .. }
            | Command::UndoCompaction
            | Command::Label { text: None, .. }
            | Command::Close => {}
        }
        let mut beside = Vec::new();
        if self.has_hooks() {
            match &mut command {
                Command::Prompt { input, .. } => match self.hook_input(input).await? {
                    Ok(texts) => beside = texts,
                    Err(ack) => return Ok(ack),
                },
                Command::Shell { line, hidden } => {
                    if let Some(changed) = self.hook_shell(line, *hidden).await? {
                        found = changed;
                    }
                }
                command => self.hook_move(command).await?,
            }
        }
        self.end_background(&command).await?;
        // A prompt after the choice of another model goes to that one, though it takes a while to find.
        let turn = match &command {
            Command::Abort { .. } | Command::Answer { .. } | Command::Close => None,
            _ => Some(self.0.order.lock().await),
        };
        let mut left_plan = false;
        if let (Command::Prompt { input, .. }, Some(plan)) = (&mut command, &self.0.plan) {
            left_plan = plan.note_beside(input);
        }
        found = match &command {
            Command::Set { setting: Setting::Model { provider, id } } => CommandInfo::Model(
                self.0
                    .models
                    .find(provider, id)
                    .await
                    .map_err(|error| Refusal::NoSuchModel { why: error.to_string() })?,
            ),
            Command::Set { setting: Setting::Permissions } => {
                CommandInfo::Policy(self.policy_version().await?)
            }
            Command::Set { setting: Setting::Plan { on } } => self.switch_plan(*on).await?,
            _ => found,
        };
        let remarks = match &found {
            CommandInfo::Model((model, _)) => self.0.models.remarks(model),
            _ => Vec::new(),
        };
        let (reply, answer) = oneshot::channel();
        self.0.mail.send(Mail::Command(command, found, reply)).await.map_err(|_| Refusal::Closed)?;
        drop(turn);
        let answer = answer.await.unwrap_or(Err(Refusal::Closed));
        if let Some(plan) = self.0.plan.as_ref().filter(|_| answer.is_err() && left_plan) {
            plan.note_was_lost();
        }
        if answer.is_ok() {
            self.note(remarks).await?;
        }
        if answer.is_err() && !beside.is_empty() {
            self.0.toolbox.hooks.put_opening_back(beside);
        }
        answer
    }

    /// Says something to an idle agent. Acknowledged with the run's id once the message is durable.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `Empty`; `SlowSubscriber`; `Store`; `Closed`.
    pub async fn prompt(&self, input: impl Into<UserInput>) -> Result<Ack, Refusal> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::Now }).await
    }

    /// Says something that waits in an inbox of the store already, to an idle agent: it leaves that inbox in the commit that makes
    /// it part of the session, so that it is said once, whenever the process ends. Where hooks make nothing of it (`Handled`) it
    /// stays in the inbox.
    ///
    /// # Errors
    /// As [`Session::prompt`]; `Store` also where it is not in that inbox. It stays there then.
    pub async fn prompt_stored(
        &self,
        inbox: &SessionId,
        item: &ItemId,
        input: impl Into<UserInput>,
    ) -> Result<Ack, Refusal> {
        let command = Command::Prompt { input: input.into(), when: QueueMode::Now };
        self.send_with(command, CommandInfo::Stored(inbox.clone(), item.clone())).await
    }

    /// Says something that reaches the model after the current turn; at once when idle. One waiting message a
    /// turn, in order.
    ///
    /// # Errors
    /// `Empty`; `QueueFull` when 256 messages wait; `SlowSubscriber`; `Store`; `Closed`.
    pub async fn steer(&self, input: impl Into<UserInput>) -> Result<Ack, Refusal> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::Steer }).await
    }

    /// Says something that waits in an inbox of the store already, as [`Session::steer`] does: it leaves that inbox in the commit
    /// that makes it part of the session. `Queued` says that it waits for that; [`Command::Unqueue`] takes it back, and it stays in
    /// its inbox then, as it does where hooks make nothing of it (`Handled`).
    ///
    /// # Errors
    /// As [`Session::steer`]. It stays in its inbox then.
    pub async fn steer_stored(
        &self,
        inbox: &SessionId,
        item: &ItemId,
        input: impl Into<UserInput>,
    ) -> Result<Ack, Refusal> {
        let command = Command::Prompt { input: input.into(), when: QueueMode::Steer };
        self.send_with(command, CommandInfo::Stored(inbox.clone(), item.clone())).await
    }

    /// Says something that reaches the model when it would stop; at once when idle.
    ///
    /// # Errors
    /// `Empty`; `QueueFull` when 256 messages wait; `SlowSubscriber`; `Store`; `Closed`.
    pub async fn follow_up(&self, input: impl Into<UserInput>) -> Result<Ack, Refusal> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::FollowUp }).await
    }

    /// Stops the run; it ends with `RunEnded` and `Settled` soon after (tools get 5 seconds). What waits in the
    /// queues stays there.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn abort(&self) -> Result<(), Refusal> {
        self.send(Command::Abort { target: AbortTarget::Run }).await.map(|_| ())
    }

    /// Sums the context up, except for its end; `CompactionEnded` tells what came of it. Acknowledged as begun.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `NothingToCompact`; `Behind`; `Closed`.
    pub async fn compact(&self, focus: Option<String>) -> Result<Ack, Refusal> {
        self.send(Command::Compact { focus }).await
    }

    /// Goes to another node of the session: before a message of the user, else behind the node. What is left behind stays
    /// in the graph, and is summed up at the new place where that is wanted and there is something to sum up.
    /// `JumpEnded` tells what came of it; going to where it stood takes it back. The model, the tools and the system
    /// prompt stay what they are. Acknowledged as begun. [`Engine::jump`](crate::Engine::jump) is the same for a session
    /// at rest, and asks no model.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `NotInSession`; `LabelTooLong`; `SlowSubscriber`; `Store`; `Closed`.
    pub async fn jump(
        &self,
        to: NodeId,
        summary: Option<Summarize>,
        label: Option<String>,
    ) -> Result<Ack, Refusal> {
        self.send(Command::Jump { to, summary, label, files: MoveFiles::Keep }).await
    }

    /// What a jump with files would do to them, as they are now. Nothing is changed.
    ///
    /// # Errors
    /// `NotInSession`; `Files` where that is unknown; `NotMoved` before the first message; `Store`.
    pub async fn plan_files(&self, to: NodeId) -> Result<FilePlan, Refusal> {
        let View { session, head, .. } = self.view();
        let Some(head) = head else {
            return Err(Refusal::NotMoved { why: "this session has no messages yet".into() });
        };
        self.0.mover.preview(&session, head, to).await
    }

    /// Another session that continues from a node.
    async fn fork(&self, at: NodeId) -> Result<Ack, Refusal> {
        let forked = self.0.mover.engine().fork_from(at, None).await.map_err(refused)?;
        Ok(Ack::Forked { session: forked.session, prompt: forked.text })
    }

    /// Goes on with another model, or another level of thinking, from the next request on; at any time. Acknowledged when that
    /// is recorded: at once where nothing is under way, else between two turns or at the end of what is.
    ///
    /// # Errors
    /// `NoSuchModel`; `SlowSubscriber`; `Store`; `Closed`.
    pub async fn set(&self, setting: Setting) -> Result<Ack, Refusal> {
        self.send(Command::Set { setting }).await
    }

    /// Changes how the session works, without a record of it: as long as it is open.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn tune(&self, tuning: LiveChanges) -> Result<(), Refusal> {
        self.0.mail.send(Mail::Tune(tuning)).await.map_err(|_| Refusal::Closed)
    }

    /// Listens to events from now on; the view is how things stood before the first of them.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn subscribe(&self, delivery: Delivery) -> Result<(Snapshot, Events), Refusal> {
        self.listen(delivery, false).await
    }

    /// Listens, and answers questions: while such a subscriber is there, calls that need permission wait for
    /// [`Command::Answer`].
    ///
    /// # Errors
    /// `Closed`.
    pub async fn subscribe_and_answer(&self, delivery: Delivery) -> Result<(Snapshot, Events), Refusal> {
        self.listen(delivery, true).await
    }

    async fn listen(&self, delivery: Delivery, answers: bool) -> Result<(Snapshot, Events), Refusal> {
        let (subscriber, events) = Subscriber::new(delivery, answers);
        let (reply, snapshot) = oneshot::channel();
        self.0.mail.send(Mail::Subscribe(subscriber, reply)).await.map_err(|_| Refusal::Closed)?;
        Ok((snapshot.await.map_err(|_| Refusal::Closed)?, events))
    }

    /// Asks whoever is in front. The first answer counts; `default` when none comes within `wait`, or at once when nobody
    /// is there who can answer.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn ask_person(
        &self,
        kind: AskKind,
        default: Answer,
        wait: Option<Duration>,
    ) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        let question = Question { kind, default, wait, reply };
        self.0.mail.send(Mail::Ask(question)).await.map_err(|_| Refusal::Closed)?;
        answer.await.map_err(|_| Refusal::Closed)
    }

    /// Shows something to whoever is in front. Status lines and widgets stay until they are replaced.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn show(&self, ui: Ui) -> Result<(), Refusal> {
        self.0.mail.send(Mail::Show(ui)).await.map_err(|_| Refusal::Closed)
    }

    /// Checks an answer against its question, and keeps what it allows for longer than once.
    async fn take_answer(&self, id: &AskId, answer: &mut Answer) -> Result<Option<GrantGuard>, Refusal> {
        let (reply, open) = oneshot::channel();
        self.0.mail.send(Mail::FindAsk(id.clone(), reply)).await.map_err(|_| Refusal::Closed)?;
        let ask = open.await.map_err(|_| Refusal::Closed)?.ok_or(Refusal::NoSuchAsk)?;
        if !ask.takes(answer) {
            return Err(Refusal::InvalidAnswer);
        }
        match (answer, ask.permission()) {
            (Answer::Deny { reason: Some(reason) }, _) => *reason = self.0.sealer.seal(reason).into_owned(),
            (answer @ Answer::Cancel, Some(_)) => *answer = Answer::no(),
            (Answer::Allow { scope }, Some(permission)) if *scope != Scope::Once => {
                let granting = GrantGuard::begin(&self.0.granting);
                let grant = Grant { tool: permission.tool.clone(), subject: permission.subject.to_string() };
                if let Some(policies) = &self.0.toolbox.policies {
                    let (holds, notices) = policies.grant(&permission.call, grant, *scope).await;
                    *scope = holds;
                    self.note(notices).await?;
                    return Ok(Some(granting));
                }
                match self.0.policy.grant(grant, *scope).await {
                    Ok(kept) => *scope = kept,
                    Err(error) => {
                        *scope = Scope::Session;
                        self.show(Ui::Notice { notice: Notice::note(error.to_string()) }).await?;
                    }
                }
                return Ok(Some(granting));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Its sub-agents that are at work.
    pub fn agents(&self) -> Vec<LiveAgent> {
        self.0.agents.all()
    }

    /// The directory that it works in.
    pub fn cwd(&self) -> &std::path::Path {
        &self.0.cwd
    }

    /// Which files its tools may open by now, without what was allowed for single calls.
    pub fn access(&self) -> quipu_workspace::Access {
        self.0.policy.0.access()
    }

    /// Where the session stands.
    pub fn view(&self) -> View {
        self.0.view.borrow().clone()
    }

    /// Prompts, waits until everything settled, and gives the outcome and the last answer's text.
    ///
    /// # Errors
    /// As [`Session::prompt`].
    pub async fn ask(&self, input: impl Into<UserInput>) -> Result<(Outcome, String), Refusal> {
        let (_, mut events) = self.subscribe(Delivery::Lossless).await?;
        if self.prompt(input).await? == Ack::Handled {
            // A hook did what was wanted: nothing runs.
            return Ok((Outcome::Done, String::new()));
        }
        let (mut outcome, mut text) = (None, String::new());
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::MessageEnded { message, ending: Ending::Committed(_), .. } => {
                    if let Message::Assistant(answer) = &**message {
                        text = last_words(self.0.profile, answer);
                    }
                }
                Event::RunEnded { outcome: ended } => outcome = Some(ended.clone()),
                // What was under way before may settle after the prompt.
                Event::Settled if outcome.is_some() => break,
                _ => {}
            }
        }
        Ok((outcome.unwrap_or(Outcome::Aborted), text))
    }

    /// Aborts what runs and waits until it is recorded and every lossless subscriber has its events; after 8
    /// seconds of either, what still runs is killed and what nobody reads is dropped.
    pub async fn shutdown(&self) {
        let close = async {
            // Closed already is as good.
            drop(self.send(Command::Close).await);
        };
        if tokio::time::timeout(SHUTDOWN, close).await.is_err() {
            self.0.stop.cancel();
        }
        self.0.ended.cancelled().await;
    }

    /// Stops it at once, as a crash would, except that children die and what was queued for the store is written: what runs
    /// is cancelled, every step that was acknowledged is in the store, and the next
    /// [`Engine::open`](crate::Engine::open) reports what was interrupted.
    pub fn kill(&self) {
        self.0.stop.cancel();
    }
}

/// Something is allowed for longer, and the answer that says so is on its way: the policy does not answer before it.
struct GrantGuard(Arc<AtomicUsize>);

impl GrantGuard {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The models that the session may continue with.
#[derive(Clone)]
struct ModelLookup(Option<Arc<dyn Models>>);

impl std::fmt::Debug for ModelLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Others").field(&self.0.is_some()).finish()
    }
}

impl ModelLookup {
    fn remarks(&self, model: &Model) -> Vec<String> {
        self.0.as_ref().map(|models| models.remarks(model)).unwrap_or_default()
    }

    async fn find(&self, provider: &str, id: &str) -> Result<ModelRoute, ModelLookupError> {
        let Some(models) = self.0.clone() else {
            return Err(ModelLookupError::NoOthers);
        };
        let (provider, id) = (provider.to_owned(), id.to_owned());
        // It may read files, and run a command that knows a key.
        let found = tokio::task::spawn_blocking(move || models.find(&provider, &id)).await;
        found.unwrap_or_else(|error| Err(ModelLookupError::Failed { why: error.to_string() }))
    }
}

fn view_of(machine: &Machine) -> View {
    View {
        session: machine.session().clone(),
        head: machine.head(),
        run: machine.run().cloned(),
        waiting: machine.waiting(),
    }
}
