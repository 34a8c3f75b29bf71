//! JSON text that is kept as it was received.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

/// A JSON value kept as text: member order, number spelling (`1.0`, integers above 2^53) and escapes of lone
/// surrogates stay what they were. Cheap to clone.
///
/// Equality is equality of the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks that `text` is one JSON value and keeps it verbatim (without surrounding white space).
    ///
    /// # Errors
    /// The parser's message with line and column when it is not.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text.trim_matches([' ', '\t', '\r', '\n']))?;
        Ok(Self(raw.get().into()))
    }

    /// A text that is one JSON value by the way in which it was made, without white space around it: it is not read again.
    pub fn known(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        debug_assert!(
            serde_json::from_str::<&RawValue>(&text).is_ok_and(|raw| raw.get() == &*text),
            "{text}"
        );
        Self(text)
    }

    /// The JSON text of any serialisable value.
    ///
    /// # Errors
    /// When the value has no JSON form (a map with non-string keys, a failing `Serialize`).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// `{}`, an object without members.
    pub fn object() -> Self {
        Self("{}".into())
    }

    /// The value `null`, which is also the default.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The JSON text as it was received, without white space around it.
    pub fn get(&self) -> &str {
        &self.0
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the shapes differ.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// A tree view of the value; lone surrogates, which a tree cannot hold, become U+FFFD.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0)
            .or_else(|_| serde_json::from_str(&without_lone_surrogates(&self.0)))
            .unwrap_or(serde_json::Value::Null)
    }
}

impl From<&RawValue> for Json {
    fn from(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl schemars::JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!(true)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d).map_err(de::Error::custom)?;
        Ok(Self(raw.get().into()))
    }
}

/// Replaces each `\ud800`..`\udfff` escape that is not half of a pair with `\ufffd`, so that a parser which
/// refuses lone surrogates can read the rest. `text` must be JSON.
pub fn without_lone_surrogates(text: &str) -> std::borrow::Cow<'_, str> {
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u16> {
        let hex = text.get(at + 2..at + 6)?;
        (bytes.get(at) == Some(&b'\\') && bytes.get(at + 1) == Some(&b'u'))
            .then(|| u16::from_str_radix(hex, 16).ok())
            .flatten()
    };
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    if copied == 0 {
        return text.into();
    }
    out.push_str(&text[copied..]);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept_verbatim() {
        for text in [r#"{"b":1,"a":1.0,"9":12345678901234567890,"__proto__":{}}"#, r#""\ud800x""#, "[]"] {
            let json = Json::parse(text).unwrap();
            assert_eq!(json.get(), text);
            assert_eq!(serde_json::to_string(&json).unwrap(), text);
            assert_eq!(serde_json::from_str::<Json>(text).unwrap(), json);
        }
        assert_eq!(Json::parse(" {} \n").unwrap().get(), "{}");
        assert!(Json::parse("{").is_err());
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        let check = |text: &str, expect: &str| assert_eq!(without_lone_surrogates(text), expect);
        check(r#""\ud800""#, r#""\ufffd""#);
        check(r#""\ud83d\ude00 \\ud800 \u0041\udc00""#, r#""\ud83d\ude00 \\ud800 \u0041\ufffd""#);
        check("\"é\\n\"", "\"é\\n\"");
        assert_eq!(Json::parse(r#"{"a":"\udfff"}"#).unwrap().value()["a"], "\u{fffd}");
    }
}
