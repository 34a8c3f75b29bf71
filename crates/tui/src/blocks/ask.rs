//! What waits for the user, and what of theirs waits.

use std::ops::Range;

use std::borrow::Cow;

use quipu_protocol::{Ask, AskKind, QueuedItem};
use unicode_segmentation::UnicodeSegmentation as _;

use super::text::{cut, hanging_lines, one_line};
use crate::{Line, Style, Theme, clean, markdown, wrap};

/// A question.
#[derive(Debug, Clone, Copy)]
pub struct AskView<'a> {
    /// The question.
    pub ask: &'a Ask,
    /// All that it is about, from [`ask_body`].
    pub body: &'a [Line],
    /// The first row of that which is shown, where not all fit.
    pub top: usize,
    /// Its last row has been on the screen.
    pub read: bool,
    /// The directory that the session works in, with `~`.
    pub cwd: &'a str,
    /// What may be answered, in order: the key that chooses it, and what it means.
    pub choices: &'a [(&'a str, &'a str)],
    /// The one that Enter chooses.
    pub selected: usize,
    /// How many questions wait behind this one.
    pub waiting: usize,
}

/// Rows that the words of a question take at most; longer ones are part of what scrolls.
const QUESTION: usize = 4;
/// Screens that are narrower have no room for an indent.
const NARROW: usize = 10;

/// All that a question is about, in rows: every character of it, those that are not seen by their numbers.
#[must_use]
pub fn ask_body(ask: &Ask, columns: usize, theme: &Theme) -> Vec<Line> {
    let room = if columns < NARROW { columns.max(1) } else { columns - 2 };
    let mut rows = Vec::new();
    match long_detail(ask) {
        Some(detail) => rows.extend(markdown(detail, room, theme)),
        None => broken(subject(ask).trim_end_matches('\n'), theme.command, room, theme, &mut rows),
    }
    if is_long(ask, columns) {
        broken(&question(ask), theme.ask, room, theme, &mut rows);
    }
    rows
}

/// The text of several lines that a choice is about, such as a plan. It may be Markdown; nothing of that is hidden.
fn long_detail(ask: &Ask) -> Option<&str> {
    let AskKind::Choose { options, .. } = &ask.kind else { return None };
    let mut details = options.iter().filter_map(|option| option.detail.as_deref());
    let (first, second) = (details.next()?, details.next());
    (second.is_none() && first.trim().contains('\n')).then_some(first)
}

fn question(ask: &Ask) -> String {
    match &ask.kind {
        AskKind::Permission(asked) => format!("`{}`: {}", asked.tool, asked.question),
        AskKind::Confirm { title, .. }
        | AskKind::Choose { title, .. }
        | AskKind::Text { title, .. }
        | AskKind::Edit { title, .. }
        | AskKind::Form { title, .. }
        | AskKind::OpenUrl { title, .. } => title.clone(),
    }
}

/// The same, where its words are part of what scrolls.
fn short_question(ask: &Ask) -> String {
    match &ask.kind {
        AskKind::Permission(asked) => format!("Allow this call of `{}`?", asked.tool),
        _ => "A question:".to_owned(),
    }
}

/// What it is about.
fn subject(ask: &Ask) -> Cow<'_, str> {
    match &ask.kind {
        AskKind::Permission(asked) if asked.rules.is_empty() => (&*asked.subject).into(),
        AskKind::Permission(asked) => {
            let rules = asked.rules.iter().map(|rule| format!("\nRule: {rule}")).collect::<String>();
            format!("{}{rules}", asked.subject.trim_end_matches('\n')).into()
        }
        AskKind::Confirm { text, .. } => text.into(),
        AskKind::Choose { options, .. } => {
            let detail = |option: &quipu_protocol::AskOption| {
                Some(format!("{}: {}", option.label, option.detail.as_ref()?))
            };
            options.iter().filter_map(detail).collect::<Vec<_>>().join("\n").into()
        }
        AskKind::Text { placeholder, .. } => placeholder.into(),
        AskKind::Edit { text, .. } => text.into(),
        AskKind::Form { schema, .. } => schema.get().into(),
        AskKind::OpenUrl { url, .. } => url.into(),
    }
}

/// Whether the words of a question take more rows than they may before what it is about.
fn is_long(ask: &Ask, columns: usize) -> bool {
    let most = columns.saturating_sub(2).max(1).saturating_mul(QUESTION);
    let question = question(ask);
    // Not all of one that is much too long is wrapped to be counted.
    let shown = || hanging_lines("? ", Style::default(), &question, Style::default(), columns).len();
    question.len() > most.saturating_mul(4) || shown() > QUESTION
}

/// A question: what would happen, where, why it is asked, and what may be answered; of what it is about
/// as many rows as there is room for, and which of them those are.
#[must_use]
pub fn ask(view: &AskView<'_>, columns: usize, room: usize, theme: &Theme) -> (Vec<Line>, Range<usize>) {
    let AskView { ask, body, top, read, cwd, choices, selected, waiting } = *view;
    let more = if waiting > 0 { format!(" ({waiting} more waiting)") } else { String::new() };
    let long = is_long(ask, columns);
    let question = if long { short_question(ask) + &more } else { question(ask) + &more };
    let mut lines =
        hanging_lines(theme.mark("? ", "Needs an answer: "), theme.ask, &question, theme.ask, columns);
    let part = window(body.len(), top, room);
    for row in &body[part.clone()] {
        let mut line = Line::default();
        if columns >= NARROW {
            line.push("  ", Style::default());
        }
        line.spans.extend(row.spans.iter().cloned());
        lines.push(line);
    }
    if part.len() < body.len() && room > 0 {
        let at = format!("  rows {} to {} of {}", part.start + 1, part.end, body.len());
        let keys = if read {
            " · PageUp, PageDown move"
        } else {
            " · PageDown, ↓, End scroll; allow at the last row"
        };
        lines.extend(wrap(&Line::styled(at + keys, theme.warning), columns, 2));
    }
    lines.extend(hanging_lines("  in ", theme.muted, cwd, theme.muted, columns));
    for (index, (key, meaning)) in choices.iter().enumerate() {
        let chosen = index == selected;
        let style = if chosen { theme.selection } else { theme.text };
        let first = format!("{} {key}  ", if chosen { ">" } else { theme.mark(" ", "") });
        lines.extend(hanging_lines(&first, style, meaning, style, columns));
    }
    (lines, part)
}

/// Which rows are seen of so many.
fn window(count: usize, top: usize, room: usize) -> Range<usize> {
    let top = top.min(count.saturating_sub(room));
    top..count.min(top + room)
}

/// A question where there is no room for all of it: what would happen, as much of it as fits, and the keys.
/// Takes `rows` rows at most, one at least; a `reason` that is written stands in the place of the keys, and so does how to
/// go on while not all was seen.
#[must_use]
pub fn small_ask(
    view: &AskView<'_>,
    reason: Option<&str>,
    columns: usize,
    rows: usize,
    theme: &Theme,
) -> (Vec<Line>, Range<usize>) {
    let AskView { ask, body, top, read, choices, selected, waiting, .. } = *view;
    let keys = match reason {
        Some(reason) => {
            let reason = clean(reason).replace(char::is_control, " ");
            // The end is where it is written.
            let says = if ask.permission().is_some() { "No: " } else { "" };
            let room = columns.saturating_sub(says.chars().count() + 1);
            let start = reason
                .char_indices()
                .rev()
                .map(|(at, _)| at)
                .take_while(|at| crate::width(&reason[*at..]) <= room);
            let start = start.last().unwrap_or(reason.len());
            Line::styled(format!("{says}{}▏", &reason[start..]), theme.ask)
        }
        None => {
            let row = |gap: &str, words: bool| {
                let mut line = Line::default();
                for (index, (key, meaning)) in choices.iter().enumerate() {
                    let style = if index == selected { theme.selection } else { theme.text };
                    let mark = if index == selected { ">" } else { "" };
                    let word = if words { format!(" {meaning}") } else { String::new() };
                    line.push(if index > 0 { gap } else { "" }, theme.muted);
                    line.push(format!("{mark}{key}{word}"), style);
                }
                line
            };
            let all = [row(" · ", true), row(" ", true), row(" ", false)];
            let fits = all.into_iter().find(|line| line.width() <= columns);
            fits.unwrap_or_else(|| {
                // What goes with each key goes with all of them.
                let held = choices.iter().all(|(key, _)| key.starts_with("Alt+"));
                let keys: Vec<&str> = choices.iter().map(|(key, _)| key.trim_start_matches("Alt+")).collect();
                let held = if held { "Alt+ " } else { "" };
                Line::styled(format!("{held}{}", keys.join(" ")), theme.text)
            })
        }
    };
    let more = if waiting > 0 { format!(" (+{waiting})") } else { String::new() };
    let asked = match ask.permission() {
        Some(asked) => format!("{}: {}", asked.tool, asked.question),
        None => question(ask),
    };
    let question = super::text::one_line(&format!("? {asked}{more}"), columns);
    let question = Line::styled(question, theme.ask);
    if rows < 2 {
        let left = columns.saturating_sub(keys.width() + 1);
        let fits = body.len() == 1 && body[0].width() <= left;
        if reason.is_none() && !fits && !read {
            // One row after the other, and then the keys.
            let part = window(body.len(), top, 1);
            let lines = body[part.clone()].iter().map(|line| cut(line, columns)).collect();
            return (lines, part);
        }
        // What is left of the row beside the keys.
        let mut line = body.first().map_or_else(Line::default, |line| cut(line, left));
        let part = if fits { 0..1 } else { 0..0 };
        if left < 2 {
            return (vec![cut(&keys, columns)], part);
        }
        if body.len() > 1 && line.width() < left {
            line.push("…", theme.warning);
        }
        line.push(" ", theme.text);
        line.spans.extend(keys.spans);
        return (vec![line], part);
    }
    let mut room = rows - 1;
    let mut lines = Vec::new();
    if room > 1 {
        lines.push(question);
        room -= 1;
    }
    let part = window(body.len(), top, room);
    lines.extend_from_slice(&body[part.clone()]);
    let on = part.len() < body.len() && !read && reason.is_none();
    lines.push(if on {
        let at = format!("{}/{} PgDn: more, n: no", part.end, body.len());
        let short = format!("{}/{} PgDn", part.end, body.len());
        Line::styled(if crate::width(&at) <= columns { at } else { short }, theme.warning)
    } else {
        keys
    });
    (lines.iter().map(|line| cut(line, columns)).collect(), part)
}

/// A text in rows that are broken where they are full: more of it is seen than when words stay whole, and nothing of it is
/// left out, not even a space.
fn broken(text: &str, style: Style, columns: usize, theme: &Theme, rows: &mut Vec<Line>) {
    for line in text.split('\n') {
        let (mut row, mut wide) = (Line::default(), 0);
        for (piece, made) in crate::clean::bare(line) {
            let style = if made { theme.warning } else { style };
            let mut put = |cluster: &str, columns_of: usize| {
                if wide + columns_of > columns && wide > 0 {
                    rows.push(std::mem::take(&mut row));
                    wide = 0;
                }
                match row.spans.last_mut() {
                    Some(last) if last.style == style => last.text.push_str(cluster),
                    _ => row.push(cluster, style),
                }
                wide += columns_of;
            };
            if piece.is_ascii() {
                (0..piece.len()).for_each(|at| put(&piece[at..=at], 1));
                continue;
            }
            for cluster in piece.graphemes(true) {
                let columns_of = crate::width(cluster);
                if columns_of <= columns {
                    put(cluster, columns_of);
                } else {
                    // What is wider than the screen would not be seen.
                    cluster.escape_unicode().for_each(|one| put(one.encode_utf8(&mut [0; 4]), 1));
                }
            }
        }
        rows.push(row);
    }
}

/// What waits to be said: first what the model gets after the current turn, then what it gets at the end.
#[must_use]
pub fn queue(steering: &[QueuedItem], follow_up: &[QueuedItem], columns: usize, theme: &Theme) -> Vec<Line> {
    let row = |(when, item): (&str, &QueuedItem)| {
        let text = one_line(&item.text, columns.saturating_sub(when.len()));
        let mut line = Line::styled(when, theme.muted);
        line.push(text, theme.queue);
        cut(&line, columns)
    };
    let steering = steering.iter().map(|item| (theme.mark("next: ", "For the next turn: "), item));
    let follow_up = follow_up.iter().map(|item| (theme.mark("then: ", "For the end of the work: "), item));
    steering.chain(follow_up).map(row).collect()
}
