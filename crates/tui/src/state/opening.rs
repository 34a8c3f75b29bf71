//! Sessions that are opened, and what waits for them.

use quipu_host::Question;
use quipu_protocol::{Command, Entry, Message};

use super::{Effect, Purpose, State};
use crate::component::Chooser;
use crate::host::{Glimpse, NotOpened, Open, Opened, Which};
use crate::picker::{Picker, PickerRow};
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
            effects.push(Effect::Send(Command::Set { setting }, Purpose::Set));
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

    pub(crate) fn say_what_waits(&mut self, effects: &mut Vec<Effect>) {
        for (input, text, when) in std::mem::take(&mut self.waiting) {
            self.linear.iter_mut().for_each(|linear| linear.sent = true);
            self.unsent.push_back(text.clone());
            let command = Command::Prompt { input, when };
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

    /// Opens the session again where a setting wants that and nothing is under way.
    pub(crate) fn reopen(&mut self, effects: &mut Vec<Effect>) {
        let rests = !self.opening && self.working.is_none() && self.busy.is_none() && self.shell.is_none();
        if rests && std::mem::take(&mut self.reopens) {
            self.opening = true;
            effects.push(Effect::Open(self.again()));
        }
    }

    /// Opens a session, when nothing is under way in this one.
    pub(crate) fn open(&mut self, open: Open, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        if self.opening {
            // One after the other: the one that is being opened must not be left behind.
            self.pending = Some(open);
            return;
        }
        self.opening = true;
        effects.push(Effect::Open(open));
    }

    /// The same session with the same model and level, which it may not have said anything with yet.
    pub(crate) fn again(&self) -> Open {
        let which = match (&self.standing.session, self.standing.head) {
            (Some(session), Some(_)) => Which::Session(session.clone()),
            // Nothing was said: what the command line asked for may be a file all the same.
            _ if self.latest.which == Which::Asked => Which::Asked,
            _ => Which::New,
        };
        let model = self.standing.model.as_ref();
        let model = model.map(|model| (model.provider.clone(), model.id.clone()));
        let thinking = model.is_some().then_some(self.standing.thinking);
        Open { which, model, thinking, ..Open::default() }
    }

    /// A new session with the same model and level.
    pub(crate) fn begin_anew(&mut self, effects: &mut Vec<Effect>) {
        self.open(Open { which: Which::New, ..self.again() }, effects);
    }
}
