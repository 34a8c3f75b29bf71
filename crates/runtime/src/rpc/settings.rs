//! What can be set of the open session and of those after it.

use quipu::{LiveChanges, QueueDrain, Session};
use quipu_host::{Home, OpenRequest};
use quipu_rpc::QueueDrainMode;

/// What holds for the session that is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveSettings {
    pub(super) steering: QueueDrainMode,
    pub(super) follow_up: QueueDrainMode,
    pub(super) auto_compaction: bool,
    pub(super) auto_retry: bool,
}

impl LiveSettings {
    /// What the user's files say.
    pub(super) fn of(home: &Home, request: &OpenRequest) -> Self {
        let config = home.config_in(&request.here);
        let mode = |drain| match drain {
            QueueDrain::First => QueueDrainMode::OneAtATime,
            QueueDrain::All => QueueDrainMode::All,
        };
        Self {
            steering: mode(config.steering),
            follow_up: mode(config.follow_up),
            auto_compaction: config.compaction.enabled,
            auto_retry: true,
        }
    }

    /// Makes a session work by it.
    pub(super) async fn apply(self, session: &Session) {
        let drain = |mode| match mode {
            QueueDrainMode::OneAtATime => QueueDrain::First,
            QueueDrainMode::All => QueueDrain::All,
        };
        session.set_auto_retry(self.auto_retry);
        let tuning = LiveChanges {
            auto_compaction: Some(self.auto_compaction),
            steering: Some(drain(self.steering)),
            follow_up: Some(drain(self.follow_up)),
            turns: None,
        };
        // One that is closed has nothing to change.
        drop(session.tune(tuning).await);
    }
}
