//! Locks of many things, without one for each.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use tokio::sync::{Mutex, MutexGuard};

const LOCKS: usize = 64;

/// Things of equal hash share a lock.
pub(super) struct StripedLocks([Mutex<()>; LOCKS]);

/// Held while one thing is worked with.
pub(super) struct StripedGuard<'a> {
    _guard: MutexGuard<'a, ()>,
}

impl Default for StripedLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl StripedLocks {
    pub(super) async fn lock(&self, thing: &impl Hash) -> StripedGuard<'_> {
        let mut hasher = DefaultHasher::new();
        thing.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % u64::try_from(LOCKS).unwrap_or(1)).unwrap_or(0);
        StripedGuard { _guard: self.0[at].lock().await }
    }
}
