//! Clients that leave an answer unread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether a connection waits for its client to read.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    /// Milliseconds from `start` to when a piece was given to the client that was not yet asked for more; 0 for none.
    waiting: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), waiting: AtomicU64::new(0) }
    }

    pub(crate) fn waits(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.waiting.store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) {
        self.waiting.store(0, Ordering::Relaxed);
    }

    pub(crate) fn unread_for(&self) -> Duration {
        match self.waiting.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.start.elapsed().saturating_sub(Duration::from_millis(since)),
        }
    }
}
