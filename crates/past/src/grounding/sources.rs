//! What sources say, in the forms in which a summary may repeat it.

use std::collections::BTreeSet;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use quipu_protocol::UnixMs;

use super::ClaimKind;
use super::claim::{Claim, ClaimValue, Lists, NumberClaim, Precision, bare};
use super::common_table::is_common;
use super::date::{DateParts, dates, weekday, year};
use super::number::{Clock, Dimension, Quantity, clock, in_words, literal, ordinal, scale, suffixed, unit};
use super::token::tokens;

/// A source of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceText<'a> {
    /// What it says.
    pub text: &'a str,
    /// When it was said. Days such as "yesterday" are counted from here, and the day itself may be named.
    pub at: Option<UnixMs>,
}

/// Numbers of one source whose differences are formed, at most.
const COMPUTED: usize = 60;
/// Numbers whose sum is formed, at most.
const SUMMED: usize = 6;

/// What the sources of a summary say.
#[derive(Debug, Clone, Default)]
pub struct GroundingSources {
    /// All texts, with single spaces and plain quotation marks.
    flat: String,
    /// The same in small letters.
    lower: String,
    words: BTreeSet<String>,
    /// Numbers of each source in their order.
    numbers: Vec<Vec<Quantity>>,
    /// Numbers that follow from others.
    computed: Vec<Quantity>,
    clocks: Vec<Clock>,
    dates: Vec<DateParts>,
    /// Years of the times of the sources.
    years: BTreeSet<i16>,
    /// How many things are listed somewhere.
    counts: BTreeSet<usize>,
    /// How many files are named: in one source, or in all.
    file_counts: BTreeSet<usize>,
}

impl GroundingSources {
    /// Reads the sources. The zone says which day a time is in.
    #[must_use]
    pub fn new(sources: &[SourceText<'_>], zone: &TimeZone) -> Self {
        let mut all = Self::default();
        let mut files = BTreeSet::new();
        let mut speakers = BTreeSet::new();
        for source in sources {
            let day = source.at.and_then(|at| Timestamp::from_millisecond(at).ok());
            let day = day.map(|at| zone.to_datetime(at).date());
            all.flat.push_str(&flat(source.text));
            // No quote reaches from one source into the next.
            all.flat.push('\n');
            all.read_dates(source.text, day);
            all.read_numbers(source.text);
            let words = tokens(source.text);
            let lists = Lists::of(&words);
            all.counts.extend(lists.all());
            let own: BTreeSet<String> =
                words.iter().filter_map(|word| file_name(word.text)).map(str::to_owned).collect();
            all.file_counts.insert(own.len());
            files.extend(own);
            speakers.extend(words.first().filter(|word| word.after.starts_with(':')).map(|word| word.text));
        }
        all.file_counts.insert(files.len());
        all.counts.extend((speakers.len() > 1).then_some(speakers.len()));
        all.lower = all.flat.to_lowercase();
        all.words = all.lower.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
        // Names within identifiers.
        for run in all.flat.split(|c: char| !c.is_alphanumeric()) {
            all.words.extend(humps(run).map(str::to_lowercase));
        }
        all.compute();
        all
    }

    fn read_dates(&mut self, text: &str, day: Option<Date>) {
        let words = tokens(text);
        if let Some(day) = day {
            self.years.insert(day.year());
            self.dates.push(day.into());
        }
        let mut month_before = day.map(Date::month);
        let mut at = 0;
        while at < words.len() {
            if let Some((found, taken)) = dates(&words, at) {
                for (date, _, _) in found {
                    month_before = date.month.or(month_before);
                    self.years.extend(date.year);
                    match date {
                        DateParts { month: None, weekday: None, day: Some(only), .. } => {
                            self.dates.push(DateParts { month: month_before, ..date });
                            // "until the 3rd", said at the end of a month
                            if let Some(day) = day.filter(|day| only < day.day()) {
                                let month = Some(day.month() % 12 + 1);
                                self.dates.push(DateParts { month, ..date });
                            }
                        }
                        _ => self.dates.push(date),
                    }
                    if let (Some(weekday), Some(day)) = (date.weekday, day) {
                        self.near(day, weekday);
                    }
                }
                at += taken;
                continue;
            }
            let word = words[at].text.to_lowercase();
            let before = at.checked_sub(1).map_or("", |before| words[before].text);
            let shift = match word.as_str() {
                "yesterday" => Some(-1),
                "night" if before.eq_ignore_ascii_case("last") => Some(-1),
                "tomorrow" => Some(1),
                _ => None,
            };
            if let (Some(shift), Some(day)) = (shift, day) {
                self.dates.extend(day.checked_add(Span::new().days(shift)).ok().map(DateParts::from));
            }
            if let (Some(weekday), Some(day)) = (weekday(&word), day) {
                self.near(day, weekday);
            }
            self.years.extend(year(words[at].text));
            at += 1;
        }
    }

    /// A day of the week: the one before, the one after, and the next but one of today's.
    fn near(&mut self, day: Date, weekday: jiff::civil::Weekday) {
        for shift in -7_i64..=7 {
            let near = day.checked_add(Span::new().days(shift)).ok();
            self.dates.extend(near.filter(|near| near.weekday() == weekday).map(DateParts::from));
        }
    }

    fn read_numbers(&mut self, text: &str) {
        let mut found: Vec<Quantity> = Vec::new();
        let words = tokens(text);
        // In words, times of day, and dates, whose parts are no numbers of their own.
        let mut skip: Vec<std::ops::Range<usize>> = Vec::new();
        let mut at = 0;
        while at < words.len() {
            if let Some((dates, taken)) = dates(&words, at) {
                skip.push(words[at].start..words[at + taken - 1].place().end);
                // "3 May" may also be three of something.
                let is_sure = dates.iter().all(|(date, _, _)| date.day.is_some());
                at += if is_sure { taken } else { 1 };
                continue;
            }
            if let Some((clock, taken)) = clock(&words, at) {
                self.clocks.push(clock);
                skip.push(words[at].start..words[at + taken - 1].place().end);
                at += taken;
                continue;
            }
            let word = words[at].text.to_lowercase();
            let said = match word.as_str() {
                "a" | "an" => Some((1.0, 1)),
                "once" => Some((1.0, 1)),
                "twice" | "both" => Some((2.0, 1)),
                "half" => Some((0.5, 1)),
                "couple" => Some((2.0, 1)),
                "hundred" => Some((100.0, 1)),
                "no" | "none" | "nothing" => Some((0.0, 1)),
                _ => in_words(&words, at).or_else(|| {
                    ordinal(&word).filter(|_| word != "second").map(|number| (f64::from(number), 1))
                }),
            };
            if let Some((value, taken)) = said {
                let next = |n: usize| words.get(at + n).map_or("", |token| token.text);
                let (value, taken) =
                    scale(next(taken)).map_or((value, taken), |scale| (value * scale, taken + 1));
                let half = if next(taken) == "and" && next(taken + 1) == "a" && next(taken + 2) == "half" {
                    0.5
                } else {
                    0.0
                };
                let plain = Quantity::plain(value + half);
                // "six hour run", "two free months"
                match unit(next(taken)).or_else(|| unit(next(taken + 1))) {
                    Some((dimension, unit)) => found.push(Quantity { dimension, unit, ..plain }),
                    None if matches!(word.as_str(), "a" | "an") => {}
                    None => found.push(plain),
                }
                if value == 0.5 {
                    found.push(Quantity { dimension: Dimension::Percent, ..Quantity::plain(50.0) });
                }
                at += taken.max(1);
                continue;
            }
            at += 1;
        }
        self.read_digits(text, &skip, &mut found);
        self.numbers.push(found);
    }

    /// Every number in digits, also within words.
    fn read_digits(&mut self, text: &str, skip: &[std::ops::Range<usize>], found: &mut Vec<Quantity>) {
        let mut at = 0;
        let mut duration: Option<(f64, f64, usize)> = None;
        let mut skip = skip.iter().peekable();
        while let Some(from) = text[at..].find(|c: char| c.is_ascii_digit()).map(|from| at + from) {
            while skip.peek().is_some_and(|range| range.end <= from) {
                skip.next();
            }
            if let Some(range) = skip.peek().filter(|range| range.start <= from) {
                at = range.end;
                continue;
            }
            let Some((value, step, length)) = literal(&text[from..]) else { break };
            at = from + length;
            let rest = &text[at..];
            let is_version = rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit())
                || from > 1
                    && text[..from].ends_with('.')
                    && text[..from - 1].ends_with(|c: char| c.is_ascii_digit());
            if is_version {
                continue;
            }
            let gap =
                rest.chars().next().filter(|c| matches!(c, ' ' | '\u{a0}' | '-')).map_or(0, char::len_utf8);
            let letters = |from: usize| {
                let rest = &text[from..];
                let is_part = |c: char| c.is_alphabetic() || matches!(c, '%' | '\u{b0}');
                &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())]
            };
            let word = letters(at + gap);
            let plain = Quantity { step, ..Quantity::plain(value) };
            // "4m05s"
            let is_minutes = word == "m" && text[at + gap + 1..].starts_with(|c: char| c.is_ascii_digit());
            let scaled = match word {
                "" => None,
                _ if is_minutes => Some(Quantity { dimension: Dimension::Seconds, unit: 60.0, ..plain }),
                word => suffixed(value, step, word, false),
            };
            // What has a unit is not something else as well.
            if scaled.is_none_or(|scaled| scaled.dimension == Dimension::Plain) {
                found.push(plain);
            }
            let Some(scaled) = scaled.filter(|scaled| *scaled != plain) else { continue };
            found.push(scaled);
            let mut end = at + gap + word.len();
            if scaled.is_scaled {
                let gap = usize::from(text[end..].starts_with(' '));
                let next = letters(end + gap);
                if let Some((dimension, unit)) = unit(next) {
                    found.push(Quantity { dimension, unit, ..scaled });
                    end += gap + next.len();
                }
            }
            if scaled.dimension == Dimension::Seconds {
                // "3 h 20 min"
                let seconds = scaled.value * scaled.unit;
                let joined = duration.filter(|(_, unit, end)| {
                    *unit > scaled.unit && matches!(text[*end..from].trim(), "" | "and" | ",")
                });
                let sum = joined.map_or(seconds, |(sum, _, _)| sum + seconds);
                if joined.is_some() {
                    found.push(Quantity { dimension: Dimension::Seconds, ..Quantity::plain(sum) });
                }
                duration = Some((sum, scaled.unit, end));
            }
        }
    }

    /// Durations between times of day and days; sums that are written out.
    fn compute(&mut self) {
        let clocks: Vec<Clock> = self.clocks.iter().take(COMPUTED).copied().collect();
        for (n, first) in clocks.iter().enumerate() {
            for second in &clocks[n + 1..] {
                let minutes = first.minutes.abs_diff(second.minutes);
                for minutes in [minutes, 1_440 - minutes] {
                    let minutes = Quantity::plain(f64::from(minutes));
                    self.computed.push(Quantity { dimension: Dimension::Seconds, unit: 60.0, ..minutes });
                }
            }
        }
        let days: Vec<Date> = self.days().into_iter().take(COMPUTED).collect();
        for (n, first) in days.iter().enumerate() {
            for second in &days[n + 1..] {
                let between = second.since((jiff::Unit::Day, *first)).map_or(0, |span| span.get_days().abs());
                for between in [between, between + 1] {
                    let between = Quantity::plain(f64::from(between));
                    self.computed.push(Quantity { dimension: Dimension::Seconds, unit: 86_400.0, ..between });
                }
            }
        }
        for (at, _) in self.flat.match_indices(" + ") {
            let before = self.flat[..at].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let after = literal(&self.flat[at + 3..]);
            if let (Ok(before), Some((after, _, _))) = (before.parse::<f64>(), after) {
                self.computed.push(Quantity::plain(before + after));
            }
        }
    }

    /// The days that are known with month; the year may be that of the sources.
    fn days(&self) -> BTreeSet<Date> {
        let year = self.years.first().copied().unwrap_or(2_000);
        let day = |date: &DateParts| Date::new(date.year.unwrap_or(year), date.month?, date.day?).ok();
        self.dates.iter().filter_map(day).collect()
    }

    /// Whether the sources say what is claimed.
    pub(super) fn knows(&self, claim: &Claim) -> bool {
        match &claim.value {
            ClaimValue::Number(number) => self.knows_number(number),
            ClaimValue::Clock(clock, text) => {
                self.clocks.iter().any(|known| known.agrees(*clock))
                    || text.contains(':') && self.has(text, claim.kind)
            }
            ClaimValue::Date(date) => self.knows_date(date),
            ClaimValue::Year(year) => self.knows_year(*year),
            ClaimValue::Text(text) if claim.kind == ClaimKind::Quote => self.has_quote(text),
            ClaimValue::Text(text) => self.has_text(text, claim.kind),
            ClaimValue::Name { word, begins_sentence } => self.has_name(word, *begins_sentence),
        }
    }

    fn knows_year(&self, year: i16) -> bool {
        self.years.contains(&year)
            || self.numbers.iter().flatten().any(|known| known.value == f64::from(year))
            // The turn of the year lies between "December" and "January 4".
            || self.years.contains(&(year - 1)) && self.dates.iter().any(|date| date.month == Some(1))
    }

    fn knows_date(&self, date: &DateParts) -> bool {
        let is_same = |known: &DateParts| {
            let year = match (date.year, known.year) {
                (Some(year), Some(known)) => year == known,
                (Some(year), None) => self.years.is_empty() || self.knows_year(year),
                (None, _) => true,
            };
            let month = date.month.is_none() || known.month.is_none() || date.month == known.month;
            let day = date.day.is_none() || date.day == known.day;
            let weekday = date.weekday.is_none() || date.weekday == known.weekday;
            // A month alone does not stand for each of its days.
            let is_as_exact = date.month.is_none() || known.month.is_some() || known.day.is_some();
            year && month && day && weekday && is_as_exact
        };
        self.dates.iter().any(is_same)
    }

    fn knows_number(&self, claim: &NumberClaim) -> bool {
        let wanted = claim.quantity;
        if self.numbers.iter().flatten().any(|known| is_meant(claim, known)) {
            return true;
        }
        // What nobody said has to be of the same kind, and exact where the summary does not say otherwise.
        let follows_exactly = |known: &&Quantity| {
            let difference = known.value * known.unit - wanted.value * wanted.unit;
            known.dimension == wanted.dimension
                && (difference.abs() < 1e-6 || claim.precision != Precision::Exact && is_meant(claim, known))
        };
        if self.computed.iter().any(|known| follows_exactly(&known)) {
            return true;
        }
        let whole = (2..=30_u8).find(|count| f64::from(*count) == wanted.value);
        if let Some(count) = whole.filter(|_| wanted.dimension == Dimension::Plain && !wanted.is_scaled) {
            let count = usize::from(count);
            let is_file = ["file", "module", "document", "script", "path"]
                .iter()
                .any(|noun| claim.noun.starts_with(noun));
            if claim.listed.contains(&count)
                || self.counts.contains(&count)
                || is_file && self.file_counts.contains(&count)
            {
                return true;
            }
        }
        (claim.is_difference || claim.is_sum) && self.numbers.iter().any(|own| follows(claim, own))
    }

    fn has_quote(&self, text: &str) -> bool {
        let text = flat(text).to_lowercase();
        if !text.chars().any(char::is_alphanumeric) {
            return self.lower.contains(text.trim());
        }
        // Where something was left out, each part has to occur.
        let parts = text.split("...").flat_map(|part| part.split('\u{2026}'));
        let marks = |c: char| c.is_whitespace() || ".,;:!?()[]".contains(c);
        let mut parts = parts.map(|part| part.trim_matches(marks)).filter(|part| !part.is_empty());
        parts.all(|part| is_bounded(&self.lower, part, false))
    }

    /// An identifier or a path. Its casing counts, except that of a first letter.
    fn has_text(&self, text: &str, kind: ClaimKind) -> bool {
        let text = text.strip_suffix("()").unwrap_or(text).trim();
        if self.has(text, kind) {
            return true;
        }
        if let Some(first) = text.chars().next() {
            let rest = &text[first.len_utf8()..];
            let other: String = match first.is_uppercase() {
                true => first.to_lowercase().collect(),
                false => first.to_uppercase().collect(),
            };
            if first.is_alphabetic() && self.has(&(other + rest), kind) {
                return true;
            }
        }
        // "v1.8.0" and "1.8.0"
        if let Some(version) =
            text.strip_prefix('v').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return self.has(version, kind);
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) && self.has(&format!("v{text}"), kind) {
            return true;
        }
        if kind == ClaimKind::Path && text.contains('/') {
            // A folder that is named apart from its file, or words with a slash.
            let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
            return parts.len() > 1
                && parts
                    .iter()
                    .all(|part| self.has(part, kind) || self.words.contains(&part.to_lowercase()));
        }
        // Several words in backticks.
        let mut words = text.split_whitespace();
        text.contains(char::is_whitespace) && words.all(|word| self.has(word, kind))
    }

    fn has(&self, text: &str, kind: ClaimKind) -> bool {
        is_bounded(&self.flat, &flat(text), kind == ClaimKind::Path)
    }

    fn has_name(&self, word: &str, begins_sentence: bool) -> bool {
        let lower = bare(word).to_lowercase();
        if self.words.contains(&lower) || is_related(&lower, &self.words) {
            return true;
        }
        begins_sentence && is_common(&lower)
    }
}

/// Whether a known number is what is meant: the same, or the same as exactly as it was said.
fn is_meant(claim: &NumberClaim, known: &Quantity) -> bool {
    let wanted = claim.quantity;
    let is_measured = wanted.dimension != Dimension::Plain && known.dimension != Dimension::Plain;
    if is_measured && wanted.dimension != known.dimension {
        return false;
    }
    // In the unit of the claim.
    let value = if is_measured { known.value * known.unit / wanted.unit } else { known.value };
    let is_close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    if is_close(value, wanted.value) {
        return true;
    }
    // Months and years have no fixed length.
    let is_long = is_measured && wanted.unit.max(known.unit) >= 2_000_000.0;
    if is_long && (value - wanted.value).abs() <= 0.02 * wanted.value {
        return true;
    }
    let is_finer = known.step * known.unit < wanted.step * wanted.unit * (1.0 - 1e-9);
    let may_round = is_measured || wanted.is_scaled || claim.precision != Precision::Exact;
    let rounded = (value / wanted.step).round() * wanted.step;
    if may_round && (is_finer || is_measured) && is_close(rounded, wanted.value) && wanted.value != 0.0 {
        return true;
    }
    let share = value / wanted.value;
    match claim.precision {
        Precision::Exact => false,
        Precision::About => (0.9..=1.1).contains(&share),
        Precision::Over => (1.0..=1.15).contains(&share),
        Precision::Under => (0.85..=1.0).contains(&share),
    }
}

/// Whether a number is a difference or a sum of some of one source.
fn follows(claim: &NumberClaim, own: &[Quantity]) -> bool {
    let own = &own[..own.len().min(COMPUTED)];
    let same = |value: f64, of: &Quantity| {
        let plain = Quantity { value, ..*of };
        value > 0.0 && is_meant(&NumberClaim { precision: Precision::Exact, ..claim.clone() }, &plain)
    };
    let difference = claim.is_difference
        && own.iter().enumerate().any(|(n, first)| {
            own[n + 1..].iter().any(|second| {
                first.dimension == second.dimension
                    && first.unit == second.unit
                    && same((first.value - second.value).abs(), first)
            })
        });
    let sum = claim.is_sum
        && (0..own.len()).any(|n| {
            let mut total = own[n].value;
            own[n + 1..].iter().take(SUMMED).any(|next| {
                total += next.value;
                same(total, &own[n])
            })
        });
    difference || sum
}

/// The file that a word names, without its folder.
fn file_name(word: &str) -> Option<&str> {
    let word = word.split(':').next()?;
    let name = word.rsplit('/').next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    let is_ending = (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_lowercase());
    (is_ending && !stem.is_empty() && stem.chars().any(char::is_alphabetic)).then_some(name)
}

/// With single spaces and plain marks.
fn flat(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !flat.is_empty() {
            flat.push(' ');
        }
        flat.extend(word.chars().map(|c| match c {
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' => '\'',
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{ab}' | '\u{bb}' => '"',
            '\u{2010}' | '\u{2011}' | '\u{2012}' | '\u{2013}' | '\u{2212}' => '-',
            '\u{3bc}' => '\u{b5}',
            c => c,
        }));
    }
    flat
}

/// Whether a text has another one that does not begin or end within a word.
fn is_bounded(text: &str, part: &str, is_path: bool) -> bool {
    if part.is_empty() {
        return false;
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let begins = part.starts_with(is_word);
    let ends = part.ends_with(is_word);
    text.match_indices(part).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + part.len()..].chars().next();
        let joins = |c: char| is_word(c) || is_path && matches!(c, '-' | '.');
        !(begins && before.is_some_and(joins) || ends && after.is_some_and(is_word))
    })
}

/// Parts of an identifier in mixed case.
fn humps(run: &str) -> impl Iterator<Item = &str> {
    let mut starts = vec![0];
    let letters: Vec<(usize, char)> = run.char_indices().collect();
    for pair in letters.windows(2) {
        if pair[0].1.is_lowercase() && pair[1].1.is_uppercase() {
            starts.push(pair[1].0);
        }
    }
    starts.push(run.len());
    let parts: Vec<&str> = starts.windows(2).map(|ends| &run[ends[0]..ends[1]]).collect();
    parts.into_iter()
}

/// Whether a known word has the same beginning and another short ending: "Canadian" and "Canada".
fn is_related(word: &str, known: &BTreeSet<String>) -> bool {
    let letters: Vec<char> = word.chars().collect();
    if letters.len() < 5 {
        return false;
    }
    let shared = (letters.len() - 3).max(5);
    let Some(stem) = letters.get(..shared).map(|stem| stem.iter().collect::<String>()) else { return false };
    known
        .range::<str, _>((std::ops::Bound::Included(stem.as_str()), std::ops::Bound::Unbounded))
        .take_while(|known| known.starts_with(&stem))
        .any(|known| known.chars().count() <= shared + 3)
}
