//! Commands that come in, one a line, and the lines that answer them.

use quipu_protocol::{Content, ImageContent, Json};
use serde::Deserialize;
use serde_json::Value;

use crate::answers::{ANSWER, AskAnswer, BadAnswer, answer_of};
use crate::line::{one_line, quoted};

/// What a program asks for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum RpcCommand {
    /// Says something to the agent.
    Prompt {
        /// The text; a slash command where it begins with one.
        message: String,
        /// Images behind it.
        #[serde(default)]
        images: Vec<RpcImage>,
        /// Which queue it waits in while the agent works; without one it is refused then.
        #[serde(default)]
        streaming_behavior: Option<StreamingBehavior>,
    },
    /// Says something for the end of the turn.
    Steer {
        /// The text.
        message: String,
        /// Images behind it.
        #[serde(default)]
        images: Vec<RpcImage>,
    },
    /// Says something for the end of the run.
    FollowUp {
        /// The text.
        message: String,
        /// Images behind it.
        #[serde(default)]
        images: Vec<RpcImage>,
    },
    /// Stops what runs, and waits for its end.
    Abort,
    /// Takes everything out of the queues.
    ClearQueue,
    /// Begins another session.
    NewSession {
        /// The file of the session that it came from.
        #[serde(default)]
        parent_session: Option<String>,
    },
    /// How the session stands.
    GetState,
    /// The messages of the context.
    GetMessages,
    /// Another model from the next request on.
    SetModel {
        /// Its provider.
        provider: String,
        /// Its id.
        model_id: String,
    },
    /// The next model.
    CycleModel,
    /// The models that can be called.
    GetAvailableModels,
    /// Another level of thinking from the next request on.
    SetThinkingLevel {
        /// Its name.
        level: String,
    },
    /// The next level of thinking.
    CycleThinkingLevel,
    /// The levels that the model has.
    GetAvailableThinkingLevels,
    /// How much of the queue for the end of a turn is taken at once.
    SetSteeringMode {
        /// One message, or all.
        mode: QueueDrainMode,
    },
    /// How much of the queue for the end of a run is taken at once.
    SetFollowUpMode {
        /// One message, or all.
        mode: QueueDrainMode,
    },
    /// Sums the context up.
    Compact {
        /// What the summary should focus on.
        #[serde(default)]
        custom_instructions: Option<String>,
    },
    /// Whether a context is summed up before it is full.
    SetAutoCompaction {
        /// Whether it is.
        enabled: bool,
    },
    /// Whether requests are sent again after passing failures.
    SetAutoRetry {
        /// Whether they are.
        enabled: bool,
    },
    /// Gives up a request that waits to be sent again.
    AbortRetry,
    /// Runs a line of a person in the shell.
    Bash {
        /// The line.
        command: String,
        /// Whether the model does not see it.
        #[serde(default)]
        exclude_from_context: Option<bool>,
    },
    /// Stops such lines.
    AbortBash,
    /// What the session holds and cost.
    GetSessionStats,
    /// Writes the session as a page.
    ExportHtml {
        /// The file.
        #[serde(default)]
        output_path: Option<String>,
    },
    /// Continues another session.
    SwitchSession {
        /// Its file, or what else names it.
        session_path: String,
    },
    /// Begins a session that continues from before a message of the user.
    Fork {
        /// The entry of the message.
        entry_id: String,
    },
    /// Copies the session and continues in the copy.
    Clone,
    /// The messages that a session can be forked from.
    GetForkMessages,
    /// The entries of the session.
    GetEntries {
        /// Only those after this one.
        #[serde(default)]
        since: Option<String>,
    },
    /// The entries as a tree.
    GetTree,
    /// The text of the last answer.
    GetLastAssistantText,
    /// Names the session.
    SetSessionName {
        /// The name.
        name: String,
    },
    /// The commands with a slash.
    GetCommands,
}

/// Every type of [`RpcCommand`], in the order of its variants.
pub const RPC_COMMANDS: [&str; 33] = [
    "prompt",
    "steer",
    "follow_up",
    "abort",
    "clear_queue",
    "new_session",
    "get_state",
    "get_messages",
    "set_model",
    "cycle_model",
    "get_available_models",
    "set_thinking_level",
    "cycle_thinking_level",
    "get_available_thinking_levels",
    "set_steering_mode",
    "set_follow_up_mode",
    "compact",
    "set_auto_compaction",
    "set_auto_retry",
    "abort_retry",
    "bash",
    "abort_bash",
    "get_session_stats",
    "export_html",
    "switch_session",
    "fork",
    "clone",
    "get_fork_messages",
    "get_entries",
    "get_tree",
    "get_last_assistant_text",
    "set_session_name",
    "get_commands",
];

/// Which queue a prompt waits in while the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamingBehavior {
    /// That for the end of the turn.
    Steer,
    /// That for the end of the run.
    FollowUp,
}

/// How much of a queue is taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueDrainMode {
    /// The first message.
    #[default]
    OneAtATime,
    /// All that wait.
    All,
}

impl QueueDrainMode {
    /// Its word on the wire and in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::OneAtATime => "one-at-a-time",
            Self::All => "all",
        }
    }
}

/// An image beside a message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcImage {
    /// Base64 of the file.
    pub data: String,
    /// Such as `image/png`.
    pub mime_type: String,
}

impl From<RpcImage> for Content {
    fn from(image: RpcImage) -> Self {
        Self::Image(ImageContent { data: image.data, mime_type: image.mime_type })
    }
}

/// A line that came in.
#[derive(Debug, Clone, PartialEq)]
pub enum RpcLine {
    /// A command, with what its response repeats.
    Command(CommandLabel, RpcCommand),
    /// An answer to a question.
    Answer(AskAnswer),
    /// An answer that cannot be read.
    BadAnswer(BadAnswer),
}

/// What a response repeats of its command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandLabel {
    /// The id that the program gave it, whatever that is.
    pub id: Option<Value>,
    /// Its type.
    pub command: Option<String>,
}

impl CommandLabel {
    /// The label of what could not be read as a command.
    pub fn unread() -> Self {
        Self { id: None, command: Some("parse".into()) }
    }

    /// The response to a command that was carried out, without a newline. `data` is JSON text.
    pub fn success(&self, data: Option<&str>) -> String {
        let mut line = self.begin(true);
        if let Some(data) = data {
            line.push_str(",\"data\":");
            line.push_str(data);
        }
        line.push('}');
        one_line(line)
    }

    /// The response to a command that was not, without a newline.
    pub fn failure(&self, error: &str) -> String {
        let mut line = self.begin(false);
        line.push_str(",\"error\":");
        line.push_str(&quoted(error));
        line.push('}');
        one_line(line)
    }

    /// The line with more of what a person's line in the shell printed.
    pub fn shell_update(&self, delta: &str) -> String {
        let id = self.id.as_ref().map(|id| format!("\"id\":{id},")).unwrap_or_default();
        one_line(format!("{{\"type\":\"bash_execution_update\",{id}\"delta\":{}}}", quoted(delta)))
    }

    fn begin(&self, success: bool) -> String {
        let id = self.id.as_ref().map(|id| format!("\"id\":{id},")).unwrap_or_default();
        let command =
            self.command.as_ref().map(|name| format!("\"command\":{},", quoted(name))).unwrap_or_default();
        format!("{{{id}\"type\":\"response\",{command}\"success\":{success}")
    }
}

/// A line that is no command.
#[derive(Debug, Clone, PartialEq)]
pub struct BadCommand {
    /// What its response repeats.
    pub label: CommandLabel,
    /// What is wrong with it, for people.
    pub error: String,
}

impl BadCommand {
    /// The line that says so, without a newline.
    pub fn line(&self) -> String {
        self.label.failure(&self.error)
    }
}

/// Reads a line, with or without its end. Bytes that are no text become U+FFFD, as do halves of surrogate pairs.
///
/// # Errors
/// [`BadCommand`] for what is no JSON object, of an unknown type, or lacks what its type needs.
pub fn read_line(line: &[u8]) -> Result<RpcLine, BadCommand> {
    let text = String::from_utf8_lossy(line);
    let unread = |error: String| BadCommand { label: CommandLabel::unread(), error };
    let value =
        Json::parse(&text).map_err(|error| unread(format!("Failed to parse command: {error}")))?.value();
    let Value::Object(members) = &value else {
        return Err(unread("Failed to parse command: a command is a JSON object".into()));
    };
    let id = members.get("id").cloned();
    let named = match members.get("type") {
        Some(Value::String(name)) => Some(name.clone()),
        _ => None,
    };
    match named.as_deref() {
        Some(ANSWER) => {
            return Ok(match answer_of(&value) {
                Ok(answer) => RpcLine::Answer(answer),
                Err(bad) => RpcLine::BadAnswer(bad),
            });
        }
        Some(name) if RPC_COMMANDS.contains(&name) => {}
        _ => {
            let name = match members.get("type") {
                Some(Value::String(name)) => name.clone(),
                Some(other) => other.to_string(),
                None => "undefined".into(),
            };
            let error = format!("Unknown command: {name}");
            return Err(BadCommand { label: CommandLabel { id, command: named }, error });
        }
    }
    let label = CommandLabel { id, command: named };
    // A member that is null is one that is not there.
    let members = members.iter().filter(|(_, value)| !value.is_null());
    let present = Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect());
    match serde_json::from_value(present) {
        Ok(command) => Ok(RpcLine::Command(label, command)),
        Err(error) => {
            let name = label.command.clone().unwrap_or_default();
            Err(BadCommand { label, error: format!("the command `{name}` is not valid: {error}") })
        }
    }
}
