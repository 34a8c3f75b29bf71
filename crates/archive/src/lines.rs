//! Lines of a file that may be huge or hostile.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Read};

use quipu_protocol::Json;
use sha2::{Digest as _, Sha256};

use crate::{ProblemKind, Report};

/// What stands on one line.
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: u64,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    /// Without its end; empty when it is longer than the limit.
    pub(crate) bytes: &'a [u8],
    /// Bytes, without the end.
    pub(crate) length: u64,
    /// Whether it ends in a newline; only the last may not.
    pub(crate) ended: bool,
}

impl Line<'_> {
    pub(crate) fn is_too_long(&self) -> bool {
        self.length > self.bytes.len() as u64
    }

    /// What it holds; `None` for a line that is blank, and for one that is no JSON, which is told.
    pub(crate) fn json(&self, report: &mut Report) -> Option<Json> {
        let text = match std::str::from_utf8(self.bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.bytes),
        };
        if text.trim_ascii().is_empty() {
            return None;
        }
        let json = match Json::parse(&text) {
            Ok(json) => json,
            Err(_) if !self.ended => {
                report.problem(self.number, ProblemKind::Torn, "");
                return None;
            }
            Err(error) => {
                report.problem(self.number, ProblemKind::Malformed, &error.to_string());
                return None;
            }
        };
        if let Cow::Owned(_) = text {
            report.problem(self.number, ProblemKind::Encoding, "");
        }
        Some(json)
    }
}

/// A file whose bytes are hashed as they are read.
pub(crate) struct Hashing {
    pub(crate) file: File,
    pub(crate) hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// Reads lines one by one into one buffer. Of a line beyond `limit` bytes only the length is kept.
pub(crate) struct Lines<R> {
    reader: R,
    limit: usize,
    buffer: Vec<u8>,
    number: u64,
    /// Bytes read so far.
    offset: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, buffer: Vec::new(), number: 0, offset: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The first bytes of what comes next, a few at least unless it is the end.
    pub(crate) fn peek(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    /// What it read from.
    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let start = self.offset;
        let mut length = 0;
        let mut ended = false;
        while !ended {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                break;
            }
            let found = memchr::memchr(b'\n', piece);
            let content = &piece[..found.unwrap_or(piece.len())];
            length += content.len() as u64;
            if length <= self.limit as u64 {
                self.buffer.extend_from_slice(content);
            } else {
                self.buffer = Vec::new();
            }
            ended = found.is_some();
            let used = content.len() + usize::from(ended);
            self.reader.consume(used);
            self.offset += used as u64;
        }
        if self.offset == start {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(Line { number: self.number, offset: start, bytes: &self.buffer, length, ended }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_any_split() {
        let text = b"ab\n\n\rc\nlonger than it may be\nlast";
        for capacity in 1..40 {
            let mut lines = Lines::new(io::BufReader::with_capacity(capacity, &text[..]), 5);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                let too_long = line.is_too_long();
                seen.push((line.number, line.offset, line.bytes.to_vec(), line.length, line.ended, too_long));
            }
            assert_eq!(
                seen,
                [
                    (1, 0, b"ab".to_vec(), 2, true, false),
                    (2, 3, b"".to_vec(), 0, true, false),
                    (3, 4, b"\rc".to_vec(), 2, true, false),
                    (4, 7, b"".to_vec(), 21, true, true),
                    (5, 29, b"last".to_vec(), 4, false, false),
                ]
            );
        }
    }
}
