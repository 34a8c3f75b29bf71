//! Times and lengths of time as people write them.

use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::ScheduleError;

/// Units, and their seconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1), ("ms", 0)];

/// A length of time: `90s`, `30m`, `2h`, `1d`, or several such as `1h30m`.
///
/// # Errors
/// `Span`.
pub fn parse_span(text: &str) -> Result<Duration, ScheduleError> {
    let wrong = || ScheduleError::Span(text.chars().take(40).collect());
    let mut rest = text.trim();
    let mut all = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(wrong)?;
        rest = &rest[letters..];
        let span = match unit.1 {
            0 => Duration::from_millis(number),
            seconds => Duration::from_secs(number.checked_mul(seconds).ok_or_else(wrong)?),
        };
        all = all.checked_add(span).ok_or_else(wrong)?;
    }
    Ok(all)
}

/// As [`parse_span`] reads it.
#[must_use]
pub fn spell_span(span: Duration) -> String {
    let mut left = span.as_secs();
    let mut text = String::new();
    for (name, seconds) in UNITS.into_iter().filter(|(_, seconds)| *seconds > 0) {
        if left >= seconds {
            text.push_str(&format!("{}{name}", left / seconds));
            left %= seconds;
        }
    }
    if text.is_empty() { format!("{}ms", span.as_millis()) } else { text }
}

/// A time in milliseconds: with its offset, or as the clocks of `zone` show it; a time of the day alone is the next one after `now`.
///
/// # Errors
/// `Time`.
pub fn parse_time(text: &str, zone: &TimeZone, now: i64) -> Result<i64, ScheduleError> {
    let text = text.trim();
    let wrong = || ScheduleError::Time(text.chars().take(60).collect());
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    if let Ok(at) = text.parse::<Zoned>() {
        return Ok(at.timestamp().as_millisecond());
    }
    let in_zone = |shown: DateTime| shown.to_zoned(zone.clone()).map(|at| at.timestamp().as_millisecond());
    if let Ok(shown) = text.replacen(' ', "T", 1).parse::<DateTime>()
        && text.contains(':')
    {
        return in_zone(shown).map_err(|_| wrong());
    }
    let time: Time = text.parse().map_err(|_| wrong())?;
    let now_shown = zone.to_datetime(Timestamp::from_millisecond(now).map_err(|_| wrong())?);
    let today = in_zone(now_shown.date().to_datetime(time)).map_err(|_| wrong())?;
    if today > now {
        return Ok(today);
    }
    let tomorrow = now_shown.date().tomorrow().map_err(|_| wrong())?;
    in_zone(tomorrow.to_datetime(time)).map_err(|_| wrong())
}
