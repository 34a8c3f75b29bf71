//! Questions of others than the machine: of a host, a hook, an extension. They live in memory, and their answers go to whoever
//! asked.

use std::collections::HashMap;
use std::time::Duration;

use quipu_protocol::{Answer, AskId, AskKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

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

    /// The next question whose time is up; `None` at once when none has a deadline.
    pub(super) async fn overdue(&self) -> Option<AskId> {
        let next = self.open.iter().filter_map(|(id, open)| Some((open.until?, id))).min()?;
        tokio::time::sleep_until(next.0).await;
        Some(next.1.clone())
    }
}
