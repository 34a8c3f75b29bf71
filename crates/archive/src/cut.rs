//! JSON texts that are known to be valid, taken apart one level at a time: what lies deeper is passed by, and not checked
//! again. A text that is not valid gives parts that are wrong, and no worse.

use std::borrow::Cow;

/// The members of an object in the order received; `None` for any other value, and where a name holds half of a surrogate
/// pair.
pub(crate) fn members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let bytes = text.as_bytes();
    let mut at = after(bytes, 0, b'{')?;
    let mut members = Vec::with_capacity(12);
    if bytes.get(at) == Some(&b'}') {
        return Some(members);
    }
    loop {
        let end = string_end(bytes, at)?;
        let name = string(text.get(at..end)?)?;
        at = after(bytes, end, b':')?;
        let end = value_end(bytes, at)?;
        members.push((name, text.get(at..end)?));
        at = blank(bytes, end);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b'}' => return Some(members),
            _ => return None,
        }
    }
}

/// The elements of a list; `None` for any other value.
pub(crate) fn elements(text: &str) -> Option<Vec<&str>> {
    let bytes = text.as_bytes();
    let mut at = after(bytes, 0, b'[')?;
    let mut elements = Vec::new();
    if bytes.get(at) == Some(&b']') {
        return Some(elements);
    }
    loop {
        let end = value_end(bytes, at)?;
        elements.push(text.get(at..end)?);
        at = blank(bytes, end);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b']' => return Some(elements),
            _ => return None,
        }
    }
}

/// A string as text; `None` for any other value, and for half of a surrogate pair.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr2(b'"', b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

/// Where the text goes on behind this sign, which comes next.
fn after(bytes: &[u8], at: usize, sign: u8) -> Option<usize> {
    let at = blank(bytes, at);
    (bytes.get(at) == Some(&sign)).then(|| blank(bytes, at + 1))
}

fn blank(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count()
}

/// Behind the value that begins here.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => inner_end(bytes, at),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let length = bytes[at..].iter().position(ends).unwrap_or(bytes.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

/// Behind the object or list that begins here.
fn inner_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = at;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Bytes of a string that are looked at one by one: most strings are short.
const SHORT: usize = 24;

/// Behind the string that begins here.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let start = at + 1;
    let first = &bytes[start..(start + SHORT).min(bytes.len())];
    let found = first.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    let mut at = start + found.unwrap_or(first.len());
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::json::Members;

    const TEXTS: [&str; 14] = [
        "{}",
        " { } ",
        "[]",
        "[ ]",
        r#"{"a":1,"b":[{"}":"]"},"\\"],"c":"a \" quote and a long text with a \\","d":null,"a":-1.5e7}"#,
        "{\n  \"a\" : { \"b\" : [ 1 , 2 ] } ,\r\t\"c\" : true }",
        r#"["a",[],{},[["]"]],"\\\"",1]"#,
        r#"{"\u00e9\n":"\ud83d\ude00","é😀":"\/"}"#,
        r#"{"half \ud83d":1}"#,
        "\"text\"",
        "12",
        "{\"a\":\"\",\"\":0}",
        "[1 ]",
        "[\"abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz\\\\\", \"\\\\\\\\\"]",
    ];

    /// As the parser has it, which checks what it reads.
    #[track_caller]
    fn check(text: &str) {
        let of = |members: Vec<(Cow<'_, str>, &str)>| -> Vec<(String, String)> {
            members.into_iter().map(|(name, value)| (name.into_owned(), value.to_owned())).collect()
        };
        assert_eq!(members(text).map(of), Members::of(text).map(|members| of(members.0)), "{text}");
        let expected = serde_json::from_str::<Vec<&RawValue>>(text).ok();
        let expected = expected.map(|list| list.into_iter().map(RawValue::get).collect::<Vec<_>>());
        assert_eq!(elements(text), expected, "{text}");
        assert_eq!(string(text), serde_json::from_str::<String>(text).ok().map(Cow::Owned), "{text}");
    }

    #[test]
    fn cuts_agree_with_the_json_parser() {
        TEXTS.iter().for_each(|text| check(text.trim_ascii()));
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let text = prop_oneof!["[\"\\\\{}\\[\\]:, a-c\n]{0,40}", any::<String>()];
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<f64>().prop_map(serde_json::Value::from),
            text.clone().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, move |inner| {
            let member = (text.clone(), inner.clone());
            prop_oneof![
                proptest::collection::vec(inner, 0..5).prop_map(serde_json::Value::from),
                proptest::collection::vec(member, 0..5)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_cut_like_the_parser(value in value()) {
            check(&value.to_string());
            check(&format!("{value:#}"));
        }

        #[test]
        fn invalid_json_is_harmless(text in "[\"\\\\{}\\[\\]:, aé1]{0,24}") {
            let parts = elements(&text).unwrap_or_default();
            let values = members(&text).unwrap_or_default().into_iter().map(|(_, value)| value).collect::<Vec<_>>();
            for parts in [parts, values] {
                assert!(parts.iter().map(|part| part.len()).sum::<usize>() <= text.len());
            }
            drop(string(&text));
        }
    }
}
