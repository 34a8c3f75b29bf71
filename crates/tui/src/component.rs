//! What takes the keys while it is open. A component owns its state: how a key changes it, how it is seen and heard, and
//! what becomes of what is chosen in it.

use std::any::Any;

use crate::blocks::cut as cut_line;
use crate::keys::{Action, Bindings};
use crate::picker::{Picker, PickerResult, PickerRow, cut};
use crate::{Effect, Key, KeyCode, Line, Size, State, Style, Theme, clean};

/// The component that is open next; `None` to close the overlay, or where the component opened another itself.
pub(crate) type OpenComponent = Option<Box<dyn Component>>;

/// Something that is open in place of the editor.
pub(crate) trait Component: Any + Send {
    /// Takes a key. What is chosen is carried out here.
    fn on_key(self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent;

    /// Takes a line that was typed, where nothing is drawn.
    fn on_line(self: Box<Self>, line: &str, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent;

    /// Somebody leaves it without a choice.
    fn leave(self: Box<Self>, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        _ = effects;
        state.left_component();
        None
    }

    /// A key as it is meant here, before it is looked up among those of lists.
    fn meant(&self, key: Key, bindings: &Bindings) -> Key {
        _ = bindings;
        key
    }

    /// Takes text that was pasted.
    fn paste(&mut self, text: &str) {
        _ = text;
    }

    /// How it looks.
    fn view(&self, size: Size, theme: &Theme) -> Vec<Line>;

    /// What is to be heard of it.
    fn spoken(&self) -> Vec<String>;

    /// What stands before what is typed, where lines are.
    fn prompt(&self) -> &'static str {
        "Choose: "
    }

    /// Whether what is typed must not be seen.
    fn hides(&self) -> bool {
        false
    }
}

/// How a component looks: no line is wider than the screen.
pub(crate) fn component_view(component: &dyn Component, size: Size, theme: &Theme) -> Vec<Line> {
    component.view(size, theme).iter().map(|line| cut_line(line, size.columns)).collect()
}

impl State {
    /// Shows a component in place of what was open.
    pub(crate) fn show(&mut self, component: impl Component) {
        self.overlay = Some(Box::new(component));
    }

    /// What is open, where it is such a component.
    pub(crate) fn shown_component<C: Component>(&mut self) -> Option<&mut C> {
        (&mut **self.overlay.as_mut()? as &mut dyn Any).downcast_mut()
    }

    /// The same, taken away.
    pub(crate) fn take_component<C: Component>(&mut self) -> Option<Box<C>> {
        self.shown_component::<C>()?;
        (self.overlay.take()? as Box<dyn Any>).downcast().ok()
    }

    /// Lets what is open do something; what is open then.
    pub(crate) fn with_component(
        &mut self,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(Box<dyn Component>, &mut Self, &mut Vec<Effect>) -> OpenComponent,
    ) {
        let Some(component) = self.overlay.take() else { return };
        if let Some(open) = act(component, self, effects) {
            self.overlay = Some(open);
        }
    }
}

type Callback<T> = Box<dyn FnOnce(&mut State, T, &mut Vec<Effect>) + Send>;

/// A list with what is done with the row that is chosen.
pub(crate) struct Chooser<T> {
    pub(crate) picker: Picker<T>,
    chosen: Callback<T>,
    cancelled: Option<Callback<()>>,
    moved_by: Option<Action>,
}

impl<T: Clone + Send + 'static> Chooser<T> {
    pub(crate) fn new(
        picker: Picker<T>,
        chosen: impl FnOnce(&mut State, T, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self { picker, chosen: Box::new(chosen), cancelled: None, moved_by: None }
    }

    /// Does this when it is left without a choice.
    pub(crate) fn or_else(
        self,
        cancelled: impl FnOnce(&mut State, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self { cancelled: Some(Box::new(|state, (), effects| cancelled(state, effects))), ..self }
    }

    /// The key that opened it goes on to the next row, as in a shell.
    pub(crate) fn moved_by(self, action: Action) -> Self {
        Self { moved_by: Some(action), ..self }
    }

    /// More rows. Where rows have numbers, one that was heard stays with its row.
    pub(crate) fn add(&mut self, rows: Vec<PickerRow<T>>, numbered: bool) {
        if numbered { self.picker.append(rows) } else { self.picker.prepend(rows) }
    }
}

impl<T: Clone + Send + 'static> Component for Chooser<T> {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match self.picker.on_key(key) {
            PickerResult::Open => return Some(self),
            PickerResult::Chosen(value) => (self.chosen)(state, value, effects),
            PickerResult::Cancelled => return self.leave(state, effects),
        }
        None
    }

    fn on_line(
        mut self: Box<Self>,
        line: &str,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> OpenComponent {
        if line.is_empty() {
            return self.leave(state, effects);
        }
        match self.picker.list_mut().read(line) {
            Some(key) => self.on_key(key, state, effects),
            None => Some(self),
        }
    }

    fn leave(self: Box<Self>, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match self.cancelled {
            Some(cancelled) => cancelled(state, (), effects),
            None => state.left_component(),
        }
        None
    }

    fn meant(&self, key: Key, bindings: &Bindings) -> Key {
        if self.moved_by.is_some_and(|action| bindings.is(action, key)) { KeyCode::Down.into() } else { key }
    }

    fn paste(&mut self, text: &str) {
        self.picker.paste(text);
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.picker.view(size, theme)
    }

    fn spoken(&self) -> Vec<String> {
        self.picker.list().spoken()
    }
}

/// One line that is asked for, with what is done with it.
pub(crate) struct LineInput {
    title: String,
    text: String,
    secret: bool,
    /// What Enter alone means, where a line may be empty.
    empty: Option<&'static str>,
    done: Callback<String>,
    cancelled: Option<Callback<()>>,
}

impl LineInput {
    pub(crate) fn new(
        title: impl Into<String>,
        done: impl FnOnce(&mut State, String, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self {
            title: title.into(),
            text: String::new(),
            secret: false,
            empty: None,
            done: Box::new(done),
            cancelled: None,
        }
    }

    /// Does this when it is left without a line.
    pub(crate) fn or_else(
        self,
        cancelled: impl FnOnce(&mut State, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self { cancelled: Some(Box::new(|state, (), effects| cancelled(state, effects))), ..self }
    }

    /// What stands there already.
    pub(crate) fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// What is typed is not shown.
    pub(crate) fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// A line may be empty, which means this.
    pub(crate) fn may_be_empty(self, meaning: &'static str) -> Self {
        Self { empty: Some(meaning), ..self }
    }
}

impl Component for LineInput {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match (key.code, key.modifiers.control, key.modifiers.alt) {
            (KeyCode::Enter, ..) => {
                (self.done)(state, self.text, effects);
                return None;
            }
            (KeyCode::Escape, ..) | (KeyCode::Char('c'), true, _) => return self.leave(state, effects),
            (KeyCode::Backspace, ..) => drop(self.text.pop()),
            (KeyCode::Char('u'), true, _) => self.text.clear(),
            (KeyCode::Char(letter), false, false) => self.text.push(letter),
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
        if line.is_empty() && self.empty.is_none() {
            return self.leave(state, effects);
        }
        self.text.clear();
        self.paste(line);
        self.on_key(KeyCode::Enter.into(), state, effects)
    }

    fn leave(self: Box<Self>, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match self.cancelled {
            Some(cancelled) => cancelled(state, (), effects),
            None => state.left_component(),
        }
        None
    }

    fn paste(&mut self, text: &str) {
        self.text.extend(text.chars().filter(|letter| !letter.is_control()).take(16 << 10));
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let columns = size.columns;
        let shown = if self.secret {
            "•".repeat(self.text.chars().count().min(40))
        } else {
            clean(&self.text).into_owned()
        };
        let mut line = Line::styled("› ", theme.accent);
        line.push(cut(&shown, columns.saturating_sub(3)), Style::default());
        vec![
            Line::styled(cut(&clean(&self.title), columns), theme.heading),
            line,
            Line::styled(cut("Enter confirms, Escape cancels", columns), theme.muted),
        ]
    }

    fn spoken(&self) -> Vec<String> {
        vec![match self.empty {
            Some(meaning) => format!("{} Enter alone {meaning}.", self.title),
            None => format!("{}. Enter alone cancels.", self.title),
        }]
    }

    fn prompt(&self) -> &'static str {
        if self.secret { "Key: " } else { "Text: " }
    }

    fn hides(&self) -> bool {
        self.secret
    }
}
