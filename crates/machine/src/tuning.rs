//! What can be set of a session at any time, and is not recorded: how queues are emptied, and whether contexts are compacted by
//! themselves.

use std::num::NonZeroU32;

use super::{Draft, Machine, PlanOp, Queue, QueuedInput};

/// How much of a queue is taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueDrain {
    /// The first message.
    #[default]
    First,
    /// All messages that wait.
    All,
}

/// How much of a conversation requests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnLimit {
    /// All that its context has.
    #[default]
    All,
    /// So many of the newest turns of the user. What is before them when a run begins is left out from there on, which is recorded.
    Newest(NonZeroU32),
}

/// Changes to a session that are not recorded; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveChanges {
    /// Whether the context is compacted before it is full, and where a model says that it is too long.
    pub auto_compaction: Option<bool>,
    /// How much of the messages for the end of a turn is taken there.
    pub steering: Option<QueueDrain>,
    /// How much of the messages for the end of a run is taken there.
    pub follow_up: Option<QueueDrain>,
    /// How many turns of the user requests have, from the next run on.
    pub turns: Option<TurnLimit>,
}

/// How much of each queue is taken at once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueDrains {
    steering: QueueDrain,
    follow_up: QueueDrain,
}

impl Machine {
    pub(super) fn tune(&mut self, tuning: LiveChanges) {
        self.compaction.enabled = tuning.auto_compaction.unwrap_or(self.compaction.enabled);
        self.drains.steering = tuning.steering.unwrap_or(self.drains.steering);
        self.drains.follow_up = tuning.follow_up.unwrap_or(self.drains.follow_up);
        self.turns = tuning.turns.unwrap_or(self.turns);
    }

    /// Takes the first waiting message of a queue, or all of them.
    pub(super) fn drain(&mut self, from: Queue) -> (Vec<Draft>, Vec<PlanOp>) {
        let (queue, drain) = match from {
            Queue::Steering => (&mut self.steering, self.drains.steering),
            Queue::FollowUp => (&mut self.follow_up, self.drains.follow_up),
        };
        let count = match drain {
            QueueDrain::First => queue.len().min(1),
            QueueDrain::All => queue.len(),
        };
        let items: Vec<QueuedInput> = queue.drain(..count).collect();
        let now = self.now;
        let drafts = items.iter().map(|item| {
            let draft = Draft::user_message(item.input.clone(), now);
            if item.is_lent { draft.from_inbox(&item.id) } else { draft }
        });
        let drafts = drafts.collect();
        let take = |item: &QueuedInput| PlanOp::Take { session: item.session.clone(), item: item.id.clone() };
        let ops = items.iter().map(take).collect();
        self.drained = items.into_iter().map(|item| (from, item)).collect();
        (drafts, ops)
    }

    /// What the commit under way would have taken is in its queue again, where it was.
    pub(super) fn put_drained_back(&mut self) {
        for (queue, item) in std::mem::take(&mut self.drained).into_iter().rev() {
            match queue {
                Queue::Steering => self.steering.insert(0, item),
                Queue::FollowUp => self.follow_up.insert(0, item),
            }
        }
    }
}
