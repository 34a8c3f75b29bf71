//! What went wrong, and what to do about it.

use std::time::Duration;

use quipu_protocol::{Limit, ModelError, ModelErrorKind, Outcome, Trouble};

use super::text::{beside, dollars, duration};
use crate::{Line, Theme};

/// A model call that failed for good.
#[must_use]
pub fn model_error(error: &ModelError, columns: usize, theme: &Theme) -> Vec<Line> {
    let status = error.status.map_or(String::new(), |status| format!(" (HTTP {status})"));
    let mut lines = beside("! ", theme.error, &format!("{}{status}", error.message), theme.error, columns);
    let wait = error
        .retry_after
        .map_or(String::new(), |wait| format!(" The server asks to wait {}.", duration(wait)));
    let what = format!("{}{wait}", what_to_do(error.kind));
    if !what.is_empty() {
        lines.extend(beside("  ", theme.text, &what, theme.text, columns));
    }
    if let Some(id) = &error.request_id {
        lines.extend(beside("  ", theme.muted, &format!("request {id}"), theme.muted, columns));
    }
    lines
}

fn what_to_do(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::NoCredential => {
            "Give a key with /login, or choose a model on this machine with /model."
        }
        ModelErrorKind::Auth => {
            "The key was refused: give another with /login, or choose another model with /model."
        }
        ModelErrorKind::Quota => {
            "Nothing is left to spend there: add credit, or choose another model with /model."
        }
        ModelErrorKind::RateLimited => {
            "Too many requests: wait a little and send again, or choose another model with /model."
        }
        ModelErrorKind::Overloaded | ModelErrorKind::Server => {
            "The provider has trouble: send again in a while, or choose another model with /model."
        }
        ModelErrorKind::Network => "No connection: look at the network and the proxy, then send again.",
        ModelErrorKind::Timeout | ModelErrorKind::StreamEnded => "The answer broke off: send again to go on.",
        ModelErrorKind::Malformed => {
            "That was no answer of a model: look at the provider's address, and what stands between."
        }
        ModelErrorKind::TooLarge => "The answer was too large: ask for less at a time.",
        ModelErrorKind::ContextOverflow => {
            "The conversation is too long for the model: /compact sums it up, /tree goes back."
        }
        ModelErrorKind::InvalidRequest => {
            "The provider refuses what was sent: /tree goes back to before it, /model changes the model."
        }
        ModelErrorKind::UnknownModel => "The provider does not know the model: choose another with /model.",
        ModelErrorKind::Refused => {
            "The provider declined to answer: say it in other words, or go back with /tree."
        }
        ModelErrorKind::Aborted => "",
        ModelErrorKind::Departed => "The conversation left what the script or the recording knows.",
    }
}

/// A call that will be made again.
#[must_use]
pub fn retry(attempt: u32, delay: Duration, error: &ModelError, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = format!("{}. Attempt {attempt} in {}.", error.message.trim_end_matches('.'), duration(delay));
    beside("! ", theme.warning, &text, theme.warning, columns)
}

/// How a run ended; nothing when it was done.
#[must_use]
pub fn outcome(outcome: &Outcome, columns: usize, theme: &Theme) -> Vec<Line> {
    let (text, what) = match outcome {
        Outcome::Done => return Vec::new(),
        Outcome::Aborted => return beside("", theme.muted, "Stopped.", theme.muted, columns),
        Outcome::Failed(error) => return model_error(error, columns, theme),
        Outcome::Limit(Limit::Turns(turns)) => {
            (format!("Stopped at the limit of {turns} turns."), "Say something to go on.")
        }
        Outcome::Limit(Limit::Cost(cost)) => {
            (format!("Stopped at the limit of {} for a run.", dollars(*cost)), "Say something to go on.")
        }
        Outcome::Limit(Limit::Daily { spent, budget }) => (
            format!("Stopped: {} were spent today, the limit is {}.", dollars(*spent), dollars(*budget)),
            "Raise `budget.daily` in the settings, or go on tomorrow.",
        ),
        Outcome::StoreFailed(why) => (
            format!("A step could not be stored, and nothing after it happened: {why}"),
            "Make room or mend the store (`quipu doctor`), then say it again.",
        ),
    };
    let mut lines = beside("! ", theme.error, &text, theme.error, columns);
    lines.extend(beside("  ", theme.text, what, theme.text, columns));
    lines
}

/// Something that the user should know.
#[must_use]
pub fn trouble(trouble: &Trouble, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = match trouble {
        Trouble::Branched { session } => format!(
            "Another program went on with this session. What is said here from now on is a branch of it: {session}"
        ),
        Trouble::Interrupted { calls, model_call } => {
            let mut what: Vec<String> = calls.iter().map(|(name, _)| format!("`{name}`")).collect();
            if *model_call {
                what.push("an answer of the model".into());
            }
            format!(
                "The program ended while these were under way, and they are not run again: {}. Look at what they did.",
                what.join(", ")
            )
        }
        Trouble::Note(note) => note.clone(),
    };
    beside("! ", theme.warning, &text, theme.warning, columns)
}
