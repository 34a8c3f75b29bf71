//! Secrets that are recognised by how they look: the table `patterns.json`, and the checks that keep ordinary
//! text out.
//!
//! All keywords of the table are searched at once. Where one stands, the expressions of its rows are tried at
//! that place only, anchored, so that the time stays linear: an expression either has a bound or cannot run past
//! the next place where it is tried.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::Regex;
use serde::Deserialize;

static TABLE: LazyLock<Patterns> = LazyLock::new(|| Patterns::new(include_str!("patterns.json")));

/// The table.
pub(crate) struct Patterns {
    rows: Vec<Row>,
    keywords: AhoCorasick,
    /// Rows of each keyword.
    rows_of: Vec<Vec<usize>>,
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
    left: Left,
    /// From the keyword up to the secret; without it the secret begins with the keyword.
    #[serde(default)]
    lead: Option<String>,
    /// The secret.
    secret: String,
    /// What must follow.
    #[serde(default)]
    follow: Option<String>,
    /// What the secret must look like beside.
    #[serde(default)]
    check: Check,
    #[serde(skip)]
    compiled: Compiled,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum Left {
    /// No letter, digit or `_`.
    #[default]
    Word,
    /// Nor `-`; for secrets that hold it, so that no try runs into the next.
    Dash,
    /// Anything.
    Any,
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
    /// What a person chose, between quotes.
    Password,
    /// What a machine made, or a person's without quotes.
    Token,
}

/// Each expression is compiled when it is first reached: most keywords in prose fail at the lead, and compiling all
/// would cost a short run more than everything else that it does.
#[derive(Default)]
struct Compiled {
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
        let mut rows_of_keyword: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            for keyword in &row.keywords {
                rows_of_keyword.entry(keyword).or_default().push(index);
            }
        }
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(rows_of_keyword.keys())
            .unwrap_or_else(|error| unreachable!("patterns.json: {error}"));
        let rows_of = rows_of_keyword.into_values().collect();
        Self { rows, keywords, rows_of }
    }

    pub(crate) fn kind(&self, row: usize) -> &str {
        &self.rows[row].kind
    }

    pub(crate) fn has_keyword(&self, text: &str) -> bool {
        self.keywords.is_match(text)
    }

    /// Everything in a piece of text that some row takes for a secret; candidates may overlap. `after` is what
    /// stands behind the piece.
    pub(crate) fn find(&self, text: &str, after: &str) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for keyword in self.keywords.find_overlapping_iter(text) {
            // What lies inside of a secret is not searched for more.
            let last = candidates.last().map(|candidate| &candidate.range);
            if last.is_some_and(|last| last.start < keyword.start() && keyword.end() <= last.end) {
                continue;
            }
            // Where a secret ends, a placeholder will end: nothing is joined to it.
            let free = last.is_some_and(|last| last.end == keyword.start());
            for &row in &self.rows_of[keyword.pattern().as_usize()] {
                let row_of = &self.rows[row];
                if !free && !row_of.left.allows(text.as_bytes(), keyword.start()) {
                    continue;
                }
                if let Some(range) = row_of.secret_at(text, keyword.start(), after) {
                    candidates.push(Candidate { range, row });
                }
            }
        }
        candidates
    }
}

impl Row {
    fn secret_at(&self, text: &str, keyword: usize, after: &str) -> Option<Range<usize>> {
        let lead = match &self.lead {
            Some(lead) => self.compiled(&self.compiled.lead, lead).find(&text[keyword..])?.end(),
            None => 0,
        };
        let start = keyword + lead;
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

impl Left {
    fn allows(self, text: &[u8], at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|i| text[i]) else { return true };
        let joined = match self {
            Self::Any => return true,
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
