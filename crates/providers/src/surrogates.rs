//! Text that arrives as JSON string literals, any of which may end within a surrogate pair.
//!
//! Some servers cut their deltas between UTF-16 units. A strict parser refuses such a literal; here the half
//! waits for the next literal of the same block, and becomes U+FFFD when its other half never comes.

/// Joins the literals of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Joiner {
    high: Option<u16>,
}

/// The text is not a JSON string literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a JSON string")]
pub(crate) struct NotAString;

impl Joiner {
    /// The text of `literal` (with its quotes), without a half of a pair at its end.
    ///
    /// # Errors
    /// When it is not a JSON string literal.
    pub(crate) fn push(&mut self, literal: &str) -> Result<String, NotAString> {
        let inner = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(NotAString)?;
        let mut out = String::with_capacity(inner.len());
        let mut rest = inner;
        while let Some(at) = rest.find('\\') {
            self.plain(&rest[..at], &mut out);
            let code = *rest.as_bytes().get(at + 1).ok_or(NotAString)?;
            let plain = match code {
                b'"' | b'\\' | b'/' => char::from(code),
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => {
                    let hex = rest.get(at + 2..at + 6).ok_or(NotAString)?;
                    self.unit(u16::from_str_radix(hex, 16).map_err(|_| NotAString)?, &mut out);
                    rest = &rest[at + 6..];
                    continue;
                }
                _ => return Err(NotAString),
            };
            self.plain(plain.encode_utf8(&mut [0; 4]), &mut out);
            rest = &rest[at + 2..];
        }
        self.plain(rest, &mut out);
        Ok(out)
    }

    /// No more literals come: the replacement for a half that is still waiting.
    pub(crate) fn finish(&mut self) -> Option<char> {
        self.high.take().map(|_| char::REPLACEMENT_CHARACTER)
    }

    fn plain(&mut self, text: &str, out: &mut String) {
        if !text.is_empty() {
            out.extend(self.finish());
            out.push_str(text);
        }
    }

    fn unit(&mut self, unit: u16, out: &mut String) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, unit) {
            self.high = None;
            out.extend(char::decode_utf16([high, unit]).flatten());
            return;
        }
        out.extend(self.finish());
        if (0xD800..=0xDBFF).contains(&unit) {
            self.high = Some(unit);
        } else {
            out.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

/// The text of one literal that stands alone; halves of pairs become U+FFFD. `None` when it is no string.
pub(crate) fn lossy(literal: &str) -> Option<String> {
    let mut joiner = Joiner::default();
    let mut text = joiner.push(literal).ok()?;
    text.extend(joiner.finish());
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(literals: &[&str], expect: &[&str]) {
        let mut joiner = Joiner::default();
        let mut got: Vec<_> = literals.iter().map(|literal| joiner.push(literal).unwrap()).collect();
        got.extend(joiner.finish().map(String::from));
        assert_eq!(got, expect);
    }

    #[test]
    fn halves_are_joined() {
        check(&[r#""a""#, r#""""#], &["a", ""]);
        check(&[r#""\ud83d\ude00""#], &["😀"]);
        check(&[r#""a\ud83d""#, r#""\ude00b""#], &["a", "😀b"]);
        check(&[r#""\uD83D""#, r#""""#, r#""\uDE00""#], &["", "", "😀"]);
        check(&[r#""\ud83d""#], &["", "\u{fffd}"]);
        check(&[r#""\ud83d""#, r#""x""#], &["", "\u{fffd}x"]);
        check(&[r#""\ud83d\ud83d""#, r#""\ude00""#], &["\u{fffd}", "😀"]);
        check(&[r#""\ude00\ud83d\n""#], &["\u{fffd}\u{fffd}\n"]);
        check(&[r#""\"\\\/\b\f\n\r\tA é""#], &["\"\\/\u{8}\u{c}\n\r\tA é"]);
    }

    #[test]
    fn invalid_json_string_is_refused() {
        for text in ["", "1", "null", "\"", r#""\"#, r#""\x""#, r#""\u12""#, r#""\u12é""#] {
            assert_eq!(Joiner::default().push(text), Err(NotAString), "{text}");
        }
    }
}
