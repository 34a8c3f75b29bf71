//! Lines that the user runs in the shell by hand, and what else of theirs is not in the store yet.

use std::sync::Arc;

use quipu_protocol::UnixMs;

use super::{Effect, State};
use crate::editor::Draft;
use crate::keys::Action;
use crate::{ShellRan, render};

/// A line that runs.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) id: u64,
    pub(crate) line: String,
    pub(crate) hidden: bool,
    pub(crate) since: UnixMs,
    /// The end of what it printed so far.
    pub(crate) tail: Arc<str>,
}

impl State {
    /// Runs a line, or says why not: one at a time.
    pub(super) fn run_shell(&mut self, text: &str, line: &str, hidden: bool, effects: &mut Vec<Effect>) {
        if line.is_empty() {
            return;
        }
        if self.shell.is_some() || self.opening {
            self.editor.set_text(text);
            let stop = self.key_of(Action::Interrupt);
            self.hint = Some(match self.opening {
                true => "The session is being opened".into(),
                false => format!("A command runs; {stop} stops it"),
            });
            return effects.push(Effect::Draft);
        }
        self.shells += 1;
        let (id, line) = (self.shells, line.to_owned());
        self.shell = Some(Shell { id, line: line.clone(), hidden, since: self.now, tail: "".into() });
        effects.push(Effect::Shell(id, line, hidden));
    }

    /// More of what a line prints.
    pub(super) fn shell_output(&mut self, of: u64, tail: Arc<str>) {
        if let Some(mut shell) = self.shell.take_if(|shell| shell.id == of) {
            self.tell_shell(&shell, &tail, None);
            shell.tail = tail;
            self.shell = Some(shell);
        }
    }

    /// Ends a line; it comes back into the editor.
    pub(super) fn stop_shell(&mut self, effects: &mut Vec<Effect>) {
        let Some(shell) = &self.shell else { return };
        if self.editor.is_empty() {
            let mark = if shell.hidden { "!!" } else { "!" };
            self.editor.set_text(&format!("{mark}{}", shell.line));
            effects.push(Effect::Draft);
        }
        effects.push(Effect::StopShell);
    }

    /// A line is done.
    pub(super) fn shell_done(&mut self, of: u64, ran: ShellRan, effects: &mut Vec<Effect>) {
        let Some(shell) = self.shell.take_if(|shell| shell.id == of) else { return };
        match ran.done {
            Ok(done) if self.linear.is_some() => self.tell_shell(&shell, &done.output, Some(&done)),
            Ok(done) => {
                let (columns, theme) = (self.size.columns, &self.theme);
                let lines = render::shell(&shell.line, &done, shell.hidden, self.unfolded, columns, theme);
                self.ready(lines);
            }
            Err(error) => self.error(&format!("`{}` was not run.", shell.line), &error),
        }
        if let Some(why) = ran.lost {
            let told = if shell.hidden { "" } else { ", and the model is not told" };
            self.note(&format!("The session does not have that{told}: {why}"));
        }
        if self.working.is_none()
            && self.busy.is_none()
            && let Some(open) = self.pending.take()
        {
            self.open(open, effects);
        }
        self.reopen(effects);
    }

    /// Whether the session is to be left alone, which is said.
    pub(super) fn is_held(&mut self) -> bool {
        let stop = self.key_of(Action::Interrupt);
        if self.working.is_some() || self.busy.is_some() {
            self.hint = Some(format!("The agent is working; {stop} stops it"));
        } else if self.shell.is_some() {
            self.hint = Some(format!("A command runs; {stop} stops it"));
        } else {
            return false;
        }
        true
    }

    /// What is being written, to be kept: behind what was said and is not in the store yet.
    pub fn draft(&self) -> Draft {
        let texts = self.unsent.iter().chain(self.waiting.iter().map(|(_, text, _)| text));
        let mut before: String = texts.map(|text| format!("{text}\n\n")).collect();
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
        let mut texts: Vec<String> = self.waiting.drain(..).map(|(_, text, _)| text).collect();
        let text = self.editor.text();
        if !text.trim().is_empty() {
            texts.push(text);
        }
        if !texts.is_empty() {
            self.editor.set_text(&texts.join("\n\n"));
        }
    }
}
