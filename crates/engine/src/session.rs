//! A session at work: the task that runs the machine, and the handle that fronts hold.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{FutureExt as _, select_all};
use quipu_protocol::{
    AbortTarget, Ack, Answer, AskId, Command, Ending, Envelope, Event, Message, Model, NodeId, Outcome,
    QueueMode, RunId, Setting, Summarize, UserInput,
};
use quipu_providers::{CallEvent, Provider};
use quipu_seal::Sealer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Foreseen, Next, Order, seal_content};
use crate::clock::{Clock, fresh_id};
use crate::commit::{Committer, Job};
use crate::files::CallPlace;
use crate::follower::{Follower, follow};
use crate::jump::look;
use crate::machine::{Calls, Effect, Fresh, Input, Machine, NoSummary, Refused, ReplyId, step_key};
use crate::models::Models;
use crate::money::Purse;
use crate::owner::Lease;
use crate::policy::{PolicyVersion, SharedPolicy};
use crate::sessions::clean;
use crate::subscribe::{Delivery, Events, Subscriber, View};
use crate::summarize::Job as SummaryJob;
use crate::toolbox::Toolbox;

/// Commands and answers that may wait for the session task.
const MAILBOX: usize = 256;
/// Between two looks at the rules of the policy while a question is open.
const LOOK: Duration = Duration::from_millis(250);
/// How long [`Session::shutdown`] waits for what runs.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// Everything that a session task needs.
pub(crate) struct Parts {
    pub(crate) machine: Machine,
    pub(crate) committer: Committer,
    pub(crate) caller: Arc<Caller>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) follower: Option<Arc<dyn Follower>>,
    pub(crate) models: Option<Arc<dyn Models>>,
}

/// A model, and what carries requests to it.
type Carried = (Arc<Model>, Arc<dyn Provider>);

/// What a command needs to know of what is outside.
enum Found {
    Nothing,
    /// The model that it names.
    Model(Carried),
    /// Which rules the policy goes by.
    Policy(PolicyVersion),
}

enum Mail {
    /// With what was found for it.
    Command(Command, Found, oneshot::Sender<Result<Ack, Refused>>),
    Subscribe(Subscriber, oneshot::Sender<View>),
}

/// A session at work. Share it in an `Arc`.
///
/// [`Session::shutdown`] ends it in order. Dropping it stops it as a crash would, except that children die and
/// what was queued for the store is written: what runs is cancelled, every step that was acknowledged is in the
/// store, and the next [`Engine::open`](crate::Engine::open) reports what was interrupted.
///
/// ```
/// # use std::sync::Arc;
/// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, store::SqliteStore};
/// use quipu::Delivery;
/// use quipu::protocol::{Delta, Ending, Event, Model};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(SqliteStore::in_memory()?);
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
#[derive(Debug)]
pub struct Session {
    mail: mpsc::Sender<Mail>,
    policy: SharedPolicy,
    pub(crate) purse: Arc<Purse>,
    view: watch::Receiver<View>,
    cwd: std::path::PathBuf,
    sealer: Arc<Sealer>,
    models: Others,
    /// Who holds it puts the next command into the mailbox.
    order: tokio::sync::Mutex<()>,
    task: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Session {
    pub(crate) fn spawn(parts: Parts) -> Self {
        let (mail, inbox) = mpsc::channel(MAILBOX);
        let (view_tx, view) = watch::channel(view_of(&parts.machine));
        // Each toolbox has one session.
        drop(parts.toolbox.standing.set(view.clone()));
        let stop = CancellationToken::new();
        let cwd = parts.toolbox.parts.cwd.clone();
        let sealer = parts.toolbox.parts.sealer.clone();
        let (models, purse) = (Others(parts.models.clone()), parts.caller.purse.clone());
        let policy = SharedPolicy(parts.toolbox.parts.policy.clone());
        let task = tokio::spawn(Task::new(parts, inbox, view_tx, stop.clone()).serve());
        Self {
            mail,
            policy,
            purse,
            view,
            cwd,
            sealer,
            models,
            order: Default::default(),
            task: Some(task),
            stop,
        }
    }

    /// Sends a command. Resolves when it is accepted and durable, not when it is done.
    ///
    /// # Errors
    /// [`Refused`] says why; nothing happened then.
    pub async fn send(&self, mut command: Command) -> Result<Ack, Refused> {
        // Here and not in the task, which must not be held up by a large message.
        match &mut command {
            Command::Prompt { input, .. } => seal_content(&mut input.0, &self.sealer),
            Command::Answer { answer: Answer::Deny { reason: Some(reason) }, .. } => {
                *reason = self.sealer.seal(reason).into_owned();
            }
            Command::Compact { focus: Some(focus) } => *focus = self.sealer.seal(focus).into_owned(),
            Command::Jump { summary, label, .. } => {
                if let Some(Summarize { focus: Some(focus) }) = summary {
                    *focus = self.sealer.seal(focus).into_owned();
                }
                if let Some(text) = label.take() {
                    let text = clean(&self.sealer, &text).map_err(Refused::LabelTooLong)?;
                    *label = Some(text).filter(|text| !text.is_empty());
                }
            }
            Command::ShellBegins { line, .. } => *line = self.sealer.seal(line).into_owned(),
            Command::ShellEnds { shell, .. } => {
                for text in [&mut shell.command, &mut shell.output] {
                    *text = self.sealer.seal(text).into_owned();
                }
            }
            Command::Answer { .. }
            | Command::Compact { focus: None }
            | Command::Continue
            | Command::Unqueue { .. }
            | Command::Abort(_)
            | Command::Set(_)
            | Command::Close => {}
        }
        // What is said after another model was chosen is said to that one, though it takes a while to find.
        let turn = match &command {
            Command::Abort(_) | Command::Answer { .. } | Command::Close => None,
            _ => Some(self.order.lock().await),
        };
        let found = match &command {
            Command::Set(Setting::Model { provider, id }) => {
                Found::Model(self.models.find(provider, id).await.map_err(Refused::NoSuchModel)?)
            }
            Command::Set(Setting::Permissions) => match self.policy.version().await {
                Some(version) => Found::Policy(version),
                None => return Err(Refused::Store("the permissions could not be looked at".into())),
            },
            _ => Found::Nothing,
        };
        let (reply, answer) = oneshot::channel();
        self.mail.send(Mail::Command(command, found, reply)).await.map_err(|_| Refused::Closed)?;
        drop(turn);
        answer.await.unwrap_or(Err(Refused::Closed))
    }

    /// Says something to an idle agent. Acknowledged with the run's id once the message is durable.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `Empty`; `Behind`; `Store`; `Closed`.
    pub async fn prompt(&self, input: impl Into<UserInput>) -> Result<Ack, Refused> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::Now }).await
    }

    /// Says something that reaches the model after the current turn; at once when idle. One waiting message a
    /// turn, in order.
    ///
    /// # Errors
    /// `Empty`; `QueueFull` when 256 messages wait; `Behind`; `Store`; `Closed`.
    pub async fn steer(&self, input: impl Into<UserInput>) -> Result<Ack, Refused> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::Steer }).await
    }

    /// Says something that reaches the model when it would stop; at once when idle.
    ///
    /// # Errors
    /// `Empty`; `QueueFull` when 256 messages wait; `Behind`; `Store`; `Closed`.
    pub async fn follow_up(&self, input: impl Into<UserInput>) -> Result<Ack, Refused> {
        self.send(Command::Prompt { input: input.into(), when: QueueMode::FollowUp }).await
    }

    /// Stops the run; it ends with `RunEnded` and `Settled` soon after (tools get 5 seconds). What waits in the
    /// queues stays there.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn abort(&self) -> Result<(), Refused> {
        self.send(Command::Abort(AbortTarget::Run)).await.map(|_| ())
    }

    /// Sums the context up, except for its end; `CompactionEnded` tells what came of it. Acknowledged as begun.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `NothingToCompact`; `Behind`; `Closed`.
    pub async fn compact(&self, focus: Option<String>) -> Result<Ack, Refused> {
        self.send(Command::Compact { focus }).await
    }

    /// Goes to another node of the session: before it when somebody said it, else behind it. What is left behind stays
    /// in the graph, and is summed up at the new place where that is wanted and there is something to sum up.
    /// `JumpEnded` tells what came of it; going to where it stood takes it back. The model, the tools and the system
    /// prompt stay what they are. Acknowledged as begun. [`Engine::jump`](crate::Engine::jump) is the same for a session
    /// at rest, and asks no model.
    ///
    /// # Errors
    /// `Busy` while a run is under way; `NotInSession`; `LabelTooLong`; `Behind`; `Store`; `Closed`.
    pub async fn jump(
        &self,
        to: NodeId,
        summary: Option<Summarize>,
        label: Option<String>,
    ) -> Result<Ack, Refused> {
        self.send(Command::Jump { to, summary, label }).await
    }

    /// Goes on with another model, or another level of thinking, from the next request on; at any time. Acknowledged when that
    /// is recorded: at once where nothing is under way, else between two turns or at the end of what is.
    ///
    /// # Errors
    /// `NoSuchModel`; `Behind`; `Store`; `Closed`.
    pub async fn set(&self, setting: Setting) -> Result<Ack, Refused> {
        self.send(Command::Set(setting)).await
    }

    /// Listens to events from now on; the view is how things stood before the first of them.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn subscribe(&self, delivery: Delivery) -> Result<(View, Events), Refused> {
        self.listen(delivery, false).await
    }

    /// Listens, and answers questions: while such a subscriber is there, calls that need permission wait for
    /// [`Command::Answer`].
    ///
    /// # Errors
    /// `Closed`.
    pub async fn subscribe_and_answer(&self, delivery: Delivery) -> Result<(View, Events), Refused> {
        self.listen(delivery, true).await
    }

    async fn listen(&self, delivery: Delivery, answers: bool) -> Result<(View, Events), Refused> {
        let (subscriber, events) = Subscriber::new(delivery, answers);
        let (reply, view) = oneshot::channel();
        self.mail.send(Mail::Subscribe(subscriber, reply)).await.map_err(|_| Refused::Closed)?;
        Ok((view.await.map_err(|_| Refused::Closed)?, events))
    }

    /// The directory that it works in.
    pub fn cwd(&self) -> &std::path::Path {
        &self.cwd
    }

    /// Where the session stands.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Prompts, waits until everything settled, and gives the outcome and the last answer's text.
    ///
    /// # Errors
    /// As [`Session::prompt`].
    pub async fn ask(&self, input: impl Into<UserInput>) -> Result<(Outcome, String), Refused> {
        let (_, mut events) = self.subscribe(Delivery::Lossless).await?;
        self.prompt(input).await?;
        let (mut outcome, mut text) = (Outcome::Aborted, String::new());
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::MessageEnded { message, ending: Ending::Kept(_), .. } => {
                    if let Message::Assistant(answer) = &**message {
                        text = answer.text();
                    }
                }
                Event::RunEnded { outcome: ended } => outcome = ended.clone(),
                Event::Settled => break,
                _ => {}
            }
        }
        Ok((outcome, text))
    }

    /// Aborts what runs and waits until it is recorded and every lossless subscriber has its events; after 8
    /// seconds of either, what still runs is killed and what nobody reads is dropped.
    pub async fn shutdown(mut self) {
        let Some(task) = self.task.take() else { return };
        let close = async {
            // Closed already is as good.
            drop(self.send(Command::Close).await);
        };
        if tokio::time::timeout(SHUTDOWN, close).await.is_err() {
            self.stop.cancel();
        }
        // A task that panicked has nothing left to stop.
        drop(task.await);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The models that the session may go on with.
#[derive(Clone)]
struct Others(Option<Arc<dyn Models>>);

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Others").field(&self.0.is_some()).finish()
    }
}

impl Others {
    async fn find(&self, provider: &str, id: &str) -> Result<Carried, String> {
        let Some(models) = self.0.clone() else {
            return Err("this session knows no other models".into());
        };
        let (provider, id) = (provider.to_owned(), id.to_owned());
        // It may read files, and run a command that knows a key.
        let found = tokio::task::spawn_blocking(move || models.find(&provider, &id)).await;
        found.unwrap_or_else(|error| Err(format!("the model could not be looked up: {error}")))
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

struct Task {
    machine: Machine,
    caller: Arc<Caller>,
    toolbox: Arc<Toolbox>,
    clock: Arc<dyn Clock>,
    lease: Arc<Lease>,
    mail: mpsc::Receiver<Mail>,
    inputs: mpsc::Receiver<Input>,
    input: mpsc::Sender<Input>,
    stream: mpsc::Receiver<(RunId, CallEvent)>,
    stream_tx: mpsc::Sender<(RunId, CallEvent)>,
    plans: mpsc::Sender<Job>,
    /// Plans on their way to the committer. Bounded by what the machine has under way; never waited for while
    /// answers are not being read.
    backlog: VecDeque<Job>,
    /// The next request, recorded in the commit before it.
    foreseen: Arc<Foreseen>,
    effects: JoinSet<()>,
    subscribers: Vec<Subscriber>,
    answerers: usize,
    replies: HashMap<ReplyId, oneshot::Sender<Result<Ack, Refused>>>,
    next_reply: u64,
    seq: u64,
    call: Option<CancellationToken>,
    tools: HashMap<usize, CancellationToken>,
    /// Models that were chosen and are not used yet.
    chosen: Vec<Carried>,
    /// The deadlines of open questions.
    asks: HashMap<AskId, CancellationToken>,
    root: CancellationToken,
    view: watch::Sender<View>,
    done: bool,
    /// The end of a call waits here until the stream before it was read.
    ended: Option<Input>,
}

impl Task {
    fn new(
        parts: Parts,
        mail: mpsc::Receiver<Mail>,
        view: watch::Sender<View>,
        root: CancellationToken,
    ) -> Self {
        let (input, inputs) = mpsc::channel(MAILBOX);
        let (stream_tx, stream) = mpsc::channel(MAILBOX);
        let (plans, waiting) = mpsc::channel(MAILBOX);
        let mut effects = JoinSet::new();
        let mut committer = parts.committer;
        if let Some(follower) = parts.follower {
            let (tell, commits) = mpsc::channel(MAILBOX);
            committer.tell(tell);
            effects.spawn(follow(follower, commits, input.clone()));
        }
        effects.spawn(committer.serve(waiting, input.clone()));
        Self {
            machine: parts.machine,
            caller: parts.caller,
            toolbox: parts.toolbox,
            clock: parts.clock,
            lease: parts.lease,
            mail,
            inputs,
            input,
            stream,
            stream_tx,
            plans,
            backlog: VecDeque::new(),
            foreseen: Arc::default(),
            effects,
            subscribers: Vec::new(),
            answerers: 0,
            replies: HashMap::new(),
            next_reply: 0,
            seq: 0,
            call: None,
            tools: HashMap::new(),
            chosen: Vec::new(),
            asks: HashMap::new(),
            root,
            view,
            done: false,
            ended: None,
        }
    }

    async fn serve(mut self) {
        let root = self.root.clone();
        let mut keep_lease = tokio::time::interval(crate::owner::RENEW);
        keep_lease.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.done {
            self.count_answerers();
            let behind = self.subscribers.iter().any(Subscriber::is_behind);
            // A call that was stopped ends whoever reads.
            let flows = !behind || self.call.as_ref().is_some_and(CancellationToken::is_cancelled);
            let waiting: Vec<_> = self.subscribers.iter().filter(|one| one.wants_room()).collect();
            let room = async {
                if waiting.is_empty() {
                    return std::future::pending().await;
                }
                drop(select_all(waiting.into_iter().map(|one| Box::pin(one.room()))).await);
            };
            let plans = self.plans.clone();
            let answerers: Vec<_> = self.subscribers.iter().filter(|one| one.answers).collect();
            let answerer_left = async {
                if answerers.is_empty() {
                    return std::future::pending().await;
                }
                drop(select_all(answerers.into_iter().map(|one| Box::pin(one.closed()))).await);
            };
            tokio::select! {
                biased;
                () = root.cancelled() => break,
                Ok(permit) = plans.reserve(), if !self.backlog.is_empty() => {
                    if let Some(plan) = self.backlog.pop_front() {
                        permit.send(plan);
                    }
                }
                // Counted in the next round.
                () = answerer_left => self.subscribers.retain(Subscriber::is_open),
                _ = keep_lease.tick() => self.renew(),
                // What another program, or an answer to another question, made of the rules.
                _ = look.tick(), if !self.asks.is_empty() => self.look_at_policy(),
                mail = self.mail.recv() => match mail {
                    Some(mail) => self.mail(mail),
                    None => break,
                },
                () = room => self.subscribers.iter_mut().for_each(Subscriber::flush),
                Some((run, event)) = self.stream.recv(), if flows => {
                    self.take(Input::Call { run, event });
                }
                Some(input) = self.inputs.recv() => match input {
                    // Its events were sent before it, on the channel beside this one.
                    Input::CallEnded { .. } => self.ended = Some(input),
                    // A newer one follows, and the result holds all.
                    Input::ToolOutput { .. } if behind => {}
                    input => self.take(input),
                },
                // Nothing is left in the stream: now the call has ended for the machine, too.
                () = std::future::ready(()), if flows && self.ended.is_some() => {
                    if let Some(input) = self.ended.take() {
                        self.take(input);
                    }
                }
                Some(_) = self.effects.join_next() => {}
            }
        }
        root.cancel();
        while let Some(plan) = self.backlog.pop_front() {
            // Answers are not read any more, so they are let go while what is left is written.
            tokio::select! {
                sent = self.plans.send(plan) => if sent.is_err() { break },
                _ = drain(&mut self.inputs) => {}
            }
        }
        // Committing goes on until what was queued is written; calls and tools see their token and end.
        drop(self.plans);
        drop(self.stream);
        self.inputs.close();
        let effects = async { while self.effects.join_next().await.is_some() {} };
        let read = async {
            for subscriber in &mut self.subscribers {
                while subscriber.wants_room() {
                    subscriber.room().await;
                    subscriber.flush();
                }
            }
        };
        let rest = async { tokio::join!(effects, read) };
        if tokio::time::timeout(SHUTDOWN, rest).await.is_err() {
            self.effects.abort_all();
        }
        drop(tokio::time::timeout(SHUTDOWN, self.toolbox.close()).await);
        // Last, so that whoever takes the session over finds it at rest.
        drop(tokio::time::timeout(SHUTDOWN, self.lease.release()).await);
    }

    fn look_at_policy(&mut self) {
        let (policy, input) = (SharedPolicy(self.toolbox.parts.policy.clone()), self.input.clone());
        self.effects.spawn(async move {
            if let Some(version) = policy.version().await {
                drop(input.send(Input::Policy(version)).await);
            }
        });
    }

    fn renew(&mut self) {
        let lease = self.lease.clone();
        let name = quipu_store::RefName::session(self.machine.session());
        self.effects.spawn(async move { lease.hold(&name).await });
    }

    fn mail(&mut self, mail: Mail) {
        match mail {
            Mail::Subscribe(subscriber, view) => {
                self.subscribers.push(subscriber);
                self.count_answerers();
                // Who went away again is seen at the next event.
                drop(view.send(view_of(&self.machine)));
            }
            Mail::Command(
                Command::Prompt { .. }
                | Command::Compact { .. }
                | Command::Jump { .. }
                | Command::Continue
                | Command::Set(Setting::Model { .. } | Setting::Thinking(_))
                | Command::Unqueue { .. },
                _,
                reply,
            ) if self.subscribers.iter().any(Subscriber::is_stuck) => {
                drop(reply.send(Err(Refused::Behind)));
            }
            Mail::Command(command, found, reply) => {
                self.next_reply += 1;
                let id = ReplyId(self.next_reply);
                self.replies.insert(id, reply);
                let (model, policy) = match found {
                    Found::Nothing => (None, None),
                    Found::Policy(version) => (None, Some(version)),
                    Found::Model((model, provider)) => {
                        self.chosen.push((model.clone(), provider));
                        (Some(model), None)
                    }
                };
                let fresh = Fresh { run: fresh_id().into(), item: fresh_id().into(), model, policy };
                self.take(Input::Command { command, reply: id, fresh });
            }
        }
    }

    fn count_answerers(&mut self) {
        let count = self.subscribers.iter().filter(|one| one.answers && one.is_open()).count();
        if count != self.answerers {
            self.answerers = count;
            self.take(Input::Askers(count));
        }
    }

    /// Gives the machine an input and carries out what it wants.
    fn take(&mut self, input: Input) {
        let effects = self.machine.on(self.clock.now(), input);
        // First, so that who has read an event or an answer never finds an older view.
        self.view.send_if_modified(|view| {
            let new = view_of(&self.machine);
            let changed = *view != new;
            *view = new;
            changed
        });
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Emit { event, run } => {
                if let Event::AskClosed { ask, .. } = &event
                    && let Some(deadline) = self.asks.remove(ask)
                {
                    deadline.cancel();
                }
                self.emit(event, run);
            }
            Effect::Reply(id, result) => {
                if let Some(reply) = self.replies.remove(&id) {
                    // The sender may have gone; the command was carried out all the same.
                    drop(reply.send(result));
                }
            }
            Effect::Commit { tag, plan, next } => {
                let next = next.zip(self.machine.run().cloned()).map(|(request, run)| {
                    let (caller, foreseen) = (self.caller.clone(), self.foreseen.clone());
                    Next { caller, foreseen, run, request }
                });
                self.backlog.push_back(Job { tag, plan, next });
            }
            Effect::Call { run, head, request, money } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let session = self.machine.session().clone();
                let (caller, input, stream) =
                    (self.caller.clone(), self.input.clone(), self.stream_tx.clone());
                let recorded = self.foreseen.take(&request);
                let system = caller.system;
                self.effects.spawn(async move {
                    let (tell, summary) = (Some(input.clone()), None);
                    let order =
                        Order { session, run, head, request, recorded, system, summary, money, tell, cancel };
                    let end = caller.make(order, stream).await;
                    // The task is gone only when the session is over.
                    drop(input.send(end).await);
                });
            }
            Effect::Summarize { run, head, model, thinking, stretch } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let session = self.machine.session().clone();
                let (caller, input) = (self.caller.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let tell = input.clone();
                    let job = SummaryJob { session, run: run.clone(), head, model, thinking, tell, cancel };
                    let work = std::panic::AssertUnwindSafe(caller.summarize(&job, &stretch));
                    let result = work.catch_unwind().await.unwrap_or_else(|_| {
                        let why = "the model's adapter failed inside; this is a bug of the adapter";
                        Err(Box::new(NoSummary { why: Some(why.into()), made: Calls::default() }))
                    });
                    drop(input.send(Input::Summarized { run, result }).await);
                });
            }
            Effect::Look { run, from, to, left } => {
                let session = self.machine.session().clone();
                let (caller, input) = (self.caller.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let found = look(&*caller.store, &session, from, to, left).await;
                    drop(input.send(Input::Looked { run, result: found.map(Box::new) }).await);
                });
            }
            Effect::Prepare { run, calls } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let policy = toolbox.parts.policy.clone();
                self.effects.spawn(async move {
                    let work = move || {
                        let work = std::panic::AssertUnwindSafe(|| toolbox.prepare(&run, &calls));
                        let (calls, preparation) = std::panic::catch_unwind(work).unwrap_or_default();
                        let look = std::panic::AssertUnwindSafe(|| policy.version());
                        if let Ok(version) = std::panic::catch_unwind(look) {
                            drop(input.blocking_send(Input::Policy(version)));
                        }
                        drop(input.blocking_send(Input::Prepared { run, calls }));
                        // While the calls are being announced.
                        if let Some(preparation) = preparation {
                            preparation();
                        }
                    };
                    drop(tokio::task::spawn_blocking(work).await);
                });
            }
            Effect::Judge { run, ask, call, touches } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let judge = tokio::task::spawn_blocking(move || toolbox.judge(&call, &touches));
                    if let Ok(prepared) = judge.await {
                        drop(input.send(Input::Judged { run, ask, prepared }).await);
                    }
                });
            }
            Effect::RunTool { run, turn, slot, call, touches, approved } => {
                let cancel = self.root.child_token();
                self.tools.insert(slot, cancel.clone());
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let place =
                    CallPlace { session: self.machine.session().clone(), run, key: step_key(turn, slot) };
                self.effects.spawn(async move {
                    let done =
                        toolbox.run(place, slot, (call, touches, approved), cancel, input.clone()).await;
                    drop(input.send(done).await);
                });
            }
            Effect::Clear { run } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let result = toolbox.clear(&run).await;
                    drop(input.send(Input::Cleared { run, result }).await);
                });
            }
            Effect::UseModel(model) => {
                self.toolbox.parts.sees_images.store(model.sees_images(), Ordering::Relaxed);
                let chosen = self.chosen.iter().position(|(chosen, _)| Arc::ptr_eq(chosen, &model));
                // Those that were chosen before it are not used any more.
                let provider = chosen.and_then(|at| self.chosen.drain(..=at).next_back());
                if let Some((_, provider)) = provider {
                    self.caller.carried_by(provider);
                }
            }
            Effect::CancelCall => {
                if let Some(call) = &self.call {
                    call.cancel();
                }
            }
            Effect::CancelTool { slot } => {
                if let Some(tool) = self.tools.get(&slot) {
                    tool.cancel();
                }
            }
            Effect::AskDeadline { ask, after } => {
                let (input, closed) = (self.input.clone(), self.root.child_token());
                self.asks.insert(ask.clone(), closed.clone());
                self.effects.spawn(async move {
                    tokio::select! {
                        () = tokio::time::sleep(after) => drop(input.send(Input::AskExpired { ask }).await),
                        () = closed.cancelled() => {}
                    }
                });
            }
            Effect::Stop => self.done = true,
        }
    }

    fn emit(&mut self, event: Event, run: Option<RunId>) {
        self.seq += 1;
        let envelope = Arc::new(Envelope {
            seq: self.seq,
            session: self.machine.session().clone(),
            run,
            at: self.clock.now(),
            event,
        });
        for subscriber in &mut self.subscribers {
            subscriber.send(&envelope);
        }
        self.subscribers.retain(Subscriber::is_open);
    }
}

async fn drain(inputs: &mut mpsc::Receiver<Input>) {
    while inputs.recv().await.is_some() {}
}
