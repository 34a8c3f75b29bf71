//! Time and fresh ids, in one place so that tests can hold them still.

use quipu_protocol::UnixMs;

/// Where the engine reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the epoch.
    fn now(&self) -> UnixMs;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
    }
}

/// A UUIDv7.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
