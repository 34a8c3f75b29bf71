//! Another model, or another level of thinking: a commit of its own between two turns, or while nothing is under way. Until
//! it is kept, all is as it was.

use std::sync::Arc;

use quipu_protocol::{
    Ack, Entry, Epoch, EpochPlan, Event, Fallback, Model, NodeId, Refusal, RunId, SessionStart, Setting,
    Thinking, clamp_level,
};
use quipu_transcript::OpeningMessages;

use super::{Draft, Effect, EpochReason, Machine, Phase, Prefix, ReplyId, Run, Tag, TurnEnd};

/// What is to be changed, and who waits for it.
pub(super) struct PendingChange {
    pub(super) model: Option<Arc<Model>>,
    pub(super) thinking: Option<Thinking>,
    /// Plan mode, where that is switched.
    pub(super) plan: Option<EpochPlan>,
    pub(super) replies: Vec<ReplyId>,
    /// Its run, where no other is under way when it is recorded.
    run: RunId,
}

impl PendingChange {
    pub(super) fn new(run: RunId) -> Self {
        Self { model: None, thinking: None, plan: None, replies: Vec::new(), run }
    }
}

/// A change that is being recorded.
pub(super) struct ChangeState {
    prefix: Prefix,
    replies: Vec<ReplyId>,
    /// How the turn before it went; `None` where it belongs to no run.
    went: Option<TurnEnd>,
    /// Somebody said something that is to be answered afterwards, although no run is under way.
    pub(super) has_prompt: bool,
}

impl ChangeState {
    /// Whether it belongs to no run.
    pub(super) fn is_standalone(&self) -> bool {
        self.went.is_none()
    }
}

impl Machine {
    /// Somebody asks for it, at any time. `found` is the model that the setting names.
    pub(super) fn set(&mut self, setting: &Setting, found: Option<Arc<Model>>, reply: ReplyId, run: RunId) {
        let none = || PendingChange::new(run);
        match (setting, found) {
            (Setting::Model { .. }, Some(model)) => {
                let plan = self.plan_after_choice();
                let changing = self.changing.get_or_insert_with(none);
                (changing.model, changing.plan) = (Some(model), plan);
            }
            (Setting::Model { provider, id }, None) => {
                let why = format!("there is no model {provider}/{id} for this session");
                return self.out.push(Effect::Reply(reply, Err(Refusal::NoSuchModel { why })));
            }
            // Needs no record: it is a rule of the directory, and none of the conversation.
            (Setting::Permissions | Setting::Plan { .. }, _) => {
                return self.out.push(Effect::Reply(reply, Ok(Ack::Handled)));
            }
            (Setting::Thinking { level }, _) => {
                self.changing.get_or_insert_with(none).thinking = Some(*level);
            }
        }
        if let Some(changing) = &mut self.changing {
            changing.replies.push(reply);
        }
        if self.run.is_none() {
            self.record_change(None);
        }
    }

    /// Begins to record what is to be changed; whether there is anything to wait for.
    pub(super) fn record_change(&mut self, went: Option<TurnEnd>) -> bool {
        let Some(PendingChange { model, thinking, plan, replies, run }) = self.changing.take() else {
            return false;
        };
        let fallback = match (&model, &self.prefix.epoch.fallback) {
            // It is what somebody chose.
            (Some(_), _) | (None, None) => None,
            (None, Some(fallback)) => {
                Some(Fallback { thinking: thinking.unwrap_or(fallback.thinking), ..fallback.clone() })
            }
        };
        let model = model.unwrap_or_else(|| self.prefix.model.clone());
        let epoch = Epoch {
            provider: model.provider.clone(),
            model: model.id.clone(),
            thinking: clamp_level(&model, thinking.unwrap_or(self.prefix.epoch.thinking)),
            fallback,
            plan: plan.or_else(|| self.prefix.epoch.plan.clone()),
            ..self.prefix.epoch.clone()
        };
        if epoch == self.prefix.epoch {
            self.answer_all(replies, &Ok(Ack::Handled));
            return false;
        }
        let prefix = Prefix { model, epoch, ..self.prefix.clone() };
        if !self.has_ref {
            // It begins so.
            for draft in &mut self.unsaved {
                if let Entry::Session(start) = &*draft.entry {
                    let epoch = prefix.epoch.clone();
                    draft.entry = Arc::new(Entry::Session(SessionStart { epoch, ..start.clone() }));
                }
            }
            self.change(prefix, None);
            self.answer_all(replies, &Ok(Ack::Handled));
            return false;
        }
        // What was said last comes before it.
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "the last message is not stored yet; send another message first";
            self.answer_all(replies, &Err(Refusal::Store { why: why.into() }));
            return false;
        }
        let draft = Draft::new(Entry::Epoch(prefix.epoch.clone()));
        let (alone, has_prompt) = (went.is_none(), self.queueing > 0);
        let phase = Phase::Changing(Box::new(ChangeState { prefix, replies, went, has_prompt }));
        match self.run.as_mut().filter(|_| !alone) {
            Some(run) => run.phase = phase,
            None => self.run = Some(Run { phase, ..Run::new(run) }),
        }
        self.commit(Tag::Changed, vec![draft], Vec::new(), true);
        true
    }

    /// It is recorded.
    pub(super) fn change_committed(&mut self, nodes: &[NodeId]) {
        let Some(recording) = self.recorded() else { return };
        let ChangeState { prefix, replies, went, has_prompt } = recording;
        self.change(prefix, nodes.last().copied());
        self.answer_all(replies, &Ok(Ack::Handled));
        self.after_change(went, has_prompt);
    }

    /// It could not be recorded: all stays as it was.
    pub(super) fn on_change_failed(&mut self, text: String) {
        let Some(recording) = self.recorded() else { return };
        self.answer_all(recording.replies, &Err(Refusal::Store { why: text }));
        self.after_change(recording.went, recording.has_prompt);
    }

    /// Whoever waits for a change is told that there will be none.
    pub(super) fn refuse_pending_change(&mut self, why: &Refusal) {
        if let Some(changing) = self.changing.take() {
            self.answer_all(changing.replies, &Err(why.clone()));
        }
    }

    /// Nothing is under way any more, unless something is still to be changed.
    pub(super) fn settle(&mut self) {
        let is_plan = self.changing.as_ref().is_some_and(|changing| changing.plan.is_some());
        if self.closing.is_some() && !is_plan {
            self.refuse_pending_change(&Refusal::Closed);
        } else if self.record_change(None) {
            return;
        }
        self.emit(Event::Settled);
        self.commit_finished_shells();
        self.start_deferred_notes();
        self.start_background_notes();
        self.stop_if_closing();
    }

    fn recorded(&mut self) -> Option<ChangeState> {
        let run = self.run.as_mut()?;
        match std::mem::replace(&mut run.phase, Phase::Committing) {
            Phase::Changing(recording) => Some(*recording),
            phase => {
                run.phase = phase;
                None
            }
        }
    }

    pub(super) fn change(&mut self, prefix: Prefix, node: Option<NodeId>) {
        let (model, thinking) = (prefix.model.clone(), prefix.epoch.thinking);
        let before = &self.prefix.epoch;
        let is_switch_alone = before.plan != prefix.epoch.plan
            && *before == Epoch { plan: before.plan.clone(), ..prefix.epoch.clone() };
        if (&before.provider, &before.model) != (&prefix.epoch.provider, &prefix.epoch.model) {
            self.refresh_at(EpochReason::ModelChange);
        }
        self.sync_left_model(&prefix.epoch);
        self.prefix_tokens = super::compacting::prefix_tokens(&prefix);
        if self.prefix.epoch.context != prefix.epoch.context {
            self.opening = OpeningMessages::of(prefix.epoch.context.as_ref());
        }
        self.prefix = prefix;
        // The policy shows plan mode to people.
        if !is_switch_alone {
            self.out.push(Effect::UseModel(model.clone()));
            self.emit(Event::EpochChanged { node, model, thinking });
        }
    }

    fn answer_all(&mut self, replies: Vec<ReplyId>, answer: &Result<Ack, Refusal>) {
        self.out.extend(replies.into_iter().map(|reply| Effect::Reply(reply, answer.clone())));
    }

    fn after_change(&mut self, went: Option<TurnEnd>, has_prompt: bool) {
        let aborting = self.run.as_ref().is_some_and(|run| run.aborting);
        match went {
            Some(went) => self.after_turn(went),
            None => self.answer_queued_prompt(has_prompt && !aborting),
        }
    }
}
