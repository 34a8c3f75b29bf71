//! Asking on the terminal.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use quipu::{Grant, Permissions};
use quipu_protocol::{Answer, Ask, AskId};
use tokio::sync::mpsc;

use crate::permissions::Record;
use crate::print::{Paint, note, note_in};

/// Puts questions to the person at the terminal, one at a time.
pub(crate) struct Asker {
    terminal: Option<File>,
    lines: Option<mpsc::Receiver<String>>,
    open: VecDeque<Arc<Ask>>,
    permissions: Arc<Permissions>,
    record: Option<Record>,
}

impl Asker {
    /// Where a person sees what is asked and can answer: a terminal that is ours and in front. `record` keeps what
    /// is allowed for good.
    pub(crate) fn new(permissions: Arc<Permissions>, record: Option<Record>) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let terminal = File::open("/dev/tty").ok()?;
        // One that reads in the background is stopped by the system.
        let front = nix::unistd::tcgetpgrp(terminal.as_fd()).ok()?;
        if front != nix::unistd::getpgrp() {
            return None;
        }
        Some(Self { terminal: Some(terminal), lines: None, open: VecDeque::new(), permissions, record })
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
        let lasts = self.permissions.may_last(&grant(ask));
        note(match (lasts, &self.record) {
            (true, Some(_)) => {
                "  y once · s in this session · a always in this directory · n no (a reason may follow)"
            }
            (true, None) => "  y once · s in this session · n no (a reason may follow)",
            (false, _) => "  y once · n no (a reason may follow)",
        });
    }

    /// The next answer. Never ends while nothing is asked.
    pub(crate) async fn answer(&mut self) -> (AskId, Answer) {
        loop {
            let (Some(lines), Some(ask)) = (&mut self.lines, self.open.front().cloned()) else {
                return std::future::pending().await;
            };
            let denied = |reason: Option<String>| (ask.id.clone(), Answer::Deny { reason });
            // The terminal is gone: no.
            let Some(line) = lines.recv().await else {
                self.open.pop_front();
                return denied(None);
            };
            let line = line.trim();
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let lasts = self.permissions.may_last(&grant(&ask));
            let answer = match (word.to_ascii_lowercase().as_str(), lasts, &self.record) {
                ("y" | "yes" | "once", ..) => (ask.id.clone(), Answer::Allow),
                ("s" | "session", true, _) => {
                    self.permissions.grant(grant(&ask));
                    (ask.id.clone(), Answer::Allow)
                }
                ("a" | "always", true, Some(record)) => {
                    self.permissions.grant(grant(&ask));
                    match record.keep(&grant(&ask)) {
                        Ok(()) => note("  kept; `quipu permissions` lists and revokes"),
                        Err(failure) => {
                            note(format!("  not kept, for this session only: {}", failure.message));
                        }
                    }
                    (ask.id.clone(), Answer::Allow)
                }
                ("n" | "no", ..) => denied(Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty())),
                _ => {
                    self.show();
                    continue;
                }
            };
            return answer;
        }
    }
}

fn grant(ask: &Ask) -> Grant {
    Grant { tool: ask.tool.clone(), subject: ask.subject.to_string() }
}
