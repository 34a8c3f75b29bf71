//! The session machine: what happens next, as a pure function of what happened.
//!
//! Not an interface for programs: package `quipu` carries its effects out and is what they use.
//!
//! `on(now, input)` returns effects; the session task carries them out and brings their answers back as inputs.
//! It holds the conversation, the queues and the run. It does no IO, has no clock and no randomness, so every
//! order of events can be tested.

mod background;
mod batch;
mod calling;
mod changing;
mod commands;
mod commits;
mod compacting;
mod ending;
mod errors;
mod falling_back;
mod finished_call;
mod forgetting;
mod hooked;
mod judging;
mod jump;
mod limits;
mod moving;
mod overflow;
mod places;
mod plan_switch;
mod pruning;
mod refreshing;
mod reply;
mod shell;
mod shell_profile;
mod sides;
mod starting;
#[expect(missing_docs, reason = "fields are named for what they hold, and the engine alone reads them")]
mod summaries;
#[cfg(test)]
mod tests;
mod todo;
mod tool_jump;
mod tuning;
#[expect(missing_docs, reason = "fields are named for what they hold, and the engine alone reads them")]
mod types;

use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{
    Ack, AssistantMessage, BlobId, CallEnd, CallEvent, CallRecord, Compaction, Ending, Entry, Event, Json,
    Message, MessageId, Model, ModelError, ModelErrorKind, ModelRequest, NodeId, Outcome, Provenance, RunId,
    SessionId, StepInfo, StopReason, ToolCall, Touches, UnixMs,
};
use quipu_transcript::{OpeningMessages, Projector, counts, sent_tokens};

use background::BackgroundNotes;
pub use background::{BackgroundNote, NoteWake, open_background, started_background};
pub use batch::step_key;
use batch::{Batch, EarlyCalls, Slot, SlotState, refusal};
use changing::{ChangeState, PendingChange};
use compacting::CompactionState;
pub use compacting::{CompactionSettings, SUPPLIED_BY};
pub use compacting::{failed_summary_json, step_of, tool_tokens};
pub use errors::{KillError, ShellRunError};
use falling_back::{EndedCall, FallbackProgress, FallbackState, LeftModel};
pub use falling_back::{FallbackRequest, FallbackResult};
pub use finished_call::FinishedCall;
pub use forgetting::RecordedRequest;
pub use hooked::{HookPrompt, Interventions, record_hooks};
use jump::JumpState;
pub use limits::Limits;
use moving::MoveState;
use overflow::OverflowProgress;
pub use places::{JumpTarget, SessionPlace};
pub use plan_switch::PlanSwitch;
pub use pruning::{CacheExpiry, PruneSettings};
pub use pruning::{MEASURED, PruneState};
use refreshing::RefreshState;
pub use refreshing::{ConversationBrief, EpochReason, RefreshResult, Refreshes};
pub use reply::ReplyId;
pub use shell::shell_message;
use shell::{NoteState, Shells};
pub use sides::SideCall;
use sides::Sides;
use starting::StartState;
pub use summaries::{Calls, NoSummary, Purpose, Stretch, Summary};
use todo::TodoState;
pub use todo::{TODO_WIDGET, todo_lines};
use tool_jump::ToolJumpState;
use tuning::QueueDrains;
pub use tuning::{LiveChanges, QueueDrain, TurnLimit};
pub use types::*;

/// How our nodes name their writer.
pub const AGENT: &str = "quipu";

struct Run {
    id: RunId,
    turn: u32,
    /// Turns of the runs that led here.
    before: u32,
    cost: f64,
    /// What calls beside the conversation cost that it pays for.
    side_cost: f64,
    aborting: bool,
    /// What was done since the model said that the context is too long.
    overflow: OverflowProgress,
    /// Why its last call was not sent once more.
    refused: Option<Outcome>,
    /// A compaction failed; the run goes on without.
    compaction_failed: bool,
    /// Something in the request under way was forgotten: its answer is not used.
    is_outdated: bool,
    /// How often in a row the provider paused within its own tools.
    pauses: u32,
    /// How often in a row the model replied with nothing that can be run, where replies are commands.
    unusable: u32,
    /// How often in a row hooks went on with it.
    prolonged: u32,
    /// What it tried in place of what failed.
    attempted: FallbackProgress,
    phase: Phase,
}

impl Run {
    fn new(id: RunId) -> Self {
        Self {
            id,
            turn: 0,
            before: 0,
            cost: 0.0,
            side_cost: 0.0,
            aborting: false,
            overflow: OverflowProgress::default(),
            refused: None,
            compaction_failed: false,
            is_outdated: false,
            pauses: 0,
            unusable: 0,
            prolonged: 0,
            attempted: FallbackProgress::default(),
            phase: Phase::Committing,
        }
    }

    /// All that it cost.
    fn spent(&self) -> f64 {
        self.cost + self.side_cost
    }
}

enum Phase {
    /// The messages that begin the run or come between two turns are being committed.
    Committing,
    /// A model call is under way.
    Calling { message: Option<MessageId>, attempt: u32 },
    /// The answer is being committed; its calls are being prepared.
    Answered(AnswerState),
    /// Tools run.
    Tools(Batch),
    /// The results are being committed.
    Results(Batch),
    /// Hooks are asked what they add to what begins the run.
    Starting(Box<StartState>),
    /// The model is done, and hooks are asked whether the run goes on.
    Ending,
    /// The context is being summed up, before a call or on demand.
    Compacting(Box<CompactionState>),
    /// The session jumps to another node.
    Jumping(Box<JumpState>),
    /// A tool call moves the session to another node.
    ToolJumping(Box<ToolJumpState>),
    /// The session is moved, or a label or name is recorded.
    Moving(MoveState),
    /// Another model, or another level of thinking, is being recorded.
    Changing(Box<ChangeState>),
    /// Shell lines become nodes.
    Noting(NoteState),
    /// Sources are asked before a call, or what they gave is being recorded.
    Refreshing(Box<RefreshState>),
    /// Another model is looked for, or what is tried in place of a failed call is being recorded.
    FallingBack(Box<FallbackState>),
}

struct AnswerState {
    message: MessageId,
    answer: Arc<Message>,
    /// The calls that want an answer; none when the model's turn failed.
    calls: Vec<ToolCall>,
    error: Option<ModelError>,
    prepared: Vec<CheckedCall>,
    /// What hooks and policies did to the calls.
    interventions: Vec<Interventions>,
    /// The calls are still being prepared.
    waiting: bool,
    kept: bool,
    early: EarlyCalls,
}

/// The session machine. See the module.
pub struct Machine {
    session: SessionId,
    cwd: String,
    head: Option<NodeId>,
    has_ref: bool,
    /// Shared with every request, so that a turn copies none of them.
    messages: Vec<Arc<Message>>,
    /// The node of each of them.
    nodes: Vec<NodeId>,
    compacted: Option<Arc<Compaction>>,
    left: PruneState,
    /// The sum of the messages' estimated tokens.
    estimated: u64,
    prune: PruneSettings,
    cache_expiry: Option<Arc<CacheExpiry>>,
    turns: TurnLimit,
    compaction: CompactionSettings,
    prefix: Prefix,
    /// What requests have before the conversation.
    opening: OpeningMessages,
    prefix_tokens: u64,
    run: Option<Run>,
    steering: Vec<QueuedInput>,
    follow_up: Vec<QueuedInput>,
    /// Entries whose commit failed, or that wait for the first commit; they go before the next one.
    unsaved: Vec<Draft>,
    /// Operations that go with the next commit, such as the deletion of rows that `unsaved` replaces.
    deferred_ops: Vec<PlanOp>,
    /// Number of commits without nodes that are in flight.
    in_flight_side_commits: usize,
    /// How many of them put an item into a queue.
    queueing: usize,
    /// The commit of nodes that is under way, to be made again on a branch.
    committing: Option<Plan>,
    /// The messages of that commit.
    adding: Vec<Arc<Message>>,
    /// Makes conversations of messages, of which most were there before.
    projector: Projector,
    /// The request that follows the commit in flight, which records it.
    next: Option<Arc<ModelRequest>>,
    /// Items that moved to a branch while they were being removed, with the session whose inbox has them now.
    moved: Vec<(quipu_protocol::ItemId, SessionId)>,
    /// The queued items that the commit under way takes.
    drained: Vec<(Queue, QueuedInput)>,
    /// How much of each queue is taken at once.
    drains: QueueDrains,
    shells: Shells,
    background: BackgroundNotes,
    sides: Sides,
    /// Labels and names that wait for the end of what is under way.
    notes: Vec<(MoveOrder, ReplyId, RunId)>,
    askers: usize,
    /// The last known version of the policy.
    policy: PolicyVersion,
    has_hooks: bool,
    hooks_change_requests: bool,
    pending_self_message: bool,
    /// A change that waits for the end of the turn.
    changing: Option<PendingChange>,
    /// The model of before plan mode, where plan mode has one of its own.
    before_plan: Option<Arc<Model>>,
    /// How many models can continue a run in place of its own.
    fallbacks: usize,
    /// The model that was chosen, where another one stands in for it.
    left_model: Option<LeftModel>,
    /// What requests begin with once the prompt being committed is kept, where that returns to the chosen model.
    returning: Option<Box<Prefix>>,
    /// Why sources are asked before the next call.
    due: Vec<EpochReason>,
    refreshes: Refreshes,
    limits: Limits,
    ask_deadline: Duration,
    counter: u64,
    closing: Option<ReplyId>,
    todo: TodoState,
    /// Whether the unsaved entries were tried once more at the end of the session.
    last_try: bool,
    out: Vec<Effect>,
    now: UnixMs,
}

impl Machine {
    /// A machine that does nothing yet.
    pub fn new(mut start: Start) -> Self {
        let prefix_tokens = compacting::prefix_tokens(&start.prefix);
        let left = PruneState::of_start(&mut start, prefix_tokens);
        Self {
            session: start.session,
            cwd: start.cwd,
            head: start.head,
            has_ref: start.has_ref,
            todo: TodoState::of(&start.messages, &start.nodes),
            estimated: start.messages.iter().map(|message| sent_tokens(message)).sum(),
            messages: start.messages,
            nodes: start.nodes,
            compacted: start.compacted,
            left,
            prune: start.prune,
            cache_expiry: start.cache_expiry,
            turns: TurnLimit::default(),
            compaction: start.compaction,
            prefix_tokens,
            opening: OpeningMessages::of(start.prefix.epoch.context.as_ref()),
            projector: Projector::of(start.prefix.epoch.profile),
            prefix: start.prefix,
            run: None,
            steering: start.steering,
            follow_up: start.follow_up,
            unsaved: start.first,
            deferred_ops: Vec::new(),
            in_flight_side_commits: 0,
            queueing: 0,
            committing: None,
            adding: Vec::new(),
            next: None,
            moved: Vec::new(),
            drained: Vec::new(),
            drains: QueueDrains::default(),
            shells: Shells::default(),
            background: BackgroundNotes::of(start.reminders),
            sides: Sides::default(),
            notes: Vec::new(),
            askers: 0,
            policy: start.policy,
            has_hooks: start.has_hooks,
            hooks_change_requests: start.hooks_change_requests,
            pending_self_message: start.pending_self_message,
            changing: None,
            before_plan: start.before_plan,
            fallbacks: start.fallbacks,
            left_model: None,
            returning: None,
            due: start.due.into_iter().filter(|reason| start.refreshes.wants(*reason)).collect(),
            refreshes: start.refreshes,
            limits: start.limits,
            ask_deadline: start.ask_deadline,
            counter: 0,
            closing: None,
            last_try: false,
            out: Vec::new(),
            now: 0,
        }
    }

    /// Whose it is: another one after a branch.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The node where the session stands.
    pub fn head(&self) -> Option<NodeId> {
        self.head
    }

    /// The blob of the system prompt that requests have now.
    pub fn system(&self) -> Option<BlobId> {
        self.prefix.epoch.system
    }

    /// The model that is asked now.
    pub fn model(&self) -> &Arc<Model> {
        &self.prefix.model
    }

    /// The run under way.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref().map(|run| &run.id)
    }

    /// How many inputs wait in the queues.
    pub fn waiting(&self) -> usize {
        self.steering.len() + self.follow_up.len()
    }

    /// Handles one input and returns its effects.
    pub fn on(&mut self, now: UnixMs, input: MachineInput) -> Vec<Effect> {
        self.now = now;
        match input {
            MachineInput::Command { command, reply, fresh } => self.command(command, reply, fresh),
            MachineInput::Committed { tag, result } => self.committed(tag, result),
            MachineInput::Askers(count) => {
                self.askers = count;
                if count == 0 {
                    self.withdraw_asks();
                }
            }
            MachineInput::Policy(version) => self.set_policy(version),
            MachineInput::Tuned(tuning) => self.tune(tuning),
            MachineInput::Judged { run, ask, prepared, policies } if self.is_current(&run) => {
                self.judged(&ask, prepared, policies);
            }
            MachineInput::ToolHeld { run, slot, prepared, policies } if self.is_current(&run) => {
                self.tool_held(slot, prepared, policies);
            }
            MachineInput::AskExpired { ask } => self.answer(&ask, None),
            MachineInput::Notice(trouble) => self.emit(Event::from(trouble)),
            MachineInput::Background(note) => self.background_note(*note),
            MachineInput::SideBegun => self.side_begun(),
            MachineInput::SideEnded(call) => self.side_ended(*call),
            MachineInput::SourcesChanged => self.refresh_at(EpochReason::Source),
            MachineInput::Forgotten(nodes) => self.forget(&nodes),
            MachineInput::PromptForgotten => self.prompt_forgotten(),
            MachineInput::Refreshed { run, result } if self.is_current(&run) => self.refreshed(result),
            // A late answer of a run that ended is dropped: its last commit has everything.
            MachineInput::Prepared { run, calls, interventions } if self.is_current(&run) => {
                self.prepared(calls, interventions);
            }
            MachineInput::RunStartDecided { run, prompt } if self.is_current(&run) => {
                self.run_start_decided(prompt);
            }
            MachineInput::RunEndDecided { run, more } if self.is_current(&run) => self.run_end_decided(more),
            MachineInput::Call { run, event } if self.is_current(&run) => self.call_event(event),
            MachineInput::CallEnded { run, end, record, money, hooks, replaced } if self.is_current(&run) => {
                if replaced.is_some() {
                    self.drop_streamed();
                }
                self.call_ended(*end, record, money, (&hooks, replaced));
            }
            MachineInput::CallNotMade { run, outcome } if self.is_current(&run) => {
                self.call_not_made(outcome);
            }
            MachineInput::Summarized { run, result } if self.is_current(&run) => self.summarized(result),
            MachineInput::TargetResolved { run, result } if self.is_current(&run) => {
                self.target_resolved(result);
            }
            MachineInput::ChildrenKilled { run, result } if self.is_current(&run) => {
                self.children_killed(result);
            }
            MachineInput::Moved { run, result } if self.is_current(&run) => self.moved(result),
            MachineInput::FallbackFound(run, result) if self.is_current(&run) => self.fallback_found(result),
            MachineInput::ToolOutput { run, slot, tail } if self.is_current(&run) => {
                self.tool_output(slot, tail);
            }
            MachineInput::ToolDone { run, slot, done } if self.is_current(&run) => {
                self.tool_done(slot, *done);
            }
            MachineInput::ShellOutput { run, tail } => self.shell_output(run, tail),
            MachineInput::ShellEnded { run, end } => self.shell_ended(&run, end),
            MachineInput::Prepared { .. }
            | MachineInput::Call { .. }
            | MachineInput::CallEnded { .. }
            | MachineInput::CallNotMade { .. }
            | MachineInput::RunStartDecided { .. }
            | MachineInput::RunEndDecided { .. }
            | MachineInput::Summarized { .. }
            | MachineInput::TargetResolved { .. }
            | MachineInput::ChildrenKilled { .. }
            | MachineInput::Moved { .. }
            | MachineInput::ToolOutput { .. }
            | MachineInput::Judged { .. }
            | MachineInput::ToolHeld { .. }
            | MachineInput::Refreshed { .. }
            | MachineInput::FallbackFound(..)
            | MachineInput::ToolDone { .. } => {}
        }
        self.follow_todo();
        std::mem::take(&mut self.out)
    }

    fn is_current(&self, run: &RunId) -> bool {
        self.run.as_ref().is_some_and(|current| current.id == *run)
    }

    fn emit(&mut self, event: Event) {
        let run = self.run.as_ref().map(|run| run.id.clone());
        self.out.push(Effect::Emit { event, run });
    }

    fn next_message(&mut self) -> MessageId {
        self.counter += 1;
        format!("m{}", self.counter).into()
    }

    // Turns.

    fn begin_turn(&mut self) {
        let Some(run) = &mut self.run else { return };
        run.turn += 1;
        let turn = run.turn;
        self.emit(Event::TurnStarted { turn });
    }

    // Tools.

    fn start_tools(
        &mut self,
        calls: Vec<ToolCall>,
        prepared: Vec<CheckedCall>,
        interventions: Vec<Interventions>,
        mut early: EarlyCalls,
    ) {
        let mut batch = Batch::default();
        let aborting = self.run.as_ref().is_some_and(|run| run.aborting);
        let (mut prepared, mut interventions) = (prepared.into_iter(), interventions.into_iter());
        // Those that were begun while the answer was committed, and are done.
        let mut ended = Vec::new();
        for call in calls {
            // None is missing unless the checking itself broke down.
            let prepared =
                prepared.next().unwrap_or_else(|| CheckedCall::Refused(batch::NOT_PREPARED.into()));
            let interventions = interventions.next().unwrap_or_default();
            let too_many = batch.slots.len() >= batch::CALLS;
            self.emit(Event::ToolStarted {
                call: call.id.clone(),
                name: call.name.clone(),
                args: call.arguments.clone(),
            });
            let refuse = |text: String| {
                SlotState::Done(Box::new(refusal(&call, text, interventions.clone(), self.now)))
            };
            let begun = early.take(batch.slots.len());
            if let Some(SlotState::Done(_)) = &begun {
                ended.push(batch.slots.len());
            }
            let (call, state, touches) = match prepared {
                _ if aborting && !matches!(begun, Some(SlotState::Done(_))) => {
                    (call.clone(), refuse(batch::ABORTED.into()), Touches::Nothing)
                }
                _ if too_many => (call.clone(), refuse(batch::too_many()), Touches::Nothing),
                CheckedCall::Refused(text) => (call.clone(), refuse(text), Touches::Nothing),
                CheckedCall::Ready { call, touches } => (call, begun.unwrap_or(SlotState::Ready), touches),
                CheckedCall::Ask { call, touches, question, .. } if self.askers == 0 => {
                    (call, refuse(batch::nobody_to_ask(&question)), touches)
                }
                CheckedCall::Ask { call, touches, question, subject, scopes, rules } => {
                    let ask = self.ask(&call, question, subject, (scopes, rules));
                    (call, SlotState::Asking(ask), touches)
                }
            };
            let emitted = if let (SlotState::Done(done), false) =
                (&state, ended.last() == Some(&batch.slots.len()))
            {
                let event = Event::ToolEnded { call: call.id.clone(), result: Arc::new(done.result.clone()) };
                self.emit(event);
                true
            } else {
                false
            };
            batch.slots.push(Slot { call, state, touches, approved: false, emitted, interventions });
        }
        if let Some(run) = &mut self.run {
            run.phase = Phase::Tools(batch);
        }
        for slot in ended {
            self.keep_result(slot);
        }
        // They may have been looked up before the rules changed.
        self.judge_asks();
        self.continue_tools();
    }

    /// Starts what can start; commits the results when all are there.
    fn continue_tools(&mut self) {
        let Some(Run { id, turn, phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        for slot in batch.startable() {
            batch.slots[slot].state = SlotState::Running;
            let Slot { call, touches, approved, .. } = &batch.slots[slot];
            let (call, touches, approved) = (call.clone(), touches.clone(), *approved);
            self.out.push(Effect::RunTool { run: id.clone(), turn: *turn, slot, call, touches, approved });
        }
        if batch.all_done() {
            self.commit_results();
        }
    }

    fn tool_output(&mut self, slot: usize, tail: Arc<str>) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &self.run else { return };
        if let Some(Slot { call, state: SlotState::Running, .. }) = batch.slots.get(slot) {
            let call = call.id.clone();
            self.emit(Event::ToolOutput { call, tail });
        }
    }

    fn tool_done(&mut self, slot: usize, mut done: FinishedCall) {
        let jump = done.jump.take();
        self.hint_at_patience(&mut done);
        let batch = match &mut self.run {
            Some(Run { phase: Phase::Tools(batch), .. }) => batch,
            Some(Run { phase: Phase::Answered(answered), .. }) => return answered.early.done(slot, done),
            Some(_) | None => return,
        };
        let Some(place @ Slot { state: SlotState::Running, .. }) = batch.slots.get_mut(slot) else { return };
        place.state = SlotState::Done(Box::new(done));
        match jump {
            // Not kept before it leaves: it says that it did.
            Some(jump) => self.request_tool_jump(slot, *jump),
            None => self.keep_result(slot),
        }
        self.continue_tools();
    }

    /// Keeps a result while others are awaited.
    fn keep_result(&mut self, slot: usize) {
        let Some(Run { id, turn, phase: Phase::Tools(batch), .. }) = &self.run else { return };
        let Some(Slot { state: SlotState::Done(done), .. }) = batch.slots.get(slot) else { return };
        if !batch.all_done() {
            let op = PlanOp::Keep { run: id.clone(), key: step_key(*turn, slot), done: done.clone() };
            let tag = Tag::Result { run: id.clone(), turn: *turn, slot };
            self.side_commit(tag, vec![op], false);
        }
    }

    fn commit_results(&mut self) {
        if self.kill_children_before_jump() {
            return;
        }
        let Some(run) = &mut self.run else { return };
        let Phase::Tools(batch) = &mut run.phase else { return };
        let batch = std::mem::take(batch);
        let drafts = batch.slots.iter().filter_map(|slot| slot.draft(&run.id)).collect();
        let ops = vec![PlanOp::Forget { run: run.id.clone(), session: None }];
        run.phase = Phase::Results(batch);
        self.commit(Tag::Results, drafts, ops, true);
    }

    fn emit_results(&mut self, batch: &Batch) {
        for slot in batch.slots.iter().filter(|slot| !slot.emitted) {
            if let SlotState::Done(done) = &slot.state {
                self.emit(Event::ToolEnded {
                    call: slot.call.id.clone(),
                    result: Arc::new(done.result.clone()),
                });
            }
        }
    }

    fn results_committed(&mut self, plan: &Plan, nodes: &[NodeId]) {
        let Some(Run { turn, phase: Phase::Results(batch), .. }) = &mut self.run else { return };
        let (turn, batch) = (*turn, std::mem::take(batch));
        let terminate = batch.terminates();
        self.emit_results(&batch);
        self.announce_messages(plan, nodes);
        self.emit(Event::TurnEnded { turn });
        self.after_turn(if terminate { TurnEnd::Done } else { TurnEnd::Continues });
    }

    // Between turns, and the end.

    fn after_turn(&mut self, went: TurnEnd) {
        let Some(run) = &self.run else { return };
        if run.aborting {
            return self.end_run(Outcome::Aborted);
        }
        let more = matches!(went, TurnEnd::Continues) || self.waiting() > 0 || self.background.wakes();
        if !more {
            return self.model_done();
        }
        if let Some(limit) = self.limits.reached(run) {
            return self.end_run(Outcome::Limit(limit));
        }
        if self.record_change(Some(went)) {
            return;
        }
        let from = if self.steering.is_empty() && !matches!(went, TurnEnd::Continues) {
            Queue::FollowUp
        } else {
            Queue::Steering
        };
        let (drafts, ops) = self.drain(from);
        if drafts.is_empty() && self.background.is_empty() {
            self.begin_turn();
            return self.call_model();
        }
        if let Some(run) = &mut self.run {
            run.phase = Phase::Committing;
            if !drafts.is_empty() {
                run.prolonged = 0;
            }
        }
        self.queue_background_notes();
        self.commit(Tag::Between, drafts, ops, true);
    }

    fn end_run(&mut self, outcome: Outcome) {
        if self.next.take().is_some() {
            self.revoke_last_call();
        }
        self.background.run_ended(&outcome);
        self.emit(Event::RunEnded { outcome });
        self.run = None;
        self.settle();
    }

    /// Whether something runs or waits for the store.
    fn is_at_work(&self) -> bool {
        self.run.is_some()
            || self.in_flight_side_commits > 0
            || self.committing.is_some()
            || self.shells.run()
            || self.sides.run()
    }

    /// The session ends when nothing runs and no command waits for the store.
    fn stop_if_closing(&mut self) {
        if self.is_at_work() || self.closing.is_none() {
            return;
        }
        let says = |draft: &Draft| matches!(&*draft.entry, Entry::Message(_));
        let pending_self_message =
            self.unsaved.iter().any(says) || !self.deferred_ops.is_empty() || self.sides.wait();
        if !self.last_try && pending_self_message {
            self.last_try = true;
            return self.commit(Tag::Closing, Vec::new(), Vec::new(), true);
        }
        if let Some(reply) = self.closing.take() {
            self.out.push(Effect::Reply(reply, Ok(Ack::Handled)));
            self.out.push(Effect::Stop);
        }
    }
}

/// How a turn went.
#[derive(Clone, Copy)]
enum TurnEnd {
    /// The model waits for what comes next.
    Continues,
    /// The model is done.
    Done,
}

fn shared(message: std::borrow::Cow<'_, Message>) -> Arc<Message> {
    Arc::new(message.into_owned())
}
