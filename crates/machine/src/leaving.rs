//! A call that takes the session elsewhere, with a message to itself. What the answer asked for before it ends first and is
//! kept as results, and behind these stands the departure: the turn that is left is whole. One move writes that, adds the
//! message below the target, and moves the ref (`moving`); a new run goes on from there at once.

use quipu_protocol::{Event, Outcome, Provenance, Refused, UserInput};

use super::batch::{ABORTED, Batch, Slot, State, refusal};
use super::{
    ClearError, Draft, Effect, Going, Leaving, Machine, MoveDone, MoveOrder, Phase, PlanOp, Run, TobeOrder,
};

/// A session on its way.
pub(super) struct Departing {
    batch: Batch,
    going: Going,
    /// What was ordered.
    order: Option<TobeOrder>,
    /// How many entries and operations that an earlier commit could not keep went along.
    carried: (usize, usize),
}

/// The model is told this when what it would put back was being changed by its own calls.
const CHANGED: &str = "You did not go back: another call in the same answer changed files, which the approved plan \
                       does not cover. Make this call alone.";

impl Machine {
    /// A call found where it goes: those before it ended, and those behind it do not run.
    pub(super) fn begin_leaving(&mut self, slot: usize, leaving: Leaving) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        batch.going = Some(Box::new(Going { slot, leaving }));
    }

    /// All calls ended, and one of them leaves: what the run left running must end, too. Says whether it goes on so.
    pub(super) fn clear(&mut self) -> bool {
        let now = self.now;
        let Some(Run { id, aborting, phase: Phase::Tools(batch), .. }) = &mut self.run else { return false };
        let Some(going) = batch.going.take() else { return false };
        if *aborting {
            batch.refuse(going.slot, ABORTED.into(), now);
            return false;
        }
        if going.leaving.files.is_some() && batch.slots.iter().any(Slot::changed_files) {
            batch.refuse(going.slot, CHANGED.into(), now);
            return false;
        }
        let run = id.clone();
        let batch = std::mem::take(batch);
        let departing = Departing { batch, going: *going, order: None, carried: (0, 0) };
        self.set_phase(Phase::Leaving(Box::new(departing)));
        self.out.push(Effect::Clear { run });
        true
    }

    pub(super) fn cleared(&mut self, result: Result<(), ClearError>) {
        let Some(Run { aborting, phase: Phase::Leaving(_), .. }) = &self.run else { return };
        match result {
            _ if *aborting => self.stay(ABORTED.into()),
            Err(why) => self.stay(format!("You did not go back: {why}")),
            Ok(()) => self.leave(),
        }
    }

    fn leave(&mut self) {
        let Some(Run { id, phase: Phase::Leaving(departing), .. }) = &mut self.run else { return };
        let Some(head) = self.head else { return };
        let Departing { batch, going: Going { slot, leaving }, order: ordered, carried } = &mut **departing;
        let mut ends = self.unsaved.clone();
        *carried = (self.unsaved.len(), self.owed.len());
        let results = batch.slots.iter().enumerate().filter(|(at, _)| at != slot);
        ends.extend(results.filter_map(|(_, slot)| slot.draft(id)));
        // Last, so that the turn is whole there.
        ends.extend(batch.slots[*slot].draft(id));
        let order = TobeOrder {
            to: leaving.to,
            ends,
            message: Draft::said(
                UserInput::from(leaving.carryover.as_str()).from_source(Provenance::model()),
                self.now,
            ),
            log: leaving.log.clone(),
            files: leaving.files.clone(),
        };
        *ordered = Some(order.clone());
        let run = id.clone();
        let mut ops = self.owed.clone();
        ops.push(PlanOp::Forget { run: run.clone(), session: None });
        self.order_move(run, head, MoveOrder::Tobe(Box::new(order)), ops);
    }

    /// The session stands at the message to itself; or it could not go there, and the turn ends where it is.
    pub(super) fn tobe_answered(&mut self, result: Result<Box<MoveDone>, Refused>) {
        let done = match result {
            Ok(done) => *done,
            Err(refused) => return self.stay(format!("You did not go back: {refused}.")),
        };
        let Some(run) = &mut self.run else { return };
        let Phase::Leaving(departing) = std::mem::replace(&mut run.phase, Phase::Saying) else { return };
        let Departing { batch, going, order: Some(order), carried } = *departing else { return };
        let (turn, before, cost, aborting) = (run.turn, run.before, run.spent(), run.aborting);
        self.unsaved.drain(..carried.0);
        self.owed.drain(..carried.1);
        self.tell_results(&batch);
        self.announce(&order.ends, &done.ended);
        self.emit(Event::TurnEnded { turn });
        let MoveDone { moved, added, .. } = self.take_over(done);
        self.tell_problems(moved.problems);
        let limit = self.run.as_ref().and_then(|run| self.limits.reached(run));
        match limit {
            _ if aborting => return self.end_run(Outcome::Aborted),
            // What a run may not do by itself it may not do in pieces.
            Some(limit) => return self.end_run(Outcome::Limit(limit)),
            None => self.emit(Event::RunEnded { outcome: Outcome::Done }),
        }
        if self.closing.is_some() {
            self.run = None;
            return self.settle();
        }
        self.run = Some(Run { before: before + turn, cost, ..Run::new(going.leaving.run) });
        self.emit(Event::RunStarted);
        self.begin_turn();
        self.announce(std::slice::from_ref(&order.message), &added);
        self.call_model();
    }

    /// The call that would have left is answered with why it did not, and the turn ends as any other.
    fn stay(&mut self, text: String) {
        let Some(run) = &mut self.run else { return };
        let Phase::Leaving(departing) = std::mem::replace(&mut run.phase, Phase::Saying) else { return };
        let Departing { mut batch, going, .. } = *departing;
        batch.refuse(going.slot, text, self.now);
        run.phase = Phase::Tools(batch);
        self.commit_results();
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(run) = &mut self.run {
            run.phase = phase;
        }
    }
}

impl Batch {
    fn refuse(&mut self, slot: usize, text: String, now: quipu_protocol::UnixMs) {
        if let Some(place) = self.slots.get_mut(slot) {
            let done = refusal(&place.call, text, place.interventions.clone(), now);
            place.state = State::Done(Box::new(done));
        }
    }
}
