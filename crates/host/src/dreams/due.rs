//! When the next dream is due.

use std::time::Duration;

use jiff::tz::TimeZone;
use quipu_protocol::UnixMs;
use quipu_schedule::{Recurrence, Schedule};

/// The schedule in place of one that cannot be read.
const DEFAULT: &str = "0 3 * * *";

/// The next time after `after` that a cron expression names, in a zone; by the default where it cannot be read, or never fires.
#[must_use]
pub fn next_dream(schedule: &str, after: UnixMs, zone: &TimeZone) -> UnixMs {
    let zone = zone.iana_name().unwrap_or("UTC");
    let next = |expression: &str| {
        let recurrence = Recurrence::Cron { expression: expression.to_owned(), zone: zone.to_owned() };
        Schedule::of(&recurrence, Duration::ZERO, "dream").ok()?.next_after(after)
    };
    next(schedule).or_else(|| next(DEFAULT)).unwrap_or_else(|| after.saturating_add(86_400_000))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn next_dream_is_at_its_time_of_day() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        let next = |schedule: &str, after: &str| {
            Timestamp::from_millisecond(next_dream(schedule, at(after), &zone)).unwrap().to_string()
        };
        assert_eq!(next("0 3 * * *", "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z");
        assert_eq!(next("30 14 * * 1", "2026-11-27T10:00:00Z"), "2026-11-30T13:30:00Z");
        for bad in ["nonsense", "0 3 31 2 *"] {
            assert_eq!(next(bad, "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z", "{bad}");
        }
    }
}
