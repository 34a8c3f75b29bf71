//! What could be meant by what is being written: commands, files, paths, arguments.

use super::Candidate;
use super::clusters::is_chip;
use super::popup::{Kind, Popup};
use super::{Editor, EditorEffect, EditorOutcome};
use crate::Key;
use crate::keys::{Action, Bindings, Scope};

/// Bytes before the cursor that are looked at.
const LOOK_BACK: usize = 1_024;

/// A command that is written with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandWord {
    /// Without the slash.
    pub name: String,
    /// What may follow, such as `[NAME]`; empty for nothing. What is not in brackets has to follow.
    pub arguments: String,
    /// What it does, in a line.
    pub help: String,
    /// What follows can be completed: the editor asks with [`Query::Argument`].
    pub completes: bool,
}

/// What candidates are wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Files that are like this: the best first, see [`FileFinder`](crate::FileFinder).
    Files {
        /// Part of a name; may be empty.
        text: String,
        /// The first question since the list is shown: files may have come and gone.
        fresh: bool,
    },
    /// Paths that begin with this, see [`complete_path`](crate::complete_path).
    Paths {
        /// The beginning.
        text: String,
    },
    /// All that may follow a command; what is written of it already is looked for by the editor.
    Argument {
        /// Its name.
        command: String,
    },
}

/// What is being written where the cursor is.
struct Context {
    kind: Kind,
    start: usize,
    text: String,
    command: String,
}

impl Editor {
    /// Commands that can be written with a slash, in their order.
    pub fn set_commands(&mut self, commands: Vec<CommandWord>) {
        self.commands = commands;
    }

    /// Candidates for the question of this number; those for an older one are let go.
    pub fn offer(&mut self, id: u64, candidates: Vec<Candidate>, more: bool) -> Vec<EditorEffect> {
        let Some(popup) = self.popup.as_mut().filter(|popup| popup.id == id) else { return Vec::new() };
        let chosen = popup.chosen().map(|candidate| candidate.text.clone());
        let moved = popup.at > 0;
        popup.candidates = candidates;
        popup.more = more;
        popup.filter();
        // Who has gone to a row stays at it while others come.
        let again =
            popup.shown.iter().position(|(at, _)| Some(&popup.candidates[*at].text) == chosen.as_ref());
        popup.at = again.filter(|_| moved).unwrap_or(0);
        if !std::mem::take(&mut popup.eager) {
            return Vec::new();
        }
        if popup.shown.len() == 1 {
            return self.accept();
        }
        let common = popup.common();
        let (range, kind) = (popup.range.clone(), popup.kind);
        if common.len() > popup.text.len() {
            let text = self.written_as(kind, &common);
            self.buffer.replace(range, &text);
            return self.follow(false);
        }
        Vec::new()
    }

    /// A key while a list is open; `None` when it is none of the list's.
    pub(super) fn popup_key(&mut self, key: Key, bindings: &Bindings) -> Option<EditorOutcome> {
        let popup = self.popup.as_mut()?;
        let none = popup.shown.is_empty();
        let action = bindings.action(Scope::Select, key);
        if action == Some(Action::SelectCancel) {
            let is_seen = !none || popup.more || popup.kind == Kind::Files;
            self.dismissed = Some(popup.range.start);
            self.popup = None;
            return is_seen.then(|| EditorOutcome::Handled(Vec::new()));
        }
        if none {
            return None;
        }
        let last = popup.shown.len() - 1;
        match action {
            Some(Action::SelectUp) => popup.at = popup.at.checked_sub(1).unwrap_or(last),
            Some(Action::SelectDown) => popup.at = if popup.at == last { 0 } else { popup.at + 1 },
            Some(Action::SelectPageUp) => popup.at = popup.at.saturating_sub(8),
            Some(Action::SelectPageDown) => popup.at = (popup.at + 8).min(last),
            Some(Action::SelectFirst | Action::SelectLast) => return None,
            Some(Action::SelectConfirm) => {
                let wants_more = match popup.kind {
                    Kind::Files | Kind::Paths => true,
                    Kind::Argument => false,
                    Kind::Command => {
                        let name = popup.chosen().map_or("", |chosen| &chosen.text);
                        let command = self.commands.iter().find(|command| command.name == name);
                        command.is_some_and(|command| {
                            !matches!(command.arguments.chars().next(), None | Some('['))
                        })
                    }
                };
                let effects = self.accept();
                if wants_more {
                    return Some(EditorOutcome::Handled(effects));
                }
                if self.buffer.text().ends_with(' ') {
                    let end = self.buffer.text().len();
                    self.buffer.erase(end - 1..end);
                }
                return Some(self.submit());
            }
            _ if bindings.action(Scope::Editor, key) == Some(Action::Complete) => {
                let effects = self.accept();
                return Some(EditorOutcome::Handled(effects));
            }
            _ => return None,
        }
        Some(EditorOutcome::Handled(Vec::new()))
    }

    /// Writes what is chosen.
    fn accept(&mut self) -> Vec<EditorEffect> {
        let Some(popup) = self.popup.take() else { return Vec::new() };
        let Some(chosen) = popup.chosen() else { return Vec::new() };
        let continues = chosen.text.ends_with(['/', ':']) && matches!(popup.kind, Kind::Files | Kind::Paths);
        let mut text = self.written_as(popup.kind, chosen.meant());
        let behind = self.buffer.text()[popup.range.end..].starts_with(' ');
        let wants_space = match popup.kind {
            Kind::Command | Kind::Files => !continues,
            Kind::Paths => !continues && self.shell().is_some(),
            Kind::Argument => false,
        };
        if wants_space && !behind {
            text.push(' ');
        }
        let text = self.buffer.clean(&text);
        self.buffer.replace(popup.range.clone(), &text);
        self.history.leave();
        if continues && popup.kind == Kind::Paths { self.complete_path() } else { self.follow(true) }
    }

    /// How a candidate is written.
    fn written_as(&self, kind: Kind, text: &str) -> String {
        match kind {
            Kind::Command => format!("/{text}"),
            Kind::Argument => text.to_owned(),
            Kind::Files if text.contains(char::is_whitespace) => {
                // Quotes are closed behind what is whole.
                let close = if text.ends_with(['/', ':']) { "" } else { "\"" };
                format!("@\"{text}{close}")
            }
            Kind::Files => format!("@{text}"),
            Kind::Paths if self.shell().is_some() => {
                let special = |one: char| one.is_ascii_whitespace() || "'\"\\$&;|<>()*?[]{}`!#".contains(one);
                text.chars().flat_map(|one| special(one).then_some('\\').into_iter().chain([one])).collect()
            }
            Kind::Paths => text.to_owned(),
        }
    }

    /// Opens, narrows or closes the list after the text or the cursor changed. Only typing opens one.
    pub(super) fn follow(&mut self, typed: bool) -> Vec<EditorEffect> {
        if let Some(popup) = self.popup.as_mut().filter(|popup| popup.kind == Kind::Paths) {
            let at = self.buffer.cursor();
            let start = path_start(self.buffer.text(), at, shell_of(self.buffer.text()));
            let text = unescaped(&self.buffer.text()[start..at], shell_of(self.buffer.text()));
            if start == popup.range.start && !text.is_empty() {
                if popup.text == text {
                    return Vec::new();
                }
                popup.range = start..at;
                popup.text.clone_from(&text);
                return self.ask(Query::Paths { text });
            }
            self.popup = None;
        }
        let Some(context) = self.context() else {
            self.popup = None;
            self.dismissed = None;
            return Vec::new();
        };
        if self.dismissed == Some(context.start) {
            return Vec::new();
        }
        self.dismissed = None;
        let range = context.start..self.buffer.cursor();
        let open = self
            .popup
            .as_ref()
            .is_some_and(|popup| popup.kind == context.kind && popup.range.start == context.start);
        if !open && !typed {
            self.popup = None;
            return Vec::new();
        }
        let fresh = !open;
        if fresh {
            let candidates = match context.kind {
                Kind::Command => self.commands.iter().map(candidate).collect(),
                _ => Vec::new(),
            };
            self.popup = Some(Popup {
                kind: context.kind,
                id: 0,
                range: range.clone(),
                text: String::new(),
                candidates,
                shown: Vec::new(),
                at: 0,
                more: matches!(context.kind, Kind::Files | Kind::Argument),
                eager: false,
            });
        }
        let Some(popup) = &mut self.popup else { return Vec::new() };
        popup.range = range;
        if !fresh && popup.text == context.text {
            return Vec::new();
        }
        popup.text.clone_from(&context.text);
        match context.kind {
            Kind::Files => self.ask(Query::Files { text: context.text, fresh }),
            Kind::Argument if fresh => self.ask(Query::Argument { command: context.command }),
            _ => {
                popup.filter();
                Vec::new()
            }
        }
    }

    /// Tab: takes what is chosen, or completes the path before the cursor.
    pub(super) fn complete_path(&mut self) -> Vec<EditorEffect> {
        let at = self.buffer.cursor();
        let text = self.buffer.text();
        let shell = shell_of(text);
        let start = path_start(text, at, shell);
        let typed = unescaped(&text[start..at], shell);
        let range = start..at;
        self.popup = Some(Popup {
            kind: Kind::Paths,
            id: 0,
            range,
            text: typed.clone(),
            candidates: Vec::new(),
            shown: Vec::new(),
            at: 0,
            more: false,
            eager: true,
        });
        self.ask(Query::Paths { text: typed })
    }

    fn ask(&mut self, query: Query) -> Vec<EditorEffect> {
        self.asked += 1;
        let id = self.asked;
        if let Some(popup) = &mut self.popup {
            popup.id = id;
        }
        vec![EditorEffect::Complete { id, query }]
    }

    /// What is being written where the cursor is, when it can be completed as it is typed.
    fn context(&self) -> Option<Context> {
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        if at == 0 || self.history.is_shown() {
            return None;
        }
        if text.starts_with('/') && at <= LOOK_BACK && !text[..at].contains(['\n', '\t']) {
            let head = &text[1..at];
            match head.split_once(' ') {
                None if head.contains('/') => {}
                None => {
                    return Some(Context {
                        kind: Kind::Command,
                        start: 0,
                        text: head.to_owned(),
                        command: String::new(),
                    });
                }
                Some((name, rest)) => {
                    if self.commands.iter().any(|command| command.name == name && command.completes) {
                        return Some(Context {
                            kind: Kind::Argument,
                            start: at - rest.len(),
                            text: rest.to_owned(),
                            command: name.to_owned(),
                        });
                    }
                }
            }
        }
        let window = back(text, at);
        let from = at - window.len();
        let files = |start: usize, text: &str| Context {
            kind: Kind::Files,
            start: from + start,
            text: text.to_owned(),
            command: String::new(),
        };
        let free = |start: usize| {
            !window[..start].chars().next_back().is_some_and(|one| one.is_alphanumeric() || one == '@')
        };
        if let Some(quoted) = window.rfind("@\"").filter(|start| free(*start)) {
            let text = &window[quoted + 2..];
            if !text.contains('"') {
                return Some(files(quoted, text));
            }
        }
        let word = window.rfind(|one: char| one.is_whitespace() || is_chip(one));
        let word = word.map_or(0, |space| space + window[space..].chars().next().map_or(1, char::len_utf8));
        let start = word + window[word..].rfind('@')?;
        free(start).then(|| files(start, &window[start + 1..]))
    }
}

/// The line before a place, or what of it is near.
fn back(text: &str, at: usize) -> &str {
    let mut from = at.saturating_sub(LOOK_BACK);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let window = &text[from..at];
    window.rfind('\n').map_or(window, |newline| &window[newline + 1..])
}

fn shell_of(text: &str) -> bool {
    text.trim_start().starts_with('!')
}

/// Where the path before the cursor begins: behind a space, in a shell's line one without a backslash before it.
fn path_start(text: &str, at: usize, shell: bool) -> usize {
    let window = back(text, at);
    let from = at - window.len();
    let mut start = from;
    let mut escaped = false;
    for (place, one) in window.char_indices() {
        let ends = one.is_whitespace()
            || is_chip(one)
            || matches!(one, '"' | '\'' | '@' | '=')
            || (shell && one == '!');
        if ends && !(shell && escaped) {
            start = from + place + one.len_utf8();
        }
        escaped = one == '\\' && !escaped;
    }
    start
}

fn unescaped(text: &str, shell: bool) -> String {
    if !shell {
        return text.to_owned();
    }
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(one) = characters.next() {
        plain.extend(if one == '\\' { characters.next() } else { Some(one) });
    }
    plain
}

fn candidate(command: &CommandWord) -> Candidate {
    let detail = match command.arguments.as_str() {
        "" => command.help.clone(),
        arguments => format!("{arguments}  {}", command.help),
    };
    Candidate { text: command.name.clone(), detail, ..Candidate::default() }
}
