//! What happens to messages, said to those who read.

use std::sync::Arc;

use quipu_protocol::{ItemId, Limit, Outcome};
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
                    Outcome::Limit(limit) => ("limit", Some(limit_reached(limit))),
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

/// Which limit ended a run.
fn limit_reached(limit: &Limit) -> String {
    match limit {
        Limit::Account(limit) => limit.to_string(),
        Limit::Daily { spent, budget } => {
            format!(
                "${spent:.2} of the daily budget of ${budget:.2} are spent (`budget.daily` in the settings)"
            )
        }
        Limit::Cost(dollars) => format!("the run used ${dollars:.2}, which is its limit"),
        Limit::Turns(turns) => format!("the run had {turns} turns, which is its limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_said_with_their_setting() {
        let daily = limit_reached(&Limit::Daily { spent: 2.0, budget: 2.0 });
        assert!(daily.contains("$2.00") && daily.contains("`budget.daily`"), "{daily}");
        assert!(limit_reached(&Limit::Turns(7)).contains("7 turns"));
    }
}
