//! Keys: what a picker, a question or the editor does with them.

use quipu_protocol::{AbortTarget, Command, QueueMode, Thinking};

use super::{Choice, Effect, Purpose, SEEN, State};
use crate::editor::{Candidate, EditorEffect, EditorOutcome, Query};
use crate::keys::{Action, Scope};
use crate::levels::level_name;
use crate::registered::CommandMatch;
use crate::request::Request;
use crate::{Key, KeyCode};

/// A yes was given to a question that was not read to its end.
const UNREAD: &str = "Read it to the last row first: PageDown or End; n denies";
/// Ctrl-C twice within so many milliseconds leaves.
const TWICE: i64 = 2_000;

impl State {
    pub(super) fn on_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        self.hint = None;
        if self.overlay.is_some() {
            return self.on_overlay_key(key, effects);
        }
        if !self.questions.asks.is_empty() && self.on_ask_key(key, effects) {
            return;
        }
        if key.code == KeyCode::Char('?') && self.editor.is_empty() {
            return self.run_key(Action::Help, effects);
        }
        match self.editor.on_key(key, &self.bindings) {
            EditorOutcome::Submit(text) => self.submit(&text, QueueMode::Steer, effects),
            EditorOutcome::Handled(wanted) => {
                for effect in wanted {
                    let effect = match effect {
                        EditorEffect::EditExternally(text) => Effect::Edit(text),
                        EditorEffect::Copy(text) => Effect::Copy(text),
                        EditorEffect::PasteImage => Effect::PasteImage,
                        EditorEffect::Complete { id, query } => {
                            self.complete(id, query, effects);
                            continue;
                        }
                    };
                    effects.push(effect);
                }
                effects.push(Effect::Draft);
            }
            EditorOutcome::Ignored => {
                if let Some(action) = self.bindings.action(Scope::App, key) {
                    self.on_action(action, effects);
                }
            }
        }
    }

    fn on_action(&mut self, action: Action, effects: &mut Vec<Effect>) {
        match action {
            Action::Interrupt => self.on_escape(effects),
            Action::Clear => self.on_clear(effects),
            Action::Exit if self.editor.is_empty() => self.leave(effects),
            Action::Suspend => effects.push(Effect::Suspend),
            Action::FollowUp => {
                let text = self.editor.take();
                self.submit(&text, QueueMode::FollowUp, effects);
            }
            Action::ThinkingCycle => self.next_thinking(effects),
            Action::ThinkingToggle => self.fold_or_unfold(),
            Action::ModelNext => self.next_model(effects),
            Action::ModelPrevious => self.previous_model(effects),
            Action::Tree => self.tree(effects),
            _ => self.run_key(action, effects),
        }
    }

    /// What waits last comes back into the editor.
    pub(crate) fn take_back(&mut self, effects: &mut Vec<Effect>) {
        let (steering, follow_up) = &self.outbox.queue;
        match follow_up.last().or(steering.last()) {
            Some(item) => {
                let items = vec![item.id.clone()];
                effects.push(Effect::Send(Command::Unqueue { items }, Purpose::TakeBack));
            }
            None => self.hint = Some("Nothing waits".into()),
        }
    }

    pub(super) fn on_paste(&mut self, text: &str, effects: &mut Vec<Effect>) {
        match &mut self.overlay {
            Some(overlay) => overlay.paste(text),
            None => {
                // The file of a picture that was dropped on the terminal; a command takes it as a path.
                let is_prompt = !self.editor.starts_with('!') && !self.editor.starts_with('/');
                match quipu_host::pasted_image(text).filter(|_| is_prompt) {
                    Some(mention) => self.editor.insert(&format!("{mention} ")),
                    None => self.editor.paste(text),
                }
                effects.push(Effect::Draft);
            }
        }
    }

    /// Enter: a command, a line of the shell, or something for the model. What cannot be done now is written again.
    pub(super) fn submit(&mut self, text: &str, when: QueueMode, effects: &mut Vec<Effect>) {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        effects.push(Effect::Draft);
        effects.push(Effect::Sent(text.to_owned()));
        if let Some(line) = trimmed.strip_prefix('!') {
            let (line, hidden) = match line.strip_prefix('!') {
                Some(line) => (line.trim(), true),
                None => (line.trim(), false),
            };
            return self.run_shell(text, line, hidden, effects);
        }
        match self.command_of(trimmed) {
            Some(Ok((CommandMatch::Own(command), arguments))) => self.slash(command, arguments, effects),
            Some(Ok((CommandMatch::Other(name), arguments))) => Self::run_other(name, arguments, effects),
            Some(Err(name)) if !trimmed.contains('\n') => {
                self.editor.set_text(text);
                let near = crate::commands::nearest(name, &self.commands);
                let near = near.map_or(String::new(), |near| format!(" /{near}?"));
                self.hint = Some(format!("There is no /{name}.{near} /help lists the commands"));
            }
            _ => self.say(trimmed.to_owned(), when, effects),
        }
    }

    /// Escape: what runs is stopped, and what waits comes back.
    pub(super) fn on_escape(&mut self, effects: &mut Vec<Effect>) {
        if self.shell.running.is_some() && self.activity.working.is_none() {
            return self.stop_shell(effects);
        }
        if self.activity.busy.is_some() {
            return effects
                .push(Effect::Send(Command::Abort { target: AbortTarget::Compaction }, Purpose::Else));
        }
        if self.activity.working.is_some() {
            effects.push(Effect::Send(Command::Abort { target: AbortTarget::Run }, Purpose::Else));
            if self.outbox.is_queued() {
                effects.push(Effect::Send(Command::Unqueue { items: Vec::new() }, Purpose::TakeBack));
            }
            return;
        }
        if self.activity.checking.is_some() {
            return self.stop_checking(effects);
        }
        if self.activity.command.is_some() {
            return self.stop_command(effects);
        }
        self.opening.held.clear();
        if !self.outbox.waiting.is_empty() {
            self.give_back();
            return effects.push(Effect::Draft);
        }
        if self.outbox.is_queued() {
            // A run that failed left it.
            return effects.push(Effect::Send(Command::Unqueue { items: Vec::new() }, Purpose::TakeBack));
        }
        if !self.editor.is_empty() {
            return;
        }
        if self.twice.escaped_at.take().is_some_and(|at| self.now.saturating_sub(at) < TWICE) {
            return self.tree(effects);
        }
        self.twice.escaped_at = Some(self.now);
        let key = |action| self.key_of(action);
        self.hint = Some(format!(
            "{} again: back to an earlier point; {} exits",
            key(Action::Interrupt),
            key(Action::Exit)
        ));
    }

    /// Ctrl-C: empties the editor; on an empty one, twice leaves.
    pub(super) fn on_clear(&mut self, effects: &mut Vec<Effect>) {
        if !self.editor.is_empty() {
            self.editor.set_text("");
            return effects.push(Effect::Draft);
        }
        if self.twice.left_at.is_some_and(|at| self.now.saturating_sub(at) < TWICE) {
            return self.leave(effects);
        }
        self.twice.left_at = Some(self.now);
        let leaves = format!("{} again exits", self.key_of(Action::Clear));
        self.hint = Some(if self.is_working() {
            format!("{} stops the agent; {leaves}", self.key_of(Action::Interrupt))
        } else {
            leaves
        });
    }

    pub(super) fn leave(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::Leave);
    }

    /// Whether the key was for the question.
    fn on_ask_key(&mut self, key: Key, effects: &mut Vec<Effect>) -> bool {
        if self.questions.asks.is_empty() {
            return false;
        }
        let edits = self.bindings.action(Scope::App, key) == Some(Action::ExternalEditor);
        if let Some(reason) = &mut self.questions.reason {
            match (key.code, key.modifiers.control, key.modifiers.alt) {
                (KeyCode::Enter, ..) => {
                    let written = reason.trim().to_owned();
                    self.answer_written(written, effects);
                }
                (KeyCode::Escape, ..) => self.questions.reason = None,
                _ if edits => effects.push(Effect::Edit(reason.clone())),
                (KeyCode::Backspace, ..) => drop(reason.pop()),
                (KeyCode::Char(letter), false, false) => reason.push(letter),
                _ => {}
            }
            return true;
        }
        let plain = !key.modifiers.control && !key.modifiers.alt;
        // Lines that are written have their own arrows, and their own beginning and end.
        let moves = self.editor.is_empty() || matches!(key.code, KeyCode::PageUp | KeyCode::PageDown);
        if plain && moves && self.questions.scroll(key.code) {
            return true;
        }
        let Some((_, choices)) = self.questions.asks.front() else { return false };
        let seen = self.now.saturating_sub(self.questions.asked_at) >= SEEN;
        if key.modifiers.control || (plain && !self.editor.is_empty()) {
            return false;
        }
        let choice = match key.code {
            KeyCode::Char(letter) if plain && !seen => {
                // It was typed before the question could be read.
                let letter = letter.to_ascii_lowercase();
                return choices.iter().any(|choice| choice.letter() == Some(letter));
            }
            KeyCode::Char(letter) => {
                let letter = letter.to_ascii_lowercase();
                let Some(choice) = choices.iter().find(|choice| choice.letter() == Some(letter)) else {
                    // A letter that answers other questions of the kind is not for the editor.
                    return Choice::PERMISSION.iter().any(|choice| choice.letter() == Some(letter));
                };
                choice.clone()
            }
            KeyCode::Up => {
                self.questions.choice =
                    self.questions.choice.checked_sub(1).unwrap_or(choices.len().saturating_sub(1));
                return true;
            }
            KeyCode::Down => {
                self.questions.choice = (self.questions.choice + 1) % choices.len().max(1);
                return true;
            }
            KeyCode::Enter if plain && seen => match choices.get(self.questions.choice) {
                Some(choice) => choice.clone(),
                None => return true,
            },
            KeyCode::Enter => return plain,
            _ => return false,
        };
        if choice.is_written() {
            self.write_with(&choice);
            return true;
        }
        if choice.agrees() && !self.has_read() {
            self.hint = Some(UNREAD.to_owned());
            return true;
        }
        self.answer(&choice, None, effects);
        true
    }

    /// Something is written with an answer.
    pub(super) fn write_with(&mut self, choice: &Choice) {
        if let Some((ask, choices)) = self.questions.asks.front() {
            self.questions.reason = Some(choice.begins(ask));
            self.questions.choice = choices.iter().position(|one| one == choice).unwrap_or_default();
        }
    }

    /// Answers with what was written.
    pub(super) fn answer_written(&mut self, written: String, effects: &mut Vec<Effect>) {
        let chosen =
            self.questions.asks.front().and_then(|(_, choices)| choices.get(self.questions.choice).cloned());
        if let Some(choice) = chosen {
            self.answer(&choice, Some(written), effects);
        }
    }

    /// Answers the question that is asked first; the next one has its time to be read.
    pub(super) fn answer(&mut self, choice: &Choice, written: Option<String>, effects: &mut Vec<Effect>) {
        let Some((ask, _)) = self.questions.asks.front() else { return };
        match choice.answer(ask, written) {
            Ok(answer) => {
                let command = Command::Answer { ask: ask.id.clone(), answer };
                effects.push(Effect::Send(command, Purpose::Else));
                self.questions.asks.pop_front();
                self.questions.next(self.now);
            }
            Err(why) => self.hint = Some(why.to_string()),
        }
    }

    /// Whether a yes counts: lines are heard to their end.
    pub(super) fn has_read(&self) -> bool {
        self.linear.is_some() || self.questions.is_read()
    }

    fn on_overlay_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        let key = self.overlay.as_ref().map_or(key, |overlay| overlay.meant(key, &self.bindings));
        let Some(key) = self.bindings.as_default(&[Scope::Tree, Scope::Select], key) else { return };
        self.with_component(effects, |component, state, effects| component.on_key(key, state, effects));
    }

    fn tree(&mut self, effects: &mut Vec<Effect>) {
        if self.opening.under_way { self.run_key(Action::Tree, effects) } else { self.walk_tree(effects) }
    }

    /// What may be meant is shown; `more` may come.
    pub(super) fn offer(
        &mut self,
        id: u64,
        candidates: Vec<Candidate>,
        more: bool,
        effects: &mut Vec<Effect>,
    ) {
        for effect in self.editor.offer(id, candidates, more) {
            if let EditorEffect::Complete { id, query } = effect {
                self.complete(id, query, effects);
            }
        }
    }

    /// Finds what may be meant: here, where all that may follow is known, else outside.
    pub(super) fn complete(&mut self, id: u64, query: Query, effects: &mut Vec<Effect>) {
        let Query::Argument { command } = query else { return effects.push(Effect::Complete(id, query)) };
        if command != "thinking" {
            // Where nothing can be offered, what is written counts.
            let head = self.standing.head;
            return effects.push(Effect::Ask(Request::new(
                "arguments",
                move |context| context.host.arguments(command, head),
                move |state: &mut Self, offered, effects| {
                    state.offer(id, offered.unwrap_or_default(), false, effects);
                },
            )));
        }
        let level = |level: &Thinking| Candidate { text: level_name(*level).into(), ..Candidate::default() };
        let levels = self.standing.levels.iter().map(level).collect();
        // Nothing is asked for in what is shown as it is typed.
        drop(self.editor.offer(id, levels, false));
    }
}
