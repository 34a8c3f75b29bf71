//! Dates as people write them, also without year or month.

use jiff::civil::{Date, Weekday};

use super::number::ordinal;
use super::token::Token;

/// What is said of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DateParts {
    pub(crate) year: Option<i16>,
    pub(crate) month: Option<i8>,
    pub(crate) day: Option<i8>,
    pub(crate) weekday: Option<Weekday>,
}

impl From<Date> for DateParts {
    fn from(date: Date) -> Self {
        Self {
            year: Some(date.year()),
            month: Some(date.month()),
            day: Some(date.day()),
            weekday: Some(date.weekday()),
        }
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The name of a month, from 1.
pub(crate) fn month_name(month: i8) -> &'static str {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    usize::try_from(month - 1).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or("January")
}

/// The month of a name or its first letters, in capitals as months are written.
fn month(word: &str) -> Option<i8> {
    if !word.starts_with(char::is_uppercase) {
        return None;
    }
    let lower = word.to_lowercase();
    let lower = if lower == "sept" { "sep" } else { &lower };
    let at = MONTHS.iter().position(|name| *name == lower || lower.len() == 3 && name.starts_with(lower))?;
    i8::try_from(at + 1).ok()
}

pub(super) fn weekday(word: &str) -> Option<Weekday> {
    let lower = word.to_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    match singular {
        "monday" => Some(Weekday::Monday),
        "tuesday" => Some(Weekday::Tuesday),
        "wednesday" => Some(Weekday::Wednesday),
        "thursday" => Some(Weekday::Thursday),
        "friday" => Some(Weekday::Friday),
        "saturday" => Some(Weekday::Saturday),
        "sunday" => Some(Weekday::Sunday),
        _ => None,
    }
}

/// The day of a month in digits, "21st" included, or "third".
fn day(word: &str) -> Option<i8> {
    let number = match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true if word.len() <= 2 => word.parse().ok()?,
        true => return None,
        false => i8::try_from(ordinal(word)?).ok()?,
    };
    (1..=31).contains(&number).then_some(number)
}

pub(super) fn year(word: &str) -> Option<i16> {
    let is_year = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|year| is_year && (1_800..=2_200).contains(year))
}

/// `2026-05-04`, also with a time behind it.
fn iso(word: &str) -> Option<DateParts> {
    let bytes = word.as_bytes();
    let is_apart = bytes.len() == 10 || matches!(bytes.get(10), Some(b'T' | b't' | b'.' | b'_' | b'-'));
    if bytes.len() < 10 || bytes[4] != b'-' || bytes[7] != b'-' || !is_apart {
        return None;
    }
    let (year, month, day) = (word.get(..4)?, word.get(5..7)?, word.get(8..10)?);
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(DateParts { weekday: None, ..date.into() })
}

/// Words before a month that stands alone.
const BEFORE_MONTH: [&str; 14] = [
    "in", "of", "since", "by", "until", "during", "from", "next", "last", "early", "late", "mid", "till",
    "for",
];

/// A date, and from which to which word it stands.
pub(super) type DatePlace = (DateParts, usize, usize);

/// The dates that begin at `at`, with the words that each of them has; how many words they take together.
pub(super) fn dates(tokens: &[Token<'_>], at: usize) -> Option<(Vec<DatePlace>, usize)> {
    let text = |n: usize| tokens.get(at + n).map_or("", |token| token.text);
    let is_open = |n: usize| tokens.get(at + n).is_some_and(|token| token.after.is_empty());
    let is_near = |n: usize| tokens.get(at + n).is_some_and(|token| matches!(token.after, "" | ","));
    let first = text(0);
    if let Some(date) = iso(first) {
        return Some((vec![(date, 0, 1)], 1));
    }
    let is_until = |word: &str| matches!(word, "to" | "until" | "through" | "and" | "till");
    if let Some(month) = month(first.trim_end_matches('.')) {
        if is_open(0) || tokens.get(at).is_some_and(|token| token.after == ".") {
            // May 18-22
            let (head, tail) = first_and_last(text(1));
            if let Some(start) = day(head) {
                let of = |day| DateParts { month: Some(month), day: Some(day), ..DateParts::default() };
                let mut found = vec![(of(start), 0, 2)];
                let mut taken = 2;
                if let Some(end) = tail.and_then(day) {
                    found.push((of(end), 1, 2));
                } else if is_open(1)
                    && is_until(text(2))
                    && let Some(end) = day(text(3))
                    && is_month_free(text(4))
                {
                    found.push((of(end), 3, 4));
                    taken = 4;
                }
                if is_near(taken - 1)
                    && let Some(year) = year(text(taken))
                {
                    found.iter_mut().for_each(|(date, _, _)| date.year = Some(year));
                    if let [only] = &mut found[..] {
                        only.2 = taken + 1;
                    }
                    taken += 1;
                }
                return Some((found, taken));
            }
            if let Some(year) = year(text(1)) {
                let date = DateParts { month: Some(month), year: Some(year), ..DateParts::default() };
                return Some((vec![(date, 0, 2)], 2));
            }
        }
        let before = at.checked_sub(1).map_or(String::new(), |before| tokens[before].text.to_lowercase());
        let is_word = matches!(first, "May" | "March" | "Mar" | "Sun" | "Dec" | "Jan" | "Jun");
        let is_month = BEFORE_MONTH.contains(&before.as_str()) || !is_word;
        let date = DateParts { month: Some(month), ..DateParts::default() };
        return is_month.then(|| (vec![(date, 0, 1)], 1));
    }
    if let Some(weekday) = weekday(first)
        && first.starts_with(char::is_uppercase)
    {
        return Some((vec![(DateParts { weekday: Some(weekday), ..DateParts::default() }, 0, 1)], 1));
    }
    // 4 May, 14 to 21 October 2025, the third of August
    let (head, tail) = first_and_last(first);
    if let Some(start) = day(head) {
        let (end, mut taken) = match tail.and_then(day) {
            Some(end) => (Some((end, 0, 1)), 1),
            None if is_open(0) && is_until(text(1)) => match day(text(2)) {
                Some(end) => (Some((end, 2, 3)), 3),
                None => (None, 1),
            },
            None => (None, 1),
        };
        let of = usize::from(text(taken) == "of");
        if is_open(taken - 1)
            && let Some(month) = month(text(taken + of).trim_end_matches('.'))
        {
            taken += of + 1;
            let year = year(text(taken)).filter(|_| is_near(taken - 1));
            let date = |day| DateParts { year, month: Some(month), day: Some(day), weekday: None };
            let whole = taken + usize::from(year.is_some());
            let found = match end {
                Some((end, from, _)) => vec![(date(start), 0, 1), (date(end), from, whole)],
                None => vec![(date(start), 0, whole)],
            };
            return Some((found, whole));
        }
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text);
        let is_ordinal = first.ends_with(['t', 'd', 'h']) && first.starts_with(|c: char| c.is_ascii_digit());
        if is_ordinal && before == "the" {
            return Some((vec![(DateParts { day: Some(start), ..DateParts::default() }, 0, 1)], 1));
        }
    }
    None
}

/// `18-22` as two words.
fn first_and_last(word: &str) -> (&str, Option<&str>) {
    match word.split_once(['-', '\u{2013}']) {
        Some((first, last)) => (first, Some(last)),
        None => (word, None),
    }
}

fn is_month_free(word: &str) -> bool {
    month(word).is_none()
}
