//! Plan mode as the lineage keeps it: whether it is on, and the model to which the session goes back.

use std::sync::Arc;

use quipu_protocol::{Ack, EpochPlan, FormerModel, Model, RunId, Thinking};

use super::changing::PendingChange;
use super::{Effect, Machine, ReplyId};

/// Plan mode is switched on or off.
#[derive(Debug, Clone)]
pub struct PlanSwitch {
    /// Whether it is on from now on.
    pub on: bool,
    /// The model for plans, with its level of thinking where it has one of its own; `None`: the session's model.
    pub model: Option<(Arc<Model>, Option<Thinking>)>,
}

impl Machine {
    /// Records the switch, and what model is asked from now on. Where something is under way the answer does not wait for
    /// the record, which comes between two turns.
    pub(super) fn switch_plan(&mut self, switch: PlanSwitch, reply: ReplyId, run: RunId) {
        let is_idle = self.run.is_none();
        let (chosen, level) = self.chosen_model();
        let recorded = self.prefix.epoch.plan.clone();
        let changing = self.changing.get_or_insert_with(|| PendingChange::new(run));
        let now = changing.plan.clone().or(recorded).unwrap_or_default();
        let mut before = None;
        match switch.model.filter(|_| switch.on) {
            Some((model, thinking)) => {
                let chosen = changing.model.replace(model).unwrap_or(chosen);
                before = Some(FormerModel {
                    provider: chosen.provider.clone(),
                    model: chosen.id.clone(),
                    thinking: changing.thinking.unwrap_or(level),
                });
                changing.thinking = thinking.or(changing.thinking);
                self.before_plan = Some(chosen);
            }
            None if let (Some(model), Some(left)) = (self.before_plan.take(), now.before) => {
                (changing.model, changing.thinking) = (Some(model), Some(left.thinking));
            }
            None => {}
        }
        changing.plan = Some(EpochPlan { on: switch.on, before });
        if is_idle {
            changing.replies.push(reply);
            self.record_change(None);
        } else {
            self.out.push(Effect::Reply(reply, Ok(Ack::Handled)));
        }
    }

    /// A person chooses a model: plan mode, where it is on, has that one, and the session keeps it afterwards.
    pub(super) fn plan_after_choice(&mut self) -> Option<EpochPlan> {
        self.before_plan = None;
        let pending = self.changing.as_ref().and_then(|changing| changing.plan.clone());
        let plan = pending.or_else(|| self.prefix.epoch.plan.clone())?;
        Some(EpochPlan { before: None, ..plan })
    }
}
