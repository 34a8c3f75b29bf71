//! Secrets that are recognised by how they look: the table `patterns.json`, and the checks that keep ordinary
//! text out.
//!
//! All keywords of the table are searched at once, by their last three letters. Where one stands, the expressions of its rows are tried at
//! that place only, anchored, so that the time stays linear: an expression either has a bound or cannot run past
//! the next place where it is tried.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::Regex;
use serde::Deserialize;

use crate::words::Words;

static TABLE: LazyLock<Patterns> = LazyLock::new(|| Patterns::new(include_str!("patterns.json")));

/// The table.
pub(crate) struct Patterns {
    rows: Vec<Row>,
    /// Each keyword with its rows; those that end alike from the longest to the shortest.
    keywords: Vec<(String, Vec<usize>)>,
    endings: Words,
}

/// A part of a text that a row takes for a secret.
pub(crate) struct Candidate {
    pub(crate) range: Range<usize>,
    /// Earlier rows are more specific.
    pub(crate) row: usize,
}

/// One row as written in the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// As in the placeholder.
    kind: String,
    /// Where to look; any case.
    keywords: Vec<String>,
    /// What must stand before the keyword.
    #[serde(default)]
    left: LeftBoundary,
    /// With a lead: what it cannot do without behind the keyword, as [`sign_follows`] reads it.
    #[serde(default)]
    sign: Option<String>,
    /// From the keyword up to the secret; without it the secret begins with the keyword.
    #[serde(default)]
    lead: Option<String>,
    secret: String,
    /// What must follow.
    #[serde(default)]
    follow: Option<String>,
    /// What the secret must look like beside.
    #[serde(default)]
    check: Check,
    #[serde(skip)]
    compiled: CompiledRegexes,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum LeftBoundary {
    /// No letter, digit or `_`.
    #[default]
    Word,
    /// Nor `-`; for secrets that hold it, so that no try runs into the next.
    Dash,
    /// Anything.
    Any,
    Digit,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum Check {
    /// The expression is precise enough.
    #[default]
    None,
    /// No template.
    Value,
    /// Letters and digits in disorder.
    Random,
    /// Base64 of a name, a colon and a password.
    Basic,
    /// The same, all of it text: for what may be other base64.
    Pair,
    /// What a person chose, between quotes.
    Password,
    /// What a machine made, or a person's without quotes.
    Token,
}

/// Each expression is compiled when it is first reached: most keywords in prose fail at the lead, and compiling all
/// would cost a short run more than everything else that it does.
#[derive(Default)]
struct CompiledRegexes {
    lead: OnceLock<Regex>,
    secret: OnceLock<Regex>,
    follow: OnceLock<Regex>,
}

impl Patterns {
    /// The table of this version.
    pub(crate) fn table() -> &'static Self {
        &TABLE
    }

    fn new(json: &str) -> Self {
        // A table that cannot be read must not let everything through; a test compiles each row.
        let rows: Vec<Row> =
            serde_json::from_str(json).unwrap_or_else(|error| unreachable!("patterns.json: {error}"));
        let mut keywords: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            for keyword in &row.keywords {
                keywords.entry(keyword.clone()).or_default().push(index);
            }
        }
        let mut keywords: Vec<_> = keywords.into_iter().collect();
        keywords.sort_by_key(|(keyword, _)| usize::MAX - keyword.len());
        let ending = |keyword: &str| {
            *keyword
                .as_bytes()
                .last_chunk()
                .unwrap_or_else(|| unreachable!("patterns.json: {keyword:?} is short"))
        };
        let endings =
            Words::new(keywords.iter().enumerate().map(|(index, (keyword, _))| (ending(keyword), index)));
        Self { rows, keywords, endings }
    }

    pub(crate) fn kind(&self, row: usize) -> &str {
        &self.rows[row].kind
    }

    /// Whether a keyword stands in a text, and whether [`find`](Self::find) may find anything in it or in a part of it:
    /// whether some row begins at a keyword, as far as what stands around that tells.
    pub(crate) fn look(&self, text: &str) -> (bool, bool) {
        let bytes = text.as_bytes();
        let begins = |keyword: &Range<usize>, row: &Row| {
            let sign = row.sign.as_ref().map(String::as_bytes);
            row.left.allows(bytes, keyword.start)
                && sign.is_none_or(|sign| sign_follows(&bytes[keyword.end..], sign))
        };
        let mut has_keyword = false;
        for (keyword, rows) in self.keywords(text) {
            has_keyword = true;
            if rows.iter().any(|row| begins(&keyword, &self.rows[*row])) {
                return (true, true);
            }
        }
        (has_keyword, false)
    }

    /// Where keywords stand and which rows they have, by their ends, and by their starts where they end together.
    fn keywords<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, &'a [usize])> {
        let bytes = text.as_bytes();
        let mut rest = 0;
        let places = std::iter::from_fn(move || {
            let (at, words) = self.endings.next(bytes, rest)?;
            rest = at + 1;
            Some((at + 3, words))
        });
        places.flat_map(move |(end, words)| {
            words.filter_map(move |&index| {
                let (keyword, rows) = &self.keywords[index];
                let start = end.checked_sub(keyword.len())?;
                bytes[start..end]
                    .eq_ignore_ascii_case(keyword.as_bytes())
                    .then_some((start..end, rows.as_slice()))
            })
        })
    }

    /// Everything in a piece of text that some row takes for a secret; candidates may overlap. `after` is what
    /// stands behind the piece.
    pub(crate) fn find(&self, text: &str, after: &str) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (keyword, rows) in self.keywords(text) {
            // What lies inside of a secret is not searched for more.
            let last = candidates.last().map(|candidate| &candidate.range);
            if last.is_some_and(|last| last.start < keyword.start && keyword.end <= last.end) {
                continue;
            }
            // Where a secret ends, a placeholder will end: nothing is joined to it.
            let free = last.is_some_and(|last| last.end == keyword.start);
            for &row in rows {
                let row_of = &self.rows[row];
                if !free && !row_of.left.allows(text.as_bytes(), keyword.start) {
                    continue;
                }
                if let Some(range) = row_of.secret_at(text, keyword.clone(), after) {
                    candidates.push(Candidate { range, row });
                }
            }
        }
        candidates
    }
}

impl Row {
    fn secret_at(&self, text: &str, keyword: Range<usize>, after: &str) -> Option<Range<usize>> {
        if let Some(sign) = &self.sign
            && !sign_follows(&text.as_bytes()[keyword.end..], sign.as_bytes())
        {
            return None;
        }
        let lead = match &self.lead {
            Some(lead) => self.compiled(&self.compiled.lead, lead).find(&text[keyword.start..])?.end(),
            None => 0,
        };
        let start = keyword.start + lead;
        let end = start + self.compiled(&self.compiled.secret, &self.secret).find(&text[start..])?.end();
        let behind = if end == text.len() { after } else { &text[end..] };
        if let Some(follow) = &self.follow
            && !self.compiled(&self.compiled.follow, follow).is_match(behind)
        {
            return None;
        }
        (start < end && self.check.passes(&text[start..end])).then_some(start..end)
    }

    fn compiled<'a>(&self, place: &'a OnceLock<Regex>, expression: &str) -> &'a Regex {
        place.get_or_init(|| {
            Regex::new(&format!(r"\A(?:{expression})"))
                .unwrap_or_else(|error| unreachable!("patterns.json: {}: {error}", self.kind))
        })
    }
}

/// Bytes of the longest name, and of the longest white space with quotes, that a lead takes behind its keyword.
const LONGEST_PART: usize = 64;

/// Whether one of these signs comes after nothing but the rest of a name, quotes and white space: what no lead of an
/// assignment goes without. Most keywords in prose fail here, before anything is compiled.
fn sign_follows(text: &[u8], signs: &[u8]) -> bool {
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-') || !b.is_ascii();
    let name = text.iter().take(LONGEST_PART).take_while(in_name).count();
    let between = |b: &u8| {
        matches!(b, b'\\' | b'"' | b'\'' | b'`' | b']' | b'\x0b') || b.is_ascii_whitespace() || !b.is_ascii()
    };
    text[name..].iter().take(LONGEST_PART).find(|b| !between(b)).is_some_and(|sign| signs.contains(sign))
}

impl LeftBoundary {
    fn allows(self, text: &[u8], at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|i| text[i]) else { return !matches!(self, Self::Digit) };
        let joined = match self {
            Self::Any => return true,
            Self::Digit => return before.is_ascii_digit(),
            Self::Word => before.is_ascii_alphanumeric() || before == b'_',
            Self::Dash => before.is_ascii_alphanumeric() || matches!(before, b'_' | b'-'),
        };
        // The letter of `\n` and the digits of `%3D` end an escape, not a word.
        let escape = at >= 2 && text[at - 2] == b'\\' && matches!(before, b'n' | b'r' | b't');
        let percent = at >= 3 && text[at - 3] == b'%' && text[at - 2..at].iter().all(u8::is_ascii_hexdigit);
        !joined || escape || percent
    }
}

impl Check {
    fn passes(self, secret: &str) -> bool {
        match self {
            Self::None => true,
            Self::Value => !is_template(secret),
            Self::Random => {
                !is_template(secret) && entropy(secret) >= 3.0 && secret.bytes().any(|b| b.is_ascii_digit())
            }
            Self::Basic => {
                STANDARD_NO_PAD.decode(secret.trim_end_matches('=')).is_ok_and(|pair| pair.contains(&b':'))
            }
            Self::Pair => STANDARD_NO_PAD
                .decode(secret.trim_end_matches('='))
                .ok()
                .and_then(|pair| String::from_utf8(pair).ok())
                .is_some_and(|pair| {
                    pair.split_once(':').is_some_and(|(name, rest)| !name.is_empty() && !rest.is_empty())
                        && !pair.chars().any(char::is_control)
                }),
            Self::Password => {
                // A sign at the end is punctuation of a sentence: `"password": "Required!"`.
                let core = secret.trim_end_matches(['!', '?', '.', '*', '…']);
                let letter = core.chars().any(char::is_alphabetic);
                let other = core.bytes().any(|b| b.is_ascii_digit() || b"!@#$%^&?~".contains(&b));
                letter && other && entropy(secret) >= 2.0 && !is_template(secret) && !is_address(secret)
            }
            Self::Token => {
                entropy(secret) >= 2.9 && changes(secret) >= 3 && !is_template(secret) && !is_address(secret)
            }
        }
    }
}

/// Shannon entropy in bits for each byte.
fn entropy(text: &str) -> f64 {
    let mut counts = [0u32; 256];
    for byte in text.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let all = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    counts.iter().filter(|n| **n > 0).map(|n| f64::from(*n) / all).map(|p| -p * p.log2()).sum()
}

/// How often a letter follows a digit or a digit a letter: often in what a machine made, seldom in names.
fn changes(text: &str) -> usize {
    text.as_bytes()
        .windows(2)
        .filter(|pair| {
            pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic()
                || pair[0].is_ascii_alphabetic() && pair[1].is_ascii_digit()
        })
        .count()
}

/// Something stands for the secret here: a variable, a hole, stars, the word `example`.
fn is_template(text: &str) -> bool {
    const SIGNS: [&str; 11] = ["${", "$(", "{{", "<", ">", "%s", "%(", "***", "...", "…", "xxxx"];
    const WORDS: [&str; 7] =
        ["example", "placeholder", "changeme", "change-me", "change_me", "your-", "your_"];
    let lower = text.to_ascii_lowercase();
    let name = |rest: &str| rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let variable = text.strip_prefix('$').is_some_and(name)
        || text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .is_some_and(|rest| !rest.is_empty());
    variable
        || SIGNS.iter().chain(&WORDS).any(|sign| lower.contains(sign))
        || text.bytes().all(|b| Some(b) == text.bytes().next())
}

/// A path, a link, or a name in some scheme.
fn is_address(text: &str) -> bool {
    ["/", "./", "../", "~/", "@string/", "file:", "env:", "arn:", "sha256:", "sha512-"]
        .iter()
        .any(|p| text.starts_with(p))
        || text.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_compiles() {
        let table = Patterns::table();
        assert!(table.rows.len() > 40, "{}", table.rows.len());
        for row in &table.rows {
            row.compiled(&row.compiled.secret, &row.secret);
            if let Some(lead) = &row.lead {
                row.compiled(&row.compiled.lead, lead);
            }
            if let Some(follow) = &row.follow {
                row.compiled(&row.compiled.follow, follow);
            }
            assert_eq!(crate::placeholder::kind(&row.kind), row.kind);
            assert!(
                row.keywords.iter().all(|k| k.len() >= 3 && *k == k.to_ascii_lowercase()),
                "{}",
                row.kind
            );
        }
    }

    #[test]
    fn keywords_are_found_as_by_looking_everywhere() {
        let table = Patterns::table();
        let text = include_str!("patterns.json").repeat(2)
            + "Secret_Access_KEY sk-ant-api03 sk-proj- xoxe.xoxp- PASSWORDtokenEYJ://_authToken \u{212a}ey-";
        let mut expect: Vec<(usize, usize)> = Vec::new();
        let lower = text.to_ascii_lowercase();
        for (keyword, _) in &table.keywords {
            expect.extend(
                (0..lower.len())
                    .filter(|at| lower.as_bytes()[*at..].starts_with(keyword.as_bytes()))
                    .map(|at| (at + keyword.len(), at)),
            );
        }
        expect.sort_unstable();
        let found: Vec<_> = table.keywords(&text).map(|(range, _)| (range.end, range.start)).collect();
        assert_eq!(found, expect);
    }

    /// Over everything that the parts of a lead can be made of: where the lead matches, a sign follows.
    #[test]
    fn every_lead_has_its_sign() {
        let names = [
            "",
            "_access-key",
            "KEYvalue",
            "_\u{212a}ey",
            "_A9_Z",
            "\u{17f}tring_string",
            "_b64",
            "_key",
            "_access_key",
        ];
        let quotes = ["", "\"", "\\\\\\'", "`", "\"]", "]", "\\"];
        let spaces = [
            "",
            " ",
            "\t\u{b}\u{85}\u{a0}",
            "\u{3000}\u{3000}\u{2003}\u{3000}\u{3000}\u{3000}\u{3000}\u{3000}",
        ];
        let signs = ["=", ":", "=>", ":=", "===", ": Foo =", ": &'a str=", ",", "x", ""];
        let mut matched = 0;
        for row in Patterns::table().rows.iter().filter(|row| row.sign.is_some()) {
            let (lead, sign) = (row.lead.as_ref().unwrap(), row.sign.as_ref().unwrap());
            let lead = row.compiled(&row.compiled.lead, lead);
            for keyword in
                row.keywords.iter().flat_map(|keyword| [keyword.clone(), keyword.to_ascii_uppercase()])
            {
                for name in names {
                    for quote in quotes {
                        for space in spaces {
                            for after in signs {
                                let text =
                                    format!("{keyword}{name}{quote}{space}{after}{space}\"bearer basic ");
                                if lead.is_match(&text) {
                                    matched += 1;
                                    assert!(
                                        sign_follows(&text.as_bytes()[keyword.len()..], sign.as_bytes()),
                                        "{text}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(matched > 1_000, "{matched}");
    }

    #[test]
    fn numbers_of_the_checks() {
        assert!(entropy("aaaa").abs() < 1e-9);
        assert!((entropy("abcd") - 2.0).abs() < 1e-9);
        assert!(entropy("").abs() < 1e-9);
        assert_eq!(changes("a1b2"), 3);
        assert_eq!(changes("oauth2_token_v1"), 2);
        for template in
            ["$TOKEN", "${a}", "{token}", "<your key>", "xxxxxxxx", "aaaa", "YOUR_KEY", "%s", "***"]
        {
            assert!(is_template(template), "{template}");
        }
        assert!(!is_template("hunter2"));
        assert!(!is_template("$ecret!1"));
    }
}
