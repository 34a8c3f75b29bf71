//! Sealing of any JSON text. See `docs/development.md`.

#[path = "../../testkit/tests/shared/fuzz.rs"]
mod driver;
mod support;

use quipu_protocol::Json;
use quipu_seal::Sealer;
use serde_json::Value;

const KNOWN: [&str; 3] = ["correct horse battery", "p/Q+9 ~x>?\"ü\\y", "abcdefgh"];
const WORDS: &str = r#"{ } [ ] , : " \ \\ \" \/ \n \u0000 \u0061 \ud800 \udc00 \ud83d\ude00 null 1.0 "password":" "token":"
    "authorization":"Bearer [REDACTED: [REDACTED:known-0: ] :// @ = ' == eyJ .eyJ AKIA -----BEGIN -----END ü 😀"#;

fn sealer() -> Sealer {
    let sealer = Sealer::new([7; 32]);
    for (n, secret) in KNOWN.iter().enumerate() {
        sealer.know(&format!("known-{n}"), secret);
    }
    sealer
}

/// The first text in a value, names included, that holds a known secret.
fn leak(value: &Value) -> Option<&str> {
    let holds = |text: &str| KNOWN.iter().any(|secret| text.contains(secret));
    match value {
        Value::String(text) => holds(text).then_some(text),
        Value::Array(items) => items.iter().find_map(leak),
        Value::Object(members) => members
            .iter()
            .find_map(|(name, value)| if holds(name) { Some(name.as_str()) } else { leak(value) }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn law(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    // What is no JSON is sealed as the text that it is.
    let json = Json::parse(&text).unwrap_or_else(|_| Json::from(Value::from(&*text)));
    let sealer = sealer();
    let sealed = sealer.seal_json(&json);
    let value: Value = match Json::parse(sealed.get()) {
        Ok(json) => json.value(),
        Err(error) => return Err(format!("sealed {sealed} is no JSON: {error}")),
    };
    if let Some(text) = leak(&value) {
        return Err(format!("a known secret is left in {text:?}"));
    }
    if value == Value::Null && json.value() != Value::Null {
        return Err("the value was lost".into());
    }
    let again = sealer.seal_json(&sealed);
    if again != sealed {
        return Err(format!("sealing twice: {sealed} becomes {again}"));
    }
    match sealer.unseal_json(&sealed) {
        Ok(back) if back.value() == json.value() => Ok(()),
        Ok(back) => Err(format!("unsealed {back} is not {json}")),
        // A placeholder that was never ours.
        Err(_) if sealer.unseal_json(&json).is_err() => Ok(()),
        Err(why) => Err(format!("{why} in {sealed}")),
    }
}

#[test]
fn fuzz_seal_json() {
    let made_up =
        include_str!("data/secrets.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (before, secret, after) = support::plant(line.split_once(" | ")?.1, 1);
            Some(format!("{before}{secret}{after}"))
        });
    let known = KNOWN.iter().map(|&secret| Value::from(secret).to_string());
    let words: Vec<String> = WORDS.split_whitespace().map(String::from).chain(made_up).chain(known).collect();
    driver::run(
        bolero::check!(name = "seal_json"),
        "fuzz_seal_json",
        &["__fuzz__/seal_json/corpus"],
        &words,
        law,
    );
}
