//! Lines that a person runs in the shell, beside the agent: a row before they begin, a node when they are done. While
//! something is under way they wait for its end, since a conversation has its results right behind their calls.

use std::sync::Arc;

use quipu_protocol::{
    Ack, BashExecutionMessage, Ending, Entry, Event, Json, Message, NodeId, Notice, Provenance, RunId,
    SessionId, StepInfo, UnixMs,
};

use super::{
    Draft, Effect, FinishedShell, Machine, Phase, Plan, PlanOp, ReplyId, Run, ShellResult, ShellRunError,
    Tag, record_hooks,
};

/// Bytes of what a line printed that are kept, and that the model is told at most: its end.
const KEPT: usize = 50_000;

/// What people run in the shell.
#[derive(Default)]
pub(super) struct Shells {
    /// What runs, or is about to.
    running: Vec<RunningShell>,
    /// What is done and no node yet, for something is under way.
    ran: Vec<FinishedShell>,
}

/// A line that runs, or is about to.
struct RunningShell {
    run: RunId,
    /// Where its row is.
    session: SessionId,
    started: UnixMs,
    line: String,
    hidden: bool,
    /// What hooks did to it.
    hooks: Vec<Json>,
    /// Its row was tried.
    begun: bool,
    /// It is to end.
    stopped: bool,
}

impl Shells {
    /// Whether something runs or is about to.
    pub(super) fn run(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether all that is done is on its way to a node.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.ran.is_empty()
    }
}

/// What people ran becomes nodes.
#[derive(Default)]
pub(super) struct NoteState {
    /// Something that was said meanwhile is to be answered afterwards.
    pub(super) has_prompt: bool,
}

impl Machine {
    pub(super) fn shell(
        &mut self,
        (line, hidden, hooks): (String, bool, Vec<Json>),
        reply: ReplyId,
        run: RunId,
    ) {
        let shell = BashExecutionMessage {
            command: line.clone(),
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
        let (session, started) = (self.session.clone(), self.now);
        self.shells.running.push(RunningShell {
            run: run.clone(),
            session: session.clone(),
            started,
            line,
            hidden,
            hooks,
            begun: false,
            stopped: false,
        });
        if self.run.is_none() && !self.has_ref {
            // A row belongs to a session that can be found again.
            self.run = Some(Run { phase: Phase::Noting(NoteState::default()), ..Run::new(run.clone()) });
            return self.commit(Tag::NotedBegin { reply, run }, Vec::new(), vec![op], true);
        }
        self.side_commit(Tag::ShellBegins { reply, session, run }, vec![op], false);
    }

    /// Its row is there, or cannot be: what nobody can record may be what makes room again, so it runs all the same, and
    /// its end tells that it was not kept.
    pub(super) fn shell_begun(&mut self, reply: ReplyId, session: SessionId, run: &RunId) {
        let closing = self.closing.is_some();
        let Some(shell) = self.shells.running.iter_mut().find(|shell| shell.run == *run) else { return };
        (shell.session, shell.started, shell.begun) = (session, self.now, true);
        let event = Event::ShellStarted { id: run.clone(), line: shell.line.clone(), hidden: shell.hidden };
        let stops = shell.stopped || closing;
        self.out.push(Effect::Reply(reply, Ok(Ack::Started(run.clone()))));
        self.emit(event);
        self.out.push(Effect::RunShell { run: run.clone() });
        if stops {
            self.out.push(Effect::CancelShell { run: run.clone() });
        }
    }

    pub(super) fn stop_shell(&mut self, run: &RunId) {
        if let Some(shell) = self.shells.running.iter_mut().find(|shell| shell.run == *run) {
            shell.stopped = true;
            if shell.begun {
                self.out.push(Effect::CancelShell { run: run.clone() });
            }
        }
    }

    pub(super) fn stop_shells(&mut self) {
        let runs: Vec<RunId> = self.shells.running.iter().map(|shell| shell.run.clone()).collect();
        runs.iter().for_each(|run| self.stop_shell(run));
    }

    pub(super) fn shell_output(&mut self, run: RunId, tail: Arc<str>) {
        if self.shells.running.iter().any(|shell| shell.run == run) {
            self.emit(Event::ShellOutput { id: run, tail });
        }
    }

    pub(super) fn shell_ended(&mut self, run: &RunId, end: Result<ShellResult, ShellRunError>) {
        let Some(at) = self.shells.running.iter().position(|shell| shell.run == *run) else { return };
        let shell = self.shells.running.swap_remove(at);
        let mut step = StepInfo {
            run: Some(run.clone()),
            started: Some(shell.started),
            duration_ms: u64::try_from(self.now - shell.started).ok(),
            provenance: Some(Provenance::shell()),
            ..StepInfo::default()
        };
        record_hooks(&mut step, &shell.hooks);
        let session = shell.session;
        let message = shell_message(shell.line, shell.hidden, end, self.now);
        let draft = Draft::of(Entry::Message(Message::BashExecution(message.clone())), step);
        let forget = PlanOp::Forget { run: run.clone(), session: Some(session.clone()) };
        if self.run.is_none() {
            let tag = Tag::Noted { ended: Some(run.clone()) };
            self.begin_noting();
            return self.commit(tag, vec![draft], vec![forget], true);
        }
        let op =
            PlanOp::Shell { session: Some(session), run: run.clone(), shell: Box::new(message), done: true };
        let shell = Box::new(FinishedShell { run: run.clone(), draft, forget });
        self.side_commit(Tag::ShellEnds { shell }, vec![op], true);
    }

    pub(super) fn shell_committed(&mut self, ran: FinishedShell, result: Result<(), String>) {
        self.emit_shell_ended(&ran.run, &ran.draft, result.err());
        // Kept or not: what cannot be written now may be at the end of the run.
        self.shells.ran.push(ran);
        self.commit_finished_shells();
    }

    fn emit_shell_ended(&mut self, run: &RunId, draft: &Draft, store_error: Option<String>) {
        if let Entry::Message(Message::BashExecution(shell)) = &*draft.entry {
            let (id, result) = (run.clone(), Arc::new(shell.clone()));
            self.emit(Event::ShellEnded { id, result, store_error });
        }
    }

    pub(super) fn begin_noting(&mut self) {
        self.counter += 1;
        let run = format!("noted-{}", self.counter).into();
        self.run = Some(Run { phase: Phase::Noting(NoteState::default()), ..Run::new(run) });
    }

    /// Lines that are done become nodes, when nothing is under way.
    pub(super) fn commit_finished_shells(&mut self) {
        if self.run.is_some() || self.shells.ran.is_empty() {
            return;
        }
        let (drafts, ops): (Vec<Draft>, Vec<PlanOp>) =
            self.shells.ran.drain(..).map(|ran| (ran.draft, ran.forget)).unzip();
        if self.closing.is_some() && self.last_try {
            self.unsaved.extend(drafts);
            return self.deferred_ops.extend(ops);
        }
        self.begin_noting();
        self.commit(Tag::Noted { ended: None }, drafts, ops, true);
    }

    pub(super) fn noted(&mut self, ended: Option<&RunId>, plan: &Plan, nodes: &[NodeId]) {
        for (draft, node) in plan.drafts.iter().zip(nodes) {
            let Entry::Message(message @ (Message::BashExecution(_) | Message::Custom(_))) = &*draft.entry
            else {
                continue;
            };
            let (id, message) = (self.next_message(), Arc::new(message.clone()));
            self.emit(Event::MessageStarted { id: id.clone(), message: message.clone(), attempt: 1 });
            self.emit(Event::MessageEnded { id, message, ending: Ending::Committed(*node) });
            if ended.is_some() && draft.step.run.as_ref() == ended {
                self.emit_shell_ended(&draft.step.run.clone().unwrap_or_else(|| "".into()), draft, None);
            }
        }
        self.finish_noting();
    }

    /// The session has a name now, or cannot get one: a line that was said first begins.
    pub(super) fn noted_begin(&mut self, reply: ReplyId, run: &RunId) {
        let session = self.session.clone();
        self.shell_begun(reply, session, run);
        self.finish_noting();
    }

    /// What was to be noted waits in `unsaved`.
    pub(super) fn on_shell_note_failed(&mut self, ended: Option<&RunId>, text: String) {
        let of = |draft: &&Draft| ended.is_some() && draft.step.run.as_ref() == ended;
        match self.unsaved.iter().find(of).cloned().zip(ended) {
            Some((draft, run)) => self.emit_shell_ended(run, &draft, Some(text)),
            None => self.emit(Event::from(Notice::Note { text })),
        }
        self.finish_noting();
    }

    fn finish_noting(&mut self) {
        let Some(Run { aborting, phase: Phase::Noting(state), .. }) = &self.run else { return };
        let has_prompt = state.has_prompt && !*aborting;
        self.answer_queued_prompt(has_prompt);
    }
}

/// What came of a line, as the conversation has it.
pub fn shell_message(
    line: String,
    hidden: bool,
    end: Result<ShellResult, ShellRunError>,
    now: UnixMs,
) -> BashExecutionMessage {
    let (output, exit_code, cancelled, truncated, full_output_path) = match end {
        Ok(done) => {
            let from = done.output.ceil_char_boundary(done.output.len().saturating_sub(KEPT));
            let cut = done.cut || from > 0;
            (done.output[from..].to_owned(), done.code, done.code.is_none(), cut, done.path)
        }
        Err(ShellRunError::NotStarted { why }) => (format!("[Not run: {why}]"), None, false, false, None),
        Err(why @ (ShellRunError::Lost { .. } | ShellRunError::Broken)) => {
            (format!("[End unknown: {why}]"), None, false, false, None)
        }
    };
    BashExecutionMessage {
        command: line,
        output,
        exit_code,
        cancelled,
        truncated,
        full_output_path,
        exclude_from_context: hidden.then_some(true),
        timestamp: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_long_output_is_kept_and_names_its_file() {
        let done = |output: String, path: Option<&str>| {
            Ok(ShellResult { output, code: Some(0), cut: path.is_some(), path: path.map(str::to_owned) })
        };
        let short = shell_message("ls".into(), false, done("a\n".into(), None), 7);
        assert_eq!(
            (short.output.as_str(), short.truncated, short.exclude_from_context),
            ("a\n", false, None)
        );
        let long =
            shell_message("ls".into(), true, done(format!("ü{}", "x".repeat(KEPT - 1)), Some("/o")), 7);
        assert_eq!(
            (long.output.len(), long.truncated, long.exclude_from_context),
            (KEPT - 1, true, Some(true))
        );
        assert_eq!(long.full_output_path.as_deref(), Some("/o"));
        let none =
            shell_message("ls".into(), false, Err(ShellRunError::NotStarted { why: "no shell".into() }), 7);
        assert_eq!(
            (none.output.as_str(), none.exit_code, none.cancelled),
            ("[Not run: no shell]", None, false)
        );
        let broken = shell_message("ls".into(), false, Err(ShellRunError::Broken), 7);
        assert!(broken.output.starts_with("[End unknown: ") && broken.output.contains("may have run"));
    }
}
