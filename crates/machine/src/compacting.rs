//! Compaction: one way for a context that is nearly full, one that the model refused, and one that somebody asked
//! to have summed up.

use std::slice::SliceIndex;
use std::sync::Arc;

use quipu_protocol::{
    Ack, CallRecord, Checkpoint, Compaction, CompactionReason, CompactionResult, Entry, EpochContext, Event,
    Json, Limit, Message, ModelError, NodeId, Outcome, Refusal, RunId, StepInfo, ToolSpec, Usage,
};
use quipu_transcript::{
    CarriedState, CutPoint, OpeningMessages, Safeguard, SummaryPart, TouchedFiles, carried_words,
    compaction_note, cut, estimate_text, measure, sent_tokens, source_details, source_words, summary_of_note,
    with_sections, words_of_note,
};

use super::refreshing::AfterRefresh;
use super::{
    Draft, Effect, EpochReason, MEASURED, Machine, NoSummary, Phase, Plan, PlanOp, Prefix, PruneState,
    Purpose, ReplyId, Run, Stretch, Summary, Tag, record_hooks,
};

/// When a context is compacted and what stays of it. Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Whether it happens by itself, near the end of the window and when the model says that it is too long.
    pub enabled: bool,
    /// Kept free for the answer: a context that leaves less is compacted. At most a quarter of the window counts.
    pub reserve_tokens: u64,
    /// About so much of the newest conversation stays as it is. At most a quarter of the window counts.
    pub keep_recent_tokens: u64,
    /// How the model sums up in the careful way; `None` for the plain one.
    pub safeguard: Option<Safeguard>,
}

impl CompactionSettings {
    /// Tokens above which a context in a window of so many tokens is compacted before the next call; `None` when it
    /// is not, or the window is not known (0).
    pub fn threshold(&self, window: u64) -> Option<u64> {
        (self.enabled && window > 0).then(|| window - self.reserve_tokens.min(window / 4))
    }
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self { enabled: true, reserve_tokens: 16_384, keep_recent_tokens: 20_000, safeguard: None }
    }
}

/// Under which name the node of a compaction keeps who gave its summary in place of the model.
pub const SUPPLIED_BY: &str = "suppliedBy";

/// Why a summary is not used.
pub(super) const OUTDATED: &str = "something that it was made of was forgotten meanwhile";

/// Characters of the user's own words that a compaction carries over, at most.
const SAID: u64 = 32_000;

/// A compaction under way.
pub(super) struct CompactionState {
    reason: CompactionReason,
    cut: CutPoint,
    tokens_before: u64,
    /// What the summary is to look at above all.
    focus: Option<String>,
    /// What ends the turn when an overflow cannot be mended.
    error: Option<ModelError>,
    /// Somebody said something that is to be answered afterwards, although no run is under way.
    pub(super) has_prompt: bool,
    /// Why it came to nothing, while that is being recorded.
    nothing: Option<CompactionResult>,
    /// The session gets a name first.
    is_unnamed: bool,
    /// A source of the summary under way was forgotten: it is not used.
    is_outdated: bool,
    /// Another summary is asked for when the calls for an outdated one are recorded.
    is_again: bool,
    /// Somebody stopped it.
    is_stopped: bool,
}

impl CompactionState {
    pub(super) fn reason(&self) -> CompactionReason {
        self.reason
    }

    /// No further summary is asked for.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Messages at these places were forgotten; whether the summary under way is made of some of them.
    pub(super) fn outdate(&mut self, places: &[usize]) -> bool {
        let is_asked = self.nothing.is_none() && !self.is_unnamed;
        let is_source = is_asked && places.iter().any(|place| *place < self.cut.first_kept);
        self.is_outdated |= is_source;
        is_source
    }
}

impl Machine {
    /// Whether the next request would leave too little of the window.
    pub(super) fn compaction_is_due(&self) -> bool {
        let window = self.prefix.model.context_window;
        let failed = self.run.as_ref().is_some_and(|run| run.compaction_failed);
        if !self.compaction.enabled || window == 0 || failed {
            return false;
        }
        self.size() > window - self.reserve(window) && self.cut_before_call().is_some()
    }

    /// What helps before a call. Where the text alone cannot fit, less is kept than wanted.
    fn cut_before_call(&self) -> Option<CutPoint> {
        let window = self.prefix.model.context_window;
        let fits = self.prefix_tokens.saturating_add(self.estimated) <= window;
        let keep = self.keep_recent(window);
        self.cut_that_helps(keep, if fits { keep } else { 0 })
    }

    /// Keeps less and less until enough goes.
    pub(super) fn cut_that_helps(&self, mut keep: u64, least: u64) -> Option<CutPoint> {
        loop {
            match self.cut_at(keep) {
                Some(found) if self.helps(found) => return Some(found),
                _ if keep <= least => return None,
                _ => keep /= 2,
            }
        }
    }

    /// Tokens of the next request, what is being committed included.
    pub(super) fn size(&self) -> u64 {
        let adding: u64 = self.adding.iter().map(|message| sent_tokens(message)).sum();
        let all = self.prefix_tokens.saturating_add(self.estimated);
        let (counted, after) = match measure(&self.messages, self.left.old, all) {
            Some((measured, after)) => (measured.counted, after),
            None => (0, all),
        };
        counted.saturating_add(self.corrected(after.saturating_add(adding)))
    }

    /// Whether enough would go. Where nearly all is in the messages that stay, a summary costs and frees nothing. The
    /// summary before counts as far as the new one must be shorter: it may be that of a model with a larger window.
    fn helps(&self, cut: CutPoint) -> bool {
        let before = self.estimate(..cut.begin).saturating_sub(self.longest_note());
        quipu_transcript::freed(&self.messages, cut, self.estimated).saturating_add(before)
            >= self.estimated / 10
    }

    /// Tokens that a summary has at most, with what is carried over beside it.
    fn longest_note(&self) -> u64 {
        self.summary_tokens().saturating_mul(2).saturating_add(self.carried_over() as u64 / 2)
    }

    /// Characters of the user's words, and of paths, that stand beside a summary at most.
    pub(super) fn carried_over(&self) -> usize {
        let window = self.prefix.model.context_window;
        let most = if window == 0 { SAID } else { SAID.min(window / 2) };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Tokens of an answer that sums up, at most.
    pub(super) fn summary_tokens(&self) -> u64 {
        let model = &self.prefix.model;
        let window = if model.context_window == 0 { u64::MAX } else { model.context_window };
        let limit = if model.max_tokens == 0 { u64::MAX } else { model.max_tokens };
        limit.min(self.reserve(window) / 5 * 4).max(1)
    }

    pub(super) fn estimate(&self, part: impl SliceIndex<[Arc<Message>], Output = [Arc<Message>]>) -> u64 {
        self.messages.get(part).unwrap_or_default().iter().map(|message| sent_tokens(message)).sum()
    }

    fn reserve(&self, window: u64) -> u64 {
        self.compaction.reserve_tokens.min(window / 4)
    }

    fn cut(&self) -> Option<CutPoint> {
        let window = self.prefix.model.context_window;
        self.cut_at(self.keep_recent(if window == 0 { u64::MAX } else { window }))
    }

    /// Tokens of the newest conversation that stay: as the settings say, or what a source wants to stay, of which half of
    /// the window counts.
    pub(super) fn keep_recent(&self, window: u64) -> u64 {
        let wanted = self.prefix.epoch.context.as_ref().and_then(EpochContext::most_kept);
        let keep = self.compaction.keep_recent_tokens.min(window / 4);
        wanted.map_or(keep, |wanted| keep.max(wanted.min(window / 2)))
    }

    /// Where to cut so that about `keep` tokens stay. What a compaction holds itself, in place of nodes before it, cannot
    /// be parted: it goes as a whole.
    fn cut_at(&self, keep: u64) -> Option<CutPoint> {
        let found = cut(&self.messages, keep)?;
        let first = self.nodes.first();
        let held = self.nodes.iter().take_while(|node| Some(*node) == first).count();
        if found.first_kept >= held {
            return Some(found);
        }
        Some(CutPoint { first_kept: held, turn: None, ..found })
    }

    /// Whether something runs that belongs to no turn.
    pub(super) fn is_busy_without_run(&self) -> bool {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Compacting(one)) => one.reason == CompactionReason::Manual,
            Some(Phase::Jumping(_) | Phase::Noting(_) | Phase::Moving(_)) => true,
            Some(Phase::Changing(recording)) => recording.is_standalone(),
            Some(
                Phase::Committing
                | Phase::Calling { .. }
                | Phase::Answered(_)
                | Phase::Tools(_)
                | Phase::Results(_)
                | Phase::Refreshing(_)
                | Phase::FallingBack(_)
                | Phase::Starting(_)
                | Phase::Ending
                | Phase::ToolJumping(_),
            )
            | None => false,
        }
    }

    /// Somebody asks for it while nothing runs.
    pub(super) fn compact(&mut self, focus: Option<String>, reply: ReplyId, run: RunId) {
        if self.run.is_some() {
            return self.out.push(Effect::Reply(reply, Err(Refusal::Busy)));
        }
        let Some(cut) = self.cut() else {
            return self.out.push(Effect::Reply(reply, Err(Refusal::NothingToCompact)));
        };
        self.run = Some(Run::new(run.clone()));
        self.out.push(Effect::Reply(reply, Ok(Ack::Started(run))));
        self.begin_compaction(CompactionReason::Manual, cut, focus, None);
    }

    /// Before a call: the context is too large for it.
    pub(super) fn compact_before_call(&mut self) -> bool {
        if !self.compaction_is_due() {
            return false;
        }
        let Some(cut) = self.cut_before_call() else { return false };
        self.begin_compaction(CompactionReason::Threshold, cut, None, None);
        true
    }

    pub(super) fn begin_compaction(
        &mut self,
        reason: CompactionReason,
        cut: CutPoint,
        focus: Option<String>,
        error: Option<ModelError>,
    ) {
        let tokens_before = self.size();
        let (Some(run), true) = (&mut self.run, self.head.is_some()) else { return };
        run.phase = Phase::Compacting(Box::new(CompactionState {
            reason,
            cut,
            tokens_before,
            focus,
            error,
            has_prompt: false,
            nothing: None,
            is_unnamed: !self.has_ref,
            is_outdated: false,
            is_again: false,
            is_stopped: false,
        }));
        self.emit(Event::CompactionStarted { reason });
        if self.has_ref {
            return self.ask_summary(false);
        }
        // Before its first commit the session has no name under which a call could be recorded.
        self.commit(Tag::Named, Vec::new(), Vec::new(), true);
    }

    /// Asks for a summary of what is to go, as it is now.
    fn ask_summary(&mut self, is_again: bool) {
        let Some(Run { id, cost, phase: Phase::Compacting(compacting), .. }) = &self.run else { return };
        let Some(head) = self.head else { return };
        let (run, cut, focus) = (id.clone(), compacting.cut, compacting.focus.clone());
        let reason = Some(compacting.reason);
        let dollars = self.limits.max_cost.map(|max| max - cost);
        let model = &self.prefix.model;
        let window = if model.context_window == 0 { u64::MAX } else { model.context_window };
        let previous = match self.messages.first().map(AsRef::as_ref) {
            Some(Message::CompactionSummary(before)) => Some(summary_of_note(&before.summary).to_owned()),
            _ => None,
        };
        let turn = cut.turn.unwrap_or(cut.first_kept);
        let stretch = Stretch {
            purpose: Purpose::Compaction,
            reason,
            is_again,
            previous,
            history: self.messages[cut.begin..turn].to_vec(),
            turn: self.messages[turn..cut.first_kept].to_vec(),
            first_kept: self.nodes.get(cut.first_kept).copied(),
            focus,
            window,
            max_tokens: self.summary_tokens(),
            dollars,
            safeguard: self.compaction.safeguard,
        };
        let (model, thinking) = (model.clone(), self.prefix.epoch.thinking);
        self.out.push(Effect::Summarize { run, head, model, thinking, stretch: Box::new(stretch) });
    }

    /// The session has a name, and can be compacted.
    pub(super) fn named(&mut self) {
        let Some(Run { aborting, phase: Phase::Compacting(compacting), .. }) = &mut self.run else { return };
        let aborting = *aborting || compacting.is_stopped;
        if !std::mem::take(&mut compacting.is_unnamed) {
            return;
        }
        self.ask_summary(false);
        if aborting {
            self.out.push(Effect::CancelCall);
        }
    }

    pub(super) fn summarized(&mut self, result: Result<Summary, Box<NoSummary>>) {
        let Some(run) = &mut self.run else { return };
        if let Phase::Jumping(_) = &run.phase {
            return self.branch_summarized(result);
        }
        let Phase::Compacting(compacting) = &mut run.phase else { return };
        let is_outdated = std::mem::take(&mut compacting.is_outdated);
        let result = match result {
            Ok(Summary { made, .. }) if is_outdated => Err(Box::new(NoSummary { why: None, made })),
            result => result,
        };
        let Summary { mut text, made, supplied_by, hooks, provenance, mut parts } = match result {
            Ok(summary) => summary,
            Err(none) => {
                let NoSummary { why, made } = *none;
                run.cost += made.cost();
                let is_spent = self.limits.max_cost.is_some_and(|max| run.cost + run.side_cost >= max);
                let is_ended = run.aborting || compacting.is_stopped;
                let is_again = is_outdated && !is_ended && !is_spent;
                let why = if is_outdated && !is_ended { Some(OUTDATED.to_owned()) } else { why };
                let data = failed_summary_json(why.as_deref(), &made.usage);
                let result = why.map_or(CompactionResult::Aborted, CompactionResult::Failed);
                if made.records.is_empty() {
                    return if is_again { self.ask_summary(true) } else { self.compaction_over(result) };
                }
                compacting.is_again = is_again;
                // The context stays as it was; that calls were made and paid for is kept beside it.
                compacting.nothing = Some(result);
                let step = step_of(Some(run.id.clone()), made.records);
                let ops = vec![PlanOp::Forget { run: run.id.clone(), session: None }];
                let draft = Draft::of(Entry::Meta(data), step);
                return self.commit(Tag::Compacted, vec![draft], ops, false);
            }
        };
        run.cost += made.cost();
        let id = run.id.clone();
        let (reason, cut, tokens_before) = (compacting.reason, compacting.cut, compacting.tokens_before);
        let taken = &self.messages[cut.begin..cut.first_kept];
        let said = self.nodes.get(cut.begin..cut.first_kept).unwrap_or_default();
        // What a source or a hook gave stands as they gave it.
        if let Some(safeguard) = &self.compaction.safeguard
            && supplied_by.is_none()
            && hooks.is_empty()
        {
            let turns = cut.turn.unwrap_or(cut.first_kept) - cut.begin;
            (text, parts) = with_sections(&text, (taken, turns), said, safeguard);
        }
        let mut files = TouchedFiles::default();
        let earlier = match self.messages.first().map(AsRef::as_ref) {
            Some(Message::CompactionSummary(before)) => words_of_note(&before.summary),
            _ => None,
        };
        if let Some(details) = self.compacted.as_ref().and_then(|before| before.details.as_ref()) {
            files = TouchedFiles::of_details(details);
        }
        files.add(taken);
        let carried = CarriedState::of(self.messages.get(..cut.first_kept).unwrap_or_default());
        let most = self.carried_over();
        let summary = carried.appended_to(compaction_note(&text, earlier, taken, &files, most));
        let before = self.compacted.as_ref().map_or_else(Vec::new, |before| source_words(before, most));
        let said = taken.iter().zip(said).filter_map(|(message, node)| {
            Some(SummaryPart { text: carried_words(message, most)?, nodes: vec![*node] })
        });
        let words: Vec<SummaryPart> = before.into_iter().chain(said).collect();
        let details = source_details(&files, &summary, parts, words);
        let compaction = Compaction {
            summary,
            first_kept: self.nodes.get(cut.first_kept).copied(),
            retained_tail: None,
            tokens_before,
            timestamp: self.now,
            details,
            usage: Some(made.usage),
            from_hook: (supplied_by.is_some() || !hooks.is_empty()).then_some(true),
            reason: Some(reason),
            checkpoint: Some(Checkpoint { session: self.session.clone(), epoch: self.prefix.epoch.clone() }),
        };
        let mut step = step_of(Some(id.clone()), made.records);
        step.provenance = provenance;
        record_hooks(&mut step, &hooks);
        if let Some(measured) = self.measured().and_then(|measured| Json::of(&measured).ok()) {
            step.extra.insert(MEASURED.into(), measured);
        }
        if let Some(supplied_by) = supplied_by.and_then(|name| Json::of(&name).ok()) {
            step.extra.insert(SUPPLIED_BY.into(), supplied_by);
        }
        let draft = Draft::of(Entry::Compaction(compaction), step);
        self.commit(Tag::Compacted, vec![draft], vec![PlanOp::Forget { run: id, session: None }], true);
    }

    /// The compaction is kept: the context is what it leaves.
    pub(super) fn compaction_committed(&mut self, plan: &Plan, nodes: &[NodeId]) {
        if let Some(Run { aborting, phase: Phase::Compacting(compacting), .. }) = &mut self.run
            && let Some(nothing) = compacting.nothing.take()
        {
            let is_ended = *aborting || compacting.is_stopped;
            let is_again = std::mem::take(&mut compacting.is_again) && !is_ended;
            return if is_again { self.ask_summary(true) } else { self.compaction_over(nothing) };
        }
        let Some((Entry::Compaction(compaction), node)) =
            plan.drafts.iter().zip(nodes).map(|(draft, node)| (&*draft.entry, *node)).next_back()
        else {
            return;
        };
        self.left.remember(&self.messages, self.prefix_tokens.saturating_add(self.estimated));
        // All that was there, what an earlier commit could not keep, and the summary, in this order.
        let summary = self.messages.pop().zip(self.nodes.pop());
        let first = compaction.first_kept;
        let kept = self.nodes.iter().position(|node| Some(*node) == first).unwrap_or(self.nodes.len());
        self.messages.drain(..kept);
        self.nodes.drain(..kept);
        if let Some((message, node)) = summary {
            self.messages.insert(0, message);
            self.nodes.insert(0, node);
        }
        let compaction = Arc::new(compaction.clone());
        self.compacted = Some(compaction.clone());
        self.left =
            PruneState { old: self.messages.len(), measured: self.left.measured, ..PruneState::default() };
        self.estimated = self.estimate(..);
        let tokens_after = self.size();
        self.compaction_over(CompactionResult::Done { node, compaction, tokens_after });
    }

    /// Something that belongs to no turn is over: what was said meanwhile comes next.
    pub(super) fn answer_queued_prompt(&mut self, has_prompt: bool) {
        self.run = None;
        match self.steering.first().or(self.follow_up.first()).filter(|_| has_prompt) {
            Some(item) if self.closing.is_none() => {
                let run = item.id.as_str().into();
                self.start_queued(run);
            }
            _ => self.settle(),
        }
    }

    /// Tells how it ended and goes on with what it was made for.
    pub(super) fn compaction_over(&mut self, result: CompactionResult) {
        let Some(run) = &mut self.run else { return };
        let Phase::Compacting(compacting) = std::mem::replace(&mut run.phase, Phase::Committing) else {
            return;
        };
        let CompactionState { reason, error, has_prompt, .. } = *compacting;
        let done = matches!(result, CompactionResult::Done { .. });
        let is_stopped = matches!(result, CompactionResult::Aborted);
        run.compaction_failed |= !done;
        let (turn, aborting) = (run.turn, run.aborting);
        let spent = self.limits.max_cost.filter(|max| run.spent() >= *max).filter(|_| !aborting);
        self.emit(Event::CompactionEnded { reason, result: Arc::new(result) });
        if done {
            self.refresh_at(EpochReason::Compaction);
        }
        match (reason, error) {
            (CompactionReason::Manual, _) => self.answer_queued_prompt(has_prompt && !aborting),
            (CompactionReason::Overflow, Some(error)) if !done => {
                let is_over = aborting || is_stopped || spent.is_some();
                let error = match is_over {
                    true => error,
                    false => match self.shorten_after_overflow(error) {
                        Ok(()) => return,
                        Err(error) => error,
                    },
                };
                self.emit(Event::TurnEnded { turn });
                self.end_run(if aborting { Outcome::Aborted } else { Outcome::Failed(error) });
            }
            (CompactionReason::Overflow | CompactionReason::Threshold, _) => match spent {
                Some(max) => {
                    self.emit(Event::TurnEnded { turn });
                    self.end_run(Outcome::Limit(Limit::Cost(max)));
                }
                None if self.refresh_before_call(AfterRefresh::Call) => {}
                None => self.call_now(),
            },
        }
    }
}

/// The estimated tokens of what every request begins with.
pub(super) fn prefix_tokens(prefix: &Prefix) -> u64 {
    let tools = prefix.tools.iter().map(tool_tokens);
    let opening = OpeningMessages::of(prefix.epoch.context.as_ref());
    let opening: u64 = opening.all().map(|message| sent_tokens(message)).sum();
    tools.fold(estimate_text(&prefix.system).saturating_add(opening), u64::saturating_add)
}

/// The estimated tokens of a tool's declaration.
pub fn tool_tokens(tool: &ToolSpec) -> u64 {
    let texts: [&str; 3] = [&tool.name, &tool.description, tool.parameters.get()];
    texts.into_iter().map(estimate_text).sum()
}

/// How the calls for a summary went.
pub fn step_of(run: Option<RunId>, mut records: Vec<CallRecord>) -> StepInfo {
    let started = records.first().map(|first| first.started);
    let mut step = StepInfo { run, started, call: records.pop(), ..StepInfo::default() };
    if !records.is_empty()
        && let Ok(records) = Json::of(&records)
    {
        step.extra.insert("earlierCalls".into(), records);
    }
    step
}

/// What is kept of a summary that came to nothing; `why` is `None` when somebody stopped it.
pub fn failed_summary_json(why: Option<&str>, usage: &Usage) -> Json {
    let data = serde_json::json!({
        "type": "custom",
        "customType": "quipu.summary",
        "data": { "error": why, "aborted": why.is_none(), "usage": usage },
    });
    Json::from(&data)
}
