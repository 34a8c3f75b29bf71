//! Asking: on the terminal, or by lines of JSON.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quipu::Grant;
use quipu_protocol::{Answer, Ask, AskId};
use quipu_rpc::{ANSWER_LIMIT, AskAnswer, BadAnswer, Choice};
use tokio::sync::mpsc;

use crate::follow::SavedPermissions;
use crate::permissions::Record;
use crate::print::{Paint, note, note_in};

/// What answers do.
pub(crate) struct Desk {
    pub(crate) permissions: Arc<SavedPermissions>,
    /// Keeps what is allowed for good; `None` where nothing is kept.
    record: Option<Record>,
}

impl Desk {
    pub(crate) fn new(permissions: Arc<SavedPermissions>, record: Option<Record>) -> Self {
        Self { permissions, record }
    }

    /// What may be answered.
    pub(crate) fn choices(&self, ask: &Ask) -> &'static [Choice] {
        match (self.permissions.may_last(&grant(ask)), &self.record) {
            (true, Some(_)) => &[Choice::Once, Choice::Session, Choice::Always, Choice::No],
            (true, None) => &[Choice::Once, Choice::Session, Choice::No],
            (false, _) => &[Choice::Once, Choice::No],
        }
    }

    /// Takes an answer; `None` when it may not be given.
    pub(crate) fn take(&self, ask: &Ask, choice: Choice, reason: Option<String>) -> Option<Answer> {
        let choice = match choice {
            _ if self.choices(ask).contains(&choice) => choice,
            // It may have been offered before the file got them: then the yes is for this time, and if it is not the file
            // that was shown, it is asked again.
            Choice::Session | Choice::Always if has_other_names(ask) => Choice::Once,
            _ => return None,
        };
        match choice {
            Choice::Once => {}
            Choice::No => return Some(Answer::Deny { reason }),
            Choice::Session => {
                self.permissions.grant(grant(ask));
            }
            Choice::Always => match self.record.as_ref().map(|record| record.keep(&grant(ask))) {
                Some(Err(failure)) => {
                    self.permissions.grant(grant(ask));
                    note(format!("  not kept, for this session only: {}", failure.message));
                }
                // It is read from there, as long as it stands there.
                Some(Ok(())) | None => note("  kept; `quipu permissions` lists and revokes"),
            },
        }
        Some(Answer::Allow)
    }
}

/// Whether it is about a file with hard links.
fn has_other_names(ask: &Ask) -> bool {
    ask.tool != "bash" && ask.subject.lines().any(|path| quipu_workspace::has_other_names(Path::new(path)))
}

fn grant(ask: &Ask) -> Grant {
    Grant { tool: ask.tool.clone(), subject: ask.subject.to_string() }
}

/// Puts questions to the person at the terminal, one at a time.
pub(crate) struct Asker {
    terminal: Option<File>,
    lines: Option<mpsc::Receiver<String>>,
    open: VecDeque<Arc<Ask>>,
    desk: Desk,
}

impl Asker {
    /// Where a person sees what is asked and can answer: a terminal that is ours and in front.
    pub(crate) fn new(desk: Desk) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let terminal = File::open("/dev/tty").ok()?;
        // One that reads in the background is stopped by the system.
        let front = nix::unistd::tcgetpgrp(terminal.as_fd()).ok()?;
        if front != nix::unistd::getpgrp() {
            return None;
        }
        Some(Self { terminal: Some(terminal), lines: None, open: VecDeque::new(), desk })
    }

    /// A question came up.
    pub(crate) fn asked(&mut self, ask: &Arc<Ask>) {
        if let Some(terminal) = self.terminal.take() {
            let (send, lines) = mpsc::channel(16);
            self.lines = Some(lines);
            // Ends with the program: a read of a terminal cannot be stopped.
            let read = move || {
                for line in BufReader::new(terminal).lines() {
                    let Ok(line) = line else { return };
                    if send.blocking_send(line).is_err() {
                        return;
                    }
                }
            };
            if let Err(error) = std::thread::Builder::new().name("quipu-ask".into()).spawn(read) {
                note(format!("warning: nobody can be asked: {error}"));
            }
        }
        self.open.push_back(ask.clone());
        if self.open.len() == 1 {
            self.show();
        }
    }

    /// A question was answered or is void.
    pub(crate) fn closed(&mut self, id: &AskId) {
        let first = self.open.front().is_some_and(|ask| ask.id == *id);
        self.open.retain(|ask| ask.id != *id);
        if first {
            self.show();
        }
    }

    fn show(&mut self) {
        let Some(ask) = self.open.front() else { return };
        // What was typed before the question came is no answer to it.
        if let Some(lines) = &mut self.lines {
            while lines.try_recv().is_ok() {}
        }
        note_in(Paint::bold, format!("\nMay `{}` {}?", ask.tool, ask.question));
        note(format!("  {}", ask.subject.replace('\n', "\n  ")));
        let choices = self.desk.choices(ask).iter().map(|choice| match choice {
            Choice::Once => "y once",
            Choice::Session => "s in this session",
            Choice::Always => "a always in this directory",
            Choice::No => "n no (a reason may follow)",
        });
        note(format!("  {}", choices.collect::<Vec<_>>().join(" · ")));
    }

    /// The next answer. Never ends while nothing is asked.
    pub(crate) async fn answer(&mut self) -> (AskId, Answer) {
        loop {
            let (Some(lines), Some(ask)) = (&mut self.lines, self.open.front().cloned()) else {
                return std::future::pending().await;
            };
            // The terminal is gone: no.
            let Some(line) = lines.recv().await else {
                self.open.pop_front();
                return (ask.id.clone(), Answer::Deny { reason: None });
            };
            let line = line.trim();
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let choice = match word.to_ascii_lowercase().as_str() {
                "y" | "yes" | "once" => Some(Choice::Once),
                "s" | "session" => Some(Choice::Session),
                "a" | "always" => Some(Choice::Always),
                "n" | "no" => Some(Choice::No),
                _ => None,
            };
            let reason = Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty());
            match choice.and_then(|choice| self.desk.take(&ask, choice, reason)) {
                Some(answer) => return (ask.id.clone(), answer),
                None => self.show(),
            }
        }
    }
}

/// Puts questions to the program at the other end of stdin and stdout, all at once.
pub(crate) struct LineAsker {
    lines: mpsc::Receiver<Vec<u8>>,
    ended: bool,
    open: VecDeque<Arc<Ask>>,
    desk: Desk,
    deadline: Duration,
}

impl LineAsker {
    /// Reads stdin from now on. An answer counts for `deadline`.
    pub(crate) fn new(desk: Desk, deadline: Duration) -> std::io::Result<Self> {
        let (send, lines) = mpsc::channel(16);
        // Ends with the program: a read of a pipe cannot be stopped.
        let read = move || {
            let mut stdin = std::io::stdin().lock();
            loop {
                let mut line = Vec::new();
                // One byte more shows that a line is too long; the rest of it is passed over.
                let limit = ANSWER_LIMIT as u64 + 2;
                match stdin.by_ref().take(limit).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                if line.len() > ANSWER_LIMIT + 1 && !line.ends_with(b"\n") {
                    if stdin.skip_until(b'\n').is_err() {
                        return;
                    }
                } else {
                    line.truncate(line.trim_ascii_end().len());
                }
                if !line.is_empty() && send.blocking_send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("quipu-ask".into()).spawn(read)?;
        Ok(Self { lines, ended: false, open: VecDeque::new(), desk, deadline })
    }

    /// A question came up: the line that puts it.
    pub(crate) fn asked(&mut self, ask: &Arc<Ask>) -> String {
        self.open.push_back(ask.clone());
        quipu_rpc::ask_line(ask, self.desk.choices(ask), self.deadline)
    }

    /// A question was answered or is void.
    pub(crate) fn closed(&mut self, id: &AskId) {
        self.open.retain(|ask| ask.id != *id);
    }

    /// The next answer, or a line that says why something was none. Never ends while nothing comes.
    pub(crate) async fn answer(&mut self) -> Result<(AskId, Answer), String> {
        if !self.ended {
            match self.lines.recv().await {
                Some(line) => return self.read(&line).map_err(|bad| bad.line()),
                None => self.ended = true,
            }
        }
        match self.open.pop_front() {
            Some(ask) => {
                note(format!("`{}` is refused: stdin is closed, so nobody can answer", ask.tool));
                let reason = Some("nobody could answer, because the program that is asked has gone".into());
                Ok((ask.id.clone(), Answer::Deny { reason }))
            }
            None => std::future::pending().await,
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<(AskId, Answer), BadAnswer> {
        let AskAnswer { id, choice, reason } = quipu_rpc::read_answer(line)?;
        let Some(at) = self.open.iter().position(|ask| ask.id == id) else {
            let error = format!("no question `{id}` is open; it was never asked, or is answered or void");
            return Err(BadAnswer::to(&id, error));
        };
        let Some(answer) = self.desk.take(&self.open[at], choice, reason) else {
            return Err(BadAnswer::to(&id, "that is none of the options of this question; it is still open"));
        };
        // A second answer to it is one to no question.
        self.open.remove(at);
        Ok((id, answer))
    }
}
