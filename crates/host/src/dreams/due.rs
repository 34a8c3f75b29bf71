//! When the next dream is due.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quipu_protocol::UnixMs;

/// The hour of a dream whose schedule cannot be read.
const HOUR: i8 = 3;

/// The next time after `after` that a schedule names. One that names no time of every day is at three.
#[must_use]
pub fn next_dream(schedule: &str, after: UnixMs, zone: &TimeZone) -> UnixMs {
    let (hour, minute) = daily(schedule).unwrap_or((HOUR, 0));
    let next = || {
        let now = Timestamp::from_millisecond(after).ok()?.to_zoned(zone.clone());
        let today = now.date();
        for day in [today, today.tomorrow().ok()?, today.tomorrow().ok()?.tomorrow().ok()?] {
            // A time that a change of the clock leaves out is the one after it.
            let at = day.at(hour, minute, 0, 0).to_zoned(zone.clone()).ok()?.timestamp().as_millisecond();
            if at > after {
                return Some(at);
            }
        }
        None
    };
    next().unwrap_or_else(|| after.saturating_add(86_400_000))
}

/// Hour and minute of `M H * * *`.
fn daily(schedule: &str) -> Option<(i8, i8)> {
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    let [minute, hour, "*", "*", "*"] = parts[..] else { return None };
    let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
    ((0..24).contains(&hour) && (0..60).contains(&minute)).then_some((hour, minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_dream_is_at_its_time_of_day() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        let next = |schedule: &str, after: &str| {
            Timestamp::from_millisecond(next_dream(schedule, at(after), &zone)).unwrap().to_string()
        };
        assert_eq!(next("0 3 * * *", "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z");
        assert_eq!(next("30 14 * * *", "2026-11-27T10:00:00Z"), "2026-11-27T13:30:00Z");
        assert_eq!(next("0 3 * * *", "2026-11-28T02:00:00Z"), "2026-11-29T02:00:00Z");
        // The night in which there is no half past two.
        assert_eq!(next("30 2 * * *", "2026-03-28T10:00:00Z"), "2026-03-29T01:30:00Z");
        assert_eq!(next("nonsense", "2026-11-27T10:00:00Z"), "2026-11-28T02:00:00Z");
    }
}
