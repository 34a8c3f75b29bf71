//! The canonical form against JavaScript's own `JSON.parse` and `JSON.stringify`, in Node.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use quipu_dag::{BlobId, Value, canonical, hash_content};

struct Peer {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a broken pipe to the peer fails the test; a skipped test says so"
)]
impl Peer {
    /// `None` when there is no Node here and the run does not insist on it.
    fn start() -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/js/canonical.mjs");
        let child = Command::new("node").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        match child {
            Ok(mut child) => {
                let requests = child.stdin.take();
                let answers = BufReader::new(child.stdout.take().unwrap());
                Some(Self { child, requests, answers })
            }
            Err(error) if std::env::var_os("QUIPU_REQUIRE_PEERS").is_some() => {
                panic!("QUIPU_REQUIRE_PEERS is set and node does not start: {error}")
            }
            Err(error) => {
                eprintln!("skipped: node does not start ({error})");
                None
            }
        }
    }

    /// The hash and canonical text of a JSON text without line feeds, or `None` when JavaScript refuses it.
    fn ask(&mut self, text: &str) -> Option<(String, String)> {
        let requests = self.requests.as_mut().unwrap();
        requests.write_all(format!("{text}\n").as_bytes()).unwrap();
        requests.flush().unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let (hash, text) = answer.strip_suffix('\n').expect("a whole line").split_once(' ')?;
        Some((hash.into(), text.into()))
    }
}

#[expect(clippy::unwrap_used, reason = "a peer that cannot be waited for fails the test")]
impl Drop for Peer {
    fn drop(&mut self) {
        self.requests = None;
        self.child.wait().unwrap();
    }
}

fn one_of(texts: &'static [&'static str]) -> BoxedStrategy<String> {
    proptest::sample::select(texts).prop_map(String::from).boxed()
}

/// The spelling of a number: edges, odd spellings, any double.
fn number() -> BoxedStrategy<String> {
    let spelled = one_of(&[
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e21",
        "1e20",
        "1E+21",
        "123456789012345678901",
        "9007199254740993",
        "1e-6",
        "0.0000001",
        "1e999",
        "-1e999",
        "5e-324",
        "2e-324",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "0.1e1",
        "100e-2",
        "18446744073709551615",
        "4.35",
        "0.000001",
        "-1e-7",
        "1e400",
        "0e999999999999",
    ]);
    Union::new([
        spelled,
        any::<i64>().prop_map(|number| number.to_string()).boxed(),
        any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("JSON", |n| n.is_finite())
            .prop_map(|n| format!("{n:?}"))
            .boxed(),
        (any::<i32>(), -330..330i32).prop_map(|(digits, exponent)| format!("{digits}e{exponent}")).boxed(),
    ])
    .boxed()
}

/// The spelling of a string, quotes included.
fn string() -> BoxedStrategy<String> {
    let piece = Union::new([
        one_of(&[
            "\\ud800",
            "\\uD83D\\ude00",
            "\\udc00",
            "\\ud83d",
            "\\uDFFF",
            "\\b",
            "\\/",
            "\\\\",
            "\\\"",
            "\\n",
            "\\u0000",
            "\\u001F",
            "\\u2028",
            "\u{2028}",
            "\u{7f}",
            "\u{feff}",
            "\u{e000}",
            "😀",
            "é",
            "/",
            "<",
            "\\u0061",
            "__proto__",
        ]),
        any::<char>()
            .prop_filter("raw", |&c| c >= ' ' && c != '"' && c != '\\')
            .prop_map(String::from)
            .boxed(),
        any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")).boxed(),
        "[a-z ]{0,6}".boxed(),
    ]);
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat())).boxed()
}

fn name() -> BoxedStrategy<String> {
    let known = one_of(&[
        "\"__proto__\"",
        "\"0\"",
        "\"00\"",
        "\"-1\"",
        "\"-0\"",
        "\"1.5\"",
        "\"9\"",
        "\"10\"",
        "\"4294967294\"",
        "\"4294967295\"",
        "\"4294967296\"",
        "\"9007199254740991\"",
        "\"\"",
        "\"a\"",
        "\"A\"",
        "\"\\u0061\"",
        "\"toJSON\"",
        "\"constructor\"",
        "\"length\"",
        "\"\u{e000}\"",
        "\"😀\"",
        "\"\\ud83d\"",
        "\"1e3\"",
        "\" 1\"",
        "\"１\"",
    ]);
    Union::new([known, any::<u32>().prop_map(|index| format!("\"{index}\"")).boxed(), string()]).boxed()
}

fn value() -> BoxedStrategy<String> {
    let leaf = Union::new([one_of(&["null", "true", "false"]), number(), string()]).boxed();
    let tree = leaf.prop_recursive(6, 48, 6, |inner| {
        let space = one_of(&["", "", " ", "\t"]);
        let array = (proptest::collection::vec(inner.clone(), 0..6), space.clone())
            .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},"))));
        let member = (name(), space.clone(), inner)
            .prop_map(|(name, space, value)| format!("{name}{space}:{space}{value}"));
        let object = (proptest::collection::vec(member, 0..6), space)
            .prop_map(|(members, space)| format!("{{{space}{}{space}}}", members.join(",")));
        Union::new([array.boxed(), object.boxed()])
    });
    // Some far deeper than the tree strategy goes.
    (tree, 0..8usize, 1..300usize)
        .prop_map(|(tree, deep, levels)| match deep {
            0 => format!("{}{tree}{}", "[".repeat(levels), "]".repeat(levels)),
            1 => format!("{}{tree}{}", "{\"9\":[".repeat(levels), "]}".repeat(levels)),
            _ => tree,
        })
        .boxed()
}

fn runner() -> TestRunner {
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
}

fn agree(peer: &mut Peer, text: &str) -> Result<(), TestCaseError> {
    let theirs = peer.ask(text);
    let ours =
        Value::parse(text).ok().map(|value| (BlobId(hash_content(&value)).to_string(), canonical(&value)));
    prop_assert_eq!(ours, theirs, "{}", text);
    Ok(())
}

#[test]
fn javascript_writes_the_same_text() {
    let Some(peer) = Peer::start().map(RefCell::new) else { return };
    runner().run(&value(), |text| agree(&mut peer.borrow_mut(), &text)).unwrap();
}

#[test]
fn javascript_refuses_the_same_texts() {
    let Some(peer) = Peer::start().map(RefCell::new) else { return };
    let noise = proptest::sample::select(vec![
        "", ",", "]", "}", "[", "{", "\"", "\\", "0", "-", ".", "e", " ", "\r", "\u{b}", "\u{a0}",
        "\u{feff}", "n", "\u{1}", "'", "//",
    ]);
    let broken =
        (value(), any::<proptest::sample::Index>(), 0..3usize, noise).prop_map(|(text, at, cut, noise)| {
            let characters: Vec<char> = text.chars().collect();
            let at = at.index(characters.len());
            let after = characters.len().min(at + cut);
            characters[..at]
                .iter()
                .copied()
                .chain(noise.chars())
                .chain(characters[after..].iter().copied())
                .collect::<String>()
        });
    runner().run(&broken, |text| agree(&mut peer.borrow_mut(), &text)).unwrap();
}
