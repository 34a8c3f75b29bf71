//! When dreams are due.

use std::time::Duration;

use jiff::tz::TimeZone;
use quipu_schedule::{Recurrence, Schedule};

/// The schedule in place of one that cannot be read.
const DEFAULT: &str = "0 3 * * *";

/// The times of dreams: those that a cron expression names, in a zone; of the default where it cannot be read, or never fires.
#[must_use]
pub fn dream_recurrence(expression: &str, zone: &TimeZone) -> Recurrence {
    let zone = zone.iana_name().unwrap_or("UTC");
    let of = |expression: &str| Recurrence::Cron { expression: expression.to_owned(), zone: zone.to_owned() };
    let named = of(expression);
    match Schedule::of(&named, Duration::ZERO, "") {
        Ok(_) => named,
        Err(_) => of(DEFAULT),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn dreams_are_due_at_their_time_of_day() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let next = |schedule: &str, after: &str| {
            let after = after.parse::<Timestamp>().unwrap().as_millisecond();
            let schedule = Schedule::of(&dream_recurrence(schedule, &zone), Duration::ZERO, "").unwrap();
            Timestamp::from_millisecond(schedule.next_after(after).unwrap()).unwrap().to_string()
        };
        assert_eq!(next("0 3 * * *", "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z");
        assert_eq!(next("30 14 * * 1", "2026-11-27T10:00:00Z"), "2026-11-30T13:30:00Z");
        for bad in ["nonsense", "0 3 31 2 *"] {
            assert_eq!(next(bad, "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z", "{bad}");
        }
    }
}
