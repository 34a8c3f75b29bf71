//! Going to another node of the session, with a summary of what is left behind when that is wanted. The move is made as
//! all are (`moving`); what was left stays in the graph.

use std::sync::Arc;

use quipu_protocol::{
    Ack, Entry, Event, JumpResult, Jumped, MoveFiles, NodeId, Refused, RunId, Summarize, Usage,
};
use quipu_transcript::{branch_summary, compaction_note};

use super::{
    Draft, Effect, Machine, MoveDone, MoveOrder, NoSummary, Phase, PlanOp, Purpose, ReplyId, Run, Stretch,
    Summary, Tag, Target, json_of_nothing, step_of,
};

/// Tokens of a branch's summary at most.
const BRANCH: u64 = 4_096;

/// A jump under way.
pub(super) struct Jumping {
    to: NodeId,
    /// Where the session stands.
    from: NodeId,
    summary: Option<Summarize>,
    label: Option<String>,
    /// What becomes of files.
    along: MoveFiles,
    /// Who waits to hear whether there is such a place.
    pub(super) reply: Option<ReplyId>,
    target: Option<Target>,
    usage: Option<Usage>,
    /// The summary that goes along.
    summed: Option<Draft>,
    /// Somebody stopped it before there was a call to stop.
    pub(super) stopped: bool,
    /// Somebody said something that is to be answered afterwards.
    pub(super) said: bool,
    /// Why it came to nothing, while that is being recorded.
    nothing: Option<JumpResult>,
}

impl Machine {
    /// Somebody asks for it while nothing runs.
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
            return self.out.push(Effect::Reply(reply, Err(Refused::Busy)));
        }
        let Some(from) = self.head.filter(|_| self.has_ref) else {
            return self.out.push(Effect::Reply(reply, Err(Refused::NotInSession { node: to })));
        };
        // It belongs to where it was said.
        if self.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_))) {
            let why = "the last message is not stored yet; send another message first";
            return self.out.push(Effect::Reply(reply, Err(Refused::Store { why: why.into() })));
        }
        let left = summary.is_some();
        let phase = Phase::Jumping(Box::new(Jumping {
            to,
            from,
            summary,
            label,
            along,
            reply: Some(reply),
            target: None,
            usage: None,
            summed: None,
            stopped: false,
            said: false,
            nothing: None,
        }));
        self.run = Some(Run { phase, ..Run::new(run.clone()) });
        self.out.push(Effect::Look { run, from, to, left });
    }

    pub(super) fn looked(&mut self, result: Result<Box<Target>, Refused>) {
        let Some(Run { id, aborting, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (run, to, from) = (id.clone(), jumping.to, jumping.from);
        let stopped = *aborting || jumping.stopped;
        let Some(reply) = jumping.reply.take() else { return };
        let target = match result {
            Ok(target) => *target,
            Err(refused) => {
                self.out.push(Effect::Reply(reply, Err(refused)));
                return self.jump_over(None);
            }
        };
        let left = target.left.clone();
        let summary = jumping.summary.take().filter(|_| !left.is_empty());
        jumping.target = Some(target);
        self.out.push(Effect::Reply(reply, Ok(Ack::Started(run.clone()))));
        self.emit(Event::JumpStarted { to });
        if stopped {
            return self.jump_over(Some(JumpResult::Aborted));
        }
        let Some(Summarize { focus }) = summary else { return self.order_jump(None) };
        let model = self.prefix.model.clone();
        let stretch = Stretch {
            purpose: Purpose::Branch,
            reason: None,
            previous: None,
            history: left,
            turn: Vec::new(),
            focus,
            window: if model.context_window == 0 { u64::MAX } else { model.context_window },
            max_tokens: self.summary_tokens().min(BRANCH),
            dollars: self.limits.max_cost,
        };
        let thinking = self.prefix.epoch.thinking;
        self.out.push(Effect::Summarize { run, head: from, model, thinking, stretch: Box::new(stretch) });
    }

    pub(super) fn branch_summarized(&mut self, result: Result<Summary, Box<NoSummary>>) {
        let most = self.carried_over();
        let Some(Run { id, cost, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let run = id.clone();
        let Some(target) = &jumping.target else { return };
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
                let data = json_of_nothing(why.as_deref(), &made.usage);
                let result = why.map_or(JumpResult::Aborted, JumpResult::Failed);
                if made.records.is_empty() {
                    return self.jump_over(Some(result));
                }
                // That calls were made and paid for is kept where the session stands.
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

    /// Has the session moved, with the summary when there is one. What that cost is in its node then.
    fn order_jump(&mut self, summary: Option<Draft>) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (run, head) = (id.clone(), jumping.from);
        jumping.summed.clone_from(&summary);
        let ops = summary.iter().map(|_| PlanOp::Forget { run: run.clone(), session: None }).collect();
        let (to, label, files) = (jumping.to, jumping.label.clone(), jumping.along);
        let order = MoveOrder::Jump { to, label, added: summary.into_iter().collect(), files };
        self.order_move(run, head, order, ops);
    }

    /// The jump was made, or why not; then what a summary cost is kept all the same.
    pub(super) fn jump_answered(&mut self, result: Result<Box<MoveDone>, Refused>) {
        let done = match result {
            Ok(done) => self.take_over(*done),
            Err(refused) => return self.jump_not_made(&refused.to_string()),
        };
        let MoveDone { moved, added, .. } = done;
        self.tell_problems(moved.problems);
        let session = self.session.clone();
        let Some(Run { phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let jumped = Jumped {
            session,
            from: moved.from,
            at: jumping.target.as_ref().map_or(moved.to, |target| target.at),
            head: moved.to,
            said: moved.said,
            summary: added.last().copied().filter(|_| jumping.summed.is_some()),
            usage: jumping.usage,
        };
        self.jump_over(Some(JumpResult::Done(Box::new(jumped))));
    }

    fn jump_not_made(&mut self, why: &str) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let failed = JumpResult::Failed(why.to_owned());
        let run = id.clone();
        match jumping.summed.take() {
            None => self.jump_over(Some(failed)),
            Some(draft) => {
                jumping.nothing = Some(failed);
                let kept = self.paid_for_nothing(draft, why);
                self.commit(Tag::Jumped, kept, vec![PlanOp::Forget { run, session: None }], false);
            }
        }
    }

    /// It is recorded that it came to nothing.
    pub(super) fn jump_kept(&mut self) {
        let Some(Run { phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let nothing = jumping.nothing.take();
        self.jump_over(nothing);
    }

    /// What is kept of a summary that came to nothing: the calls that were paid for.
    fn paid_for_nothing(&self, summary: Draft, why: &str) -> Vec<Draft> {
        let usage = match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(jumping)) => jumping.usage.unwrap_or_default(),
            _ => Usage::default(),
        };
        let entry = Arc::new(Entry::Meta(json_of_nothing(Some(why), &usage)));
        let paid = Some(summary).filter(|draft| draft.step.call.is_some());
        paid.map(|draft| Draft { entry, ..draft }).into_iter().collect()
    }

    /// Tells how it ended; `None` when it was refused.
    fn jump_over(&mut self, result: Option<JumpResult>) {
        let Some(Run { aborting, phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let said = jumping.said && !aborting;
        if let Some(result) = result {
            self.emit(Event::JumpEnded { result: Arc::new(result) });
        }
        self.answer_what_was_said(said);
    }
}
