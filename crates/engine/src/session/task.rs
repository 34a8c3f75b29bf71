//! The task that runs a session's machine and carries its effects out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::mailbox;
use futures_util::future::select_all;
use quipu_protocol::{
    Ack, Answer, Ask, AskId, Command, Envelope, Event, ItemId, NodeId, Notice, Refusal, RunId, Setting,
    Snapshot,
};
use quipu_providers::CallEvent;
use quipu_store::HiddenSnapshot;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::asks::{OPEN, OpenQuestion, Question, Questions};
use super::live_agents::LiveAgents;
use super::sides::Sides;
use super::{CommandInfo, FoundFallback, MAILBOX, Mail, ModelRoute, Parts, SHUTDOWN, view_of};
use crate::calls::{Caller, PreparedCallSlot};
use crate::children::Children;
use crate::clock::{Clock, fresh_id};
use crate::commit::Job;
use crate::follower::follow;
use crate::image_tool::ImageTool;
use crate::models::Models;
use crate::owner::Lease;
use crate::policy::SharedPolicy;
use crate::sources::Sources;
use crate::spans::SessionSpans;
use crate::subscribe::{Subscriber, View};
use crate::toolbox::Toolbox;
use quipu_machine::{CommandContext, Machine, MachineInput, ReplyId};

/// Between two looks at the rules of the policy while a question is open.
const LOOK: Duration = Duration::from_millis(250);

/// A line that runs or is about to.
pub(super) struct Shell {
    /// As it was given: what is recorded of it is sealed.
    pub(super) line: String,
    pub(super) cancel: CancellationToken,
}

/// Up to where the conversation was looked through for what is hidden.
#[derive(Default)]
pub(super) struct ForgottenMark {
    pub(super) version: u64,
    /// What was hidden then.
    pub(super) hidden: HiddenSnapshot,
    pub(super) head: Option<NodeId>,
    /// How often it was looked at.
    pub(super) looks: watch::Sender<u64>,
    /// How often something was forgotten that a call was made of which was not sent yet, or had no answer.
    pub(super) hits: Arc<AtomicU64>,
}

pub(super) struct Task {
    pub(super) machine: Machine,
    pub(super) snapshot: Box<Snapshot>,
    /// Questions of others than the machine.
    pub(super) questions: Questions,
    pub(super) spans: SessionSpans,
    pub(super) caller: Arc<Caller>,
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) sources: Arc<Sources>,
    /// Notices for the first command.
    notices: Vec<String>,
    pub(super) clock: Arc<dyn Clock>,
    lease: Arc<Lease>,
    mail: mailbox::Receiver<Mail>,
    inputs: mailbox::Receiver<MachineInput>,
    pub(super) input: mailbox::Sender<MachineInput>,
    stream: mailbox::Receiver<(RunId, CallEvent)>,
    pub(super) stream_tx: mailbox::Sender<(RunId, CallEvent)>,
    plans: mailbox::Sender<Job>,
    /// Plans on their way to the committer. Bounded by what the machine has under way; never waited for while
    /// answers are not being read.
    pub(super) backlog: VecDeque<Job>,
    /// The next request, recorded in the commit before it.
    pub(super) prepared_call: Arc<PreparedCallSlot>,
    pub(super) effects: JoinSet<()>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) answerers: usize,
    pub(super) replies: HashMap<ReplyId, oneshot::Sender<Result<Ack, Refusal>>>,
    next_reply: u64,
    seq: u64,
    /// The number of the last event when the lease was renewed last.
    seq_at_renewal: u64,
    pub(super) call: Option<CancellationToken>,
    /// Stops the looking up of calls.
    pub(super) preparing: Option<CancellationToken>,
    /// Stops the asking of sources.
    pub(super) refreshing: Option<CancellationToken>,
    pub(super) tools: HashMap<usize, CancellationToken>,
    /// Lines of people that run or are about to.
    pub(super) shells: HashMap<RunId, Shell>,
    /// Models that were chosen and are not used yet.
    pub(super) chosen: Vec<ModelRoute>,
    /// Models that were left for another one, to which a later run may return.
    pub(super) left: Vec<ModelRoute>,
    pub(super) models: Option<Arc<dyn Models>>,
    /// Names of the models that continue a run.
    pub(super) fallbacks: Arc<[String]>,
    /// Where searches for one of them end, once there was one.
    pub(super) found_fallbacks: Option<(mailbox::Sender<FoundFallback>, mailbox::Receiver<FoundFallback>)>,
    /// What is under way beside the conversation.
    pub(super) sides: Sides,
    pub(super) children: Option<Children>,
    /// What asks about images for the model, where it may.
    pub(super) images: Option<Arc<ImageTool>>,
    pub(super) agents: LiveAgents,
    /// The deadlines of open questions.
    pub(super) asks: HashMap<AskId, CancellationToken>,
    pub(super) root: CancellationToken,
    granting: Arc<AtomicUsize>,
    view: watch::Sender<View>,
    /// What was hidden when the conversation was looked through last.
    pub(super) forgotten: ForgottenMark,
    pub(super) done: bool,
    /// The end of a call waits here until the stream before it was read.
    ended: Option<Box<MachineInput>>,
}

impl Task {
    pub(super) fn new(
        parts: Parts,
        mail: mailbox::Receiver<Mail>,
        view: watch::Sender<View>,
        root: CancellationToken,
        granting: Arc<AtomicUsize>,
    ) -> Self {
        let (input, inputs) = mailbox::channel(MAILBOX);
        let (stream_tx, stream) = mailbox::channel(MAILBOX);
        let (plans, waiting) = mailbox::channel(MAILBOX);
        let mut effects = JoinSet::new();
        let mut committer = parts.committer;
        if let Some(follower) = parts.follower {
            let (tell, commits) = mailbox::channel(MAILBOX);
            committer.tell(tell);
            effects.spawn(follow(follower, commits, input.clone()));
        }
        // Moved as a whole, it would stand in the future twice.
        effects.spawn(Box::new(committer).serve(waiting, input.clone()));
        let spans = SessionSpans::new(parts.machine.session());
        if !parts.toolbox.hooks.is_empty() {
            let (toolbox, origin, cancel) = (parts.toolbox.clone(), parts.origin, root.child_token());
            let work = async move { toolbox.hooks.session_start(origin, &cancel).await };
            effects.spawn(work.instrument(spans.current()));
        }
        Self {
            spans,
            machine: parts.machine,
            snapshot: Box::new(parts.snapshot),
            questions: Questions::default(),
            caller: parts.caller,
            toolbox: parts.toolbox,
            sources: parts.sources,
            notices: parts.notices,
            clock: parts.clock,
            lease: parts.lease,
            mail,
            inputs,
            input,
            stream,
            stream_tx,
            plans,
            backlog: VecDeque::new(),
            prepared_call: Arc::default(),
            effects,
            subscribers: Vec::new(),
            answerers: 0,
            replies: HashMap::new(),
            next_reply: 0,
            seq: 0,
            seq_at_renewal: 0,
            call: None,
            preparing: None,
            refreshing: None,
            tools: HashMap::new(),
            shells: HashMap::new(),
            chosen: Vec::new(),
            left: parts.before_plan.into_iter().collect(),
            models: parts.models,
            fallbacks: parts.fallbacks.into(),
            found_fallbacks: None,
            sides: Sides::default(),
            children: parts.children,
            images: parts.images,
            agents: parts.agents,
            asks: HashMap::new(),
            root,
            granting,
            view,
            forgotten: ForgottenMark::default(),
            done: false,
            ended: None,
        }
    }

    pub(super) async fn serve(mut self: Box<Self>) {
        let root = self.root.clone();
        let mut keep_lease = crate::owner::renewals();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut left = false;
        let overdue = tokio::time::sleep(SHUTDOWN);
        tokio::pin!(overdue);
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
                _ = look.tick(), if !self.asks.is_empty() && self.granting.load(Ordering::SeqCst) == 0 => self.look_at_policy(),
                mail = self.mail.recv(), if !left => match mail {
                    Some(mail) => self.mail(mail),
                    // The last handle is gone.
                    None => {
                        left = true;
                        // Not before: a timer that runs wakes an idle program.
                        overdue.as_mut().reset(tokio::time::Instant::now() + SHUTDOWN);
                        self.close();
                    }
                },
                () = &mut overdue, if left => break,
                Some(ask) = self.questions.over() => self.close_question(&ask),
                () = room => self.subscribers.iter_mut().for_each(|one| one.flush(&self.snapshot)),
                Some((run, event)) = self.stream.recv(), if flows => {
                    self.take(MachineInput::Call { run, event });
                }
                Some(input) = self.inputs.recv() => match input {
                    // Its events were sent before it, on the channel beside this one.
                    MachineInput::CallEnded { .. } => self.ended = Some(Box::new(input)),
                    // A newer one follows, and the result holds all.
                    MachineInput::ToolOutput { .. } | MachineInput::ShellOutput { .. } if behind => {}
                    MachineInput::ShellEnded { run, end } => {
                        self.shells.remove(&run);
                        self.take(MachineInput::ShellEnded { run, end });
                    }
                    input => self.take(input),
                },
                // Nothing is left in the stream: now the call has ended for the machine, too.
                () = std::future::ready(()), if flows && self.ended.is_some() => {
                    if let Some(input) = self.ended.take() {
                        self.take(*input);
                    }
                }
                Some(found) = async { self.found_fallbacks.as_mut()?.1.recv().await } => self.fallback_found(found),
                Some(_) = self.effects.join_next() => {}
            }
        }
        let ends = (self.done || left) && !self.toolbox.hooks.is_empty();
        root.cancel();
        self.sides.stop();
        let mut end_notices = None;
        if ends {
            let (tell, told_at_end) = oneshot::channel();
            end_notices = Some(told_at_end);
            // Nobody answers questions any more.
            self.mail.close();
            let toolbox = self.toolbox.clone();
            let work = async move { drop(tell.send(toolbox.hooks.session_end().await)) };
            self.effects.spawn(work.instrument(self.spans.current()));
        }
        while let Some(plan) = self.backlog.pop_front() {
            // Answers are not read any more, so they are let go while what is left is written.
            tokio::select! {
                sent = self.plans.send(plan) => if sent.is_err() { break },
                _ = drain(&mut self.inputs) => {}
            }
        }
        // Committing continues until what was queued is written; calls and tools see their token and end.
        drop(std::mem::replace(&mut self.plans, mailbox::channel(1).0));
        self.stream.close();
        self.inputs.close();
        let effects = async { while self.effects.join_next().await.is_some() {} };
        let read = async {
            for subscriber in &mut self.subscribers {
                while subscriber.wants_room() {
                    subscriber.room().await;
                    subscriber.flush(&self.snapshot);
                }
            }
        };
        let rest = async { tokio::join!(effects, read) };
        if tokio::time::timeout(SHUTDOWN, rest).await.is_err() {
            self.effects.abort_all();
        }
        if let Some(end_notices) = end_notices {
            for text in end_notices.await.unwrap_or_default() {
                self.emit(Event::from(Notice::Note { text }), None);
            }
        }
        drop(tokio::time::timeout(SHUTDOWN, self.toolbox.close()).await);
        // Last, so that whoever takes the session over finds it at rest.
        drop(tokio::time::timeout(SHUTDOWN, self.lease.release()).await);
    }

    fn look_at_policy(&mut self) {
        let (policy, input) = (SharedPolicy(self.toolbox.parts.policy.clone()), self.input.clone());
        self.effects.spawn(async move {
            if let Some(version) = policy.version().await {
                drop(input.send(MachineInput::Policy(version)).await);
            }
        });
    }

    /// Keeps the lease. Where nothing happened since the last time, what only makes the next request faster is let go of: a process
    /// with a thousand sessions at rest is woken up by nothing else.
    fn renew(&mut self) {
        if self.seq == self.seq_at_renewal && self.machine.run().is_none() {
            self.caller.rest();
        }
        self.seq_at_renewal = self.seq;
        let lease = self.lease.clone();
        let name = quipu_store::RefName::session(self.machine.session());
        self.effects.spawn(async move { lease.hold(&name).await });
    }

    fn mail(&mut self, mail: Mail) {
        match mail {
            Mail::Subscribe(subscriber, snapshot) => {
                // Who went away again is seen at the next event.
                drop(snapshot.send(Snapshot::clone(&self.snapshot)));
                self.subscribers.push(subscriber);
                self.count_answerers();
            }
            Mail::FindAsk(id, reply) => {
                let ask = self.snapshot.asks.iter().find(|ask| ask.id == id).cloned();
                drop(reply.send(ask));
            }
            Mail::Ask(question) => self.ask(question),
            Mail::Side(ask) => self.side(*ask),
            Mail::Background(news) => self.background_news(*news),
            Mail::Child(event) => {
                let run = self.machine.run().cloned();
                self.emit(*event, run);
            }
            Mail::Tune(tuning) => self.take(MachineInput::Tuned(tuning)),
            Mail::Show(ui) => {
                let run = self.machine.run().cloned();
                self.emit(Event::Ui { ui }, run);
            }
            Mail::Command(Command::Answer { ask, answer }, _, reply) if self.questions.is_open(&ask) => {
                self.answer_question(&ask, answer);
                drop(reply.send(Ok(Ack::Handled)));
            }
            Mail::Command(
                Command::Prompt { .. }
                | Command::Compact { .. }
                | Command::Jump { .. }
                | Command::Continue
                | Command::Set { setting: Setting::Model { .. } | Setting::Thinking { .. } }
                | Command::Unqueue { .. },
                _,
                reply,
            ) if self.subscribers.iter().any(Subscriber::is_stuck) => {
                drop(reply.send(Err(Refusal::SlowSubscriber)));
            }
            Mail::Command(command, found, reply) => {
                self.stop_sides(&command);
                for text in std::mem::take(&mut self.notices) {
                    self.emit(Event::from(Notice::Note { text }), None);
                }
                self.next_reply += 1;
                let id = ReplyId(self.next_reply);
                self.replies.insert(id, reply);
                let run: RunId = fresh_id().into();
                let mut hooks = Vec::new();
                let mut plan = None;
                let (mut item, mut stored) = (ItemId::from(fresh_id()), None);
                let (model, policy) = match found {
                    CommandInfo::Nothing => (None, None),
                    CommandInfo::Stored(inbox, id) => {
                        (stored, item) = (Some(inbox), id);
                        (None, None)
                    }
                    CommandInfo::Policy(version) => (None, Some(version)),
                    CommandInfo::Plan(version, found) => {
                        plan = Some(self.plan_switch(found));
                        (None, Some(version))
                    }
                    CommandInfo::Line(line, records) => {
                        hooks = records;
                        let shell = Shell { line, cancel: CancellationToken::new() };
                        self.shells.insert(run.clone(), shell);
                        (None, None)
                    }
                    CommandInfo::Model((model, provider)) => {
                        self.chosen.push((model.clone(), provider));
                        (Some(model), None)
                    }
                };
                let fresh = CommandContext { run, item, stored, model, policy, plan, hooks };
                self.take(MachineInput::Command { command, reply: id, fresh });
            }
        }
    }

    fn count_answerers(&mut self) {
        let count = self.subscribers.iter().filter(|one| one.answers && one.is_open()).count();
        if count != self.answerers {
            self.answerers = count;
            self.take(MachineInput::Askers(count));
            if count == 0 {
                self.withdraw_questions();
            }
        }
    }

    /// Ends the session for lack of anybody who holds it.
    fn close(&mut self) {
        self.next_reply += 1;
        let (run, item) = (fresh_id().into(), fresh_id().into());
        let hooks = Vec::new();
        let fresh = CommandContext { run, item, stored: None, model: None, policy: None, plan: None, hooks };
        self.sides.stop();
        self.take(MachineInput::Command { command: Command::Close, reply: ReplyId(self.next_reply), fresh });
    }

    /// Gives the machine an input and carries out what it wants.
    pub(super) fn take(&mut self, input: MachineInput) {
        if self.sources.changed() {
            let effects = self.machine.on(self.clock.now(), MachineInput::SourcesChanged);
            debug_assert!(effects.is_empty(), "it is looked at before the next call");
        }
        // Pieces of an answer come often, and nothing is asked after them.
        if !matches!(input, MachineInput::Call { .. } | MachineInput::ToolOutput { .. }) {
            self.follow_forgotten();
        }
        let input = self.without_forgotten(input);
        self.count(&input);
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
        // Most appended nodes have an event of their own.
        if let Some(node) = self.machine.head()
            && self.snapshot.head != Some(node)
        {
            let run = self.machine.run().cloned();
            self.emit(Event::Appended { node }, run);
        }
    }

    pub(super) fn emit(&mut self, event: Event, run: Option<RunId>) {
        self.spans.on(&event, self.machine.session(), run.as_ref());
        self.seq += 1;
        let envelope = Arc::new(Envelope {
            seq: self.seq,
            session: self.machine.session().clone(),
            run,
            at: self.clock.now(),
            event,
        });
        for subscriber in &mut self.subscribers {
            subscriber.send(&envelope, &self.snapshot);
        }
        self.snapshot.fold(&envelope);
        self.subscribers.retain(Subscriber::is_open);
    }
}

async fn drain(inputs: &mut mailbox::Receiver<MachineInput>) {
    while inputs.recv().await.is_some() {}
}

/// Questions of others than the machine.
impl Task {
    pub(super) fn ask(&mut self, Question { kind, default, wait, reply }: Question) {
        if self.answerers == 0 || self.questions.open.len() >= OPEN {
            // Whoever asked may have gone.
            return drop(reply.send(default));
        }
        self.questions.counter += 1;
        let id = AskId::from(format!("q{}", self.questions.counter));
        let millis = |wait: Duration| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let deadline = wait.map(|wait| self.clock.now().saturating_add(millis(wait)));
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let ask = Ask { id: id.clone(), deadline, default: default.clone(), kind };
        self.questions.open.insert(id, OpenQuestion { default, until, reply });
        let run = self.machine.run().cloned();
        self.emit(Event::AskOpened { ask: Arc::new(ask) }, run);
    }

    pub(super) fn answer_question(&mut self, ask: &AskId, answer: Answer) {
        if let Some(open) = self.questions.open.remove(ask) {
            drop(open.reply.send(answer.clone()));
            self.question_closed(ask, Some(answer));
        }
    }

    /// Nobody answered.
    pub(super) fn close_question(&mut self, ask: &AskId) {
        if let Some(open) = self.questions.open.remove(ask) {
            drop(open.reply.send(open.default));
            self.question_closed(ask, None);
        }
    }

    /// Nobody is left who could answer.
    pub(super) fn withdraw_questions(&mut self) {
        let open: Vec<AskId> = self.questions.open.keys().cloned().collect();
        for ask in open {
            self.close_question(&ask);
        }
    }

    fn question_closed(&mut self, ask: &AskId, by: Option<Answer>) {
        let run = self.machine.run().cloned();
        self.emit(Event::AskClosed { ask: ask.clone(), answer: by, by_policy: false }, run);
    }
}
