//! A session that was opened, and what the host answered.

use std::sync::Arc;

use quipu_protocol::{Entry, Message, Model};

use super::overlay::Overlay;
use super::{Effect, Got, Purpose, State};
use crate::editor::Candidate;
use quipu_host::Question;

use crate::host::{
    FoundItem, FoundItems, Glimpse, NotOpened, Open, Opened, Printed, Reach, SessionItem, SettingKept, Which,
};
use crate::navigator::Navigator;
use crate::picker::{Picker, PickerRow};
use crate::reader::Reader;
use crate::{Line, render};

impl State {
    pub(super) fn on_opened(&mut self, result: Result<Opened, NotOpened>, effects: &mut Vec<Effect>) {
        self.opening = false;
        self.working = None;
        self.busy = None;
        self.queue = Default::default();
        self.asks.clear();
        let opened = match result {
            Ok(opened) => opened,
            Err(NotOpened::NoModel { why, others }) => return self.without_model(&why, others, effects),
            Err(NotOpened::Asks(open, question, text)) => return self.ask_to_open(open, question, &text),
            Err(NotOpened::Failed(error)) => {
                self.error("The session could not be opened.", &error);
                return self.not_opened(effects);
            }
        };
        (self.unready, self.returns) = (false, false);
        self.wanted = (None, None);
        let view = opened.session.view();
        let stays = self.standing.session.as_ref() == Some(&view.session);
        let same = stays && self.standing.head == view.head;
        // What leads to where it stood is seen already.
        let seen = self.glimpsed.take().or(self.standing.head.filter(|_| stays));
        if !same {
            self.standing.usage = Default::default();
        }
        self.standing.session = Some(view.session);
        self.standing.head = view.head;
        self.standing.name = opened.end.name;
        self.standing.directory = opened.directory;
        self.standing.permissions = opened.permissions;
        self.standing.levels = opened.levels;
        self.standing.thinking = opened.thinking;
        self.standing.model = Some(opened.model);
        let tail = opened.end.tail;
        let begun = tail.iter().position(|(node, _)| Some(*node) == seen);
        match begun {
            // What was left open is brought to an end behind what was seen.
            Some(at) => self.tail(&tail[at + 1..], 0),
            None if same => {}
            None => {
                self.standing.context = None;
                self.tail(&tail, opened.end.earlier);
            }
        }
        self.tell_standing();
        for trouble in &opened.troubles {
            self.trouble(trouble);
        }
        // What was asked for while it was opened comes before what is said in it.
        if let Some(open) = self.pending.take() {
            return self.open(open, effects);
        }
        self.go_on(effects);
    }

    /// What was put off while the session was opened, or went elsewhere.
    pub(super) fn go_on(&mut self, effects: &mut Vec<Effect>) {
        if self.opening || !self.do_held(effects) {
            return;
        }
        // A setting was kept while it was opened.
        if self.reopens {
            return self.reopen(effects);
        }
        for setting in std::mem::take(&mut self.settings) {
            effects.push(Effect::Send(quipu_protocol::Command::Set { setting }, Purpose::Set));
        }
        self.say_what_waits(effects);
    }

    /// Does what was put off; `false` where that opens another session, for which the rest is.
    pub(super) fn do_held(&mut self, effects: &mut Vec<Effect>) -> bool {
        while let Some((command, arguments)) = self.held.pop_front() {
            self.slash(&command, &arguments, effects);
            if self.opening || self.moving {
                return false;
            }
        }
        true
    }

    /// A session is not opened: what waited for it comes back, and the one before it is opened again.
    fn not_opened(&mut self, effects: &mut Vec<Effect>) {
        self.held.clear();
        self.pending = None;
        self.settings.clear();
        self.glimpsed = None;
        self.give_back();
        self.unready = self.standing.session.is_none();
        // Once: it may be what cannot be opened.
        if !self.unready && !std::mem::replace(&mut self.returns, true) {
            self.note("The session before it is opened again.");
            self.opening = true;
            effects.push(Effect::Open(self.again()));
        }
    }

    /// Asks what must be known before a session can be opened.
    fn ask_to_open(&mut self, open: Box<Open>, question: Question, text: &str) {
        self.note(text);
        let row = |yes, text: &str, detail: &str| PickerRow::new(yes, text, detail);
        let (title, rows) = match question {
            Question::Here => (
                "Go on with it here?",
                vec![
                    row(true, "Go on with it here", "as a session of its own"),
                    row(false, "Leave it", "/resume opens another"),
                ],
            ),
            Question::NewText => (
                "Go on with the new text?",
                vec![
                    row(false, "Keep the text that it began with", "this one is not asked about again"),
                    row(true, "Take the new text", "what the model is told is sent anew"),
                ],
            ),
            Question::Caches => (
                "May commands write to these places?",
                vec![
                    row(false, "Keep apart what they write", "other projects do not see it"),
                    row(true, "Let them write there", "you and other projects use what they leave"),
                ],
            ),
        };
        self.show(Overlay::Opening(Picker::new(title, rows), question, open));
    }

    /// Opens a session with what is known now, or does not.
    pub(super) fn open_with(
        &mut self,
        yes: Option<bool>,
        question: Question,
        mut open: Open,
        effects: &mut Vec<Effect>,
    ) {
        match (yes, question) {
            (None, Question::Here | Question::NewText) | (Some(false), Question::Here) => {
                self.note("It was not opened.");
                self.not_opened(effects);
            }
            (yes, _) => {
                open.answers.push((question, yes == Some(true)));
                self.opening = true;
                effects.push(Effect::Open(open));
            }
        }
    }

    fn say_what_waits(&mut self, effects: &mut Vec<Effect>) {
        for (input, text, when) in std::mem::take(&mut self.waiting) {
            self.linear.iter_mut().for_each(|linear| linear.sent = true);
            self.unsent.push_back(text.clone());
            let command = quipu_protocol::Command::Prompt { input, when };
            effects.push(Effect::Send(command, Purpose::Say(text)));
        }
    }

    /// The end of a session that is being opened is seen at once.
    pub(super) fn on_glimpse(&mut self, end: &Glimpse) {
        let last = end.tail.last().map(|(node, _)| *node);
        // One that is open already was seen.
        if !self.opening || self.glimpsed.is_some() || last.is_none() || last == self.standing.head {
            return;
        }
        self.glimpsed = last;
        self.standing.name.clone_from(&end.name);
        self.standing.context = None;
        self.tail(&end.tail, end.earlier);
    }

    /// The end of what was said before.
    fn tail(&mut self, tail: &[(quipu_protocol::NodeId, Entry)], earlier: u64) {
        if tail.is_empty() {
            return;
        }
        let columns = self.size.columns;
        let mut lines = Vec::new();
        // Those of before are only named.
        let canvas = self.theme.canvas.take();
        if earlier > 0 {
            lines.push(Line::default());
            lines.push(Line::styled(
                format!(
                    "… {earlier} earlier entries: /tree walks them, /export html writes them all to read"
                ),
                self.theme.muted,
            ));
        }
        let mut calls = std::collections::HashMap::new();
        for (_, entry) in tail {
            if let Entry::Message(Message::Assistant(answer)) = entry {
                for call in answer.tool_calls() {
                    calls.insert(call.id.clone(), call.arguments.clone());
                }
                if answer.usage.total_tokens > 0 {
                    self.standing.context = Some(answer.usage.total_tokens);
                }
                let text = answer.text();
                if !text.is_empty() {
                    self.last_answer = text;
                }
            }
            lines.extend(render::entry(entry, &calls, self.unfolded, columns, &self.theme));
        }
        self.theme.canvas = canvas;
        self.ready(lines);
    }

    pub(super) fn on_got(&mut self, got: Got, effects: &mut Vec<Effect>) {
        if let Got::Printed(what, _) = &got
            && what == "demo"
        {
            self.demo_ended();
        }
        match got {
            Got::Models(Ok(models)) => self.models(models),
            Got::Cycled(Ok(models), choice) => self.cycle(&models, choice, effects),
            Got::Sessions(Ok(sessions), filter) => self.sessions(sessions, &filter, effects),
            Got::Tree(Reach::Session(session), Ok(rows), true) => {
                if let Some(Overlay::Tree(navigator)) = &mut self.overlay {
                    navigator.open(&session, rows);
                }
            }
            Got::Tree(reach, Ok(rows), _) => {
                if let Some(home) = self.standing.session.clone() {
                    self.show(Overlay::Tree(Box::new(Navigator::new(rows, reach, home))));
                }
            }
            Got::Compared(Ok(text)) => {
                self.overlay = match self.overlay.take() {
                    Some(Overlay::Tree(navigator)) => {
                        let help = "↑↓ scroll · Escape goes back to the tree";
                        Some(Overlay::Compared(Reader::new("Two branches", text, help), navigator))
                    }
                    other => other,
                };
            }
            Got::Foreseen(node, Ok(text)) => {
                let help =
                    "Enter goes there · o also where what is in a file (!) would be lost · Escape stays";
                self.show(Overlay::Foreseen(Reader::new("What would become of files", text, help), node));
            }
            Got::Settings(Ok(settings)) => {
                let row = |one: Candidate| PickerRow::new(one.meant().to_owned(), one.text, one.detail);
                let mut rows = vec![PickerRow::new(String::new(), "settings.json in your editor", "")];
                rows.extend(settings.into_iter().map(row));
                self.show(Overlay::Settings(Picker::new("Settings", rows)));
            }
            Got::Unfolded(below, Ok(rows)) => {
                if let Some(Overlay::Tree(navigator)) = &mut self.overlay {
                    navigator.unfold(below, rows);
                }
            }
            Got::Preview(node, Ok(text)) => {
                if let Some(Overlay::Tree(navigator)) = &mut self.overlay {
                    navigator.previewed(node, text);
                }
            }
            Got::Found(Ok(found), words) => self.found(found, &words),
            Got::Said(Ok(said)) => {
                let rows = said.into_iter().map(|(node, text)| PickerRow::new(node, text, "")).collect();
                self.show(Overlay::Said(Picker::new("A new session from before", rows)));
            }
            Got::Resolved(Ok(node)) => self.fork_at(node, effects),
            Got::LocalServers(Ok(servers)) => self.on_local_servers(&servers),
            Got::Providers(Ok(providers), wanted) => self.on_providers(providers, &wanted),
            Got::Printed(what, Ok(printed)) => self.printed(&what, &printed),
            Got::Made(Ok(session)) => {
                self.opening = false;
                self.open(Open { which: Which::Session(session), ..Open::default() }, effects);
            }
            Got::Made(Err(why)) => {
                self.error("It was not made.", &why);
                self.opening = false;
                self.say_what_waits(effects);
            }
            Got::Kept(provider, key, kept) => self.on_kept(provider, key, kept, effects),
            Got::Set(Ok(kept)) => self.on_setting(kept, effects),
            Got::Models(Err(error))
            | Got::Cycled(Err(error), _)
            | Got::Set(Err(error))
            | Got::Sessions(Err(error), _)
            | Got::Tree(_, Err(error), _)
            | Got::Compared(Err(error))
            | Got::Foreseen(_, Err(error))
            | Got::Settings(Err(error))
            | Got::Unfolded(_, Err(error))
            | Got::Preview(_, Err(error))
            | Got::Found(Err(error), _)
            | Got::Said(Err(error))
            | Got::Resolved(Err(error))
            | Got::LocalServers(Err(error))
            | Got::Providers(Err(error), _)
            | Got::Printed(_, Err(error)) => self.error("That did not work.", &error),
        }
    }

    /// A setting is kept: it holds for what is opened from now on, so the session is opened again.
    fn on_setting(&mut self, kept: SettingKept, effects: &mut Vec<Effect>) {
        if let Some(theme) = kept.theme {
            self.wear(&theme);
        }
        self.note(&kept.told);
        if !kept.reopens || self.unready || self.standing.session.is_none() {
            return;
        }
        self.reopens = true;
        if self.opening || self.working.is_some() || self.busy.is_some() || self.shell.is_some() {
            self.note("It holds for this session when the work is done");
        }
        self.reopen(effects);
    }

    /// Opens the session again where a setting wants that and nothing is under way.
    pub(super) fn reopen(&mut self, effects: &mut Vec<Effect>) {
        let rests = !self.opening && self.working.is_none() && self.busy.is_none() && self.shell.is_none();
        if rests && std::mem::take(&mut self.reopens) {
            self.opening = true;
            effects.push(Effect::Open(self.again()));
        }
    }

    fn models(&mut self, models: Vec<Arc<Model>>) {
        let now = self.standing.model.as_ref();
        let at = models.iter().position(|model| {
            now.is_some_and(|now| (&now.provider, &now.id) == (&model.provider, &model.id))
        });
        let rows = models
            .into_iter()
            .map(|model| {
                let text = format!("{}/{}", model.provider, model.id);
                let detail = format!("{} · {}k", model.name, model.context_window / 1_000);
                PickerRow::new(model, text, detail)
            })
            .collect();
        self.show(Overlay::Models(Picker::new("Model", rows).starting_at(at.unwrap_or(0))));
    }

    fn sessions(&mut self, sessions: Vec<SessionItem>, filter: &str, effects: &mut Vec<Effect>) {
        if let Some(named) = sessions.iter().find(|item| item.id.as_str() == filter) {
            let which = Which::Session(named.id.clone());
            return self.open(Open { which, ..Open::default() }, effects);
        }
        let here = &self.standing.directory;
        let now = self.now;
        let rows = sessions
            .into_iter()
            .map(|item| {
                let place = if item.cwd == *here { String::new() } else { format!(" · {}", item.cwd) };
                let agent =
                    if item.agent == quipu::AGENT { String::new() } else { format!(" · {}", item.agent) };
                let title = if item.title.is_empty() { "(nothing was said)".into() } else { item.title };
                let ago = render::ago(now, item.updated);
                let detail = format!("{ago} · {} entries · ${:.2}{agent}{place}", item.entries, item.cost);
                PickerRow::new(item.id, title, detail)
            })
            .collect();
        let mut picker = Picker::new("Go on with", rows);
        if !filter.is_empty() {
            picker.paste(filter);
            if let (1, Some(only)) = (picker.len(), picker.chosen()) {
                let which = Which::Session(only.clone());
                return self.open(Open { which, ..Open::default() }, effects);
            }
        }
        self.show(Overlay::Sessions(picker));
    }

    fn found(&mut self, items: FoundItems, words: &str) {
        for line in &items.told {
            self.note(line);
        }
        let row = |item: FoundItem| PickerRow::new((item.node, item.session), item.text, item.detail);
        let rows: Vec<_> = items.found.into_iter().map(row).collect();
        if !rows.is_empty() {
            self.show(Overlay::Found(Picker::new(format!("Found for {words}"), rows)));
        }
    }

    /// What a command printed.
    fn printed(&mut self, what: &str, printed: &Printed) {
        let mut lines =
            vec![Line::default(), Line::styled(format!("/{}", crate::clean(what)), self.theme.command)];
        let columns = self.size.columns;
        lines.extend(render::plain(printed.out.trim_end(), columns, self.theme.text, usize::MAX));
        let style = if printed.ok { self.theme.muted } else { self.theme.error };
        lines.extend(render::plain(printed.err.trim_end(), columns, style, usize::MAX));
        self.ready(lines);
        if self.unready && self.overlay.is_none() {
            self.tell_first();
        }
    }
}
