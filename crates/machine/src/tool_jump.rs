//! Jumps that a tool call requests, with a message of the session to itself. Earlier calls of the same answer end first and
//! their results are committed, followed by the result of the jump, so that the turn that is left is complete. One move
//! (`moving`) writes that, adds the message after the target, and moves the ref. A new run starts there at once.

use quipu_protocol::{Event, Outcome, Provenance, Refusal, UserInput};

use super::batch::{ABORTED, Batch, Slot, SlotState, refusal};
use super::{
    Draft, Effect, EpochReason, KillError, Machine, MoveOrder, MoveResult, PendingToolJump, Phase, PlanOp,
    Run, TobeOrder, ToolJump,
};

/// A tool jump in progress.
pub(super) struct ToolJumpState {
    batch: Batch,
    jump: PendingToolJump,
    /// The order of the move.
    order: Option<TobeOrder>,
    /// Number of unsaved entries and deferred operations that are part of the move.
    carried: (usize, usize),
}

/// The model is told this when what it would put back was being changed by its own calls.
const CHANGED: &str = "You did not go back: another call in the same answer changed files, which the approved plan \
                       does not cover. Make this call alone.";

impl Machine {
    /// A call resolved its target: earlier calls have ended, and later ones do not run.
    pub(super) fn request_tool_jump(&mut self, slot: usize, jump: ToolJump) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        batch.jump = Some(Box::new(PendingToolJump { slot, jump }));
    }

    /// All calls ended and one of them requests a jump: kills the child processes of the run. Returns whether it does.
    pub(super) fn kill_children_before_jump(&mut self) -> bool {
        let now = self.now;
        let Some(Run { id, aborting, phase: Phase::Tools(batch), .. }) = &mut self.run else { return false };
        let Some(jump) = batch.jump.take() else { return false };
        if *aborting {
            batch.refuse(jump.slot, ABORTED.into(), now);
            return false;
        }
        if jump.jump.files.is_some() && batch.slots.iter().any(Slot::changed_files) {
            batch.refuse(jump.slot, CHANGED.into(), now);
            return false;
        }
        let run = id.clone();
        let batch = std::mem::take(batch);
        let state = ToolJumpState { batch, jump: *jump, order: None, carried: (0, 0) };
        self.set_phase(Phase::ToolJumping(Box::new(state)));
        self.out.push(Effect::KillChildren { run });
        true
    }

    pub(super) fn children_killed(&mut self, result: Result<(), KillError>) {
        let Some(Run { aborting, phase: Phase::ToolJumping(_), .. }) = &self.run else { return };
        match result {
            _ if *aborting => self.abandon_tool_jump(ABORTED.into()),
            Err(why) => self.abandon_tool_jump(format!("You did not go back: {why}")),
            Ok(()) => self.order_tool_jump(),
        }
    }

    fn order_tool_jump(&mut self) {
        let Some(Run { id, phase: Phase::ToolJumping(state), .. }) = &mut self.run else { return };
        let Some(head) = self.head else { return };
        let ToolJumpState { batch, jump: PendingToolJump { slot, jump }, order: ordered, carried } =
            &mut **state;
        let mut ends = self.unsaved.clone();
        *carried = (self.unsaved.len(), self.deferred_ops.len());
        let results = batch.slots.iter().enumerate().filter(|(at, _)| at != slot);
        ends.extend(results.filter_map(|(_, slot)| slot.draft(id)));
        // Last, so that the turn is whole there.
        ends.extend(batch.slots[*slot].draft(id));
        let order = TobeOrder {
            to: jump.to,
            ends,
            message: Draft::user_message(
                UserInput::from(jump.carryover.as_str()).from_source(Provenance::model()),
                self.now,
            ),
            log: jump.log.clone(),
            files: jump.files.clone(),
        };
        *ordered = Some(order.clone());
        let run = id.clone();
        let mut ops = self.deferred_ops.clone();
        ops.push(PlanOp::Forget { run: run.clone(), session: None });
        self.order_move(run, head, MoveOrder::Tobe(Box::new(order)), ops);
    }

    /// Handles the result of the move: continues at the message to itself, or ends the turn in place.
    pub(super) fn tobe_answered(&mut self, result: Result<Box<MoveResult>, Refusal>) {
        let done = match result {
            Ok(done) => *done,
            Err(refused) => return self.abandon_tool_jump(format!("You did not go back: {refused}.")),
        };
        let Some(run) = &mut self.run else { return };
        let Phase::ToolJumping(state) = std::mem::replace(&mut run.phase, Phase::Committing) else { return };
        let ToolJumpState { batch, jump, order: Some(order), carried } = *state else { return };
        let (turn, before, cost, aborting) = (run.turn, run.before, run.spent(), run.aborting);
        self.unsaved.drain(..carried.0);
        self.deferred_ops.drain(..carried.1);
        self.emit_results(&batch);
        self.announce(&order.ends, &done.ended);
        self.emit(Event::TurnEnded { turn });
        let MoveResult { moved, added, .. } = self.take_over(done);
        self.emit_problems(moved.problems);
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
        self.run = Some(Run { before: before + turn, cost, ..Run::new(jump.jump.run) });
        self.refresh_at(EpochReason::Run);
        self.emit(Event::RunStarted);
        self.begin_turn();
        self.announce(std::slice::from_ref(&order.message), &added);
        self.call_model();
    }

    /// Answers the call with the reason why the session did not move, and ends the turn.
    fn abandon_tool_jump(&mut self, text: String) {
        let Some(run) = &mut self.run else { return };
        let Phase::ToolJumping(state) = std::mem::replace(&mut run.phase, Phase::Committing) else { return };
        let ToolJumpState { mut batch, jump, .. } = *state;
        batch.refuse(jump.slot, text, self.now);
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
            place.state = SlotState::Done(Box::new(done));
        }
    }
}
