//! Moves of the session are made outside the machine, between two commits: jumps, undo, redo, merge, a compaction taken
//! back, labels, names. No other commit of nodes is under way then; the machine takes over the conversation that there is at
//! the end. Who loses a race with another process is refused, and stays where it is.

use quipu_protocol::{Ack, Entry, Event, NodeId, Notice, Refusal, RunId};

use super::{
    Draft, Effect, Machine, MoveOrder, MoveResult, Phase, PlanOp, PruneState, ReplyId, Run, SessionPlace,
};

/// A move under way.
pub(super) struct MoveState {
    reply: Option<ReplyId>,
    /// A label or a name, and not a place.
    notes: bool,
    /// Somebody said something that is to be answered afterwards.
    pub(super) has_prompt: bool,
}

impl Machine {
    /// Somebody asks for it. What only notes something waits for the end of what is under way.
    pub(super) fn begin_move(&mut self, order: MoveOrder, reply: ReplyId, run: RunId) {
        let notes = matches!(order, MoveOrder::Label { .. } | MoveOrder::Rename { .. });
        if self.run.is_some() || self.committing.is_some() {
            if notes && self.closing.is_none() {
                return self.notes.push((order, reply, run));
            }
            return self.out.push(Effect::Reply(reply, Err(Refusal::Busy)));
        }
        self.start_move(order, reply, run);
    }

    fn start_move(&mut self, order: MoveOrder, reply: ReplyId, run: RunId) {
        let Some(head) = self.head.filter(|_| self.has_ref) else {
            let why = "this session has no messages yet";
            return self.out.push(Effect::Reply(reply, Err(Refusal::NotMoved { why: why.into() })));
        };
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "the last message is not stored yet; send another message first";
            return self.out.push(Effect::Reply(reply, Err(Refusal::Store { why: why.into() })));
        }
        let notes = matches!(order, MoveOrder::Label { .. } | MoveOrder::Rename { .. });
        let moving = MoveState { reply: Some(reply), notes, has_prompt: self.queueing > 0 };
        self.run = Some(Run { phase: Phase::Moving(moving), ..Run::new(run.clone()) });
        self.order_move(run, head, order, Vec::new());
    }

    /// Has a move made, with what is done in the same transaction.
    pub(super) fn order_move(&mut self, run: RunId, head: NodeId, order: MoveOrder, ops: Vec<PlanOp>) {
        let epoch = Box::new(self.prefix.epoch.clone());
        self.out.push(Effect::Move { run, head, order, ops, epoch });
    }

    /// Labels and names that waited for the end of what was under way; says whether one is being recorded.
    pub(super) fn start_deferred_notes(&mut self) -> bool {
        if self.run.is_some() || self.notes.is_empty() {
            return false;
        }
        if self.closing.is_some() {
            for (_, reply, _) in std::mem::take(&mut self.notes) {
                self.out.push(Effect::Reply(reply, Err(Refusal::Closed)));
            }
            return false;
        }
        let (order, reply, run) = self.notes.remove(0);
        self.start_move(order, reply, run);
        self.run.is_some()
    }

    /// It was made, or why not.
    pub(super) fn moved(&mut self, result: Result<Box<MoveResult>, Refusal>) {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(_)) => self.jump_answered(result),
            Some(Phase::ToolJumping(_)) => self.tobe_answered(result),
            Some(Phase::Moving(_)) => self.move_answered(result),
            _ => {}
        }
    }

    fn move_answered(&mut self, result: Result<Box<MoveResult>, Refusal>) {
        let answer = result.map(|done| self.take_over(*done).moved);
        let Some(Run { aborting, phase: Phase::Moving(moving), .. }) = &mut self.run else { return };
        let (has_prompt, reply, notes) = (moving.has_prompt && !*aborting, moving.reply.take(), moving.notes);
        let answer = answer.map(|moved| if notes { Ack::Handled } else { Ack::Moved(moved) });
        self.out.extend(reply.map(|reply| Effect::Reply(reply, answer)));
        self.answer_queued_prompt(has_prompt);
    }

    /// The session stands elsewhere: the conversation is the one that ends there. Gives what was done, without the place.
    pub(super) fn take_over(&mut self, mut done: MoveResult) -> MoveResult {
        if let Some(session) = done.branched.take() {
            // What waits stays in the inbox of the session that it was, and is taken from there.
            self.session = session.clone();
            self.emit(Event::from(Notice::Branched { session }));
        }
        if let Some(place) = done.place.take() {
            self.take_place(*place);
            if done.moved.from != done.moved.to {
                self.emit(Event::HeadMoved { from: Some(done.moved.from), to: done.moved.to });
            }
        }
        self.head = Some(done.moved.to);
        self.pending_self_message = done.pending_self_message;
        if let Some(name) = done.name.take() {
            self.emit(Event::Renamed { name });
        }
        done
    }

    /// What people should know of files that went along.
    pub(super) fn emit_problems(&mut self, problems: Vec<String>) {
        for text in problems {
            self.emit(Event::from(Notice::Note { text }));
        }
    }

    fn take_place(&mut self, place: SessionPlace) {
        // What was not kept yet of another place says nothing of this one.
        self.unsaved.retain(|draft| !matches!(&*draft.entry, Entry::Epoch(_)));
        if place.epoch != self.prefix.epoch {
            self.unsaved.push(Draft::new(Entry::Epoch(self.prefix.epoch.clone())));
        }
        self.messages = place.messages;
        self.nodes = place.nodes;
        self.compacted = place.compacted;
        let records = self.prune.applied(place.prunes);
        let measured = self.left.measured;
        self.left = PruneState::of(&records, &mut self.messages, &self.nodes, place.old, self.prefix_tokens);
        self.left.measured = self.left.measured.or(measured);
        self.estimated = self.estimate(..);
    }
}
