//! Going to another node of the session, with a summary of what is left behind when that is wanted. One commit moves the
//! ref and adds the summary; what was left stays in the graph.

use std::sync::Arc;

use quipu_protocol::{
    Ack, Entry, Event, JumpResult, Jumped, MoveFiles, NodeId, Refused, RunId, Summarize, Usage, UserInput,
};
use quipu_transcript::{branch_summary, compaction_note};

use super::leaving::place_of;
use super::{
    Draft, Effect, Leap, Left, Machine, NoSummary, Phase, Place, Plan, PlanOp, Purpose, ReplyId, Run,
    Stretch, Summary, Tag, json_of_nothing, step_of,
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
    reply: Option<ReplyId>,
    place: Option<Place>,
    usage: Option<Usage>,
    /// The summary that goes along to a move with files.
    pub(super) summed: Option<Draft>,
    /// Somebody stopped it before there was a call to stop.
    pub(super) stopped: bool,
    /// Somebody said something that is to be answered afterwards.
    pub(super) said: bool,
    /// Its commit is under way.
    leaping: bool,
    /// Why it came to nothing, while that is being recorded.
    nothing: Option<JumpResult>,
}

impl Jumping {
    /// Where it goes, and the label of that.
    pub(super) fn order(&self) -> (NodeId, Option<String>) {
        (self.to, self.label.clone())
    }
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
            let why = "what was said last could not be stored yet; say something here first";
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
            place: None,
            usage: None,
            summed: None,
            stopped: false,
            said: false,
            leaping: false,
            nothing: None,
        }));
        self.run = Some(Run { phase, ..Run::new(run.clone()) });
        self.out.push(Effect::Look { run, from, to, left });
    }

    pub(super) fn looked(&mut self, result: Result<Box<Place>, Refused>) {
        let Some(Run { id, aborting, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let (run, to, from) = (id.clone(), jumping.to, jumping.from);
        let stopped = *aborting || jumping.stopped;
        let Some(reply) = jumping.reply.take() else { return };
        let place = match result {
            Ok(place) => *place,
            Err(refused) => {
                self.out.push(Effect::Reply(reply, Err(refused)));
                return self.jump_over(None);
            }
        };
        let (at, left) = (place.at, place.left.clone());
        let summary = jumping.summary.take().filter(|_| !left.is_empty());
        let stays =
            at == from && jumping.label.is_none() && !matches!(jumping.along, MoveFiles::Restore { .. });
        jumping.place = Some(place);
        self.out.push(Effect::Reply(reply, Ok(Ack::Started(run.clone()))));
        self.emit(Event::JumpStarted { to });
        if stopped {
            return self.jump_over(Some(JumpResult::Aborted));
        }
        let Some(Summarize { focus }) = summary else {
            if stays {
                let done = self.jumped(None, from);
                return self.jump_over(done);
            }
            return self.leap(None);
        };
        let model = self.prefix.model.clone();
        let stretch = Stretch {
            purpose: Purpose::Branch,
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
        let Some(place) = &jumping.place else { return };
        let (draft, nothing) = match result {
            Ok(Summary { text, made }) => {
                *cost += made.cost();
                jumping.usage = Some(made.usage);
                let note = compaction_note(&text, None, &[], &place.files, most);
                let entry = branch_summary(&note, jumping.from, &place.files, &made.usage);
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
            None => self.leap(Some(draft)),
            Some(nothing) => {
                let run = id.clone();
                jumping.nothing = Some(nothing);
                let ops = vec![PlanOp::Forget { run, session: None }];
                self.commit(Tag::Jumped, vec![draft], ops, false);
            }
        }
    }

    /// Moves the ref, with the summary when there is one.
    fn leap(&mut self, summary: Option<Draft>) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let Some(place) = &jumping.place else { return };
        if let MoveFiles::Restore { .. } = jumping.along {
            let along = jumping.along;
            return self.leap_with_files(summary, along);
        }
        jumping.leaping = true;
        let mut drafts = Vec::new();
        if place.epoch != self.prefix.epoch {
            drafts.push(Draft::new(Entry::Epoch(self.prefix.epoch.clone())));
        }
        let ops = match &summary {
            Some(_) => vec![PlanOp::Forget { run: id.clone(), session: None }],
            None => Vec::new(),
        };
        drafts.extend(summary);
        self.commit(Tag::Jumped, drafts, ops, true);
    }

    /// What a commit is appended to, and whether the ref goes there by it.
    pub(super) fn goes_to(&self, tag: &Tag) -> (Option<NodeId>, Option<Leap>) {
        match (tag, self.run.as_ref().map(|run| &run.phase)) {
            (Tag::Jumped, Some(Phase::Jumping(jumping))) if jumping.leaping => {
                let (from, label) = (jumping.from, jumping.label.clone());
                let leap = Leap { from, label, carries: None, files: None };
                (jumping.place.as_ref().map(|place| place.at), Some(leap))
            }
            _ => (self.head, None),
        }
    }

    /// The ref has moved: the conversation is the one that ends there.
    pub(super) fn arrive(&mut self, plan: &Plan) {
        let place = match self.run.as_mut().map(|run| &mut run.phase) {
            Some(Phase::Jumping(jumping)) => jumping.place.as_mut(),
            Some(Phase::Leaving(departing)) => Some(place_of(departing)),
            _ => None,
        };
        let Some(place) = place else { return };
        self.head = plan.parent;
        let mut taken = Place {
            messages: std::mem::take(&mut place.messages),
            nodes: std::mem::take(&mut place.nodes),
            compacted: place.compacted.take(),
            prunes: std::mem::take(&mut place.prunes),
            ..place.clone()
        };
        self.converse(&mut taken);
    }

    /// The conversation is that of a place.
    pub(super) fn converse(&mut self, place: &mut Place) {
        self.messages = std::mem::take(&mut place.messages);
        self.nodes = std::mem::take(&mut place.nodes);
        self.compacted = place.compacted.take();
        let records = if self.prune.enabled { std::mem::take(&mut place.prunes) } else { Vec::new() };
        let measured = self.left.measured;
        self.left = Left::of(&records, &mut self.messages, &self.nodes, place.old, self.prefix_tokens);
        self.left.measured = self.left.measured.or(measured);
        self.estimated = self.estimate(..);
    }

    /// A jump was made outside.
    pub(super) fn jump_made(&mut self, from: NodeId, head: NodeId, said: Option<UserInput>) {
        let session = self.session.clone();
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &self.run else { return };
        let run = id.clone();
        let at = jumping.place.as_ref().map_or(head, |place| place.at);
        let usage = jumping.usage;
        let summed = jumping.summed.is_some();
        if summed {
            // What the summary cost is in its node now.
            let op = PlanOp::Forget { run: run.clone(), session: None };
            self.side_commit(Tag::Unsent { session: session.clone(), run }, vec![op], false);
        }
        let jumped = Jumped { session, from, at, head, said, summary: None, usage };
        self.jump_over(Some(JumpResult::Done(Box::new(jumped))));
    }

    /// It was not; what a summary cost is kept all the same.
    pub(super) fn jump_not_made(&mut self, why: &str) {
        let Some(Run { id, phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        let failed = JumpResult::Failed(why.to_owned());
        let run = id.clone();
        match jumping.summed.take() {
            None => self.jump_over(Some(failed)),
            Some(draft) => {
                jumping.nothing = Some(failed);
                let kept = self.paid_for_nothing(vec![draft], why);
                self.commit(Tag::Jumped, kept, vec![PlanOp::Forget { run, session: None }], false);
            }
        }
    }

    pub(super) fn jump_kept(&mut self, plan: &Plan, nodes: &[NodeId]) {
        let Some(Run { phase: Phase::Jumping(jumping), .. }) = &mut self.run else { return };
        if let Some(nothing) = jumping.nothing.take() {
            return self.jump_over(Some(nothing));
        }
        let (from, summed) = (jumping.from, jumping.usage.is_some());
        let Some(head) = self.head else { return };
        let summary = plan.drafts.len().checked_sub(1).filter(|_| summed).and_then(|at| nodes.get(at));
        self.emit(Event::HeadMoved { from: Some(from), to: head });
        let done = self.jumped(summary.copied(), head);
        self.jump_over(done);
    }

    fn jumped(&self, summary: Option<NodeId>, head: NodeId) -> Option<JumpResult> {
        let Some(Run { phase: Phase::Jumping(jumping), .. }) = &self.run else { return None };
        let Jumping { from, place, usage, .. } = &**jumping;
        let place = place.as_ref()?;
        Some(JumpResult::Done(Box::new(Jumped {
            session: self.session.clone(),
            from: *from,
            at: place.at,
            head,
            said: place.said.clone(),
            summary,
            usage: *usage,
        })))
    }

    /// What is kept of drafts that came to nothing: the calls that were paid for.
    pub(super) fn paid_for_nothing(&self, drafts: Vec<Draft>, why: &str) -> Vec<Draft> {
        let usage = match self.run.as_ref().map(|run| &run.phase) {
            Some(Phase::Jumping(jumping)) => jumping.usage.unwrap_or_default(),
            _ => Usage::default(),
        };
        let paid = drafts.into_iter().filter(|draft| draft.step.call.is_some());
        let entry = Arc::new(Entry::Meta(json_of_nothing(Some(why), &usage)));
        paid.map(|draft| Draft { entry: entry.clone(), ..draft }).collect()
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
