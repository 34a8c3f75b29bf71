//! Help and the page of keys are made from the tables that the program goes by.

use std::fmt::Write as _;

use quipu_tui::editor::Editor;
use quipu_tui::keys::{ACTIONS, key_label, parse_key};
use quipu_tui::{Bindings, COMMANDS, Choice, Key, KeyCode, Scope, Size, State, Theme, UiEvent};

fn state(columns: usize, bindings: Bindings) -> State {
    State::new(Size { columns, rows: 40 }, Theme::plain(), bindings, Editor::default(), 0)
}

/// What `/help all` prints.
fn printed(state: &mut State) -> Vec<String> {
    state.on(UiEvent::Paste("/help all".into()), 0);
    state.on(UiEvent::Key(Key::from(KeyCode::Enter)), 0);
    state.take_printed().iter().map(quipu_tui::Line::text).collect()
}

/// What is seen below the scrollback.
fn seen(state: &State, rows: usize) -> Vec<String> {
    quipu_tui::view(state, Size { columns: 100, rows }).lines.iter().map(quipu_tui::Line::text).collect()
}

#[test]
fn help_is_a_list_that_fits_the_screen() {
    for (key, rows) in [(KeyCode::Char('?'), 12), (KeyCode::Function(1), 40)] {
        let mut state = state(100, Bindings::default());
        state.on(UiEvent::Key(Key::from(key)), 0);
        let list = seen(&state, rows);
        assert!(list.len() <= rows && list.iter().any(|line| line.contains("/tree")), "{list:#?}");
        assert!(state.take_printed().is_empty());
        // What is typed narrows it; a command that is chosen is written.
        state.on(UiEvent::Paste("undo the last move".into()), 0);
        assert!(
            seen(&state, rows).iter().any(|line| line.contains("/undo [STEPS]")),
            "{:#?}",
            seen(&state, rows)
        );
        state.on(UiEvent::Key(Key::from(KeyCode::Enter)), 0);
        assert!(seen(&state, rows).iter().any(|line| line.starts_with("/undo")), "{:#?}", seen(&state, rows));
    }
}

#[test]
fn help_has_every_action_every_command_and_every_answer() {
    let help = printed(&mut state(200, Bindings::default()));
    let row = |parts: &[&str]| {
        assert!(help.iter().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?}: {help:#?}");
    };
    for info in ACTIONS {
        let keys: Vec<String> = info.keys.iter().map(|name| key_label(parse_key(name).unwrap())).collect();
        let mut parts: Vec<&str> = keys.iter().map(String::as_str).collect();
        parts.push(info.help);
        if keys.is_empty() {
            parts.push(info.id);
        }
        row(&parts);
    }
    for command in COMMANDS {
        row(&[&format!("/{}", command.name), command.arguments, &command.help[1..]]);
    }
    for choice in Choice::PERMISSION {
        row(&[&format!("{}, Alt+", choice.letter().unwrap()), &choice.meaning()[1..]]);
    }
    for written in ["@", "/", "!", "!!", "keybindings.json", "themes/NAME.json"] {
        row(&[written]);
    }
    // As the command says it, and with the keys that hold.
    let mut state = state(100, Bindings::read(r#"{"app.exit": "f5", "tui.editor.mode": "vi"}"#).0);
    let help = printed(&mut state).join("\n");
    assert!(help.contains("F5 ") && help.contains("\nvi\n") && help.contains("/quit"), "{help}");
}

#[test]
fn help_fits_every_width() {
    let mut out = String::new();
    for columns in [20, 40, 80, 120] {
        let help = printed(&mut state(columns, Bindings::default()));
        writeln!(out, "══ {columns}").unwrap();
        for line in help {
            assert!(quipu_tui::width(&line) <= columns, "{columns}: {line}");
            writeln!(out, "{line}").unwrap();
        }
    }
    insta::assert_snapshot!("help", out);
}

/// The page of the documents, from the table.
fn page() -> String {
    let mut page = String::from(
        "# Keys\n\n```json\n{ \"app.model.select\": \"ctrl+l\", \"tui.editor.cursorUp\": [\"up\", \"ctrl+p\"], \"app.suspend\": [] \
         }\n```\n\nThis is a `keybindings.json` in `$QUIPU_HOME`; [editor.md](editor.md#keybindingsjson) describes its format. The tables \
         list all actions\nof the [terminal](terminal.md) with their default keys. `?` in the empty editor shows the keys in \
         effect.\n",
    );
    for scope in Scope::ALL {
        write!(page, "\n## {}\n\n| name | keys | what |\n|---|---|---|\n", scope.title()).unwrap();
        for info in ACTIONS.iter().filter(|info| info.scope == scope) {
            let keys: Vec<String> = info.keys.iter().map(|key| format!("`{key}`")).collect();
            let keys = if keys.is_empty() { "none".into() } else { keys.join(", ") };
            writeln!(page, "| `{}` | {keys} | {} |", info.id, info.help).unwrap();
        }
    }
    page
}

#[test]
fn the_page_of_keys_is_what_holds() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/keys.md is not what the table says: run this test with INSTA_UPDATE=always"
    );
    for info in ACTIONS {
        assert!(!info.help.contains('|') && !info.keys.contains(&"|"), "{}", info.id);
    }
}
