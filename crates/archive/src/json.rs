//! JSON texts compared and taken apart one level at a time, so that long strings are looked at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use quipu_protocol::Json;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::cut;

/// Levels that are compared by meaning; deeper values must be spelled alike.
const DEEPEST: u32 = 32;

/// The members of an object in the order received, with the texts of their values.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Members<'a> {
    /// The members of an object; `None` for any other value, and where a name holds half of a surrogate pair.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// The same of a text that is valid JSON, such as that of a [`Json`] or of a member: it is not checked again.
    pub(crate) fn known(text: &'a str) -> Option<Self> {
        cut::members(text).map(Self)
    }

    /// The value of a member; the last one when there are more.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(have, _)| have == name).map(|(_, value)| *value)
    }

    /// The value of a member when it is a string that can be held as text.
    pub(crate) fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(string)
    }

    /// The object without these members.
    pub(crate) fn without(&self, names: &[&str]) -> Json {
        let length = self.0.iter().map(|(name, value)| name.len() + value.len() + 4);
        let mut out = String::with_capacity(length.sum::<usize>() + 2);
        out.push('{');
        for (name, value) in &self.0 {
            if !names.contains(&name.as_ref()) {
                if out.len() > 1 {
                    out.push(',');
                }
                match name {
                    // It stands like this in the text that it was read from.
                    Cow::Borrowed(name) => out.extend(["\"", name, "\""]),
                    Cow::Owned(name) => out.push_str(&quipu_dag::quoted(name)),
                }
                out.push(':');
                out.push_str(value);
            }
        }
        out.push('}');
        Json::known(out)
    }
}

/// The list of these values.
pub(crate) fn list_of(values: &[Json]) -> String {
    let mut out = String::with_capacity(values.iter().map(|value| value.get().len() + 1).sum::<usize>() + 2);
    out.push('[');
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(value.get());
    }
    out.push(']');
    out
}

/// A JSON string as text; `None` for any other value, and for half of a surrogate pair.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    cut::string(text)
}

/// A JSON string, half of a surrogate pair as U+FFFD.
pub(crate) fn text_of(json: &str) -> Option<String> {
    let text = cut::string(json).map(Cow::into_owned);
    text.or_else(|| serde_json::from_str(&quipu_protocol::without_lone_surrogates(json)).ok())
}

/// The elements of a list; none for any other value.
pub(crate) fn list(text: &str) -> Vec<&str> {
    serde_json::from_str::<Vec<&RawValue>>(text)
        .map_or_else(|_| Vec::new(), |list| list.into_iter().map(RawValue::get).collect())
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some((Key(name), value)) = map.next_entry::<_, &RawValue>()? {
                    members.push((name, value.get()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

/// Whether two JSON texts mean the same to a program that reads them: the order of members, the spelling of
/// numbers and of escapes do not count. `false` where that cannot be seen.
pub(crate) fn same(a: &str, b: &str) -> bool {
    same_within(a, b, DEEPEST)
}

/// Whether two JSON texts are the same but for the white space between their values and the spelling of numbers.
fn spelled_alike(a: &str, b: &str) -> bool {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let digit = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        a = &a[a.iter().take_while(|byte| blank(byte)).count()..];
        b = &b[b.iter().take_while(|byte| blank(byte)).count()..];
        let (Some(first), Some(other)) = (a.first(), b.first()) else { return a.is_empty() && b.is_empty() };
        if let (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') = (first, other) {
            let (one, rest) = a.split_at(a.iter().take_while(digit).count());
            let (two, other_rest) = b.split_at(b.iter().take_while(digit).count());
            if one != two && !same_number(one, two) {
                return false;
            }
            (a, b) = (rest, other_rest);
            continue;
        }
        if first != other {
            return false;
        }
        let mut length = 1;
        // A string is compared as it stands.
        while *first == b'"'
            && let Some(found) = memchr::memchr2(b'"', b'\\', a.get(length..).unwrap_or_default())
        {
            let quote = a[length + found] == b'"';
            length += found + if quote { 1 } else { 2 };
            if quote {
                break;
            }
        }
        let (Some(one), Some(two)) = (a.get(..length), b.get(..length)) else { return false };
        if one != two {
            return false;
        }
        (a, b) = (&a[length..], &b[length..]);
    }
}

/// Whether two numbers are the same double.
fn same_number(a: &[u8], b: &[u8]) -> bool {
    let number =
        |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok().filter(|it| it.is_finite());
    number(a).is_some_and(|a| number(b) == Some(a))
}

fn same_within(a: &str, b: &str, depth: u32) -> bool {
    if spelled_alike(a, b) {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => {
            let (Some(a), Some(b)) = (Members::of(a), Members::of(b)) else { return false };
            let alike = |(at, (name, value)): (usize, &(Cow<'_, str>, &str))| {
                let other = match b.0.get(at) {
                    Some((other, value)) if other == name => Some(*value),
                    _ => b.get(name),
                };
                other.is_some_and(|other| same_within(value, other, depth))
            };
            a.0.len() == b.0.len() && a.0.iter().enumerate().all(alike)
        }
        (Some(b'['), Some(b'[')) => {
            let list = |text| serde_json::from_str::<Vec<&RawValue>>(text);
            let (Ok(a), Ok(b)) = (list(a), list(b)) else { return false };
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_within(a.get(), b.get(), depth))
        }
        (Some(b'"'), Some(b'"')) => string(a).is_some_and(|a| string(b) == Some(a)),
        _ => false,
    }
}

/// What must be done to one object to get another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Difference {
    /// Members that it has otherwise, or only it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<String, Json>,
    /// Members that it does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unset: Vec<String>,
}

impl Difference {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }

    pub(crate) fn between(from: &Members<'_>, to: &Members<'_>) -> Self {
        let mut difference = Self::default();
        for (name, value) in &to.0 {
            if from.get(name).is_none_or(|from| !same(from, value)) {
                difference.set(name, value);
            } else if !difference.set.is_empty() {
                // Of members with one name the last counts.
                difference.set.remove(name.as_ref());
            }
        }
        let gone = from.0.iter().filter(|(name, _)| to.get(name).is_none());
        difference.unset.extend(gone.map(|(name, _)| name.to_string()));
        difference
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        // It was read as a value of its own before.
        if let Ok(value) = Json::parse(value) {
            self.set.insert(name.to_owned(), value);
        }
    }

    /// Writes the object that `from` becomes.
    pub(crate) fn write<'a>(&self, out: &mut String, from: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut comma = '{';
        let mut write = |name: &str, value: &str| {
            out.push(comma);
            out.push_str(&quipu_dag::quoted(name));
            out.push(':');
            out.push_str(value);
            comma = ',';
        };
        let mut rest: BTreeMap<&str, &str> =
            self.set.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
        for (name, value) in from {
            match rest.remove(name) {
                Some(value) => write(name, value),
                None if self.unset.iter().any(|gone| gone == name) => {}
                None => write(name, value),
            }
        }
        for (name, value) in rest {
            write(name, value);
        }
        if comma == '{' {
            out.push('{');
        }
        out.push('}');
    }
}

/// The time of a text, when it is in the calendar.
pub(crate) fn time_of(text: &str) -> Option<quipu_protocol::UnixMs> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_value_with_other_spelling_is_equal() {
        let check = |a: &str, b: &str, expect: bool| {
            assert_eq!(same(a, b), expect, "{a} {b}");
            assert_eq!(same(b, a), expect, "{b} {a}");
        };
        check("{\"a\":1,\"b\":[0,\"\\u00e9\"]}", "{\"b\":[0.0,\"é\"],\"a\":1.0}", true);
        check("{\"a\": [1, \"b \\\" c\"], \"d\":{ }}", " {\"a\":[1,\"b \\\" c\"],\"d\":{}}\n", true);
        check("\"a \\\" b\"", "\"a \\\"  b\"", false);
        check("\"a\"", "\"a \"", false);
        check("{\"a\":1}", "{\"a\":1,\"b\":null}", false);
        check("{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", false);
        check("[1]", "[1,1]", false);
        check("1", "\"1\"", false);
        check("1e400", "1e401", false);
        check("\"\\ud800\"", "\"\\ud800\"", true);
        check("\"\\ud800\"", "\"\\ufffd\"", false);
        check("null", "{}", false);
        let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(100_000), "]".repeat(100_000));
        check(&deep("1"), &deep("1"), true);
        check(&deep("1"), &deep("1.0"), true);
        check(&deep("\"a\""), &deep("\"\\u0061\""), false);
        check("[-1.5e3,\"a\", 0]", "[ -1500,\"a\",0.0]", true);
        check("[1,2]", "[12]", false);
        check("[0]", "[0,1]", false);
        check("[1e400]", "[1e401]", false);
        check("[1e400]", "[1e400]", true);
    }

    #[test]
    fn difference_restores_the_other_value() {
        for (from, to) in [
            ("{}", "{}"),
            ("{\"a\":1,\"b\":2}", "{\"a\":1.0,\"b\":3,\"c\":{\"d\":null}}"),
            ("{\"a\":1}", "{}"),
            ("{}", "{\"\":1,\"\\\"\":2}"),
            ("{\"a\":\"x\"}", "{\"a\":\"\\ud800\"}"),
        ] {
            let members = Members::of(from).unwrap();
            let difference = Difference::between(&members, &Members::of(to).unwrap());
            let difference: Difference =
                serde_json::from_str(&serde_json::to_string(&difference).unwrap()).unwrap();
            let mut out = String::new();
            difference.write(&mut out, members.0.iter().map(|(name, value)| (name.as_ref(), *value)));
            assert!(same(&out, to), "{out} {to}");
        }
        let twice = Members::of("{\"a\":2,\"a\":1}").unwrap();
        assert!(
            Difference::between(&Members::of("{\"a\":1}").unwrap(), &twice).is_empty(),
            "the last counts"
        );
    }
}
