//! What a session keeps of the past that stands before its conversation.

use quipu_protocol::{EpochOpening, UnixMs};
use serde::{Deserialize, Serialize};

use crate::{PastScope, ServedCover};

/// The source of such openings, as records name it.
pub const PAST_SOURCE: &str = "past";

/// What a session keeps of its past: stored with the text, so that it is the same when the session is opened later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpeningState {
    /// Whose past it is.
    pub scope: PastScope,
    /// What ends later is no past.
    pub boundary: UnixMs,
    /// What was asked by then: chunks with its words are shown in more detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What it may have cost when it was chosen; earlier records do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// What is served, without its text.
    pub served: ServedCover,
    /// What the next run will serve, if that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<ServedCover>,
    /// Tokens of past and conversation when another cover was chosen last. The next one has to be worth what is read anew for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed_at: u64,
}

/// For serialization.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl OpeningState {
    /// The state in a record, with the text that is served; `None` where it is of another source, or cannot be read.
    #[must_use]
    pub fn of(opening: &EpochOpening) -> Option<Self> {
        if opening.source != PAST_SOURCE {
            return None;
        }
        let mut state: Self = serde_json::from_str(opening.state.as_deref()?).ok()?;
        state.served.text.clone_from(&opening.text);
        Some(state)
    }

    /// What waits, or what is served where nothing does.
    #[must_use]
    pub fn next(&self) -> &ServedCover {
        self.pending.as_ref().unwrap_or(&self.served)
    }
}
