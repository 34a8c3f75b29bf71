//! Lines of the whole output of a background command, by their numbers.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read as _};
use std::path::PathBuf;

use super::SPILL_BYTES;
use crate::truncate::{MAX_BYTES, MAX_LINES};

/// Lines that are shown where nothing is said.
pub(crate) const DEFAULT_LINES: usize = 200;
/// Bytes of a line that are shown.
const LINE: usize = 2_000;

/// Which lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogRange {
    /// The first line, from 1; `None` for the last lines.
    pub(crate) offset: Option<u64>,
    /// How many at most.
    pub(crate) limit: Option<usize>,
}

/// Lines of an output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LogLines {
    pub(crate) text: String,
    /// The number of the first line of the text, from 1.
    pub(crate) first: u64,
    /// How many lines the text has.
    pub(crate) count: u64,
    /// How many lines the output has so far.
    pub(crate) total: u64,
}

/// Where the output is.
pub(super) enum LogSource {
    /// In a file, sealed.
    File(PathBuf),
    /// In memory, behind so many lines that are gone.
    Text { text: String, before: u64 },
}

impl LogSource {
    /// Reads the lines. Blocks.
    pub(super) fn lines(self, range: LogRange) -> std::io::Result<LogLines> {
        match self {
            Self::Text { text, before } => collect(text.as_bytes(), before, range),
            Self::File(path) => {
                let file = std::fs::File::open(path)?;
                collect(BufReader::new(file.take(2 * SPILL_BYTES)), 0, range)
            }
        }
    }
}

fn collect(mut from: impl BufRead, before: u64, range: LogRange) -> std::io::Result<LogLines> {
    let most = range.limit.unwrap_or(if range.offset.is_some() { MAX_LINES } else { DEFAULT_LINES });
    let most = most.clamp(1, MAX_LINES);
    let begin = range.offset.unwrap_or(1).max(1);
    let (mut kept, mut bytes, mut number) = (VecDeque::<String>::new(), 0, before);
    let mut last = 0;
    let mut is_full = false;
    while let Some(line) = next_line(&mut from)? {
        number += 1;
        if is_full || number < begin {
            continue;
        }
        if range.offset.is_some() && (kept.len() == most || bytes + line.len() > MAX_BYTES) {
            is_full = true;
            continue;
        }
        bytes += line.len() + 1;
        kept.push_back(line);
        last = number;
        while kept.len() > most || bytes > MAX_BYTES {
            bytes -= kept.pop_front().map_or(0, |line| line.len() + 1);
        }
    }
    let count = kept.len() as u64;
    let first = if count == 0 { 0 } else { last + 1 - count };
    let text = kept.into_iter().collect::<Vec<_>>().join("\n");
    Ok(LogLines { text, first, count, total: number })
}

/// The next line without its end, cut where it is long.
fn next_line(from: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let (mut line, mut rest, mut is_there) = (Vec::new(), 0_usize, false);
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        is_there = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        rest += part.len() - room;
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            break;
        }
    }
    if !is_there {
        return Ok(None);
    }
    let mut text = String::from_utf8_lossy(&line).into_owned();
    if rest > 0 {
        text.push_str(&format!(" [... {rest} more bytes of this line]"));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, offset: Option<u64>, limit: Option<usize>) -> LogLines {
        collect(text.as_bytes(), 0, LogRange { offset, limit }).unwrap()
    }

    #[test]
    fn log_ranges_are_counted_from_one() {
        let text = "a\nb\nc\nd";
        let lines = |offset, limit| {
            let LogLines { text, first, count, total } = of(text, offset, limit);
            (text, first, count, total)
        };
        assert_eq!(lines(None, None), (text.to_owned(), 1, 4, 4));
        assert_eq!(lines(None, Some(2)), ("c\nd".to_owned(), 3, 2, 4));
        assert_eq!(lines(Some(2), Some(2)), ("b\nc".to_owned(), 2, 2, 4));
        assert_eq!(lines(Some(3), None), ("c\nd".to_owned(), 3, 2, 4));
        assert_eq!(lines(Some(9), None), (String::new(), 0, 0, 4));
        assert_eq!(lines(Some(0), Some(0)), ("a".to_owned(), 1, 1, 4));
        assert_eq!(of("", None, None), LogLines::default());
    }

    #[test]
    fn log_is_bounded_in_lines_and_bytes() {
        let many = "x\n".repeat(10_000);
        assert_eq!((of(&many, None, None).count, of(&many, Some(1), None).count), (200, 2_000));
        assert_eq!(of(&many, None, Some(9_999)).count, 2_000);
        let long = format!("{}\nend", "é".repeat(100_000));
        let lines = of(&long, None, None);
        assert!(
            lines.text.len() < 3_000 && lines.text.contains("more bytes of this line]\nend"),
            "{}",
            lines.text
        );
        let wide = format!("{}\n", "y".repeat(1_999)).repeat(100);
        let (tail, begin) = (of(&wide, None, None), of(&wide, Some(1), None));
        assert!(tail.text.len() <= MAX_BYTES && tail.first + tail.count - 1 == 100);
        assert!(begin.text.len() <= MAX_BYTES && begin.first == 1 && begin.count < 100);
    }
}
