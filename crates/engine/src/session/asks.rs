//! Questions of others than the machine: of a host, a hook, an extension. They live in memory, and their answers go to whoever
//! asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::mailbox;
use quipu_protocol::{Answer, AskId, AskKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Mail;
use crate::hooks::Asker;

/// Questions that can be open at once; of more, each is answered by its default.
pub(super) const OPEN: usize = 64;

/// A question that somebody wants to ask.
pub(super) struct Question {
    pub(super) kind: AskKind,
    pub(super) default: Answer,
    pub(super) wait: Option<Duration>,
    pub(super) reply: oneshot::Sender<Answer>,
}

pub(super) struct OpenQuestion {
    pub(super) default: Answer,
    pub(super) until: Option<Instant>,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// Puts questions to whoever is in front of a session.
pub(super) fn asker(mail: &mailbox::Sender<Mail>) -> Asker {
    // Weak: a session that nobody holds ends, whatever its hooks and policies want to ask.
    let asks = mail.downgrade();
    Arc::new(move |kind, default, wait| {
        let asks = asks.upgrade();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            asks?.send(Mail::Ask(Question { kind, default, wait, reply })).await.ok()?;
            answer.await.ok()
        })
    })
}

/// The questions that are open.
#[derive(Default)]
pub(super) struct Questions {
    pub(super) open: HashMap<AskId, OpenQuestion>,
    pub(super) counter: u64,
}

impl Questions {
    pub(super) fn is_open(&self, ask: &AskId) -> bool {
        self.open.contains_key(ask)
    }

    /// The next question whose time is up, or whose asker does not wait any more; `None` at once when none is open.
    pub(super) async fn over(&mut self) -> Option<AskId> {
        if self.open.is_empty() {
            return None;
        }
        let next = self.open.iter().filter_map(|(id, open)| Some((open.until?, id.clone()))).min();
        let due = async {
            match next {
                Some((until, id)) => {
                    tokio::time::sleep_until(until).await;
                    id
                }
                None => std::future::pending().await,
            }
        };
        let gone = std::future::poll_fn(|cx| {
            let mut open = self.open.iter_mut();
            let gone = open.find_map(|(id, open)| open.reply.poll_closed(cx).is_ready().then(|| id.clone()));
            gone.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        });
        tokio::select! {
            id = due => Some(id),
            id = gone => Some(id),
        }
    }
}
