//! What waits for the user, and what of theirs waits.

use quipu_protocol::{Ask, Queued};
use unicode_segmentation::UnicodeSegmentation as _;

use super::text::{beside, cut, one_line, plural};
use crate::{Line, Theme, clean};

/// A question of permission.
#[derive(Debug, Clone, Copy)]
pub struct AskView<'a> {
    /// The question.
    pub ask: &'a Ask,
    /// The directory that the session works in, with `~`.
    pub cwd: &'a str,
    /// What may be answered, in order: the key that chooses it, and what it means.
    pub choices: &'a [(&'a str, &'a str)],
    /// The one that Enter chooses.
    pub selected: usize,
    /// How many questions wait behind this one.
    pub waiting: usize,
}

/// Lines of what a question is about that are shown; the rest is counted.
const SUBJECT: usize = 12;

/// A question of permission: what would happen, where, why it is asked, and what may be answered.
#[must_use]
pub fn ask(view: &AskView<'_>, columns: usize, theme: &Theme) -> Vec<Line> {
    let AskView { ask, cwd, choices, selected, waiting } = *view;
    let more = if waiting > 0 { format!(" ({waiting} more wait)") } else { String::new() };
    let question = format!("May `{}` {}?{more}", ask.tool, ask.question);
    let mut lines = beside(theme.mark("? ", "Needs an answer: "), theme.ask, &question, theme.ask, columns);
    let subject = beside("  ", theme.command, ask.subject.trim_end(), theme.command, columns);
    let hidden = subject.len().saturating_sub(SUBJECT);
    // The end matters as much as the beginning: that is where something unexpected would stand.
    if hidden > 1 {
        lines.extend_from_slice(&subject[..SUBJECT - 4]);
        let text = format!("  … {} not shown …", plural(hidden + 1, "line"));
        lines.push(cut(&Line::styled(text, theme.warning), columns));
        lines.extend_from_slice(&subject[subject.len() - 3..]);
    } else {
        lines.extend(subject);
    }
    lines.extend(beside("  in ", theme.muted, cwd, theme.muted, columns));
    for (index, (key, meaning)) in choices.iter().enumerate() {
        let chosen = index == selected;
        let style = if chosen { theme.selection } else { theme.text };
        let first = format!("{} {key}  ", if chosen { ">" } else { theme.mark(" ", "") });
        lines.extend(beside(&first, style, meaning, style, columns));
    }
    lines
}

/// A question of permission where there is no room for all of it: what would happen, as much of it as fits, and the keys.
/// Takes `rows` rows at most, one at least; a `reason` that is written stands in the place of the keys.
#[must_use]
pub fn small_ask(
    view: &AskView<'_>,
    reason: Option<&str>,
    columns: usize,
    rows: usize,
    theme: &Theme,
) -> Vec<Line> {
    let AskView { ask, choices, selected, waiting, .. } = *view;
    let keys = match reason {
        Some(reason) => {
            let reason = clean(reason).replace(char::is_control, " ");
            // The end is where it is written.
            let room = columns.saturating_sub("No: ▏".chars().count());
            let start = reason
                .char_indices()
                .rev()
                .map(|(at, _)| at)
                .take_while(|at| crate::width(&reason[*at..]) <= room);
            let start = start.last().unwrap_or(reason.len());
            Line::styled(format!("No: {}▏", &reason[start..]), theme.ask)
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
    let question = super::text::one_line(&format!("? {} {}{more}", ask.tool, ask.question), columns);
    let question = Line::styled(question, theme.ask);
    let subject = broken(ask.subject.trim_end(), columns, theme);
    if rows < 2 {
        // What is left of the row beside the keys.
        let left = columns.saturating_sub(keys.width() + 1);
        let mut line = subject.first().map_or_else(Line::default, |line| cut(line, left));
        if left < 2 {
            return vec![cut(&keys, columns)];
        }
        if subject.len() > 1 && line.width() < left {
            line.push("…", theme.warning);
        }
        line.push(" ", theme.text);
        line.spans.extend(keys.spans);
        return vec![line];
    }
    let mut room = rows - 1;
    let mut lines = Vec::new();
    if room > 1 {
        lines.push(question);
        room -= 1;
    }
    let hidden = subject.len().saturating_sub(room);
    if hidden == 0 {
        lines.extend(subject);
    } else if room == 1 {
        let mut line = cut(&subject[0], columns.saturating_sub(2));
        line.push(" …", theme.warning);
        lines.push(line);
    } else {
        // The end matters as much as the beginning.
        let end = usize::from(room > 2);
        lines.extend_from_slice(&subject[..room - 1 - end]);
        lines.push(Line::styled(format!("… {} not shown", plural(hidden + 1, "line")), theme.warning));
        lines.extend_from_slice(&subject[subject.len() - end..]);
    }
    lines.push(keys);
    lines.iter().map(|line| cut(line, columns)).collect()
}

/// A text in rows that are broken where they are full: more of it is seen than when words stay whole.
fn broken(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = clean(line);
        let (mut row, mut wide) = (String::new(), 0);
        for cluster in line.graphemes(true) {
            let columns_of = crate::width(cluster);
            if wide + columns_of > columns && !row.is_empty() {
                rows.push(Line::styled(std::mem::take(&mut row), theme.command));
                wide = 0;
            }
            row.push_str(cluster);
            wide += columns_of;
        }
        rows.push(Line::styled(row, theme.command));
    }
    rows
}

/// What waits to be said: first what the model gets after the current turn, then what it gets at the end.
#[must_use]
pub fn queue(steering: &[Queued], follow_up: &[Queued], columns: usize, theme: &Theme) -> Vec<Line> {
    let row = |(when, item): (&str, &Queued)| {
        let text = one_line(&item.text, columns.saturating_sub(when.len()));
        let mut line = Line::styled(when, theme.muted);
        line.push(text, theme.queue);
        cut(&line, columns)
    };
    let steering = steering.iter().map(|item| (theme.mark("next: ", "Waits for the next turn: "), item));
    let follow_up =
        follow_up.iter().map(|item| (theme.mark("then: ", "Waits for the end of the work: "), item));
    steering.chain(follow_up).map(row).collect()
}
