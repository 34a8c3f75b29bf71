//! The output of a command, in bounded memory: its tail as text, all of it in a file.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::AsyncWriteExt;

use crate::Utf8Decoder;

/// What the names of the files begin and end with.
const PREFIX: &str = "quipu-bash-";
const SUFFIX: &str = ".log";

/// How much of an output is kept where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Lines beyond which all of it goes to a file.
    pub lines: u64,
    /// Bytes beyond which all of it goes to a file; twice as much text is kept in memory.
    pub bytes: usize,
    /// Bytes that the file takes at most.
    pub spill_bytes: u64,
}

/// What became of the whole output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpillState<'a> {
    /// It is short; no file was made.
    NotNeeded,
    /// All of it is in this file.
    Complete(&'a Path),
    /// Its first bytes are in this file; the limit was reached.
    Limited(&'a Path),
    /// It could not be kept, for this reason.
    Failed(&'a str),
}

/// What the bytes of an output go through on their way to its file.
pub trait OutputFilter: Send + Sync + std::fmt::Debug {
    /// Takes the next bytes, and adds to `out` what may be written by now.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>);
    /// No more come: adds the rest to `out`.
    fn finish(&mut self, out: &mut Vec<u8>);
}

type MakeFilter = dyn Fn() -> Box<dyn OutputFilter> + Send + Sync;

/// Where the files of long outputs are made, and what their bytes go through.
#[derive(Clone)]
pub struct OutputPlace {
    directory: PathBuf,
    filter: Option<Arc<MakeFilter>>,
    /// Why no file can be made.
    closed: Option<Arc<str>>,
}

impl OutputPlace {
    /// In `directory`, made (0700) when needed; each file's bytes go through a filter of its own.
    pub fn filtered(
        directory: impl Into<PathBuf>,
        filter: impl Fn() -> Box<dyn OutputFilter> + Send + Sync + 'static,
    ) -> Self {
        Self { directory: directory.into(), filter: Some(Arc::new(filter)), closed: None }
    }

    /// In `directory`, as printed, secrets too.
    pub fn as_printed(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), filter: None, closed: None }
    }

    /// Nowhere, for this reason.
    pub fn nowhere(why: impl Into<Arc<str>>) -> Self {
        Self { directory: PathBuf::new(), filter: None, closed: Some(why.into()) }
    }

    /// The directory that outputs are written to.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether a file of an output can have this name.
    pub fn is_file_name(name: &std::ffi::OsStr) -> bool {
        let name = name.to_string_lossy();
        name.starts_with(PREFIX) && name.ends_with(SUFFIX)
    }
}

impl std::fmt::Debug for OutputPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let filtered = self.filter.is_some();
        f.debug_struct("OutputPlace")
            .field("directory", &self.directory)
            .field("filtered", &filtered)
            .finish()
    }
}

/// Takes the bytes of a command as they come.
///
/// Needs memory for a few times [`OutputLimits::bytes`], whatever is printed, beside what a filter needs. The file is
/// made (mode 0600, in a directory of mode 0700) once a limit is passed, and holds the bytes as they come out of the
/// place's filter. A failure to write it does not stop the command and is told by [`spill`](Self::spill).
#[derive(Debug)]
pub struct OutputBuffer {
    limits: OutputLimits,
    place: OutputPlace,
    decoder: Utf8Decoder,
    tail: String,
    raw_bytes: u64,
    bytes: u64,
    newlines: u64,
    /// Bytes of the line that is being printed, and of the one before it.
    line: u64,
    line_before: u64,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// Everything so far, in case it becomes long.
    Held(Vec<u8>),
    Open(OpenOutput),
    Failed(String),
}

#[derive(Debug)]
struct OpenOutput {
    file: tokio::fs::File,
    path: PathBuf,
    filter: Option<Box<dyn OutputFilter>>,
    written: u64,
    /// Not all of it has room.
    limited: bool,
}

impl OutputBuffer {
    /// An empty output whose file, if it needs one, is made in `place`.
    pub fn new(limits: OutputLimits, place: &OutputPlace) -> Self {
        Self {
            limits,
            place: place.clone(),
            decoder: Utf8Decoder::default(),
            tail: String::new(),
            raw_bytes: 0,
            bytes: 0,
            newlines: 0,
            line: 0,
            line_before: 0,
            spill: Spill::Held(Vec::new()),
        }
    }

    /// How much of it is kept where.
    pub fn limits(&self) -> OutputLimits {
        self.limits
    }

    /// Takes the next bytes.
    pub async fn push(&mut self, bytes: &[u8]) {
        self.raw_bytes += bytes.len() as u64;
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.push(bytes, |text| self.take_text(text));
        self.decoder = decoder;
        self.keep(bytes).await;
    }

    /// Ends the output and completes the file.
    pub async fn finish(&mut self) {
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.finish(|text| self.take_text(text));
        self.keep(&[]).await;
        let Spill::Open(open) = &mut self.spill else { return };
        let mut rest = Vec::new();
        if let Some(filter) = &mut open.filter
            && !open.limited
        {
            filter.finish(&mut rest);
        }
        let mut done = open.write(&rest, self.limits.spill_bytes).await;
        if done.is_ok() {
            done = open.file.flush().await;
        }
        if let Err(error) = done {
            self.spill = open.given_up(&error).await;
        }
    }

    fn take_text(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        let bytes = text.as_bytes();
        self.newlines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        match memchr::memrchr(b'\n', bytes) {
            Some(last) => {
                let before = memchr::memrchr(b'\n', &bytes[..last]);
                self.line_before = match before {
                    Some(before) => (last - before - 1) as u64,
                    None => self.line + last as u64,
                };
                self.line = (bytes.len() - last - 1) as u64;
            }
            None => self.line += bytes.len() as u64,
        }
        let keep = self.limits.bytes * 2;
        if text.len() > keep {
            self.tail.clear();
            self.tail.push_str(&text[boundary(text, text.len() - keep)..]);
            return;
        }
        if self.tail.len() + text.len() > keep * 2 {
            let cut = boundary(&self.tail, (self.tail.len() + text.len() - keep).min(self.tail.len()));
            self.tail.drain(..cut);
        }
        self.tail.push_str(text);
    }

    async fn keep(&mut self, bytes: &[u8]) {
        let limit = self.limits.bytes as u64;
        let long = self.raw_bytes > limit || self.bytes > limit || self.lines() > self.limits.lines;
        if let Spill::Held(held) = &mut self.spill {
            held.extend_from_slice(bytes);
            if !long {
                return;
            }
            let held = std::mem::take(held);
            if let Some(why) = &self.place.closed {
                self.spill = Spill::Failed(why.to_string());
                return;
            }
            self.spill = match make_file(self.place.directory()) {
                Ok((file, path)) => {
                    let filter = self.place.filter.as_ref().map(|make| make());
                    let file = tokio::fs::File::from_std(file);
                    Spill::Open(OpenOutput { file, path, filter, written: 0, limited: false })
                }
                Err(error) => {
                    let directory = self.place.directory().display();
                    Spill::Failed(format!("cannot make a file in {directory}: {error}"))
                }
            };
            self.append(&held).await;
        } else {
            self.append(bytes).await;
        }
    }

    async fn append(&mut self, bytes: &[u8]) {
        let Spill::Open(open) = &mut self.spill else { return };
        let mut filtered = Vec::new();
        let bytes: &[u8] = match &mut open.filter {
            _ if open.limited => &[],
            Some(filter) => {
                filter.push(bytes, &mut filtered);
                &filtered
            }
            None => bytes,
        };
        if let Err(error) = open.write(bytes, self.limits.spill_bytes).await {
            self.spill = open.given_up(&error).await;
        }
    }

    /// The end of the output as text, cut between characters: all of it while it is no longer than
    /// [`OutputLimits::bytes`], else at least that much.
    pub fn tail(&self) -> &str {
        &self.tail
    }

    /// Bytes of the whole output, as text (invalid UTF-8 counts as U+FFFD).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lines of the whole output; a final line feed does not begin another.
    pub fn lines(&self) -> u64 {
        self.newlines + u64::from(self.line > 0)
    }

    /// Bytes of the last line, without its line feed.
    pub fn last_line_bytes(&self) -> u64 {
        if self.line > 0 { self.line } else { self.line_before }
    }

    /// Where all of the output is.
    pub fn spill(&self) -> SpillState<'_> {
        match &self.spill {
            Spill::Held(_) => SpillState::NotNeeded,
            Spill::Open(OpenOutput { path, limited: true, .. }) => SpillState::Limited(path),
            Spill::Open(OpenOutput { path, .. }) => SpillState::Complete(path),
            Spill::Failed(reason) => SpillState::Failed(reason),
        }
    }
}

impl OpenOutput {
    /// A part of an output that nothing names would only take room.
    async fn given_up(&self, error: &std::io::Error) -> Spill {
        let path = self.path.display();
        let stays = match tokio::fs::remove_file(&self.path).await {
            Ok(()) => String::new(),
            Err(error) => format!("; what was written stays: {error}"),
        };
        Spill::Failed(format!("cannot write {path}: {error}{stays}"))
    }

    /// Writes as much as has room.
    async fn write(&mut self, bytes: &[u8], most: u64) -> std::io::Result<()> {
        let room = usize::try_from(most - self.written).unwrap_or(usize::MAX);
        self.limited |= bytes.len() > room;
        let bytes = &bytes[..bytes.len().min(room)];
        self.file.write_all(bytes).await?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn make_file(directory: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = tempfile::Builder::new()
        .prefix(PREFIX)
        .suffix(SUFFIX)
        .rand_bytes(16)
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory)?;
    file.keep().map_err(|error| error.error)
}

/// The first character boundary at or after `at`.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: OutputLimits = OutputLimits { lines: 4, bytes: 10, spill_bytes: 40 };

    async fn print(text: &str, piece: usize) -> (OutputBuffer, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut output = OutputBuffer::new(LIMITS, &OutputPlace::as_printed(dir.path().join("spill")));
        for piece in text.as_bytes().chunks(piece) {
            output.push(piece).await;
        }
        output.finish().await;
        (output, dir)
    }

    #[tokio::test]
    async fn counts_and_tails() {
        for piece in [1, 2, 3, 7, 1000] {
            for (text, lines, last) in [
                ("", 0, 0),
                ("\n", 1, 0),
                ("abc", 1, 3),
                ("abc\n", 1, 3),
                ("ab\n\n", 2, 0),
                ("a\nb\ncé", 3, 3),
                ("0123456789abcdef0123456789abcdef0123456789\nxyz\n", 2, 3),
                ("ééééééééééééééééééééééééééééééééééé", 1, 70),
                ("1\n2\n3\n4\n5\n6\n7\n8", 8, 1),
            ] {
                let (output, _dir) = print(text, piece).await;
                assert_eq!((output.lines(), output.last_line_bytes()), (lines, last), "{text:?} by {piece}");
                assert_eq!(output.bytes(), text.len() as u64);
                assert!(text.ends_with(output.tail()), "{text:?} by {piece}");
                assert!(output.tail().len() >= text.len().min(LIMITS.bytes + 1) && output.tail().len() <= 40);
            }
        }
    }

    #[tokio::test]
    async fn long_output_is_in_a_private_file() {
        use std::os::unix::fs::MetadataExt;
        let (output, _dir) = print("0123456789", 3).await;
        assert_eq!(output.spill(), SpillState::NotNeeded);
        for text in ["0123456789a", "\n\n\n\n\n"] {
            let (output, _dir) = print(text, 3).await;
            let SpillState::Complete(path) = output.spill() else { panic!("{:?}", output.spill()) };
            assert_eq!(std::fs::read_to_string(path).unwrap(), text);
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o600);
            assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        }
        let text = "x".repeat(99);
        let (output, _dir) = print(&text, 7).await;
        let SpillState::Limited(path) = output.spill() else { panic!("{:?}", output.spill()) };
        assert_eq!(std::fs::metadata(path).unwrap().len(), 40);
        assert_eq!(output.bytes(), 99);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_made_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("spill"), "").unwrap();
        let mut output = OutputBuffer::new(LIMITS, &OutputPlace::as_printed(dir.path().join("spill")));
        output.push(b"0123456789abc").await;
        output.finish().await;
        assert!(
            matches!(output.spill(), SpillState::Failed(reason) if reason.contains("cannot make a file"))
        );
        assert_eq!(output.tail(), "0123456789abc");
    }
}
