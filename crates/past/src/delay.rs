//! A changed cover is served one turn later, so that the prefix of a request is the one that was sent before.

use serde::{Deserialize, Serialize};

/// What is served and what will be. Lines and floor belong into one value, so that no turn is left out before its summary is there.
///
/// Each turn serves what the turn before it was given: a change is seen exactly one turn later, and a cover that changes at each
/// turn is always one turn behind and never more. The state is part of what a session keeps; a restart changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverDelay<T> {
    served: Option<T>,
    /// What the last turn was given, if it is not what was served.
    pending: Option<T>,
}

impl<T> Default for CoverDelay<T> {
    fn default() -> Self {
        Self { served: None, pending: None }
    }
}

impl<T: PartialEq> CoverDelay<T> {
    /// The state that a session has kept: what its last turn served, and what the next one will, if that is something else.
    #[must_use]
    pub const fn resumed(served: T, pending: Option<T>) -> Self {
        Self { served: Some(served), pending }
    }

    /// What this turn serves, given the cover of this turn. The first turn serves what it is given.
    pub fn turn(&mut self, cover: T) -> &T {
        let before = self.pending.take().or_else(|| self.served.take());
        match before {
            None => self.served.insert(cover),
            Some(before) => {
                self.pending = (before != cover).then_some(cover);
                self.served.insert(before)
            }
        }
    }

    /// Serves the cover at once: where the prefix is new anyway (another model, a compaction), where the old one is too large for
    /// a smaller budget, and where something in it was forgotten or taken back.
    pub fn restart(&mut self, cover: T) -> &T {
        self.pending = None;
        self.served.insert(cover)
    }

    /// What the last turn served.
    pub fn served(&self) -> Option<&T> {
        self.served.as_ref()
    }

    /// What the next turn will serve, if that is something else.
    pub fn pending(&self) -> Option<&T> {
        self.pending.as_ref()
    }
}
