//! What a connection is at: clients that leave an answer unread, and those that ask nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long a connection asks nothing before it makes room for another.
const IDLE: Duration = Duration::from_millis(100);

/// What a connection is at.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    /// Requests under way.
    open: AtomicUsize,
    /// Requests that were.
    served: AtomicUsize,
    /// Milliseconds from `start` to when the last one ended.
    idle_since: AtomicU64,
    /// That it is to make room for another connection.
    leave: Notify,
    /// Milliseconds from `start` to when a piece was given to the client that was not yet asked for more; 0 for none.
    waiting: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            open: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            leave: Notify::new(),
            waiting: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn begins(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer is given to its last byte, or given up.
    pub(crate) fn ends(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long nothing was asked; `None` where something is, or was a moment ago.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        if self.open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        Some(self.start.elapsed().saturating_sub(since)).filter(|idle| *idle >= IDLE)
    }

    /// Whether the client ever asked something.
    pub(crate) fn was_used(&self) -> bool {
        self.served.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn leave(&self) {
        self.leave.notify_one();
    }

    pub(crate) async fn is_left(&self) {
        self.leave.notified().await;
    }

    pub(crate) fn waits(&self) {
        self.waiting.store(self.now().max(1), Ordering::Relaxed);
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
