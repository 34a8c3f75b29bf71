//! The fuzzing driver: a law is tried on the files of a corpus and on what damage makes of them: the same damage in each
//! run, so that a failure is of the change and not of the day; and where time is given to look for new inputs, what
//! bolero thinks of, by chance or with an engine that sees the coverage.
//!
//! Targets include this file by its path, so that crates whose tests need nothing of the test kit stay free of it.

use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bolero::generator::bolero_generator::driver::{ByteSliceDriver, Options};
use bolero::{
    BorrowedInput, ByteSliceGenerator, DefaultEngine, Driver, EngineKind, RunPhase, TestTarget,
    ValueGenerator,
};

/// Bytes of an input at most.
const MAX_INPUT: usize = 64 << 10;
/// Bytes of a failing input that are shown; all of it is in a file.
const MAX_SHOWN: usize = 4_000;
/// How long a failing input is made smaller.
const SHRINK_TIME: Duration = Duration::from_secs(5);
/// How long the damage that is the same in each run is done. Only the number of inputs depends on it.
const SAME_TIME: Duration = Duration::from_secs(2);
/// Bytes that say which damage is done.
const DAMAGE_BYTES: usize = 4 << 10;

/// What `bolero::check!()` makes: it knows the test that it stands in.
pub(crate) type Target = TestTarget<ByteSliceGenerator, DefaultEngine, BorrowedInput>;

/// The bytes that a law is tried on.
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(MAX_SHOWN)];
        write!(f, "{} bytes: b\"{}\"", self.0.len(), shown.escape_ascii())
    }
}

/// Inputs out of a corpus and the words that a format is made of.
struct Damage<'a> {
    corpus: &'a [(PathBuf, Vec<u8>)],
    words: &'a [String],
}

impl ValueGenerator for Damage<'_> {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        // What comes from a file or from an engine that sees the coverage is an input as it is; random bytes say
        // which damage to do, for as inputs they would lead nowhere.
        let random = bolero::with_context(|context| {
            context.engine == EngineKind::Test && context.input.file.is_none()
        });
        if random == Some(true) {
            return self.damaged(driver).map(Input);
        }
        driver.gen_from_bytes(
            || (0, Some(MAX_INPUT)),
            |bytes| Some((bytes.len(), Input(bytes[..bytes.len().min(MAX_INPUT)].to_vec()))),
        )
    }
}

impl Damage<'_> {
    /// The damage that a number stands for.
    fn of_seed(&self, seed: u64) -> Option<Input> {
        // SplitMix64.
        let mut state = seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)).to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(DAMAGE_BYTES / 8).flatten().collect();
        self.damaged(&mut ByteSliceDriver::new(&bytes[..], &Options::default())).map(Input)
    }

    /// One file of the corpus, or nothing.
    fn input<D: Driver>(&self, driver: &mut D) -> Option<&[u8]> {
        let file = below(driver, self.corpus.len() + 1)?;
        Some(self.corpus.get(file).map_or(&b""[..], |(_, bytes)| bytes))
    }

    /// A file of the corpus with a few edits, half of the time with such as leave JSON what it is.
    fn damaged<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        let mut bytes = self.input(driver)?.to_vec();
        let (edits, keeps_json) = match below(driver, 6)? {
            0 | 1 => (1 + below(driver, 2)?, false),
            2 => (3 + below(driver, 7)?, false),
            _ => (1 + below(driver, 5)?, true),
        };
        for _ in 0..edits {
            if keeps_json {
                self.put_value(driver, &mut bytes)?;
            } else {
                self.edit(driver, &mut bytes)?;
            }
            bytes.truncate(MAX_INPUT);
        }
        Some(bytes)
    }

    fn edit<D: Driver>(&self, driver: &mut D, bytes: &mut Vec<u8>) -> Option<()> {
        match below(driver, 35)? {
            // Another byte.
            0..4 => {
                let at = below(driver, bytes.len())?;
                let new = driver.produce()?;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = new;
                }
            }
            // Any bytes.
            4..7 => {
                let length = 1 + below(driver, 23)?;
                let new = (0..length).map(|_| driver.produce()).collect::<Option<Vec<u8>>>()?;
                insert(driver, bytes, &new)?;
            }
            // A word of the target's.
            7..15 => {
                let word = below(driver, self.words.len())?;
                if let Some(word) = self.words.get(word) {
                    insert(driver, bytes, word.as_bytes())?;
                }
            }
            15..19 => drop(bytes.drain(piece(driver, bytes.len(), 64)?)),
            // What stands somewhere stands elsewhere as well.
            19..22 => {
                let copy = bytes[piece(driver, bytes.len(), 64)?].to_vec();
                insert(driver, bytes, &copy)?;
            }
            // What stands somewhere stands there many times.
            22 => {
                let range = piece(driver, bytes.len(), 12)?;
                let copies = bytes[range.clone()].repeat(1 + below(driver, 2_499)?);
                bytes.splice(range.start..range.start, copies);
            }
            // A piece of another input.
            23..26 => {
                let other = self.input(driver)?;
                let range = piece(driver, other.len(), 200)?;
                insert(driver, bytes, &other[range])?;
            }
            // A line is moved or copied.
            26..30 => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                if !lines.is_empty() {
                    let from = below(driver, lines.len())?;
                    let moves: bool = driver.produce()?;
                    let line = if moves { lines.remove(from) } else { lines[from].clone() };
                    lines.insert(below(driver, lines.len() + 1)?, line);
                    *bytes = lines.concat();
                }
            }
            30..34 => self.put_value(driver, bytes)?,
            _ => {
                let length = below(driver, bytes.len() + 1)?;
                bytes.truncate(length);
            }
        }
        Some(())
    }

    /// Puts a JSON value of another input in the place of one, which leaves JSON what it is.
    fn put_value<D: Driver>(&self, driver: &mut D, bytes: &mut Vec<u8>) -> Option<()> {
        let other = self.input(driver)?;
        let new = &other[value_in(driver, other)?];
        let range = value_in(driver, bytes)?;
        let old = &bytes[range.clone()];
        let form = below(driver, 6)?;
        // A name stays one.
        let is_name = bytes.get(range.end) == Some(&b':');
        if is_name && !(new.starts_with(b"\"") && form < 4) {
            return Some(());
        }
        let value = match form {
            0..4 => new.to_vec(),
            4 => [b"[", old, b",", new, b"]"].concat(),
            _ => [b"{\"a\":", new, b",\"b\":", old, b"}"].concat(),
        };
        bytes.splice(range, value);
        Some(())
    }
}

/// A number below `end`; 0 when there is none.
fn below<D: Driver>(driver: &mut D, end: usize) -> Option<usize> {
    if end < 2 { Some(0) } else { driver.gen_usize(Bound::Included(&0), Bound::Excluded(&end)) }
}

/// Where a piece of fewer than `most` bytes stands among `length`.
fn piece<D: Driver>(driver: &mut D, length: usize, most: usize) -> Option<std::ops::Range<usize>> {
    let start = below(driver, length + 1)?;
    Some(start..(start + 1 + below(driver, most - 1)?).min(length))
}

fn insert<D: Driver>(driver: &mut D, bytes: &mut Vec<u8>, new: &[u8]) -> Option<()> {
    let at = below(driver, bytes.len() + 1)?;
    bytes.splice(at..at, new.iter().copied());
    Some(())
}

/// One of the JSON values in a text, or what is left of one; empty when there is none.
fn value_in<D: Driver>(driver: &mut D, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
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
        return Some(bytes.len()..bytes.len());
    }
    let start = starts[below(driver, starts.len())?];
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (place, &byte) in bytes.iter().enumerate().skip(start) {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            if !in_string && depth == 0 {
                return Some(start..place + 1);
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth > 1 => depth -= 1,
            b']' | b'}' if depth == 1 => return Some(start..place + 1),
            b']' | b'}' | b',' | b':' | b'\r' | b'\n' | b' ' if depth == 0 => return Some(start..place),
            _ => {}
        }
    }
    Some(start..bytes.len())
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

/// How long bolero looks for new inputs; not at all unless it is said.
fn seconds() -> Option<Duration> {
    let text = std::env::var("QUIPU_FUZZ_SECONDS").ok()?;
    let seconds: Option<f64> = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Some(time.unwrap_or_else(|| panic!("QUIPU_FUZZ_SECONDS is {text:?}, which is no number of seconds")))
}

/// Tries `law` on every file in `folders` (below the crate's `tests`), on damage that is the same in each run, and on
/// what bolero makes of them as long as `QUIPU_FUZZ_SECONDS` says. `words` are what the format is made of.
///
/// Panics with an input that breaks the law (bolero makes it small), which it also leaves as a file: moved to the
/// corpus, it is tried for ever.
pub(crate) fn run(
    target: Target,
    name: &str,
    folders: &[&str],
    words: &[String],
    law: impl Fn(&[u8]) -> Result<(), String> + RefUnwindSafe,
) {
    let corpus = corpus(folders);
    assert!(!corpus.is_empty(), "{name}: no inputs in {folders:?}");
    for (path, bytes) in &corpus {
        if let Err(why) = law(bytes) {
            panic!("{name}: {}: {why}", path.display());
        }
    }
    let damage = Damage { corpus: &corpus, words };
    let end = Instant::now() + SAME_TIME;
    for input in (0..).map_while(|seed| damage.of_seed(seed)).take_while(|_| Instant::now() < end) {
        match catch_unwind(AssertUnwindSafe(|| law(&input.0))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("{name}: {why}\n{input:?}\n{}", keep(name, &input.0)),
            // Which panic, it has told already.
            Err(_) => panic!("{name}: a panic on {input:?}\n{}", keep(name, &input.0)),
        }
    }
    let Some(time) = seconds() else { return };
    let target = target.with_generator(damage).with_test_time(time).with_shrink_time(SHRINK_TIME);
    target.for_each(|input: &Input| {
        // The small input is tried once more before bolero reports it. The law itself may panic.
        let last = bolero::with_context(|context| context.run_phase == RunPhase::Failure) == Some(true);
        let kept = if last { keep(name, &input.0) } else { String::new() };
        if let Err(why) = law(&input.0) {
            panic!("{name}: {why}\n{kept}");
        }
    });
}

/// Writes a failing input where it can be taken from, and says where.
fn keep(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-failed"));
    match std::fs::write(&path, bytes) {
        Ok(()) => format!("the input is in {}", path.display()),
        Err(error) => format!("the input could not be written to {}: {error}", path.display()),
    }
}
