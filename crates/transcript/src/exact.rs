//! Values inside our part: canonical JSON that still gives back every text and number exactly.
//!
//! Canonical JSON sorts members and knows only doubles. What it would change is kept as `{"=": text}`.

use std::borrow::Cow;

use quipu_dag::{Value, canonical, is_canonical, quoted};
use quipu_protocol::{Cost, Json, Usage};
use serde::Serialize;
use serde::de::DeserializeOwned;

const OPENING: &str = "{\"=\":\"";
const MAX_INTEGER: u64 = 1 << 53;
// Far below the parser's limit, so that our part around it can always be read.
const MAX_BRACKETS: usize = 1_000;

/// Canonical JSON while it is put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Canonical(String);

impl Canonical {
    /// An object. Each name comes once, and is a word of ours: JavaScript keeps the order of their bytes.
    pub(crate) fn object(members: impl IntoIterator<Item = (&'static str, Canonical)>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        let mut out = String::with_capacity(
            members.iter().map(|(name, value)| name.len() + value.0.len() + 4).sum::<usize>() + 2,
        );
        out.push('{');
        for (name, value) in &members {
            if out.len() > 1 {
                out.push(',');
            }
            out.push('"');
            out.push_str(name);
            out.push_str("\":");
            out.push_str(&value.0);
        }
        out.push('}');
        Self(out)
    }

    pub(crate) fn list(items: impl IntoIterator<Item = Canonical>) -> Self {
        let items: Vec<Canonical> = items.into_iter().collect();
        let mut out = String::with_capacity(items.iter().map(|item| item.0.len() + 1).sum::<usize>() + 2);
        out.push('[');
        for item in &items {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&item.0);
        }
        out.push(']');
        Self(out)
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

impl From<&str> for Canonical {
    fn from(text: &str) -> Self {
        Self(quoted(text))
    }
}

impl From<bool> for Canonical {
    fn from(value: bool) -> Self {
        Self(if value { "true" } else { "false" }.to_owned())
    }
}

impl From<u64> for Canonical {
    fn from(number: u64) -> Self {
        let text = number.to_string();
        if number > MAX_INTEGER { wrapped(&text) } else { Self(text) }
    }
}

impl From<i64> for Canonical {
    fn from(number: i64) -> Self {
        let text = number.to_string();
        if number.unsigned_abs() > MAX_INTEGER { wrapped(&text) } else { Self(text) }
    }
}

/// A JSON text, in a form that [`read`] turns into the same text.
pub(crate) fn exact(json: &Json) -> Canonical {
    let text = json.get();
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets <= MAX_BRACKETS && !text.contains(OPENING) && is_canonical(text) {
        return Canonical(text.to_owned());
    }
    wrapped(text)
}

/// The text itself, always wrapped.
pub(crate) fn verbatim(json: &Json) -> Canonical {
    wrapped(json.get())
}

/// Plain data that holds no [`Json`]; `null` when it has no JSON form.
pub(crate) fn plain<T: Serialize>(data: &T) -> Canonical {
    Canonical(canonical(&serde_json::to_value(data).map_or(Value::Null, from_tree)))
}

/// What [`plain`] makes of them, which most messages have.
pub(crate) fn usage(usage: &Usage) -> Canonical {
    let Usage { input, output, cache_read, cache_write, cache_write_1h, reasoning, total_tokens, cost } =
        *usage;
    let mut members = vec![
        ("input", Canonical::from(input)),
        ("output", output.into()),
        ("cacheRead", cache_read.into()),
        ("cacheWrite", cache_write.into()),
        ("totalTokens", total_tokens.into()),
    ];
    members.extend(cache_write_1h.map(|count| ("cacheWrite1h", count.into())));
    members.extend(reasoning.map(|count| ("reasoning", count.into())));
    let Cost { input, output, cache_read, cache_write, total } = cost;
    let cost = [
        ("input", input),
        ("output", output),
        ("cacheRead", cache_read),
        ("cacheWrite", cache_write),
        ("total", total),
    ];
    // What is not finite has no form.
    let cost = cost.into_iter().filter(|(_, number)| number.is_finite());
    let cost = cost.map(|(name, number)| (name, Canonical(canonical(&Value::Number(number)))));
    members.push(("cost", Canonical::object(cost)));
    Canonical::object(members)
}

fn from_tree(tree: serde_json::Value) -> Value {
    match tree {
        serde_json::Value::Number(number) => {
            let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if integer.is_some_and(|integer| integer > MAX_INTEGER) {
                return Value::object([("=", Value::from(number.to_string()))]);
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

fn wrapped(text: &str) -> Canonical {
    Canonical::object([("=", text.into())])
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
            let value = Canonical::object([("next", Canonical::from("{\"=\":\"")), ("in", exact(&json))]);
            let written = value.into_text();
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
        assert_eq!(read(&plain(&usage).into_text()), Some(usage));
        usage.cost.cache_read = f64::INFINITY;
        let back: Usage = read(&plain(&usage).into_text()).unwrap();
        usage.cost.cache_read = 0.0;
        assert_eq!(back, usage);
        for usage in
            [usage, Usage::default(), Usage { reasoning: Some(5), cache_write_1h: Some(u64::MAX), ..usage }]
        {
            assert_eq!(self::usage(&usage), plain(&usage));
        }
        for number in [0, 7, u64::MAX, MAX_INTEGER, MAX_INTEGER + 1] {
            assert_eq!(Canonical::from(number), plain(&number));
        }
        for number in [i64::MIN, i64::MAX, -1, -(1 << 53) - 1, -(1 << 53), 0] {
            assert_eq!(Canonical::from(number), plain(&number));
            assert_eq!(read::<i64>(&plain(&number).into_text()), Some(number));
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
