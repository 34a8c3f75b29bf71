//! The status line.

use std::time::Duration;

use quipu_protocol::Usage;

use super::text::{count, dollars, duration, one_line};
use crate::{Line, Style, Theme, width};

/// What the status line says.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatusView<'a> {
    /// The model's name; empty while there is none.
    pub model: &'a str,
    /// How hard it thinks; empty when it cannot.
    pub thinking: &'a str,
    /// What was used by the session.
    pub usage: Usage,
    /// Tokens of the context; `None` while that is not known.
    pub context: Option<u64>,
    /// Tokens of the model's window; 0 when not known.
    pub window: u64,
    /// The branch of the version control; empty for none.
    pub branch: &'a str,
    /// How permissions are given, as its mode is called.
    pub permissions: &'a str,
    /// The session's name; empty for none.
    pub session: &'a str,
    /// The directory, with `~`.
    pub cwd: &'a str,
    /// Commands that run in the background.
    pub background: usize,
    /// What is under way, and for how long.
    pub working: Option<(&'a str, Duration)>,
}

/// One line of at most `columns` columns. What matters least gives way first.
#[must_use]
pub fn status(view: &StatusView<'_>, columns: usize, theme: &Theme) -> Line {
    // Each with how early it gives way: the highest goes first.
    let mut parts: Vec<(u8, String, Style)> = Vec::new();
    let mut add = |order: u8, text: String, style: Style| {
        if !text.is_empty() {
            parts.push((order, text, style));
        }
    };
    if let Some((what, time)) = view.working {
        add(0, format!("{} {}", one_line(what, 24), duration(time)), theme.accent);
    }
    let model = if view.model.is_empty() { "no model: /login or /model" } else { view.model };
    add(2, one_line(model, 40), theme.status);
    add(6, one_line(view.thinking, 12), theme.status);
    let (left, style) = context(view, theme);
    add(1, left, style);
    let usage = &view.usage;
    if usage.cost.total > 0.0 {
        add(3, dollars(usage.cost.total), theme.status);
    }
    if usage.input + usage.output > 0 {
        add(7, format!("↑{} ↓{}", count(usage.input), count(usage.output)), theme.status);
    }
    if usage.cache_read + usage.cache_write > 0 {
        add(9, format!("R{} W{}", count(usage.cache_read), count(usage.cache_write)), theme.status);
    }
    add(4, one_line(view.permissions, 20), theme.status);
    match view.background {
        0 => {}
        1 => add(4, "1 background command".into(), theme.accent),
        count => add(4, format!("{count} background commands"), theme.accent),
    }
    add(8, one_line(view.session, 40), theme.label);
    add(5, one_line(view.branch, 40), theme.status);
    add(10, one_line(view.cwd, 60), theme.status);
    let between = " · ";
    let whole = |parts: &[(u8, String, Style)]| {
        parts.iter().map(|(_, text, _)| width(text)).sum::<usize>()
            + parts.len().saturating_sub(1) * width(between)
    };
    while parts.len() > 1 && whole(&parts) > columns {
        let Some(last) = (0..parts.len()).max_by_key(|at| parts[*at].0) else { break };
        parts.remove(last);
    }
    let mut line = Line::default();
    for (_, text, style) in parts {
        if !line.spans.is_empty() {
            line.push(between, theme.border);
        }
        line.push(one_line(&text, columns), style);
    }
    line
}

/// How much of the window is left.
fn context(view: &StatusView<'_>, theme: &Theme) -> (String, Style) {
    if view.window == 0 {
        return (
            view.context.map_or(String::new(), |tokens| format!("{} tokens", count(tokens))),
            theme.status,
        );
    }
    let Some(tokens) = view.context else { return (format!("?/{}", count(view.window)), theme.status) };
    let used = (u128::from(tokens) * 100 / u128::from(view.window)).min(100);
    let style = match used {
        0..70 => theme.status,
        70..90 => theme.warning,
        _ => theme.error,
    };
    (format!("{}% of {} left", 100 - used, count(view.window)), style)
}
