//! How runs end.

use std::time::Duration;

use quipu::protocol::{ItemId, ModelError, ModelErrorKind, Outcome, SessionId, Usage};

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The session.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// The text of the last answer; of an aborted one what there was.
    pub text: String,
    /// Tokens and cost of all answers of the run.
    pub usage: Usage,
    /// Those of the last answer alone, by which the context is measured.
    pub last_usage: Option<Usage>,
    /// How long it took.
    pub duration: Duration,
    /// It was stopped because it made no progress.
    pub timed_out: bool,
}

impl RunOutcome {
    /// That of a run of which only this is known.
    pub(super) fn unseen(session: SessionId, outcome: Outcome) -> Self {
        Self {
            session,
            outcome,
            text: String::new(),
            usage: Usage::default(),
            last_usage: None,
            duration: Duration::ZERO,
            timed_out: false,
        }
    }

    /// That of a message that a hook blocked.
    pub(super) fn blocked(session: SessionId, why: String) -> Self {
        let (kind, levels) = (ModelErrorKind::InvalidRequest, Vec::new());
        let error =
            ModelError { kind, message: why, status: None, request_id: None, retry_after: None, levels };
        Self::unseen(session, Outcome::Failed(error))
    }
}

/// A run that ended, with all messages that it answers.
pub(super) struct EndedRun {
    pub(super) outcome: RunOutcome,
    pub(super) members: Vec<ItemId>,
}
