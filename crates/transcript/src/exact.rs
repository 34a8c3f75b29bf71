//! Values inside our part: canonical JSON that still gives back every text and number exactly.
//!
//! Canonical JSON sorts members and knows only doubles. What it would change is kept as `{"=": text}`.

use std::borrow::Cow;

use quipu_dag::{Value, canonical};
use quipu_protocol::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

const OPENING: &str = "{\"=\":\"";
const MAX_INTEGER: u64 = 1 << 53;
// Far below the parser's limit, so that our part around it can always be read.
const MAX_BRACKETS: usize = 1_000;

/// The value of a JSON text, in a form that [`read`] turns into the same text.
pub(crate) fn exact(json: &Json) -> Value {
    let text = json.get();
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets <= MAX_BRACKETS
        && !text.contains(OPENING)
        && let Ok(value) = Value::parse(text)
        && canonical(&value) == text
    {
        return value;
    }
    wrapped(text)
}

/// The text itself, always wrapped.
pub(crate) fn verbatim(json: &Json) -> Value {
    wrapped(json.get())
}

/// The value of plain data that holds no [`Json`]; absent when it has no JSON form.
pub(crate) fn plain<T: Serialize>(data: &T) -> Value {
    serde_json::to_value(data).map_or(Value::Null, from_tree)
}

fn from_tree(tree: serde_json::Value) -> Value {
    match tree {
        serde_json::Value::Number(number) => {
            let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if integer.is_some_and(|integer| integer > MAX_INTEGER) {
                return wrapped(&number.to_string());
            }
            Value::Number(number.as_f64().unwrap_or(f64::NAN))
        }
        serde_json::Value::Array(items) => Value::Array(items.into_iter().map(from_tree).collect()),
        // A double that is not finite has become null, which no field takes: the default is nearer.
        serde_json::Value::Object(members) => Value::object(
            members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, from_tree(value))),
        ),
        other => Value::from(other),
    }
}

fn wrapped(text: &str) -> Value {
    Value::object([("=", Value::from(text))])
}

/// Reads a value of our part.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(&unwrapped(text)).ok()
}

/// Puts each wrapped text in its place. `text` is JSON as we write it: without white space, so that the
/// opening cannot be inside a string, where its quotes would be escaped.
fn unwrapped(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find(OPENING) {
        let start = from + found;
        let string = start + OPENING.len() - 1;
        from = string + 1;
        let Some(end) = string_end(text, string) else { break };
        if text.as_bytes().get(end) != Some(&b'}') {
            continue;
        }
        let Ok(inner) = serde_json::from_str::<Cow<'_, str>>(&text[string..end]) else { continue };
        out.push_str(&text[copied..start]);
        out.push_str(&inner);
        copied = end + 1;
        from = copied;
    }
    if copied == 0 {
        return text.into();
    }
    out.push_str(&text[copied..]);
    out.into()
}

/// The position behind the string that begins with the quote at `start`.
fn string_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quipu_protocol::Usage;

    #[test]
    fn every_text_comes_back() {
        let deep = format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000));
        for text in [
            "1",
            "1.0",
            "-0",
            "1e21",
            "1e+21",
            "9007199254740993",
            "9007199254740994",
            "18446744073709551616",
            "\"a\"",
            "\"\\u0061\"",
            "\"\\ud800\"",
            "\"\\uD800\"",
            "{\"a\":1,\"b\":[2]}",
            "{\"b\":1,\"a\":2}",
            "{\"a\":1,\"a\":2}",
            "{\"__proto__\":1}",
            "[ ]",
            "null",
            "{\"=\":\"1\"}",
            "[{\"=\":\"x\"}]",
            "{\"=\":1}",
            "\"{\\\"=\\\":\\\"1\\\"}\"",
            "{\"10\":1,\"9\":2}",
            "{\"=\":\"{\\\"=\\\":\\\"2\\\"}\"}",
            &deep,
        ] {
            let json = Json::parse(text).unwrap();
            let value = Value::object([("in", exact(&json)), ("next", Value::from("{\"=\":\""))]);
            let written = canonical(&value);
            assert!(quipu_dag::is_canonical(&written), "{written}");
            let back: std::collections::BTreeMap<String, Json> = read(&written).unwrap();
            assert_eq!(back["in"].get(), text);
            assert_eq!(back["next"].get(), "\"{\\\"=\\\":\\\"\"");
        }
    }

    #[test]
    fn every_number_comes_back() {
        let mut usage =
            Usage { input: u64::MAX, output: MAX_INTEGER + 1, total_tokens: MAX_INTEGER, ..Usage::default() };
        usage.cost.total = 1e21;
        usage.cost.output = 5e-324;
        usage.cost.input = 0.1 + 0.2;
        assert_eq!(read(&canonical(&plain(&usage))), Some(usage));
        usage.cost.cache_read = f64::INFINITY;
        let back: Usage = read(&canonical(&plain(&usage))).unwrap();
        usage.cost.cache_read = 0.0;
        assert_eq!(back, usage);
        for number in [i64::MIN, i64::MAX, -1, -(1 << 53) - 1] {
            assert_eq!(read::<i64>(&canonical(&plain(&number))), Some(number));
        }
    }

    #[test]
    fn broken_wrappers_do_no_harm() {
        for text in [
            "{\"=\":\"",
            "{\"=\":\"a",
            "{\"=\":\"\\",
            "{\"=\":\"a\"",
            "{\"=\":\"a\",\"b\":1}",
            "{\"=\":\"\\x\"}",
            "{\"=\":\"]\"}",
        ] {
            assert_eq!(read::<Vec<Json>>(text), None, "{text}");
        }
    }
}
