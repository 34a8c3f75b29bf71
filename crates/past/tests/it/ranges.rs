//! Ranges that people write, and keys that find what they were printed for.

use jiff::tz::TimeZone;
use proptest::prelude::*;
use quipu_past::{RangeError, TimeRange};

/// A Thursday: 2026-05-28T20:26:40Z, 22:26:40 in Berlin.
const NOW: i64 = 1_780_000_000_000;

fn berlin() -> TimeZone {
    TimeZone::get("Europe/Berlin").unwrap_or_else(|_| {
        // A machine without a database of zones: its rules as a POSIX string.
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    })
}

#[test]
fn forms_of_ranges_are_half_open_in_the_zone() {
    let berlin = berlin();
    for (text, key) in [
        ("2026-05-01", "2026-04-30T22:00:00Z..2026-05-01T22:00:00Z"),
        ("2026-05-01..2026-05-07", "2026-04-30T22:00:00Z..2026-05-07T22:00:00Z"),
        ("2026-05", "2026-04-30T22:00:00Z..2026-05-31T22:00:00Z"),
        ("2026", "2025-12-31T23:00:00Z..2026-12-31T23:00:00Z"),
        ("2026-W18", "2026-04-26T22:00:00Z..2026-05-03T22:00:00Z"),
        ("today", "2026-05-27T22:00:00Z..2026-05-28T22:00:00Z"),
        ("Yesterday", "2026-05-26T22:00:00Z..2026-05-27T22:00:00Z"),
        ("this week", "2026-05-24T22:00:00Z..2026-05-31T22:00:00Z"),
        ("last week", "2026-05-17T22:00:00Z..2026-05-24T22:00:00Z"),
        ("last  month", "2026-03-31T22:00:00Z..2026-04-30T22:00:00Z"),
        ("last year", "2024-12-31T23:00:00Z..2025-12-31T23:00:00Z"),
        ("last 3 days", "2026-05-25T20:26:40Z..2026-05-28T20:26:40Z"),
        ("2 weeks ago", "2026-05-10T22:00:00Z..2026-05-17T22:00:00Z"),
        ("3 days ago", "2026-05-24T22:00:00Z..2026-05-25T22:00:00Z"),
        ("2026-05-01T10:00", "2026-05-01T08:00:00Z..2026-05-01T08:01:00Z"),
        ("2026-05-01 10:00:07", "2026-05-01T08:00:07Z..2026-05-01T08:00:08Z"),
        ("2026-05-01T10:00:00.5Z", "2026-05-01T10:00:00.5Z..2026-05-01T10:00:00.501Z"),
        ("2026-05-01T10:00+05:30..2026-05-01T12:00Z", "2026-05-01T04:30:00Z..2026-05-01T12:00:00Z"),
        ("2026-05-01T10:00[America/New_York]", "2026-05-01T14:00:00Z..2026-05-01T14:01:00Z"),
        ("yesterday..today", "2026-05-26T22:00:00Z..2026-05-28T22:00:00Z"),
        ("today..", "2026-05-27T22:00:00Z..2026-05-28T20:26:40Z"),
        ("yesterday..now", "2026-05-26T22:00:00Z..2026-05-28T20:26:40Z"),
        // The day on which the clock goes forward has 23 hours.
        ("2026-03-29", "2026-03-28T23:00:00Z..2026-03-29T22:00:00Z"),
    ] {
        let found = TimeRange::parse(text, NOW, &berlin);
        assert_eq!(found.map(TimeRange::key).as_deref(), Ok(key), "{text}");
    }
    assert_eq!(TimeRange::parse("..2026", NOW, &TimeZone::UTC).unwrap().start(), TimeRange::ALL.start());
}

#[test]
fn errors_name_what_was_not_understood() {
    let error = |text: &str| TimeRange::parse(text, NOW, &TimeZone::UTC).unwrap_err();
    for (text, part) in [
        ("2026-05-01..next tuesday", "next tuesday"),
        ("soon", "soon"),
        ("2026-05-01T", "2026-05-01T"),
        ("2026-05-01x10:00", "2026-05-01x10:00"),
        ("last 0 days", "last 0 days"),
        ("last 20000 years", "last 20000 years"),
        ("65535 years ago", "65535 years ago"),
        ("a..b..c", "a"),
    ] {
        let found = error(text);
        assert_eq!(found, RangeError::Unknown { part: part.into() }, "{text}");
        let words = found.to_string();
        assert!(
            words.contains(part) && words.contains("2026-05-01") && words.contains("last month"),
            "{words}"
        );
    }
    for text in ["2026-13", "2026-02-30", "2026-W54", "0000-00-00", "0000-01-01", "2026-05-01T25:00Z"] {
        assert!(matches!(error(text), RangeError::Impossible { .. }), "{text}: {}", error(text));
    }
    assert!(matches!(error("2026-05-07..2026-05-01"), RangeError::Backwards { .. }));
    assert!(matches!(error("2026-05-01T10:00Z..2026-05-01T10:00Z"), RangeError::Backwards { .. }));
    assert_eq!(error(""), RangeError::Empty);
    assert_eq!(error(".."), RangeError::Empty);
    assert!(matches!(error(&"9".repeat(1 << 20)), RangeError::TooLong(_)));
    assert!(!error("a\u{1b}[31mb").to_string().contains('\u{1b}'));
}

#[test]
fn specific_range_wins_over_wide_and_narrow_ones() {
    let range = |start, end| TimeRange::new(start, end).unwrap();
    let asked = range(100, 200);
    let life = range(0, 100_000);
    let (near, inner) = (range(90, 210), range(150, 160));
    assert!(asked.score(near) > asked.score(inner));
    assert!(asked.score(inner) > asked.score(life));
    assert_eq!(asked.score(asked), asked.width());
}

/// Spans of any width, down to a millisecond.
fn spans() -> impl Strategy<Value = TimeRange> {
    let starts = prop_oneof![0..4_000_000_000_000_i64, 1_700_000_000_000..1_700_000_005_000_i64];
    let widths = prop_oneof![1..1_500_i64, 1..400_000_000_000_i64];
    (starts, widths).prop_map(|(start, width)| TimeRange::new(start, start + width).unwrap())
}

proptest! {
    #[test]
    fn key_of_a_range_reads_back_as_it(span in spans()) {
        for zone in [TimeZone::UTC, berlin()] {
            prop_assert_eq!(TimeRange::parse(&span.key(), NOW, &zone), Ok(span));
        }
    }

    #[test]
    fn score_of_the_whole_width_is_that_of_the_same_range(asked in spans(), found in spans()) {
        prop_assert_eq!(asked.score(found) == asked.width(), asked == found);
        prop_assert!(asked.score(found) <= asked.width());
    }

    #[test]
    fn any_text_is_a_range_or_an_error(text in "\\PC{0,40}", forms in "[0-9T:.Zz+\\-W ]{0,30}") {
        for text in [text, forms] {
            if let Ok(range) = TimeRange::parse(&text, NOW, &TimeZone::UTC) {
                prop_assert!(range.start() < range.end());
            }
        }
    }
}
