//! A call that takes the session elsewhere, with a message to itself. What the answer asked for before it ends first and is
//! kept as results, and behind these stands the departure: the turn that is left is whole. One commit writes that, adds the
//! message below the target, and moves the ref; a new run goes on from there at once.

use quipu_protocol::{Entry, Event, NodeId, Outcome, UserInput};

use super::batch::{ABORTED, Batch, Slot, State, refusal};
use super::{
    Draft, Effect, Going, Leap, Leaving, Machine, Phase, Place, Plan, PlanOp, Run, Tag, message_of, shared,
};
use quipu_transcript::restored;

/// A session on its way.
pub(super) struct Departing {
    batch: Batch,
    going: Going,
}

/// The model is told this when what it would put back was being changed by its own calls.
const CHANGED: &str = "You did not leave: another call of the same answer changed files, and nobody agreed to what \
                       would become of those. Make this call alone.";

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
        let departing = Departing { batch: std::mem::take(batch), going: *going };
        self.set_phase(Phase::Leaving(Box::new(departing)));
        self.out.push(Effect::Clear { run });
        true
    }

    pub(super) fn cleared(&mut self, result: Result<(), String>) {
        let Some(Run { aborting, phase: Phase::Leaving(_), .. }) = &self.run else { return };
        match result {
            _ if *aborting => self.stay(ABORTED.into()),
            Err(why) => self.stay(format!("You did not leave: {why}")),
            Ok(()) => self.leave(),
        }
    }

    fn leave(&mut self) {
        let epoch = self.prefix.epoch.clone();
        let Some(Run { id, phase: Phase::Leaving(departing), .. }) = &mut self.run else { return };
        let Some(head) = self.head else { return };
        let Departing { batch, going: Going { slot, leaving } } = &**departing;
        let results = batch.slots.iter().enumerate().filter(|(at, _)| at != slot);
        let mut results: Vec<Draft> = results.filter_map(|(_, slot)| slot.draft(id)).collect();
        // Last, so that the turn is whole there.
        results.extend(batch.slots[*slot].draft(id));
        let mut drafts = Vec::new();
        if leaving.place.epoch != epoch {
            drafts.push(Draft::new(Entry::Epoch(epoch)));
        }
        if let Some(files) = &leaving.files {
            // The node that it came from is known when it is written.
            let (entry, step) = restored(head, files);
            drafts.push(Draft::of(entry, step));
        }
        drafts.push(Draft::said(UserInput::from(leaving.carryover.as_str()), self.now));
        let carries = Some(leaving.log.clone());
        let parent = Some(leaving.place.at);
        let forget = PlanOp::Forget { run: id.clone(), session: None };
        let mut leaves = std::mem::take(&mut self.unsaved);
        let carried = leaves.len();
        leaves.extend(results);
        let mut ops = std::mem::take(&mut self.owed);
        ops.push(forget);
        let plan = Plan {
            session: self.session.clone(),
            expect: self.head.filter(|_| self.has_ref),
            parent,
            drafts,
            carried,
            leaves,
            ops,
            jump: Some(Leap { from: head, label: None, carries, files: leaving.files.clone() }),
            power: true,
        };
        self.committing = Some(plan.clone());
        let messages = plan.drafts.iter().filter_map(|draft| message_of(&draft.entry));
        self.adding = messages.map(shared).collect();
        self.out.push(Effect::Commit { tag: Tag::Left, plan, next: None });
    }

    /// The session stands at the message to itself.
    pub(super) fn left_kept(&mut self, plan: &Plan, left: &[NodeId], nodes: &[NodeId]) {
        let Some(run) = &mut self.run else { return };
        let Phase::Leaving(departing) = std::mem::replace(&mut run.phase, Phase::Saying) else { return };
        let Departing { batch, going } = *departing;
        let (turn, before, cost, aborting) = (run.turn, run.before, run.cost, run.aborting);
        self.waits = true;
        self.tell_results(&batch);
        self.announce(&plan.leaves, left);
        self.emit(Event::TurnEnded { turn });
        if let Some(to) = self.head {
            self.emit(Event::HeadMoved { from: left.last().copied(), to });
        }
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
        self.announce(&plan.drafts, nodes);
        self.call_model();
    }

    /// Another process went on with the session, so the turn ends where it is, as a branch; or files cannot go along.
    pub(super) fn left_in_vain(&mut self, mut plan: Plan, why: &str) {
        plan.ops.pop();
        self.owed = plan.ops;
        plan.leaves.truncate(plan.carried);
        self.unsaved = plan.leaves;
        self.adding.clear();
        self.stay(format!("You did not leave: {why}"));
    }

    /// Nothing could be stored: what was done is kept later, without a departure.
    pub(super) fn not_left(&mut self, mut plan: Plan, text: String) {
        let Some(run) = &mut self.run else { return };
        let turn = run.turn;
        let Phase::Leaving(departing) = std::mem::replace(&mut run.phase, Phase::Saying) else { return };
        let Departing { mut batch, going } = *departing;
        batch.refuse(going.slot, format!("You did not leave: {text}"), self.now);
        plan.leaves.pop();
        plan.leaves.extend(batch.slots[going.slot].draft(&run.id));
        self.unsaved = plan.leaves;
        self.tell_results(&batch);
        self.emit(Event::TurnEnded { turn });
        self.end_run(Outcome::StoreFailed(text));
    }

    /// The call that would have left is answered with why it did not, and the turn ends as any other.
    fn stay(&mut self, text: String) {
        let Some(run) = &mut self.run else { return };
        let Phase::Leaving(departing) = std::mem::replace(&mut run.phase, Phase::Saying) else { return };
        let Departing { mut batch, going } = *departing;
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

/// The place that a session on its way goes to.
pub(super) fn place_of(departing: &mut Departing) -> &mut Place {
    &mut departing.going.leaving.place
}

impl Batch {
    fn refuse(&mut self, slot: usize, text: String, now: quipu_protocol::UnixMs) {
        if let Some(place) = self.slots.get_mut(slot) {
            let done = refusal(&place.call.id, &place.call.name, text, now);
            place.state = State::Done(Box::new(done));
        }
    }
}
