//! What went wrong, and what to do about it.

use std::time::Duration;

use quipu_protocol::{Limit, ModelError, ModelErrorKind, Notice, Outcome};

use super::text::{dollars, duration, hanging_lines};
use crate::{Line, Theme};

/// A model call that failed for good.
#[must_use]
pub fn model_error(error: &ModelError, columns: usize, theme: &Theme) -> Vec<Line> {
    let status = error.status.map(|status| status.to_string());
    let status = status.filter(|status| !error.message.contains(status.as_str()));
    let status = status.map_or(String::new(), |status| format!(" (HTTP {status})"));
    let message = format!("{}{status}", error.message);
    let mut lines = hanging_lines(theme.mark("! ", "Error: "), theme.error, &message, theme.error, columns);
    let wait = error
        .retry_after
        .map_or(String::new(), |wait| format!(" The server asks to wait {}.", duration(wait)));
    let what = format!("{}{wait}", what_to_do(error.kind));
    if !what.is_empty() {
        lines.extend(hanging_lines("  ", theme.text, &what, theme.text, columns));
    }
    if let Some(id) = &error.request_id {
        lines.extend(hanging_lines("  ", theme.muted, &format!("request {id}"), theme.muted, columns));
    }
    lines
}

/// What can be done here; what to look at is in the message itself.
fn what_to_do(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::NoCredential => "/login adds a login or a key; /model chooses another model.",
        ModelErrorKind::Auth | ModelErrorKind::AuthRevoked => {
            "/login replaces the key; /model chooses another model."
        }
        ModelErrorKind::Quota | ModelErrorKind::UsageLimit | ModelErrorKind::UnknownModel => {
            "/model chooses another model."
        }
        ModelErrorKind::RateLimited | ModelErrorKind::Overloaded | ModelErrorKind::Server => {
            "Your conversation is saved: write \"go on\" in a while, or choose another model with /model."
        }
        ModelErrorKind::Network => "Your conversation is saved: write \"go on\" when the network is back.",
        ModelErrorKind::Timeout | ModelErrorKind::StreamEnded => {
            "Your conversation is saved: write \"go on\"."
        }
        ModelErrorKind::Malformed => "Check `baseUrl` of the provider in models.json.",
        ModelErrorKind::TooLarge => "Ask for less at once.",
        ModelErrorKind::ContextOverflow => "/compact summarizes the conversation; /tree goes back in it.",
        ModelErrorKind::InvalidRequest => {
            "/tree goes back to before the rejected message; /model chooses another model."
        }
        ModelErrorKind::ThinkingLevel => "/thinking chooses another level; /model chooses another model.",
        ModelErrorKind::Refused => "Rephrase it, or go back with /tree.",
        ModelErrorKind::Aborted => "",
        ModelErrorKind::ReplayMismatch => "The conversation differs from the script or the recording.",
    }
}

/// A call that will be made again.
#[must_use]
pub fn retry(attempt: u32, delay: Duration, error: &ModelError, columns: usize, theme: &Theme) -> Vec<Line> {
    let seconds = Duration::from_secs(delay.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX));
    let when = match seconds.as_secs() {
        0 => "now".to_owned(),
        few @ 1..10 => format!("in {few}s"),
        _ => format!("in {}", duration(seconds)),
    };
    let text = format!("{}. Attempt {attempt} {when}.", error.message.trim_end_matches('.'));
    hanging_lines(theme.mark("! ", "Warning: "), theme.warning, &text, theme.warning, columns)
}

/// How a run ended; nothing when it was done.
#[must_use]
pub fn outcome(outcome: &Outcome, columns: usize, theme: &Theme) -> Vec<Line> {
    let (text, what) = match outcome {
        Outcome::Done => return Vec::new(),
        Outcome::Aborted => return hanging_lines("", theme.muted, "Stopped.", theme.muted, columns),
        Outcome::Failed(error) => return model_error(error, columns, theme),
        Outcome::Limit(Limit::Turns(turns)) => {
            (format!("Stopped at the limit of {turns} turns."), "Write a message to continue.")
        }
        Outcome::Limit(Limit::Cost(cost)) => {
            (format!("Stopped at the cost limit of {}.", dollars(*cost)), "Write a message to continue.")
        }
        Outcome::Limit(Limit::Daily { spent, budget }) => (
            format!("Stopped: spent {} today, the limit is {}.", dollars(*spent), dollars(*budget)),
            "Raise `budget.daily` in the settings, or continue tomorrow.",
        ),
        Outcome::Limit(Limit::Account(limit)) => {
            (format!("Stopped: {limit}."), "Raise the budget, or continue tomorrow.")
        }
        Outcome::StoreFailed(why) => (
            format!("A step could not be saved, so the run stopped: {why}"),
            "Free disk space or repair the store, then send it again.",
        ),
    };
    let mut lines = hanging_lines(theme.mark("! ", "Error: "), theme.error, &text, theme.error, columns);
    lines.extend(hanging_lines("  ", theme.text, what, theme.text, columns));
    lines
}

/// Something that the user should know.
#[must_use]
pub fn notice(notice: &Notice, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = match notice {
        Notice::Branched { session } => format!(
            "Another program continued this session. Your next messages go to a branch of it: {session}"
        ),
        Notice::Interrupted { calls, model_call } => {
            let calls: Vec<String> = calls.iter().map(|(name, _)| format!("`{name}`")).collect();
            let reply = "The process that waited for a reply exited or stopped responding. The reply was lost and is not retried.";
            let tools = format!(
                "The process that ran these calls exited or stopped responding: {}. They are not run again; check what they did.",
                calls.join(", ")
            );
            match (calls.is_empty(), *model_call) {
                (true, _) => reply.to_owned(),
                (false, false) => tools,
                (false, true) => format!("{tools} {reply}"),
            }
        }
        Notice::Note { text: note } => note.clone(),
    };
    hanging_lines(theme.mark("! ", "Warning: "), theme.warning, &text, theme.warning, columns)
}
