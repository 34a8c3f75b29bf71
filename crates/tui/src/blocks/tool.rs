//! Calls of tools, and commands of the user.

use std::time::Duration;

use quipu::{PLAN_TOOL, SubmittedPlan};
use quipu_protocol::{Content, ToolResultMessage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::output::{opens, output};
use super::say::image;
use super::text::{cut, duration, hanging_lines, one_line, plural};
use crate::diff::Diff;
use crate::highlight::Highlighter;
use crate::markdown::line_of;
use crate::{Line, Style, Theme, clean, markdown, wrap};

/// Rows of a folded output, and of a live one.
const FOLDED: usize = 6;
/// Rows of a folded change or file.
const FOLDED_FILE: usize = 24;
/// Bytes of a line of a file that are shown.
const FILE_LINE: usize = 2 << 10;
/// Bytes of arguments that are still written, and of a folded command, that are looked at.
const WRITING: usize = 4 << 10;
/// Rows of a folded command.
const FOLDED_COMMAND: usize = 4;

/// A call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolView<'a> {
    /// The tool.
    pub name: &'a str,
    /// The JSON text of the arguments; while the model writes it, what is there so far.
    pub arguments: &'a str,
    /// How far it is.
    pub state: ToolState<'a>,
    /// Whether only a part of a long output is shown.
    pub folded: bool,
}

/// How far a call is.
#[derive(Debug, Clone, Copy)]
pub enum ToolState<'a> {
    /// The model writes the arguments.
    Writing,
    /// It waits for permission, or for others.
    Waiting,
    /// It runs.
    Running {
        /// What it printed last.
        tail: &'a str,
        /// For how long it has.
        elapsed: Duration,
    },
    /// The call ended.
    Done {
        /// What came of it.
        result: &'a ToolResultMessage,
        /// How long it took.
        took: Option<Duration>,
    },
}

/// A command that the user runs.
#[derive(Debug, Clone, Copy)]
pub struct ShellView<'a> {
    /// The command line.
    pub command: &'a str,
    /// What it printed so far; at most the end of it.
    pub output: &'a str,
    /// While it runs, for how long it has.
    pub running: Option<Duration>,
    /// Its exit code; absent when it was killed.
    pub exit_code: Option<i32>,
    /// Whether the user stopped it.
    pub cancelled: bool,
    /// Whether the model does not see it.
    pub hidden: bool,
    /// Where all of the output is, when it was cut.
    pub full_output_path: Option<&'a str>,
    /// Whether only a part of a long output is shown.
    pub folded: bool,
}

/// A call of a tool: what it is, and what it printed, changed or answered.
#[must_use]
pub fn tool(view: &ToolView<'_>, columns: usize, theme: &Theme) -> Vec<Line> {
    let call = Call::of(view);
    let mut lines = call.title(columns, theme);
    let room = body_room(columns);
    let body = match view.state {
        ToolState::Writing => Vec::new(),
        ToolState::Waiting => call.preview(room, theme),
        ToolState::Running { tail, elapsed } => {
            let mut body = call.preview(room, theme);
            body.extend(output(tail, Some(FOLDED), room, theme));
            if elapsed >= Duration::from_secs(1) {
                let text = format!("running, {}", duration(elapsed));
                body.extend(hanging_lines("", theme.muted, &text, theme.muted, room));
            }
            body
        }
        ToolState::Done { result, took } => call.done(result, took, room, theme),
    };
    lines.extend(indented(body, columns));
    lines
}

/// A command that the user runs, or ran.
#[must_use]
pub fn shell(view: &ShellView<'_>, columns: usize, theme: &Theme) -> Vec<Line> {
    let mark = theme.mark(if view.hidden { "!! " } else { "! " }, "Your command: ");
    let mut lines = hanging_lines(mark, theme.accent, view.command, theme.command, columns);
    lines.extend(printed(view, false, columns, theme));
    lines
}

/// More of one, for who is told it as it comes.
pub(crate) fn shell_more(view: &ShellView<'_>, columns: usize, theme: &Theme) -> Vec<Line> {
    printed(view, true, columns, theme)
}

/// What a command printed, and how it ended; `has_output` when something of it was told before.
fn printed(view: &ShellView<'_>, has_output: bool, columns: usize, theme: &Theme) -> Vec<Line> {
    let room = body_room(columns);
    let rows = (view.folded || view.running.is_some() && !theme.spoken).then_some(FOLDED);
    let mut body = output(view.output, rows, room, theme);
    let (text, style) = match (view.running, view.exit_code) {
        // Its time is told now and then.
        (Some(_), _) if theme.spoken => (String::new(), theme.muted),
        (Some(time), _) => (format!("running, {}", duration(time)), theme.muted),
        (None, _) if view.cancelled => ("stopped".into(), theme.warning),
        (None, Some(0)) => {
            (if body.is_empty() && !has_output { "no output" } else { "" }.into(), theme.muted)
        }
        (None, Some(code)) => (format!("exit code {code}"), theme.error),
        (None, None) => ("killed".into(), theme.error),
    };
    if !text.is_empty() {
        body.extend(hanging_lines("", style, &text, style, room));
    }
    if let Some(path) = view.full_output_path {
        body.extend(hanging_lines("", theme.muted, &format!("all of it: {path}"), theme.muted, room));
    }
    indented(body, columns)
}

/// Columns for what stands below a title.
fn body_room(columns: usize) -> usize {
    if columns < 10 { columns } else { columns - 2 }
}

/// Two columns further right, where there is room.
fn indented(mut lines: Vec<Line>, columns: usize) -> Vec<Line> {
    for line in lines.iter_mut().filter(|line| !line.spans.is_empty() && columns >= 10) {
        line.spans.insert(0, crate::Span { text: "  ".into(), style: Style::default() });
    }
    lines
}

/// The tool that changes several files by a patch.
const PATCH: &str = "apply_patch";

/// A call, its arguments read once.
struct Call<'a> {
    view: &'a ToolView<'a>,
    path: Option<String>,
    command: Option<String>,
    content: Option<String>,
    /// The plan that it hands in; the changed one where a person changed it.
    plan: Option<String>,
    /// `:10-29` of a call that reads a part of a file.
    part: String,
    change: Option<Diff>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    offset: Option<&'a RawValue>,
    #[serde(borrow)]
    limit: Option<&'a RawValue>,
}

impl<'a> Call<'a> {
    fn of(view: &'a ToolView<'a>) -> Self {
        let mut call = Self {
            view,
            path: None,
            command: None,
            content: None,
            plan: None,
            part: String::new(),
            change: None,
        };
        let whole = match view.state {
            ToolState::Writing => None,
            _ => serde_json::from_str::<Arguments<'_>>(view.arguments).ok(),
        };
        let Some(arguments) = whole else {
            // Text that grows with each piece is not read from its start to its end each time.
            let near = &view.arguments[..view.arguments.floor_char_boundary(WRITING)];
            call.path = begun(near, "path");
            call.command = begun(near, "command");
            return call;
        };
        let text = |value: Option<&RawValue>| {
            value.and_then(|value| serde_json::from_str::<String>(value.get()).ok())
        };
        let number = |value: Option<&RawValue>| value.and_then(|value| value.get().parse::<u64>().ok());
        call.path = text(arguments.path);
        call.command = text(arguments.command);
        call.content = text(arguments.content);
        if view.name == PLAN_TOOL {
            let submitted = match view.state {
                ToolState::Done { result, .. } => {
                    result.details.as_ref().and_then(SubmittedPlan::of_details).map(|plan| plan.text)
                }
                _ => None,
            };
            call.plan = submitted.or_else(|| text(arguments.text));
        }
        call.part = match (number(arguments.offset), number(arguments.limit)) {
            (None, None) => String::new(),
            (Some(from), None) => format!(":{from}-"),
            (from, Some(limit)) => {
                let from = from.unwrap_or(1);
                format!(":{from}-{}", from.saturating_add(limit).saturating_sub(1))
            }
        };
        call.change = match view.state {
            ToolState::Done { result, .. } if view.name == PATCH && !result.is_error => {
                result.details.as_ref().and_then(Diff::of_details)
            }
            _ if view.name != "edit" => None,
            ToolState::Done { result, .. } if result.is_error => None,
            ToolState::Done { result, .. } => result
                .details
                .as_ref()
                .and_then(Diff::of_details)
                .or_else(|| Diff::of_arguments(view.arguments)),
            _ => Diff::of_arguments(view.arguments),
        };
        call
    }

    fn title(&self, columns: usize, theme: &Theme) -> Vec<Line> {
        let view = self.view;
        if let Some(command) = self.command.as_deref().filter(|_| view.name == "bash") {
            let command = command.trim_end();
            let near = if view.folded { command.floor_char_boundary(WRITING) } else { command.len() };
            let beyond = command[near..].matches('\n').count();
            let (mark, style) = match view.state {
                ToolState::Done { result, .. } if result.is_error => {
                    (theme.mark("✗ $ ", "Failed command: "), theme.error)
                }
                _ => (theme.mark("$ ", "Command: "), theme.accent),
            };
            let lines = hanging_lines(mark, style, &command[..near], theme.command, columns);
            return first(lines, view.folded.then_some(FOLDED_COMMAND), beyond, columns, theme);
        }
        let mut line = Line::default();
        match view.state {
            ToolState::Done { result, .. } if result.is_error => {
                line.push(theme.mark("✗ ", "Failed tool: "), theme.error);
            }
            _ if theme.spoken => line.push("Tool: ", theme.tool),
            _ => {}
        }
        line.push(one_line(view.name, 64), theme.tool);
        let rest = match &self.path {
            Some(path) => format!("{path}{}", self.part),
            None if matches!(view.arguments.trim(), "" | "{}") => String::new(),
            None if self.plan.is_some() => String::new(),
            None if view.name == PATCH => quipu_host::files_of_patch(view.arguments).join(", "),
            None => view.arguments.to_owned(),
        };
        let changed = self.change.as_ref().map(Diff::changed);
        let counts =
            changed.map_or(String::new(), |changed| format!(" (+{} -{})", changed.added, changed.removed));
        // How much changed is seen also where the path is long.
        let room = columns.saturating_sub(line.width() + counts.len());
        let rest = one_line(&rest, room.saturating_sub(1));
        let linked =
            self.path.as_ref().filter(|path| theme.links.is_some() && rest.starts_with(path.as_str()));
        match linked {
            _ if rest.is_empty() || room <= 1 => {}
            Some(path) => {
                line.push(" ", theme.text);
                line.push(&rest[..path.len()], theme.file(theme.text, path));
                line.push(&rest[path.len()..], theme.text);
            }
            None => line.push(format!(" {rest}"), theme.text),
        }
        line.push(counts, theme.text);
        vec![cut(&line, columns)]
    }

    /// What it is about to do to a file, or did.
    fn preview(&self, room: usize, theme: &Theme) -> Vec<Line> {
        let rows = self.view.folded.then_some(FOLDED_FILE);
        if let Some(change) = &self.change {
            return first(change.lines(room, theme), rows, 0, room, theme);
        }
        match &self.content {
            Some(content) if self.view.name == "write" => self.file(content, rows, room, theme),
            _ => Vec::new(),
        }
    }

    fn done(
        &self,
        result: &ToolResultMessage,
        took: Option<Duration>,
        room: usize,
        theme: &Theme,
    ) -> Vec<Line> {
        let view = self.view;
        let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
        let text = text.join("\n");
        let rows = view.folded.then_some(FOLDED);
        let mut lines = match view.name {
            // How it failed stands last, behind an empty line.
            "bash" if result.is_error && ends_in_a_line(&text) => {
                let (printed, why) = text.rsplit_once("\n\n").unwrap_or(("", &text));
                let mut lines = output(printed, rows, room, theme);
                lines.extend(hanging_lines("", theme.error, why.trim(), theme.error, room));
                lines
            }
            "bash" => output(&text, rows, room, theme),
            _ if result.is_error => {
                let theme = Theme { output: theme.error, ..theme.clone() };
                first(output(&text, None, room, &theme), rows, 0, room, &theme)
            }
            "edit" | "write" => self.preview(room, theme),
            PATCH if self.change.is_some() => self.preview(room, theme),
            PLAN_TOOL if let Some(plan) = &self.plan => {
                let rows = view.folded.then_some(FOLDED_FILE);
                let mut lines = first(markdown(plan, room, theme), rows, 0, room, theme);
                // What became of it stands in its first line.
                let outcome = text.lines().next().unwrap_or_default();
                lines.extend(hanging_lines("", theme.muted, outcome, theme.muted, room));
                lines
            }
            "read" if view.folded => match text.lines().count() {
                0 => Vec::new(),
                lines => {
                    let text = format!("{}{}", plural(lines, "line"), opens(theme));
                    hanging_lines("", theme.muted, &text, theme.muted, room)
                }
            },
            "read" => self.file(&text, None, room, theme),
            _ => output(&text, rows, room, theme),
        };
        for content in &result.content {
            if let Content::Image(shown) = content {
                lines.extend(image(shown, room, theme));
            }
        }
        if let Some(took) = took.filter(|took| *took >= Duration::from_secs(1)) {
            lines.extend(hanging_lines(
                "",
                theme.muted,
                &format!("took {}", duration(took)),
                theme.muted,
                room,
            ));
        }
        lines
    }

    /// A file as it is, in the colours of its language.
    fn file(&self, text: &str, rows: Option<usize>, room: usize, theme: &Theme) -> Vec<Line> {
        let path = self.path.as_deref().unwrap_or_default();
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let mut highlighter = Highlighter::new(name.rsplit('.').next().unwrap_or(name));
        let mut lines = Vec::new();
        for line in text.lines().take(rows.map_or(usize::MAX, |rows| rows + 1)) {
            let line = &line[..line.floor_char_boundary(FILE_LINE)];
            lines.extend(wrap(&line_of(&highlighter.line(&clean(line)), theme), room, 0));
        }
        let beyond = rows.map_or(0, |rows| text.lines().count().saturating_sub(rows + 1));
        first(lines, rows, beyond, room, theme)
    }
}

/// Whether the last paragraph is one line.
fn ends_in_a_line(text: &str) -> bool {
    !text.trim_end().rsplit("\n\n").next().unwrap_or_default().contains('\n')
}

/// The first rows, and how many are hidden behind them, `beyond` not counted.
fn first(mut lines: Vec<Line>, rows: Option<usize>, beyond: usize, room: usize, theme: &Theme) -> Vec<Line> {
    let Some(rows) = rows.filter(|rows| lines.len() > rows + 1 || beyond > 0) else { return lines };
    let hidden = lines.len().saturating_sub(rows) + beyond;
    lines.truncate(rows);
    lines.push(more(hidden, room, theme));
    lines
}

fn more(hidden: usize, columns: usize, theme: &Theme) -> Line {
    let text = format!("… {} more{}", plural(hidden, "line"), opens(theme));
    cut(&Line::styled(text, theme.muted), columns)
}

/// A text among the arguments, of JSON that is not complete yet.
fn begun(json: &str, name: &str) -> Option<String> {
    let rest = &json[json.find(&format!("\"{name}\""))? + name.len() + 2..];
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let mut text = &rest[..end.unwrap_or(rest.len())];
    // An escape that is cut off is left out.
    for _ in 0..12 {
        if let Ok(text) = serde_json::from_str(&format!("\"{text}\"")) {
            return Some(text);
        }
        text = &text[..text.floor_char_boundary(text.len().saturating_sub(1))];
    }
    None
}
