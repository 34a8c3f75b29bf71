//! What commands do to the machine.

use quipu_protocol::{
    AbortTarget, Ack, Answer, AskId, Command, Content, Event, Message, QueueMode, Refusal, RunId, Setting,
};

use quipu_transcript::{message_of, project_messages};

use super::batch::{self, SlotState, refusal};
use super::{
    CommandContext, CommitError, Draft, Effect, Machine, MoveOrder, Phase, Plan, PlanOp, Queue, QueuedInput,
    ReplyId, Run, Tag,
};

/// Messages that wait in the queues at most.
const WAITING: usize = 256;

impl Machine {
    pub(super) fn command(&mut self, command: Command, reply: ReplyId, fresh: CommandContext) {
        if self.closing.is_some() {
            return self.out.push(Effect::Reply(reply, Err(Refusal::Closed)));
        }
        if let Command::Prompt { .. } | Command::Continue = command {
            self.background.person_spoke();
        }
        match command {
            Command::Prompt { input, .. } if is_empty(&input) => {
                self.out.push(Effect::Reply(reply, Err(Refusal::Empty)));
            }
            Command::Prompt { input, .. } if self.run.is_none() && !self.pending_self_message => {
                let mut draft = Draft::user_message(input, self.now);
                if fresh.stored.is_some() {
                    draft = draft.from_inbox(&fresh.item);
                }
                let stored = fresh.stored.map(|session| PlanOp::Take { session, item: fresh.item });
                self.start(Some(draft), stored, Queue::Steering, reply, fresh.run);
            }
            Command::Prompt { when: QueueMode::Now, .. }
                if self.run.is_some() && !self.is_busy_without_run() =>
            {
                self.out.push(Effect::Reply(reply, Err(Refusal::Busy)));
            }
            Command::Prompt { .. } if self.waiting() + self.queueing >= WAITING => {
                self.out.push(Effect::Reply(reply, Err(Refusal::QueueFull)));
            }
            Command::Prompt { input, when } => {
                match self.run.as_mut().map(|run| &mut run.phase) {
                    Some(Phase::Compacting(compacting)) => compacting.has_prompt = true,
                    Some(Phase::Jumping(jumping)) => jumping.has_prompt = true,
                    Some(Phase::Changing(recording)) => recording.has_prompt = true,
                    Some(Phase::Moving(moving)) => moving.has_prompt = true,
                    _ => {}
                }
                let is_stored = fresh.stored.is_some();
                let session = fresh.stored.unwrap_or_else(|| self.session.clone());
                let item = QueuedInput { id: fresh.item, session, input, is_lent: is_stored };
                // What the session said to itself is answered first.
                let follow_up = when == QueueMode::FollowUp || self.run.is_none();
                let queue = if follow_up { Queue::FollowUp } else { Queue::Steering };
                let op = (!is_stored).then(|| PlanOp::Put { queue, item: item.clone() });
                self.queueing += 1;
                self.side_commit(Tag::Queue { reply, item, follow_up }, op.into_iter().collect(), true);
            }
            Command::Compact { focus } => self.compact(focus, reply, fresh.run),
            Command::Jump { to, summary, label, files } => {
                self.jump(to, summary, label, files, reply, fresh.run);
            }
            Command::Merge { from, note, side, files } => {
                self.begin_move(MoveOrder::Merge { from, note, side, files }, reply, fresh.run);
            }
            Command::Undo { steps, files } => {
                self.begin_move(MoveOrder::Undo { steps, files }, reply, fresh.run);
            }
            Command::Redo { steps, files } => {
                self.begin_move(MoveOrder::Redo { steps, files }, reply, fresh.run);
            }
            Command::UndoCompaction => self.begin_move(MoveOrder::UndoCompaction, reply, fresh.run),
            Command::Label { node, text } => {
                let text = text.unwrap_or_default();
                self.begin_move(MoveOrder::Label { node, text }, reply, fresh.run);
            }
            Command::Rename { name } => self.begin_move(MoveOrder::Rename { name }, reply, fresh.run),
            // Made outside: nothing of this session changes.
            Command::Fork { .. } => self.out.push(Effect::Reply(reply, Ok(Ack::Handled))),
            Command::Continue => self.continue_run(reply, fresh.run),
            Command::Set { setting: Setting::Permissions | Setting::Plan { .. } } => {
                if let Some(version) = fresh.policy {
                    self.set_policy(version);
                }
                match fresh.plan {
                    Some(switch) => self.switch_plan(switch, reply, fresh.run),
                    None => self.out.push(Effect::Reply(reply, Ok(Ack::Handled))),
                }
            }
            Command::Set { setting } => self.set(&setting, fresh.model, reply, fresh.run),
            Command::Unqueue { items } => {
                let mut taken = Vec::new();
                for (queue, list) in
                    [(Queue::Steering, &mut self.steering), (Queue::FollowUp, &mut self.follow_up)]
                {
                    let wanted = |item: &mut QueuedInput| items.is_empty() || items.contains(&item.id);
                    taken.extend(list.extract_if(.., wanted).map(|item| (queue, item)));
                }
                let mut ops = Vec::new();
                for (_, item) in taken.iter().filter(|(_, item)| !item.is_lent) {
                    ops.push(PlanOp::Take { session: item.session.clone(), item: item.id.clone() });
                    // It may be on its way to a branch.
                    if item.session != self.session {
                        ops.push(PlanOp::Take { session: self.session.clone(), item: item.id.clone() });
                    }
                }
                let items = taken;
                self.side_commit(Tag::Unqueue { reply, items }, ops, false);
            }
            Command::Abort { target: part } => {
                match part {
                    AbortTarget::Run => self.abort(),
                    AbortTarget::Tool(call) => self.abort_tool(&call),
                    AbortTarget::Shell(run) => self.stop_shell(&run),
                    // Done outside, before this command came.
                    AbortTarget::Background(_) => {}
                    AbortTarget::Compaction => match self.run.as_mut().map(|run| &mut run.phase) {
                        Some(Phase::Compacting(compacting)) => {
                            compacting.stop();
                            self.out.push(Effect::CancelCall);
                        }
                        Some(Phase::Jumping(jumping)) => {
                            jumping.stopped = true;
                            self.out.push(Effect::CancelCall);
                        }
                        _ => {}
                    },
                }
                self.out.push(Effect::Reply(reply, Ok(Ack::Handled)));
            }
            Command::Answer { ask, answer } => {
                let open = match &self.run {
                    Some(Run { phase: Phase::Tools(batch), .. }) => batch.asking(&ask).is_some(),
                    _ => false,
                };
                let result = if open { Ok(Ack::Handled) } else { Err(Refusal::NoSuchAsk) };
                self.out.push(Effect::Reply(reply, result));
                self.answer(&ask, Some(answer));
            }
            Command::Shell { line, .. } if line.trim().is_empty() => {
                self.out.push(Effect::Reply(reply, Err(Refusal::Empty)));
            }
            Command::Shell { line, hidden } => self.shell((line, hidden, fresh.hooks), reply, fresh.run),
            Command::Close => {
                self.closing = Some(reply);
                self.stop_shells();
                if self.run.is_some() {
                    self.abort();
                } else {
                    self.settle();
                }
            }
        }
    }

    fn start(
        &mut self,
        prompt: Option<Draft>,
        stored: Option<PlanOp>,
        from: Queue,
        reply: ReplyId,
        run: RunId,
    ) {
        let mut drafts: Vec<_> = prompt.into_iter().collect();
        let (queued, mut ops) = if self.pending_self_message { Default::default() } else { self.drain(from) };
        drafts.extend(queued);
        ops.extend(stored);
        self.begin_run(run, Some(reply), drafts, ops);
    }

    fn continue_run(&mut self, reply: ReplyId, run: RunId) {
        if self.run.is_some() {
            return self.out.push(Effect::Reply(reply, Err(Refusal::Busy)));
        }
        let unsaved = self.unsaved.iter().filter_map(|draft| message_of(&draft.entry)).map(super::shared);
        let conversation = project_messages(self.messages.iter().cloned().chain(unsaved));
        let answered =
            !matches!(conversation.last().map(|m| &**m), Some(Message::User(_) | Message::ToolResult(_)));
        if answered && self.waiting() == 0 {
            return self.out.push(Effect::Reply(reply, Err(Refusal::NothingToContinue)));
        }
        let from = if answered && self.steering.is_empty() { Queue::FollowUp } else { Queue::Steering };
        self.start(None, None, from, reply, run);
    }

    // Commits that add no node: they do not touch the ref, so they may overlap with one that does.

    pub(super) fn side_commit(&mut self, tag: Tag, ops: Vec<PlanOp>, power: bool) {
        self.in_flight_side_commits += 1;
        let plan = Plan {
            session: self.session.clone(),
            expect: None,
            parent: None,
            drafts: Vec::new(),
            carried: 0,
            ops,
            power,
        };
        self.out.push(Effect::Commit { tag, plan, next: None });
    }

    pub(super) fn side_committed(&mut self, tag: Tag, result: Result<(), CommitError>) {
        let result = result.map_err(|error| match error {
            CommitError::Failed(text) => text,
            CommitError::Conflict { .. } => "another program moved the session; try again".into(),
        });
        self.in_flight_side_commits = self.in_flight_side_commits.saturating_sub(1);
        if let Tag::Queue { .. } = tag {
            self.queueing = self.queueing.saturating_sub(1);
        }
        match tag {
            Tag::Queue { reply, item, follow_up } => match result {
                Err(text) => self.out.push(Effect::Reply(reply, Err(Refusal::Store { why: text }))),
                Ok(()) => {
                    let id = item.id.clone();
                    if follow_up {
                        self.follow_up.push(item);
                    } else {
                        self.steering.push(item);
                    }
                    self.out.push(Effect::Reply(reply, Ok(Ack::Queued(id.clone()))));
                    self.queue_changed();
                    // The run ended while the item was being stored: it is what comes next.
                    match self.run.as_mut().map(|run| &mut run.phase) {
                        None if self.closing.is_none() => self.start_queued(id.as_str().into()),
                        Some(Phase::Noting(noting)) => noting.has_prompt = true,
                        Some(Phase::Moving(moving)) => moving.has_prompt = true,
                        _ => {}
                    }
                }
            },
            Tag::Unqueue { reply, items } => {
                let items = self.relocate_queued(items);
                let answer = match result {
                    Ok(()) => Ok(Ack::Unqueued(items.into_iter().map(|(_, item)| item.input).collect())),
                    Err(text) => {
                        for (queue, item) in items.into_iter().rev() {
                            match queue {
                                Queue::Steering => self.steering.insert(0, item),
                                Queue::FollowUp => self.follow_up.insert(0, item),
                            }
                        }
                        Err(Refusal::Store { why: text })
                    }
                };
                self.out.push(Effect::Reply(reply, answer));
                self.queue_changed();
            }
            // A result that could not be kept early is kept with its batch, or that commit fails and says so.
            Tag::Result { run, turn, slot } => {
                if let Some(Run { id, turn: now, phase: Phase::Tools(batch), .. }) = &mut self.run
                    && *id == run
                    && *now == turn
                    && result.is_ok()
                    && let Some(place) = batch.slots.get_mut(slot)
                    && !place.emitted
                    && let SlotState::Done(done) = &place.state
                {
                    place.emitted = true;
                    let event =
                        Event::ToolEnded { call: place.call.id.clone(), result: done.result.clone().into() };
                    self.emit(event);
                }
            }
            Tag::Unsent { op } => {
                if result.is_err() {
                    self.deferred_ops.push(op);
                }
            }
            Tag::ShellBegins { reply, session, run } => self.shell_begun(reply, session, &run),
            Tag::ShellEnds { shell } => self.shell_committed(*shell, result),
            Tag::Start { .. }
            | Tag::Assistant
            | Tag::Results
            | Tag::Between
            | Tag::Named
            | Tag::Compacted
            | Tag::Jumped
            | Tag::Pruned
            | Tag::Changed
            | Tag::Refreshed
            | Tag::FellBack
            | Tag::Noted { .. }
            | Tag::NotedBegin { .. }
            | Tag::Closing => {}
        }
        self.stop_if_closing();
    }

    pub(super) fn start_queued(&mut self, run: RunId) {
        let from = if self.steering.is_empty() { Queue::FollowUp } else { Queue::Steering };
        let (drafts, ops) = if self.pending_self_message { Default::default() } else { self.drain(from) };
        self.begin_run(run, None, drafts, ops);
    }

    // Stopping.

    fn abort(&mut self) {
        let Some(run) = &mut self.run else { return };
        run.aborting = true;
        match &mut run.phase {
            // The commit under way decides; what follows it sees `aborting`.
            Phase::Committing
            | Phase::Results(_)
            | Phase::ToolJumping(_)
            | Phase::Changing(_)
            | Phase::Moving(_)
            | Phase::Noting(_) => {}
            Phase::Answered(answered) => {
                // No call will run, so how the checking ends does not matter.
                if std::mem::take(&mut answered.waiting) {
                    self.out.push(Effect::CancelPrepare);
                }
                self.out.extend(answered.early.running().map(|slot| Effect::CancelTool { slot }));
                self.answered();
            }
            Phase::Calling { .. }
            | Phase::Compacting(_)
            | Phase::Jumping(_)
            | Phase::Starting(_)
            | Phase::Ending => self.out.push(Effect::CancelCall),
            Phase::Refreshing(_) => self.out.push(Effect::CancelRefresh),
            Phase::FallingBack(_) => self.stop_falling_back(),
            Phase::Tools(batch) => {
                for slot in 0..batch.slots.len() {
                    self.stop_slot(slot, batch::ABORTED);
                }
                self.continue_tools();
            }
        }
    }

    fn abort_tool(&mut self, call: &quipu_protocol::CallId) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &self.run else { return };
        let Some(slot) = batch.slots.iter().position(|slot| slot.call.id == *call && !slot.is_done()) else {
            return;
        };
        self.stop_slot(slot, batch::ABORTED);
        self.continue_tools();
    }

    /// Cancels a call that runs; answers one that has not begun.
    pub(super) fn stop_slot(&mut self, slot: usize, text: &str) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        let Some(place) = batch.slots.get_mut(slot) else { return };
        let ask = match &place.state {
            SlotState::Done(_) => return,
            SlotState::Running => return self.out.push(Effect::CancelTool { slot }),
            SlotState::Asking(ask) => Some(ask.clone()),
            SlotState::Ready => None,
        };
        self.refuse_slot(slot, text.into());
        if let Some(ask) = ask {
            self.emit(Event::AskClosed { ask, answer: None, by_policy: false });
        }
    }

    pub(super) fn refuse_slot(&mut self, slot: usize, text: String) {
        let now = self.now;
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        let Some(place) = batch.slots.get_mut(slot) else { return };
        let done = refusal(&place.call, text, place.interventions.clone(), now);
        place.state = SlotState::Done(Box::new(done));
        self.keep_result(slot);
    }

    // Questions.

    pub(super) fn answer(&mut self, ask: &AskId, answer: Option<Answer>) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        let Some(slot) = batch.asking(ask) else { return };
        match &answer {
            Some(Answer::Allow { .. }) => {
                batch.slots[slot].state = SlotState::Ready;
                batch.slots[slot].approved = true;
            }
            Some(Answer::Deny { reason }) => {
                let text = batch::denied(reason.as_deref());
                self.refuse_slot(slot, text);
            }
            // No answer to such a question: nobody allowed it.
            Some(
                Answer::Confirm { .. }
                | Answer::Choose { .. }
                | Answer::Text { .. }
                | Answer::Form { .. }
                | Answer::Cancel,
            ) => self.refuse_slot(slot, batch::denied(None)),
            None => self.refuse_slot(
                slot,
                "Nobody answered the permission question in time, so this call was not run.".into(),
            ),
        }
        self.emit(Event::AskClosed { ask: ask.clone(), answer, by_policy: false });
        self.continue_tools();
    }

    /// Nobody who could answer is left.
    pub(super) fn withdraw_asks(&mut self) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &self.run else { return };
        let open: Vec<AskId> = batch.open_asks().map(|(ask, _)| ask.clone()).collect();
        for ask in open {
            self.answer(&ask, None);
        }
    }
}

fn is_empty(input: &quipu_protocol::UserInput) -> bool {
    input.content.iter().all(|block| match block {
        Content::Text(text) => text.text.trim().is_empty(),
        // Not something that a user can say: the model would not be shown it.
        Content::Thinking(_) | Content::ToolCall(_) => true,
        Content::Image(_) | Content::Other(_) => false,
    })
}
