//! What waits for the user, and what of theirs waits.

use quipu_protocol::{Ask, Queued};

use super::text::{beside, cut, one_line, plural};
use crate::{Line, Theme};

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
