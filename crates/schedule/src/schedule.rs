//! The next time of a schedule.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

use crate::{CronExpression, ScheduleError};

/// The shortest interval.
pub const INTERVAL_LEAST: Duration = Duration::from_secs(10);
/// The longest interval.
pub const INTERVAL_MOST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The most by which a job may be late so that not all begin at once.
pub const JITTER_MOST: Duration = Duration::from_secs(60 * 60);
/// Days that are looked at for the next date that fits: from a 29 February to the next one over a year without one, and a week.
const HORIZON: i32 = 8 * 366 + 7;

/// When something is due. What is stored; [`Schedule::of`] makes it ready for use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Recurrence {
    /// Once, at this time.
    At(i64),
    /// Again and again, so many milliseconds after `anchor` and after each other.
    #[serde(rename_all = "camelCase")]
    Every {
        /// Milliseconds from one time to the next.
        every_ms: u64,
        /// One of the times.
        anchor: i64,
    },
    /// When the clocks of a zone show what an expression says.
    Cron {
        /// The expression.
        expression: String,
        /// The name of the zone, such as `Europe/Berlin`.
        zone: String,
    },
}

impl Recurrence {
    /// Whether there is one time alone.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        matches!(self, Self::At(_))
    }
}

/// A [`Recurrence`] that was checked, and by how much all its times are later.
#[derive(Debug, Clone)]
pub struct Schedule {
    times: Times,
    offset: i64,
}

#[derive(Debug, Clone)]
enum Times {
    At(i64),
    Every { every: i64, anchor: i64 },
    Cron { cron: CronExpression, zone: TimeZone },
}

impl Schedule {
    /// Checks what is stored. `jitter` is the most by which it may be later, and the name says by how much: the same job always
    /// by the same time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(recurrence: &Recurrence, jitter: Duration, name: &str) -> Result<Self, ScheduleError> {
        let times = match recurrence {
            Recurrence::At(at) => Times::At(*at),
            Recurrence::Every { every_ms, anchor } => {
                let every = Duration::from_millis(*every_ms);
                if !(INTERVAL_LEAST..=INTERVAL_MOST).contains(&every) {
                    return Err(ScheduleError::Interval {
                        least: INTERVAL_LEAST.as_secs(),
                        most: INTERVAL_MOST.as_secs() / (24 * 60 * 60),
                    });
                }
                Times::Every { every: i64::try_from(*every_ms).unwrap_or(i64::MAX), anchor: *anchor }
            }
            Recurrence::Cron { expression, zone } => Times::Cron {
                cron: expression.parse()?,
                zone: TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.clone()))?,
            },
        };
        Ok(Self { times, offset: offset(jitter.min(JITTER_MOST), name) })
    }

    /// By how much its times are later than they are named.
    #[must_use]
    pub const fn offset_ms(&self) -> i64 {
        self.offset
    }

    /// The first time after `after`; `None` where there is none.
    #[must_use]
    pub fn next_after(&self, after: i64) -> Option<i64> {
        let after = after.saturating_sub(self.offset);
        let next = match &self.times {
            Times::At(at) => (*at > after).then_some(*at),
            Times::Every { every, anchor } => {
                let past = after.saturating_sub(*anchor).div_euclid(*every);
                past.checked_add(1)?.checked_mul(*every)?.checked_add(*anchor)
            }
            Times::Cron { cron, zone } => next_of_cron(cron, zone, after),
        };
        next?.checked_add(self.offset)
    }

    /// Whether this is one of its times.
    #[must_use]
    pub fn is_time(&self, at: i64) -> bool {
        at.checked_sub(1).and_then(|before| self.next_after(before)) == Some(at)
    }
}

/// Less than the jitter, the same for the same name.
fn offset(jitter: Duration, name: &str) -> i64 {
    // FNV-1a: it must be the same in every process and version.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let most = u64::try_from(jitter.as_millis()).unwrap_or(0);
    i64::try_from(hash.checked_rem(most).unwrap_or(0)).unwrap_or(0)
}

fn next_of_cron(cron: &CronExpression, zone: &TimeZone, after: i64) -> Option<i64> {
    let from = Timestamp::from_millisecond(after).ok()?;
    if cron.is_hourly() { next_minute(cron, zone, from) } else { next_by_clock(cron, zone, from) }
}

fn fits(cron: &CronExpression, date: Date) -> bool {
    let weekday = date.weekday().to_sunday_zero_offset();
    match (u8::try_from(date.month()), u8::try_from(date.day()), u8::try_from(weekday)) {
        (Ok(month), Ok(day), Ok(weekday)) => cron.fits_date(month, day, weekday),
        _ => false,
    }
}

fn times_of_day(cron: &CronExpression) -> impl Iterator<Item = Time> + '_ {
    let all = (0..24_u8).flat_map(|hour| (0..60_u8).map(move |minute| (hour, minute)));
    let fitting = all.filter(|(hour, minute)| cron.fits_time(*hour, *minute));
    fitting.filter_map(|(hour, minute)| Time::new(hour.cast_signed(), minute.cast_signed(), 0, 0).ok())
}

/// Of an expression that names hours: each time of the clock once a day. One that the clock leaves out is made up for as soon as
/// the clock goes on; of one that it shows twice, the first counts.
fn next_by_clock(cron: &CronExpression, zone: &TimeZone, from: Timestamp) -> Option<i64> {
    // The day before: what a gap at midnight left out of it comes in this one.
    let mut date = zone.to_datetime(from).date().yesterday().ok()?;
    for _ in 0..HORIZON {
        if fits(cron, date) {
            for time in times_of_day(cron) {
                let at = instant(date.to_datetime(time), zone)?;
                if at > from {
                    return Some(at.as_millisecond());
                }
            }
        }
        date = date.tomorrow().ok()?;
    }
    None
}

/// When the clock shows this first, or goes on over it.
pub(crate) fn instant(shown: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
        AmbiguousOffset::Gap { after, .. } => {
            // With the later offset it would be before the jump.
            let early = after.to_timestamp(shown).ok()?;
            zone.following(early).next().map(|jump| jump.timestamp())
        }
    }
}

/// Of an expression that names every hour: each minute of the day that fits, as the clock shows it, also the second time; what the
/// clock leaves out is left out.
fn next_minute(cron: &CronExpression, zone: &TimeZone, from: Timestamp) -> Option<i64> {
    let minute = SignedDuration::from_mins(1);
    let shown = zone.to_datetime(from);
    let into = SignedDuration::from_nanos(i64::from(shown.subsec_nanosecond()))
        + SignedDuration::from_secs(i64::from(shown.second()));
    let mut at = from.checked_sub(into).ok()?.checked_add(minute).ok()?;
    let mut days = 0;
    // In a day that fits every hour has such a minute: it is not far.
    while days < HORIZON {
        let shown = zone.to_datetime(at);
        if !fits(cron, shown.date()) {
            days += 1;
            let next = shown.date().tomorrow().ok()?;
            at = instant(next.to_datetime(Time::midnight()), zone)?;
            continue;
        }
        let (hour, within) = (shown.hour().cast_unsigned(), shown.minute().cast_unsigned());
        if cron.fits_time(hour, within) {
            return Some(at.as_millisecond());
        }
        at = at.checked_add(1.minute()).ok()?;
    }
    None
}
