//! The strings of a JSON text, rewritten in place: every byte that need not change stays.

use quipu_protocol::Json;

use crate::edit::Edit;

/// Finds what to replace in one decoded string; the first argument is the member's name when the string is the
/// value of a member, and the name tells about it.
type Find<'a, E> = dyn FnMut(Option<&str>, &str) -> Result<Vec<Edit>, E> + 'a;

/// Inspects the raw text of a string between its quotes.
type Inspect<'a> = dyn Fn(&str, Escapes) -> StringHints + 'a;

/// What the raw text of a string shows before it is decoded.
#[derive(Clone, Copy)]
pub(crate) struct StringHints {
    /// Whether something may be found in it.
    pub(crate) may_hold: bool,
    /// Whether it tells about its value, where it is a member's name: the value is looked into, whatever it shows.
    pub(crate) tells: bool,
}

/// Which escapes a string has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escapes {
    None,
    /// Only of what must be escaped, or the short ones.
    Short,
    /// Some that spell a letter or a slash.
    Spelled,
}

/// The text with its strings rewritten, or `None` when nothing changes. `json` is valid JSON. Strings in which nothing may be
/// found are not decoded.
pub(crate) fn rewrite<E>(
    json: &str,
    look: &Inspect<'_>,
    find: &mut Find<'_, E>,
) -> Result<Option<String>, E> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    // The last string when it was a member's name, and whether it tells about the value.
    let mut name: Option<(std::ops::Range<usize>, bool)> = None;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'"') {
        let start = at + found + 1;
        let (end, escapes) = closing_quote(bytes, start);
        let member = name.take().filter(|(range, tells)| {
            let between = &bytes[range.end + 1..start - 1];
            *tells && between.iter().all(|b| matches!(b, b':' | b' ' | b'\t' | b'\r' | b'\n'))
        });
        let member = member.map(|(range, _)| &json[range]);
        let is_name = bytes[(end + 1).min(bytes.len())..]
            .iter()
            .find(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
            .is_some_and(|b| *b == b':');
        let seen = look(&json[start..end], escapes);
        if is_name {
            // A name with escapes tells nothing: nobody writes `password` that way.
            name = Some((start..end, seen.tells && escapes == Escapes::None));
        }
        if (seen.may_hold || member.is_some())
            && let Some(changed) = rewrite_string(&json[start..end], member, find)?
        {
            out.push_str(&json[copied..start]);
            out.push_str(&changed);
            copied = end;
        }
        at = (end + 1).min(json.len());
    }
    if copied == 0 {
        return Ok(None);
    }
    out.push_str(&json[copied..]);
    Ok(Some(out))
}

/// The result of [`rewrite`] as JSON.
pub(crate) fn reread(before: &Json, rewritten: Option<String>) -> Json {
    match rewritten {
        None => before.clone(),
        // Only text between quotes changed, and it is escaped, so this cannot fail; if it did, giving back the
        // text from before would let a secret through.
        Some(text) => Json::parse(&text).unwrap_or_default(),
    }
}

/// Appends `text` as it stands between the quotes of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
}

/// Where a string ends, and which escapes it has.
fn closing_quote(bytes: &[u8], start: usize) -> (usize, Escapes) {
    let mut at = start;
    let mut escapes = Escapes::None;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return (at, escapes);
        }
        if matches!(bytes.get(at + 1), Some(b'u' | b'/')) {
            escapes = Escapes::Spelled;
        } else if escapes == Escapes::None {
            escapes = Escapes::Short;
        }
        at += 2;
    }
    (bytes.len(), escapes)
}

/// The inside of one string rewritten, or `None` when nothing changes.
fn rewrite_string<E>(raw: &str, member: Option<&str>, find: &mut Find<'_, E>) -> Result<Option<String>, E> {
    let mut out = String::new();
    if !raw.contains('\\') {
        let edits = find(member, raw)?;
        return Ok(if edits.is_empty() {
            None
        } else {
            replace(raw, &edits, &mut out);
            Some(out)
        });
    }
    // A lone surrogate has no place in a Rust string, so nothing that is replaced may hold one: it is a wall.
    let mut changed = false;
    let mut part = String::new();
    let mut part_start = 0;
    let mut at = 0;
    loop {
        let plain = raw[at..].find('\\').unwrap_or(raw.len() - at);
        part.push_str(&raw[at..at + plain]);
        at += plain;
        let (length, meaning) = if at < raw.len() { unit(raw, at) } else { (0, None) };
        if let Some(c) = meaning {
            part.push(c);
            at += length;
            continue;
        }
        let edits = find(member, &part)?;
        changed |= !edits.is_empty();
        replace(&raw[part_start..at], &edits, &mut out);
        out.push_str(&raw[at..at + length]);
        if at == raw.len() {
            return Ok(changed.then_some(out));
        }
        part.clear();
        at += length;
        part_start = at;
    }
}

/// Appends a part without lone surrogates; the edits count in its decoded form.
fn replace(raw: &str, edits: &[Edit], out: &mut String) {
    let mut copied = 0;
    let (mut at, mut decoded) = (0, 0);
    for edit in edits {
        let mut advance_to = |end: usize| {
            while decoded < end && at < raw.len() {
                let (length, meaning) = unit(raw, at);
                at += length;
                decoded += meaning.map_or(0, char::len_utf8);
            }
            at
        };
        let start = advance_to(edit.range.start);
        out.push_str(&raw[copied..start]);
        escape(&edit.with, out);
        copied = advance_to(edit.range.end);
    }
    out.push_str(&raw[copied..]);
}

/// Length and meaning of the character or escape at `at`; a lone surrogate has no meaning.
fn unit(raw: &str, at: usize) -> (usize, Option<char>) {
    let rest = &raw[at..];
    let bytes = rest.as_bytes();
    if bytes.first() != Some(&b'\\') {
        let c = rest.chars().next().unwrap_or_default();
        return (c.len_utf8(), Some(c));
    }
    let code = |from: usize| {
        let escaped = bytes.get(from) == Some(&b'\\') && bytes.get(from + 1) == Some(&b'u');
        escaped
            .then(|| rest.get(from + 2..from + 6))
            .flatten()
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
    };
    let c = match bytes.get(1) {
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => {
            return match (code(0), code(6)) {
                (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) => {
                    (12, char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)))
                }
                (Some(code), _) => (6, char::from_u32(code)),
                (None, _) => (1, Some('\\')),
            };
        }
        Some(b @ (b'"' | b'\\' | b'/')) => char::from(*b),
        // Not JSON; the caller's text always is.
        Some(_) | None => return (1, Some('\\')),
    };
    (2, Some(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: StringHints = StringHints { may_hold: true, tells: true };

    #[track_caller]
    fn check(json: &str, expect: &str) {
        let changed = rewrite::<std::convert::Infallible>(json, &|_, _| ALL, &mut |_, text| {
            Ok(text
                .match_indices("aé😀")
                .map(|(at, m)| Edit { range: at..at + m.len(), with: "<\"\u{1}>".into() })
                .collect())
        });
        let Ok(changed) = changed;
        assert_eq!(changed.as_deref().unwrap_or(json), expect);
        assert!(Json::parse(expect).is_ok());
    }

    #[test]
    fn json_outside_replacements_is_unchanged() {
        let new = r#"<\"\u0001>"#;
        for text in
            ["1.0", "[]", r#"{"b": 1e400, "a":12345678901234567890}"#, r#""\ud800\u0041\/\"""#, r#""""#]
        {
            check(text, text);
        }
        check(r#"["aé😀"]"#, &format!(r#"["{new}"]"#));
        check(r#"["\u0061\u00e9\ud83d\uDE00"]"#, &format!(r#"["{new}"]"#));
        check(
            r#"{"xaé😀\u0041" : "\naé\ud83d\ude00\t", "z":1.0}"#,
            &format!(r#"{{"x{new}\u0041" : "\n{new}\t", "z":1.0}}"#),
        );
        check(r#""\ud800aé😀\udc00aé\ud83d""#, &format!(r#""\ud800{new}\udc00aé\ud83d""#));
        check(r#"["\\","aé😀\\"]"#, &format!(r#"["\\","{new}\\"]"#));
    }

    #[test]
    fn members_are_named() {
        let json = r#"{"a" : "1", "b":["2",{"c":"3"}], "d":4, "e":"5", "f\n":"6", "g":"7\n"}"#;
        let mut seen = Vec::new();
        let Ok(changed) = rewrite::<std::convert::Infallible>(json, &|_, _| ALL, &mut |name, text| {
            if let Some(name) = name {
                seen.push(format!("{name}={text}"));
            }
            Ok(Vec::new())
        });
        assert_eq!(changed, None);
        assert_eq!(seen, ["a=1", "c=3", "e=5", "g=7\n"]);
    }

    #[test]
    fn escaping_is_json() {
        let text: String = (0..0x80u8).map(char::from).chain("é😀\u{2028}".chars()).collect();
        let mut out = String::from("\"");
        escape(&text, &mut out);
        out.push('"');
        assert_eq!(Json::parse(&out).unwrap().read::<String>().unwrap(), text);
    }
}
