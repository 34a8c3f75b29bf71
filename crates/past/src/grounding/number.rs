//! Numbers as people write them: in digits and words, with units and scales, and times of day.

use super::token::Token;

/// What a unit measures. Other units are words like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dimension {
    Plain,
    Seconds,
    Bytes,
    Percent,
}

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantity {
    /// As written, scales such as "million" included.
    pub(crate) value: f64,
    pub(crate) dimension: Dimension,
    /// How much one of its unit is.
    pub(crate) unit: f64,
    /// The smallest step that it was written with: 0.1 for 8.4, 100,000 for 1.2 million.
    pub(crate) step: f64,
    /// Whether it was scaled ("1.2 million", "10k").
    pub(crate) is_scaled: bool,
}

impl Quantity {
    pub(super) fn plain(value: f64) -> Self {
        Self { value, dimension: Dimension::Plain, unit: 1.0, step: 1.0, is_scaled: false }
    }
}

const UNITS: &[(&str, Dimension, f64)] = &[
    ("ms", Dimension::Seconds, 0.001),
    ("msec", Dimension::Seconds, 0.001),
    ("millisecond", Dimension::Seconds, 0.001),
    ("us", Dimension::Seconds, 0.000_001),
    ("\u{b5}s", Dimension::Seconds, 0.000_001),
    ("\u{3bc}s", Dimension::Seconds, 0.000_001),
    ("microsecond", Dimension::Seconds, 0.000_001),
    ("s", Dimension::Seconds, 1.0),
    ("sec", Dimension::Seconds, 1.0),
    ("second", Dimension::Seconds, 1.0),
    ("min", Dimension::Seconds, 60.0),
    ("minute", Dimension::Seconds, 60.0),
    ("h", Dimension::Seconds, 3_600.0),
    ("hr", Dimension::Seconds, 3_600.0),
    ("hour", Dimension::Seconds, 3_600.0),
    ("day", Dimension::Seconds, 86_400.0),
    ("night", Dimension::Seconds, 86_400.0),
    ("week", Dimension::Seconds, 604_800.0),
    ("month", Dimension::Seconds, 2_629_800.0),
    ("year", Dimension::Seconds, 31_557_600.0),
    ("b", Dimension::Bytes, 1.0),
    ("byte", Dimension::Bytes, 1.0),
    ("kb", Dimension::Bytes, 1e3),
    ("kilobyte", Dimension::Bytes, 1e3),
    ("kib", Dimension::Bytes, 1024.0),
    ("mb", Dimension::Bytes, 1e6),
    ("megabyte", Dimension::Bytes, 1e6),
    ("mib", Dimension::Bytes, 1_048_576.0),
    ("gb", Dimension::Bytes, 1e9),
    ("gigabyte", Dimension::Bytes, 1e9),
    ("gib", Dimension::Bytes, 1_073_741_824.0),
    ("tb", Dimension::Bytes, 1e12),
    ("terabyte", Dimension::Bytes, 1e12),
    ("%", Dimension::Percent, 1.0),
    ("percent", Dimension::Percent, 1.0),
    ("per cent", Dimension::Percent, 1.0),
    ("pct", Dimension::Percent, 1.0),
    ("percentage", Dimension::Percent, 1.0),
];
/// Units of other things, which only end a number.
const OTHER_UNITS: &[&str] = &[
    "px", "dpi", "fps", "km", "m", "cm", "mm", "kg", "g", "mg", "w", "kw", "v", "mv", "ma", "ua", "\u{b5}a",
    "\u{3bc}a", "hz", "khz", "mhz", "ghz", "x", "pt", "em", "rem", "vh", "vw", "eur", "usd", "gbp", "c", "l",
    "ml", "\u{b0}", "\u{b0}c", "\u{b0}f", "k", "d", "loc", "rpm", "qps", "rps", "tok", "tokens", "mbit",
    "gbit", "kbit", "mbps", "gbps", "+",
];
const SCALES: &[(&str, f64)] = &[
    ("thousand", 1e3),
    ("million", 1e6),
    ("millions", 1e6),
    ("mio", 1e6),
    ("billion", 1e9),
    ("bn", 1e9),
    ("trillion", 1e12),
];
const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const ORDINALS: [&str; 13] = [
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth",
];

/// The unit of a word, in singular or plural.
pub(super) fn unit(word: &str) -> Option<(Dimension, f64)> {
    let lower = word.to_lowercase();
    let singular = lower.strip_suffix('s').filter(|rest| rest.len() > 2);
    let find = |word: &str| UNITS.iter().find(|(name, _, _)| *name == word);
    find(&lower).or_else(|| singular.and_then(find)).map(|(_, dimension, factor)| (*dimension, *factor))
}

/// Whether a word is a unit of anything.
pub(crate) fn is_unit(word: &str) -> bool {
    unit(word).is_some() || is_other_unit(word)
}

fn is_other_unit(word: &str) -> bool {
    OTHER_UNITS.contains(&word.to_lowercase().as_str())
}

pub(super) fn scale(word: &str) -> Option<f64> {
    let lower = word.to_lowercase();
    SCALES.iter().find(|(name, _)| *name == lower).map(|(_, scale)| *scale)
}

/// Value, step and length of the number in digits that a text begins with.
pub(super) fn literal(text: &str) -> Option<(f64, f64, usize)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = digits(0);
    if at == 0 {
        return None;
    }
    let mut whole = text[..at].to_owned();
    // Groups of three.
    let separator = bytes.get(at).copied().filter(|byte| matches!(byte, b',' | b'\'' | b'_'));
    if let Some(separator) = separator
        && at <= 3
    {
        while bytes.get(at) == Some(&separator) && digits(at + 1) == 3 {
            whole.push_str(&text[at + 1..at + 4]);
            at += 4;
        }
    }
    let mut decimals = 0;
    let mut fraction = String::new();
    let point = bytes.get(at).copied();
    let after = bytes.get(at + 1..).map_or(0, |_| digits(at + 1));
    let is_decimal = after > 0 && (point == Some(b'.') || point == Some(b',') && after != 3);
    if is_decimal {
        fraction = text[at + 1..at + 1 + after].to_owned();
        decimals = after;
        at += 1 + after;
    }
    let mut value: f64 = format!("{whole}.{fraction}0").parse().ok()?;
    let mut step = 10_f64.powi(-i32::try_from(decimals).ok()?);
    // 3e-4
    if let Some(rest) = text[at..].strip_prefix(['e', 'E']) {
        let sign = usize::from(rest.starts_with(['-', '+']));
        let length = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let is_end = !rest[sign + length..].starts_with(|c: char| c.is_alphanumeric());
        if let (1..=3, true) = (length, is_end)
            && let Ok(power) = rest[..sign + length].parse::<i32>()
        {
            value *= 10_f64.powi(power);
            step *= 10_f64.powi(power);
            at += 1 + sign + length;
        }
    }
    Some((value, step, at))
}

/// A number in digits that is the whole word, with what stands around it: `€112`, `~5`, `360px`, `10k`, `30-second`, `#530`.
pub(super) fn numeric_word(word: &str) -> Option<Quantity> {
    let bare = word.trim_start_matches([
        '\u{20ac}', '$', '\u{a3}', '~', '\u{2248}', '\u{b1}', '#', '+', '-', '\u{2212}', '<', '>', '\u{d7}',
    ]);
    let (value, step, length) = literal(bare)?;
    let rest = &bare[length..];
    suffixed(value, step, rest.strip_prefix('-').unwrap_or(rest), rest.starts_with('-'))
}

/// The quantity of a number with letters behind it; none where they are no unit.
pub(super) fn suffixed(value: f64, step: f64, rest: &str, is_hyphen: bool) -> Option<Quantity> {
    let plain = Quantity { value, dimension: Dimension::Plain, unit: 1.0, step, is_scaled: false };
    let rest = rest.strip_suffix("/s").or_else(|| rest.strip_suffix("/h")).unwrap_or(rest);
    if rest.is_empty() {
        return (!is_hyphen).then_some(plain);
    }
    let scaled = |scale: f64| Quantity { value: value * scale, step: step * scale, is_scaled: true, ..plain };
    match rest {
        "k" | "K" => return Some(scaled(1e3)),
        "M" => return Some(scaled(1e6)),
        "bn" => return Some(scaled(1e9)),
        _ => {}
    }
    if let Some(scale) = scale(rest) {
        return Some(scaled(scale));
    }
    if let Some((dimension, unit)) = unit(rest) {
        return Some(Quantity { dimension, unit, ..plain });
    }
    // "3-column" counts; "3b" is a name.
    let is_word = is_hyphen && rest.len() > 2 && rest.chars().all(|c| c.is_lowercase() || c == '-');
    (is_other_unit(rest) || is_word).then_some(plain)
}

/// The number that the word at `at` begins, in digits or words, and how many words it takes, the unit included.
pub(super) fn quantity(tokens: &[Token<'_>], at: usize) -> Option<(Quantity, usize)> {
    let word = tokens.get(at)?.text;
    let (mut found, mut taken) = match numeric_word(word) {
        Some(found) => (found, 1),
        None => {
            let (value, taken) = in_words(tokens, at)?;
            (Quantity::plain(value), taken)
        }
    };
    // "and a half"
    let text = |n: usize| tokens.get(at + n).map_or(String::new(), |token| token.text.to_lowercase());
    if found.dimension == Dimension::Plain
        && text(taken) == "and"
        && text(taken + 1) == "a"
        && text(taken + 2) == "half"
    {
        found.value += 0.5;
        taken += 3;
    }
    let is_open = |n: usize| tokens.get(at + n - 1).is_some_and(|token| token.after.is_empty());
    if is_open(taken)
        && let Some(scale) =
            scale(&text(taken)).or_else(|| (tokens.get(at + taken)?.text == "M").then_some(1e6))
    {
        found.value *= scale;
        found.step *= scale;
        found.is_scaled = true;
        taken += 1;
    }
    if found.dimension == Dimension::Plain && is_open(taken) {
        if let Some((dimension, unit)) = unit(&text(taken)) {
            (found.dimension, found.unit) = (dimension, unit);
            taken += 1;
        }
        // "a minute and a half"
        if text(taken) == "and" && text(taken + 1) == "a" && text(taken + 2) == "half" && taken > 1 {
            found.value += 0.5;
            taken += 3;
        }
    }
    let last = tokens.get(at + taken - 1)?;
    if found.dimension == Dimension::Plain && last.after.starts_with('%') {
        found.dimension = Dimension::Percent;
    }
    Some((found, taken))
}

/// A number in words, such as "twenty-five thousand" or "a dozen", and how many words it takes.
pub(super) fn in_words(tokens: &[Token<'_>], at: usize) -> Option<(f64, usize)> {
    let first = tokens.get(at)?.text.to_lowercase();
    if first == "dozen" {
        return Some((12.0, 1));
    }
    let mut total = 0.0;
    let mut taken = 0;
    while let Some(token) = tokens.get(at + taken) {
        let word = token.text.to_lowercase();
        let Some(value) = small(&word) else { break };
        // "two three" are two numbers; "twenty three" is one.
        if taken > 0 && !(total >= 20.0 && total % 10.0 == 0.0 && value < 10.0 || total == 0.0) {
            break;
        }
        total += value;
        taken += 1;
        if !token.after.is_empty() || value < 20.0 {
            break;
        }
    }
    if taken == 0 {
        return None;
    }
    let next = tokens.get(at + taken).map(|token| token.text.to_lowercase());
    let is_open = tokens.get(at + taken - 1).is_some_and(|token| token.after.is_empty());
    match next.as_deref() {
        Some("hundred") if is_open => Some((total * 100.0, taken + 1)),
        Some("dozen") if is_open => Some((total * 12.0, taken + 1)),
        _ => Some((total, taken)),
    }
}

/// A number of one word below a hundred.
fn small(word: &str) -> Option<f64> {
    if let Some((tens, ones)) = word.split_once('-') {
        let (tens, ones) = (small(tens)?, small(ones)?);
        return (tens >= 20.0 && ones < 10.0).then_some(tens + ones);
    }
    let place =
        |list: &[&str]| list.iter().position(|name| *name == word).and_then(|at| u32::try_from(at).ok());
    place(&SMALL).or_else(|| place(&TENS).map(|at| (at + 2) * 10)).map(f64::from)
}

/// The number of "third" or "21st".
pub(super) fn ordinal(word: &str) -> Option<u8> {
    let lower = word.to_lowercase();
    if let Some(at) = ORDINALS.iter().position(|name| *name == lower) {
        return u8::try_from(at).ok();
    }
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let is_ordinal = digits > 0 && ["st", "nd", "rd", "th"].contains(&&lower[digits..]);
    lower.get(..digits)?.parse().ok().filter(|_| is_ordinal)
}

/// A time of day in minutes; which half of the day may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) minutes: u32,
    pub(crate) is_half_unknown: bool,
}

impl Clock {
    pub(super) fn agrees(self, other: Self) -> bool {
        let is_half = self.is_half_unknown || other.is_half_unknown;
        self.minutes == other.minutes || is_half && self.minutes % 720 == other.minutes % 720
    }
}

/// The time of day that the word at `at` begins, and how many words it takes.
pub(super) fn clock(tokens: &[Token<'_>], at: usize) -> Option<(Clock, usize)> {
    let text = |n: usize| tokens.get(at + n).map_or(String::new(), |token| token.text.to_lowercase());
    let word = text(0);
    let afternoon = |suffix: &str| match suffix.trim_end_matches('.') {
        "am" | "a.m" => Some(0),
        "pm" | "p.m" => Some(720),
        _ => None,
    };
    let of = |hour: u32, minute: u32, half: Option<u32>| {
        let minutes = match half {
            Some(half) => hour % 12 * 60 + half + minute,
            None => hour * 60 + minute,
        };
        (hour < 25 && minute < 60).then_some(Clock { minutes: minutes % 1_440, is_half_unknown: false })
    };
    match word.as_str() {
        "noon" | "midday" => return Some((Clock { minutes: 720, is_half_unknown: false }, 1)),
        "midnight" => return Some((Clock { minutes: 0, is_half_unknown: false }, 1)),
        _ => {}
    }
    // "half past eight", "a quarter past eleven", "quarter to nine"
    let offset = match (word.as_str(), text(1).as_str()) {
        ("half", "past") => Some(30_i32),
        ("quarter", "past" | "after") => Some(15),
        ("quarter", "to" | "before") => Some(-15),
        _ => None,
    };
    if let Some(offset) = offset {
        let said = in_words(tokens, at + 2).map(|(hour, _)| hour).or_else(|| text(2).parse().ok())?;
        let hour = (0..=24_i32).find(|hour| f64::from(*hour) == said)?;
        let minutes = (hour * 60 + offset).rem_euclid(1_440);
        return Some((Clock { minutes: u32::try_from(minutes).ok()?, is_half_unknown: true }, 3));
    }
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 2 {
        return None;
    }
    let hour: u32 = word[..digits].parse().ok()?;
    let rest = &word[digits..];
    if let Some(half) = afternoon(rest) {
        return Some((of(hour, 0, Some(half))?, 1));
    }
    if rest.is_empty() {
        let half = afternoon(&text(1))?;
        return Some((of(hour, 0, Some(half))?, 2));
    }
    let minute = rest.strip_prefix(':')?;
    let length = minute.bytes().take_while(u8::is_ascii_digit).count();
    if length != 2 {
        return None;
    }
    let (minute, rest) = (minute[..2].parse().ok()?, &minute[2..]);
    let half = afternoon(rest);
    if !(rest.is_empty() || rest.starts_with(':') || half.is_some()) {
        return None;
    }
    match half.or_else(|| afternoon(&text(1))) {
        Some(after) => Some((of(hour, minute, Some(after))?, if half.is_some() { 1 } else { 2 })),
        None => Some((of(hour, minute, None)?, 1)),
    }
}
