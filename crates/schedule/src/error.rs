//! Why a schedule cannot be used.

use crate::{Field, FieldProblem};

/// Why a schedule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It has not five fields.
    #[error("a cron expression has 5 fields (minute, hour, day, month, weekday), and this one has {count}")]
    FieldCount {
        /// How many it has.
        count: usize,
    },
    /// One of its fields cannot be read.
    #[error("\"{text}\" is not a {}: {problem}", field.name())]
    Field {
        /// Which one.
        field: Field,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        problem: FieldProblem,
    },
    /// No date fits it.
    #[error("\"{0}\" never fires: no month that it names has such a day")]
    NeverFires(String),
    /// A word that begins with `@`.
    #[error("\"{0}\" is not known; known are @hourly, @daily, @weekly, @monthly and @yearly")]
    Word(String),
    /// It is longer than expressions are.
    #[error("a cron expression has at most {limit} bytes, and this one has {bytes}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// No time zone of this name.
    #[error("there is no time zone \"{0}\"; use a name such as Europe/Berlin or UTC")]
    Zone(String),
    /// A length of time that is none.
    #[error("\"{0}\" is not a length of time; use a number with s, m, h or d, such as 30m")]
    Span(String),
    /// An interval that is too short or too long.
    #[error("an interval is at least {least} s and at most {most} days")]
    Interval {
        /// Seconds at least.
        least: u64,
        /// Days at most.
        most: u64,
    },
    /// A time that is none.
    #[error("\"{0}\" is not a time; use 2026-12-24T18:00, 2026-12-24T18:00+01:00, or 18:00 for the next one")]
    Time(String),
}
