//! Commits of nodes: one at a time, since the next one's parent is the last one's node.

use std::sync::Arc;

use quipu_protocol::{
    Ack, Checkpoint, Compaction, CompactionReason, CompactionResult, Ending, Entry, Event, JumpResult,
    ModelError, ModelErrorKind, ModelRequest, NodeId, Notice, Outcome, Refusal, SessionId, SessionStart,
};
use quipu_transcript::{message_of, sent_tokens};

use super::{
    AnswerState, CommitError, Draft, Effect, Machine, Phase, Plan, PlanOp, Queue, QueuedInput,
    RecordedRequest, Run, Tag, failed_summary_json, shared,
};

impl Machine {
    pub(super) fn commit(&mut self, tag: Tag, drafts: Vec<Draft>, ops: Vec<PlanOp>, power: bool) {
        self.take_sides();
        let mut all = std::mem::take(&mut self.unsaved);
        let carried = all.len();
        all.extend(drafts);
        let mut all_ops = std::mem::take(&mut self.deferred_ops);
        if self.next.take().is_some()
            && let Some(run) = &self.run
        {
            // Something came between: what the last commit recorded is not what is asked.
            all_ops.push(PlanOp::Forget { run: run.id.clone(), session: None });
        }
        all_ops.extend(ops);
        let plan = Plan {
            session: self.session.clone(),
            expect: if self.has_ref { self.head } else { None },
            parent: self.head,
            drafts: all,
            carried,
            ops: all_ops,
            power,
        };
        self.committing = Some(plan.clone());
        let messages = plan.drafts.iter().filter_map(|draft| message_of(&draft.entry));
        self.adding = messages.map(shared).collect();
        self.next = self.asks_next(&tag).then(|| self.request());
        self.out.push(Effect::Commit { tag, plan, next: self.next.clone() });
    }

    /// Whether a call of the model follows this commit, as far as can be told before it is done.
    fn asks_next(&self, tag: &Tag) -> bool {
        let Some(run) = self.run.as_ref().filter(|run| !run.aborting) else { return false };
        if self.hooks_change_requests
            || self.returning.is_some()
            || !self.due.is_empty()
            || self.compaction_is_due()
            || self.prune_is_due().is_some()
            || self.turns_may_be_due()
        {
            return false;
        }
        match tag {
            Tag::Start { .. } | Tag::Between => true,
            Tag::Results => {
                let continues = matches!(&run.phase, Phase::Results(batch) if !batch.terminates());
                continues
                    && self.changing.is_none()
                    && self.steering.is_empty()
                    && self.background.is_empty()
                    && self.limits.reached(run).is_none()
            }
            Tag::Queue { .. }
            | Tag::Unqueue { .. }
            | Tag::Assistant
            | Tag::Result { .. }
            | Tag::Named
            | Tag::Compacted
            | Tag::Jumped
            | Tag::Pruned
            | Tag::Changed
            | Tag::Refreshed
            | Tag::FellBack
            | Tag::Closing
            | Tag::ShellBegins { .. }
            | Tag::ShellEnds { .. }
            | Tag::Noted { .. }
            | Tag::NotedBegin { .. }
            | Tag::Unsent { .. } => false,
        }
    }

    /// A request that was recorded as about to be sent is not: nobody must think later that it was.
    pub(super) fn revoke_pending_call(&mut self, request: Arc<ModelRequest>) {
        self.remove_record(PlanOp::Revoke { request: RecordedRequest(request) });
    }

    /// The same where the run ends without its call.
    pub(super) fn revoke_last_call(&mut self) {
        if let Some(run) = &self.run {
            let (run, session) = (run.id.clone(), Some(self.session.clone()));
            self.remove_record(PlanOp::Forget { run, session });
        }
    }

    fn remove_record(&mut self, op: PlanOp) {
        self.side_commit(Tag::Unsent { op: op.clone() }, vec![op], false);
    }

    pub(super) fn committed(&mut self, tag: Tag, result: Result<Vec<NodeId>, CommitError>) {
        if let Tag::Queue { .. }
        | Tag::Unqueue { .. }
        | Tag::Result { .. }
        | Tag::ShellBegins { .. }
        | Tag::ShellEnds { .. }
        | Tag::Unsent { .. } = tag
        {
            return self.side_committed(tag, result.map(|_| ()));
        }
        let Some(plan) = self.committing.take() else { return };
        if result.is_err() {
            self.next = None;
        }
        match result {
            Ok(nodes) => {
                self.pending_self_message &= !plan.ops.contains(&PlanOp::ClearSelfMessage);
                self.head = nodes.last().copied().or(self.head);
                self.has_ref |= !nodes.is_empty();
                self.drained.clear();
                self.estimated += self.adding.iter().map(|message| sent_tokens(message)).sum::<u64>();
                self.messages.append(&mut self.adding);
                let says =
                    plan.drafts.iter().zip(&nodes).filter(|(draft, _)| message_of(&draft.entry).is_some());
                self.nodes.extend(says.map(|(_, node)| *node));
                self.settle_moved_items(&plan);
                self.on_committed(&tag, &plan, &nodes);
            }
            Err(CommitError::Conflict { fresh }) => self.branch(tag, plan, fresh),
            Err(CommitError::Failed(text)) => self.commit_failed(&tag, plan, text),
        }
    }

    /// Another process went on with this session: what we have becomes a session of its own, with what waits.
    pub(super) fn branch(&mut self, tag: Tag, mut plan: Plan, fresh: SessionId) {
        let old = std::mem::replace(&mut self.session, fresh.clone());
        if !self.has_ref {
            // The name was taken before our first commit: what would have begun under it begins under the new one.
            let before = plan.drafts.len();
            plan.drafts
                .retain(|draft| !matches!(&*draft.entry, Entry::Session(start) if start.session == old));
            plan.carried -= before - plan.drafts.len();
        }
        let session = SessionStart {
            session: fresh.clone(),
            cwd: self.cwd.clone(),
            agent: super::AGENT.into(),
            parent_session: plan.parent.map(|_| old.clone()),
            epoch: self.prefix.epoch.clone(),
        };
        for draft in &mut plan.drafts {
            if let Entry::Compaction(compaction) = &*draft.entry
                && let Some(checkpoint) = &compaction.checkpoint
            {
                let checkpoint = Some(Checkpoint { session: fresh.clone(), ..checkpoint.clone() });
                draft.entry = Arc::new(Entry::Compaction(Compaction { checkpoint, ..compaction.clone() }));
            }
        }
        plan.drafts.insert(0, Draft::new(Entry::Session(session)));
        plan.carried += 1;
        plan.session = fresh.clone();
        plan.expect = None;
        // A branch of a branch takes along from where the items are, not from where they would have gone.
        let moves: Vec<_> = plan.ops.iter().filter_map(PlanOp::put_item).cloned().collect();
        plan.ops.retain(|op| match op {
            PlanOp::Put { .. } => false,
            PlanOp::Take { item, .. } => !moves.contains(item),
            PlanOp::Announce { .. }
            | PlanOp::Keep { .. }
            | PlanOp::Forget { .. }
            | PlanOp::Revoke { .. }
            | PlanOp::Shell { .. }
            | PlanOp::Release { .. }
            | PlanOp::ClearSelfMessage => true,
        });
        for (queue, list) in [(Queue::Steering, &self.steering), (Queue::FollowUp, &self.follow_up)] {
            for item in list {
                plan.ops.push(PlanOp::Take { session: item.session.clone(), item: item.id.clone() });
                plan.ops.push(PlanOp::Put {
                    queue,
                    item: QueuedInput { session: fresh.clone(), is_lent: false, ..item.clone() },
                });
            }
        }
        if let Some(run) = &self.run {
            plan.ops.push(PlanOp::Forget { run: run.id.clone(), session: Some(old) });
        }
        self.has_ref = false;
        self.committing = Some(plan.clone());
        self.emit(Event::from(Notice::Branched { session: fresh }));
        self.out.push(Effect::Commit { tag, plan, next: None });
    }

    /// Items that a branch took along are in its inbox now.
    pub(super) fn settle_moved_items(&mut self, plan: &Plan) {
        for moved in plan.ops.iter().filter_map(|op| match op {
            PlanOp::Put { item, .. } => Some(item),
            _ => None,
        }) {
            let mut waiting = self.steering.iter_mut().chain(&mut self.follow_up);
            match waiting.find(|item| item.id == moved.id) {
                Some(item) => {
                    (item.session, item.is_lent) = (moved.session.clone(), false);
                }
                // It is being taken back; should that fail, it waits where it is now.
                None => self.moved.push((moved.id.clone(), moved.session.clone())),
            }
        }
    }

    /// The items as they wait now, after what was done to them while they were being taken back.
    pub(super) fn relocate_queued(&mut self, items: Vec<(Queue, QueuedInput)>) -> Vec<(Queue, QueuedInput)> {
        let mut items = items;
        for (_, item) in &mut items {
            while let Some(at) = self.moved.iter().position(|(id, _)| *id == item.id) {
                item.session = self.moved.remove(at).1;
            }
        }
        items
    }

    pub(super) fn commit_failed(&mut self, tag: &Tag, mut plan: Plan, text: String) {
        self.adding.clear();
        let session = &plan.session;
        // Beside those of commits that failed meanwhile.
        self.deferred_ops.extend(std::mem::take(&mut plan.ops).into_iter().filter_map(|op| match op {
            PlanOp::Forget { run, session: other } => {
                Some(PlanOp::Forget { run, session: other.or_else(|| Some(session.clone())) })
            }
            op @ (PlanOp::ClearSelfMessage | PlanOp::Release { .. } | PlanOp::Revoke { .. }) => Some(op),
            PlanOp::Put { .. }
            | PlanOp::Take { .. }
            | PlanOp::Announce { .. }
            | PlanOp::Shell { .. }
            | PlanOp::Keep { .. } => None,
        }));
        self.put_drained_back();
        if let Tag::Closing = tag {
            // Said when it was met first; the steps of the store still tell that it is open.
            return self.stop_if_closing();
        }
        if let Tag::Start { .. } | Tag::Between | Tag::Pruned | Tag::Changed | Tag::Refreshed = tag {
            // The sender still has what was said, what was queued is queued again, and requests hold what they held.
            plan.drafts.truncate(plan.carried);
        }
        if let Tag::FellBack = tag {
            // The call was made and paid for; the change was not.
            plan.drafts.pop();
        }
        for draft in &mut plan.drafts {
            // The context stays as it was; that calls were made and paid for is kept later.
            if let Entry::Compaction(Compaction { usage, .. }) = &*draft.entry {
                let data = failed_summary_json(Some(&text), &usage.unwrap_or_default());
                draft.entry = Arc::new(Entry::Meta(data));
            }
        }
        if let Tag::Start { reply } = tag {
            self.returning = None;
            self.unsaved = plan.drafts;
            self.run = None;
            match reply {
                Some(reply) => self.out.push(Effect::Reply(*reply, Err(Refusal::Store { why: text }))),
                None => self.emit(Event::from(Notice::Note { text })),
            }
            return self.settle();
        }
        self.unsaved = plan.drafts;
        if let Tag::Changed = tag {
            return self.on_change_failed(text);
        }
        if let Tag::Noted { ended } = tag {
            return self.on_shell_note_failed(ended.as_ref(), text);
        }
        if let Tag::NotedBegin { reply, run } = tag {
            return self.noted_begin(*reply, run);
        }
        let Some(run) = &mut self.run else { return };
        let turn = run.turn;
        if let Phase::Jumping(jumping) = &mut run.phase {
            // Who asked for it may still wait to hear whether it begins.
            match jumping.reply.take() {
                Some(reply) => self.out.push(Effect::Reply(reply, Err(Refusal::Store { why: text }))),
                None => self.emit(Event::JumpEnded { result: Arc::new(JumpResult::Failed(text)) }),
            }
            self.run = None;
            return self.settle();
        }
        if let Phase::Compacting(compacting) = &run.phase {
            let reason = compacting.reason();
            let result = Arc::new(CompactionResult::Failed(text.clone()));
            self.emit(Event::CompactionEnded { reason, result });
            if reason == CompactionReason::Manual {
                self.run = None;
                return self.settle();
            }
            self.emit(Event::TurnEnded { turn });
            return self.end_run(Outcome::StoreFailed(text));
        }
        match std::mem::replace(&mut run.phase, Phase::Committing) {
            Phase::Answered(AnswerState { message: id, answer: message, early, .. }) => {
                self.out.extend(early.running().map(|slot| Effect::CancelTool { slot }));
                let error = ModelError::new(ModelErrorKind::Aborted, "could not store the answer");
                self.emit(Event::MessageEnded { id, message, ending: Ending::Dropped(error) });
                self.emit(Event::TurnEnded { turn });
            }
            Phase::Results(batch) => {
                self.emit_results(&batch);
                self.emit(Event::TurnEnded { turn });
            }
            Phase::Refreshing(refreshing) => {
                self.on_refresh_failed(&refreshing);
                self.emit(Event::TurnEnded { turn });
            }
            Phase::FallingBack(_) => {
                self.on_fallback_failed();
                self.emit(Event::TurnEnded { turn });
            }
            Phase::Committing if *tag == Tag::Pruned => self.emit(Event::TurnEnded { turn }),
            Phase::Committing
            | Phase::Calling { .. }
            | Phase::Tools(_)
            | Phase::Starting(_)
            | Phase::Ending
            | Phase::Compacting(_)
            | Phase::Jumping(_)
            | Phase::Noting(_)
            | Phase::ToolJumping(_)
            | Phase::Moving(_)
            | Phase::Changing(_) => {}
        }
        self.end_run(Outcome::StoreFailed(text));
    }

    pub(super) fn on_committed(&mut self, tag: &Tag, plan: &Plan, nodes: &[NodeId]) {
        match tag {
            Tag::Start { reply } => {
                let Some(run) = &self.run else { return };
                if let Some(reply) = reply {
                    self.out.push(Effect::Reply(*reply, Ok(Ack::Started(run.id.clone()))));
                }
                self.emit(Event::RunStarted);
                self.begin_turn();
                self.announce_messages(plan, nodes);
                self.queue_changed_if(plan);
                if let Some(prefix) = self.returning.take() {
                    let mut drafts = plan.drafts.iter().zip(nodes);
                    let node = drafts.rfind(|(draft, _)| matches!(&*draft.entry, Entry::Epoch(_)));
                    self.change(*prefix, node.map(|(_, node)| *node));
                }
                self.call_model();
            }
            Tag::Between => {
                self.begin_turn();
                self.announce_messages(plan, nodes);
                self.queue_changed_if(plan);
                self.call_model();
            }
            Tag::Assistant => {
                let Some(Run { phase: Phase::Answered(answered), .. }) = &mut self.run else { return };
                answered.kept = true;
                let (id, message) = (answered.message.clone(), answered.answer.clone());
                if let Some(node) = nodes.last() {
                    self.emit(Event::MessageEnded { id, message, ending: Ending::Committed(*node) });
                }
                self.answered();
            }
            Tag::Results => self.results_committed(plan, nodes),
            Tag::Named => self.named(),
            Tag::Compacted => self.compaction_committed(plan, nodes),
            Tag::Jumped => self.jump_committed(),
            Tag::Pruned => self.prune_committed(plan, nodes),
            Tag::Changed => self.change_committed(nodes),
            Tag::Refreshed => self.refresh_committed(nodes),
            Tag::FellBack => self.fallback_committed(nodes),
            Tag::Closing => self.stop_if_closing(),
            Tag::Noted { ended } => self.noted(ended.as_ref(), plan, nodes),
            Tag::NotedBegin { reply, run } => self.noted_begin(*reply, run),
            Tag::Queue { .. }
            | Tag::Unqueue { .. }
            | Tag::Result { .. }
            | Tag::ShellBegins { .. }
            | Tag::ShellEnds { .. }
            | Tag::Unsent { .. } => {}
        }
    }

    /// Emits start and end of the messages of a commit. An answer is among them only when the commit before it
    /// failed and it was said to be dropped.
    pub(super) fn announce_messages(&mut self, plan: &Plan, nodes: &[NodeId]) {
        self.announce(&plan.drafts, nodes);
    }

    pub(super) fn announce(&mut self, drafts: &[Draft], nodes: &[NodeId]) {
        for (draft, node) in drafts.iter().zip(nodes) {
            let Entry::Message(message) = &*draft.entry else { continue };
            let (id, message) = (self.next_message(), Arc::new(message.clone()));
            self.emit(Event::MessageStarted { id: id.clone(), message: message.clone(), attempt: 1 });
            self.emit(Event::MessageEnded { id, message, ending: Ending::Committed(*node) });
        }
    }

    pub(super) fn queue_changed_if(&mut self, plan: &Plan) {
        if plan.ops.iter().any(|op| matches!(op, PlanOp::Take { .. })) {
            self.queue_changed();
        }
    }

    pub(super) fn queue_changed(&mut self) {
        let list = |items: &[QueuedInput]| items.iter().map(QueuedInput::queued).collect();
        let event = Event::QueueChanged { steering: list(&self.steering), follow_up: list(&self.follow_up) };
        self.emit(event);
    }
}
