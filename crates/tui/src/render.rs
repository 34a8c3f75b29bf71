//! Lines of what was said and done.

use std::collections::HashMap;
use std::time::Duration;

use quipu_protocol::{
    BashExecutionMessage, Body, CallId, Content, Entry, Json, Message, ServerToolBlock, ToolResultMessage,
    UnixMs,
};

use crate::blocks::{self, ShellView, ToolState, ToolView};
use crate::picker::cut;
use crate::{Line, Markdown, Style, Theme, clean, wrap};

/// Text that grows, of which blocks become final.
#[derive(Default)]
pub(crate) struct Prose(Markdown);

impl Prose {
    pub(crate) fn push(&mut self, text: &str) {
        self.0.push(text);
    }

    /// What became final since the last time.
    pub(crate) fn finished(&mut self, columns: usize, theme: &Theme) -> Vec<Line> {
        self.0.take(columns, theme)
    }

    /// All that was not given yet: nothing more comes.
    pub(crate) fn all(&mut self, columns: usize, theme: &Theme) -> Vec<Line> {
        self.0.end();
        self.0.take(columns, theme)
    }

    /// What is not final, to be looked at.
    pub(crate) fn rest(&self, columns: usize, theme: &Theme) -> Vec<Line> {
        self.0.live(columns, theme)
    }
}

/// Text as it is, made safe and wrapped; at most `most` lines of it.
pub(crate) fn plain(text: &str, columns: usize, style: Style, most: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if text.is_empty() {
        return lines;
    }
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let safe = clean(line).replace('\t', "    ");
        lines.extend(wrap(&Line::styled(safe, style), columns.max(1), 0));
        if lines.len() >= most {
            lines.truncate(most);
            break;
        }
    }
    lines
}

/// The same with something before its first line, and room for it before the others.
fn behind(mark: &str, mark_style: Style, text: &str, style: Style, columns: usize) -> Vec<Line> {
    let room = columns.saturating_sub(crate::width(mark)).max(1);
    let mut lines = plain(text, room, style, usize::MAX);
    for (at, line) in lines.iter_mut().enumerate() {
        let before = if at == 0 { mark.to_owned() } else { " ".repeat(crate::width(mark)) };
        line.spans.insert(0, crate::Span { text: before, style: mark_style });
    }
    lines
}

/// A word from us.
pub(crate) fn note(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    behind(theme.mark("· ", ""), theme.muted, text, theme.muted, columns)
}

/// Something went wrong: what, and what to do.
pub(crate) fn error(what: &str, why: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    lines.extend(behind(theme.mark("✗ ", "Error: "), theme.error, what.trim(), theme.error, columns));
    lines.extend(behind("  ", theme.muted, why.trim(), theme.muted, columns));
    lines
}

/// A block with a gap before it; nothing where it is empty.
pub(crate) fn apart(block: Vec<Line>) -> Vec<Line> {
    if block.is_empty() {
        return block;
    }
    let mut lines = vec![Line::default()];
    lines.extend(block);
    lines
}

/// What stands before an answer: a gap, or who speaks.
pub(crate) fn answers(theme: &Theme) -> Line {
    if theme.spoken { Line::from("Agent:") } else { Line::default() }
}

/// What the user said.
fn user(body: &Body, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut lines = apart(blocks::user(&quipu::typed_text(&body.blocks()), columns, theme));
    for block in body.blocks().iter() {
        if let Content::Image(image) = block {
            lines.extend(blocks::image(image, columns, theme));
        }
    }
    lines
}

/// What the model thought.
pub(crate) fn thinking(text: &str, unfolded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    apart(blocks::thinking(text, !unfolded, columns, theme))
}

/// The same while it comes: its end.
pub(crate) fn thinking_live(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    let from = text.len().saturating_sub(columns * 4);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let lines = behind("∴ ", theme.muted, text[from..].trim(), theme.thinking, columns);
    let over = lines.len().saturating_sub(3);
    lines.into_iter().skip(over).collect()
}

/// A call whose arguments come.
pub(crate) fn calling(name: &str, bytes: usize, columns: usize, theme: &Theme) -> Line {
    let mut line = Line::styled("• ", theme.tool);
    line.push(cut(&clean(name), columns.saturating_sub(20)), theme.tool);
    line.push(format!("  {bytes} bytes …"), theme.muted);
    line
}

/// What a tool of the provider did.
pub(crate) fn server_tool(summary: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    if summary.is_empty() {
        return Vec::new();
    }
    behind(theme.mark("• ", "Provider: "), theme.tool, summary, theme.muted, columns)
}

/// A call that is done.
pub(crate) fn tool(
    name: &str,
    args: &Json,
    result: &ToolResultMessage,
    took: UnixMs,
    unfolded: bool,
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    let took = span(took);
    let state = ToolState::Done { result, took: Some(took).filter(|took| *took >= Duration::from_secs(1)) };
    let view = ToolView { name, arguments: args.get(), state, folded: !unfolded };
    apart(blocks::tool(&view, columns, theme))
}

/// A time that passed; none where the clock went back.
pub(crate) fn span(milliseconds: UnixMs) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

/// A line of the user's in the shell.
pub(crate) fn shell(done: &BashExecutionMessage, unfolded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    let view = ShellView {
        command: &done.command,
        output: &done.output,
        running: None,
        exit_code: done.exit_code,
        cancelled: done.cancelled,
        hidden: done.exclude_from_context == Some(true),
        full_output_path: done.full_output_path.as_deref(),
        folded: !unfolded,
    };
    apart(blocks::shell(&view, columns, theme))
}

/// The same, to be heard while it runs: the line where it was not told yet, more of what it printed, how it ended.
pub(crate) fn shell_more(
    begun: Option<(&str, bool)>,
    more: &str,
    done: Option<&BashExecutionMessage>,
    unfolded: bool,
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    let (command, hidden) = begun.unwrap_or_default();
    let view = ShellView {
        command,
        output: more,
        running: done.is_none().then_some(Duration::ZERO),
        exit_code: done.and_then(|done| done.exit_code),
        cancelled: done.is_some_and(|done| done.cancelled),
        hidden,
        full_output_path: done.and_then(|done| done.full_output_path.as_deref()),
        folded: !unfolded,
    };
    if begun.is_some() {
        return apart(blocks::shell(&view, columns, theme));
    }
    blocks::shell_more(&view, columns, theme)
}

/// Any message.
pub(crate) fn message(message: &Message, unfolded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    match message {
        Message::User(said) => user(&said.content, columns, theme),
        Message::Assistant(answer) => {
            let mut lines = Vec::new();
            for block in &answer.content {
                match block {
                    Content::Text(text) if !text.text.trim().is_empty() => {
                        let mut prose = Prose::default();
                        prose.push(&text.text);
                        lines.push(answers(theme));
                        lines.extend(prose.all(columns, theme));
                    }
                    Content::Thinking(thought) => {
                        lines.extend(thinking(&thought.thinking, unfolded, columns, theme));
                    }
                    Content::Other(json) => {
                        let used = ServerToolBlock::of_json(json);
                        lines.extend(
                            used.iter().flat_map(|used| server_tool(&used.summary(), columns, theme)),
                        );
                    }
                    _ => {}
                }
            }
            if let Some(error) = &answer.error_message {
                lines.extend(note(&format!("the answer failed: {error}"), columns, theme));
            }
            lines
        }
        Message::ToolResult(result) => {
            tool(&result.tool_name, &Json::object(), result, 0, unfolded, columns, theme)
        }
        Message::BashExecution(run) => shell(run, unfolded, columns, theme),
        Message::Custom(custom) if custom.display => user(&custom.content, columns, theme),
        Message::BranchSummary(summary) => {
            apart(blocks::branch_summary(&summary.summary, !unfolded, columns, theme))
        }
        Message::CompactionSummary(summary) => {
            summed(&summary.summary, summary.tokens_before, columns, theme)
        }
        Message::Custom(_) | Message::Other(_) => Vec::new(),
    }
}

fn summed(text: &str, tokens: u64, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = format!("Compacted: {} tokens before ({} lines)", blocks::count(tokens), text.lines().count());
    apart(note(&text, columns, theme))
}

/// One entry of a session, with the arguments of the calls before it.
pub(crate) fn entry(
    entry: &Entry,
    calls: &HashMap<CallId, Json>,
    unfolded: bool,
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    match entry {
        Entry::Message(Message::ToolResult(result)) => {
            let none = Json::object();
            let args = calls.get(&result.tool_call_id).unwrap_or(&none);
            tool(&result.tool_name, args, result, 0, unfolded, columns, theme)
        }
        Entry::Message(said) => message(said, unfolded, columns, theme),
        Entry::Compaction(compaction) => {
            summed(&compaction.summary, compaction.tokens_before, columns, theme)
        }
        Entry::Epoch(epoch) => note(&format!("model: {}/{}", epoch.provider, epoch.model), columns, theme),
        Entry::Session(_) | Entry::Meta(_) => Vec::new(),
    }
}

/// Headings, and below each names beside what they are; on a narrow screen above it.
pub(crate) fn sections(
    sections: &[(&str, Vec<(String, String)>)],
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    let widest = sections.iter().flat_map(|(_, rows)| rows).map(|(name, _)| crate::width(name)).max();
    let names = widest.unwrap_or(0).min(columns * 2 / 5).max(1);
    let mut lines = Vec::new();
    for (title, rows) in sections {
        lines.push(Line::default());
        lines.extend(plain(title, columns, theme.heading, usize::MAX));
        for (name, what) in rows {
            if theme.spoken {
                lines.extend(plain(&format!("{name}: {what}"), columns, theme.text, usize::MAX));
                continue;
            }
            if columns < 60 {
                lines.extend(behind("  ", theme.command, name, theme.command, columns));
                lines.extend(behind("    ", theme.muted, what, theme.muted, columns));
                continue;
            }
            let mut left = plain(name, names, theme.command, usize::MAX).into_iter();
            let mut right = plain(what, columns - names - 4, theme.muted, usize::MAX).into_iter();
            loop {
                let (name, what) = (left.next(), right.next());
                if name.is_none() && what.is_none() {
                    break;
                }
                let name = name.unwrap_or_default();
                let gap = names - name.width().min(names) + 2;
                let mut line = Line::styled("  ", theme.command);
                line.spans.extend(name.spans);
                if let Some(what) = what {
                    line.push(" ".repeat(gap), theme.muted);
                    line.spans.extend(what.spans);
                }
                lines.push(line);
            }
        }
    }
    lines
}

/// How long ago something was, for people.
pub(crate) fn ago(now: UnixMs, then: UnixMs) -> String {
    let seconds = now.saturating_sub(then).max(0) / 1_000;
    match seconds {
        0..60 => "just now".into(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
