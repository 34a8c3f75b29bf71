//! Lines that the user runs in the shell by hand, beside the agent: a row before they begin, a node when they are done.
//! While something is under way they wait for its end, since a conversation has its results right behind their calls.

use quipu_protocol::{
    Ack, BashExecutionMessage, Ending, Entry, Event, Message, NodeId, Notice, Refused, RunId, SessionId,
    StepInfo, UnixMs,
};

use super::{Draft, Effect, Machine, Phase, Plan, PlanOp, Ran, ReplyId, Run, Tag};

/// What the user runs in the shell.
#[derive(Default)]
pub(super) struct Shells {
    /// What runs: in which session its row is, and since when.
    running: Vec<(RunId, SessionId, UnixMs)>,
    /// What is done and no node yet, for something is under way.
    ran: Vec<Ran>,
}

#[cfg(test)]
impl Shells {
    /// Whether all that is done is on its way to a node.
    pub(super) fn is_empty(&self) -> bool {
        self.ran.is_empty()
    }
}

/// What the user ran becomes nodes.
#[derive(Default)]
pub(super) struct Noting {
    /// Something that was said meanwhile is to be answered afterwards.
    pub(super) said: bool,
}

impl Machine {
    pub(super) fn shell_begins(&mut self, line: String, hidden: bool, reply: ReplyId, run: RunId) {
        let shell = BashExecutionMessage {
            command: line,
            output: String::new(),
            exit_code: None,
            // As long as it is not known to have ended.
            cancelled: true,
            truncated: false,
            full_output_path: None,
            exclude_from_context: hidden.then_some(true),
            timestamp: self.now,
        };
        let op = PlanOp::Shell { session: None, run: run.clone(), shell: Box::new(shell), done: false };
        if self.run.is_none() && !self.has_ref {
            // A row belongs to a session that can be found again.
            self.run = Some(Run { phase: Phase::Noting(Noting::default()), ..Run::new(run.clone()) });
            return self.commit(
                Tag::Noted { reply: Some(reply), begins: Some(run) },
                Vec::new(),
                vec![op],
                true,
            );
        }
        let session = self.session.clone();
        self.side_commit(Tag::ShellBegins { reply, session, run }, vec![op], false);
    }

    pub(super) fn shell_begun(
        &mut self,
        reply: ReplyId,
        session: SessionId,
        run: RunId,
        result: Result<(), String>,
    ) {
        let answer = match result {
            Ok(()) => {
                self.shells.running.push((run.clone(), session, self.now));
                Ok(Ack::Started(run))
            }
            Err(text) => Err(Refused::Store { why: text }),
        };
        self.out.push(Effect::Reply(reply, answer));
    }

    pub(super) fn shell_ends(
        &mut self,
        run: RunId,
        shell: BashExecutionMessage,
        reply: ReplyId,
        fresh: RunId,
    ) {
        // One whose beginning could not be kept has no row.
        let running = &mut self.shells.running;
        let begun = running.iter().position(|(id, ..)| *id == run).map(|at| running.swap_remove(at));
        let (session, started) = match begun {
            Some((_, session, started)) => (session, Some(started)),
            None => (self.session.clone(), None),
        };
        let step = StepInfo {
            run: Some(run.clone()),
            started,
            duration_ms: started.and_then(|started| u64::try_from(self.now - started).ok()),
            ..StepInfo::default()
        };
        let draft = Draft::of(Entry::Message(Message::BashExecution(shell.clone())), step);
        let forget = PlanOp::Forget { run: run.clone(), session: Some(session.clone()) };
        if self.run.is_none() {
            self.run = Some(Run { phase: Phase::Noting(Noting::default()), ..Run::new(fresh) });
            let tag = Tag::Noted { reply: Some(reply), begins: None };
            return self.commit(tag, vec![draft], vec![forget], true);
        }
        let op = PlanOp::Shell { session: Some(session), run, shell: Box::new(shell), done: true };
        let ran = Box::new(Ran { draft, forget });
        self.side_commit(Tag::ShellEnds { reply, ran }, vec![op], true);
    }

    pub(super) fn shell_ended(&mut self, reply: ReplyId, ran: Ran, result: Result<(), String>) {
        self.out
            .push(Effect::Reply(reply, result.map(|()| Ack::Handled).map_err(|why| Refused::Store { why })));
        // Kept or not: what cannot be written now may be at the end of the run.
        self.shells.ran.push(ran);
        self.note_what_ran();
    }

    /// Lines that are done become nodes, when nothing is under way.
    pub(super) fn note_what_ran(&mut self) {
        if self.run.is_some() || self.shells.ran.is_empty() {
            return;
        }
        let (drafts, ops): (Vec<Draft>, Vec<PlanOp>) =
            self.shells.ran.drain(..).map(|ran| (ran.draft, ran.forget)).unzip();
        if self.closing.is_some() {
            self.unsaved.extend(drafts);
            return self.owed.extend(ops);
        }
        self.counter += 1;
        let run = format!("noted-{}", self.counter).into();
        self.run = Some(Run { phase: Phase::Noting(Noting::default()), ..Run::new(run) });
        self.commit(Tag::Noted { reply: None, begins: None }, drafts, ops, true);
    }

    pub(super) fn noted(
        &mut self,
        reply: Option<ReplyId>,
        begins: Option<RunId>,
        plan: &Plan,
        nodes: &[NodeId],
    ) {
        for (draft, node) in plan.drafts.iter().zip(nodes) {
            let Entry::Message(message @ Message::BashExecution(_)) = &*draft.entry else { continue };
            let (id, message) = (self.next_message(), std::sync::Arc::new(message.clone()));
            self.emit(Event::MessageStarted { id: id.clone(), message: message.clone(), attempt: 1 });
            self.emit(Event::MessageEnded { id, message, ending: Ending::Kept(*node) });
        }
        let ack = match begins {
            Some(run) => {
                self.shells.running.push((run.clone(), self.session.clone(), self.now));
                Ack::Started(run)
            }
            None => Ack::Handled,
        };
        self.out.extend(reply.map(|reply| Effect::Reply(reply, Ok(ack))));
        self.nothing_to_note();
    }

    pub(super) fn not_noted(&mut self, reply: Option<ReplyId>, text: String) {
        match reply {
            Some(reply) => self.out.push(Effect::Reply(reply, Err(Refused::Store { why: text }))),
            None => self.emit(Event::from(Notice::Note { text })),
        }
        self.nothing_to_note();
    }

    fn nothing_to_note(&mut self) {
        let Some(Run { aborting, phase: Phase::Noting(noting), .. }) = &self.run else { return };
        let said = noting.said && !*aborting;
        self.answer_what_was_said(said);
    }
}
