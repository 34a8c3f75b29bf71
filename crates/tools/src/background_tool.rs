//! The tool that lists background commands, reads their output, writes to them and kills them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use quipu_protocol::{Json, KillReason, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use crate::background::{
    AfterInput, BackgroundCommands, BackgroundError, BackgroundStatus, LogLines, LogRange, UnreadText,
};
use crate::truncate::format_size;
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, arguments, spec};

/// Bytes of a command line in a list.
const SHOWN: usize = 200;
/// Seconds that a wait takes at most, where nothing is said.
const DEFAULT_WAIT: f64 = 10.0;
/// Seconds that a wait takes at most, whatever is said.
const LONGEST_WAIT: f64 = 30.0;
/// Seconds that a command has to read its input, where nothing is said.
const DEFAULT_WRITE: f64 = 5.0;

/// `background {action, id?, text?}`.
#[derive(Debug)]
pub struct BackgroundTool {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    action: Action,
    id: Option<String>,
    /// Seconds that `wait` and `write` take at most.
    timeout: Option<f64>,
    /// For `write`.
    text: Option<String>,
    /// Whether a line end is written behind a text that has none.
    newline: Option<bool>,
    /// Whether the input ends there.
    #[serde(default)]
    eof: bool,
    /// Keys of a terminal, which there is not.
    keys: Option<serde_json::Value>,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Output,
    Wait,
    Log,
    Write,
    Kill,
}

impl Arguments {
    /// What `write` writes.
    fn input(&self) -> String {
        let mut text = self.text.clone().unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') && self.newline != Some(false) {
            text.push('\n');
        }
        text
    }

    fn after(&self) -> AfterInput {
        if self.eof { AfterInput::End } else { AfterInput::Open }
    }

    fn longest(&self, default: f64) -> Duration {
        let seconds = self.timeout.filter(|seconds| seconds.is_finite()).unwrap_or(default);
        Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_WAIT))
    }
}

impl BackgroundTool {
    /// What models call it.
    pub const NAME: &str = "background";

    /// The tool. It works on [`ToolContext::background`].
    pub fn new() -> Self {
        // Every request carries this: what actions take besides, their results say.
        let parameters = json!({
            "type": "object",
            "properties": {
                "action": { "enum": ["list", "output", "wait", "log", "write", "kill"] },
                "id": { "type": "string" },
                "text": { "type": "string" },
            },
            "required": ["action"],
        });
        let description = "List, read or kill background commands; write to those begun with `input`: true";
        Self { spec: spec(Self::NAME, description, &parameters) }
    }
}

impl Default for BackgroundTool {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for BackgroundTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let Ok(arguments) = serde_json::from_value::<Arguments>(args.clone()) else {
            return Touches::Nothing;
        };
        match (&arguments.action, &cx.background) {
            (Action::Write, Some(commands)) => {
                let id = arguments.id.as_deref().unwrap_or_default();
                Touches::Input(commands.input(id, arguments.input(), arguments.after()))
            }
            _ => Touches::Nothing,
        }
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let arguments: Arguments = match arguments(&call.args) {
                Ok(arguments) => arguments,
                Err(error) => return ToolOutput::error(error),
            };
            let Some(commands) = &cx.background else {
                return ToolOutput::error(BackgroundError::Off.to_string());
            };
            act(arguments, commands, cx).await.unwrap_or_else(|error| ToolOutput::error(error.to_string()))
        })
    }
}

async fn act(
    arguments: Arguments,
    commands: &BackgroundCommands,
    cx: &ToolContext,
) -> Result<ToolOutput, BackgroundError> {
    let id = arguments.id.clone().unwrap_or_default();
    match arguments.action {
        Action::List => Ok(ToolOutput::text(listed(&commands.list()))),
        Action::Output => {
            let (status, unread) = commands.read(&id)?;
            Ok(ToolOutput::text(read(&status, &unread)))
        }
        Action::Wait => {
            commands.wait(&id, arguments.longest(DEFAULT_WAIT), &cx.cancel).await?;
            let (status, unread) = commands.read(&id)?;
            let mut text = read(&status, &unread);
            if status.end.is_none() && unread.text.is_empty() {
                text.push_str(" (`timeout`: wait for so many seconds, at most 30.)");
            }
            Ok(ToolOutput::text(text))
        }
        Action::Log => {
            let limit = arguments.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            let (status, lines) = commands.log(&id, LogRange { offset: arguments.offset, limit }).await?;
            Ok(ToolOutput::text(logged(&status, &lines)))
        }
        Action::Write => {
            if arguments.keys.is_some() {
                return Ok(ToolOutput::error(NO_TERMINAL));
            }
            let text = arguments.input();
            if text.is_empty() && !arguments.eof {
                return Ok(ToolOutput::error("`write` needs `text`, or `eof`: true to end the input."));
            }
            let after = arguments.after();
            let longest = arguments.longest(DEFAULT_WRITE);
            let status = commands.write(&id, text.as_bytes(), after, longest, &cx.cancel).await?;
            let ended = match after {
                AfterInput::Open => {
                    " `wait` gives what it prints. (`newline`: false writes no line end, `eof`: true ends the input.)"
                }
                AfterInput::End => " Its input has ended. `wait` gives what it prints.",
            };
            Ok(ToolOutput::text(format!("Wrote {} bytes to {}.{ended}", text.len(), status.id)))
        }
        Action::Kill => {
            let had_ended = commands.status(&id)?.end.is_some();
            let status = commands.kill(&id, KillReason::Model).await?;
            let (_, unread) = commands.read(&id)?;
            let mut output = ToolOutput::text(read(&status, &unread));
            if !had_ended && status.end.is_some() {
                output.details = Some(Json::from(json!({ "background": { "ended": id } })));
            }
            Ok(output)
        }
    }
}

/// For models that know tools with keys.
const NO_TERMINAL: &str = "Background commands have no terminal, so `keys` cannot be pressed. `write` takes `text`, and `kill` \
                           ends a command.";

fn listed(all: &[BackgroundStatus]) -> String {
    if all.is_empty() {
        return "No background commands.".to_owned();
    }
    let lines: Vec<String> = all
        .iter()
        .map(|one| {
            let command = one.command.lines().next().unwrap_or_default();
            let command = &command[..command.floor_char_boundary(SHOWN)];
            let unread = match one.unread {
                0 => String::new(),
                bytes => format!(", {} unread", format_size(bytes)),
            };
            format!("{}{unread}: {command}", state(one))
        })
        .collect();
    lines.join("\n")
}

fn logged(status: &BackgroundStatus, lines: &LogLines) -> String {
    let LogLines { text, first, count, total } = lines;
    let shown = match count {
        0 => format!("No lines of {total}"),
        count => format!("Lines {first}-{} of {total}", first + count - 1),
    };
    let next = first + count;
    let more =
        if *count > 0 && next <= *total { format!(" Continue with `offset` {next}.") } else { String::new() };
    let text = if text.is_empty() { "(no lines)" } else { text };
    format!("{text}\n\n[{}. {shown}.{more} `offset` and `limit` choose other lines.]", state(status))
}

fn read(status: &BackgroundStatus, unread: &UnreadText) -> String {
    let mut text = if unread.text.is_empty() { "(no new output)\n".to_owned() } else { unread.text.clone() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("\n[{}.{}]", state(status), missing(unread)));
    text
}

/// What is missing in a text, and where all of it is.
pub(crate) fn missing(unread: &UnreadText) -> String {
    let mut text = String::new();
    if unread.skipped > 0 {
        text.push_str(&format!(" {} of unread output before this skipped.", format_size(unread.skipped)));
    }
    if let Some(file) = &unread.file {
        text.push_str(&format!(" Full output: {}", file.display()));
    }
    text
}

/// The state of a command, in a few words.
fn state(status: &BackgroundStatus) -> String {
    let took = span(status.took);
    match &status.end {
        None if status.takes_input => format!("{} has been running for {took} and takes input", status.id),
        None => format!("{} has been running for {took}", status.id),
        Some(end) => format!("{} {end} after {took}", status.id),
    }
}

/// A time for people and models.
fn span(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}
