//! Times as people write and read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quipu_protocol::UnixMs;

/// What somebody means by a time: a date (the beginning of the user's day), a time with its zone, or how long before
/// `now`, such as `30m`, `12h`, `3d` or `2w`.
pub fn instant(text: &str, now: UnixMs) -> Option<UnixMs> {
    let unit = |unit: char| match unit {
        'm' => Some(60_000),
        'h' => Some(3_600_000),
        'd' => Some(86_400_000),
        'w' => Some(604_800_000),
        _ => None,
    };
    if let Some((last, unit)) = text.chars().last().and_then(|last| Some((last, unit(last)?)))
        && let Ok(count) = text[..text.len() - last.len_utf8()].parse::<u32>()
    {
        return Some(now.saturating_sub(i64::from(count).saturating_mul(unit)));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_millisecond());
    }
    let date = text.parse::<jiff::civil::Date>().ok()?;
    Some(date.to_zoned(TimeZone::system()).ok()?.timestamp().as_millisecond())
}

/// A time in UTC, to the minute.
pub fn minute(at: UnixMs) -> String {
    let text = Timestamp::from_millisecond(at).unwrap_or_default().to_string();
    text.get(.."2026-01-31T10:00".len()).unwrap_or(&text).replace('T', " ")
}
