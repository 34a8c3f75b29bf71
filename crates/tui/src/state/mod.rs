//! What the terminal knows, and how it changes. Pure: time comes in, and what is to be done goes out.

mod activity;
mod choice;
mod events;
mod folded;
mod item;
mod keys;
mod linear;
mod opening;
mod outbox;
#[cfg(test)]
mod overlay_tests;
mod questions;
#[cfg(test)]
mod reading_tests;
mod shell;
mod slash;
mod transcript;
mod words;

use std::sync::Arc;

use quipu::Refusal;
use quipu_protocol::{
    Ack, BackgroundId, Command, CommandSpec, Model, NodeId, SessionId, Thinking, UnixMs, UserInput,
};

use crate::component::Component;
use crate::editor::Editor;
use crate::keys::Bindings;
use crate::{Line, Size, Theme};

pub(crate) use activity::{Activity, OngoingTask};
pub use choice::{Choice, FormError};
pub(crate) use item::Item;
pub(crate) use opening::Opening;
pub(crate) use outbox::Outbox;
pub(crate) use questions::{Questions, SEEN};
pub(crate) use shell::{Shell, Shells};
pub(crate) use transcript::Transcript;
pub use words::{EditorError, Effect, Purpose, UiEvent};

/// The state of a session that the status line shows.
#[derive(Debug, Default)]
pub(crate) struct SessionStatus {
    pub(crate) session: Option<SessionId>,
    pub(crate) name: String,
    pub(crate) directory: String,
    /// The directory as people read it.
    pub(crate) place: String,
    pub(crate) permissions: String,
    pub(crate) model: Option<Arc<Model>>,
    pub(crate) thinking: Thinking,
    pub(crate) levels: Vec<Thinking>,
    pub(crate) head: Option<NodeId>,
    pub(crate) branch: Option<String>,
    /// What this session's calls took in this sitting.
    pub(crate) usage: quipu_protocol::Usage,
    /// Tokens of the context after the last answer; `None` where that is not known.
    pub(crate) context: Option<u64>,
}

/// Times of keys that act when they are pressed twice.
#[derive(Debug, Default)]
struct DoublePress {
    /// When Ctrl-C was pressed on an empty editor.
    left_at: Option<UnixMs>,
    /// When Escape was.
    escaped_at: Option<UnixMs>,
}

/// All that is seen and typed. [`State::on`] changes it, [`view`](crate::view) shows it.
pub struct State {
    pub(crate) size: Size,
    pub(crate) theme: Theme,
    /// The theme goes by the colour behind text.
    pub(crate) adapts: bool,
    pub(crate) bindings: Bindings,
    pub(crate) editor: Editor,
    pub(crate) standing: SessionStatus,
    pub(crate) transcript: Transcript,
    pub(crate) outbox: Outbox,
    /// Status lines and widgets, by key.
    pub(crate) status: Vec<(String, Vec<String>)>,
    pub(crate) questions: Questions,
    pub(crate) overlay: Option<Box<dyn Component>>,
    pub(crate) activity: Activity,
    pub(crate) opening: Opening,
    pub(crate) shell: Shells,
    /// Commands of the model that run in the background.
    pub(crate) background: Vec<BackgroundId>,
    /// One line that goes with the next key.
    pub(crate) hint: Option<String>,
    twice: DoublePress,
    /// Nothing while the terminal has not said.
    focused: Option<bool>,
    pub(crate) linear: Option<Box<linear::LinearState>>,
    /// The commands that are offered.
    pub(crate) commands: Vec<CommandSpec>,
    pub(crate) now: UnixMs,
}

impl State {
    /// Nothing is open yet.
    pub fn new(size: Size, theme: Theme, bindings: Bindings, mut editor: Editor, now: UnixMs) -> Self {
        editor.resize(room(size));
        let mut state = Self {
            size,
            theme,
            adapts: true,
            bindings,
            editor,
            standing: SessionStatus::default(),
            transcript: Transcript::default(),
            outbox: Outbox::default(),
            status: Vec::new(),
            questions: Questions::default(),
            overlay: None,
            activity: Activity::default(),
            opening: Opening { under_way: true, ..Opening::default() },
            shell: Shells::default(),
            background: Vec::new(),
            hint: None,
            twice: DoublePress::default(),
            focused: None,
            linear: None,
            commands: Vec::new(),
            now,
        };
        state.theme.opener = Some(state.bindings.hint(crate::Action::ToolsExpand).into());
        state.offer_commands(crate::commands::specs());
        state
    }

    /// Takes what happened; what is to be done.
    pub fn on(&mut self, input: UiEvent, now: UnixMs) -> Vec<Effect> {
        self.now = now;
        let mut effects = Vec::new();
        match input {
            UiEvent::Key(key) => self.on_key(key, &mut effects),
            UiEvent::Paste(text) => self.on_paste(&text, &mut effects),
            UiEvent::Line(text) => self.on_line(&text, &mut effects),
            UiEvent::Interrupt => self.on_interrupt(&mut effects),
            UiEvent::Ground { .. } if !self.adapts => {}
            UiEvent::Ground { light } => {
                let theme = if light { Theme::light() } else { Theme::dark() };
                self.wear(&theme);
            }
            UiEvent::Finished => self.leave(&mut effects),
            UiEvent::Resize(size) => {
                self.size = self.room_of(size);
                if let Some(canvas) = &mut self.theme.canvas {
                    canvas.rows = size.rows / 2;
                }
                self.editor.resize(room(size));
            }
            UiEvent::Focus(focused) => self.focused = Some(focused),
            UiEvent::Tick => {}
            UiEvent::Event(envelope) => self.on_event(&envelope, &mut effects),
            UiEvent::Branch(branch) => self.standing.branch = branch,
            UiEvent::Levels(levels) => self.standing.levels = levels,
            UiEvent::Sent(purpose, result) => self.on_sent(purpose, result, &mut effects),
            UiEvent::Glimpsed(end) => self.on_glimpse(&end),
            UiEvent::Opened(result) => self.on_opened(*result, &mut effects),
            UiEvent::Ended => {
                if !self.opening.under_way {
                    self.error("The session has ended.", "`/resume` opens it again.");
                }
                self.activity.stop();
                self.opening.moving = false;
                self.shell.running = None;
                self.questions.asks.clear();
                self.status.clear();
            }
            UiEvent::Note(text) => self.note(&text),
            UiEvent::UnkeptOutput(id, tail) => self.shell_output(&id, &tail),
            UiEvent::UnkeptEnded(id, Ok(done)) => {
                self.shell_ended(&id, &done, Some("no session is open"), &mut effects);
            }
            UiEvent::UnkeptEnded(_, Err(why)) => {
                self.shell_taken(Err(Refusal::Store { why: why.to_string() }), &mut effects);
            }
            UiEvent::Reply(reply) => reply.apply(self, &mut effects),
            UiEvent::Offered(id, candidates, more) => {
                self.offer(id, candidates, more, &mut effects);
            }
            UiEvent::Image(Ok(path)) => {
                self.editor.insert(&format!("{} ", quipu_host::mention(&path.to_string_lossy())));
            }
            UiEvent::Image(Err(why)) => self.hint = Some(why.to_string()),
            UiEvent::Edited(Ok(Some(text))) if self.questions.reason.is_some() => {
                self.questions.reason = Some(text.trim_end().to_owned());
            }
            UiEvent::Edited(Ok(Some(text))) => self.editor.set_text(text.trim_end_matches('\n')),
            UiEvent::EditedSettings => self.read_settings(&mut effects),
            UiEvent::Edited(Ok(None)) | UiEvent::Returned(Ok(())) => {}
            UiEvent::Returned(Err(error)) => self.error("The command failed.", &error.to_string()),
            UiEvent::Edited(Err(error)) => self.error("The editor could not be used.", &error.to_string()),
        }
        for effect in &effects {
            if let Effect::Open(open) = effect {
                self.opening.latest.clone_from(open);
            }
        }
        self.transcript.settle(self.linear.is_some(), self.size.columns, &self.theme);
        if self.linear.is_none() || self.questions.asks.is_empty() {
            self.questions.lay(self.size.columns, &self.theme);
        }
        self.tell();
        effects
    }

    /// Goes by the theme that it was given, whatever colour is behind text.
    #[must_use]
    pub fn with_fixed_theme(mut self) -> Self {
        self.adapts = false;
        self
    }

    /// Looks so from now on; what is printed stays as it is.
    pub(crate) fn wear(&mut self, theme: &Theme) {
        let (links, canvas) = (self.theme.links.take(), self.theme.canvas);
        let opener = self.theme.opener.take();
        self.theme = Theme { links, canvas, opener, ..theme.clone() };
    }

    /// Where its links lead.
    pub fn links(&self) -> Option<&crate::Links> {
        self.theme.links.as_ref()
    }

    /// Lines that are finished: to be printed once.
    pub fn take_printed(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.transcript.printed)
    }

    /// Whether something is under way whose time is shown.
    pub fn is_working(&self) -> bool {
        self.activity.working.is_some()
            || self.activity.busy.is_some()
            || self.shell.running.is_some()
            || self.activity.checking.is_some()
            || self.activity.command.is_some()
    }

    /// Says something beside the matter until the next key.
    pub(crate) fn warn(&mut self, text: &str) {
        self.hint = Some(text.to_owned());
        self.tell();
    }

    /// What is said to the model.
    pub(crate) fn say(&mut self, text: String, when: quipu_protocol::QueueMode, effects: &mut Vec<Effect>) {
        self.say_input(text.clone().into(), text, when, effects);
    }

    /// The same for what need not be text alone; `text` is what can be written again.
    pub(crate) fn say_input(
        &mut self,
        input: UserInput,
        text: String,
        when: quipu_protocol::QueueMode,
        effects: &mut Vec<Effect>,
    ) {
        if self.opening.under_way
            || self.opening.moving
            || self.opening.unready
            || self.standing.session.is_none()
        {
            self.outbox.waiting.push((input, text, when));
        } else {
            self.outbox.unsent.push_back(text.clone());
            let command = Command::Prompt { input, when };
            effects.push(Effect::Send(command, Purpose::Say(text)));
            self.linear.iter_mut().for_each(|linear| linear.sent = true);
        }
    }

    fn on_sent(&mut self, purpose: Purpose, result: Result<Ack, Refusal>, effects: &mut Vec<Effect>) {
        if let Purpose::Say(said) = &purpose {
            // It is in the store now, or comes back into the editor.
            self.outbox.acknowledge(said);
            effects.push(Effect::Draft);
        }
        match (purpose, result) {
            (Purpose::TakeBack, Ok(Ack::Unqueued(inputs))) => {
                let mut texts: Vec<String> =
                    inputs.iter().map(|input| quipu::typed_text(&input.content)).collect();
                let text = self.editor.text();
                if !text.trim().is_empty() {
                    texts.push(text);
                }
                if !texts.is_empty() {
                    self.editor.set_text(&texts.join("\n\n"));
                    effects.push(Effect::Draft);
                }
            }
            (Purpose::Set(choice), result) => {
                self.setting_answered(&choice, result.is_err());
                match result {
                    Ok(_) => Self::keep_choice(choice, effects),
                    Err(refused) => {
                        self.hint = None;
                        self.error("The session did not change.", &refused.to_string());
                    }
                }
            }
            (Purpose::Say(text), Err(refused)) => {
                self.linear.iter_mut().for_each(|linear| linear.sent = false);
                let now = self.editor.text();
                let both = if now.trim().is_empty() { text } else { format!("{text}\n\n{now}") };
                self.editor.set_text(&both);
                self.error("The message was not sent.", &refused.to_string());
            }
            (Purpose::Shell, result) => self.shell_taken(result, effects),
            (Purpose::Move(name), Ok(ack)) => {
                self.opening.moving = false;
                self.on_moved(name, ack, effects);
                self.go_on(effects);
            }
            (Purpose::Move(name), Err(refused)) => {
                self.opening.moving = false;
                let mut why = refused.to_string();
                if let Refusal::Files { conflicts, .. } = &refused {
                    why.extend(conflicts.iter().take(10).map(|path| format!("\n! {path}")));
                }
                self.error(&format!("/{name} changed nothing."), &why);
                self.go_on(effects);
            }
            (_, Err(Refusal::NoSuchAsk)) | (_, Ok(_)) => {}
            (_, Err(refused)) => self.error("Nothing was done.", &refused.to_string()),
        }
    }

    /// Lines that are finished already.
    pub(crate) fn ready(&mut self, lines: Vec<Line>) {
        self.transcript.items.push_back(Item::Ready(lines));
    }

    /// A word from us.
    pub(crate) fn note(&mut self, text: &str) {
        let lines = crate::render::note(text, self.size.columns, &self.theme);
        self.ready(lines);
    }

    /// What was asked for did not come.
    pub(crate) fn failed(&mut self, why: &str) {
        self.error("That did not work.", why);
    }

    /// A component was left without a choice.
    pub(crate) fn left_component(&mut self) {
        if self.opening.unready {
            self.tell_first();
        }
    }

    /// Puts a text into the editor in place of what is there.
    pub(crate) fn write(&mut self, text: &str, effects: &mut Vec<Effect>) {
        self.editor.set_text(text);
        effects.push(Effect::Draft);
    }

    /// Prints the last folded block in full; again, the one before it.
    pub(crate) fn open_block(&mut self) {
        match self.transcript.open_block(self.size.columns, &self.theme) {
            Some(lines) => self.ready(lines),
            None => self.hint = Some("No folded output is left to open".into()),
        }
    }

    /// Shows in full what comes from now on, or folds it.
    pub(crate) fn fold_or_unfold(&mut self) {
        self.transcript.unfolded = !self.transcript.unfolded;
        let how = if self.transcript.unfolded { "in full" } else { "folded" };
        self.hint = Some(format!("New output is shown {how}"));
    }

    /// Something went wrong: what, and what to do.
    pub(crate) fn error(&mut self, what: &str, why: &str) {
        let lines = crate::render::error(what, why, self.size.columns, &self.theme);
        self.ready(lines);
    }
}

/// The room of the editor on a screen.
pub(crate) fn room(size: Size) -> Size {
    Size { columns: size.columns.max(1), rows: (size.rows / 2).max(1) }
}
