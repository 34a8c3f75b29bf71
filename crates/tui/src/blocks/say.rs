//! What was said: by the user, by the model to itself, and by the engine about the conversation.

use std::sync::Arc;

use quipu_protocol::{Compaction, CompactionReason, CompactionResult, ImageContent};

use super::text::{count, dollars, hanging_lines, one_line, plural};
use crate::{Line, Markdown, Role, Theme, markdown, pictures};

/// What the user said.
#[must_use]
pub fn user(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    hanging_lines(theme.mark("> ", "You: "), theme.accent, text.trim_end(), theme.user, columns)
}

/// An image: its name, and the image itself where it can be drawn.
#[must_use]
pub fn image(image: &ImageContent, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut lines = hanging_lines("", theme.muted, &pictures::caption(image), theme.muted, columns);
    let picture = theme.canvas.and_then(|canvas| pictures::picture(image, columns, canvas));
    lines.extend(picture.map(|picture| Line { picture: Some(Arc::new(picture)), ..Line::default() }));
    lines
}

/// What the model thought: folded, one line with its beginning.
#[must_use]
pub fn thinking(text: &str, folded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = text.trim();
    if folded || text.is_empty() {
        if text.is_empty() {
            return hanging_lines("", theme.thinking, "Thought (hidden)", theme.thinking, columns);
        }
        let begins = text.lines().next().unwrap_or_default().replace("**", "");
        let begins = begins.trim_matches(['#', ' ', '*']);
        let more = if text.lines().nth(1).is_some() { " …" } else { "" };
        let line = one_line(&format!("Thought: {begins}{more}"), columns);
        return vec![Line::styled(line, theme.thinking)];
    }
    let mut markdown = Markdown::of(Role::Thinking);
    markdown.push(text);
    markdown.end();
    markdown.take(columns, theme)
}

/// The context is being summed up.
#[must_use]
pub fn compacting(reason: CompactionReason, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = match reason {
        CompactionReason::Threshold => "Compacting the context: it is nearly full",
        CompactionReason::Overflow => "Compacting the context: the provider rejected it as too long",
        CompactionReason::Manual => "Compacting the context",
    };
    hanging_lines("", theme.muted, text, theme.muted, columns)
}

/// What came of summing up; folded, without the summary.
#[must_use]
pub fn compaction(result: &CompactionResult, folded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    match result {
        CompactionResult::Done { compaction, tokens_after, .. } => {
            done(compaction, *tokens_after, folded, columns, theme)
        }
        CompactionResult::Aborted => hanging_lines(
            "",
            theme.muted,
            "Not compacted: stopped. The context is unchanged.",
            theme.muted,
            columns,
        ),
        CompactionResult::Failed(why) => hanging_lines(
            theme.mark("! ", ""),
            theme.error,
            &format!("Not compacted: {why}"),
            theme.error,
            columns,
        ),
    }
}

fn done(
    compaction: &Compaction,
    tokens_after: u64,
    folded: bool,
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    let cost = compaction.usage.map(|usage| usage.cost.total).filter(|cost| *cost > 0.0);
    let cost = cost.map_or(String::new(), |cost| format!(", for {}", dollars(cost)));
    let text = format!(
        "Context compacted: {} tokens before, about {} now{cost}",
        count(compaction.tokens_before),
        count(tokens_after)
    );
    let mut lines = hanging_lines("", theme.label, &text, theme.label, columns);
    if !folded {
        lines.push(Line::default());
        lines.extend(markdown(compaction.summary.trim(), columns, theme));
    }
    lines
}

/// What a branch held that was left; folded, one line.
#[must_use]
pub fn branch_summary(summary: &str, folded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    let summary = summary.trim();
    let text = format!("Summary of the branch that was left ({})", plural(summary.lines().count(), "line"));
    let mut lines = hanging_lines("", theme.label, &text, theme.label, columns);
    if !folded && !summary.is_empty() {
        lines.push(Line::default());
        lines.extend(markdown(summary, columns, theme));
    }
    lines
}

/// A label at a place of the conversation.
#[must_use]
pub fn label(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    hanging_lines(theme.mark("# ", "Label: "), theme.label, text, theme.label, columns)
}
