//! `/settings`: each with its value and where that comes from; one is changed.

use std::sync::Arc;

use quipu_tui::editor::{Candidate, Editor};
use quipu_tui::{Bindings, Key, KeyCode, Size, State, Theme, UiEvent, view};

use crate::fake_host::{FakeHost, carry_out};

const SIZE: Size = Size { columns: 100, rows: 24 };

fn shown(state: &mut State) -> String {
    let printed = state.take_printed();
    let frame = view(state, SIZE);
    printed.iter().chain(&frame.lines).map(|line| line.text() + "\n").collect()
}

fn enters(host: &Arc<FakeHost>, state: &mut State) {
    let effects = state.on(UiEvent::Key(Key::from(KeyCode::Enter)), 0);
    carry_out(host, state, effects);
}

#[test]
fn settings_show_values_and_sources_and_change_one() {
    let row = |text: &str, detail: &str| Candidate {
        text: text.to_owned(),
        detail: detail.to_owned(),
        ..Candidate::default()
    };
    let settings = vec![
        row("screenReader true", "the terminal speaks in lines"),
        row("screenReader false", "the terminal speaks in lines; current value (QUIPU_SCREEN_READER)"),
        row("budget.daily", "US dollars for all sessions of a day; now 5 (your settings.json)"),
    ];
    let host = Arc::new(FakeHost { settings, ..FakeHost::default() });
    let mut state = State::new(SIZE, Theme::plain(), Bindings::default(), Editor::default(), 0);
    state.on(UiEvent::Paste("/settings".into()), 0);
    enters(&host, &mut state);
    let text = shown(&mut state);
    assert!(text.contains("current value (QUIPU_SCREEN_READER)"), "{text}");
    assert!(text.contains("now 5 (your settings.json)"), "{text}");
    for letter in "reader true".chars() {
        state.on(UiEvent::Key(Key::from(KeyCode::Char(letter))), 0);
    }
    enters(&host, &mut state);
    assert_eq!(host.asked(), ["set screenReader true"]);
    let text = shown(&mut state);
    assert!(text.contains("it takes effect when you next start the terminal"), "{text}");
    // A number is asked for in the editor.
    state.on(UiEvent::Paste("/settings budget.daily 7".into()), 0);
    enters(&host, &mut state);
    assert_eq!(host.asked(), ["set budget.daily 7"]);
}
