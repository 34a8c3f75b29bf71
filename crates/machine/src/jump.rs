//! Jumps to another node of the session, with an optional summary of the branch that is left. The move itself is made in
//! `moving`; the nodes that are left stay in the graph.

use std::sync::Arc;

use quipu_protocol::{
    Ack, Entry, Event, JumpReport, JumpResult, MoveFiles, NodeId, Refusal, RunId, Summarize, Usage,
};
use quipu_transcript::{branch_summary, compaction_note, forgotten_message};

use super::compacting::OUTDATED;
use super::{
    Draft, Effect, JumpTarget, Machine, MoveOrder, MoveResult, NoSummary, Phase, PlanOp, Purpose, ReplyId,
    Run, Stretch, Summary, Tag, failed_summary_json, step_of,
};

/// Tokens of a branch's summary at most.
const BRANCH: u64 = 4_096;

/// A jump in progress.
pub(super) struct JumpState {
    to: NodeId,
    /// The head before the jump.
    from: NodeId,
    summary: Option<Summarize>,
    /// What the summary is to look at above all.
    focus: Option<String>,
    label: Option<String>,
    /// What happens to files.
    along: MoveFiles,
    /// The sender that waits until the target is resolved.
    pub(super) reply: Option<ReplyId>,
    target: Option<JumpTarget>,
    usage: Option<Usage>,
    /// The summary to add at the target.
    summed: Option<Draft>,
    /// Whether it was aborted before there was a model call to cancel.
    pub(super) stopped: bool,
    /// Whether a prompt waits for the end of the jump.
    pub(super) has_prompt: bool,
    /// The result of a failed jump while its cost is recorded.
    nothing: Option<JumpResult>,
    /// A source of the summary under way was forgotten: it is not used.
    is_outdated: bool,
    /// Another summary is asked for when the calls for an outdated one are recorded.
    is_again: bool,
}

/// What becomes of a summary when some of what it is made of is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutdatedSummary {
    /// It is made of other nodes, or there is none.
    Unaffected,
    /// It is under way, and made anew.
    Pending,
    /// It is being stored.
    Stored,
}

impl JumpState {
    /// Takes what was forgotten out of what is summed up.
    pub(super) fn outdate(&mut self, forgotten: &[NodeId]) -> OutdatedSummary {
        let Some(target) = &mut self.target else { return OutdatedSummary::Unaffected };
        let mut is_source = false;
        for (message, node) in target.left.iter_mut().zip(&target.nodes) {
            if forgotten.contains(node) {
                let left = forgotten_message(message);
                is_source |= left != **message;
                *message = Arc::new(left);
            }
        }
        match is_source && self.nothing.is_none() {
            false => OutdatedSummary::Unaffected,
            true if self.summed.is_some() => OutdatedSummary::Stored,
            true => {
                self.is_outdated = true;
                OutdatedSummary::Pending
            }
        }
    }

    fn left_nodes(&self) -> &[NodeId] {
        self.target.as_ref().map(|target| target.nodes.as_slice()).unwrap_or_default()
    }
}

impl Machine {
    /// Handles the command of an idle session.
    pub(super) fn jump(
        &mut self,
        to: NodeId,
        summary: Option<Summarize>,
        label: Option<String>,
        along: MoveFiles,
        reply: ReplyId,
        run: RunId,
    ) {
        if self.run.is_some() {
            return self.out.push(Effect::Reply(reply, Err(Refusal::Busy)));
        }
        let Some(from) = self.head.filter(|_| self.has_ref) else {
            return self.out.push(Effect::Reply(reply, Err(Refusal::NotInSession { node: to })));
        };
        // The message belongs to the current branch.
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "the last message is not stored yet; send another message first";
            return self.out.push(Effect::Reply(reply, Err(Refusal::Store { why: why.into() })));
        }
        let left = summary.is_some();
        let phase = Phase::Jumping(Box::new(JumpState {
            to,
            from,
            summary,
            focus: None,
            label,
            along,
            reply: Some(reply),
            target: None,
            usage: None,
            summed: None,
            stopped: false,
            has_prompt: false,
            nothing: None,
            is_outdated: false,
            is_again: false,
        }));
        self.run = Some(Run { phase, ..Run::new(run.clone()) });
        self.out.push(Effect::ResolveTarget { run, from, to, left });
    }

    pub(super) fn target_resolved(&mut self, result: Result<Box<JumpTarget>, Refusal>) {
        let Some(Run { id, aborting, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (run, to) = (id.clone(), jumping.to);
        let stopped = *aborting || jumping.stopped;
        let Some(reply) = jumping.reply.take() else { return };
        let target = match result {
            Ok(target) => *target,
            Err(refused) => {
                self.out.push(Effect::Reply(reply, Err(refused)));
                return self.finish_jump(None);
            }
        };
        let summary = jumping.summary.take().filter(|_| !target.left.is_empty());
        jumping.target = Some(target);
        let is_wanted = summary.is_some();
        jumping.focus = summary.and_then(|Summarize { focus }| focus);
        self.out.push(Effect::Reply(reply, Ok(Ack::Started(run))));
        self.emit(Event::JumpStarted { to });
        if stopped {
            return self.finish_jump(Some(JumpResult::Aborted));
        }
        if is_wanted { self.ask_branch_summary() } else { self.order_jump(None) }
    }

    /// Asks for a summary of what is left, as it is now.
    fn ask_branch_summary(&mut self) {
        let Some(Run { id, cost, phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let Some(target) = &jumping.target else { return };
        let (run, head, focus) = (id.clone(), jumping.from, jumping.focus.clone());
        let dollars = self.limits.max_cost.map(|max| max - cost);
        let left = target.left.clone();
        let model = self.prefix.model.clone();
        let stretch = Stretch {
            purpose: Purpose::Branch,
            reason: None,
            is_again: false,
            previous: None,
            history: left,
            turn: Vec::new(),
            first_kept: None,
            focus,
            window: if model.context_window == 0 { u64::MAX } else { model.context_window },
            max_tokens: self.summary_tokens().min(BRANCH),
            dollars,
            safeguard: None,
        };
        let thinking = self.prefix.epoch.thinking;
        self.out.push(Effect::Summarize { run, head, model, thinking, stretch: Box::new(stretch) });
    }

    /// The nodes of the branch that a jump leaves, where it is summed up.
    pub fn left_nodes(&self) -> &[NodeId] {
        match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(jumping)) => jumping.left_nodes(),
            _ => &[],
        }
    }

    pub(super) fn branch_summarized(&mut self, result: Result<Summary, Box<NoSummary>>) {
        let most = self.carried_over();
        let Some(run) = &mut self.run else { return };
        let mut spent = run.spent();
        let Run { id, cost, aborting, phase: Phase::Jumping(jumping), .. } = run else { return };
        let run = id.clone();
        let is_ended = *aborting || jumping.stopped;
        let is_outdated = std::mem::take(&mut jumping.is_outdated);
        let Some(target) = &jumping.target else { return };
        let result = match result {
            Ok(Summary { made, .. }) if is_outdated => Err(Box::new(NoSummary { why: None, made })),
            result => result,
        };
        let (draft, nothing) = match result {
            Ok(Summary { text, made, .. }) => {
                *cost += made.cost();
                jumping.usage = Some(made.usage);
                let note = compaction_note(&text, None, &[], &target.files, most);
                let entry = branch_summary(&note, jumping.from, &target.files, &made.usage);
                (Draft::of(Entry::Meta(entry), step_of(Some(run), made.records)), None)
            }
            Err(none) => {
                let NoSummary { why, made } = *none;
                *cost += made.cost();
                spent += made.cost();
                let is_spent = self.limits.max_cost.is_some_and(|max| spent >= max);
                let is_again = is_outdated && !is_ended && !is_spent;
                let why = if is_outdated && !is_ended { Some(OUTDATED.to_owned()) } else { why };
                let data = failed_summary_json(why.as_deref(), &made.usage);
                let result = why.map_or(JumpResult::Aborted, JumpResult::Failed);
                if made.records.is_empty() {
                    return if is_again { self.ask_branch_summary() } else { self.finish_jump(Some(result)) };
                }
                jumping.is_again = is_again;
                // The calls were made and paid for: record them at the current head.
                let step = step_of(Some(run), made.records);
                (Draft::of(Entry::Meta(data), step), Some(result))
            }
        };
        match nothing {
            None => self.order_jump(Some(draft)),
            Some(nothing) => {
                let run = id.clone();
                jumping.nothing = Some(nothing);
                let ops = vec![PlanOp::Forget { run, session: None }];
                self.commit(Tag::Jumped, vec![draft], ops, false);
            }
        }
    }

    /// Orders the move, with the summary if there is one. The node of the summary has its cost.
    fn order_jump(&mut self, summary: Option<Draft>) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (run, head) = (id.clone(), jumping.from);
        jumping.summed.clone_from(&summary);
        let ops = summary.iter().map(|_| PlanOp::Forget { run: run.clone(), session: None }).collect();
        let (to, label, files) = (jumping.to, jumping.label.clone(), jumping.along);
        let order = MoveOrder::Jump { to, label, added: summary.into_iter().collect(), files };
        self.order_move(run, head, order, ops);
    }

    /// Handles the result of the move. The cost of a summary is recorded even if the move failed.
    pub(super) fn jump_answered(&mut self, result: Result<Box<MoveResult>, Refusal>) {
        let done = match result {
            Ok(done) => self.take_over(*done),
            Err(refused) => return self.on_jump_failed(&refused.to_string()),
        };
        let MoveResult { moved, added, .. } = done;
        self.emit_problems(moved.problems);
        let session = self.session.clone();
        let Some(Run { phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let jumped = JumpReport {
            session,
            from: moved.from,
            at: jumping.target.as_ref().map_or(moved.to, |target| target.at),
            head: moved.to,
            prompt: moved.prompt,
            summary: added.last().copied().filter(|_| jumping.summed.is_some()),
            usage: jumping.usage,
        };
        self.finish_jump(Some(JumpResult::Done(Box::new(jumped))));
    }

    fn on_jump_failed(&mut self, why: &str) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let failed = JumpResult::Failed(why.to_owned());
        let run = id.clone();
        match jumping.summed.take() {
            None => self.finish_jump(Some(failed)),
            Some(draft) => {
                jumping.nothing = Some(failed);
                let kept = self.record_failed_summary(draft, why);
                self.commit(Tag::Jumped, kept, vec![PlanOp::Forget { run, session: None }], false);
            }
        }
    }

    /// The record of a failed jump is committed.
    pub(super) fn jump_committed(&mut self) {
        let head = self.head;
        let Some(Run { aborting, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let nothing = jumping.nothing.take();
        let is_ended = *aborting || jumping.stopped;
        if std::mem::take(&mut jumping.is_again) && !is_ended {
            // The record stands behind what is left.
            jumping.from = head.unwrap_or(jumping.from);
            return self.ask_branch_summary();
        }
        self.finish_jump(nothing);
    }

    /// The entry that records the model calls of an unused summary.
    fn record_failed_summary(&self, summary: Draft, why: &str) -> Vec<Draft> {
        let usage = match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(jumping)) => jumping.usage.unwrap_or_default(),
            _ => Usage::default(),
        };
        let entry = Arc::new(Entry::Meta(failed_summary_json(Some(why), &usage)));
        let paid = Some(summary).filter(|draft| draft.step.call.is_some());
        paid.map(|draft| Draft { entry, ..draft }).into_iter().collect()
    }

    /// Emits the result and settles; `None` when the jump was refused.
    fn finish_jump(&mut self, result: Option<JumpResult>) {
        let Some(Run { aborting, phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let has_prompt = jumping.has_prompt && !aborting;
        if let Some(result) = result {
            self.emit(Event::JumpEnded { result: Arc::new(result) });
        }
        self.answer_queued_prompt(has_prompt);
    }
}
