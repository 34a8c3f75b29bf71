//! Ranges of time as people write them, and as they are printed.

use std::fmt;

use jiff::civil::{Date, DateTime, ISOWeekDate, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _, Zoned};
use quipu_protocol::UnixMs;

/// The first instant that a range can begin at: that of the year 1, in milliseconds since the epoch.
const EARLIEST: UnixMs = -62_135_596_800_000;
/// The last instant that a range can end at, near the end of the year 9999.
const LATEST: UnixMs = 253_402_207_200_000;
/// Bytes of a range at most.
const LONGEST: usize = 200;
/// Characters that an error repeats.
const SAID_BACK: usize = 60;

/// A range of time: `start` is in it, `end` is the first millisecond that is not. Never empty.
///
/// ```
/// use jiff::tz::TimeZone;
/// use quipu_past::TimeRange;
///
/// let now = 1_780_000_000_000; // 2026-05-28T20:26:40Z
/// let read = |text| TimeRange::parse(text, now, &TimeZone::UTC).unwrap().key();
/// assert_eq!(read("2026-05-01"), "2026-05-01T00:00:00Z..2026-05-02T00:00:00Z");
/// assert_eq!(read("2026-05-01..2026-05-07"), "2026-05-01T00:00:00Z..2026-05-08T00:00:00Z");
/// assert_eq!(read("yesterday"), "2026-05-27T00:00:00Z..2026-05-28T00:00:00Z");
/// assert_eq!(read("2026-05-01T10:00Z..2026-05-01T10:00:00.250Z"), "2026-05-01T10:00:00Z..2026-05-01T10:00:00.25Z");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeRange {
    start: UnixMs,
    end: UnixMs,
}

/// Why a text is no range of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Nothing was written.
    #[error("no time is given; {FORMS}")]
    Empty,
    /// A part of it is no time.
    #[error("`{part}` is no time; {FORMS}")]
    Unknown {
        /// What was not understood, on one line and short.
        part: String,
    },
    /// It is a form of a time, and there is no such time.
    #[error("there is no `{part}`: {why}")]
    Impossible {
        /// What was written, on one line and short.
        part: String,
        /// What is wrong with it.
        why: String,
    },
    /// It ends before it begins, or where it begins.
    #[error("`{text}` ends at {end}, which is not after its beginning {start}")]
    Backwards {
        /// What was written, on one line and short.
        text: String,
        /// Where it begins.
        start: String,
        /// Where it ends.
        end: String,
    },
    /// It is longer than any range.
    #[error("a range has at most {LONGEST} bytes, and this one {0}")]
    TooLong(usize),
}

const FORMS: &str = "write a date (2026-05-01), a month (2026-05), a year (2026), a week (2026-W18), a time (2026-05-01T10:00, with Z or \
+02:00 for another zone), today, yesterday, this week, last month, last 3 days, 2 weeks ago, or two of them with `..` between";

/// A time as it was written.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// A time of day: at the end of a range it is not part of it. By itself, as long as its last unit.
    Point { at: UnixMs, unit: i64 },
    /// A day, a week, a month, a year: at the end of a range it is part of it.
    Period { start: UnixMs, end: UnixMs },
}

impl TimeRange {
    /// All that a range can hold.
    pub const ALL: Self = Self { start: EARLIEST, end: LATEST };

    /// From `start` to before `end`, in milliseconds since the epoch; `None` where that is empty, or not within the years 1 to 9999.
    #[must_use]
    pub const fn new(start: UnixMs, end: UnixMs) -> Option<Self> {
        if start < end && start >= EARLIEST && end <= LATEST { Some(Self { start, end }) } else { None }
    }

    /// The first millisecond.
    #[must_use]
    pub const fn start(self) -> UnixMs {
        self.start
    }

    /// The first millisecond after it.
    #[must_use]
    pub const fn end(self) -> UnixMs {
        self.end
    }

    /// How many milliseconds it has.
    #[must_use]
    pub const fn width(self) -> i64 {
        self.end - self.start
    }

    /// How many milliseconds both have.
    #[must_use]
    pub fn overlap(self, other: Self) -> i64 {
        (self.end.min(other.end) - self.start.max(other.start)).max(0)
    }

    /// Whether this instant is in it.
    #[must_use]
    pub const fn contains(self, at: UnixMs) -> bool {
        self.start <= at && at < self.end
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The smallest range that has both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// How well a range answers to this one, which was asked for: twice the overlap less its width. The highest is the most
    /// specific; only a range with the same ends reaches the width of this one.
    #[must_use]
    pub fn score(self, found: Self) -> i64 {
        2 * self.overlap(found) - found.width()
    }

    /// How it is printed: in UTC, as exactly as it is. [`parse`](Self::parse) reads it back in every zone.
    #[must_use]
    pub fn key(self) -> String {
        format!("{}..{}", instant(self.start), instant(self.end))
    }

    /// What somebody means, with `now` in milliseconds since the epoch, by the clock of `zone`.
    ///
    /// A date, week, month or year is a period. `A..B` begins where A begins, and ends with B: after it where B is a period, at it
    /// where B is a time of day. `A..` ends now, `..B` has no beginning. A time of day alone is as long as its last unit.
    ///
    /// # Errors
    /// [`RangeError`]: says which part was not understood, and which forms are.
    pub fn parse(text: &str, now: UnixMs, zone: &TimeZone) -> Result<Self, RangeError> {
        if text.len() > LONGEST {
            return Err(RangeError::TooLong(text.len()));
        }
        let now = Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone.clone());
        let whole = text.trim();
        let (start, end) = match whole.split_once("..") {
            Some(("", "")) => return Err(RangeError::Empty),
            Some((from, to)) => {
                let start = match from.trim() {
                    "" => EARLIEST,
                    from => moment(from, &now)?.start(),
                };
                let end = match to.trim() {
                    "" => now.timestamp().as_millisecond(),
                    to => moment(to, &now)?.end(),
                };
                (start, end)
            }
            None => match moment(whole, &now)? {
                Moment::Point { at, unit } => (at, at.saturating_add(unit)),
                Moment::Period { start, end } => (start, end),
            },
        };
        if end <= EARLIEST || start >= LATEST {
            return Err(impossible(whole, "a range lies within the years 1 to 9999"));
        }
        Self::new(start.max(EARLIEST), end.min(LATEST)).ok_or_else(|| RangeError::Backwards {
            text: said_back(whole),
            start: instant(start),
            end: instant(end),
        })
    }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl Moment {
    const fn start(self) -> UnixMs {
        match self {
            Self::Point { at, .. } => at,
            Self::Period { start, .. } => start,
        }
    }

    const fn end(self) -> UnixMs {
        match self {
            Self::Point { at, .. } => at,
            Self::Period { end, .. } => end,
        }
    }
}

fn instant(at: UnixMs) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

fn said_back(text: &str) -> String {
    let flat: String = text.chars().take(SAID_BACK).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SAID_BACK).is_some() { format!("{flat}…") } else { flat }
}

fn unknown(part: &str) -> RangeError {
    if part.is_empty() { RangeError::Empty } else { RangeError::Unknown { part: said_back(part) } }
}

fn impossible(part: &str, why: impl fmt::Display) -> RangeError {
    RangeError::Impossible { part: said_back(part), why: why.to_string() }
}

fn moment(part: &str, now: &Zoned) -> Result<Moment, RangeError> {
    let shape: String = part.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    match shape.as_str() {
        "9999" | "9999-99" | "9999-99-99" | "9999-W99" | "9999-w99" => return period(part, now),
        _ => {}
    }
    if shape.starts_with("9999-99-99") && part.len() > 10 {
        return point(part, now.time_zone());
    }
    words(part, now)
}

fn period(part: &str, now: &Zoned) -> Result<Moment, RangeError> {
    let bad = |why: jiff::Error| impossible(part, why);
    let number = |at: std::ops::Range<usize>| part.get(at).and_then(|text| text.parse::<i16>().ok());
    let small = |at: std::ops::Range<usize>| part.get(at).and_then(|text| text.parse::<i8>().ok());
    let year = number(0..4).ok_or_else(|| unknown(part))?;
    let (first, length) = match part.len() {
        4 => (Date::new(year, 1, 1).map_err(bad)?, 1.year()),
        7 => (Date::new(year, small(5..7).unwrap_or(0), 1).map_err(bad)?, 1.month()),
        8 => {
            let week = ISOWeekDate::new(year, small(6..8).unwrap_or(0), Weekday::Monday).map_err(bad)?;
            (week.date(), 1.week())
        }
        _ => (part.parse::<Date>().map_err(bad)?, 1.day()),
    };
    dates(first, length, now.time_zone()).map_err(bad)
}

/// From the beginning of a day in the zone to the beginning of the day that is so much later.
fn dates(first: Date, length: Span, zone: &TimeZone) -> Result<Moment, jiff::Error> {
    let begin = |date: Date| Ok::<_, jiff::Error>(date.to_zoned(zone.clone())?.timestamp().as_millisecond());
    // The last day of all has none after it.
    let end = match first.checked_add(length) {
        Ok(next) => begin(next).unwrap_or(LATEST),
        Err(_) => LATEST,
    };
    Ok(Moment::Period { start: begin(first)?, end })
}

fn point(part: &str, zone: &TimeZone) -> Result<Moment, RangeError> {
    if !matches!(part.as_bytes().get(10), Some(b'T' | b't' | b' ')) {
        return Err(unknown(part));
    }
    let clock = part.get(11..).unwrap_or_default();
    let end = clock.find(['Z', 'z', '+', '-', '[']).unwrap_or(clock.len());
    let (clock, behind) = clock.split_at(end);
    if !clock.starts_with(|c: char| c.is_ascii_digit()) || !clock.contains(':') {
        return Err(unknown(part));
    }
    let bad = |error: jiff::Error| impossible(part, error);
    let at = if behind.is_empty() {
        let local = part.parse::<DateTime>().map_err(bad)?;
        local.to_zoned(zone.clone()).map_err(bad)?.timestamp()
    } else if behind.contains('[') {
        part.parse::<Zoned>().map_err(bad)?.timestamp()
    } else {
        part.parse::<Timestamp>().map_err(bad)?
    };
    let unit = match (clock.contains(['.', ',']), clock.matches(':').count()) {
        (true, _) => 1,
        (false, 1) => 60_000,
        (false, _) => 1_000,
    };
    Ok(Moment::Point { at: at.as_millisecond(), unit })
}

fn words(part: &str, now: &Zoned) -> Result<Moment, RangeError> {
    let lower = part.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let today = now.date();
    let monday = || {
        let since = i64::from(today.weekday().to_monday_zero_offset());
        today.checked_sub(since.days())
    };
    let found = match words.as_slice() {
        ["now"] => return Ok(Moment::Point { at: now.timestamp().as_millisecond(), unit: 1 }),
        ["today"] => (Ok(today), 1.day()),
        ["yesterday"] => (today.checked_sub(1.day()), 1.day()),
        ["this", "week"] => (monday(), 1.week()),
        ["last", "week"] => (monday().and_then(|date| date.checked_sub(1.week())), 1.week()),
        ["this", "month"] => (Ok(today.first_of_month()), 1.month()),
        ["last", "month"] => (today.first_of_month().checked_sub(1.month()), 1.month()),
        ["this", "year"] => (Ok(today.first_of_year()), 1.year()),
        ["last", "year"] => (today.first_of_year().checked_sub(1.year()), 1.year()),
        ["last", count, unit] => {
            let length = length(count, unit).ok_or_else(|| unknown(part))?;
            let start = now.checked_sub(length).map_err(|error| impossible(part, error))?;
            let (start, end) = (start.timestamp().as_millisecond(), now.timestamp().as_millisecond());
            return Ok(Moment::Period { start, end });
        }
        [count, unit, "ago"] => {
            let back = length(count, unit).ok_or_else(|| unknown(part))?;
            if unit.starts_with("hour") || unit.starts_with("minute") {
                let at = now.checked_sub(back).map_err(|error| impossible(part, error))?;
                return Ok(Moment::Point { at: at.timestamp().as_millisecond(), unit: 1 });
            }
            let date = today.checked_sub(back);
            match *unit {
                "week" | "weeks" => (monday().and_then(|monday| monday.checked_sub(back)), 1.week()),
                "month" | "months" => (date.map(Date::first_of_month), 1.month()),
                "year" | "years" => (date.map(Date::first_of_year), 1.year()),
                _ => (date, 1.day()),
            }
        }
        _ => return Err(unknown(part)),
    };
    let bad = |error: jiff::Error| impossible(part, error);
    dates(found.0.map_err(bad)?, found.1, now.time_zone()).map_err(bad)
}

fn length(count: &str, unit: &str) -> Option<Span> {
    let count = match count {
        "a" | "an" | "one" => 1,
        count => count.parse::<u16>().ok().filter(|count| *count > 0)?,
    };
    let (count, none) = (i64::from(count), Span::new());
    // More than the calendar has are no length.
    let length = match unit {
        "minute" | "minutes" => none.try_minutes(count),
        "hour" | "hours" => none.try_hours(count),
        "day" | "days" => none.try_days(count),
        "week" | "weeks" => none.try_weeks(count),
        "month" | "months" => none.try_months(count),
        "year" | "years" => none.try_years(count),
        _ => return None,
    };
    length.ok()
}
