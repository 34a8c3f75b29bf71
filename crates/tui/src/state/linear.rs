//! The linear way: what is typed comes as lines, and what others see change is told in words, once.

use quipu_protocol::{AskId, BashExecutionMessage, QueueMode, UnixMs};

use super::{Effect, SEEN, Shell, State};
use crate::component::{Chooser, Component};
use crate::editor::Candidate;
use crate::host::HostError;
use crate::keys::Action;
use crate::levels::level_name;
use crate::picker::{Picker, PickerRow};
use crate::registered::CommandMatch;
use crate::request::{Context, Request};
use crate::{Line, Size, render};

/// Bytes of what was told that are looked for to find where it goes on.
const SAME: usize = 512;
/// Columns that lines have at least: what is narrower is broken by the terminal.
const NARROWEST: usize = 40;

/// What the linear view has printed, so that it prints each thing once.
#[derive(Debug, Default)]
pub(crate) struct LinearState {
    /// What was under way.
    pub(crate) printed: Vec<Vec<Line>>,
    /// The next try of a call: which, and when.
    pub(crate) retried: Option<(u32, UnixMs)>,
    /// Of the line of this number, what it printed and was told.
    output: Option<(u64, String)>,
    /// The question, and whether its reason was asked for.
    pub(crate) asked: Option<(AskId, bool)>,
    pub(crate) listed: Vec<String>,
    /// What the editor held.
    pub(crate) draft: String,
    /// A text whose end is not there yet.
    begun: String,
    /// What was said at the prompt, where it can be read already.
    answer: Option<String>,
    /// Something was sent, and nothing came of it yet.
    pub(super) sent: bool,
    /// When something was told last.
    pub(crate) at: UnixMs,
}

impl State {
    /// The same for who hears it, or for a terminal that nothing is drawn on.
    #[must_use]
    pub fn linear(mut self) -> Self {
        self.linear = Some(Box::default());
        self.theme = crate::Theme::spoken();
        self.size = self.room_of(self.size);
        self
    }

    /// The size that lines are made for.
    pub(super) fn room_of(&self, size: Size) -> Size {
        let narrowest = if self.linear.is_some() { NARROWEST } else { 0 };
        Size { columns: size.columns.max(narrowest), ..size }
    }

    /// What stands before what is typed; empty while nothing is asked for.
    pub fn prompt(&self) -> &'static str {
        let begun = self.linear.as_ref().is_some_and(|linear| !linear.begun.is_empty());
        let sent = self.linear.as_ref().is_some_and(|linear| linear.sent);
        match &self.overlay {
            Some(component) => component.prompt(),
            None if begun => "More: ",
            None if self.questions.reason.is_some() => "Reason: ",
            None if !self.questions.asks.is_empty() => "Answer: ",
            None if self.opening.under_way || sent || self.is_working() => "",
            None => "You: ",
        }
    }

    /// Whether what is typed must not be seen.
    pub fn hides(&self) -> bool {
        self.overlay.as_ref().is_some_and(|component| component.hides())
    }

    /// Lines that were typed; several, when they were pasted.
    pub(super) fn on_line(&mut self, text: &str, effects: &mut Vec<Effect>) {
        let Some(linear) = &mut self.linear else { return };
        linear.listed.clear();
        if self.overlay.is_some() {
            let line = text.replace('\n', " ");
            return self.with_component(effects, |component, state, effects| {
                component.on_line(line.trim(), state, effects)
            });
        }
        if text.contains('\n') {
            linear.begun.push_str(text);
            linear.begun.push('\n');
            let count = linear.begun.lines().count();
            self.hint = Some(format!("{count} lines pasted. Enter sends them, Ctrl-C discards them."));
            return;
        }
        if linear.begun.is_empty() && !self.questions.asks.is_empty() && self.on_ask_line(text, effects) {
            return;
        }
        let Some(linear) = &mut self.linear else { return };
        if let Some(line) = text.strip_suffix('\\') {
            linear.begun.push_str(line);
            return linear.begun.push('\n');
        }
        linear.begun.push_str(text);
        let text = std::mem::take(&mut linear.begun);
        if let Some(Ok((found, "?"))) = self.command_of(text.trim()) {
            match found {
                CommandMatch::Own(command) if command.completes => {
                    return self.offer_arguments(command.name, effects);
                }
                CommandMatch::Other(name)
                    if self.commands.iter().any(|it| it.name == name && it.completes) =>
                {
                    return self.offer_arguments(&name, effects);
                }
                CommandMatch::Own(_) | CommandMatch::Other(_) => {}
            }
        }
        let command = text.starts_with('/');
        let text = match text.trim() {
            "" => self.editor.take(),
            "?" => return self.run_key(Action::Help, effects),
            "/history" => text,
            answer => {
                self.editor.remember(answer);
                text
            }
        };
        if !command {
            self.editor.set_text("");
        }
        if !self.is_working()
            && let Some(linear) = &mut self.linear
        {
            linear.answer = Some(text.trim().to_owned());
        }
        self.submit(text.trim_end(), QueueMode::Steer, effects);
    }

    /// Whether the line was for the question.
    fn on_ask_line(&mut self, text: &str, effects: &mut Vec<Effect>) -> bool {
        let Some((_, choices)) = self.questions.asks.front() else { return false };
        let text = text.trim();
        if self.questions.reason.take().is_some() {
            self.answer_written(text.to_owned(), effects);
            return true;
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = word.trim_end_matches(['.', ',', ':', ')']).to_lowercase();
        let letter = match word.as_str() {
            "yes" => Some('y'),
            "no" => Some('n'),
            word => word.parse::<char>().ok().filter(|letter| !letter.is_ascii_digit()),
        };
        let answer = match (letter, word.parse::<usize>()) {
            (Some(letter), _) => choices.iter().find(|choice| choice.letter() == Some(letter)),
            (None, Ok(at)) => choices.get(at.wrapping_sub(1)),
            (None, Err(_)) => None,
        };
        // More words are a message, unless they go with the answer.
        let answer = answer.filter(|answer| rest.is_empty() || answer.is_written()).cloned();
        let Some(choice) = answer else {
            if let Some(linear) = self.linear.as_mut().filter(|_| text.is_empty()) {
                linear.asked = None;
                return true;
            }
            self.hint = Some("This goes to the agent; the question still needs a number.".into());
            return false;
        };
        if self.now.saturating_sub(self.questions.asked_at) < SEEN {
            self.hint = Some("You answered before the question could be read: answer again.".into());
        } else if choice.is_written() && rest.is_empty() {
            self.write_with(&choice);
        } else {
            let written = Some(rest.trim().to_owned());
            self.answer(&choice, written, effects);
        }
        true
    }

    /// Ctrl-C.
    pub(super) fn on_interrupt(&mut self, effects: &mut Vec<Effect>) {
        let begun = self.linear.as_mut().map(|linear| std::mem::take(&mut linear.begun)).unwrap_or_default();
        if !begun.is_empty() {
            self.hint = Some("The pasted lines are discarded.".into());
        } else if self.overlay.is_some() {
            self.with_component(effects, Component::leave);
        } else if self.questions.reason.take().is_none() {
            let queued = self.outbox.is_queued();
            if self.is_working() || queued || !self.outbox.waiting.is_empty() {
                self.on_escape(effects);
            } else {
                self.on_clear(effects);
            }
        }
    }

    /// Whether it can be read already, for it was typed at the prompt.
    pub(super) fn was_typed(&mut self, text: &str) -> bool {
        self.linear
            .as_mut()
            .is_some_and(|linear| linear.answer.take().is_some_and(|answer| answer == text.trim()))
    }

    /// What may follow a command, to choose from; nothing is sent by taking it.
    fn offer_arguments(&mut self, name: &str, effects: &mut Vec<Effect>) {
        let head = self.standing.head;
        if let Some(command) = crate::commands::own(name).filter(|command| command.name == "thinking") {
            return self.slash(command, "", effects);
        }
        let (name, asked) = (name.to_owned(), name.to_owned());
        let then =
            move |state: &mut Self, offered: Result<Vec<Candidate>, HostError>, _: &mut Vec<Effect>| {
                state.choose_argument(&name, offered.unwrap_or_default());
            };
        let work = move |context: Context| context.host.arguments(asked, head);
        effects.push(Effect::Ask(Request::new("arguments", work, then)));
    }

    fn choose_argument(&mut self, command: &str, candidates: Vec<Candidate>) {
        if candidates.is_empty() {
            self.hint = Some(format!("There are no suggestions for /{command}; /help lists its arguments."));
            return;
        }
        let row =
            |one: Candidate| PickerRow::new(format!("/{command} {}", one.meant()), one.text, one.detail);
        let rows = candidates.into_iter().map(row).collect();
        self.show(Chooser::new(Picker::new(format!("/{command}"), rows), |state, text: String, effects| {
            state.write(&text, effects);
        }));
    }

    /// What a line of the shell printed since that was told last, by whole lines; all of it when it is done.
    pub(super) fn tell_shell(&mut self, shell: &Shell, output: &str, done: Option<&BashExecutionMessage>) {
        let Some(linear) = &mut self.linear else { return };
        let printed = linear.output.take().filter(|(id, _)| *id == shell.id).map(|(_, printed)| printed);
        let from = behind(printed.as_deref().unwrap_or_default(), output);
        let whole = output[from..].rfind('\n').map_or(from, |at| from + at + 1);
        let to = if done.is_some() { output.len() } else { whole };
        let more = &output[from..to];
        if done.is_none() {
            if printed.is_none() && more.is_empty() {
                return;
            }
            linear.output = Some((shell.id, output[..to].to_owned()));
        }
        let columns = self.size.columns;
        let begun = printed.is_none().then_some((shell.line.as_str(), shell.hidden));
        let lines = render::shell_more(begun, more, done, self.transcript.unfolded, columns, &self.theme);
        self.ready(lines);
    }

    /// How a session stands that was opened.
    pub(super) fn tell_standing(&mut self) {
        let standing = &self.standing;
        let Some(model) = self.model_in_words() else { return };
        let mut text = format!("Session open. {model}");
        text.push_str(&format!(", permissions {}, directory {}", standing.permissions, standing.place));
        if !standing.name.is_empty() {
            text.push_str(&format!(", name {}", standing.name));
        }
        self.note(&format!("{text}. /help lists the commands."));
    }

    /// Which model answers from now on.
    pub(super) fn tell_model(&mut self) {
        if let Some(model) = self.model_in_words() {
            self.note(&format!("{model}."));
        }
    }

    fn model_in_words(&self) -> Option<String> {
        let model = self.standing.model.as_ref().filter(|_| self.linear.is_some())?;
        let mut text = format!("Model {}", model.id);
        if self.standing.levels.len() > 1 {
            text.push_str(&format!(", thinking {}", level_name(self.standing.thinking)));
        }
        Some(text)
    }

    /// What does something, to be said in a hint: the kernel knows no other keys where it edits lines.
    pub(crate) fn key_of(&self, action: Action) -> String {
        match action {
            Action::Interrupt | Action::Clear if self.linear.is_some() => "Ctrl-C".to_owned(),
            Action::Exit if self.linear.is_some() => "Ctrl-D".to_owned(),
            _ => self.bindings.hint(action),
        }
    }
}

/// Where a text goes on behind what was told of it. It is the end of what there was, so what was told may have gone from
/// its beginning.
fn behind(printed: &str, text: &str) -> usize {
    if text.starts_with(printed) {
        return printed.len();
    }
    let end = &printed[printed.ceil_char_boundary(printed.len().saturating_sub(SAME))..];
    text.rfind(end).map_or(0, |at| at + end.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quipu_protocol::{Envelope, Event};

    use super::*;
    use crate::spoken::QUIET;
    use crate::state::UiEvent;
    use crate::{Bindings, Theme};

    #[test]
    fn printed_lines_are_not_repeated_at_the_end() {
        let long = "x".repeat(SAME);
        for (printed, text, expected) in [
            ("", "a\nb", "a\nb"),
            ("a\n", "a\nb", "b"),
            ("a\nb\n", "b\nc\n", "b\nc\n"),
            ("c\nd\n", "0\nc\nd\ne", "e"),
            (&format!("gone\n{long}\n"), &format!("{long}\nnew"), "new"),
            ("quite other", "text", "text"),
        ] {
            assert_eq!(&text[behind(printed, text)..], expected, "{printed:?}");
        }
    }

    #[test]
    fn linear_mode_reports_ongoing_work_periodically() {
        let mut state = State::new(
            Size::default(),
            Theme::plain(),
            Bindings::default(),
            crate::editor::Editor::default(),
            0,
        )
        .linear();
        let mut answer = |input, now| {
            state.on(input, now);
            state.take_printed().iter().map(Line::text).collect::<Vec<_>>()
        };
        let envelope =
            Envelope { seq: 1, session: "s".to_owned().into(), run: None, at: 0, event: Event::RunStarted };
        let none: [&str; 0] = [];
        assert_eq!(answer(UiEvent::Note("a note".into()), 0), ["a note", "Opening the session."]);
        assert_eq!(answer(UiEvent::Event(Arc::new(envelope)), 0), none);
        assert_eq!(answer(UiEvent::Tick, QUIET - 1), none);
        assert_eq!(answer(UiEvent::Tick, QUIET), ["Still waiting for the model, 15s."]);
        assert_eq!(answer(UiEvent::Tick, QUIET + 1), none);
        assert_eq!(answer(UiEvent::Line("/nothing".into()), QUIET + 2).len(), 3);
        assert_eq!(answer(UiEvent::Tick, 2 * QUIET), none);
        assert_eq!(answer(UiEvent::Tick, 2 * QUIET + 2), ["Still waiting for the model, 30s."]);
        assert_eq!(answer(UiEvent::Resize(Size { columns: 1, rows: 1 }), 2 * QUIET + 2), none);
        assert_eq!(answer(UiEvent::Note("a word of more".into()), 2 * QUIET + 3), ["a word of more"]);
    }
}
