//! Questions, and rules that change while calls wait: what has not begun is put to the policy again.

use std::sync::Arc;

use quipu_protocol::{Answer, Ask, AskId, AskKind, Event, Json, Permission, Scope, ToolCall, Touches};

use super::batch::{self, SlotState, Subject};
use super::{CheckedCall, Effect, Machine, Phase, PolicyVersion, Run};

impl Machine {
    /// Which rules the policy goes by now. Calls that have not begun are put to it before they begin; questions that
    /// are open now.
    pub(super) fn set_policy(&mut self, version: PolicyVersion) {
        let before = std::mem::replace(&mut self.policy, version);
        if before.number == self.policy.number {
            return;
        }
        if let Some(mode) = self.policy.mode.clone().filter(|_| before.mode != self.policy.mode) {
            self.emit(Event::PermissionsChanged { mode });
        }
        self.judge_asks();
    }

    /// Puts the calls whose questions are open to the policy again.
    pub(super) fn judge_asks(&mut self) {
        // One that never changes has decided already.
        if self.policy.number == 0 {
            return;
        }
        let Some(Run { id, phase: Phase::Tools(batch), .. }) = &self.run else { return };
        let judge = |(ask, slot): (&AskId, &batch::Slot)| Effect::Judge {
            run: id.clone(),
            ask: ask.clone(),
            call: slot.call.clone(),
            touches: slot.touches.clone(),
        };
        let judged: Vec<Effect> = batch.open_asks().map(judge).collect();
        self.out.extend(judged);
    }

    /// What the policy decides now of a call that waits for an answer.
    pub(super) fn judged(&mut self, ask: &AskId, prepared: CheckedCall, policies: Vec<Json>) {
        let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run else { return };
        let Some(slot) = batch.asking(ask) else { return };
        let answer = match prepared {
            CheckedCall::Ask { .. } => return,
            CheckedCall::Ready { .. } => {
                batch.slots[slot].state = SlotState::Ready;
                Answer::once()
            }
            CheckedCall::Refused(reason) => {
                batch.slots[slot].interventions.add_policies(policies);
                self.refuse_slot(slot, reason.clone());
                Answer::Deny { reason: Some(reason) }
            }
        };
        self.emit(Event::AskClosed { ask: ask.clone(), answer: Some(answer), by_policy: true });
        self.continue_tools();
    }

    /// A call was not begun, because the policy decides otherwise by now.
    pub(super) fn tool_held(&mut self, slot: usize, prepared: CheckedCall, policies: Vec<Json>) {
        let batch = match &mut self.run {
            Some(Run { phase: Phase::Tools(batch), .. }) => batch,
            Some(Run { phase: Phase::Answered(answered), .. }) => return answered.early.hold(slot),
            Some(_) | None => return,
        };
        // Others leave: what has not begun will not.
        let leaves = batch.jump.is_some();
        let Some(place) = batch.slots.get_mut(slot) else { return };
        if !matches!(place.state, SlotState::Running) {
            return;
        }
        place.interventions.add_policies(policies);
        let call = place.call.clone();
        let aborting = leaves || self.run.as_ref().is_some_and(|run| run.aborting);
        match prepared {
            _ if aborting => self.refuse_slot(slot, batch::ABORTED.into()),
            CheckedCall::Refused(text) => self.refuse_slot(slot, text),
            CheckedCall::Ask { question, .. } if self.askers == 0 => {
                self.refuse_slot(slot, batch::nobody_to_ask(&question));
            }
            CheckedCall::Ask { touches, question, subject, scopes, rules, .. } => {
                let ask = self.ask(&call, question, subject, (scopes, rules));
                self.set_touches(slot, touches);
                self.set_state(slot, SlotState::Asking(ask));
                // The rules may have changed once more meanwhile.
                self.judge_asks();
            }
            CheckedCall::Ready { touches, .. } => {
                self.set_touches(slot, touches);
                self.set_state(slot, SlotState::Ready);
            }
        }
        self.continue_tools();
    }

    /// Puts a question.
    pub(super) fn ask(
        &mut self,
        call: &ToolCall,
        question: String,
        subject: Subject,
        (scopes, rules): (Vec<Scope>, Vec<String>),
    ) -> AskId {
        self.counter += 1;
        let id = AskId::from(format!("a{}", self.counter));
        let tool = call.name.clone();
        let permission = Permission { call: call.id.clone(), tool, question, subject, scopes, rules };
        let deadline = i64::try_from(self.ask_deadline.as_millis()).unwrap_or(i64::MAX);
        let ask = Ask {
            id: id.clone(),
            deadline: Some(self.now.saturating_add(deadline)),
            default: Answer::no(),
            kind: AskKind::Permission(permission),
        };
        self.emit(Event::AskOpened { ask: Arc::new(ask) });
        self.out.push(Effect::AskDeadline { ask: id.clone(), after: self.ask_deadline });
        id
    }

    /// What a call touches may have changed while it waited.
    fn set_touches(&mut self, slot: usize, touches: Touches) {
        if let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run
            && let Some(place) = batch.slots.get_mut(slot)
        {
            place.touches = touches;
        }
    }

    fn set_state(&mut self, slot: usize, state: SlotState) {
        if let Some(Run { phase: Phase::Tools(batch), .. }) = &mut self.run
            && let Some(place) = batch.slots.get_mut(slot)
        {
            place.state = state;
        }
    }
}
