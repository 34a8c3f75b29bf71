//! Sealing as its users see it: what is found and what is not, the laws, and the JSON form.

mod support;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose as base64_engine;
use quipu_protocol::Json;
use quipu_seal::{Sealer, UnresolvedPlaceholder};
use support::{expand, plant};

fn sealer() -> Sealer {
    Sealer::new([7; 32])
}

#[test]
fn secrets_of_the_table_are_replaced() {
    let mut failures = String::new();
    let lines = include_str!("data/secrets.txt").lines().filter(|line| !line.starts_with('#'));
    for (number, line) in lines.enumerate() {
        let (kind, template) = line.split_once(" | ").unwrap();
        let (before, secret, after) = plant(template, u64::try_from(number).unwrap());
        let text = format!("{before}{secret}{after}");
        let sealer = sealer();
        let sealed = sealer.seal(&text);
        let open = format!("{before}[REDACTED:{kind}:");
        let good =
            sealed.strip_prefix(&open).and_then(|rest| rest.get(8..)).and_then(|r| r.strip_prefix(']'));
        if good != Some(&after) {
            failures.push_str(&format!("{line}\n  {text}\n  {sealed}\n"));
        }
        assert_eq!(sealer.seal(&sealed), sealed, "idempotent");
        assert_eq!(sealer.unseal(&sealed).unwrap(), text);
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn innocent_text_is_left_alone() {
    let mut failures = String::new();
    for line in include_str!("data/innocent.txt").lines() {
        for text in [line.to_owned(), line.replace("\\n", "\n")] {
            let sealed = sealer().seal(&text).into_owned();
            if sealed != text {
                failures.push_str(&format!("{text}\n  {sealed}\n"));
            }
        }
    }
    let whole = include_str!("data/innocent.txt");
    if sealer().seal(whole) != whole {
        failures.push_str("the file as a whole\n");
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn base64_of_files_is_left_alone() {
    for seed in 0..20 {
        let noise = expand("{b65536}", seed);
        assert_eq!(sealer().seal(&noise), noise);
        let lines: Vec<&str> = noise.as_bytes().chunks(76).map(|c| std::str::from_utf8(c).unwrap()).collect();
        let wrapped = lines.join("\n");
        assert_eq!(sealer().seal(&wrapped), wrapped);
        let hashes = expand(&"{h40} {h64} sha512-{b86}==\n".repeat(500), seed);
        assert_eq!(sealer().seal(&hashes), hashes);
    }
}

#[test]
fn private_keys_are_replaced_whole() {
    let body = expand("{b64}\n{b64}\n{b20}==", 3);
    let kinds = ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "];
    for kind in kinds {
        let pem = format!("-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----");
        for pem in [pem.clone(), pem.replace('\n', "\r\n"), pem.replace('\n', "\\n")] {
            let text = format!("a\n{pem}\nb");
            let sealer = sealer();
            let sealed = sealer.seal(&text);
            assert!(sealed.starts_with("a\n[REDACTED:private-key:") && sealed.ends_with("]\nb"), "{sealed}");
            assert_eq!(sealer.unseal(&sealed).unwrap(), text);
        }
    }
    // As programs print lines: with their numbers, with a file's name, in a change, quoted.
    let body_of =
        |kind: &str| format!("-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----");
    type Print = fn(usize, &str) -> String;
    let printed: [Print; 9] = [
        |n, line| format!("{n:>6}\t{line}"),
        |n, line| format!("{n:>6}→{line}"),
        |n, line| format!("{n}:{line}"),
        |n, line| format!("keys/id_rsa:{n}:{line}"),
        |n, line| format!("keys/id_rsa-{n}-{line}"),
        |n, line| format!("{n:>4} | {line}"),
        |_, line| format!("+{line}"),
        |_, line| format!("-{line}"),
        |_, line| format!("> {line}"),
    ];
    for kind in kinds {
        for print in printed {
            let lines: Vec<String> =
                body_of(kind).lines().enumerate().map(|(at, line)| print(at + 1, line)).collect();
            let text = format!("a\n{}\nb", lines.join("\n"));
            let sealer = sealer();
            let sealed = sealer.seal(&text);
            for piece in body.lines() {
                assert!(!sealed.contains(&piece[..16]), "{text}\n{sealed}");
            }
            assert!(sealed.ends_with("]\nb"), "{sealed}");
            assert_eq!(sealer.unseal(&sealed).unwrap(), text);
            assert_eq!(sealer.seal(&sealed), sealed);
        }
    }
    let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0123456789ABCDEF\n";
    let begin = "-----BEGIN RSA PRIVATE KEY-----\n";
    let end = "\n-----END RSA PRIVATE KEY-----";
    assert_eq!(
        sealer().seal(&format!("{begin}{headers}\n{body}{end}")).len(),
        "[REDACTED:private-key:01234567]".len()
    );
    // Cut off, as by `head`: the lines that are there.
    let cut = sealer().seal(&format!("{begin}{}", &body[..100])).into_owned();
    assert!(!cut.contains(&body[..20]) && !cut.contains(&body[70..90]), "{cut}");
    let pgp = format!(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: X v2 (y)\n\n{body}\n=Ab3d\n-----END PGP PRIVATE KEY BLOCK-----"
    );
    assert!(sealer().seal(&pgp).starts_with("[REDACTED:private-key:") && sealer().seal(&pgp).ends_with(']'));
}

#[test]
fn known_credentials_are_found_in_every_spelling() {
    let secret = "p/Q+9 ~x>?\"ü\\y";
    let sealer = sealer();
    sealer.know("Api Key", secret);
    let mut texts = vec![
        secret.to_owned(),
        "p%2FQ%2B9%20~x%3E%3F%22%C3%BC%5Cy".to_owned(),
        "p%2fQ%2b9+%7ex%3e%3f%22%c3%bc%5cy".to_owned(),
        serde_json::to_string(secret).unwrap(),
    ];
    for before in ["", "u", "us", "usr", "user:"] {
        for after in ["", "1", "12", "123"] {
            for engine in [
                base64_engine::STANDARD,
                base64_engine::STANDARD_NO_PAD,
                base64_engine::URL_SAFE,
                base64_engine::URL_SAFE_NO_PAD,
            ] {
                texts.push(engine.encode(format!("{before}{secret}{after}")));
            }
        }
    }
    let mut placeholders = std::collections::BTreeSet::new();
    for text in texts {
        let text = format!("x {text} y");
        let sealed = sealer.seal(&text).into_owned();
        let start = sealed.find("[REDACTED:api-key:").unwrap_or_else(|| panic!("{text} {sealed}"));
        placeholders.insert(sealed[start..start + 27].to_owned());
        assert_eq!(sealer.unseal(&sealed).unwrap(), text);
        assert_eq!(sealer.seal(&sealed), sealed);
    }
    assert!(placeholders.len() > 10, "each spelling has its own id: {placeholders:?}");
}

#[test]
fn short_credentials_are_ignored() {
    let sealer = sealer();
    sealer.know("k", "ollama");
    sealer.know("k", " 1234567\n");
    assert_eq!(sealer.seal("ollama 1234567"), "ollama 1234567");
    sealer.know("k", " 12345678\n");
    assert!(sealer.seal("a 12345678").starts_with("a [REDACTED:k:"));
}

#[test]
fn ids_depend_on_key_and_secret_only() {
    let id = |sealed: &str| sealed[sealed.len() - 9..sealed.len() - 1].to_owned();
    let (one, same, other) = (sealer(), sealer(), Sealer::new([8; 32]));
    one.know("first", "correct horse battery");
    same.know("second", "correct horse battery");
    other.know("first", "correct horse battery");
    let sealed = one.seal("correct horse battery").into_owned();
    assert_eq!(sealed, "[REDACTED:first:IDENT]".replace("IDENT", &id(&sealed)));
    assert_eq!(id(&same.seal("correct horse battery")), id(&sealed));
    assert_ne!(id(&other.seal("correct horse battery")), id(&sealed));
    // What one process sealed, another resolves once it knows the secret, under whatever kind.
    assert_eq!(same.unseal(&sealed).unwrap(), "correct horse battery");
    assert!(other.unseal(&sealed).is_err());
}

#[test]
fn overlapping_secrets_are_replaced() {
    let sealer = sealer();
    sealer.know("long", "abcdefgh-ijkl");
    sealer.know("short", "abcdefgh");
    let check = |text: &str, expect: &[&str]| {
        let sealed = sealer.seal(text).into_owned();
        let parts: Vec<&str> =
            sealed.split("[REDACTED:").skip(1).filter_map(|p| p.split(':').next()).collect();
        assert_eq!(parts, expect, "{sealed}");
        assert_eq!(sealer.unseal(&sealed).unwrap(), text);
    };
    check("abcdefgh-ijkl", &["long"]);
    check("abcdefgh-ijk", &["short"]);
    check("abcdefghabcdefgh-ijkl", &["short", "long"]);
    check("Authorization: Bearer abcdefgh", &["short"]);
    // A pattern that holds more than the credential takes all of it.
    check("https://u:1abcdefgh2@host", &["url-password"]);
    let token = expand("ghp_{a36}", 1);
    sealer.know("known", &token);
    check(&token, &["known"]);
    check(&format!("token = \"{token}\""), &["known"]);
}

#[test]
fn unknown_placeholders_are_refused() {
    let unknown = "[REDACTED:api-key:0123abcd]";
    let error = sealer().unseal(&format!("a {unknown} b")).unwrap_err();
    assert_eq!(error, UnresolvedPlaceholder { placeholder: unknown.to_owned() });
    assert!(error.to_string().starts_with(unknown));
    let json = Json::parse(&format!(r#"{{"a":["{}"]}}"#, unknown.replace('[', "\\u005b"))).unwrap();
    assert_eq!(sealer().unseal_json(&json).unwrap_err(), error);
    // Not a placeholder, only like one.
    for text in ["[REDACTED]", "[REDACTED:kind:id]", "[REDACTED:K:0123abcd]"] {
        assert_eq!(sealer().unseal(text).unwrap(), text);
    }
}

#[test]
fn placeholders_in_a_text_are_walls() {
    let sealer = sealer();
    sealer.know("k", "REDACTED:a:");
    sealer.know("k", "00000000]tail");
    let text = "password = \"x[REDACTED:a:00000000]tail1234\"";
    assert_eq!(sealer.seal(text), text);
}

#[test]
fn debug_shows_no_secret() {
    let sealer = sealer();
    sealer.know("k", "correct horse battery");
    let token = expand("ghp_{a36}", 1);
    let _sealed = sealer.seal(&token);
    let debug = format!("{sealer:?} {sealer:#?}");
    assert!(!debug.contains("horse") && !debug.contains("ghp_") && !debug.contains("7, 7"), "{debug}");
}

#[test]
fn sealer_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let sealer = Arc::new(sealer());
    shared(&sealer);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let sealer = Arc::clone(&sealer);
            std::thread::spawn(move || {
                for round in 0..20 {
                    let secret = format!("secret number {n} {round}");
                    sealer.know("k", &secret);
                    let sealed = sealer.seal(&secret).into_owned();
                    assert_ne!(sealed, secret);
                    assert_eq!(sealer.unseal(&sealed).unwrap(), secret);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Strings are searched before they are decoded: what an escape hides must be found all the same.
#[test]
fn secrets_are_found_behind_escapes() {
    let sealer = sealer();
    for (at, secret) in [
        "plain/secret+one",
        "with \"quotes\" two",
        "back\\slash\tand tab\n3",
        "bell \u{7} four",
        "ümlaut fünf",
    ]
    .into_iter()
    .enumerate()
    {
        sealer.know(&format!("k{at}"), secret);
        let kind = format!("[REDACTED:k{at}:");
        let usual = serde_json::to_string(&format!("a\n{secret}\tb")).unwrap();
        let spelled: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let slashes = usual.replace('/', "\\/");
        for json in [usual, format!("\"{spelled}\""), slashes] {
            let json = Json::parse(&json).unwrap();
            let sealed = sealer.seal_json(&json);
            assert!(sealed.get().contains(&kind), "{json}: {sealed}");
            assert_eq!(sealer.unseal_json(&sealed).unwrap().value(), json.value());
        }
    }
    for json in [
        r#""x\nsk-ant-api03-abcdefghij0123456789\ty""#,
        r#""s\u006b-ant-api03-abcdefghij0123456789""#,
        r#""postgres:\/\/user:hunter2hunter9@host""#,
        r#"{"password":"k8#mQ2!x\"Lp9"}"#,
    ] {
        let sealed = sealer.seal_json(&Json::parse(json).unwrap());
        assert!(sealed.get().contains("[REDACTED:"), "{json}");
    }
}

#[test]
fn json_keeps_every_other_byte() {
    let sealer = sealer();
    sealer.know("k", "correct \"horse\" battery");
    let check = |json: &str, parts: &[&str]| {
        let json = Json::parse(json).unwrap();
        let sealed = sealer.seal_json(&json);
        let mut rest = sealed.get();
        for (n, part) in parts.iter().enumerate() {
            rest = rest.strip_prefix(part).unwrap_or_else(|| panic!("{part} in {sealed}"));
            if n + 1 < parts.len() {
                rest = &rest[rest.find(']').unwrap() + 1..];
            }
        }
        assert_eq!(rest, "");
        assert_eq!(sealer.seal_json(&sealed), sealed);
        assert_eq!(sealer.unseal_json(&sealed).unwrap().value(), json.value());
    };
    check(
        r#"{ "z":1.0, "a\u0041":"\ud800 correct \"horse\" battery\/\u00e9" ,"9":12345678901234567890 }"#,
        &[r#"{ "z":1.0, "a\u0041":"\ud800 "#, r#"\/\u00e9" ,"9":12345678901234567890 }"#],
    );
    check(r#"{"correct \"horse\" battery":[]}"#, &[r#"{""#, r#"":[]}"#]);
    check(r#"["correct \u0022horse\u0022 battery"]"#, &[r#"[""#, r#""]"#]);
    // The name of a member says what its value is.
    check(r#"{"password":"hunter2","user":"hunter2"}"#, &[r#"{"password":""#, r#"","user":"hunter2"}"#]);
    check(r#"{"db":{"password" : "hunter2"}}"#, &[r#"{"db":{"password" : ""#, r#""}}"#]);
    // JSON inside of a JSON string.
    check(r#"{"content":"{\"password\":\"hunter2\"}"}"#, &[r#"{"content":"{\"password\":\""#, r#"\"}"}"#]);
    check(
        r#"[{"password":["hunter2"]},"password","hunter2"]"#,
        &[r#"[{"password":["hunter2"]},"password","hunter2"]"#],
    );
}

#[test]
fn deep_and_large_json() {
    let sealer = sealer();
    sealer.know("k", "correct horse battery");
    let deep = format!("{}\"correct horse battery\"{}", "[".repeat(50_000), "]".repeat(50_000));
    let json = Json::parse(&deep).unwrap();
    let sealed = sealer.seal_json(&json);
    assert!(!sealed.get().contains("horse"));
    assert_eq!(sealer.unseal_json(&sealed).unwrap(), json);
}

/// Texts made to hurt: were any of these quadratic, the test would take minutes.
#[test]
fn time_is_linear() {
    let size = 1 << 18;
    for piece in [
        "token=",
        "token=a1",
        "token='",
        "password:",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIE",
        "eyJ",
        "eyJaaaaaaaaaa.",
        "-eyJaaaaaaaaaa.",
        ".eyJaaaaaaaaaa",
        "sk-",
        "-sk-ant-",
        "://",
        "://a:",
        "://a:b@",
        "bearer ",
        "Authorization: Bearer ",
        "glpat-",
        "PuTTY-User-Key-File-2: ",
        "[REDACTED:",
        "[REDACTED:k:00000000]",
        "hvs.",
        "glpat-{u300}",
        "ghp_{a255}",
        "token={a512}",
        "token='{a512}",
        "AIza{u35}",
        "xoxb-{a398}%3D",
        "secret\"=\"",
        "Proc-Type: -----BEGIN RSA PRIVATE KEY-----\nProc-Type:",
        "twilio",
        "curl -u ",
        "curl -u a:",
        "mysql -p",
        "machine a login ",
        "login a password ",
        "*:*:",
        ":5432:a:b:",
        "1:AA",
        "/bot1234567890:",
        "auth=\"YWxp",
        "-----BEGIN PRIVATE KEY-----\n12:MIIE\n13:",
        "aws_secret_access_key=",
    ] {
        let piece = expand(piece, 1);
        let text = piece.repeat(size / piece.len());
        let sealer = sealer();
        let sealed = sealer.seal(&text).into_owned();
        assert_eq!(sealer.seal(&sealed), sealed, "{piece}");
    }
}
