//! The one spelling of a value that is hashed: what JavaScript's `JSON.stringify` writes after a sorter has
//! rebuilt each object with its keys in order. Not RFC 8785: integer-like keys come first, `__proto__` is lost.

use sha2::{Digest, Sha256};

use crate::{JsonError, Text, Value};

/// SHA-256 of plain bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 of the canonical form of a value.
pub fn hash_content(value: &Value) -> [u8; 32] {
    sha256(canonical(value).as_bytes())
}

/// SHA-256 of the canonical form of a JSON text.
///
/// # Errors
/// When `text` is not JSON that [`Value::parse`] takes.
pub fn hash_json(text: &str) -> Result<[u8; 32], JsonError> {
    Value::parse(text).map(|value| hash_content(&value))
}

/// The canonical form of a value.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// Whether a JSON text is canonical already, so that reading and writing it again changes no byte.
pub fn is_canonical(text: &str) -> bool {
    !is_disordered(text.as_bytes()) && Value::parse(text).is_ok_and(|value| canonical(&value) == text)
}

/// Whether it shows without reading the values that a text is not canonical: white space between them, or names that
/// are not in order. Most of what other programs write is known by its second name.
fn is_disordered(text: &[u8]) -> bool {
    // The last name of each object that is open; empty where there is none that can be compared.
    let mut open: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => return true,
            b'{' | b'[' => open.push(&[]),
            b'}' | b']' => {
                open.pop();
            }
            b'"' => {
                let start = at;
                loop {
                    at += plain(&text[at.min(text.len())..]);
                    match text.get(at) {
                        Some(b'\\') => at += 2,
                        Some(b'"') => break,
                        // Not JSON.
                        Some(_) | None => return true,
                    }
                }
                let name = &text[start..at];
                at += 1;
                if text.get(at) != Some(&b':') {
                    continue;
                }
                let Some(last) = open.last_mut() else { return true };
                // Numbers come first, and escapes and what is not ASCII may sort otherwise than their bytes.
                let is_plain = name.first().is_some_and(|first| !first.is_ascii_digit())
                    && name.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
                let name = if is_plain { name } else { &[] };
                if !name.is_empty() && !last.is_empty() && name <= *last {
                    return true;
                }
                *last = name;
            }
            _ => {}
        }
    }
    false
}

// An array or object that is being written: no recursion, so that depth costs heap and not stack.
enum Open<'a> {
    Array(std::slice::Iter<'a, Value>),
    Object(std::vec::IntoIter<(&'a Text, &'a Value)>),
}

pub(crate) fn write_value(out: &mut String, value: &Value) {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut next = Some(value);
    loop {
        match next {
            None => {}
            Some(Value::Null) => out.push_str("null"),
            Some(Value::Bool(true)) => out.push_str("true"),
            Some(Value::Bool(false)) => out.push_str("false"),
            Some(Value::Number(number)) => write_number(out, *number),
            Some(Value::String(text)) => write_text(out, text),
            Some(Value::Array(items)) => {
                out.push('[');
                open.push(Open::Array(items.iter()));
            }
            Some(Value::Object(members)) => {
                out.push('{');
                open.push(Open::Object(sorted(members).into_iter()));
            }
        }
        // A bracket that was just opened has no comma before its first value.
        next = match open.last_mut() {
            None => return,
            Some(Open::Array(items)) => match items.next() {
                Some(item) => {
                    comma(out, b'[');
                    Some(item)
                }
                None => {
                    out.push(']');
                    open.pop();
                    None
                }
            },
            Some(Open::Object(members)) => match members.next() {
                Some((name, item)) => {
                    comma(out, b'{');
                    write_text(out, name);
                    out.push(':');
                    Some(item)
                }
                None => {
                    out.push('}');
                    open.pop();
                    None
                }
            },
        };
    }
}

/// A comma, unless the last byte opened this very bracket. No value ends in an opening bracket (a string ends
/// in a quote), so the last byte tells.
fn comma(out: &mut String, bracket: u8) {
    if out.as_bytes().last() != Some(&bracket) {
        out.push(',');
    }
}

fn sorted(members: &[(Text, Value)]) -> Vec<(&Text, &Value)> {
    let mut members: Vec<(Option<u32>, &Text, &Value)> = members
        .iter()
        .filter(|(name, _)| name != "__proto__")
        .map(|(name, value)| (array_index(name), name, value))
        .collect();
    // Reversed first: of equal names the last then stands first in the stable order, and is kept.
    members.reverse();
    members.sort_by(|(a_index, a, _), (b_index, b, _)| match (a_index, b_index) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.cmp(b),
    });
    members.dedup_by(|(_, later, _), (_, kept, _)| later == kept);
    members.into_iter().map(|(_, name, value)| (name, value)).collect()
}

/// The number of a name that JavaScript takes for an array index: 0 to 2^32 - 2, spelled without leading zero.
fn array_index(name: &Text) -> Option<u32> {
    let digits = name.as_str()?;
    let plain = matches!(digits.len(), 1..=10) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    digits.parse().ok().filter(|&index| index != u32::MAX)
}

pub(crate) fn write_number(out: &mut String, number: f64) {
    if number.is_finite() {
        out.push_str(ryu_js::Buffer::new().format_finite(number));
    } else {
        out.push_str("null");
    }
}

/// Writes a string in quotes, escaped as `JSON.stringify` does.
fn write_text(out: &mut String, text: &Text) {
    match (text.as_str(), text.wide()) {
        (Some(text), _) => write_str(out, text),
        (None, Some(characters)) => {
            out.push('"');
            for character in characters {
                match character {
                    Ok(character) => write_escaped(out, character.encode_utf8(&mut [0; 4])),
                    Err(unit) => push_unit(out, unit),
                }
            }
            out.push('"');
        }
        (None, None) => {}
    }
}

pub(crate) fn write_str(out: &mut String, text: &str) {
    // Most of what is escaped takes one byte more; to grow would copy all that is there.
    out.reserve(text.len() + escapes(text.as_bytes()) + 2);
    out.push('"');
    write_escaped(out, text);
    out.push('"');
}

/// The canonical form of a string: quoted and escaped.
pub fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_str(&mut out, text);
    out
}

/// How many bytes come before the first that a string of JSON cannot hold as it is.
pub(crate) fn plain(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<32>();
    // Without a way out in the middle, a chunk is looked at all at once.
    let skipped = 32
        * chunks
            .iter()
            .take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_special(*byte)))
            .count();
    let (words, rest) = bytes[skipped..].as_chunks();
    let special = words.iter().map(|word| first_special(*word)).zip(0..);
    match special.filter_map(|(place, word)| Some(place? + 8 * word)).next() {
        Some(place) => skipped + place,
        None => bytes.len() - rest.len() + rest.iter().take_while(|byte| !is_special(**byte)).count(),
    }
}

/// Whether a string of JSON cannot hold a byte as it is.
fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The first of eight bytes that is special: all are looked at as one number.
fn first_special(bytes: [u8; 8]) -> Option<usize> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let word = u64::from_le_bytes(bytes);
    // The highest bit of each byte that is less, of ASCII. What is borrowed reaches later bytes only.
    let less = |word: u64, than: u8| word.wrapping_sub(EACH * u64::from(than)) & !word & EACH << 7;
    let is = |byte: u8| less(word ^ (EACH * u64::from(byte)), 1);
    let found = less(word, 0x20) | is(b'"') | is(b'\\');
    (found != 0).then_some(found.trailing_zeros() as usize / 8)
}

/// How many bytes are special.
fn escapes(bytes: &[u8]) -> usize {
    // In a number of one byte, many are counted at once.
    let count = |bytes: &[u8]| bytes.iter().fold(0_u8, |count, byte| count + u8::from(is_special(*byte)));
    bytes.chunks(128).map(|chunk| usize::from(count(chunk))).sum()
}

fn write_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let (before, from) = rest.split_at(plain(rest.as_bytes()));
        out.push_str(before);
        let Some(byte) = from.bytes().next() else { return };
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0C => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => push_unit(out, byte.into()),
        }
        rest = &from[1..];
    }
}

fn push_unit(out: &mut String, unit: u16) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        out.push(DIGITS[usize::from(unit >> shift & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsorted_members_are_detected() {
        let check = |text: &str, disordered: bool| {
            assert_eq!(is_disordered(text.as_bytes()), disordered, "{text}");
            assert!(!disordered || Value::parse(text).map(|value| canonical(&value)).as_deref() != Ok(text));
        };
        check(r#"{"a":[{"c":1},{"b":2}],"b":{"z":{},"é":"x: y"}}"#, false);
        check(r#"{"a\"b":" ","B":1}"#, false);
        check(r#"{"9":1,"10":2,"a":3}"#, false);
        check(r#"{"b":1,"a":2}"#, true);
        check(r#"[{"a":{"y":0,"x":0}}]"#, true);
        check(r#"{"a":1,"a":1}"#, true);
        check(r#"{"a": 1}"#, true);
        check("[1,\n2]", true);
        check(r#"{"a":"open"#, true);
        check(r#""a\"#, true);
        // What only reading tells.
        check(r#"{"a":1.0}"#, false);
        check(r#"{"é":1,"a":2}"#, false);
        assert!(!is_canonical(r#"{"a":1.0}"#) && !is_canonical(r#"{"é":1,"a":2}"#));
    }

    #[test]
    fn escaped_character_is_found_at_every_offset() {
        for at in 0..70 {
            for byte in 0..0x80_u8 {
                let mut text = "aé".repeat(35);
                text.insert(text.floor_char_boundary(at), char::from(byte));
                assert_eq!(quoted(&text), serde_json::to_string(&text).unwrap());
                assert_eq!(Value::parse(&quoted(&text)), Ok(Value::from(text)));
            }
        }
    }
}
