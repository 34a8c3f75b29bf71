//! Sealing in pieces gives what sealing at once gives, with no secret of any row cut through.

mod support;

use std::sync::Arc;

use quipu_seal::{SealStream, Sealer};

use support::plant;

const OWN: &str = "own-credential-0123456789";
/// Of no one.
const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";

fn sealer() -> Arc<Sealer> {
    let sealer = Sealer::new([7; 32]);
    sealer.know("own", OWN);
    Arc::new(sealer)
}

fn in_pieces(text: &[u8], piece: usize) -> Vec<u8> {
    let (mut stream, mut out) = (SealStream::new(sealer()), Vec::new());
    text.chunks(piece).for_each(|piece| stream.push(piece, &mut out));
    stream.finish(&mut out);
    out
}

fn key(lines: usize) -> String {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n";
    format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", line.repeat(lines))
}

fn check(text: &str) {
    let sealed = sealer().seal(text).into_owned();
    for piece in [4093, 65_536, usize::MAX] {
        let out = in_pieces(text.as_bytes(), piece);
        let differs = out.iter().zip(sealed.as_bytes()).position(|(a, b)| a != b);
        assert!(out == sealed.as_bytes(), "by {piece}: differs at {differs:?}");
    }
}

/// All places around those where the window is cut: a secret of several hundred bytes moves over them.
#[test]
fn secrets_at_every_cut_are_those_of_the_whole() {
    let key = key(6);
    let secrets = [
        format!("{TOKEN} "),
        format!("x=\"{OWN}\" "),
        format!("password = \"hunter2-{}\"\n", 77),
        key,
        "machine a.example.org\n  login me\n  password c0rrect-h0rse\n".to_owned(),
    ];
    for filler in ["some words of a log\n", "word ", "0123456789abcdef"] {
        for shift in [0, 3, 31, 64, 97, 150, 211, 400] {
            let mut text = filler.repeat((256 << 10) / filler.len() - 20);
            text.truncate(text.len() - shift);
            for secret in &secrets {
                text.push_str(secret);
                text.push_str(&filler.repeat(3));
            }
            text.push_str(&filler.repeat((300 << 10) / filler.len()));
            for secret in &secrets {
                text.push(' ');
                text.push_str(secret);
            }
            check(&text);
        }
    }
}

/// All that is a secret by the table, and all that is none, moved over the place of a cut.
#[test]
fn each_row_of_the_table_at_a_cut_is_that_of_the_whole() {
    let rows = include_str!("data/secrets.txt").lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<String> = Vec::new();
    for (row, seed) in rows.zip(0..) {
        let (before, secret, after) = plant(row.split_once(" | ").unwrap().1, seed);
        lines.push(format!("{before}{secret}{after}").replace("\\n", "\n"));
    }
    lines.extend(include_str!("data/innocent.txt").lines().map(str::to_owned));
    for (between, filler) in [("\n", "a line of a log\n"), (" ; ", "0123456789abcdef")] {
        let all = lines.join(between);
        for back in (0..all.len()).step_by(211).chain(0..20) {
            let mut text = filler.repeat((256 << 10) / filler.len());
            text.truncate(text.len() - back);
            text.push_str(between);
            text.push_str(&all);
            text.push_str(between);
            text.push_str(&filler.repeat((40 << 10) / filler.len()));
            let sealed = sealer().seal(&text).into_owned();
            let out = in_pieces(text.as_bytes(), usize::MAX);
            let differs = out.iter().zip(sealed.as_bytes()).position(|(a, b)| a != b);
            let near = differs.map(|at| String::from_utf8_lossy(&out[at.saturating_sub(100)..at + 60]));
            assert!(out == sealed.as_bytes(), "{back}: differs at {differs:?}: {near:?}");
        }
    }
}

#[test]
fn secrets_without_any_white_space_are_those_of_the_whole() {
    let text = format!("{{\"token\":\"{TOKEN}\",\"x\":\"{OWN}\"}},").repeat(9_000);
    check(&text);
}

#[test]
fn pieces_of_one_byte_are_the_whole() {
    let text = format!("a {TOKEN} b {OWN}\n{}é", key(3));
    assert_eq!(in_pieces(text.as_bytes(), 1), sealer().seal(&text).as_bytes());
    assert_eq!(in_pieces(b"", 1), b"");
}

/// Longer than any window, as a whole and as one line.
#[test]
fn a_secret_of_a_megabyte_leaves_nothing() {
    let one_line = key(1).replacen('\n', " ", 1).replace("8cKj\n", &"8cKj".repeat(400_000));
    let jwt = format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.{}", "q9Zk".repeat(400_000));
    for (secret, inside) in [(key(20_000), "MIIEvQIBADAN"), (one_line, "8cKj8cKj"), (jwt, "q9Zkq9Zk")] {
        let out =
            String::from_utf8(in_pieces(format!("before\n{secret}\nafter\n").as_bytes(), 8192)).unwrap();
        assert!(out.starts_with("before\n[REDACTED:") && out.ends_with("\nafter\n"), "{out:.200}");
        assert!(!out.contains(inside) && out.len() < 4_000, "{}: {out:.2000}", out.len());
    }
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let mut bytes: Vec<u8> = (0..=255_u8).cycle().take(700_000).collect();
    assert_eq!(in_pieces(&bytes, 1000), bytes);
    assert_eq!(in_pieces(&[0x80; 700_000], 1000), [0x80; 700_000]);
    bytes.extend_from_slice(format!("\n{TOKEN}\n").as_bytes());
    bytes.extend_from_slice(&[0xff, 0xc3]);
    let out = in_pieces(&bytes, 1000);
    assert_eq!(&out[..700_000], &bytes[..700_000]);
    assert!(out[700_000..].starts_with(b"\n[REDACTED:github-token:") && out.ends_with(b"]\n\xff\xc3"));
}

#[test]
fn found_secret_can_be_restored() {
    let sealer = sealer();
    let (mut stream, mut out) = (SealStream::new(sealer.clone()), Vec::new());
    stream.push(format!("{TOKEN}\n").as_bytes(), &mut out);
    stream.finish(&mut out);
    let out = String::from_utf8(out).unwrap();
    assert_eq!(sealer.unseal(&out).unwrap(), format!("{TOKEN}\n"));
}
