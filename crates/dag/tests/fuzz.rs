//! Canonical JSON from any bytes. See `docs/development.md`.

#[path = "../../testkit/tests/shared/fuzz.rs"]
mod driver;

use quipu_dag::{JsonErrorKind, MAX_DEPTH, Value, canonical, hash_content, hash_json, is_canonical};

const WORDS: &str = r#"{ } [ ] , : " \ \\ \" \/ \n \u0000 \u001f \u2028 \ud800 \udc00 \ud83d\ude00 \uD83D \u00 null true false
    0 -0 1 -1 01 1. .5 1e 1e999 -1e-999 1e21 1e-7 0.1 5e-324 1.7976931348623157e308 9007199254740993 12345678901234567890
    "a": "__proto__": "9": "10": "01": "4294967294": "4294967295": "-1": "a":1, [[[[ ]]]] {"a": }}}}"#;

/// What `serde_json` says of the same text, where the two mean the same by it.
fn law(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
    let value = match Value::parse(&text) {
        Ok(value) => value,
        Err(error) if error.offset > text.len() => return Err(format!("{error}, which is behind the end")),
        Err(error) if error.kind == JsonErrorKind::Depth => {
            let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
            return if brackets > MAX_DEPTH { Ok(()) } else { Err(error.to_string()) };
        }
        Err(_) if !is_json => return Ok(()),
        Err(error) => return Err(format!("JSON was refused: {error}")),
    };
    if !is_json {
        return Err("what is not JSON was taken".into());
    }
    let first = canonical(&value);
    let again = Value::parse(&first).map_err(|error| format!("canonical {first} is no JSON: {error}"))?;
    if canonical(&again) != first || !is_canonical(&first) {
        return Err(format!("{first} becomes {}", canonical(&again)));
    }
    if hash_json(&text) != Ok(hash_content(&value)) || hash_json(&first) != Ok(hash_content(&value)) {
        return Err("the hashes differ".into());
    }
    // Halves of surrogate pairs, numbers that are too large and what is deep have no such tree.
    if let Ok(tree) = serde_json::from_str::<serde_json::Value>(&text) {
        let other = canonical(&Value::from(tree));
        if other != first {
            return Err(format!("{first}, but by serde_json {other}"));
        }
    }
    Ok(())
}

#[test]
fn fuzz_canonical_json() {
    let words: Vec<String> = WORDS.split_whitespace().map(String::from).collect();
    driver::run(
        bolero::check!(name = "canonical_json"),
        "fuzz_canonical_json",
        &["__fuzz__/canonical_json/corpus"],
        &words,
        law,
    );
}
