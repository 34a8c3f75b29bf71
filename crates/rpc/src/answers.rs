//! Questions that another program answers: Pi's dialogs, a line out and a line in.

use std::time::Duration;

use quipu_protocol::{Ask, AskId};
use serde::Serialize;
use serde_json::Value;

use crate::line::{Line, Response};

/// Bytes of a line from another program at most.
pub const ANSWER_LIMIT: usize = 1 << 20;

/// The type of the lines that answer.
const ANSWER: &str = "extension_ui_response";

/// What may be answered to a question of permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// This call runs.
    Once,
    /// This and its like run for the rest of the session.
    Session,
    /// This and its like run from now on.
    Always,
    /// It does not run.
    No,
}

impl Choice {
    fn named(word: &str) -> Option<Self> {
        match word {
            "once" => Some(Self::Once),
            "session" => Some(Self::Session),
            "always" => Some(Self::Always),
            "no" => Some(Self::No),
            _ => None,
        }
    }
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskAnswer {
    /// The question.
    pub id: AskId,
    /// The answer.
    pub choice: Choice,
    /// Why not, for the model.
    pub reason: Option<String>,
}

/// A line that answers nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAnswer {
    /// What the line names, when it names anything.
    pub id: Option<String>,
    /// Its type; `parse` for a line that could not be read.
    pub command: String,
    /// What is wrong with it, for people.
    pub error: String,
}

impl BadAnswer {
    /// An answer that was understood and cannot be taken.
    pub fn to(id: &AskId, error: impl Into<String>) -> Self {
        Self { id: Some(id.to_string()), command: ANSWER.into(), error: error.into() }
    }

    /// The line that says so, without a newline.
    pub fn line(&self) -> String {
        let Self { id, command, error } = self;
        Response { id: id.as_deref(), kind: "response", command, success: false, error }.write()
    }
}

/// The line that puts a question, without a newline: Pi's `select`. `timeout` is how long an answer counts.
pub fn ask_line(ask: &Ask, choices: &[Choice], timeout: Duration) -> String {
    let title = format!("May `{}` {}?\n\n{}", ask.tool, ask.question, ask.subject);
    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    Line::ExtensionUiRequest {
        id: ask.id.as_str(),
        method: "select",
        title: &title,
        options: choices,
        timeout,
    }
    .write()
}

/// Reads a line that answers a question, with or without its end.
///
/// `value` is the name of a [`Choice`]; `confirmed` true or false stands for once or no, `cancelled` for no. `reason` is
/// ours, beside them.
///
/// # Errors
/// [`BadAnswer`] for a line that is longer than [`ANSWER_LIMIT`], no JSON, of another type, or without an answer.
pub fn read_answer(line: &[u8]) -> Result<AskAnswer, BadAnswer> {
    let unread = |error: String| BadAnswer { id: None, command: "parse".into(), error };
    if line.len() > ANSWER_LIMIT {
        return Err(unread(format!("Failed to parse command: the line is longer than {ANSWER_LIMIT} bytes")));
    }
    let read: Value =
        serde_json::from_slice(line).map_err(|error| unread(format!("Failed to parse command: {error}")))?;
    let text = |name: &str| read.get(name).and_then(Value::as_str);
    let id = text("id");
    let bad = |command: &str, error: String| {
        Err(BadAnswer { id: id.map(str::to_owned), command: command.into(), error })
    };
    match text("type") {
        Some(ANSWER) => {}
        other => {
            return bad(other.unwrap_or_default(), format!("Unknown command: {}", other.unwrap_or_default()));
        }
    }
    let Some(id) = id else { return bad(ANSWER, "an answer needs the id of its question".into()) };
    let is = |name: &str| read.get(name).and_then(Value::as_bool);
    let choice = match (text("value"), is("confirmed"), is("cancelled")) {
        (_, _, Some(true)) | (None, Some(false), _) => Some(Choice::No),
        (None, Some(true), _) => Some(Choice::Once),
        (Some(word), ..) => Choice::named(word),
        (None, None, _) => None,
    };
    let Some(choice) = choice else {
        return bad(ANSWER, "the answer is none of once, session, always and no".into());
    };
    let reason = text("reason").map(str::trim).filter(|reason| !reason.is_empty());
    Ok(AskAnswer { id: id.into(), choice, reason: reason.map(str::to_owned) })
}
