//! What happens to messages, said to those who read.

use std::sync::Arc;

use quipu_protocol::{ItemId, Outcome};
use quipu_runtime::{Run, RunEvent, SessionKey};
use serde_json::{Value, json};

use super::mailboxes::{Mailboxes, RunNews};

/// Says what becomes of a message to those who read.
pub(crate) async fn follow(mailboxes: Mailboxes, conversation: SessionKey, mut run: Run) {
    let id = run.id.clone();
    let tell = |messages: &[ItemId], status: &str, more: Value| {
        let mut event =
            json!({ "conversation": conversation.to_string(), "messages": messages, "status": status });
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        let news = RunNews { conversation: conversation.clone(), event: Arc::new(event) };
        mailboxes.tell(news);
    };
    let own = std::slice::from_ref(&id);
    while let Some(event) = run.next().await {
        match event {
            RunEvent::Started { session, messages, .. } if messages.first() == Some(&id) => {
                tell(&messages, "started", json!({ "session": session }));
            }
            RunEvent::Failing(why) => tell(own, "failing", json!({ "reason": why })),
            RunEvent::Dropped(why) => tell(own, "dropped", json!({ "reason": why.text() })),
            RunEvent::Ended(outcome) => {
                let (word, reason) = match &outcome.outcome {
                    _ if outcome.timed_out => ("timedOut", None),
                    Outcome::Done => ("done", None),
                    Outcome::Aborted => ("aborted", None),
                    Outcome::Limit(limit) => ("limit", Some(limit.to_string())),
                    Outcome::Failed(error) => ("failed", Some(error.message.clone())),
                    Outcome::StoreFailed(why) => ("storeFailed", Some(why.clone())),
                };
                let usage = &outcome.usage;
                tell(own, "ended", json!({ "outcome": word, "reason": reason, "usage": usage }));
            }
            RunEvent::Started { .. } | RunEvent::Session(_) => {}
        }
    }
}
