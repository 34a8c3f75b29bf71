//! The clock of the machine.

use std::time::SystemTime;

use quipu_protocol::UnixMs;

/// Milliseconds since the epoch.
pub(crate) fn now() -> UnixMs {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .and_then(|time| i64::try_from(time.as_millis()).ok())
        .unwrap_or_default()
}
