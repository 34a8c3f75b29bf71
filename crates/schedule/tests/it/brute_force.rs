//! The next time of an expression against a look at every minute.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use proptest::prelude::*;
use quipu_schedule::{CronExpression, Recurrence, Schedule};

const MINUTE: i64 = 60_000;
/// Zones with gaps and folds at different times of the day, and one of half an hour.
const ZONES: [&str; 6] =
    ["Europe/Berlin", "America/New_York", "Asia/Beirut", "Australia/Lord_Howe", "UTC", "America/Santiago"];
/// Days around changes of those clocks, and one far from any.
const STARTS: [&str; 6] = [
    "2026-03-28T00:00:00Z",
    "2026-10-24T06:00:00Z",
    "2026-03-07T12:00:00Z",
    "2026-11-01T00:00:00Z",
    "2026-04-04T00:00:00Z",
    "2026-09-05T06:00:00Z",
];

fn field(least: u8, most: u8) -> impl Strategy<Value = String> {
    let number = least..=most;
    let range = (number.clone(), number.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let list = prop::collection::vec(number.prop_map(|number| number.to_string()), 1..4);
    prop_oneof![
        4 => Just("*".to_owned()),
        2 => (1..=most.max(2)).prop_map(|step| format!("*/{step}")),
        2 => range,
        3 => list.prop_map(|items| items.join(",")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let days = prop_oneof![3 => Just("*".to_owned()), 1 => field(1, 31)];
    let weekdays = prop_oneof![3 => Just("*".to_owned()), 1 => field(0, 7)];
    (field(0, 59), field(0, 23), days, weekdays)
        .prop_map(|(minute, hour, day, weekday)| format!("{minute} {hour} {day} * {weekday}"))
}

fn fits(cron: &CronExpression, shown: DateTime) -> bool {
    let weekday = shown.weekday().to_sunday_zero_offset().cast_unsigned();
    let date = cron.fits_date(shown.month().cast_unsigned(), shown.day().cast_unsigned(), weekday);
    date && cron.fits_time(shown.hour().cast_unsigned(), shown.minute().cast_unsigned())
}

/// All times within so many minutes, by looking at what the clock shows in each.
fn by_looking(cron: &CronExpression, zone: &TimeZone, start: i64, minutes: i64) -> Vec<i64> {
    let shown_at = |at: i64| zone.to_datetime(Timestamp::from_millisecond(at).unwrap());
    let mut found = Vec::new();
    // The latest that the clock has shown.
    let mut latest = (0..=1_500).map(|back| shown_at(start - back * MINUTE)).max().unwrap();
    for at in (1..=minutes).map(|minute| start + minute * MINUTE) {
        let shown = shown_at(at);
        let fires = if cron.is_hourly() {
            fits(cron, shown)
        } else {
            // Also what the clock has just passed over.
            let mut passed = latest.saturating_add(1.minute());
            let mut any = false;
            while passed <= shown {
                any |= fits(cron, passed);
                passed = passed.saturating_add(1.minute());
            }
            any
        };
        latest = latest.max(shown);
        if fires {
            found.push(at);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn next_times_are_those_found_minute_by_minute(
        text in expression(),
        zone in prop::sample::select(&ZONES[..]),
        start in prop::sample::select(&STARTS[..]),
    ) {
        let cron: CronExpression = text.parse().unwrap();
        let start = start.parse::<Timestamp>().unwrap().as_millisecond();
        let minutes = 3 * 24 * 60;
        let looked = by_looking(&cron, &TimeZone::get(zone).unwrap(), start, minutes);
        let recurrence = Recurrence::Cron { expression: text.clone(), zone: zone.into() };
        let schedule = Schedule::of(&recurrence, Duration::ZERO, "job").unwrap();
        let times = std::iter::successors(schedule.next_after(start), |at| schedule.next_after(*at));
        let found: Vec<i64> = times.take_while(|at| *at <= start + minutes * MINUTE).collect();
        prop_assert_eq!(found, looked, "{} in {}", text, zone);
    }
}
