//! Cron expressions: five fields, or a word such as `@daily`.

use std::fmt;
use std::str::FromStr;

use crate::{Field, ScheduleError};

/// Letters of an expression at most.
const LONGEST: usize = 256;

/// The most days that each month can have.
const LENGTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// Words for whole expressions.
const WORDS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A cron expression: `MINUTE HOUR DAY MONTH WEEKDAY`.
///
/// Each field is `*`, or a list of numbers, ranges (`1-5`) and steps (`*/15`, `9-17/2`). Where both days are restricted, a date
/// fits when either fits. An expression that no date can fit is refused.
#[derive(Clone, PartialEq, Eq)]
pub struct CronExpression {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

impl CronExpression {
    /// Whether a date fits: `weekday` counts from 0 for Sunday.
    #[must_use]
    pub fn fits_date(&self, month: u8, day: u8, weekday: u8) -> bool {
        let (in_month, in_week) = (self.days & (1 << day) != 0, self.weekdays & (1 << weekday) != 0);
        let is_day = match (Field::DayOfMonth.is_full(self.days), Field::DayOfWeek.is_full(self.weekdays)) {
            (false, false) => in_month || in_week,
            _ => in_month && in_week,
        };
        self.months & (1 << month) != 0 && is_day
    }

    /// Whether a time of a day fits.
    #[must_use]
    pub const fn fits_time(&self, hour: u8, minute: u8) -> bool {
        self.hours & (1 << hour) != 0 && self.minutes & (1 << minute) != 0
    }

    /// Whether it names every hour: then it means a distance in time and not an hour of the clock.
    #[must_use]
    pub fn is_hourly(&self) -> bool {
        Field::Hour.is_full(self.hours)
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn can_fire(&self) -> bool {
        if !Field::DayOfWeek.is_full(self.weekdays) {
            return true;
        }
        (1..=12_u8).zip(LENGTHS).any(|(month, length)| {
            self.months & (1 << month) != 0 && (1..=length).any(|day| self.days & (1 << day) != 0)
        })
    }
}

impl FromStr for CronExpression {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(ScheduleError::TooLong { bytes: text.len(), limit: LONGEST });
        }
        let lower = text.to_ascii_lowercase();
        let spelled = match WORDS.iter().find(|(word, _)| *word == lower) {
            Some((_, spelled)) => spelled,
            None if text.starts_with('@') => return Err(ScheduleError::Word(text.to_owned())),
            None => text,
        };
        let fields: Vec<&str> = spelled.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::FieldCount { count: fields.len() });
        };
        let mut sets = [0; 5];
        for ((field, text), set) in
            Field::ALL.into_iter().zip([minute, hour, day, month, weekday]).zip(&mut sets)
        {
            *set = field.parse(text).map_err(|problem| ScheduleError::Field {
                field,
                text: text.to_owned(),
                problem,
            })?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        let cron = Self { text: text.to_owned(), minutes, hours, days, months, weekdays };
        if !cron.can_fire() {
            return Err(ScheduleError::NeverFires(text.to_owned()));
        }
        Ok(cron)
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronExpression({})", self.text)
    }
}
