//! What the user said and no model has heard yet.

use std::collections::VecDeque;

use quipu_protocol::{QueueMode, QueuedItem, UserInput};

/// What was said, until it is in a turn.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Said before the session was open, in order.
    pub(crate) waiting: Vec<(UserInput, String, QueueMode)>,
    /// Said, and not acknowledged yet.
    pub(crate) unsent: VecDeque<String>,
    /// What waits in the session: to steer, and for the end of the work.
    pub(crate) queue: (Vec<QueuedItem>, Vec<QueuedItem>),
}

impl Outbox {
    /// Whether something waits in the session.
    pub(crate) fn is_queued(&self) -> bool {
        !(self.queue.0.is_empty() && self.queue.1.is_empty())
    }

    /// The session has taken a text, or given it back.
    pub(crate) fn acknowledge(&mut self, sent: &str) {
        if let Some(at) = self.unsent.iter().position(|text| text == sent) {
            self.unsent.remove(at);
        }
    }

    /// All that is not in the store yet, as paragraphs.
    pub(crate) fn not_stored(&self) -> String {
        let texts = self.unsent.iter().chain(self.waiting.iter().map(|(_, text, _)| text));
        texts.map(|text| format!("{text}\n\n")).collect()
    }
}
