//! Credentials that the program holds, in every spelling in which they are looked for.

use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::words::Words;

/// Characters of the shortest secret that is looked for.
pub(crate) const SHORTEST: usize = 8;

/// All known spellings.
#[derive(Default)]
pub(crate) struct KnownSecrets {
    /// Spelling and placeholder, from the longest to the shortest.
    entries: Vec<(Arc<str>, Arc<str>)>,
    beginnings: Words,
    /// As they stand in a JSON string, those that do not stand there as they are.
    escaped: Vec<String>,
}

/// The ones that were made last, as long as a sealer has them.
static LATEST: Mutex<Weak<KnownSecrets>> = Mutex::new(Weak::new());
static NONE: LazyLock<Arc<KnownSecrets>> = LazyLock::new(Arc::default);

impl KnownSecrets {
    /// Those of these spellings and placeholders. A process with a sealer for each of many sessions has equal ones once.
    pub(crate) fn shared(mut entries: Vec<(Arc<str>, Arc<str>)>) -> Arc<Self> {
        if entries.is_empty() {
            return NONE.clone();
        }
        entries.sort_by_key(|(spelling, _)| usize::MAX - spelling.len());
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = latest.upgrade().filter(|there| there.entries == entries) {
            return there;
        }
        let made = Arc::new(Self::new(entries));
        *latest = Arc::downgrade(&made);
        made
    }

    /// From entries that stand from the longest to the shortest.
    fn new(entries: Vec<(Arc<str>, Arc<str>)>) -> Self {
        let beginning = |spelling: &str| {
            // Going on without it would let secrets through.
            *spelling
                .as_bytes()
                .first_chunk()
                .unwrap_or_else(|| unreachable!("a spelling is shorter than its secret"))
        };
        let words = entries.iter().enumerate().map(|(index, (spelling, _))| (beginning(spelling), index));
        let escaped = entries.iter().map(|(spelling, _)| json_escaped(spelling));
        let escaped = escaped.zip(&entries).filter(|(escaped, (spelling, _))| escaped[..] != **spelling);
        let escaped = escaped.map(|(escaped, _)| escaped).collect();
        Self { beginnings: Words::new(words), escaped, entries }
    }

    pub(crate) fn entries(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.entries
    }

    /// Bytes of the longest spelling.
    pub(crate) fn longest(&self) -> usize {
        self.entries.first().map_or(0, |(spelling, _)| spelling.len())
    }

    pub(crate) fn placeholder(&self, index: usize) -> Arc<str> {
        Arc::clone(&self.entries[index].1)
    }

    /// Whether a spelling may stand in a JSON string whose inside this is, and which escapes only what it must.
    pub(crate) fn may_stand_in(&self, raw: &str) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        !self.find(raw).is_empty() || self.escaped.iter().any(|spelling| raw.contains(spelling.as_str()))
    }

    /// Where spellings stand in a text, and which; in order, without overlaps, the longest where several begin.
    pub(crate) fn find(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut found: Vec<(Range<usize>, usize)> = Vec::new();
        if self.entries.is_empty() {
            return found;
        }
        let text = text.as_bytes();
        let mut rest = 0;
        while let Some((start, mut words)) = self.beginnings.next(text, rest) {
            rest = start + 1;
            let stands = |index: &&usize| text[start..].starts_with(self.entries[**index].0.as_bytes());
            if let Some(&index) = words.find(stands) {
                rest = start + self.entries[index].0.len();
                found.push((start..rest, index));
            }
        }
        found
    }
}

/// The secret itself first, then its encoded forms, each once.
pub(crate) fn spellings(secret: &str) -> Vec<String> {
    let mut all = vec![secret.to_owned(), json_escaped(secret), json_escaped(secret).replace('/', "\\/")];
    all.extend(url_encoded(secret));
    for standard in base64(secret.as_bytes()) {
        all.extend(url_encoded(&standard));
        all.push(standard.replace('+', "-").replace('/', "_"));
        all.push(standard);
    }
    let mut once = Vec::with_capacity(all.len());
    for spelling in all {
        if !once.contains(&spelling) {
            once.push(spelling);
        }
    }
    once
}

/// The characters of base64 that the secret alone decides, at each of the three places that it can have within
/// a group of three bytes; then, for a secret that ends the encoded text, the same up to that end, with and
/// without padding.
fn base64(secret: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret);
        let encoded = STANDARD_NO_PAD.encode(&bytes);
        // A character is six bits; the first whole one after the bytes before, the last whole one of the secret.
        let first = (8 * before).div_ceil(6);
        let last = 8 * bytes.len() / 6;
        all.push(encoded[first..last].to_owned());
        all.push(encoded[first..].to_owned());
        all.push(format!("{}{}", &encoded[first..], ["", "==", "="][bytes.len() % 3]));
    }
    all
}

/// The three sets of characters that encoders leave alone, with upper and lower case digits.
fn url_encoded(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (kept, space) in [("-._~", "%20"), ("-._~!*'()", "%20"), ("*-._", "+")] {
        for digits in [b"0123456789ABCDEF", b"0123456789abcdef"] {
            let mut out = String::new();
            for byte in text.bytes() {
                match byte {
                    b' ' => out.push_str(space),
                    _ if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => {
                        out.push(char::from(byte));
                    }
                    _ => {
                        out.push('%');
                        out.push(char::from(digits[usize::from(byte >> 4)]));
                        out.push(char::from(digits[usize::from(byte & 15)]));
                    }
                }
            }
            all.push(out);
        }
    }
    all
}

/// As it stands between the quotes of a JSON string.
fn json_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    crate::json::escape(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_found_at_every_alignment() {
        let secret = "s3cr3t/k?y~>>value";
        for length in [8, 9, 10, 18] {
            let secret = &secret[..length];
            let spellings = spellings(secret);
            for before in ["", "a", "ab", "abc", "user:"] {
                for after in ["", "z", "zz", "zzz"] {
                    let text = STANDARD_NO_PAD.encode(format!("{before}{secret}{after}"));
                    let url_safe = text.replace('+', "-").replace('/', "_");
                    for text in [text, url_safe] {
                        let longest = spellings.iter().filter(|s| text.contains(*s)).map(String::len).max();
                        // At most two characters on either side are shared with the neighbours.
                        let all = secret.len() * 8 / 6;
                        assert!(longest.is_some_and(|n| n + 2 > all), "{before} {after} {longest:?} {all}");
                    }
                }
            }
        }
    }

    #[test]
    fn spellings_of_encoders() {
        let all = spellings("a b/ü\"!*~x\n9");
        for expect in [
            "a%20b%2F%C3%BC%22%21%2A~x%0A9",
            "a%20b%2f%c3%bc%22!*~x%0a9",
            "a+b%2F%C3%BC%22%21*%7Ex%0A9",
            "a b/ü\\\"!*~x\\n9",
            "a b\\/ü\\\"!*~x\\n9",
            "YSBiL8O8IiEqfngKOQ",
            "YSBiL8O8IiEqfngKOQ==",
            "YSBiL8O8IiEqfngKOQ%3D%3D",
        ] {
            assert!(all.iter().any(|s| s == expect), "{expect} in {all:#?}");
        }
    }

    #[test]
    fn plain_secrets_have_few_spellings() {
        let all = spellings("abcdefghijkl");
        assert!(all.len() <= 12, "{all:?}");
        assert_eq!(all[0], "abcdefghijkl");
    }
}
