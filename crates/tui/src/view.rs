//! What is seen below the scrollback. Pure.

use std::ops::Range;

use quipu_protocol::AskKind;

use crate::blocks::{self, AskView, ShellView, StatusView};
use crate::component::component_view;
use crate::levels::level_name;
use crate::picker::{cut, one_line};
use crate::render;
use crate::state::{Choice, State, room};
use crate::{Frame, Line, Size, clean};

/// Rows of what a question is about that are worth a question in full; with fewer, all else makes room for it.
const LEAST: usize = 3;
/// Rows of status lines and widgets at most.
const EXTRAS: usize = 8;
/// Pictures of a wheel that turns.
const WHEEL: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The live part of a state on a screen of this size.
pub fn view(state: &State, size: Size) -> Frame {
    view_reading(state, size).0
}

/// The same, and which rows of what the question is about are seen.
pub(crate) fn view_reading(state: &State, size: Size) -> (Frame, Option<Range<usize>>) {
    let columns = size.columns.max(1);
    let rows = size.rows.max(1);
    let theme = &state.theme;
    if let Some(overlay) = &state.overlay {
        let room = rows.saturating_sub(2).clamp(1, 40);
        let lines = component_view(&**overlay, Size { columns, rows: room }, theme);
        return (Frame { lines, cursor: None }, None);
    }
    let status = status(state, columns);
    let (text, cursor) = state.editor.view(room(Size { columns, rows }), theme);
    let mut below = Vec::new();
    let border = if state.editor.shell().is_some() || state.editor.starts_with('/') {
        theme.editor_command
    } else {
        theme.editor
    };
    below.push(Line::styled("─".repeat(columns), border));
    let editor_at = below.len();
    below.extend(text);
    let mode = state.editor.vi_mode(&state.bindings).map_or_else(String::new, |mode| format!("── {mode} "));
    let mode = cut(&mode, columns);
    below.push(Line::styled(format!("{mode}{}", "─".repeat(columns - crate::width(&mode))), border));
    below.extend(state.editor.popup(Size { columns, rows: 8.min(rows / 2) }, theme));
    below.push(status);
    // With the empty line before it.
    let (mut middle, rows_read) = asks(state, columns, rows.saturating_sub(below.len() + 1));
    let asked = !middle.is_empty();
    // With the empty line before it.
    let left = rows.checked_sub(below.len() + middle.len() + 1);
    if asked
        && left.is_none()
        && let Some((frame, part)) = cramped(state, Size { columns, rows })
    {
        return (frame, Some(part));
    }
    let others =
        extras(state, columns).into_iter().chain(queue(state, columns)).chain(working(state, columns));
    // A question goes before them.
    middle.extend(others.take(if asked { left.unwrap_or(0) } else { usize::MAX }));
    let mut room = rows.saturating_sub(below.len() + middle.len() + 1);
    let mut live = Vec::new();
    for item in &state.transcript.items {
        let lines = item.live(columns, room.max(1), theme, state.now);
        live.extend(lines);
    }
    if let Some(shell) = &state.shell.running {
        live.extend(blocks::shell(
            &ShellView {
                command: &shell.line,
                output: &shell.tail,
                running: Some(render::span(state.now.saturating_sub(shell.since))),
                exit_code: None,
                cancelled: false,
                hidden: shell.hidden,
                full_output_path: None,
                folded: true,
            },
            columns,
            theme,
        ));
    }
    room = room.max(1);
    let over = live.len().saturating_sub(room);
    live.drain(..over);
    let mut lines = live;
    if !lines.is_empty() || !middle.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(middle);
    let cursor = (lines.len() + editor_at + cursor.0, cursor.1);
    lines.extend(below);
    (Frame { lines, cursor: Some(cursor) }, rows_read)
}

/// What is under way, for who is told of it once.
pub(crate) fn under_way(state: &State, columns: usize) -> Vec<Vec<Line>> {
    let mut blocks: Vec<Vec<Line>> = queue(state, columns).into_iter().map(|line| vec![line]).collect();
    let what = match (state.activity.parallel_task(), &state.shell.running) {
        _ if state.opening.under_way => Some("Opening the session.".to_owned()),
        (Some(busy), _) => Some(format!("Working: {}.", clean(&busy.what))),
        (None, Some(_)) => Some("Running your command.".to_owned()),
        (None, None) => state.activity.working.as_ref().map(|_| "Working.".to_owned()),
    };
    blocks.extend(what.map(|what| vec![Line::from(what.as_str())]));
    blocks
}

/// The question that waits for an answer, in so many rows; more, where not even a few of what it is about fit there.
pub(crate) fn asks(state: &State, columns: usize, rows: usize) -> (Vec<Line>, Option<Range<usize>>) {
    if state.theme.spoken && state.questions.reason.is_some() {
        let says = match state.questions.asks.front().and_then(|(ask, _)| ask.permission()) {
            Some(_) => "Why not? The model sees your reason. Enter alone gives none.",
            None => "Write the answer; Enter sends it.",
        };
        return (vec![Line::from(says)], None);
    }
    let theme = &state.theme;
    let reason = if state.questions.reason.is_some() { 2 } else { 0 };
    let shown = asked(state, Choice::meaning, |view| {
        let around = blocks::ask(&AskView { body: &[], ..*view }, columns, 0, theme).0.len() + reason;
        if state.theme.spoken || around + view.body.len() <= rows {
            return blocks::ask(view, columns, view.body.len(), theme);
        }
        // How to go on takes a row, or two where it is narrow.
        let mut room = rows.saturating_sub(around + 1).max(LEAST);
        loop {
            let shown = blocks::ask(view, columns, room, theme);
            if room == LEAST || shown.0.len() + reason <= rows {
                return shown;
            }
            room -= 1;
        }
    });
    let Some((mut lines, part)) = shown else { return (Vec::new(), None) };
    if let Some(reason) = &state.questions.reason {
        let ask = state.questions.asks.front().map(|(ask, _)| &ask.kind);
        let (text, keys) = match ask {
            Some(AskKind::Permission(_)) | None => {
                (format!("  No, because: {}▏", clean(reason)), "  Enter denies, Escape goes back")
            }
            Some(AskKind::Text { secret: true, .. }) => {
                (format!("  {}▏", "•".repeat(reason.chars().count())), "  Enter answers, Escape goes back")
            }
            Some(AskKind::Edit { .. }) => {
                let lines = reason.lines().count();
                let more = if lines > 1 { format!(" ({lines} lines)") } else { String::new() };
                let first = reason.lines().next().unwrap_or_default();
                let keys = "  Enter answers, Ctrl+G edits it in your editor, Escape goes back";
                (format!("  {}▏{more}", clean(first)), keys)
            }
            Some(_) => (format!("  {}▏", clean(reason)), "  Enter answers, Escape goes back"),
        };
        lines.push(Line::styled(cut(&text, columns), theme.ask));
        lines.push(Line::styled(cut(keys, columns), theme.muted));
    }
    (lines, Some(part))
}

/// The question, with the keys that answer it in such words, as `shown` shows it.
fn asked<T>(
    state: &State,
    words: impl Fn(&Choice) -> &str,
    shown: impl FnOnce(&AskView<'_>) -> T,
) -> Option<T> {
    let (ask, choices) = state.questions.asks.front()?;
    let spoken = state.theme.spoken;
    let alt = if state.editor.is_empty() { "" } else { "Alt+" };
    let keys: Vec<(String, String)> = choices
        .iter()
        .enumerate()
        .map(|(at, choice)| {
            let key = if spoken {
                format!("{}.", at + 1)
            } else {
                format!("{alt}{}", choice.letter().unwrap_or(' '))
            };
            (key, words(choice).to_owned())
        })
        .collect();
    let keys: Vec<(&str, &str)> =
        keys.iter().map(|(key, meaning)| (key.as_str(), meaning.as_str())).collect();
    let made;
    let (body, top, read) = match &state.questions.reading {
        Some(reading) => (&reading.body, reading.top, reading.read),
        None => {
            made = blocks::ask_body(ask, state.size.columns, &state.theme);
            (&made, 0, spoken)
        }
    };
    Some(shown(&AskView {
        ask,
        body,
        top,
        read,
        cwd: &state.standing.directory,
        choices: &keys,
        selected: if state.editor.is_empty() && !spoken { state.questions.choice } else { usize::MAX },
        waiting: if spoken { 0 } else { state.questions.asks.len().saturating_sub(1) },
    }))
}

/// A question that has no room beside all else: what it is about and its keys, and a row of what is written.
fn cramped(state: &State, size: Size) -> Option<(Frame, Range<usize>)> {
    let Size { columns, rows } = size;
    let theme = &state.theme;
    let ask = state.questions.asks.front().map(|(ask, _)| &ask.kind);
    let hidden = matches!(ask, Some(AskKind::Text { secret: true, .. }));
    let reason = state
        .questions
        .reason
        .as_ref()
        .map(|text| if hidden { "•".repeat(text.chars().count()) } else { text.clone() });
    let reason = reason.as_deref();
    let writes = usize::from(rows > 2);
    let show = |view: &AskView<'_>| blocks::small_ask(view, reason, columns, rows - writes, theme);
    let (mut lines, part) = asked(state, Choice::word, show)?;
    // A yes too early has its word in the place of what is written.
    if let Some(hint) = state.hint.as_ref().filter(|_| writes > 0) {
        lines.push(Line::styled(cut(&clean(hint), columns), theme.warning));
        return Some((Frame { lines, cursor: None }, part));
    }
    let (text, cursor) = state.editor.view(Size { columns, rows: 1 }, theme);
    if writes == 0 {
        return Some((Frame { lines, cursor: None }, part));
    }
    let cursor = Some((lines.len() + cursor.0, cursor.1));
    lines.extend(text);
    Some((Frame { lines, cursor }, part))
}

/// Status lines and widgets, a few rows of them.
fn extras(state: &State, columns: usize) -> Vec<Line> {
    let lines = state.status.iter().flat_map(|(_, lines)| lines);
    let shown =
        lines.take(EXTRAS).map(|text| Line::styled(cut(&clean(&one_line(text)), columns), state.theme.muted));
    shown.collect()
}

/// What waits.
fn queue(state: &State, columns: usize) -> Vec<Line> {
    let theme = &state.theme;
    let (steering, follow_up) = &state.outbox.queue;
    let mut lines = blocks::queue(steering, follow_up, columns, theme);
    for (_, text, _) in &state.outbox.waiting {
        let text = format!("waits: {}", clean(&one_line(text)));
        lines.push(Line::styled(cut(&text, columns), theme.queue));
    }
    let over = lines.len().saturating_sub(6);
    if over > 0 {
        lines.truncate(6);
        lines.push(Line::styled(format!("  … {over} more"), theme.muted));
    }
    if state.opening.unready && !state.outbox.waiting.is_empty() {
        let hint = "  no model yet: /login adds a login or a key, /model lists the models";
        lines.push(Line::styled(cut(hint, columns), theme.muted));
    }
    if !(theme.spoken || steering.is_empty() && follow_up.is_empty()) {
        let hint = format!("  {} takes the last one back", state.bindings.hint(crate::Action::Dequeue));
        lines.push(Line::styled(cut(&hint, columns), theme.muted));
    }
    lines
}

/// The next try of a call.
pub(crate) fn retries(state: &State, columns: usize) -> Vec<Line> {
    let Some((attempt, at, error)) = &state.activity.retry else { return Vec::new() };
    blocks::retry(*attempt, render::span(at.saturating_sub(state.now)), error, columns, &state.theme)
}

/// What is under way.
fn working(state: &State, columns: usize) -> Vec<Line> {
    let theme = &state.theme;
    let mut text = String::new();
    if state.opening.under_way {
        text.push_str("opening the session …");
    } else if let (Some(since), false) = (state.activity.person, state.questions.asks.is_empty()) {
        let waits = state.now.saturating_sub(since).max(0);
        let text = format!("? waiting for your answer · {}", seconds(waits));
        return vec![Line::styled(cut(&text, columns), theme.ask)];
    } else if let Some(busy) = state.activity.shown() {
        let took = state.now.saturating_sub(busy.since).max(0);
        let wheel = WHEEL[usize::try_from(took / 1_000).unwrap_or(0) % WHEEL.len()];
        text.push_str(&format!("{wheel} {} · {}", clean(&busy.words()), seconds(took)));
        // A line of the shell is stopped first.
        if state.shell.running.is_none() || state.activity.working.is_some() {
            text.push_str(&format!(" · {} stops it", state.bindings.hint(crate::Action::Interrupt)));
        }
    }
    let mut lines = retries(state, columns);
    if !text.is_empty() {
        lines.push(Line::styled(cut(&text, columns), theme.accent));
    }
    lines
}

/// A time that passed, in whole seconds.
fn seconds(milliseconds: i64) -> String {
    match milliseconds / 1_000 {
        seconds @ 0..10 => format!("{seconds}s"),
        _ => blocks::duration(render::span(milliseconds)),
    }
}

/// The last line.
fn status(state: &State, columns: usize) -> Line {
    let theme = &state.theme;
    if let Some(hint) = &state.hint {
        return Line::styled(cut(&clean(hint), columns), theme.warning);
    }
    let standing = &state.standing;
    let model = standing.model.as_deref();
    let thinks = standing.levels.len() > 1;
    let view = StatusView {
        model: model.map_or("", |model| &model.id),
        thinking: if thinks { level_name(standing.thinking) } else { "" },
        usage: standing.usage,
        context: standing.context,
        window: model.map_or(0, |model| model.context_window),
        branch: standing.branch.as_deref().unwrap_or_default(),
        permissions: &standing.permissions,
        session: &standing.name,
        cwd: &standing.place,
        background: state.background.len(),
        working: None,
    };
    blocks::status(&view, columns, theme)
}
