//! Sessions that are opened, and what waits for them.

use std::collections::VecDeque;
use std::sync::Arc;

use quipu_host::{ModelChoice, Question};
use quipu_protocol::{Command, Entry, Json, Message, Setting, Thinking};

use super::folded::FoldedBlock;
use super::{Effect, Purpose, State};
use crate::command::SlashCommand;
use crate::component::Chooser;
use crate::host::{Glimpse, OpenError, OpenTarget, OpenedSession, SessionRequest};
use crate::levels::level_name;
use crate::picker::{Picker, PickerRow};
use crate::{Line, render};

/// Which session is opened, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// The session is being opened.
    pub(crate) under_way: bool,
    /// The session goes elsewhere, or something is noted of it.
    pub(crate) moving: bool,
    /// No session can be opened: there is no model.
    pub(crate) unready: bool,
    /// What was asked to be opened last.
    pub(crate) latest: SessionRequest,
    /// What is to be opened instead of what is being opened.
    pub(crate) pending: Option<SessionRequest>,
    /// What is to be changed in the session once it is open.
    pub(crate) settings: Vec<(Setting, ModelChoice)>,
    /// The choice that the session is being opened with, to be kept once it is open.
    pub(crate) chosen: Option<ModelChoice>,
    /// The model and the level that were chosen last, until the session has them.
    pub(crate) wanted: (Option<(String, String)>, Option<Thinking>),
    /// How many changes were sent that the session has not answered yet.
    pub(crate) unanswered: usize,
    /// The terminal's own commands that wait until a session is open, or its work is done; with what follows them.
    pub(crate) held: VecDeque<(SlashCommand, String)>,
    /// A setting was kept that the session has when it is opened again.
    pub(crate) reopens: bool,
    /// How to get help was said.
    pub(crate) greeted: bool,
    /// What could not be opened was left for the session before it.
    pub(crate) returns: bool,
}

impl Opening {
    /// Whether what is for the session has to wait for it.
    pub(crate) fn is_away(&self) -> bool {
        self.under_way || self.moving
    }

    /// Nothing waits for a session any more.
    fn forget(&mut self) {
        self.held.clear();
        self.pending = None;
        self.settings.clear();
        self.wanted = (None, None);
    }

    /// Begins to open a session.
    pub(crate) fn begin(&mut self, open: SessionRequest, effects: &mut Vec<Effect>) {
        self.under_way = true;
        effects.push(Effect::Open(open));
    }
}

impl State {
    pub(super) fn on_opened(&mut self, result: Result<OpenedSession, OpenError>, effects: &mut Vec<Effect>) {
        self.opening.under_way = false;
        let chosen = self.opening.chosen.take();
        self.activity.stop();
        self.outbox.queue = Default::default();
        self.questions.asks.clear();
        let opened = match result {
            Ok(opened) => opened,
            Err(OpenError::NoModel { why, others }) => return self.without_model(&why, others, effects),
            Err(OpenError::Asks(open, question, text)) => return self.ask_to_open(open, question, &text),
            Err(OpenError::Stays(why)) => {
                self.opening.forget();
                self.give_back();
                return self.error("The session stays open.", &why);
            }
            Err(OpenError::Failed(error)) => {
                self.error("The session could not be opened.", &error);
                return self.not_opened(effects);
            }
        };
        if let Some(choice) = chosen {
            Self::keep_choice(choice, effects);
        }
        (self.opening.unready, self.opening.returns) = (false, false);
        if self.opening.settings.is_empty() {
            self.opening.wanted = (None, None);
        }
        let view = opened.session.view();
        let stays = self.standing.session.as_ref() == Some(&view.session);
        let same = stays && self.standing.head == view.head;
        // What leads to where it stood is seen already.
        let seen = self.transcript.glimpsed.take().or(self.standing.head.filter(|_| stays));
        if !stays {
            self.standing.usage = Default::default();
        }
        // All of it: what was left behind by a jump was paid for as well.
        self.standing.usage.cost.total = opened.end.cost.max(self.standing.usage.cost.total);
        self.standing.session = Some(view.session);
        self.standing.head = view.head;
        self.standing.name = opened.end.name;
        self.standing.directory = opened.directory;
        self.standing.place = opened.place;
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
        if !same && tail.is_empty() {
            self.show_start();
        }
        if let Some(resources) = &opened.resources {
            self.note(resources);
        }
        for notice in &opened.notices {
            self.notice(notice);
        }
        // What was asked for while it was opened comes before what is said in it.
        if let Some(open) = self.opening.pending.take() {
            return self.open(open, effects);
        }
        self.go_on(effects);
    }

    /// What a new session begins with; where lines are read, [`State::tell_standing`] says it.
    fn show_start(&mut self) {
        let Some(model) = self.standing.model.clone().filter(|_| self.linear.is_none()) else { return };
        let standing = &self.standing;
        let mut text = format!("New session: {}/{}", model.provider, model.id);
        if standing.levels.len() > 1 {
            text.push_str(&format!(", thinking {}", level_name(standing.thinking)));
        }
        text.push_str(&format!(", in {}, permissions {}", standing.place, standing.permissions));
        self.note(&text);
        // Once for a sitting.
        if !std::mem::replace(&mut self.opening.greeted, true) {
            let help = self.bindings.hint(crate::Action::Help);
            self.note(&format!("/help or {help} lists commands and keys; @ names a file, ! runs a command"));
        }
    }

    /// What was put off while the session was opened, or went elsewhere.
    pub(super) fn go_on(&mut self, effects: &mut Vec<Effect>) {
        if self.opening.under_way || !self.do_held(effects) {
            return;
        }
        // A setting was kept while it was opened.
        if self.opening.reopens {
            return self.reopen(effects);
        }
        let settings = std::mem::take(&mut self.opening.settings);
        self.send_settings(settings, effects);
        self.say_what_waits(effects);
    }

    /// Does what was put off; `false` where that opens another session, for which the rest is.
    pub(super) fn do_held(&mut self, effects: &mut Vec<Effect>) -> bool {
        while let Some((command, arguments)) = self.opening.held.pop_front() {
            self.slash(&command, &arguments, effects);
            if self.opening.is_away() {
                return false;
            }
        }
        true
    }

    /// A session is not opened: what waited for it comes back, and the one before it is opened again.
    fn not_opened(&mut self, effects: &mut Vec<Effect>) {
        self.opening.forget();
        self.transcript.glimpsed = None;
        self.give_back();
        self.opening.unready = self.standing.session.is_none();
        // Once: it may be what cannot be opened.
        if !self.opening.unready && !std::mem::replace(&mut self.opening.returns, true) {
            self.note("Reopening the previous session.");
            let again = self.again();
            self.opening.begin(again, effects);
        }
    }

    /// Asks what must be known before a session can be opened.
    fn ask_to_open(&mut self, open: Box<SessionRequest>, question: Question, text: &str) {
        self.note(text);
        let row = |yes, text: &str, detail: &str| PickerRow::new(yes, text, detail);
        let (title, rows) = match question {
            Question::Here => (
                "Continue it here?",
                vec![
                    row(true, "Continue it here", "in a copy of the session"),
                    row(false, "Cancel", "/resume opens another"),
                ],
            ),
            Question::NewText => (
                "Use the new text?",
                vec![
                    row(false, "Keep the old text", "does not ask about this text again"),
                    row(true, "Use the new text", "the whole context is sent again"),
                ],
            ),
            Question::Caches => (
                "Let commands write to these directories?",
                vec![
                    row(false, "Use a separate copy", "other projects do not see what they write"),
                    row(true, "Let them write there", "you and other projects use what they write"),
                ],
            ),
            Question::Resources => (
                "Use what this project brings along?",
                vec![
                    row(false, "Do not use it", "does not ask again until its programs change"),
                    row(true, "Use it", "you trust who wrote this project"),
                ],
            ),
            Question::DreamBudget => (
                "Let dreams and notes before compactions ask a model?",
                vec![
                    row(false, "No model", "dreams run without one, nothing is noted; does not ask again"),
                    row(true, "Allow it", "/settings budget.background changes the amount"),
                ],
            ),
            Question::Memory => (
                "Keep a memory for this project?",
                vec![
                    row(false, "No memory here", "does not ask again; /memory on switches it on"),
                    row(true, "Keep one", "notes in Markdown that you own; nothing is paid for them"),
                ],
            ),
        };
        let (otherwise, asked) = (open.clone(), question);
        let chosen = move |state: &mut Self, yes, effects: &mut Vec<Effect>| {
            state.open_with(Some(yes), question, *open, effects);
        };
        let chooser = Chooser::new(Picker::new(title, rows), chosen);
        self.show(chooser.or_else(move |state, effects| state.open_with(None, asked, *otherwise, effects)));
    }

    /// Opens a session with what is known now, or does not.
    fn open_with(
        &mut self,
        yes: Option<bool>,
        question: Question,
        mut open: SessionRequest,
        effects: &mut Vec<Effect>,
    ) {
        match (yes, question) {
            (None, Question::Here | Question::NewText) | (Some(false), Question::Here) => {
                self.note("The session was not opened.");
                self.not_opened(effects);
            }
            (yes, _) => {
                open.answers.push((question, yes == Some(true)));
                self.opening.begin(open, effects);
            }
        }
    }

    pub(crate) fn say_what_waits(&mut self, effects: &mut Vec<Effect>) {
        for (input, text, when) in std::mem::take(&mut self.outbox.waiting) {
            if let Some(line) = Self::other_line(&text) {
                Self::run_or_say(line, input, text, when, effects);
                continue;
            }
            self.linear.iter_mut().for_each(|linear| linear.sent = true);
            self.outbox.unsent.push_back(text.clone());
            let command = Command::Prompt { input, when };
            effects.push(Effect::Send(command, Purpose::Say(text)));
        }
    }

    /// The end of a session that is being opened is seen at once.
    pub(super) fn on_glimpse(&mut self, end: &Glimpse) {
        let last = end.tail.last().map(|(node, _)| *node);
        // One that is open already was seen.
        if !self.opening.under_way
            || self.transcript.glimpsed.is_some()
            || last.is_none()
            || last == self.standing.head
        {
            return;
        }
        self.transcript.glimpsed = last;
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
                    self.transcript.last_answer = text;
                }
            }
            lines.extend(render::entry(entry, &calls, self.transcript.unfolded, columns, &self.theme));
            if let Entry::Message(Message::ToolResult(result)) = entry {
                let args = calls.get(&result.tool_call_id).cloned().unwrap_or_else(Json::object);
                let (name, result) = (result.tool_name.clone(), Arc::new(result.clone()));
                self.transcript.folded.add(FoldedBlock::Tool { name, args, result, took: 0 });
            }
        }
        self.theme.canvas = canvas;
        self.ready(lines);
    }

    /// Opens the session again where a setting wants that and nothing is under way.
    pub(crate) fn reopen(&mut self, effects: &mut Vec<Effect>) {
        let rests = !self.opening.under_way && self.activity.rests() && self.shell.running.is_none();
        if rests && std::mem::take(&mut self.opening.reopens) {
            let again = self.again();
            self.opening.begin(again, effects);
        }
    }

    /// Opens a session, when nothing is under way in this one.
    pub(crate) fn open(&mut self, open: SessionRequest, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        if self.opening.under_way {
            // One after the other: the one that is being opened must not be left behind.
            self.opening.pending = Some(open);
            return;
        }
        self.opening.begin(open, effects);
    }

    /// The same session with the same model and level, which it may not have said anything with yet.
    pub(crate) fn again(&self) -> SessionRequest {
        let which = match (&self.standing.session, self.standing.head) {
            (Some(session), Some(_)) => OpenTarget::Session(session.clone()),
            // Nothing was said: what the command line asked for may be a file all the same.
            _ if self.opening.latest.which == OpenTarget::Asked => OpenTarget::Asked,
            _ => OpenTarget::New,
        };
        let model = self.standing.model.as_ref();
        let model = model.map(|model| (model.provider.clone(), model.id.clone()));
        let thinking = model.is_some().then_some(self.standing.thinking);
        SessionRequest { which, model, thinking, ..SessionRequest::default() }
    }

    /// A new session with the same model and level.
    pub(crate) fn begin_anew(&mut self, effects: &mut Vec<Effect>) {
        self.open(SessionRequest { which: OpenTarget::New, ..self.again() }, effects);
    }
}
