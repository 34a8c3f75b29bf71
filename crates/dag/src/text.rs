//! Text as JavaScript has it: UTF-16 that may hold lone surrogates.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A string that may hold lone surrogates, which `String` cannot.
///
/// Ordered by UTF-16 code units, as JavaScript sorts keys: U+1F600 comes before U+E000.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Repr);

// One text has one representation, so that derived equality is right: `Units` only with a lone surrogate.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Utf8(String),
    Units(Box<[u16]>),
}

impl Text {
    /// Text of UTF-16 code units; any sequence is allowed.
    pub fn from_utf16(units: &[u16]) -> Self {
        match String::from_utf16(units) {
            Ok(text) => Self(Repr::Utf8(text)),
            Err(_) => Self(Repr::Units(units.into())),
        }
    }

    /// The text, unless it holds a lone surrogate.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Repr::Utf8(text) => Some(text),
            Repr::Units(_) => None,
        }
    }

    /// A view for readers: each lone surrogate is seen as U+FFFD. Never write it back.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Utf8(text) => Cow::Borrowed(text),
            Repr::Units(units) => Cow::Owned(String::from_utf16_lossy(units)),
        }
    }

    /// The UTF-16 code units.
    pub fn to_utf16(&self) -> Vec<u16> {
        match &self.0 {
            Repr::Utf8(text) => text.encode_utf16().collect(),
            Repr::Units(units) => units.to_vec(),
        }
    }

    /// The characters in order; a lone surrogate as its code unit.
    pub(crate) fn wide(&self) -> Option<impl Iterator<Item = Result<char, u16>> + '_> {
        match &self.0 {
            Repr::Utf8(_) => None,
            Repr::Units(units) => Some(
                char::decode_utf16(units.iter().copied())
                    .map(|unit| unit.map_err(|error| error.unpaired_surrogate())),
            ),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Repr::Utf8(text.into()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Repr::Utf8(text))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(Repr::Utf8(String::new()))
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Utf8(a), Repr::Utf8(b)) => compare_utf16(a, b),
            _ => self.to_utf16().cmp(&other.to_utf16()),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Utf8(text) => fmt::Debug::fmt(text, f),
            Repr::Units(units) => write!(f, "{units:04x?}"),
        }
    }
}

/// UTF-16 order of two UTF-8 texts. It is the order of the bytes but for one case: U+E000 to U+FFFF (lead bytes
/// EE and EF) come after the characters that UTF-16 writes as surrogates (lead bytes F0 to F4).
fn compare_utf16(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    match a.iter().zip(b).position(|(x, y)| x != y) {
        None => a.len().cmp(&b.len()),
        Some(at) => {
            // At the first difference only a lead byte can be as large as EE.
            let rank = |byte: u8| if matches!(byte, 0xEE | 0xEF) { byte + 0x10 } else { byte };
            rank(a[at]).cmp(&rank(b[at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_code_units() {
        let words =
            ["", "a", "b", "é", "\u{d7ff}", "😀", "😁", "\u{10ffff}", "\u{e000}", "\u{fffd}", "\u{ffff}x"];
        for a in words {
            for b in words {
                for (a, b) in [(a.to_owned(), b.to_owned()), (format!("k{a}1"), format!("k{b}0"))] {
                    let expect = a.encode_utf16().cmp(b.encode_utf16());
                    assert_eq!(Text::from(a.as_str()).cmp(&Text::from(b.as_str())), expect, "{a:?} {b:?}");
                }
            }
        }
        let lone = Text::from_utf16(&[0xD800, 0x78]);
        let mut words = [Text::from("\u{e000}"), Text::from("😀"), lone.clone(), Text::from("\u{d7ff}")];
        words.sort();
        assert_eq!(words, [Text::from("\u{d7ff}"), lone, Text::from("😀"), Text::from("\u{e000}")]);
    }

    #[test]
    fn one_text_has_one_representation() {
        assert_eq!(Text::from_utf16(&[0xD83D, 0xDE00]), Text::from("😀"));
        let lone = Text::from_utf16(&[0x61, 0xDC00]);
        assert_eq!((lone.as_str(), lone.to_string_lossy().as_ref()), (None, "a\u{fffd}"));
        assert_eq!(lone.to_utf16(), [0x61, 0xDC00]);
    }
}
