//! Times that are known: daylight saving, jitter, clocks that jump, and expressions that are refused.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quipu_schedule::{
    CronExpression, Recurrence, Schedule, ScheduleError, parse_span, parse_time, spell_span,
};

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn text(at: i64) -> String {
    Timestamp::from_millisecond(at).unwrap().to_string()
}

fn cron(expression: &str, zone: &str) -> Schedule {
    let recurrence = Recurrence::Cron { expression: expression.into(), zone: zone.into() };
    Schedule::of(&recurrence, Duration::ZERO, "job").unwrap()
}

fn check(expression: &str, zone: &str, after: &str, expected: &[&str]) {
    let schedule = cron(expression, zone);
    let mut at = ms(after);
    let mut found = Vec::new();
    for _ in expected {
        at = schedule.next_after(at).unwrap();
        assert!(schedule.is_time(at) && !schedule.is_time(at + 1), "{expression}");
        found.push(text(at));
    }
    assert_eq!(found, expected, "{expression} in {zone} after {after}");
}

const NEW_YORK: &str = "America/New_York";
const BERLIN: &str = "Europe/Berlin";

#[test]
fn spring_gap_is_made_up_for_once() {
    // 02:00 to 03:00 is left out on 8 March 2026.
    let around = ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"];
    check("30 2 * * *", NEW_YORK, "2026-03-07T00:00:00Z", &around);
    check(
        "0,15,30 2 * * *",
        NEW_YORK,
        "2026-03-08T06:59:00Z",
        &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"],
    );
    // It would also be due at 03:00, which is the same time.
    check("0 2,3 * * *", NEW_YORK, "2026-03-08T06:59:59Z", &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"]);
    // A distance in time does not change.
    check(
        "*/30 * * * *",
        NEW_YORK,
        "2026-03-08T06:30:00Z",
        &["2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"],
    );
}

#[test]
fn autumn_fold_fires_by_the_clock_once() {
    // 02:00 to 03:00 comes twice on 25 October 2026.
    let around = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    check("30 2 * * *", BERLIN, "2026-10-23T12:00:00Z", &around);
    let hourly = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
    check("0 * * * *", BERLIN, "2026-10-24T23:30:00Z", &hourly);
    // Asked between the two.
    check("30 2 * * *", BERLIN, "2026-10-25T00:45:00Z", &["2026-10-26T01:30:00Z"]);
}

#[test]
fn gap_at_midnight_and_a_day_left_out_fire_when_clocks_go_on() {
    // Beirut leaves out 00:00 to 01:00.
    check(
        "0 0 * * *",
        "Asia/Beirut",
        "2024-03-30T12:00:00Z",
        &["2024-03-30T22:00:00Z", "2024-03-31T21:00:00Z"],
    );
    // Samoa left out the whole of 30 December 2011.
    check(
        "0 9 30 12 *",
        "Pacific/Apia",
        "2011-12-01T00:00:00Z",
        &["2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"],
    );
}

#[test]
fn days_of_month_and_of_week_are_alternatives() {
    let fridays_and_13th = ["2026-02-06T09:00:00Z", "2026-02-13T09:00:00Z", "2026-02-20T09:00:00Z"];
    check("0 9 13 * fri", "UTC", "2026-02-01T00:00:00Z", &fridays_and_13th);
    check("0 9 15 * fri", "UTC", "2026-02-14T00:00:00Z", &["2026-02-15T09:00:00Z", "2026-02-20T09:00:00Z"]);
    check("0 9 * * 7", "UTC", "2026-02-14T00:00:00Z", &["2026-02-15T09:00:00Z", "2026-02-22T09:00:00Z"]);
    check("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    check("@weekly", "UTC", "2026-02-14T00:00:00Z", &["2026-02-15T00:00:00Z"]);
    check("0 17 * jan-mar,DEC 1-5/2", "UTC", "2026-03-30T18:00:00Z", &["2026-12-02T17:00:00Z"]);
}

#[test]
fn expressions_that_cannot_be_used_say_why() {
    let refused = |text: &str, part: &str| {
        let error = text.parse::<CronExpression>().unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
    };
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30,31 feb *"] {
        assert_eq!(never.parse::<CronExpression>(), Err(ScheduleError::NeverFires(never.into())));
    }
    // A weekday is enough.
    assert!("0 0 31 4 mon".parse::<CronExpression>().is_ok());
    refused("* * * *", "this one has 4");
    refused("0 0 0 * * *", "this one has 6");
    refused("60 * * * *", "60 is not between 0 and 59");
    refused("* 24 * * *", "\"24\" is not a hour");
    refused("* * 0 * *", "0 is not between 1 and 31");
    refused("5/15 * * * *", "a step needs a range");
    refused("*/0 * * * *", "above 0");
    refused("30-10 * * * *", "ends before it begins");
    refused("* * L * *", "not a number");
    refused("1,,2 * * * *", "not a number");
    refused("@reboot", "@reboot");
    refused(&"1,".repeat(200), "at most 256 bytes");
    let zone = Recurrence::Cron { expression: "@daily".into(), zone: "Europe/Atlantis".into() };
    let error = Schedule::of(&zone, Duration::ZERO, "job").unwrap_err();
    assert_eq!(error, ScheduleError::Zone("Europe/Atlantis".into()));
}

#[test]
fn intervals_stay_on_their_anchor_whatever_the_clock_does() {
    let every = Recurrence::Every { every_ms: 60_000, anchor: 5_000 };
    let schedule = Schedule::of(&every, Duration::ZERO, "job").unwrap();
    assert_eq!(schedule.next_after(5_000), Some(65_000));
    // Late by a week: one time, not ten thousand.
    assert_eq!(schedule.next_after(604_800_000 + 5_001), Some(604_800_000 + 65_000));
    // The clock was set back behind the anchor.
    assert_eq!(schedule.next_after(-130_000), Some(-115_000));
    assert_eq!(schedule.next_after(i64::MAX), None);
    let once = Schedule::of(&Recurrence::At(1_000), Duration::ZERO, "job").unwrap();
    assert_eq!((once.next_after(999), once.next_after(1_000)), (Some(1_000), None));
    let short = Recurrence::Every { every_ms: 9_999, anchor: 0 };
    assert!(matches!(Schedule::of(&short, Duration::ZERO, "job"), Err(ScheduleError::Interval { .. })));
    // A clock that shows nonsense.
    assert_eq!(cron("@daily", BERLIN).next_after(i64::MAX), None);
    assert_eq!(cron("@daily", BERLIN).next_after(i64::MIN), None);
}

#[test]
fn jitter_is_the_same_for_the_same_name() {
    let daily = Recurrence::Cron { expression: "@daily".into(), zone: "UTC".into() };
    let of = |name: &str| Schedule::of(&daily, Duration::from_secs(300), name).unwrap();
    let offsets: Vec<i64> = ["a", "b", "c", "d"].iter().map(|name| of(name).offset_ms()).collect();
    assert!(offsets.iter().all(|offset| (0..300_000).contains(offset)), "{offsets:?}");
    assert_ne!(offsets[0], offsets[1]);
    let next = of("a").next_after(ms("2026-01-01T12:00:00Z")).unwrap();
    assert_eq!(next - ms("2026-01-02T00:00:00Z"), offsets[0]);
    assert!(of("a").is_time(next));
}

#[test]
fn written_times_and_lengths_are_read() {
    let berlin = TimeZone::get(BERLIN).unwrap();
    let now = ms("2026-06-01T10:00:00Z");
    let read = |text: &str| {
        parse_time(text, &berlin, now).map(|at| Timestamp::from_millisecond(at).unwrap().to_string())
    };
    assert_eq!(read("2026-12-24T18:00").unwrap(), "2026-12-24T17:00:00Z");
    assert_eq!(read("2026-12-24 18:00").unwrap(), "2026-12-24T17:00:00Z");
    assert_eq!(read("2026-12-24T18:00-05:00").unwrap(), "2026-12-24T23:00:00Z");
    assert_eq!(read("18:00").unwrap(), "2026-06-01T16:00:00Z");
    assert_eq!(read("11:59").unwrap(), "2026-06-02T09:59:00Z");
    for wrong in ["tomorrow", "2026-12-24", "25:00", ""] {
        assert!(matches!(read(wrong), Err(ScheduleError::Time(_))), "{wrong}");
    }
    assert_eq!(parse_span("1h30m").unwrap(), Duration::from_secs(5_400));
    assert_eq!(spell_span(Duration::from_secs(93_784)), "1d2h3m4s");
    for wrong in ["", "5", "5 m", "m", "-5m", "99999999999999999999d", "1y"] {
        assert!(matches!(parse_span(wrong), Err(ScheduleError::Span(_))), "{wrong}");
    }
}
