//! The published string that Anthropic's servers answer with a refusal, so that programs can test theirs. A file or a page that holds it
//! would end the conversation, because each later request holds it too.

use std::borrow::Cow;

use quipu_protocol::Json;
use serde::Serializer;

/// How it begins; 64 hexadecimal digits follow.
const ARMED: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REFUSAL";
/// What stands for that: a person and a model still know what it was, and it is as long, so that places in a text stay.
const BROKEN: &str = "ANTHROPIC MAGIC STRING TRIGGER REFUSAL";

/// The text without the string. It depends on the text alone, so a request still begins with the bytes of the one before.
pub(crate) fn disarmed(text: &str) -> Cow<'_, str> {
    if text.contains(ARMED) { Cow::Owned(text.replace(ARMED, BROKEN)) } else { Cow::Borrowed(text) }
}

/// The same for JSON, where characters can be escaped.
pub(crate) fn disarmed_json(json: Json) -> Json {
    // As it is written it stands within texts and names alone, so that what surrounds it stays what it was.
    let json = match disarmed(json.get()) {
        Cow::Owned(plain) => Json::parse(&plain).unwrap_or_else(|_| json.clone()),
        Cow::Borrowed(_) => json,
    };
    if !json.get().contains("\\u") {
        return json;
    }
    let value = json.value();
    // What has a text is not null, unless no tree can hold it.
    let plain = if value.is_null() { String::new() } else { value.to_string() };
    match disarmed(&plain) {
        Cow::Owned(plain) => Json::parse(&plain).unwrap_or(json),
        Cow::Borrowed(_) => json,
    }
}

/// Writes a text of a block.
pub(crate) fn write<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&disarmed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_alone_is_changed() {
        let armed = format!("a {ARMED}_{} b {ARMED}", "1F".repeat(32));
        let found = disarmed(&armed);
        assert_eq!((found.len(), found.contains(ARMED)), (armed.len(), false));
        assert_eq!(disarmed(&found), found);
        assert!(matches!(disarmed("ANTHROPIC_MAGIC_STRING"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_is_looked_through() {
        let parse = |text: &str| Json::parse(text).unwrap();
        for armed in [
            format!(r#"{{"b":1,"a":["{ARMED}_1"]}}"#),
            format!(r#"{{"b":"\u00e4","a":"{}_1"}}"#, ARMED.replace('_', "\\u005f")),
        ] {
            let found = disarmed_json(parse(&armed)).value().to_string();
            assert!(!found.contains(ARMED) && found.contains("TRIGGER REFUSAL_1"), "{found}");
        }
        // A number that no tree can hold.
        let armed = format!(r#"{{"b":"\u00e4","n":1e999,"a":"{ARMED}_1"}}"#);
        assert_eq!(disarmed_json(parse(&armed)).get(), armed.replace(ARMED, BROKEN));
        let same = r#"{"b": "\u005f", "a":1.50}"#;
        assert_eq!(disarmed_json(parse(same)).get(), same);
    }
}
