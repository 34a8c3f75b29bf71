//! Saying something in another conversation: through its queue, as everybody does.

use std::time::Duration;

use quipu::protocol::{AuthorClass, Content, Origin, Provenance, UserInput};

use super::caller::Caller;
use crate::queue::{Authority, BusyMode, NewMessage, QueueOverride, QueuePolicy, QueueSettings, Route};
use crate::replies::SESSIONS_CHANNEL;
use crate::run::{RunError, RunRequest};

/// How many conversations a message may cause to speak, each the next.
pub(super) const HOPS: u32 = 5;
/// Bytes of a message.
const MESSAGE: usize = 64 << 10;
/// Seconds that an answer is waited for, where nothing is said, and at most.
const WAIT: f64 = 30.0;
const LONGEST: f64 = 120.0;
/// Bytes of an answer.
const ANSWER: usize = 40_000;

/// How many conversations a run has behind it that caused each other.
fn hops(caller: &Caller) -> u32 {
    let route = caller.group.as_ref().map(|group| &group.route);
    let thread =
        route.filter(|route| route.channel == SESSIONS_CHANNEL).and_then(|route| route.thread.as_deref());
    thread.and_then(|hops| hops.parse().ok()).unwrap_or(0)
}

/// `sessions_send`.
pub(super) async fn send(
    caller: &Caller,
    name: &str,
    text: String,
    wait: Option<f64>,
) -> Result<String, String> {
    let key = caller.other(name).await?;
    if key == caller.own {
        return Err("This is the conversation that you are in. Nothing was sent.".to_owned());
    }
    if text.trim().is_empty() || text.len() > MESSAGE {
        return Err(format!("A message has 1 to {MESSAGE} bytes. Nothing was sent."));
    }
    let hops = hops(caller).saturating_add(1);
    if hops > HOPS {
        return Err(format!(
            "{HOPS} conversations caused each other to speak, which is the limit. Nothing was sent; answer what you \
             were asked."
        ));
    }
    let mut input = UserInput::new(Vec::new()).from_source(
        Provenance::new(Origin::Model, AuthorClass::Agent).named(format!("session {}", caller.own)),
    );
    input.add(format!("[Message from the conversation {}]", caller.own), Provenance::quipu());
    input.content.push(Content::text(text));
    let is_owner = caller.group.as_ref().is_some_and(|group| group.authority.is_owner);
    let own = caller.own.to_string();
    let message = NewMessage {
        message_id: None,
        route: Route {
            channel: SESSIONS_CHANNEL.to_owned(),
            account: None,
            to: Some(own.clone()),
            thread: Some(hops.to_string()),
        },
        authority: Authority { sender: Some(format!("session:{own}")), is_owner, ..Authority::default() },
        from: Some(own),
        input,
        at: now(),
    };
    let none = QueueOverride::default();
    // It waits until the other one is done, and stops nothing.
    let policy = QueueSettings::default().resolve(SESSIONS_CHANNEL, &none, &none);
    let policy = QueuePolicy { mode: BusyMode::Followup, debounce: Duration::ZERO, ..policy };
    let request = RunRequest { key: key.clone(), message, policy };
    let run =
        caller.conversations.start(request).await.map_err(|error| format!("Nothing was sent: {error}."))?;
    let wait = wait.filter(|seconds| seconds.is_finite()).unwrap_or(WAIT).clamp(0.0, LONGEST);
    if wait == 0.0 {
        return Ok(format!("Sent to `{key}`. `sessions_history` shows the answer when it is there."));
    }
    match tokio::time::timeout(Duration::from_secs_f64(wait), run.outcome()).await {
        Ok(Ok(outcome)) if outcome.text.is_empty() => Ok(format!("Sent to `{key}`, which answered nothing.")),
        Ok(Ok(outcome)) => {
            let text = &outcome.text;
            let kept = &text[..text.floor_char_boundary(ANSWER)];
            let cut = if kept.len() < text.len() { " […]" } else { "" };
            Ok(format!("[{key}] {kept}{cut}"))
        }
        Ok(Err(error @ (RunError::Dropped(_) | RunError::Closed))) => {
            Ok(format!("Sent to `{key}`; there is no answer: {error}."))
        }
        Ok(Err(error)) => Err(format!("There is no answer of `{key}`: {error}.")),
        Err(_) => Ok(format!(
            "Sent to `{key}`, which has not answered within {wait} s. `sessions_history` shows the answer when it is there."
        )),
    }
}

/// The time, by the clock of the system.
fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
