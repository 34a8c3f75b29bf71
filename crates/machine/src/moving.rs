//! Moves that are made outside the machine, between two commits: undo, redo, merge, a compaction taken back, labels, names,
//! and jumps with files. Nothing else is under way then; the machine takes over the conversation that there is at the end.

use quipu_protocol::{Ack, Entry, Event, MoveFiles, Moved, Notice, Refused, RunId};

use super::{Draft, Effect, Machine, MoveDone, MoveOrder, Phase, Place, ReplyId, Run};

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
            let why = "nothing was said in this session yet";
            return self.out.push(Effect::Reply(reply, Err(Refused::NotMoved { why: why.into() })));
        };
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "what was said last could not be stored yet; say something here first";
            return self.out.push(Effect::Reply(reply, Err(Refused::Store { why: why.into() })));
        }
        let notes = matches!(order, MoveOrder::Label { .. } | MoveOrder::Rename { .. });
        let moving = Moving { reply: Some(reply), notes, said: self.arriving > 0 };
        self.run = Some(Run { phase: Phase::Moving(moving), ..Run::new(run.clone()) });
        self.out.push(Effect::Move { run, head, order });
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

    /// The files of a jump go along: it is made outside.
    pub(super) fn leap_with_files(&mut self, summary: Option<Draft>, files: MoveFiles) {
        let Some(head) = self.head else { return };
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (to, label) = jumping.order();
        jumping.summed.clone_from(&summary);
        let added = summary.into_iter().collect();
        let order = MoveOrder::Jump { to, label, added, files };
        self.out.push(Effect::Move { run: id.clone(), head, order });
    }

    /// It was made, or why not.
    pub(super) fn moved(&mut self, result: Result<Box<MoveDone>, Refused>) {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(_)) => self.jumped_with_files(result),
            Some(Phase::Moving(_)) => self.moved_alone(result),
            _ => {}
        }
    }

    fn moved_alone(&mut self, result: Result<Box<MoveDone>, Refused>) {
        let answer = result.map(|done| self.take_over(*done));
        let Some(Run { aborting, phase: Phase::Moving(moving), .. }) = &mut self.run else { return };
        let (said, reply, notes) = (moving.said && !*aborting, moving.reply.take(), moving.notes);
        let answer = answer.map(|moved| if notes { Ack::Handled } else { Ack::Moved(moved) });
        self.out.extend(reply.map(|reply| Effect::Reply(reply, answer)));
        self.answer_what_was_said(said);
    }

    fn jumped_with_files(&mut self, result: Result<Box<MoveDone>, Refused>) {
        match result {
            Ok(done) => {
                let Moved { from, to, said, problems, .. } = self.take_over(*done);
                for text in problems {
                    self.emit(Event::from(Notice::Note { text }));
                }
                self.jump_made(from, to, said);
            }
            Err(refused) => self.jump_not_made(&refused.to_string()),
        }
    }

    /// The session stands elsewhere: the conversation is the one that ends there.
    fn take_over(&mut self, done: MoveDone) -> Moved {
        let MoveDone { moved, place, waits, name, .. } = done;
        let elsewhere = place.is_some();
        if let Some(place) = place {
            self.take_place(*place);
        }
        self.head = Some(moved.to);
        self.waits = waits;
        if elsewhere {
            self.emit(Event::HeadMoved { from: Some(moved.from), to: moved.to });
        }
        if let Some(name) = name {
            self.emit(Event::Renamed { name });
        }
        moved
    }

    fn take_place(&mut self, mut place: Place) {
        // What was not kept yet of another place says nothing of this one.
        self.unsaved.retain(|draft| !matches!(&*draft.entry, Entry::Epoch(_)));
        if place.epoch != self.prefix.epoch {
            self.unsaved.push(Draft::new(Entry::Epoch(self.prefix.epoch.clone())));
        }
        self.converse(&mut place);
    }
}
