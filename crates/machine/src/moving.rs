//! Moves of the session are made outside the machine, between two commits: jumps, undo, redo, merge, a compaction taken
//! back, labels, names. No other commit of nodes is under way then; the machine takes over the conversation that there is at
//! the end. Who loses a race with another process is refused, and stays where it is.

use quipu_protocol::{Ack, Entry, Event, NodeId, Notice, Refused, RunId};

use super::{Draft, Effect, Left, Machine, MoveDone, MoveOrder, Phase, Place, PlanOp, ReplyId, Run};

/// A move under way.
pub(super) struct Moving {
    reply: Option<ReplyId>,
    /// A label or a name, and not a place.
    notes: bool,
    /// Somebody said something that is to be answered afterwards.
    pub(super) said: bool,
}

impl Machine {
    /// Somebody asks for it. What only notes something waits for the end of what is under way.
    pub(super) fn begin_move(&mut self, order: MoveOrder, reply: ReplyId, run: RunId) {
        let notes = matches!(order, MoveOrder::Label { .. } | MoveOrder::Rename { .. });
        if self.run.is_some() || self.committing.is_some() {
            if notes && self.closing.is_none() {
                return self.notes.push((order, reply, run));
            }
            return self.out.push(Effect::Reply(reply, Err(Refused::Busy)));
        }
        self.start_move(order, reply, run);
    }

    fn start_move(&mut self, order: MoveOrder, reply: ReplyId, run: RunId) {
        let Some(head) = self.head.filter(|_| self.has_ref) else {
            let why = "this session has no messages yet";
            return self.out.push(Effect::Reply(reply, Err(Refused::NotMoved { why: why.into() })));
        };
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "the last message is not stored yet; send another message first";
            return self.out.push(Effect::Reply(reply, Err(Refused::Store { why: why.into() })));
        }
        let notes = matches!(order, MoveOrder::Label { .. } | MoveOrder::Rename { .. });
        let moving = Moving { reply: Some(reply), notes, said: self.arriving > 0 };
        self.run = Some(Run { phase: Phase::Moving(moving), ..Run::new(run.clone()) });
        self.order_move(run, head, order, Vec::new());
    }

    /// Has a move made, with what is done in the same transaction.
    pub(super) fn order_move(&mut self, run: RunId, head: NodeId, order: MoveOrder, ops: Vec<PlanOp>) {
        let epoch = Box::new(self.prefix.epoch.clone());
        self.out.push(Effect::Move { run, head, order, ops, epoch });
    }

    /// Labels and names that waited for the end of what was under way; says whether one is being recorded.
    pub(super) fn note_what_waits(&mut self) -> bool {
        if self.run.is_some() || self.notes.is_empty() {
            return false;
        }
        if self.closing.is_some() {
            for (_, reply, _) in std::mem::take(&mut self.notes) {
                self.out.push(Effect::Reply(reply, Err(Refused::Closed)));
            }
            return false;
        }
        let (order, reply, run) = self.notes.remove(0);
        self.start_move(order, reply, run);
        self.run.is_some()
    }

    /// It was made, or why not.
    pub(super) fn moved(&mut self, result: Result<Box<MoveDone>, Refused>) {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(_)) => self.jump_answered(result),
            Some(Phase::Leaving(_)) => self.tobe_answered(result),
            Some(Phase::Moving(_)) => self.move_answered(result),
            _ => {}
        }
    }

    fn move_answered(&mut self, result: Result<Box<MoveDone>, Refused>) {
        let answer = result.map(|done| self.take_over(*done).moved);
        let Some(Run { aborting, phase: Phase::Moving(moving), .. }) = &mut self.run else { return };
        let (said, reply, notes) = (moving.said && !*aborting, moving.reply.take(), moving.notes);
        let answer = answer.map(|moved| if notes { Ack::Handled } else { Ack::Moved(moved) });
        self.out.extend(reply.map(|reply| Effect::Reply(reply, answer)));
        self.answer_what_was_said(said);
    }

    /// The session stands elsewhere: the conversation is the one that ends there. Gives what was done, without the place.
    pub(super) fn take_over(&mut self, mut done: MoveDone) -> MoveDone {
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
        self.waits = done.waits;
        if let Some(name) = done.name.take() {
            self.emit(Event::Renamed { name });
        }
        done
    }

    /// What people should know of files that went along.
    pub(super) fn tell_problems(&mut self, problems: Vec<String>) {
        for text in problems {
            self.emit(Event::from(Notice::Note { text }));
        }
    }

    fn take_place(&mut self, place: Place) {
        // What was not kept yet of another place says nothing of this one.
        self.unsaved.retain(|draft| !matches!(&*draft.entry, Entry::Epoch(_)));
        if place.epoch != self.prefix.epoch {
            self.unsaved.push(Draft::new(Entry::Epoch(self.prefix.epoch.clone())));
        }
        self.messages = place.messages;
        self.nodes = place.nodes;
        self.compacted = place.compacted;
        let records = if self.prune.enabled { place.prunes } else { Vec::new() };
        let measured = self.left.measured;
        self.left = Left::of(&records, &mut self.messages, &self.nodes, place.old, self.prefix_tokens);
        self.left.measured = self.left.measured.or(measured);
        self.estimated = self.estimate(..);
    }
}
