//! The fuzzing driver: damages what is in a corpus, gives it to a law, and makes what breaks the law small.
//!
//! Targets include this file by its path, so that crates whose tests need nothing of the test kit stay free of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// Bytes of an input at most.
const MAX_INPUT: usize = 64 << 10;
/// Inputs that are tried however slow the machine is.
const LEAST: u32 = 32;
/// Steps that make a failing input smaller at most: a bug that panics says so each time.
const SHRINKS: u32 = 300;

/// One way to damage an input.
#[derive(Debug, Clone)]
enum Edit {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    /// Puts a word of the target's there.
    Word(Index, Index),
    Remove(Index, usize),
    /// Copies from the first place to the second.
    Copy(Index, usize, Index),
    /// Repeats what stands there.
    Repeat(Index, usize, usize),
    /// Copies from another input of the corpus.
    Splice(Index, Index, usize, Index),
    /// Copies or moves a whole line.
    Line(Index, Index, bool),
    /// Puts a JSON value of another input in the place of one.
    Value(Index, Index, Index, Place),
    Cut(Index),
}

/// Where a JSON value is put.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In place of the old one.
    Instead,
    /// Behind the old one, in an array with it.
    Array,
    /// In an object, and the old one as well.
    Object,
}

/// One of the JSON values in a text, or what is left of one; empty when there is none.
fn value_in(bytes: &[u8], which: &Index) -> std::ops::Range<usize> {
    let mut starts = Vec::new();
    let (mut in_string, mut escaped, mut fresh) = (false, false, true);
    for (place, &byte) in bytes.iter().enumerate() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        in_string = byte == b'"';
        let bracket = matches!(byte, b'[' | b'{');
        if in_string || bracket || (fresh && matches!(byte, b'-' | b'0'..=b'9' | b't' | b'f' | b'n')) {
            starts.push(place);
        }
        fresh = bracket || matches!(byte, b',' | b':' | b' ' | b'\n');
    }
    if starts.is_empty() {
        return bytes.len()..bytes.len();
    }
    let start = starts[which.index(starts.len())];
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (place, &byte) in bytes.iter().enumerate().skip(start) {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            if !in_string && depth == 0 {
                return start..place + 1;
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth > 1 => depth -= 1,
            b']' | b'}' if depth == 1 => return start..place + 1,
            b']' | b'}' | b',' | b':' | b'\r' | b'\n' | b' ' if depth == 0 => return start..place,
            _ => {}
        }
    }
    start..bytes.len()
}

/// An edit that leaves JSON what it is.
fn value() -> impl Strategy<Value = Edit> {
    let put = prop_oneof![4 => Just(Place::Instead), 1 => Just(Place::Array), 1 => Just(Place::Object)];
    (any::<Index>(), any::<Index>(), any::<Index>(), put)
        .prop_map(|(file, from, to, put)| Edit::Value(file, from, to, put))
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        3 => (place(), vec(any::<u8>(), 1..24)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        8 => (place(), place()).prop_map(|(at, word)| Edit::Word(at, word)),
        4 => (place(), 1..64_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        3 => (place(), 1..64_usize, place()).prop_map(|(from, length, to)| Edit::Copy(from, length, to)),
        1 => (place(), 1..12_usize, 1..2_500_usize).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        3 => (place(), place(), 1..200_usize, place())
            .prop_map(|(file, from, length, to)| Edit::Splice(file, from, length, to)),
        4 => (place(), place(), any::<bool>()).prop_map(|(from, to, moves)| Edit::Line(from, to, moves)),
        4 => value(),
        1 => place().prop_map(Edit::Cut),
    ]
}

/// The input that a file of the corpus becomes.
fn damage(corpus: &[(PathBuf, Vec<u8>)], words: &[String], file: Index, edits: &[Edit]) -> Vec<u8> {
    let input = |file: &Index| corpus.get(file.index(corpus.len() + 1)).map_or(&b""[..], |(_, bytes)| bytes);
    let mut bytes = input(&file).to_vec();
    for edit in edits {
        let place = |at: &Index| at.index(bytes.len() + 1);
        let piece = |from: usize, length: usize| from..(from + length).min(bytes.len());
        match edit {
            Edit::Set(at, new) => {
                let at = place(at);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *new;
                }
            }
            Edit::Insert(at, new) => insert(&mut bytes, *at, new),
            Edit::Word(at, word) => {
                if !words.is_empty() {
                    insert(&mut bytes, *at, words[word.index(words.len())].as_bytes());
                }
            }
            Edit::Remove(at, length) => drop(bytes.drain(piece(place(at), *length))),
            Edit::Copy(from, length, to) => {
                let copy = bytes[piece(place(from), *length)].to_vec();
                insert(&mut bytes, *to, &copy);
            }
            Edit::Repeat(at, length, times) => {
                let copies = bytes[piece(place(at), *length)].repeat(*times);
                let at = place(at);
                bytes.splice(at..at, copies);
            }
            Edit::Splice(file, from, length, to) => {
                let other = input(file);
                let from = from.index(other.len() + 1);
                insert(&mut bytes, *to, &other[from..(from + length).min(other.len())]);
            }
            Edit::Line(from, to, moves) => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
                if !lines.is_empty() {
                    let from = from.index(lines.len());
                    let line = if *moves { lines.remove(from) } else { lines[from].clone() };
                    lines.insert(to.index(lines.len() + 1), line);
                    bytes = lines.concat();
                }
            }
            Edit::Value(file, from, to, put) => {
                let other = input(file);
                let new = &other[value_in(other, from)];
                let range = value_in(&bytes, to);
                let old = &bytes[range.clone()];
                // A name stays one.
                let is_name = bytes.get(range.end) == Some(&b':');
                if is_name && !(new.starts_with(b"\"") && matches!(put, Place::Instead)) {
                    continue;
                }
                let value = match put {
                    Place::Instead => new.to_vec(),
                    Place::Array => [b"[", old, b",", new, b"]"].concat(),
                    Place::Object => [b"{\"a\":", new, b",\"b\":", old, b"}"].concat(),
                };
                bytes.splice(range, value);
            }
            Edit::Cut(at) => {
                let at = place(at);
                bytes.truncate(at);
            }
        }
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

fn insert(bytes: &mut Vec<u8>, at: Index, new: &[u8]) {
    let at = at.index(bytes.len() + 1);
    bytes.splice(at..at, new.iter().copied());
}

/// Every file of the folders below the crate's `tests`, in order.
fn corpus(folders: &[&str]) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in folders {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
            if path.extension().is_none_or(|extension| extension != "snap") && path.is_file() {
                let bytes =
                    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                files.push((path, bytes));
            }
        }
    }
    files.sort();
    files
}

/// How long a target looks for new inputs. Only their number depends on it.
fn seconds() -> Duration {
    let Ok(text) = std::env::var("QUIPU_FUZZ_SECONDS") else { return Duration::from_secs(2) };
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .unwrap_or_else(|| panic!("QUIPU_FUZZ_SECONDS is {text:?}, which is no number of seconds"))
}

/// Tries `law` on every file in `folders` (below the crate's `tests`), then on damaged ones. `words` are what the
/// format is made of.
///
/// Panics with a small input that breaks the law, which it also leaves as a file: moved to the corpus, it is tried
/// for ever.
pub(crate) fn run(name: &str, folders: &[&str], words: &[String], law: impl Fn(&[u8]) -> Result<(), String>) {
    let corpus = corpus(folders);
    assert!(!corpus.is_empty(), "{name}: no inputs in {folders:?}");
    for (path, bytes) in &corpus {
        if let Err(why) = law(bytes) {
            panic!("{name}: {}: {why}", path.display());
        }
    }
    let config = Config { failure_persistence: None, max_shrink_iters: SHRINKS, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let edits = prop_oneof![2 => vec(edit(), 1..3), 1 => vec(edit(), 3..10), 3 => vec(value(), 1..6)];
    let scripts = (any::<Index>(), edits);
    let start = Instant::now();
    let limit = seconds();
    let mut tried = 0_u32;
    while tried < LEAST || start.elapsed() < limit {
        tried = tried.saturating_add(1);
        let script = scripts.new_tree(&mut runner).unwrap_or_else(|why| panic!("{name}: {why}"));
        let result = runner.run_one(script, |(file, edits)| {
            law(&damage(&corpus, words, file, &edits)).map_err(TestCaseError::fail)
        });
        match result {
            Ok(_) => {}
            Err(TestError::Abort(why)) => panic!("{name}: {why}"),
            Err(TestError::Fail(why, (file, edits))) => {
                let bytes = damage(&corpus, words, file, &edits);
                panic!("{name}, input {tried}: {why}\n{}", keep(name, &bytes));
            }
        }
    }
}

/// Writes a failing input where it can be taken from, and says what it is.
fn keep(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-failed"));
    let place = match std::fs::write(&path, bytes) {
        Ok(()) => format!("the input is in {}", path.display()),
        Err(error) => format!("the input could not be written to {}: {error}", path.display()),
    };
    let shown = &bytes[..bytes.len().min(4_000)];
    format!("{place}, {} bytes: b\"{}\"", bytes.len(), shown.escape_ascii())
}
