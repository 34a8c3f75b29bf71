//! A call that failed for good, and what is tried in its place: another level of thinking that the model takes, or the
//! next of the models that the settings name. The failed call is recorded with its cost and its answer is dropped; the
//! change is an epoch; the run goes on with the same turn.

use std::sync::Arc;

use quipu_protocol::{
    CallEnd, CallRecord, Ending, Entry, Epoch, Event, Fallback, Json, Message, MessageId, Model, ModelError,
    ModelErrorKind, NodeId, Notice, Provenance, RunId, StepInfo, StopReason, Thinking, UnixMs, clamp_level,
    level_name,
};

use super::{AssistantMessage, Draft, Effect, Machine, Phase, PlanOp, Prefix, Run, Tag, record_hooks};

/// How long a model is left alone at least, after a failure that may pass soon.
const SHORT_REST: UnixMs = 30_000;
/// The same after one that a person or the end of a period has to settle.
const LONG_REST: UnixMs = 600_000;
/// How long a server can keep a session from its model.
const LONGEST_REST: UnixMs = 24 * 3_600_000;
/// Characters of one failure that the error of several failures quotes.
const QUOTE: usize = 300;

/// Where the search for another model begins, and what it passes over.
#[derive(Debug, Clone)]
pub struct FallbackRequest {
    /// The run that goes on with it.
    pub run: RunId,
    /// The first name of the list that was not looked at.
    pub from: usize,
    /// The models that failed in this run.
    pub tried: Vec<Arc<Model>>,
}

/// What the search came to.
#[derive(Debug, Clone, Default)]
pub struct FallbackResult {
    /// The first name of the list that was not looked at.
    pub next: usize,
    /// The model; `None` when no other can be called.
    pub model: Option<Arc<Model>>,
    /// Why names were passed over.
    pub notes: Vec<String>,
}

/// What a run tried in place of what failed.
#[derive(Debug, Default)]
pub(super) struct FallbackProgress {
    /// How many names of the list were looked at.
    next: usize,
    models: Vec<Arc<Model>>,
    /// Levels of thinking that the current model refused.
    levels: Vec<Thinking>,
    /// Each model that failed, with its reason.
    failures: Vec<String>,
}

/// A call that ended, before it is clear what becomes of its answer.
pub(super) struct EndedCall {
    pub(super) message: Option<MessageId>,
    pub(super) attempt: u32,
    pub(super) end: CallEnd,
    pub(super) record: Option<Box<CallRecord>>,
    pub(super) hooks: Vec<Json>,
    pub(super) replaced: Option<Provenance>,
}

/// Another model is looked for, or what comes in place of a failed call is being recorded.
pub(super) struct FallbackState {
    /// The call that failed, while another model is looked for.
    ended: Option<EndedCall>,
    /// What is being recorded.
    prefix: Option<Prefix>,
}

/// The model that a run fell back from, to which a later one returns.
#[derive(Debug, Clone)]
pub(super) struct LeftModel {
    model: Arc<Model>,
    thinking: Thinking,
    /// Before this time it is not asked again.
    until: UnixMs,
}

impl Machine {
    /// Takes over a call that failed for good, where something else can be tried; gives it back where not.
    pub(super) fn try_otherwise(&mut self, ended: EndedCall) -> Option<EndedCall> {
        let Some(error) = ended.end.error.clone() else { return Some(ended) };
        let (model, now) = (self.prefix.model.clone(), self.prefix.epoch.thinking);
        let is_spent = |run: &Run| self.limits.max_cost.is_some_and(|max| run.spent() >= max);
        let Some(run) =
            self.run.as_ref().filter(|run| !run.aborting && run.refused.is_none() && !is_spent(run))
        else {
            return Some(ended);
        };
        if error.kind == ModelErrorKind::ThinkingLevel {
            let mut tried = run.attempted.levels.clone();
            tried.push(clamp_level(&model, now));
            let level = error.levels.iter().map(|level| clamp_level(&model, *level));
            let Some(level) = level.into_iter().find(|level| !tried.contains(level)) else {
                return Some(ended);
            };
            if let Some(run) = &mut self.run {
                run.attempted.levels = tried;
            }
            let epoch = Epoch { thinking: level, ..self.prefix.epoch.clone() };
            let text = format!(
                "{}/{} does not take the thinking level {}; the run continues with {}.",
                model.provider,
                model.id,
                level_name(now),
                level_name(level),
            );
            self.record_fallback(ended, &error, Prefix { epoch, ..self.prefix.clone() }, text);
            return None;
        }
        let is_last = run.attempted.next >= self.fallbacks;
        if !error.kind.another_model_may_help() || is_last && run.attempted.failures.is_empty() {
            return Some(ended);
        }
        if is_last {
            if let Some(run) = &mut self.run {
                run.attempted.failures.push(failure_text(&model, &error));
            }
            self.give_up(ended);
            return None;
        }
        if let Some(run) = &mut self.run {
            run.attempted.models.push(model.clone());
            run.attempted.failures.push(failure_text(&model, &error));
            let request = FallbackRequest {
                run: run.id.clone(),
                from: run.attempted.next,
                tried: run.attempted.models.clone(),
            };
            run.phase = Phase::FallingBack(Box::new(FallbackState { ended: Some(ended), prefix: None }));
            self.out.push(Effect::FindFallback(request));
        }
        None
    }

    /// The search is over.
    pub(super) fn fallback_found(&mut self, result: FallbackResult) {
        let Some(run) = &mut self.run else { return };
        let Phase::FallingBack(state) = &mut run.phase else { return };
        let Some(ended) = state.ended.take() else { return };
        run.attempted.next = result.next;
        for text in result.notes {
            self.emit(Event::from(Notice::Note { text }));
        }
        let (Some(model), Some(error)) = (result.model, ended.end.error.clone()) else {
            return self.give_up(ended);
        };
        let before = &self.prefix;
        let until = self.now.saturating_add(rest(&error));
        let left = match self.left_model.take() {
            Some(left) => left,
            None => LeftModel { model: before.model.clone(), thinking: before.epoch.thinking, until },
        };
        let epoch = Epoch {
            provider: model.provider.clone(),
            model: model.id.clone(),
            thinking: clamp_level(&model, left.thinking),
            fallback: Some(Fallback {
                provider: left.model.provider.clone(),
                model: left.model.id.clone(),
                thinking: left.thinking,
                reason: error.kind,
                until: left.until,
            }),
            ..before.epoch.clone()
        };
        let text = format!(
            "{}/{} cannot be asked now; the run continues with {}/{}. {}",
            before.model.provider,
            before.model.id,
            model.provider,
            model.id,
            shortened(&error.message),
        );
        self.left_model = Some(left);
        if let Some(run) = &mut self.run {
            run.attempted.levels.clear();
        }
        let prefix = Prefix { model, epoch, ..self.prefix.clone() };
        self.record_fallback(ended, &error, prefix, text);
    }

    /// The model that was chosen, and its level of thinking: the one that this one stands in for, where it does.
    pub(super) fn chosen_model(&self) -> (Arc<Model>, Thinking) {
        match &self.left_model {
            Some(left) => (left.model.clone(), left.thinking),
            None => (self.prefix.model.clone(), self.prefix.epoch.thinking),
        }
    }

    /// The run was stopped while another model was looked for.
    pub(super) fn stop_falling_back(&mut self) {
        let Some(Run { phase: Phase::FallingBack(state), .. }) = &mut self.run else { return };
        if let Some(ended) = state.ended.take() {
            self.give_up(ended);
        }
    }

    /// No other model is left: the answer that failed is the answer, and its error tells of all of them.
    fn give_up(&mut self, mut ended: EndedCall) {
        let failures = self.run.as_ref().map(|run| run.attempted.failures.as_slice()).unwrap_or_default();
        if let (Some(error), true) = (&mut ended.end.error, failures.len() > 1) {
            error.message = format!("All models failed ({}): {}", failures.len(), failures.join(" | "));
        }
        self.keep_answer(ended);
    }

    /// Records the call that failed and what comes in its place; what was streamed of its answer is void.
    fn record_fallback(&mut self, ended: EndedCall, error: &ModelError, prefix: Prefix, text: String) {
        let EndedCall { message, attempt, end, record, hooks, replaced: _ } = ended;
        let Some(run) = &mut self.run else { return };
        let mut step = StepInfo { run: Some(run.id.clone()), ..StepInfo::default() };
        if let Some(mut record) = record {
            record.attempts = end.attempts;
            (step.started, step.duration_ms) = (Some(record.started), record.duration_ms);
            step.call = Some(*record);
        }
        record_hooks(&mut step, &hooks);
        let data = serde_json::json!({
            "type": "custom",
            "customType": "quipu.fallback",
            "data": {
                "error": error,
                "from": named(&self.prefix),
                "to": named(&prefix),
                "usage": end.message.usage,
            },
        });
        let ops = vec![PlanOp::Forget { run: run.id.clone(), session: None }];
        run.phase = Phase::FallingBack(Box::new(FallbackState { ended: None, prefix: Some(prefix.clone()) }));
        if let Some(id) = message {
            let dropped = AssistantMessage {
                error_message: Some(error.message.clone()),
                usage: end.message.usage,
                ..self.blank_answer(StopReason::Error)
            };
            let message = Arc::new(Message::Assistant(dropped));
            self.emit(Event::MessageEnded { id, message, ending: Ending::Dropped(error.clone()) });
        }
        if attempt > 1 {
            self.emit(Event::RetryEnded { ok: false });
        }
        self.emit(Event::from(Notice::Note { text }));
        let failed = Draft::of(Entry::Meta(Json::from(&data)), step);
        self.commit(Tag::FellBack, vec![failed, Draft::new(Entry::Epoch(prefix.epoch))], ops, false);
    }

    /// It is recorded: the turn goes on.
    pub(super) fn fallback_committed(&mut self, nodes: &[NodeId]) {
        let Some(Run { phase: Phase::FallingBack(state), .. }) = &mut self.run else { return };
        let Some(prefix) = state.prefix.take() else { return };
        self.change(prefix, nodes.last().copied());
        self.call_model();
    }

    /// It could not be recorded: all stays as it was.
    pub(super) fn on_fallback_failed(&mut self) {
        let epoch = self.prefix.epoch.clone();
        self.sync_left_model(&epoch);
    }

    /// What the prompt of a new run is asked of, where the one before it fell back: the model that was chosen, unless it
    /// still rests.
    pub(super) fn returns(&mut self) -> Option<Draft> {
        let left = self.left_model.as_ref().filter(|left| left.until <= self.now && self.has_ref)?;
        let epoch = Epoch {
            provider: left.model.provider.clone(),
            model: left.model.id.clone(),
            thinking: left.thinking,
            fallback: None,
            ..self.prefix.epoch.clone()
        };
        let prefix = Prefix { model: left.model.clone(), epoch: epoch.clone(), ..self.prefix.clone() };
        self.returning = Some(Box::new(prefix));
        Some(Draft::new(Entry::Epoch(epoch)))
    }

    /// Another epoch holds: whether it stands in for a model that was chosen.
    pub(super) fn sync_left_model(&mut self, epoch: &Epoch) {
        match (&epoch.fallback, &mut self.left_model) {
            (None, left) => *left = None,
            (Some(fallback), Some(left)) => left.thinking = fallback.thinking,
            // The session was opened again, which begins with the chosen model.
            (Some(_), None) => {}
        }
    }
}

/// How long the model that failed so is left alone: as long as the server asks, and at least as long as such failures
/// last.
fn rest(error: &ModelError) -> UnixMs {
    let least = match error.kind {
        ModelErrorKind::Quota
        | ModelErrorKind::UsageLimit
        | ModelErrorKind::AuthRevoked
        | ModelErrorKind::UnknownModel => LONG_REST,
        _ => SHORT_REST,
    };
    let asked =
        error.retry_after.map_or(0, |asked| UnixMs::try_from(asked.as_millis()).unwrap_or(UnixMs::MAX));
    asked.clamp(least, LONGEST_REST)
}

fn named(prefix: &Prefix) -> serde_json::Value {
    let Epoch { provider, model, thinking, .. } = &prefix.epoch;
    serde_json::json!({ "provider": provider, "model": model, "thinking": thinking })
}

fn failure_text(model: &Model, error: &ModelError) -> String {
    format!("{}/{}: {}", model.provider, model.id, shortened(&error.message))
}

fn shortened(text: &str) -> String {
    if text.chars().take(QUOTE + 1).count() <= QUOTE {
        return text.to_owned();
    }
    text.chars().take(QUOTE - 1).chain(['…']).collect()
}
