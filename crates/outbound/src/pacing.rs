//! Pauses between messages, as a person would make them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How long a pause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PacingOptions {
    /// Milliseconds at least.
    pub min_ms: u64,
    /// Milliseconds at most.
    pub max_ms: u64,
}

impl PacingOptions {
    /// As a person writes: 0.8 to 2.5 seconds.
    pub fn natural() -> Self {
        Self { min_ms: 800, max_ms: 2500 }
    }
}

/// Lets items through one after the other. An item that is not paced waits for those before it, and for no pause of its own.
#[derive(Debug, Clone)]
pub struct Pacer<T> {
    options: Option<PacingOptions>,
    state: u64,
    queue: VecDeque<(T, bool)>,
    /// When the next paced item may leave; none before the first.
    free_at: Option<u64>,
}

impl<T> Pacer<T> {
    /// Without options, nothing waits. The lengths of the pauses follow from `seed`.
    pub fn new(options: Option<PacingOptions>, seed: u64) -> Self {
        Self { options, state: seed, queue: VecDeque::new(), free_at: None }
    }

    /// Adds an item.
    pub fn push(&mut self, item: T, paced: bool) {
        self.queue.push_back((item, paced));
    }

    /// The items that may leave.
    pub fn take(&mut self, at: u64) -> Vec<T> {
        let mut ready = Vec::new();
        while let Some((_, paced)) = self.queue.front() {
            if *paced && let Some(options) = self.options {
                if self.free_at.is_some_and(|free| free > at) {
                    break;
                }
                self.free_at = Some(at.saturating_add(self.pause(options)));
            }
            ready.extend(self.queue.pop_front().map(|(item, _)| item));
        }
        ready
    }

    /// When the next item may leave.
    pub fn deadline(&self) -> Option<u64> {
        self.queue.front()?;
        Some(self.free_at.unwrap_or(0))
    }

    /// Drops the items that have not left and are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.queue.retain(|(item, _)| keep(item));
    }

    /// A number between the two ends (splitmix64).
    fn pause(&mut self, options: PacingOptions) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let most = options.max_ms.max(options.min_ms);
        options.min_ms + mixed % (most - options.min_ms).saturating_add(1).max(1)
    }
}
