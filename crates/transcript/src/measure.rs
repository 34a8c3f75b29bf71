//! Estimates corrected by what was really counted.

use std::sync::Arc;

use quipu_protocol::Message;
use serde::{Deserialize, Serialize};

use crate::compact::{last_count, sent_tokens};

/// What an answer counted of a context, and what was estimated for the same: the context up to the answer, itself
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Tokens that were counted.
    pub counted: u64,
    /// Tokens that were estimated, at least 1.
    pub estimated: u64,
}

impl Measure {
    /// An estimate for more of the same, as it would be counted: between a quarter of it and four times it, since a
    /// count may be of something else as well.
    pub fn correct(self, tokens: u64) -> u64 {
        let corrected = u128::from(tokens) * u128::from(self.counted) / u128::from(self.estimated.max(1));
        let corrected = u64::try_from(corrected).unwrap_or(u64::MAX);
        corrected.clamp(tokens / 4, tokens.saturating_mul(4))
    }
}

/// What the last answer of a context counted that is not one of the first `old` messages, and the tokens that are
/// estimated for what came after it. `all` are the estimated tokens of the whole context, with what stands before the
/// messages. `None` when nothing was counted, and when the count is less than a quarter of the estimate: then it is
/// none of all that was sent, for some leave out what was in their cache.
pub fn measure(messages: &[Arc<Message>], old: usize, all: u64) -> Option<(Measure, u64)> {
    let (at, counted) = last_count(messages, old)?;
    let after = messages[at + 1..].iter().fold(0_u64, |sum, one| sum.saturating_add(sent_tokens(one)));
    let estimated = all.saturating_sub(after).max(1);
    (counted >= estimated / 4).then_some((Measure { counted, estimated }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_corrected_within_bounds() {
        let correct = |counted, estimated, tokens| Measure { counted, estimated }.correct(tokens);
        assert_eq!(correct(150, 100, 1_000), 1_500);
        assert_eq!(correct(1, 100, 1_000), 250);
        assert_eq!(correct(u64::MAX, 1, 1_000), 4_000);
        assert_eq!(correct(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(correct(0, 0, 0), 0);
    }
}
