//! Time and fresh ids, in one place so that tests can hold them still.

use jiff::Timestamp;
use jiff::tz::TimeZone;
pub use quipu_history::instant;
pub(crate) use quipu_history::minute;
use quipu_protocol::UnixMs;

/// Where the engine reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the epoch.
    fn now(&self) -> UnixMs;

    /// When the calendar day that holds `at` began, in milliseconds since the epoch: the user's day, by the time zone of
    /// the system (`TZ`).
    fn day_of(&self, at: UnixMs) -> UnixMs {
        start_of_day(at, TimeZone::system())
    }
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

/// When the calendar day of a time began; that of UTC at the far ends of the calendar.
fn start_of_day(at: UnixMs, zone: TimeZone) -> UnixMs {
    let day = Timestamp::from_millisecond(at).and_then(|at| at.to_zoned(zone).start_of_day());
    day.map_or_else(
        |_| at.saturating_sub(at.rem_euclid(24 * 60 * 60 * 1000)),
        |day| day.timestamp().as_millisecond(),
    )
}

/// A UUIDv7. Before 1970 it says 1970, which is all that it can say.
pub(crate) fn fresh_id() -> String {
    static ORDER: std::sync::Mutex<uuid::ContextV7> = std::sync::Mutex::new(uuid::ContextV7::new());
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let at = uuid::Timestamp::from_unix(&ORDER, since.as_secs(), since.subsec_nanos());
    uuid::Uuid::new_v7(at).to_string()
}

/// Whether a text can name a session.
pub(crate) fn is_session_id(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let now = 1_700_000_000_000;
        for (text, expect) in [
            ("30m", Some(now - 1_800_000)),
            ("3d", Some(now - 259_200_000)),
            ("2023-11-14T22:13:20Z", Some(now)),
            ("4294967295w", Some(now - 4_294_967_295 * 604_800_000)),
            ("3x", None),
            ("d", None),
            ("", None),
            ("ü", None),
            ("2023-02-30", None),
        ] {
            assert_eq!(instant(text, now), expect, "{text}");
        }
        assert!(instant("2023-11-14", now).is_some_and(|day| (now - day).abs() < 2 * 86_400_000));
        assert_eq!(minute(now), "2023-11-14 22:13");
    }

    #[test]
    fn a_day_begins_where_the_user_is() {
        let check = |zone: &str, at: &str, began: &str| {
            let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
            let zone = TimeZone::posix(zone).unwrap();
            assert_eq!(start_of_day(ms(at), zone), ms(began), "{at}");
        };
        check("UTC0", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z");
        check("UTC0", "2026-02-28T23:59:59.999Z", "2026-02-28T00:00:00Z");
        check("NPT-5:45", "2026-03-01T18:14:59Z", "2026-02-28T18:15:00Z");
        check("NPT-5:45", "2026-03-01T18:15:00Z", "2026-03-01T18:15:00Z");
        // Days of 23 and of 25 hours.
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(berlin, "2026-03-29T21:59:00Z", "2026-03-28T23:00:00Z");
        check(berlin, "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z");
        check(berlin, "2026-10-25T22:59:00Z", "2026-10-24T22:00:00Z");
        assert_eq!(start_of_day(i64::MAX, TimeZone::UTC) % 86_400_000, 0);
        assert_eq!(start_of_day(-1, TimeZone::UTC), -86_400_000);
    }
}
