//! Lines that the user runs in the shell by hand, and what else of theirs is not in the store yet.

use std::sync::Arc;

use quipu_protocol::{
    AbortTarget, Ack, BashExecutionMessage, Command, Refusal, RunId, ShellSnapshot, UnixMs,
};

use super::folded::FoldedBlock;
use super::{Effect, Purpose, State};
use crate::editor::Draft;
use crate::keys::Action;
use crate::render;

/// A line that runs.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) id: u64,
    /// Its name in the session, once it is taken.
    pub(crate) run: Option<RunId>,
    pub(crate) line: String,
    pub(crate) hidden: bool,
    pub(crate) since: UnixMs,
    /// The end of what it printed so far.
    pub(crate) tail: Arc<str>,
    /// It is to end.
    stopped: bool,
}

/// The line that runs, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Shells {
    pub(crate) running: Option<Shell>,
    /// How many there were.
    count: u64,
}

impl Shells {
    fn begin(&mut self, run: Option<RunId>, line: &str, hidden: bool, since: UnixMs) {
        self.count += 1;
        let (id, line) = (self.count, line.to_owned());
        self.running = Some(Shell { id, run, line, hidden, since, tail: "".into(), stopped: false });
    }

    /// Takes the line of this name away, if it is the one that runs.
    fn take(&mut self, of: &RunId) -> Option<Shell> {
        self.running.take_if(|shell| shell.run.as_ref() == Some(of))
    }
}

impl State {
    /// Runs a line, or says why not: one at a time.
    pub(super) fn run_shell(&mut self, text: &str, line: &str, hidden: bool, effects: &mut Vec<Effect>) {
        if line.is_empty() {
            return;
        }
        if self.shell.running.is_some() || self.opening.under_way || self.opening.moving {
            self.editor.set_text(text);
            let stop = self.key_of(Action::Interrupt);
            self.hint = Some(match (self.opening.under_way, self.opening.moving) {
                (true, _) => "The session is being opened".into(),
                (_, true) => "The session is moving to another node".into(),
                _ => format!("A command is running; {stop} stops it"),
            });
            return effects.push(Effect::Draft);
        }
        self.shell.begin(None, line, hidden, self.now);
        let command = Command::Shell { line: line.to_owned(), hidden };
        effects.push(Effect::Send(command, Purpose::Shell));
    }

    /// The session took the line, or refused it.
    pub(super) fn shell_taken(&mut self, result: Result<Ack, Refusal>, effects: &mut Vec<Effect>) {
        match result {
            Ok(Ack::Started(run)) => self.shell_is(&run, effects),
            Ok(_) => {}
            Err(refused) => {
                let Some(shell) = self.shell.running.take() else { return };
                self.error(&format!("`{}` was not run.", shell.line), &refused.to_string());
                self.after_shell(effects);
            }
        }
    }

    fn shell_is(&mut self, run: &RunId, effects: &mut Vec<Effect>) {
        let Some(shell) = self.shell.running.as_mut().filter(|shell| shell.run.is_none()) else { return };
        shell.run = Some(run.clone());
        if shell.stopped {
            self.end_shell(effects);
        }
    }

    /// A line begins: ours, or one of somebody else who holds the session.
    pub(super) fn shell_started(&mut self, id: &RunId, line: &str, hidden: bool, effects: &mut Vec<Effect>) {
        match self.shell.running {
            Some(_) => self.shell_is(id, effects),
            None => self.shell.begin(Some(id.clone()), line, hidden, self.now),
        }
    }

    /// More of what a line prints.
    pub(super) fn shell_output(&mut self, of: &RunId, tail: &Arc<str>) {
        if let Some(mut shell) = self.shell.take(of) {
            self.tell_shell(&shell, tail, None);
            shell.tail = tail.clone();
            self.shell.running = Some(shell);
        }
    }

    /// Ends a line; it comes back into the editor.
    pub(super) fn stop_shell(&mut self, effects: &mut Vec<Effect>) {
        let Some(shell) = &mut self.shell.running else { return };
        shell.stopped = true;
        if self.editor.is_empty() {
            let mark = if shell.hidden { "!!" } else { "!" };
            self.editor.set_text(&format!("{mark}{}", shell.line));
            effects.push(Effect::Draft);
        }
        self.end_shell(effects);
    }

    fn end_shell(&self, effects: &mut Vec<Effect>) {
        if let Some(run) = self.shell.running.as_ref().and_then(|shell| shell.run.clone()) {
            effects.push(Effect::Send(Command::Abort { target: AbortTarget::Shell(run) }, Purpose::Else));
        }
    }

    /// A line is done.
    pub(super) fn shell_ended(
        &mut self,
        of: &RunId,
        done: &BashExecutionMessage,
        store_error: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        let shell = self.shell.take(of);
        match shell {
            Some(shell) if self.linear.is_some() => self.tell_shell(&shell, &done.output, Some(done)),
            _ => {
                let lines = render::shell(done, self.transcript.unfolded, self.size.columns, &self.theme);
                self.ready(lines);
                if !self.transcript.unfolded {
                    self.transcript.folded.add(FoldedBlock::Shell(Box::new(done.clone())));
                }
            }
        }
        if let Some(why) = store_error {
            let model_hint =
                if done.exclude_from_context == Some(true) { "" } else { ", and the model does not see it" };
            self.note(&format!("The output is not saved in the session{model_hint}: {why}"));
        }
        self.after_shell(effects);
    }

    /// What runs now, where events were not seen.
    pub(super) fn stand_shells(&mut self, shells: &[ShellSnapshot]) {
        let running = |run: &RunId| shells.iter().any(|shell| shell.id == *run);
        if self
            .shell
            .running
            .as_ref()
            .is_some_and(|shell| shell.run.as_ref().is_some_and(|run| !running(run)))
        {
            self.shell.running = None;
        }
        if let (None, Some(shell)) = (&self.shell.running, shells.first()) {
            self.shell.begin(Some(shell.id.clone()), &shell.line, shell.hidden, self.now);
        }
        for shell in shells {
            self.shell_output(&shell.id, &shell.tail);
        }
    }

    fn after_shell(&mut self, effects: &mut Vec<Effect>) {
        if self.activity.rests()
            && let Some(open) = self.opening.pending.take()
        {
            self.open(open, effects);
        }
        self.reopen(effects);
    }

    /// Whether the session is to be left alone, which is said.
    pub(crate) fn is_held(&mut self) -> bool {
        let stop = self.key_of(Action::Interrupt);
        if !self.activity.rests() {
            self.hint = Some(format!("The agent is working; {stop} stops it"));
        } else if self.shell.running.is_some() {
            self.hint = Some(format!("A command is running; {stop} stops it"));
        } else {
            return false;
        }
        true
    }

    /// What is being written, to be kept: behind what was said and is not in the store yet.
    pub fn draft(&self) -> Draft {
        let mut before = self.outbox.not_stored();
        let draft = self.editor.draft();
        if before.is_empty() {
            return draft;
        }
        if draft.is_empty() {
            before.truncate(before.trim_end().len());
        }
        draft.behind(before)
    }

    /// What waits for a session comes back into the editor.
    pub(super) fn give_back(&mut self) {
        let mut texts: Vec<String> = self.outbox.waiting.drain(..).map(|(_, text, _)| text).collect();
        let text = self.editor.text();
        if !text.trim().is_empty() {
            texts.push(text);
        }
        if !texts.is_empty() {
            self.editor.set_text(&texts.join("\n\n"));
        }
    }
}
