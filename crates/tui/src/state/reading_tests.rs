//! Questions that are longer than the screen: what is seen of them, and when a yes counts.

use std::sync::Arc;

use quipu_protocol::{Answer, Ask, AskKind, Command, Envelope, Event, Permission, Scope};

use super::{Effect, State, UiEvent};
use crate::editor::Editor;
use crate::view::view_reading;
use crate::{Bindings, Key, KeyCode, Modifiers, Size, Theme};

/// When a key counts.
const LATER: i64 = 10_000;

fn asked(subject: &str, question: &str, size: Size) -> State {
    let mut state = State::new(size, Theme::plain(), Bindings::default(), Editor::default(), 0);
    state.opening.under_way = false;
    ask(&mut state, "a", subject, question);
    state
}

fn ask(state: &mut State, id: &str, subject: &str, question: &str) {
    let kind = AskKind::Permission(Permission {
        call: "c".into(),
        tool: "bash".into(),
        question: question.into(),
        subject: subject.into(),
        scopes: vec![Scope::Once, Scope::Session, Scope::Always],
        rules: Vec::new(),
    });
    let ask = Arc::new(Ask { id: id.into(), deadline: None, default: Answer::no(), kind });
    let event = Event::AskOpened { ask };
    let envelope = Envelope { seq: 1, session: "s".into(), run: None, at: 0, event };
    state.on(UiEvent::Event(Arc::new(envelope)), 0);
}

fn lines(count: usize) -> String {
    (1..=count).map(|at| format!("echo line-{at:06}\n")).collect()
}

/// What is on the screen, which is seen then.
fn drawn(state: &mut State) -> String {
    let size = state.size;
    let (frame, part) = view_reading(state, size);
    let text: Vec<String> = frame.lines.iter().map(crate::Line::text).collect();
    assert!(text.len() <= size.rows, "{size:?}: {text:#?}");
    assert!(frame.lines.iter().all(|line| line.width() <= size.columns), "{size:?}: {text:#?}");
    state.questions.saw(part);
    text.join("\n")
}

fn press(state: &mut State, code: KeyCode) -> Vec<Effect> {
    state.on(UiEvent::Key(code.into()), LATER)
}

fn allows(effects: &[Effect]) -> bool {
    let allows = |answer: &Answer| matches!(answer, Answer::Allow { .. });
    effects
        .iter()
        .any(|effect| matches!(effect, Effect::Send(Command::Answer { answer, .. }, _) if allows(answer)))
}

#[test]
fn no_yes_counts_before_the_last_row_was_seen() {
    let alt = |letter| Key {
        code: KeyCode::Char(letter),
        modifiers: Modifiers { alt: true, ..Modifiers::default() },
    };
    let yes: Vec<Key> = ["y", "s", "a", "Y"]
        .iter()
        .flat_map(|letter| letter.chars())
        .map(|letter| KeyCode::Char(letter).into())
        .chain([KeyCode::Enter.into()])
        .chain("ysa".chars().map(alt))
        .collect();
    for (columns, rows) in [(80, 24), (20, 24), (80, 12), (40, 6), (20, 3), (10, 2), (80, 1), (1, 1)] {
        for key in &yes {
            let mut state = asked(&lines(202), "run this in /work", Size { columns, rows });
            let mut pages = 0;
            let mut text = drawn(&mut state);
            let seen = loop {
                if state.has_read() {
                    break text;
                }
                let effects = state.on(UiEvent::Key(*key), LATER);
                assert!(!allows(&effects), "{columns}×{rows} {key:?} on page {pages}");
                assert!(
                    state.hint.as_ref().is_some_and(|hint| hint.contains("Read it to the last row")),
                    "{:?}",
                    state.hint
                );
                drawn(&mut state);
                press(&mut state, KeyCode::PageDown);
                text.push_str(&drawn(&mut state));
                pages += 1;
                assert!(pages < 5_000, "{columns}×{rows}: no end");
            };
            if columns > 18 {
                for at in 1..=202 {
                    assert!(
                        seen.contains(&format!("echo line-{at:06}")),
                        "{columns}×{rows}: {at} was not shown"
                    );
                }
            }
            assert!(
                allows(&state.on(UiEvent::Key(*key), LATER)),
                "{columns}×{rows} {key:?} after {pages} pages"
            );
        }
    }
}

#[test]
fn a_no_counts_at_once() {
    let mut state = asked(&lines(500), "run this", Size::default());
    drawn(&mut state);
    press(&mut state, KeyCode::Char('n'));
    let effects = press(&mut state, KeyCode::Enter);
    assert!(
        matches!(effects.as_slice(), [Effect::Send(Command::Answer { answer, .. }, _)] if *answer == Answer::no()),
        "{effects:?}"
    );
}

#[test]
fn question_needs_its_end_drawn_before_it_is_allowed() {
    let mut state = asked("true", "run this", Size::default());
    assert!(!allows(&press(&mut state, KeyCode::Enter)));
    drawn(&mut state);
    assert!(allows(&press(&mut state, KeyCode::Enter)));

    let mut state = asked(&lines(500), "run this", Size::default());
    drawn(&mut state);
    press(&mut state, KeyCode::End);
    assert!(!allows(&press(&mut state, KeyCode::Enter)), "its end was not drawn");
    assert!(drawn(&mut state).contains("line-000500"));
    assert!(allows(&press(&mut state, KeyCode::Enter)));
}

#[test]
fn another_size_neither_reads_nor_forgets() {
    let mut state = asked(&"x".repeat(20_000), "run this", Size::default());
    drawn(&mut state);
    press(&mut state, KeyCode::PageDown);
    drawn(&mut state);
    for (columns, rows) in [(20, 10), (200, 10), (40, 24), (80, 24)] {
        state.on(UiEvent::Resize(Size { columns, rows }), LATER);
        drawn(&mut state);
        assert!(!allows(&press(&mut state, KeyCode::Enter)), "{columns}×{rows}");
    }
    press(&mut state, KeyCode::End);
    drawn(&mut state);
    state.on(UiEvent::Resize(Size { columns: 20, rows: 10 }), LATER);
    drawn(&mut state);
    assert!(allows(&press(&mut state, KeyCode::Enter)));
}

#[test]
fn each_question_is_read_for_itself() {
    let mut state = asked("true", "run this", Size::default());
    ask(&mut state, "b", &lines(300), "run this");
    drawn(&mut state);
    assert!(allows(&press(&mut state, KeyCode::Char('y'))));
    drawn(&mut state);
    let effects = state.on(UiEvent::Key(KeyCode::Char('y').into()), 2 * LATER);
    assert!(!allows(&effects));
    assert!(state.hint.is_some());
}

#[test]
fn question_shows_what_is_not_seen() {
    let command = "rm\u{202e} -rf\u{200b} ~\u{e0041}\u{ad}\u{fe0f} \x1b[8m\t;\rls\r\n\u{a0}end";
    let mut state = asked(command, "run this: \u{2066}why", Size::default());
    let text = drawn(&mut state);
    let shown = "rm\\u{202e} -rf\\u{200b} ~\\u{e0041}\\u{ad}\\u{fe0f} ␛[8m→   ;␍ls␍\n  \\u{a0}end\n";
    assert!(text.contains(shown), "{text}");
    assert!(text.contains("\\u{2066}why"), "{text}");
}

#[test]
fn long_words_of_a_question_are_read_with_it() {
    let why = format!("run this: {} and-at-last", "it is quite harmless ".repeat(400));
    let mut state = asked("true", &why, Size::default());
    let text = drawn(&mut state);
    assert!(text.contains("\n  true") && !text.contains("and-at-last"), "{text}");
    assert!(!allows(&press(&mut state, KeyCode::Enter)));
    press(&mut state, KeyCode::End);
    let text = drawn(&mut state);
    let whole = text.replace("\n  ", "");
    assert!(whole.contains("and-at-last"), "{text}");
    assert!(allows(&press(&mut state, KeyCode::Enter)));
}

#[test]
fn rows_of_a_huge_command_are_made_once() {
    let mut state = asked(&lines(100_000), "run this", Size::default());
    drawn(&mut state);
    let made = state.questions.reading.as_ref().map(|reading| reading.body.as_ptr());
    for _ in 0..200 {
        press(&mut state, KeyCode::PageDown);
        drawn(&mut state);
        assert_eq!(state.questions.reading.as_ref().map(|reading| reading.body.as_ptr()), made);
    }
    assert!(!allows(&press(&mut state, KeyCode::Enter)));
    press(&mut state, KeyCode::End);
    assert!(drawn(&mut state).contains("line-100000"));
    assert!(allows(&press(&mut state, KeyCode::Enter)));
}
