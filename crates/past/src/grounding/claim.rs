//! What a summary claims: where each number, date, path, identifier, quote and name stands.

use std::ops::Range;

use super::ClaimKind;
use super::date::{DateParts, dates, year};
use super::number::{Clock, Quantity, clock, is_unit, literal, quantity, suffixed, unit};
use super::token::{Token, marked, tokens};

/// Something that has to occur in the sources.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) kind: ClaimKind,
    pub(crate) place: Range<usize>,
    pub(crate) value: ClaimValue,
}

/// What has to occur.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClaimValue {
    Number(NumberClaim),
    Clock(Clock, String),
    Date(DateParts),
    /// A year, or another number.
    Year(i16),
    Text(String),
    Name {
        word: String,
        begins_sentence: bool,
    },
}

/// A number with what stands around it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NumberClaim {
    pub(crate) quantity: Quantity,
    pub(crate) precision: Precision,
    /// The word behind it, in lower case.
    pub(crate) noun: String,
    /// Words around it that say that it was computed.
    pub(crate) is_difference: bool,
    pub(crate) is_sum: bool,
    /// How many things the sentence lists.
    pub(crate) listed: Vec<usize>,
}

/// How exactly a number was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Exact,
    About,
    /// A little more in truth.
    Over,
    /// A little less in truth.
    Under,
}

const ABOUT: [&str; 8] = ["about", "around", "roughly", "approximately", "circa", "some", "approx", "ca"];
const OVER: [&str; 4] = ["over", "above", "exceeding", "past"];
const UNDER: [&str; 5] = ["nearly", "almost", "below", "under", "within"];
const DIFFERENCE: [&str; 24] = [
    "by",
    "more",
    "less",
    "fewer",
    "net",
    "difference",
    "points",
    "remain",
    "remaining",
    "remains",
    "left",
    "resolved",
    "short",
    "extra",
    "later",
    "earlier",
    "apart",
    "above",
    "saved",
    "slower",
    "faster",
    "larger",
    "smaller",
    "missing",
];
const SUM: [&str; 10] =
    ["total", "totals", "altogether", "all", "together", "combined", "sum", "overall", "each", "both"];
/// Words of a few letters with a slash or full stop that are no paths.
const NO_PATHS: [&str; 22] = [
    "and/or",
    "e.g",
    "i.e",
    "a.m",
    "p.m",
    "he/she",
    "yes/no",
    "on/off",
    "true/false",
    "input/output",
    "read/write",
    "client/server",
    "his/her",
    "either/or",
    "pass/fail",
    "start/stop",
    "up/down",
    "n/a",
    "w/o",
    "i/o",
    "s/he",
    "his/hers",
];
/// Capitals that name nothing.
const NO_NAMES: [&str; 44] = [
    "I",
    "OK",
    "AM",
    "PM",
    "UTC",
    "ID",
    "IDs",
    "UI",
    "API",
    "PR",
    "PRs",
    "TV",
    "CI",
    "URL",
    "URLs",
    "Mr",
    "Mrs",
    "Ms",
    "Dr",
    "Prof",
    "Professor",
    "Sir",
    "No",
    "Nr",
    "CPU",
    "GB",
    "MB",
    "KB",
    "A",
    "TODO",
    "PDF",
    "CSV",
    "JSON",
    "HTML",
    "QA",
    "HTTP",
    "HTTPS",
    "SQL",
    "CSS",
    "FAQ",
    "DIY",
    "CEO",
    "CTO",
    "Ok",
];

/// The claims of a text, by place.
pub(crate) fn claims(text: &str) -> Vec<Claim> {
    let (marks, rest) = marked(text);
    let mut claims = Vec::new();
    for mark in &marks {
        let inner = mark.text.trim();
        let is_phrase = inner.contains(char::is_whitespace);
        let kind = match mark.is_code {
            true if !is_phrase => code_kind(inner),
            _ => ClaimKind::Quote,
        };
        claims.push(Claim { kind, place: mark.inner.clone(), value: ClaimValue::Text(inner.to_owned()) });
    }
    let words = tokens(&rest);
    let lists = Lists::of(&words);
    let mut at = 0;
    while at < words.len() {
        at += take(&words, at, &lists, &mut claims).max(1);
    }
    claims.sort_by_key(|claim| claim.place.start);
    claims
}

fn code_kind(word: &str) -> ClaimKind {
    let is_path = word.contains('/') || has_extension(word);
    if is_path { ClaimKind::Path } else { ClaimKind::Identifier }
}

fn has_extension(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(name, ending)| {
        !name.is_empty()
            && (1..=6).contains(&ending.len())
            && ending.starts_with(|c: char| c.is_ascii_lowercase())
            && ending.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

/// The claims that begin at a word, and how many words they take.
fn take(words: &[Token<'_>], at: usize, lists: &Lists, claims: &mut Vec<Claim>) -> usize {
    let token = words[at];
    let span = |from: usize, to: usize| words[at + from].start..words[at + to - 1].place().end;
    if let Some((found, taken)) = dates(words, at) {
        for (date, from, to) in found {
            claims.push(Claim {
                kind: ClaimKind::Date,
                place: span(from, to),
                value: ClaimValue::Date(date),
            });
        }
        return taken;
    }
    if let Some((clock, taken)) = clock(words, at) {
        let value = ClaimValue::Clock(clock, token.text.to_owned());
        claims.push(Claim { kind: ClaimKind::Number, place: span(0, taken), value });
        return taken;
    }
    let is_measured =
        token.after.is_empty() && words.get(at + 1).is_some_and(|next| unit(next.text).is_some());
    if let Some(year) = year(token.text).filter(|_| !is_measured) {
        claims.push(Claim { kind: ClaimKind::Date, place: token.place(), value: ClaimValue::Year(year) });
        return 1;
    }
    if let Some((quantity, taken)) = quantity(words, at) {
        let word = token.text.to_lowercase();
        // "one of them" counts nothing.
        if word != "one" && word != "zero" {
            let value = ClaimValue::Number(number_claim(words, at, taken, quantity, lists));
            claims.push(Claim { kind: ClaimKind::Number, place: span(0, taken), value });
        }
        return taken;
    }
    let word = bare(token.text);
    if word.is_empty() || is_unit(word) || NO_PATHS.contains(&word.to_lowercase().as_str()) {
        return 1;
    }
    let place = token.start..token.start + word.len();
    if let Some(parts) = compound(word) {
        for (from, value, step) in parts {
            let quantity = Quantity { step, ..Quantity::plain(value) };
            let length = literal(&word[from..]).map_or(1, |(_, _, length)| length);
            let value = ClaimValue::Number(number_claim(words, at, 1, quantity, lists));
            let place = token.start + from..token.start + from + length;
            claims.push(Claim { kind: ClaimKind::Number, place, value });
        }
        return 1;
    }
    let text = |kind| Claim { kind, place: place.clone(), value: ClaimValue::Text(word.to_owned()) };
    if word.contains('/') {
        claims.push(text(ClaimKind::Path));
    } else if is_dotted(word) {
        claims.push(text(code_kind(word)));
    } else if is_identifier(word) {
        claims.push(text(ClaimKind::Identifier));
    } else {
        names(token, word, claims);
    }
    1
}

fn number_claim(
    words: &[Token<'_>],
    at: usize,
    taken: usize,
    quantity: Quantity,
    lists: &Lists,
) -> NumberClaim {
    let lower = |token: &Token<'_>| token.text.to_lowercase();
    let before: Vec<String> = words[at.saturating_sub(3)..at].iter().map(lower).collect();
    let near = |list: &[&str]| before.iter().rev().take(2).any(|word| list.contains(&word.as_str()));
    let precision = match before.iter().rev().map(String::as_str).collect::<Vec<_>>()[..] {
        ["than", "more" | "greater", ..] => Precision::Over,
        ["than", "less" | "fewer", ..] | ["to", "close", ..] => Precision::Under,
        _ if words[at].text.starts_with(['~', '\u{2248}']) => Precision::About,
        _ if near(&OVER) => Precision::Over,
        _ if near(&UNDER) => Precision::Under,
        _ if near(&ABOUT) => Precision::About,
        _ => Precision::Exact,
    };
    // Within the sentence.
    let begin = (0..=at).rev().find(|n| words[*n].begins_sentence).unwrap_or(0).max(at.saturating_sub(6));
    let rest = (at + 1..words.len()).find(|n| words[*n].begins_sentence).unwrap_or(words.len());
    let around = || words[begin..rest.min(at + taken + 6)].iter().map(lower);
    NumberClaim {
        quantity,
        precision,
        noun: words.get(at + taken).map(lower).unwrap_or_default(),
        is_difference: around().any(|word| DIFFERENCE.contains(&word.as_str())),
        is_sum: around().any(|word| SUM.contains(&word.as_str())),
        listed: lists.of_sentence(at).to_vec(),
    }
}

/// Without the ending of a genitive.
pub(super) fn bare(word: &str) -> &str {
    ["'s", "\u{2019}s", "'", "\u{2019}"].iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word)
}

/// Several numbers in one word: `138/86`, `50±2`, `5.3:1`, `12-15`, `16384x16384`.
fn compound(word: &str) -> Option<Vec<(usize, f64, f64)>> {
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let rest = word.get(at..)?;
        let (value, step, length) = literal(rest)?;
        parts.push((at, value, step));
        at += length;
        let rest = word.get(at..)?;
        if rest.is_empty() || rest == "%" {
            break;
        }
        let c = rest.chars().next()?;
        if !matches!(c, '/' | '\u{b1}' | ':' | '-' | '\u{2013}' | 'x' | '\u{d7}' | '+') {
            return None;
        }
        let unit = &rest[c.len_utf8()..];
        // "16-day"
        if parts.len() == 1 && !unit.starts_with(|c: char| c.is_ascii_digit()) {
            return suffixed(value, step, unit, c == '-').map(|_| parts);
        }
        at += c.len_utf8();
    }
    (parts.len() > 1).then_some(parts)
}

/// Letters and digits with a full stop between them: a file, a member, an address, a version.
fn is_dotted(word: &str) -> bool {
    let mut parts = word.split('.');
    let has_letters = word.chars().any(char::is_alphabetic) || word.matches('.').count() > 1;
    let is_hidden = word.starts_with('.') && word.len() > 2;
    has_letters && word.contains('.') && (is_hidden || parts.all(|part| !part.is_empty()))
}

fn is_identifier(word: &str) -> bool {
    let has_digit = word.chars().any(|c| c.is_ascii_digit());
    let has_letter = word.chars().any(char::is_alphabetic);
    let is_ordinal = super::number::ordinal(word).is_some();
    let letters: Vec<char> = word.chars().collect();
    let has_hump = letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
    // "IDs"
    let is_plural = word.strip_suffix('s').is_some_and(|rest| rest.chars().all(char::is_uppercase));
    (has_digit && has_letter && !is_ordinal)
        || (has_hump && !is_plural)
        || word.contains('_') && has_letter
        || word.contains("::")
        || word.ends_with("()")
        || word.starts_with("--")
        || word.starts_with('#') && has_digit
        || word.starts_with('@') && has_letter
}

/// Parts of a word that begin with a capital.
fn names(token: Token<'_>, word: &str, claims: &mut Vec<Claim>) {
    let mut from = 0;
    for (n, part) in word.split(['-', '\'', '\u{2019}', '&', '+']).enumerate() {
        let place = token.start + from..token.start + from + part.len();
        from += part.len();
        from += word[from..].chars().next().map_or(0, char::len_utf8);
        let letters = part.chars().count();
        let is_name =
            part.starts_with(char::is_uppercase) && part.chars().all(char::is_alphabetic) && letters > 1;
        if is_name && !NO_NAMES.contains(&part) {
            let begins_sentence = token.begins_sentence && n == 0;
            let value = ClaimValue::Name { word: part.to_owned(), begins_sentence };
            claims.push(Claim { kind: ClaimKind::Name, place, value });
        }
    }
}

/// How many things the sentences of a text list: "a, b and c" are three.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The sentence of each word.
    sentences: Vec<usize>,
    counts: Vec<Vec<usize>>,
}

/// Words of one thing that is listed, at most.
const LISTED_WORDS: usize = 6;

impl Lists {
    pub(super) fn of(words: &[Token<'_>]) -> Self {
        let mut lists = Self::default();
        let mut run = ListRun::default();
        for (n, token) in words.iter().enumerate() {
            let is_after_colon = n > 0 && words[n - 1].after.contains(':');
            if token.begins_sentence && !is_after_colon || lists.counts.is_empty() {
                run.end(&mut lists.counts);
                lists.counts.push(Vec::new());
            } else if is_after_colon {
                run.end(&mut lists.counts);
            }
            lists.sentences.push(lists.counts.len() - 1);
            if matches!(token.text, "and" | "or" | "&" | "plus") {
                run.next(&mut lists.counts);
                continue;
            }
            run.length += 1;
            if token.after.contains([',', ';']) {
                run.next(&mut lists.counts);
            }
        }
        run.end(&mut lists.counts);
        lists
    }

    fn of_sentence(&self, at: usize) -> &[usize] {
        self.sentences.get(at).and_then(|sentence| self.counts.get(*sentence)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.counts.iter().flatten().copied()
    }
}

#[derive(Default)]
struct ListRun {
    things: usize,
    length: usize,
}

impl ListRun {
    /// The thing is over and another one follows.
    fn next(&mut self, counts: &mut [Vec<usize>]) {
        if self.length > LISTED_WORDS {
            // The words before the first thing are among its own.
            self.finish(counts);
            self.things = 1;
        } else if self.length > 0 {
            self.things += 1;
        }
        self.length = 0;
    }

    fn end(&mut self, counts: &mut [Vec<usize>]) {
        if self.length > 0 && self.things > 0 {
            self.things += 1;
        }
        self.finish(counts);
        self.length = 0;
    }

    fn finish(&mut self, counts: &mut [Vec<usize>]) {
        let things = std::mem::take(&mut self.things);
        if things > 1
            && let Some(last) = counts.last_mut()
        {
            last.push(things);
        }
    }
}
