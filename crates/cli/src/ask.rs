//! Asking: on the terminal, or by lines of JSON.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Answer, Ask, AskId, AskKind, Json, Permission, Scope};
use quipu_rpc::{ANSWER_LIMIT, BadAnswer};
use tokio::sync::mpsc;

use crate::print::{Paint, note, note_in};

/// Puts questions to the person at the terminal, one at a time.
pub(crate) struct Asker {
    terminal: Option<File>,
    lines: Option<mpsc::Receiver<String>>,
    open: VecDeque<Arc<Ask>>,
}

impl Asker {
    /// Where a person sees what is asked and can answer: a terminal that is ours and in front.
    pub(crate) fn new() -> Option<Self> {
        if !crate::console::shows_people() {
            return None;
        }
        let terminal = File::open("/dev/tty").ok()?;
        // One that reads in the background is stopped by the system.
        let front = nix::unistd::tcgetpgrp(terminal.as_fd()).ok()?;
        if front != nix::unistd::getpgrp() {
            return None;
        }
        Some(Self { terminal: Some(terminal), lines: None, open: VecDeque::new() })
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
                note(format!("warning: questions cannot be answered on stdin: {error}"));
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
        let (title, text, answers) = in_words(&ask.kind);
        note_in(Paint::bold, format!("\n{title}"));
        if !text.is_empty() {
            note(format!("  {}", text.replace('\n', "\n  ")));
        }
        note(format!("  {}", answers.join(" · ")));
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
                return (ask.id.clone(), ask.default.clone());
            };
            match typed(&ask.kind, &line) {
                Some(answer) if ask.takes(&answer) => return (ask.id.clone(), answer),
                _ => self.show(),
            }
        }
    }
}

/// What is asked, more about it, and what may be answered.
fn in_words(kind: &AskKind) -> (String, String, Vec<String>) {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match kind {
        AskKind::Permission(Permission { tool, question, subject, scopes, rules, .. }) => {
            let words = scopes.iter().map(|scope| match scope {
                Scope::Once => "y once",
                Scope::Session => "s in this session",
                Scope::Always => "a always in this directory",
                Scope::SessionRule => "r the rule, in this session",
                Scope::ProjectRule => "p the rule, always in this directory",
                Scope::AlwaysRule => "e the rule, always in every directory",
            });
            let words: Vec<&str> = words.chain(["n no (you can add a reason)"]).collect();
            let rules = rules.iter().map(|rule| format!("\nRule: {rule}")).collect::<String>();
            (format!("`{tool}`: {question}"), format!("{subject}{rules}"), list(&words))
        }
        AskKind::Confirm { title, text } => (title.clone(), text.clone(), list(&["y yes", "n no"])),
        AskKind::Choose { title, options } => {
            let words = options.iter().enumerate().map(|(at, option)| {
                let detail = option.detail.as_ref().map_or(String::new(), |detail| format!(": {detail}"));
                format!("{} {}{detail}", at + 1, option.label)
            });
            (title.clone(), String::new(), words.collect())
        }
        AskKind::Text { title, placeholder, .. } => {
            (title.clone(), placeholder.clone(), list(&["a line of text"]))
        }
        AskKind::Edit { title, text } => (title.clone(), text.clone(), list(&["a line that replaces it"])),
        AskKind::Form { title, schema } => {
            (title.clone(), schema.to_string(), list(&["a line of JSON that matches the schema"]))
        }
        AskKind::OpenUrl { title, url } => {
            (title.clone(), url.clone(), list(&["y when you are done", "n to skip it"]))
        }
    }
}

/// The answer that a line gives.
fn typed(kind: &AskKind, line: &str) -> Option<Answer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let word = word.to_ascii_lowercase();
    match kind {
        AskKind::Permission(_) => Some(match word.as_str() {
            "y" | "yes" | "once" => Answer::Allow { scope: Scope::Once },
            "s" | "session" => Answer::Allow { scope: Scope::Session },
            "a" | "always" => Answer::Allow { scope: Scope::Always },
            "r" => Answer::Allow { scope: Scope::SessionRule },
            "p" => Answer::Allow { scope: Scope::ProjectRule },
            "e" => Answer::Allow { scope: Scope::AlwaysRule },
            "n" | "no" => {
                Answer::Deny { reason: Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty()) }
            }
            _ => return None,
        }),
        AskKind::Confirm { .. } | AskKind::OpenUrl { .. } => Some(match word.as_str() {
            "y" | "yes" => Answer::Confirm { yes: true },
            "n" | "no" => Answer::Confirm { yes: false },
            _ => return None,
        }),
        AskKind::Choose { options, .. } => {
            let number = word.parse::<usize>().ok().and_then(|at| options.get(at.checked_sub(1)?));
            let option = number.or_else(|| options.iter().find(|option| option.label == line))?;
            Some(Answer::Choose { option: option.id.clone() })
        }
        AskKind::Text { .. } | AskKind::Edit { .. } => Some(Answer::Text { text: line.to_owned() }),
        AskKind::Form { .. } => Json::parse(line).ok().map(|value| Answer::Form { value }),
    }
}

/// Puts questions to the program at the other end of stdin and stdout, all at once.
pub(crate) struct LineAsker {
    lines: mpsc::Receiver<Vec<u8>>,
    ended: bool,
    open: VecDeque<Arc<Ask>>,
    deadline: Duration,
}

impl LineAsker {
    /// Reads stdin from now on. An answer counts for `deadline`.
    pub(crate) fn new(deadline: Duration) -> std::io::Result<Self> {
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
        Ok(Self { lines, ended: false, open: VecDeque::new(), deadline })
    }

    /// A question came up: the line that puts it.
    pub(crate) fn asked(&mut self, ask: &Arc<Ask>) -> String {
        self.open.push_back(ask.clone());
        quipu_rpc::ask_line(ask, ask.deadline.map(|_| self.deadline))
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
                let Some(asked) = ask.permission() else { return Ok((ask.id.clone(), ask.default.clone())) };
                note(format!("`{}` is denied: stdin is closed, so nobody can answer", asked.tool));
                let reason = Some("nobody could answer: stdin is closed".into());
                Ok((ask.id.clone(), Answer::Deny { reason }))
            }
            None => std::future::pending().await,
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<(AskId, Answer), BadAnswer> {
        let given = quipu_rpc::read_answer(line)?;
        let Some(at) = self.open.iter().position(|ask| ask.id == given.id) else {
            let error = format!(
                "there is no open question `{}`; it does not exist, or was already answered or canceled",
                given.id
            );
            return Err(BadAnswer::to(&given.id, error));
        };
        let answer = given.for_ask(&self.open[at])?;
        // A second answer to it is one to no question.
        self.open.remove(at);
        Ok((given.id, answer))
    }
}
