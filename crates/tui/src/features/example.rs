//! All that a feature takes: this module, and its row in the table of commands.

use crate::component::{Component, OpenComponent};
use crate::fake_host::{FakeHost, carry_out};
use crate::{
    Bindings, Effect, Key, KeyCode, Line, ProviderItem, Request, Size, SlashCommand, State, Theme, UiEvent,
};

pub(crate) const COUNT: SlashCommand = SlashCommand::new("count", "[FROM]", "count up", |state, from, _| {
    state.show(Counter { count: from.parse().unwrap_or(0) });
});

/// A number that grows with each key, and is compared with the host when it is taken.
struct Counter {
    count: usize,
}

impl Component for Counter {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match key.code {
            KeyCode::Enter => {
                let then = move |state: &mut State, given: Vec<ProviderItem>, _: &mut Vec<Effect>| {
                    state.note(&format!("Counted {}, given {}", self.count, given.len()));
                };
                effects.push(Effect::Ask(Request::to_host("count", |host| host.providers(), then)));
                None
            }
            KeyCode::Escape => self.leave(state, effects),
            _ => {
                self.count += 1;
                Some(self)
            }
        }
    }

    fn on_line(
        mut self: Box<Self>,
        line: &str,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> OpenComponent {
        self.count += line.len();
        self.on_key(KeyCode::Enter.into(), state, effects)
    }

    fn paste(&mut self, text: &str) {
        self.count += text.len();
    }

    fn view(&self, _: Size, theme: &Theme) -> Vec<Line> {
        vec![Line::styled(format!("Counter at {}", self.count), theme.heading)]
    }

    fn spoken(&self) -> Vec<String> {
        vec![format!("The counter is at {}.", self.count)]
    }

    fn prompt(&self) -> &'static str {
        "Count: "
    }
}

fn counting(linear: bool) -> State {
    let editor = crate::editor::Editor::default();
    let state = State::new(Size::default(), Theme::plain(), Bindings::default(), editor, 0);
    if linear { state.linear() } else { state }
}

fn live(state: &State) -> Vec<String> {
    crate::view(state, Size::default()).lines.iter().map(Line::text).collect()
}

fn printed(state: &mut State) -> String {
    state.take_printed().iter().map(Line::text).collect::<Vec<_>>().join("\n")
}

fn with_one_provider() -> std::sync::Arc<FakeHost> {
    FakeHost { providers: vec![ProviderItem::default()], ..FakeHost::default() }.into()
}

#[test]
fn component_added_in_one_place_is_drawn_and_asks_the_host() {
    let (host, mut state) = (with_one_provider(), counting(false));
    let press = |state: &mut State, code: KeyCode| state.on(UiEvent::Key(code.into()), 0);
    state.on(UiEvent::Paste("/count 3".into()), 0);
    press(&mut state, KeyCode::Enter);
    assert_eq!(live(&state), ["Counter at 3"]);
    press(&mut state, KeyCode::Char('x'));
    state.on(UiEvent::Paste("ab".into()), 0);
    assert_eq!(live(&state), ["Counter at 6"]);
    let effects = press(&mut state, KeyCode::Enter);
    assert!(matches!(effects.as_slice(), [Effect::Ask(request)] if request.name() == "count"), "{effects:?}");
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert!(printed(&mut state).contains("Counted 6, given 1"));
    assert!(!live(&state).concat().contains("Counter"));
    // Left without a choice, it asks nothing.
    state.on(UiEvent::Paste("/count".into()), 0);
    press(&mut state, KeyCode::Enter);
    assert_eq!(live(&state), ["Counter at 0"]);
    assert!(press(&mut state, KeyCode::Escape).is_empty());
    assert!(!live(&state).concat().contains("Counter"));
}

#[test]
fn component_added_in_one_place_is_heard_in_lines() {
    let (host, mut state) = (with_one_provider(), counting(true));
    state.on(UiEvent::Line("/count 3".into()), 0);
    assert!(printed(&mut state).contains("The counter is at 3."));
    assert_eq!(state.prompt(), "Count: ");
    let effects = state.on(UiEvent::Line("abcd".into()), 0);
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert!(printed(&mut state).contains("Counted 7, given 1"));
    // Ctrl-C leaves it.
    state.on(UiEvent::Line("/count".into()), 0);
    assert_eq!(state.prompt(), "Count: ");
    assert!(state.on(UiEvent::Interrupt, 0).is_empty());
    assert_ne!(state.prompt(), "Count: ");
}
