//! The fields of a cron expression.

use std::fmt;

/// A field of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Minutes of an hour: 0 to 59.
    Minute,
    /// Hours of a day: 0 to 23.
    Hour,
    /// Days of a month: 1 to 31.
    DayOfMonth,
    /// Months: 1 to 12, or `jan` to `dec`.
    Month,
    /// Days of a week: 0 to 7, or `sun` to `sat`; 0 and 7 are Sunday.
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
impl Field {
    pub(crate) const ALL: [Self; 5] =
        [Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// Its name in errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of the month",
            Self::Month => "month",
            Self::DayOfWeek => "day of the week",
        }
    }

    const fn bounds(self) -> (u8, u8) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
        }
    }

    fn number(self, text: &str) -> Result<u8, FieldProblem> {
        let lower = text.to_ascii_lowercase();
        let named = match self {
            Self::Month => MONTHS.iter().position(|name| *name == lower).map(|at| at + 1),
            Self::DayOfWeek => DAYS.iter().position(|name| *name == lower),
            Self::Minute | Self::Hour | Self::DayOfMonth => None,
        };
        if let Some(number) = named {
            return u8::try_from(number).map_err(|_| FieldProblem::NotANumber(lower));
        }
        let is_digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let (least, most) = self.bounds();
        match text.parse::<u16>().ok().filter(|_| is_digits) {
            None => Err(FieldProblem::NotANumber(text.to_owned())),
            Some(number) => {
                match u8::try_from(number).ok().filter(|number| (least..=most).contains(number)) {
                    Some(number) => Ok(number),
                    None => Err(FieldProblem::OutOfRange { number, least, most }),
                }
            }
        }
    }

    /// The numbers that a field names, as bits.
    pub(crate) fn parse(self, text: &str) -> Result<u64, FieldProblem> {
        let (least, most) = self.bounds();
        let mut set = 0_u64;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (item, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" || range == "?" => (least, if self == Self::DayOfWeek { 6 } else { most }),
                Some((first, last)) => match (self.number(first)?, self.number(last)?) {
                    // Sunday ends a week as well.
                    (first @ 1.., 0) if self == Self::DayOfWeek => (first, 7),
                    range => range,
                },
                None if step.is_some() => return Err(FieldProblem::StepOfOne(item.to_owned())),
                None => {
                    let number = self.number(range)?;
                    (number, number)
                }
            };
            if first > last {
                return Err(FieldProblem::Backwards(range.to_owned()));
            }
            let step = match step {
                None => 1,
                Some(step) => match step.parse::<u8>() {
                    Ok(step) if step > 0 => step,
                    _ => return Err(FieldProblem::Step(step.to_owned())),
                },
            };
            for number in (first..=last).step_by(usize::from(step)) {
                // Sunday has two numbers.
                let number = if self == Self::DayOfWeek { number % 7 } else { number };
                set |= 1 << number;
            }
        }
        Ok(set)
    }

    /// Whether these are all the numbers that there are.
    pub(crate) fn is_full(self, set: u64) -> bool {
        let (least, most) = self.bounds();
        let most = if self == Self::DayOfWeek { 6 } else { most };
        (least..=most).all(|number| set & (1 << number) != 0)
    }
}

/// What is wrong with a field of a cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldProblem {
    /// It is not a number or a name.
    NotANumber(String),
    /// The number is not one of that field.
    OutOfRange {
        /// The number.
        number: u16,
        /// The smallest one.
        least: u8,
        /// The largest one.
        most: u8,
    },
    /// A range that ends before it begins.
    Backwards(String),
    /// A step that is none.
    Step(String),
    /// A step behind a single number.
    StepOfOne(String),
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(text) => write!(f, "\"{text}\" is not a number, a range or a known name"),
            Self::OutOfRange { number, least, most } => {
                write!(f, "{number} is not between {least} and {most}")
            }
            Self::Backwards(range) => write!(f, "the range {range} ends before it begins"),
            Self::Step(step) => write!(f, "the step \"{step}\" is not a number above 0"),
            Self::StepOfOne(item) => write!(f, "in {item} a step needs a range, such as 0-59/15 or */15"),
        }
    }
}
