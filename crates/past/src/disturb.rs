//! A summary with other dates, names and numbers, to see whether a reader of covers notices. The same summary and seed give the
//! same text, and a name or number is replaced by the same one in every summary of a seed.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::grounding::{Claim, ClaimKind, ClaimValue, DateParts, claims, is_unit, month_name};

/// Something that was changed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Disturbance {
    /// What it is.
    pub kind: ClaimKind,
    /// As it was.
    pub was: String,
    /// As it is.
    pub now: String,
    /// Where it stands in the new text, in bytes.
    pub place: Range<usize>,
}

/// A text with changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DisturbedSummary {
    /// The new text.
    pub text: String,
    /// What was changed, by place.
    pub changes: Vec<Disturbance>,
}

/// Names that are seldom.
const NAMES: [&str; 48] = [
    "Abelwyn",
    "Brontaria",
    "Calvoss",
    "Dremmick",
    "Eskavar",
    "Fenwrick",
    "Golstrand",
    "Hyzanthe",
    "Iverquist",
    "Jorvalden",
    "Kestrowe",
    "Lumbrecht",
    "Mordavia",
    "Nystrava",
    "Oldrune",
    "Pellworth",
    "Quillon",
    "Rasmonde",
    "Sylvarth",
    "Tarnowick",
    "Umbrello",
    "Vexholm",
    "Wyndrake",
    "Xandoria",
    "Yarvell",
    "Zephrosa",
    "Ambrovic",
    "Belquora",
    "Corwyth",
    "Dunmorrow",
    "Elgravia",
    "Farlotte",
    "Grimsvale",
    "Halvenna",
    "Istravon",
    "Jadwiska",
    "Korvenna",
    "Lathrune",
    "Mirovald",
    "Nethersby",
    "Orsavelle",
    "Pravenna",
    "Quorliss",
    "Rhudwick",
    "Selmorra",
    "Thornquil",
    "Ulverane",
    "Varnholt",
];

/// Changes the dates, names and numbers of a summary. Paths, identifiers and quotes stay.
#[must_use]
pub fn disturb(summary: &str, seed: u64) -> DisturbedSummary {
    let mut disturbed = DisturbedSummary::default();
    let mut copied = 0;
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for claim in claims(summary) {
        let Some(was) = summary.get(claim.place.clone()).filter(|_| claim.place.start >= copied) else {
            continue;
        };
        let Some(now) = known.get(was).cloned().or_else(|| changed(&claim, was, seed)) else { continue };
        known.insert(was.to_owned(), now.clone());
        disturbed.text.push_str(&summary[copied..claim.place.start]);
        let start = disturbed.text.len();
        disturbed.text.push_str(&now);
        let place = start..disturbed.text.len();
        disturbed.changes.push(Disturbance { kind: claim.kind, was: was.to_owned(), now, place });
        copied = claim.place.end;
    }
    disturbed.text.push_str(&summary[copied..]);
    disturbed
}

fn changed(claim: &Claim, was: &str, seed: u64) -> Option<String> {
    let draw = Draw::new(seed, was);
    match &claim.value {
        ClaimValue::Name { begins_sentence: true, .. } => None,
        ClaimValue::Name { .. } => Some(draw.of(&NAMES).to_owned()),
        ClaimValue::Date(date) => Some(other_date(*date, was, &draw)),
        ClaimValue::Year(_) | ClaimValue::Number(_) | ClaimValue::Clock(..) => Some(other_number(was, &draw)),
        ClaimValue::Text(_) => None,
    }
}

/// Bytes that depend on the seed and a text alone.
struct Draw([u8; 32]);

impl Draw {
    fn new(seed: u64, text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_be_bytes());
        hash.update(text.to_lowercase());
        Self(hash.finalize().into())
    }

    fn at(&self, n: usize) -> usize {
        usize::from(self.0[n % 32])
    }

    fn of<'a>(&self, list: &[&'a str]) -> &'a str {
        list[(self.at(0) * 256 + self.at(1)) % list.len()]
    }
}

/// Digits before the point, at least: smaller numbers stand in many sources by chance.
const DIGITS: usize = 3;

/// The same form with other digits; a number in words becomes one in digits.
fn other_number(was: &str, draw: &Draw) -> String {
    let word = was.split_once(' ').map_or(was, |(word, _)| word);
    if !was.chars().any(|c| c.is_ascii_digit()) {
        let number = 301 + (draw.at(0) * 256 + draw.at(1)) % 699;
        // The last word may be a unit.
        let last = was.rsplit_once(' ').map_or("", |(_, last)| last);
        return if is_unit(last) { format!("{number} {last}") } else { number.to_string() };
    }
    if was.contains(':') {
        return other_clock(was, draw);
    }
    let half_of_day = was.trim_end_matches('.').to_lowercase();
    if let (Ok(hour), true) = (
        word.trim_end_matches(char::is_alphabetic).parse::<usize>(),
        half_of_day.ends_with('m') && hour_mark(&half_of_day),
    ) {
        let other = (hour + 2 + draw.at(0) % 8) % 12 + 1;
        return was.replacen(&hour.to_string(), &other.to_string(), 1);
    }
    let first = was.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
    let whole = was[first..].bytes().take_while(u8::is_ascii_digit).count();
    let is_grouped = was[first + whole..].starts_with(',');
    let mut now = String::new();
    for (n, c) in was.chars().enumerate() {
        let Some(digit) = c.to_digit(10) else {
            now.push(c);
            continue;
        };
        let other = (digit as usize + 2 + draw.at(n) % 7) % 10;
        let is_first = !now.chars().any(|c| c.is_ascii_digit());
        now.push(digit_of(if is_first && other == 0 { 7 } else { other }));
        if is_first && !is_grouped {
            (whole..DIGITS).for_each(|n| now.push(digit_of(1 + draw.at(16 + n) % 9)));
        }
    }
    now
}

/// Whether a time ends in "am" or "pm".
fn hour_mark(was: &str) -> bool {
    ["am", "pm", "a.m", "p.m"].iter().any(|mark| was.ends_with(mark))
}

/// Other minutes, and other seconds.
fn other_clock(was: &str, draw: &Draw) -> String {
    let mut now = String::new();
    for (n, c) in was.chars().enumerate() {
        match c.to_digit(10).filter(|_| now.ends_with(':')) {
            Some(digit) => now.push(digit_of((digit as usize + 1 + draw.at(n) % 4) % 6)),
            None => now.push(c),
        }
    }
    now
}

fn digit_of(digit: usize) -> char {
    u32::try_from(digit).ok().and_then(|digit| char::from_digit(digit, 10)).unwrap_or('1')
}

/// Another month, or another day where there is no month.
fn other_date(date: DateParts, was: &str, draw: &Draw) -> String {
    if let Some(weekday) = date.weekday {
        const DAYS: [&str; 7] =
            ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
        let today = usize::try_from(weekday.to_monday_zero_offset()).unwrap_or(0);
        return DAYS[(today + 1 + draw.at(0) % 6) % 7].to_owned();
    }
    let other_day = |day: i8| {
        let shift = i8::try_from(3 + draw.at(1) % 20).unwrap_or(3);
        (day - 1 + shift).rem_euclid(28) + 1
    };
    let Some(month) = date.month else {
        return date.day.map_or_else(|| was.to_owned(), |day| format!("{}th", 4 + other_day(day) % 16));
    };
    let month = (month - 1 + i8::try_from(2 + draw.at(0) % 8).unwrap_or(5)) % 12 + 1;
    let is_iso = was.starts_with(|c: char| c.is_ascii_digit()) && was.contains('-');
    match (date.year, date.day) {
        (Some(year), Some(day)) if is_iso => format!("{year:04}-{month:02}-{:02}", other_day(day)),
        (Some(year), Some(day)) => format!("{} {} {year}", other_day(day), month_name(month)),
        (Some(year), None) => format!("{} {year}", month_name(month)),
        (None, Some(day)) => format!("{} {}", other_day(day), month_name(month)),
        (None, None) => month_name(month).to_owned(),
    }
}
