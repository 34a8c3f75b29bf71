//! Questions that another program answers: Pi's dialogs, a line out and a line in.

use std::time::Duration;

use quipu_protocol::{Answer, Ask, AskId, AskKind, Json, Scope};
use serde_json::Value;

use crate::line::{Dialog, Response};

/// Bytes of a line from another program at most.
pub const ANSWER_LIMIT: usize = 1 << 20;

/// The type of the lines that answer.
pub(crate) const ANSWER: &str = "extension_ui_response";

/// What refuses a tool call.
const NO: &str = "no";

/// A line that answers a question, before it is held against that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskAnswer {
    /// The question.
    pub id: AskId,
    /// What it says.
    pub given: LineAnswer,
    /// Why not, for the model.
    pub reason: Option<String>,
}

/// What a line answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineAnswer {
    /// One of the options, or a text.
    Value(String),
    /// Yes or no.
    Confirmed(bool),
    /// Nothing.
    Cancelled,
}

impl AskAnswer {
    /// The answer to that question. `confirmed` stands for once or no where a tool call is asked about, and `cancelled` for
    /// no.
    ///
    /// # Errors
    /// [`BadAnswer`] when the question does not take it.
    pub fn for_ask(&self, ask: &Ask) -> Result<Answer, BadAnswer> {
        let deny = || Answer::Deny { reason: self.reason.clone() };
        let answer = match (&ask.kind, &self.given) {
            (AskKind::Permission(_), LineAnswer::Cancelled | LineAnswer::Confirmed(false)) => deny(),
            (AskKind::Permission(_), LineAnswer::Confirmed(true)) => Answer::once(),
            (AskKind::Permission(_), LineAnswer::Value(word)) if word == NO => deny(),
            (AskKind::Permission(permission), LineAnswer::Value(word)) => {
                match permission.scopes.iter().find(|scope| scope_word(**scope) == word) {
                    Some(scope) => Answer::Allow { scope: *scope },
                    None => return Err(self.refused()),
                }
            }
            (_, LineAnswer::Cancelled) => Answer::Cancel,
            (AskKind::Confirm { .. } | AskKind::OpenUrl { .. }, LineAnswer::Confirmed(yes)) => {
                Answer::Confirm { yes: *yes }
            }
            (AskKind::Choose { options, .. }, LineAnswer::Value(label)) => {
                match options.iter().find(|option| option.label == *label) {
                    Some(option) => Answer::Choose { option: option.id.clone() },
                    None => return Err(self.refused()),
                }
            }
            (AskKind::Text { .. } | AskKind::Edit { .. }, LineAnswer::Value(text)) => {
                Answer::Text { text: text.clone() }
            }
            (AskKind::Form { .. }, LineAnswer::Value(text)) => match Json::parse(text) {
                Ok(value) => Answer::Form { value },
                Err(error) => {
                    return Err(BadAnswer::to(&self.id, format!("the form is not valid JSON: {error}")));
                }
            },
            _ => return Err(self.refused()),
        };
        if ask.takes(&answer) { Ok(answer) } else { Err(self.refused()) }
    }

    fn refused(&self) -> BadAnswer {
        BadAnswer::to(&self.id, "that is not an option of this question; it is still open")
    }
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Once => "once",
        Scope::Session => "session",
        Scope::Always => "always",
        Scope::SessionRule => "sessionRule",
        Scope::ProjectRule => "projectRule",
        Scope::AlwaysRule => "alwaysRule",
    }
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

/// The line that puts a question, without a newline: one of Pi's dialogs. `timeout` is how long an answer counts. A form is
/// put as a text to edit, which must come back as JSON.
pub fn ask_line(ask: &Ask, timeout: Option<Duration>) -> String {
    let timeout = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    let line = Dialog { id: ask.id.as_str(), timeout, ..Dialog::default() };
    match &ask.kind {
        AskKind::Permission(asked) => {
            let rules = asked.rules.iter().map(|rule| format!("\n\nRule: {rule}")).collect::<String>();
            let title = format!("`{}`: {}\n\n{}{rules}", asked.tool, asked.question, asked.subject);
            let options = asked.scopes.iter().map(|scope| scope_word(*scope)).chain([NO]).collect();
            Dialog { method: "select", title: &title, options: Some(options), ..line }.write()
        }
        AskKind::Confirm { title, text } => {
            Dialog { method: "confirm", title, message: Some(text), ..line }.write()
        }
        AskKind::Choose { title, options } => {
            // Such as the plan that it is about.
            let details = options.iter().filter_map(|option| option.detail.as_ref());
            let details: String = details.map(|detail| format!("\n\n{detail}")).collect();
            let title = &format!("{title}{details}");
            let options = options.iter().map(|option| option.label.as_str()).collect();
            Dialog { method: "select", title, options: Some(options), ..line }.write()
        }
        AskKind::Text { title, placeholder, secret: _ } => {
            Dialog { method: "input", title, placeholder: Some(placeholder), ..line }.write()
        }
        AskKind::Edit { title, text } => {
            Dialog { method: "editor", title, prefill: Some(text), ..line }.write()
        }
        AskKind::Form { title, schema } => {
            let title = format!("{title}\n\n{schema}");
            Dialog { method: "editor", title: &title, prefill: Some("{}"), ..line }.write()
        }
        AskKind::OpenUrl { title, url } => {
            Dialog { method: "confirm", title, message: Some(url), ..line }.write()
        }
    }
}

/// Reads a line that answers a question, with or without its end.
///
/// `cancelled` counts before `value`, and that before `confirmed`. `reason` is ours, beside them.
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
    answer_of(&read)
}

/// The answer that a value gives.
pub(crate) fn answer_of(read: &Value) -> Result<AskAnswer, BadAnswer> {
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
    let given = match (text("value"), is("confirmed"), is("cancelled")) {
        (_, _, Some(true)) => LineAnswer::Cancelled,
        (Some(value), ..) => LineAnswer::Value(value.to_owned()),
        (None, Some(yes), _) => LineAnswer::Confirmed(yes),
        (None, None, _) => return bad(ANSWER, "an answer needs a value, or confirmed, or cancelled".into()),
    };
    let reason = text("reason").map(str::trim).filter(|reason| !reason.is_empty());
    Ok(AskAnswer { id: id.into(), given, reason: reason.map(str::to_owned) })
}
