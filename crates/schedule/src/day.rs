//! Times of the day in a zone: when the last day of a kind began, and hours in which something may happen.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use crate::ScheduleError;
use crate::schedule::instant;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// The beginning of days that begin at an hour other than midnight.
#[derive(Debug, Clone, PartialEq)]
pub struct DayBoundary {
    time: Time,
    zone: TimeZone,
}

impl DayBoundary {
    /// At this hour (0 to 23) in the zone of this name.
    ///
    /// # Errors
    /// `Zone`; `Time` for an hour that no clock shows.
    pub fn of(hour: u8, zone: &str) -> Result<Self, ScheduleError> {
        let time = i8::try_from(hour).ok().and_then(|hour| Time::new(hour, 0, 0, 0).ok());
        let time = time.ok_or_else(|| ScheduleError::Time(format!("{hour}:00")))?;
        Ok(Self { time, zone: zone_named(zone)? })
    }

    /// The newest boundary that is not after `now`: when the clock showed the hour first, or went over it. `None` at the far ends of the
    /// calendar.
    #[must_use]
    pub fn last(&self, now: i64) -> Option<i64> {
        let at = Timestamp::from_millisecond(now).ok()?;
        // What the clock leaves out comes after it, so tomorrow's is never past; the day before yesterday's always is.
        let mut date = self.zone.to_datetime(at).date();
        for _ in 0..3 {
            if let Some(boundary) = instant(date.to_datetime(self.time), &self.zone).filter(|one| *one <= at)
            {
                return Some(boundary.as_millisecond());
            }
            date = date.yesterday().ok()?;
        }
        None
    }
}

/// Hours of the day, over midnight too.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveHours {
    start: u16,
    end: u16,
    zone: TimeZone,
}

impl ActiveHours {
    /// From one time of the day to another, such as `08:00` and `24:00`, in the zone of this name. Where both are the same, never.
    ///
    /// # Errors
    /// `Time`, `Zone`.
    pub fn of(start: &str, end: &str, zone: &str) -> Result<Self, ScheduleError> {
        Ok(Self { start: minute_of(start)?, end: minute_of(end)?, zone: zone_named(zone)? })
    }

    /// Whether the clock of the zone shows one of these hours.
    #[must_use]
    pub fn has(&self, now: i64) -> bool {
        let Ok(at) = Timestamp::from_millisecond(now) else { return false };
        let shown = self.zone.to_datetime(at);
        let part = |part: i8| u16::from(part.unsigned_abs());
        let minute = part(shown.hour()) * 60 + part(shown.minute());
        match (self.start, self.end) {
            (start, end) if start == end => false,
            (start, end) if start < end => (start..end).contains(&minute),
            (start, end) => minute >= start || minute < end,
        }
    }
}

fn zone_named(zone: &str) -> Result<TimeZone, ScheduleError> {
    TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.to_owned()))
}

/// The minute of the day; `24:00` is the end of it.
fn minute_of(text: &str) -> Result<u16, ScheduleError> {
    let wrong = || ScheduleError::Time(text.chars().take(40).collect());
    let number = |part: &str| match part.len() {
        1 | 2 if part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse::<u16>().map_err(|_| wrong()),
        _ => Err(wrong()),
    };
    let (hour, minute) = text.trim().split_once(':').ok_or_else(wrong)?;
    let (hour, minute) = (number(hour)?, number(minute)?);
    let all = hour * 60 + minute;
    if minute >= 60 || all > DAY { Err(wrong()) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn boundary_is_the_newest_one_that_passed() {
        let utc = DayBoundary::of(4, "UTC").unwrap();
        for (now, expect) in [
            ("2026-11-29T12:00:00Z", "2026-11-29T04:00:00Z"),
            ("2026-11-29T04:00:00Z", "2026-11-29T04:00:00Z"),
            ("2026-11-29T03:59:59.999Z", "2026-11-28T04:00:00Z"),
            ("2027-01-01T00:00:00Z", "2026-12-31T04:00:00Z"),
        ] {
            assert_eq!(utc.last(at(now)), Some(at(expect)), "{now}");
        }
        let far = DayBoundary::of(4, "Pacific/Auckland").unwrap();
        assert_eq!(far.last(at("2026-11-28T15:30:00Z")), Some(at("2026-11-28T15:00:00Z")));
        assert_eq!((utc.last(i64::MAX), utc.last(i64::MIN)), (None, None));
        assert!(matches!(DayBoundary::of(24, "UTC"), Err(ScheduleError::Time(_))));
        assert!(matches!(DayBoundary::of(4, "Mars/Base"), Err(ScheduleError::Zone(_))));
    }

    #[test]
    fn boundary_holds_when_clocks_change() {
        // 02:00 to 03:00 is left out in Berlin on 2026-03-29, and shown twice on 2026-10-25.
        let berlin = DayBoundary::of(2, "Europe/Berlin").unwrap();
        assert_eq!(
            berlin.last(at("2026-03-29T01:00:00Z")),
            Some(at("2026-03-29T01:00:00Z")),
            "the jump itself"
        );
        assert_eq!(berlin.last(at("2026-03-29T00:59:59Z")), Some(at("2026-03-28T01:00:00Z")));
        assert_eq!(
            berlin.last(at("2026-10-25T00:30:00Z")),
            Some(at("2026-10-25T00:00:00Z")),
            "the first time"
        );
        assert_eq!(
            berlin.last(at("2026-10-25T01:30:00Z")),
            Some(at("2026-10-25T00:00:00Z")),
            "not the second"
        );
    }

    #[test]
    fn hours_are_those_of_the_zone() {
        let day = ActiveHours::of("08:00", "22:30", "Europe/Berlin").unwrap();
        let found =
            ["06:59", "07:00", "21:29", "21:30"].map(|time| day.has(at(&format!("2026-11-29T{time}:00Z"))));
        assert_eq!(found, [false, true, true, false]);
        let night = ActiveHours::of("22:00", "6:00", "UTC").unwrap();
        let found =
            ["21:59", "22:00", "05:59", "06:00"].map(|time| night.has(at(&format!("2026-11-29T{time}:00Z"))));
        assert_eq!(found, [false, true, true, false]);
        let never = ActiveHours::of("09:00", "09:00", "UTC").unwrap();
        let always = ActiveHours::of("00:00", "24:00", "UTC").unwrap();
        assert_eq!(
            (never.has(at("2026-11-29T09:00:00Z")), always.has(at("2026-11-29T23:59:59Z"))),
            (false, true)
        );
        for wrong in ["", "8", "24:01", "8:60", "-1:00", "08:00:00", "x:y", "+8:00"] {
            assert!(matches!(ActiveHours::of(wrong, "9:00", "UTC"), Err(ScheduleError::Time(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn boundary_is_within_two_days(now in -4_000_000_000_000_i64..8_000_000_000_000, hour in 0_u8..24, zone in 0_usize..4) {
            let zone = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"][zone];
            let boundary = DayBoundary::of(hour, zone).unwrap();
            let last = boundary.last(now).unwrap();
            prop_assert!(last <= now && now - last <= 26 * 3_600_000, "{}", now - last);
            prop_assert_eq!(boundary.last(last), Some(last));
        }
    }
}
