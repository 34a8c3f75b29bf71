//! What responses carry. The order of fields is the order on the wire.

use quipu_protocol::{BashExecutionMessage, Compaction, Json, Model, Thinking, Ui, Usage};
use serde::{Serialize, Serializer};

use crate::commands::QueueDrainMode;
use crate::line::{one_line, write};

/// How a session stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState<'a> {
    /// The model of the next request.
    pub model: ModelForm<'a>,
    /// How hard it thinks.
    pub thinking_level: Thinking,
    /// Whether a run is under way.
    pub is_streaming: bool,
    /// Whether the context is being summed up.
    pub is_compacting: bool,
    /// How much of the queue for the end of a turn is taken at once.
    pub steering_mode: QueueDrainMode,
    /// How much of the queue for the end of a run is taken at once.
    pub follow_up_mode: QueueDrainMode,
    /// The file that the session is written to as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<&'a str>,
    /// Its id.
    pub session_id: &'a str,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<&'a str>,
    /// Whether the context is summed up before it is full.
    pub auto_compaction_enabled: bool,
    /// Messages of the context.
    pub message_count: usize,
    /// Messages that wait.
    pub pending_message_count: usize,
}

/// A model, without what may hold secrets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelForm<'a> {
    id: &'a str,
    name: &'a str,
    api: &'a str,
    provider: &'a str,
    base_url: &'a str,
    reasoning: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level_map: Option<&'a Json>,
    input: &'a [String],
    cost: RatesForm,
    context_window: u64,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compat: Option<&'a Json>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RatesForm {
    #[serde(serialize_with = "plain_number")]
    input: f64,
    #[serde(serialize_with = "plain_number")]
    output: f64,
    #[serde(serialize_with = "plain_number")]
    cache_read: f64,
    #[serde(serialize_with = "plain_number")]
    cache_write: f64,
}

impl<'a> From<&'a Model> for ModelForm<'a> {
    fn from(model: &'a Model) -> Self {
        let cost = &model.cost;
        Self {
            id: &model.id,
            name: &model.name,
            api: &model.api,
            provider: &model.provider,
            base_url: &model.base_url,
            reasoning: model.reasoning,
            thinking_level_map: model.thinking_level_map.as_ref(),
            input: &model.input,
            cost: RatesForm {
                input: cost.input,
                output: cost.output,
                cache_read: cost.cache_read,
                cache_write: cost.cache_write,
            },
            context_window: model.context_window,
            max_tokens: model.max_tokens,
            compat: model.compat.as_ref(),
        }
    }
}

/// The model that another one was chosen for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CycledModel<'a> {
    /// The model from now on.
    pub model: ModelForm<'a>,
    /// How hard it thinks.
    pub thinking_level: Thinking,
    /// Whether it is one of those that the settings list.
    pub is_scoped: bool,
}

/// What a compaction made.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionForm<'a> {
    summary: &'a str,
    first_kept_entry_id: &'a str,
    tokens_before: u64,
    estimated_tokens_after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Json>,
}

impl<'a> CompactionForm<'a> {
    /// `first_kept` is the id of the first entry that it keeps.
    pub fn of(compaction: &'a Compaction, first_kept: &'a str, tokens_after: u64) -> Self {
        Self {
            summary: &compaction.summary,
            first_kept_entry_id: first_kept,
            tokens_before: compaction.tokens_before,
            estimated_tokens_after: tokens_after,
            usage: compaction.usage,
            details: compaction.details.as_ref(),
        }
    }
}

/// What a person's line in the shell came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellForm<'a> {
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    cancelled: bool,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_output_path: Option<&'a str>,
}

impl<'a> From<&'a BashExecutionMessage> for ShellForm<'a> {
    fn from(message: &'a BashExecutionMessage) -> Self {
        Self {
            output: &message.output,
            exit_code: message.exit_code,
            cancelled: message.cancelled,
            truncated: message.truncated,
            full_output_path: message.full_output_path.as_deref(),
        }
    }
}

/// How full the context is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextFill {
    tokens: Option<u64>,
    context_window: u64,
    percent: Option<f64>,
}

impl ContextFill {
    /// Of a window of so many tokens; `None` where the window is not known.
    pub fn of(tokens: Option<u64>, context_window: u64) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let percent = tokens.map(|tokens| tokens as f64 / context_window as f64 * 100.0);
        (context_window > 0).then_some(Self { tokens, context_window, percent })
    }
}

/// A command with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandForm {
    /// Its name without the slash.
    pub name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its kind.
    pub source: CommandSource,
    /// Where it comes from.
    pub source_info: SourceInfo,
}

/// The kind of a command with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandSource {
    /// A program or a server gave it.
    Extension,
    /// A template of a prompt.
    Prompt,
    /// A skill.
    Skill,
}

/// Where a command with a slash comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceInfo {
    /// Its file, or words in angle brackets where it has none.
    pub path: String,
    /// Who brought it, such as `local` or the name of a package.
    pub source: String,
    /// `user`, `project` or `temporary`.
    pub scope: String,
    /// `package` or `top-level`.
    pub origin: String,
}

/// JSON text of what a response carries.
pub fn data_text(data: &impl Serialize) -> String {
    write(data)
}

/// The line that shows something to a person without an answer, without a newline.
pub fn ui_line(id: &str, ui: &Ui) -> String {
    let message = |text: &str, kind: &str| serde_json::json!({ "type": "extension_ui_request", "id": id, "method": "notify", "message": text, "notifyType": kind });
    let value = match ui {
        Ui::Notice { notice } => match notice {
            quipu_protocol::Notice::Branched { session } => message(
                &format!("Another process works on this session; it continues as session {session}."),
                "warning",
            ),
            quipu_protocol::Notice::Interrupted { .. } => message(
                "The process that worked on this session before did not end in order. What it ran is not run again.",
                "warning",
            ),
            quipu_protocol::Notice::Note { text } => message(text, "info"),
        },
        Ui::Status { key, text } => {
            let mut value = serde_json::json!({ "type": "extension_ui_request", "id": id, "method": "setStatus", "statusKey": key });
            if let Some(text) = text {
                value["statusText"] = text.as_str().into();
            }
            value
        }
        Ui::Widget { key, lines } => {
            let mut value = serde_json::json!({ "type": "extension_ui_request", "id": id, "method": "setWidget", "widgetKey": key });
            if !lines.is_empty() {
                value["widgetLines"] = lines.as_slice().into();
            }
            value
        }
    };
    one_line(value.to_string())
}

/// A number as other programs write it: whole ones without a point.
pub(crate) fn plain_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of less than 2^53")]
    if number.fract() == 0.0 && number.abs() < 9e15 {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

/// The lines of a compaction that somebody asked for and that could not begin, without newlines.
pub fn failed_compaction_lines(why: &str) -> [String; 2] {
    let error = crate::line::quoted(&format!("Compaction failed: {why}"));
    [
        r#"{"type":"compaction_start","reason":"manual"}"#.to_owned(),
        format!(
            r#"{{"type":"compaction_end","reason":"manual","aborted":false,"willRetry":false,"errorMessage":{error}}}"#
        ),
    ]
}
