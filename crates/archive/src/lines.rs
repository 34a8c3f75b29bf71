//! Lines of a file that may be huge or hostile.

use std::io::{self, BufRead};

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
