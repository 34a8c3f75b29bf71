//! Sub-agents at work: a list of them, and a look into one, which can be written to and stopped from there.

use std::collections::VecDeque;

use quipu::{Delivery, Events, LiveAgent};
use quipu_protocol::{Ending, Envelope, Event, Message, Outcome};
use std::sync::Arc;

use crate::component::{Chooser, Component, OpenComponent};
use crate::picker::{Picker, PickerRow, cut};
use crate::{Effect, Key, KeyCode, Line, Request, Size, SlashCommand, State, Style, Theme, clean, render};

pub(crate) const AGENTS: SlashCommand = SlashCommand::new(
    "agents",
    "",
    "watch, steer or stop sub-agents; list those of files",
    |_, arguments, effects| {
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            None => effects.push(Effect::Ask(list())),
            Some(first) => {
                // What a person types here is meant.
                let confirmed = (first == "discard").then(|| "--yes".to_owned());
                let words = std::iter::once("agents".to_owned()).chain(words).chain(confirmed).collect();
                super::reports::run(words, effects);
            }
        }
    },
)
.of_session();

/// Lines that are kept of one that is watched.
const LINES: usize = 2_000;
/// Characters of an argument, and of what is written to one.
const ARGUMENT: usize = 200;
const WRITTEN: usize = 16 << 10;
/// What stops one, where it is written to.
const STOP: &str = "/stop";
const HELP: &str = "Enter sends, /stop stops it, Escape closes this";

/// Those at work; where there are none, what the files have.
fn list() -> Request {
    Request::new(
        "agents",
        |context| async move { context.session.map_or_else(Vec::new, |session| session.agents()) },
        |state: &mut State, mut agents: Vec<LiveAgent>, effects| match agents.len() {
            0 => super::reports::run(vec!["agents".to_owned()], effects),
            1 => effects.extend(agents.pop().map(|agent| Effect::Ask(watch(agent)))),
            _ => {
                let row = |agent: LiveAgent| {
                    let (text, detail) = (heading(&agent), agent.session.view().session.to_string());
                    PickerRow::new(agent, text, detail)
                };
                let picker = Picker::new("Sub-agents", agents.into_iter().map(row).collect());
                state.show(Chooser::new(picker, |_, agent: LiveAgent, effects| {
                    effects.push(Effect::Ask(watch(agent)));
                }));
            }
        },
    )
}

fn heading(agent: &LiveAgent) -> String {
    if agent.title.is_empty() { agent.agent.clone() } else { format!("{}: {}", agent.agent, agent.title) }
}

/// Looks into one: what it did so far, and what it does from now on.
fn watch(agent: LiveAgent) -> Request {
    Request::new(
        "agent",
        |context| async move {
            let id = agent.session.view().session.to_string();
            let so_far = context.host.command(vec!["show".into(), id]).await;
            let so_far = so_far.map_or_else(|_| String::new(), |printed| printed.results());
            let events = agent.session.subscribe(Delivery::Live).await.map(|(_, events)| events);
            (agent, so_far, events)
        },
        |state: &mut State, (agent, so_far, events), effects| match events {
            Ok(events) => {
                let session = agent.session.view().session.to_string();
                let mut shown =
                    AgentWatch { agent, lines: VecDeque::new(), text: String::new(), ended: false };
                shown.add(&so_far);
                state.show(shown);
                effects.push(Effect::Ask(follow(session, events)));
            }
            Err(_) => state.hint = Some("This sub-agent has ended".into()),
        },
    )
}

/// Waits for the next event, for as long as somebody watches.
fn follow(session: String, mut events: Events) -> Request {
    Request::new(
        "agent",
        |_| async move {
            let next = events.next().await;
            (session, events, next)
        },
        |state: &mut State, (session, events, next): (String, Events, Option<Arc<Envelope>>), effects| {
            let Some(shown) = state.shown_component::<AgentWatch>() else { return };
            if shown.agent.session.view().session.as_str() != session {
                return;
            }
            match next {
                Some(envelope) => {
                    shown.note(&envelope.event);
                    effects.push(Effect::Ask(follow(session, events)));
                }
                None => shown.end(),
            }
        },
    )
}

/// A look into a sub-agent.
struct AgentWatch {
    agent: LiveAgent,
    lines: VecDeque<String>,
    /// What is being written to it.
    text: String,
    ended: bool,
}

impl AgentWatch {
    fn add(&mut self, text: &str) {
        for line in text.trim_end().lines() {
            self.lines.push_back(clean(line).into_owned());
            if self.lines.len() > LINES {
                self.lines.pop_front();
            }
        }
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.add("It has ended.");
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::ToolStarted { name, args, .. } => {
                self.add(&cut(&format!("{name} {}", args.get()), ARGUMENT));
            }
            Event::ToolEnded { result, .. } if result.is_error => {
                self.add(&format!("{} failed", result.tool_name));
            }
            Event::MessageEnded { message, ending: Ending::Committed(_), .. } => match &**message {
                Message::Assistant(answer) => self.add(&answer.text()),
                Message::User(said) => self.add(&format!("› {}", said.content.text())),
                _ => {}
            },
            Event::AskOpened { .. } => self.add("It waits for your answer; close this to give it."),
            Event::RunEnded { outcome } if *outcome != Outcome::Done => self.add("It was stopped."),
            _ => {}
        }
    }

    /// Carries out a line that was written to it.
    fn send(&mut self, line: &str, effects: &mut Vec<Effect>) {
        let (line, session) = (line.trim().to_owned(), self.agent.session.clone());
        if line.is_empty() {
            return;
        }
        if self.ended {
            return self.add("It has ended, and reads nothing any more.");
        }
        let work = async move {
            match line.as_str() {
                STOP => session.abort().await,
                _ => session.steer(line).await.map(|_| ()),
            }
        };
        let then = |state: &mut State, result: Result<(), quipu::Refusal>, _: &mut Vec<Effect>| {
            if let Err(refused) = result {
                state.hint = Some(format!("The sub-agent did not take it: {refused}"));
            }
        };
        effects.push(Effect::Ask(Request::new("agent", |_| work, then)));
    }
}

impl Component for AgentWatch {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match (key.code, key.modifiers.control, key.modifiers.alt) {
            (KeyCode::Enter, ..) => {
                let line = std::mem::take(&mut self.text);
                self.send(&line, effects);
            }
            (KeyCode::Escape, ..) | (KeyCode::Char('c'), true, _) => return self.leave(state, effects),
            (KeyCode::Backspace, ..) => drop(self.text.pop()),
            (KeyCode::Char('u'), true, _) => self.text.clear(),
            (KeyCode::Char(letter), false, false) if self.text.len() < WRITTEN => self.text.push(letter),
            _ => {}
        }
        Some(self)
    }

    fn on_line(
        mut self: Box<Self>,
        line: &str,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> OpenComponent {
        if line.trim().is_empty() {
            return self.leave(state, effects);
        }
        self.send(line, effects);
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        let room = WRITTEN.saturating_sub(self.text.len());
        self.text.extend(text.chars().filter(|letter| !letter.is_control()).take(room));
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let columns = size.columns;
        let room = size.rows.saturating_sub(4).clamp(1, 20);
        let title = format!("{} in session {}", heading(&self.agent), self.agent.session.view().session);
        let mut lines = vec![Line::styled(cut(&clean(&title), columns), theme.heading)];
        let newest = self.lines.iter().skip(self.lines.len().saturating_sub(room));
        let text = newest.map(String::as_str).collect::<Vec<_>>().join("\n");
        let mut body = render::plain(&text, columns, theme.output, usize::MAX);
        lines.extend(body.split_off(body.len().saturating_sub(room)));
        let mut line = Line::styled("› ", theme.accent);
        line.push(cut(&clean(&self.text), columns.saturating_sub(3)), Style::default());
        lines.push(line);
        lines.push(Line::styled(cut(HELP, columns), theme.muted));
        lines
    }

    fn spoken(&self) -> Vec<String> {
        let newest = self.lines.iter().skip(self.lines.len().saturating_sub(20)).cloned();
        let mut lines = vec![format!("{}.", heading(&self.agent))];
        lines.extend(newest);
        lines.push("Write a line to send it, /stop to stop it. Enter alone closes this.".to_owned());
        lines
    }

    fn prompt(&self) -> &'static str {
        "To it: "
    }
}
