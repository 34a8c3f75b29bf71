//! Lines of a text file, in memory that depends on what is asked for and not on the file.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::{FileError, Utf8Decoder};

/// Which lines are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineRange {
    /// The first line, from 0.
    pub start: u64,
    /// How many at most; `None` for all that follow.
    pub count: Option<u64>,
}

/// How much text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Lines at most.
    pub lines: usize,
    /// Bytes of text at most.
    pub bytes: usize,
    /// Bytes of the file that are passed over at most to find the first line.
    pub skip: u64,
    /// Bytes of the file that are read on at most, when all that is kept is there, to count the lines of the rest.
    pub count: u64,
}

/// The lines asked for, as far as the limits let them be kept, and the sizes of the whole.
///
/// Lines are what stands between line feeds, so a final line feed is followed by one more, empty line. Bytes are
/// those of the decoded text (invalid UTF-8 reads as U+FFFD).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextWindow {
    /// The start of the lines asked for: all of it when it fits the limits, else somewhat more than the limits
    /// allow, cut between characters.
    pub text: String,
    /// Whether `text` is all of what was asked for.
    pub complete: bool,
    /// Whether the file was read to its end. If not, all counts are of what was read: there is at least as much.
    pub is_counted: bool,
    /// Lines of the file.
    pub total_lines: u64,
    /// Lines of what was asked for.
    pub lines: u64,
    /// Bytes of what was asked for.
    pub bytes: u64,
    /// Bytes of the first line that was asked for, without its line feed.
    pub first_line_bytes: u64,
    /// Whether what was asked for ends with a line feed.
    pub ends_with_line_feed: bool,
}

/// Bytes looked at between two looks at the cancel token.
const CHUNK: usize = 64 * 1024;

/// Reads the lines of `range` from a file's beginning, and counts the lines of the rest, as far as `limits` say. `path`
/// names it in errors.
///
/// Needs memory for `limits` and one buffer, whatever the file. A `range` that starts past the end, or further than
/// [`ReadLimits::skip`] into the file, gives an empty window with `lines` 0.
///
/// # Errors
/// [`FileError::Cancelled`] soon after `cancel` fires; the system's error otherwise.
pub fn read_lines(
    file: &mut impl Read,
    path: &Path,
    range: LineRange,
    limits: ReadLimits,
    cancel: &CancellationToken,
) -> Result<TextWindow, FileError> {
    let mut collector = Collector::new(range, limits);
    let mut buffer = vec![0; CHUNK];
    loop {
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        match file.read(&mut buffer) {
            Ok(0) => {
                collector.window.is_counted = true;
                break;
            }
            Ok(got) => {
                collector.push(&buffer[..got]);
                if collector.has_enough(got as u64) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(FileError::from_io(path, "cannot read", source)),
        }
    }
    Ok(collector.finish())
}

struct Collector {
    wanted: Range<u64>,
    limits: ReadLimits,
    /// The line that the next byte belongs to.
    line: u64,
    decoder: Utf8Decoder,
    window: TextWindow,
    kept_lines: usize,
    first_line_ended: bool,
    /// Bytes of the file before the first line that is wanted, and after all that is kept.
    passed: u64,
    counted: u64,
}

impl Collector {
    fn new(range: LineRange, limits: ReadLimits) -> Self {
        let end = range.count.map_or(u64::MAX, |count| range.start.saturating_add(count));
        Self {
            wanted: range.start..end,
            limits,
            line: 0,
            decoder: Utf8Decoder::default(),
            window: TextWindow { complete: true, ..TextWindow::default() },
            kept_lines: 0,
            first_line_ended: false,
            passed: 0,
            counted: 0,
        }
    }

    /// Whether so much was passed over or counted that no more is read. `got` bytes were pushed last.
    fn has_enough(&mut self, got: u64) -> bool {
        if self.line < self.wanted.start {
            self.passed += got;
            return self.passed >= self.limits.skip;
        }
        if self.line >= self.wanted.end || !self.window.complete {
            self.counted += got;
        }
        self.counted >= self.limits.count
    }

    fn push(&mut self, mut bytes: &[u8]) {
        if self.line < self.wanted.start {
            let missing = usize::try_from(self.wanted.start - self.line).unwrap_or(usize::MAX);
            match memchr::memchr_iter(b'\n', bytes).nth(missing - 1) {
                Some(at) => {
                    self.line = self.wanted.start;
                    bytes = &bytes[at + 1..];
                }
                None => {
                    self.line += count_lines(bytes);
                    return;
                }
            }
        }
        if self.line < self.wanted.end && !bytes.is_empty() {
            let missing = usize::try_from(self.wanted.end - self.line).unwrap_or(usize::MAX);
            match memchr::memchr_iter(b'\n', bytes).nth(missing - 1) {
                // The line feed that ends the last line wanted is not part of the window.
                Some(at) => {
                    self.keep(&bytes[..at]);
                    self.end_window();
                    self.line = self.wanted.end;
                    bytes = &bytes[at + 1..];
                }
                None => {
                    self.keep(bytes);
                    self.line += count_lines(bytes);
                    return;
                }
            }
        }
        self.line += count_lines(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Self { decoder, window, limits, kept_lines, first_line_ended, .. } = self;
        decoder.push(bytes, |text| keep_text(window, *limits, kept_lines, first_line_ended, text));
    }

    fn end_window(&mut self) {
        let Self { decoder, window, limits, kept_lines, first_line_ended, .. } = self;
        decoder.finish(|text| keep_text(window, *limits, kept_lines, first_line_ended, text));
    }

    fn finish(mut self) -> TextWindow {
        self.end_window();
        self.window.total_lines = self.line + 1;
        self.window.lines = self.window.total_lines.min(self.wanted.end).saturating_sub(self.wanted.start);
        self.window
    }
}

fn keep_text(
    window: &mut TextWindow,
    limits: ReadLimits,
    kept_lines: &mut usize,
    first_line_ended: &mut bool,
    text: &str,
) {
    window.bytes += text.len() as u64;
    window.ends_with_line_feed = text.ends_with('\n');
    if !*first_line_ended {
        let end = memchr::memchr(b'\n', text.as_bytes());
        window.first_line_bytes += end.unwrap_or(text.len()) as u64;
        *first_line_ended = end.is_some();
    }
    if !window.complete {
        return;
    }
    // One byte and one line beyond the limits show that they were exceeded.
    let room = (limits.bytes + 1).saturating_sub(window.text.len());
    let lines = (limits.lines + 1).saturating_sub(*kept_lines);
    let by_lines = match lines {
        0 => 0,
        lines => memchr::memchr_iter(b'\n', text.as_bytes()).nth(lines - 1).map_or(text.len(), |at| at + 1),
    };
    let mut end = by_lines.min(room);
    while end < text.len() && !text.is_char_boundary(end) {
        end += 1;
    }
    let end = end.min(text.len());
    window.text.push_str(&text[..end]);
    *kept_lines += memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count();
    window.complete = end == text.len();
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ReadLimits = ReadLimits { lines: 3, bytes: 12, skip: u64::MAX, count: u64::MAX };

    fn read(bytes: &[u8], start: u64, count: Option<u64>, piece: usize) -> TextWindow {
        let mut collector = Collector::new(LineRange { start, count }, LIMITS);
        bytes.chunks(piece).for_each(|piece| collector.push(piece));
        collector.finish()
    }

    #[test]
    fn windows() {
        let check = |text: &str, start, count, kept: &str, total, lines, bytes| {
            let window = read(text.as_bytes(), start, count, 100);
            assert_eq!(window.text, kept, "{text:?}");
            assert_eq!((window.total_lines, window.lines, window.bytes), (total, lines, bytes), "{text:?}");
        };
        check("", 0, None, "", 1, 1, 0);
        check("a", 0, None, "a", 1, 1, 1);
        check("a\n", 0, None, "a\n", 2, 2, 2);
        check("a\nb\nc", 1, Some(1), "b", 3, 1, 1);
        check("a\nb\nc", 1, Some(9), "b\nc", 3, 2, 3);
        check("a\nb\nc", 3, None, "", 3, 0, 0);
        check("a\nb\nc", 0, Some(0), "", 3, 0, 0);
        check("a\r\nb\r\n", 0, Some(1), "a\r", 3, 1, 2);
        check("a\nb\n", 2, None, "", 3, 1, 0);
    }

    /// A file without an end: the same line again and again.
    struct EndlessFile {
        line: &'static [u8],
        at: usize,
        read: u64,
    }

    impl Read for EndlessFile {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *buffer {
                *byte = self.line[self.at % self.line.len()];
                self.at += 1;
            }
            self.read += buffer.len() as u64;
            Ok(buffer.len())
        }
    }

    #[test]
    fn part_of_a_huge_file_is_not_a_scan_of_all() {
        const MIB: u64 = 1 << 20;
        let limits = ReadLimits { lines: 2000, bytes: 50 * 1024, skip: 8 * MIB, count: 2 * MIB };
        let window = |line: &'static [u8], start, count| {
            let mut file = EndlessFile { line, at: 0, read: 0 };
            let range = LineRange { start, count };
            let window =
                read_lines(&mut file, Path::new("huge"), range, limits, &CancellationToken::new()).unwrap();
            assert!(!window.is_counted);
            (window, file.read)
        };
        let (first, read) = window(b"a line\n", 0, Some(2));
        assert_eq!((first.text.as_str(), first.lines, first.complete), ("a line\na line", 2, true));
        assert!(first.total_lines > 250_000 && read <= 3 * MIB, "{} {read}", first.total_lines);
        let (all, read) = window(b"a line\n", 0, None);
        assert!(!all.complete && all.lines > 2000 && read <= 3 * MIB, "{} {read}", all.lines);
        let (inside, read) = window(b"a line\n", 700_000, Some(1));
        assert_eq!((inside.text.as_str(), inside.lines), ("a line", 1));
        assert!(read <= 8 * MIB, "{read}");
        let (far, read) = window(b"a line\n", 1_000_000_000, Some(1));
        assert_eq!((far.text.as_str(), far.lines), ("", 0));
        assert!(far.total_lines < 2_000_000 && read <= 9 * MIB, "{} {read}", far.total_lines);
        let (zeros, read) = window(b"\0", 0, Some(1));
        assert!(zeros.first_line_bytes >= 2 * MIB && !zeros.complete && read <= 3 * MIB, "{read}");
    }

    proptest! {
        /// Whatever the pieces, the window is what a reader with the whole file would cut out.
        #[test]
        fn equals_reading_at_once(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(0xC3), Just(0xA9), any::<u8>()], 0..60), from in 0usize..8, count in prop::option::of(0usize..8), piece in 1usize..20) {
            let window = read(&bytes, from as u64, count.map(|count| count as u64), piece);
            let whole = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = whole.split('\n').collect();
            let from = from.min(lines.len());
            let to = count.map_or(lines.len(), |count| (from + count).min(lines.len()));
            let wanted = lines[from..to].join("\n");
            prop_assert_eq!(window.total_lines, lines.len() as u64);
            prop_assert_eq!(window.lines, (to - from) as u64);
            prop_assert_eq!(window.bytes, wanted.len() as u64);
            prop_assert_eq!(window.ends_with_line_feed, wanted.ends_with('\n'));
            if to > from {
                prop_assert_eq!(window.first_line_bytes, lines[from].len() as u64);
            }
            prop_assert!(wanted.starts_with(&window.text));
            prop_assert_eq!(window.complete, window.text == wanted);
            let fits = wanted.len() <= LIMITS.bytes && wanted.matches('\n').count() < LIMITS.lines;
            prop_assert!(window.complete || !fits);
            prop_assert!(window.text.len() <= LIMITS.bytes + 4);
        }
    }
}
