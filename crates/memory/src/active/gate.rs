//! What keeps active memory from costing time when it does not answer, or was asked just now.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Recollection;

/// Answers that are kept at most.
const KEPT: usize = 1_000;

/// Open for a while after so many timeouts in a row: nothing is tried then.
#[derive(Debug, Clone)]
pub struct Breaker {
    limit: u32,
    cooldown: Duration,
    timeouts: u32,
    last: Option<Instant>,
}

impl Breaker {
    /// Opens after `limit` timeouts in a row, for `cooldown` after the last.
    #[must_use]
    pub const fn new(limit: u32, cooldown: Duration) -> Self {
        Self { limit, cooldown, timeouts: 0, last: None }
    }

    /// Whether nothing is tried now.
    pub fn is_open(&mut self, now: Instant) -> bool {
        let Some(last) = self.last.filter(|_| self.timeouts >= self.limit) else { return false };
        if now.saturating_duration_since(last) < self.cooldown {
            return true;
        }
        self.answered();
        false
    }

    /// It did not answer in time.
    pub fn timed_out(&mut self, now: Instant) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.last = Some(now);
    }

    /// It answered.
    pub fn answered(&mut self) {
        (self.timeouts, self.last) = (0, None);
    }
}

/// What was found for a query, for a while. Also that nothing was.
#[derive(Debug, Clone)]
pub struct RecallCache {
    ttl: Duration,
    kept: HashMap<(String, String), (Instant, Recollection)>,
}

impl RecallCache {
    /// Keeps answers for `ttl`.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, kept: HashMap::new() }
    }

    /// What was found for a query in a session, where that is not too long ago.
    #[must_use]
    pub fn get(&self, session: &str, query: &str, now: Instant) -> Option<Recollection> {
        let (at, found) = self.kept.get(&(session.to_owned(), query.to_owned()))?;
        (now.saturating_duration_since(*at) < self.ttl).then(|| found.clone())
    }

    /// Keeps what was found. Of too many the oldest goes.
    pub fn put(&mut self, session: &str, query: &str, found: Recollection, now: Instant) {
        self.kept.retain(|_, (at, _)| now.saturating_duration_since(*at) < self.ttl);
        if self.kept.len() >= KEPT
            && let Some(oldest) = self.kept.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone())
        {
            self.kept.remove(&oldest);
        }
        self.kept.insert((session.to_owned(), query.to_owned()), (now, found));
    }

    /// How many answers are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
