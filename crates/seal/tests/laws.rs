//! The laws of sealing, over random texts with planted secrets.

mod support;

use proptest::prelude::*;
use quipu_protocol::Json;
use quipu_seal::Sealer;
use support::{expand, plant};

const KNOWN: [&str; 4] =
    ["correct horse battery", "p/Q+9 ~x>?\"ü\\y", "sk-ant-api03-knownknown1", "abcdefgh"];

fn sealer() -> Sealer {
    let sealer = Sealer::new([7; 32]);
    for (n, secret) in KNOWN.iter().enumerate() {
        sealer.know(&format!("known-{n}"), secret);
    }
    sealer
}

/// A piece of text: noise, a known credential in some spelling, or a line of the table, whole or cut.
fn piece() -> impl Strategy<Value = String> {
    let templates: Vec<&'static str> = include_str!("data/secrets.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(" | ")?.1))
        .collect();
    let innocent: Vec<&'static str> = include_str!("data/innocent.txt")
        .lines()
        // A foreign placeholder is refused by unseal, as it should be.
        .filter(|line| !line.contains("0123abcd"))
        .collect();
    prop_oneof![
        3 => any::<String>(),
        2 => "[ -~\n]{0,40}",
        3 => proptest::sample::select(innocent).prop_map(str::to_owned),
        4 => (proptest::sample::select(templates), any::<u64>(), 0..=200usize).prop_map(|(template, seed, cut)| {
            let (before, secret, after) = plant(template, seed);
            let text = format!("{before}{secret}{after}");
            text.chars().take(if cut > 100 { usize::MAX } else { cut }).collect()
        }),
        2 => proptest::sample::select(KNOWN.to_vec()).prop_map(str::to_owned),
        2 => (proptest::sample::select(KNOWN.to_vec()), "[a-z:]{0,4}", "[a-z]{0,4}", any::<bool>()).prop_map(
            |(secret, before, after, url)| {
                use base64::Engine as _;
                let text = format!("{before}{secret}{after}");
                if url {
                    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
                } else {
                    base64::engine::general_purpose::STANDARD.encode(text)
                }
            }
        ),
        1 => proptest::sample::select(vec!["password = \"", "\"", "token=", "\n", "\\n", "://u:", "@h", "Bearer ",
            "-----BEGIN PRIVATE KEY-----", "[REDACTED:", "AKIA", "eyJ", ".eyJ"]).prop_map(str::to_owned),
        1 => any::<u64>().prop_map(|seed| expand("{b80}\n{b80}\n", seed)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<f64>().prop_map(serde_json::Value::from),
        text().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::vec((prop_oneof![piece(), Just("password".to_owned())], inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A JSON text that spells some characters as escapes, and has white space and a lone surrogate.
fn spelled(value: &serde_json::Value, seed: u64) -> String {
    let mut out = String::new();
    let plain = value.to_string();
    let mut in_string = false;
    let mut kept = 0;
    for (n, c) in plain.chars().enumerate() {
        let turn = (seed >> (n % 61)) & 3 == 0;
        if kept > 0 {
            kept -= 1;
            if c == 'u' && out.ends_with('\\') {
                kept = 4;
            }
            out.push(c);
        } else if c == '\\' {
            kept = 1;
            out.push(c);
        } else if c == '"' {
            in_string = !in_string;
            out.push(c);
        } else if in_string && turn {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            out.push(c);
        }
    }
    format!("[{out}, \"a\\ud800\" ]")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sealing_is_idempotent_and_reversible(text in text()) {
        let sealer = sealer();
        let sealed = sealer.seal(&text).into_owned();
        prop_assert_eq!(&sealer.seal(&sealed), &sealed);
        prop_assert_eq!(sealer.unseal(&sealed).unwrap(), text);
        for secret in KNOWN {
            prop_assert!(!sealed.contains(secret));
        }
        // The same in a process that has seen nothing.
        prop_assert_eq!(Sealer::seal(&self::sealer(), &sealed), sealed.as_str());
    }

    #[test]
    fn json_is_sealed_likewise(value in json(), seed in any::<u64>()) {
        let sealer = sealer();
        let json = Json::parse(&spelled(&value, seed)).unwrap();
        let sealed = sealer.seal_json(&json);
        prop_assert_eq!(&sealer.seal_json(&sealed), &sealed);
        let back = sealer.unseal_json(&sealed).unwrap();
        prop_assert_eq!(back.value(), json.value());
        // A text without escapes comes back to the byte.
        let plain = Json::parse(&value.to_string()).unwrap();
        prop_assert_eq!(sealer.unseal_json(&sealer.seal_json(&plain)).unwrap(), plain);
    }
}
