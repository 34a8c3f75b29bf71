//! Lines of a file that may be huge or hostile.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek as _};

use quipu_protocol::Json;
use sha2::{Digest as _, Sha256};

use crate::packed::{Unpacked, is_packed};
use crate::{Problem, ProblemKind};

/// Bytes of one line at most; a longer one is left out and told.
pub(crate) const LINE_LIMIT: usize = 128 << 20;

/// Some programs begin a text of UTF-8 with this.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The beginning of a text, without that and without blanks.
pub(crate) fn without_mark(start: &[u8]) -> &[u8] {
    start.strip_prefix(MARK).unwrap_or(start).trim_ascii_start()
}

/// Where a line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 1.
    pub(crate) number: u64,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    /// Bytes, without the end.
    pub(crate) length: u64,
    /// Whether it ends in a newline; only the last may not.
    pub(crate) ended: bool,
    /// Lines before it that begin as an object does.
    pub(crate) objects: u64,
    /// Whether it begins as an object does.
    pub(crate) is_object: bool,
}

impl Place {
    /// Bytes of the file up to its end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length + u64::from(self.ended)
    }
}

/// What stands on one line.
pub(crate) struct Line<'a> {
    pub(crate) place: Place,
    /// Without its end; empty when it is longer than the limit.
    pub(crate) bytes: &'a [u8],
}

impl Line<'_> {
    pub(crate) fn is_too_long(&self) -> bool {
        self.place.length > self.bytes.len() as u64
    }

    /// The object that it holds, and what is to be told of it: neither for a line that is blank.
    pub(crate) fn object(&self) -> (Option<Json>, Vec<Problem>) {
        let Place { number, length, ended, .. } = self.place;
        let problem = |kind, detail: &str| Problem::new(number, kind, detail);
        if self.is_too_long() {
            let detail = format!("{length} bytes; the limit is {LINE_LIMIT}");
            return (None, vec![problem(ProblemKind::TooLong, &detail)]);
        }
        let text = match std::str::from_utf8(self.bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.bytes),
        };
        if text.trim_ascii().is_empty() {
            return (None, Vec::new());
        }
        let json = match Json::parse(&text) {
            Ok(json) => json,
            Err(_) if !ended => return (None, vec![problem(ProblemKind::Torn, "")]),
            Err(error) => return (None, vec![problem(ProblemKind::Malformed, &error.to_string())]),
        };
        let mut problems = Vec::new();
        if let Cow::Owned(_) = text {
            problems.push(problem(ProblemKind::Encoding, ""));
        }
        if !json.get().starts_with('{') {
            problems.push(problem(ProblemKind::NotAnEntry, json.get()));
            return (None, problems);
        }
        (Some(json), problems)
    }
}

/// A file whose bytes are hashed as they are read.
pub(crate) struct Hashing {
    pub(crate) file: File,
    pub(crate) hash: Sha256,
    /// Bytes that were read.
    pub(crate) bytes: u64,
}

impl Hashing {
    /// `file` stands at its beginning.
    pub(crate) fn new(file: File) -> Self {
        Self { file, hash: Sha256::new(), bytes: 0 }
    }
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// What is in a file, which may be packed; the bytes of the file itself are hashed.
pub(crate) enum Content {
    Plain(Hashing),
    Packed(Box<Unpacked<Hashing>>),
}

impl Content {
    /// `file` stands at its beginning.
    pub(crate) fn of(file: File) -> Self {
        let is_packed = is_packed(&file);
        let file = Hashing::new(file);
        if is_packed { Self::Packed(Box::new(Unpacked::new(file))) } else { Self::Plain(file) }
    }

    pub(crate) fn into_inner(self) -> Hashing {
        match self {
            Self::Plain(file) => file,
            Self::Packed(file) => file.into_inner(),
        }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Packed(file) => file.read(buffer),
        }
    }
}

/// What is in a file, from its beginning, for a look at it.
pub(crate) fn content_of(mut file: &File) -> io::Result<Box<dyn Read + '_>> {
    file.rewind()?;
    Ok(if is_packed(file) { Box::new(Unpacked::new(file)) } else { Box::new(file) })
}

/// Reads lines one by one. Of a line beyond `limit` bytes only the length is kept.
pub(crate) struct Lines<R> {
    reader: R,
    limit: usize,
    buffer: Vec<u8>,
    number: u64,
    /// Bytes read so far.
    offset: u64,
    /// Lines so far that begin as an object does.
    objects: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, buffer: Vec::new(), number: 0, offset: 0, objects: 0 }
    }

    /// What comes after so many lines, bytes and lines that begin as an object does.
    pub(crate) fn after(reader: R, limit: usize, number: u64, offset: u64, objects: u64) -> Self {
        Self { number, offset, objects, ..Self::new(reader, limit) }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Lines read so far.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Counts the objects of lines to come from here.
    pub(crate) fn set_objects(&mut self, count: u64) {
        self.objects = count;
    }

    /// A line that began as an object does is none.
    pub(crate) fn was_no_object(&mut self) {
        self.objects = self.objects.saturating_sub(1);
    }

    /// The first bytes of what comes next, a few at least unless it is the end.
    pub(crate) fn peek(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    pub(crate) fn inner(&self) -> &R {
        &self.reader
    }

    /// What it read from.
    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let place = self.append_to(&mut buffer);
        self.buffer = buffer;
        Ok(place?.map(|place| Line { place, bytes: &self.buffer }))
    }

    /// Appends the next line without its end, nothing of one that is longer than the limit; `None` at the end.
    pub(crate) fn append_to(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Place>> {
        let offset = self.offset;
        let start = buffer.len();
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
                buffer.extend_from_slice(content);
            } else {
                buffer.truncate(start);
                buffer.shrink_to(start);
            }
            ended = found.is_some();
            let used = content.len() + usize::from(ended);
            self.reader.consume(used);
            self.offset += used as u64;
        }
        if self.offset == offset {
            return Ok(None);
        }
        self.number += 1;
        let mark = buffer.get(start..).is_some_and(|line| offset == 0 && line.starts_with(MARK));
        if mark {
            buffer.drain(start..start + MARK.len());
        }
        let mark = if mark { MARK.len() as u64 } else { 0 };
        let (offset, length) = (offset + mark, length - mark);
        let objects = self.objects;
        let is_object = buffer.get(start..).is_some_and(|line| line.trim_ascii_start().starts_with(b"{"));
        self.objects += u64::from(is_object);
        Ok(Some(Place { number: self.number, offset, length, ended, objects, is_object }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_an_encoding_is_no_part_of_the_first_line() {
        let text = "\u{feff}a\n\u{feff}b";
        let mut lines = Lines::new(text.as_bytes(), 5);
        let line = lines.next().unwrap().unwrap();
        assert_eq!(
            (line.bytes, line.place.offset, line.place.length, line.place.end()),
            (&b"a"[..], 3, 1, 5)
        );
        assert!(!line.is_too_long());
        let line = lines.next().unwrap().unwrap();
        assert_eq!((line.bytes, line.place.offset), ("\u{feff}b".as_bytes(), 5));
    }

    #[test]
    fn lines_in_any_split() {
        let text = b"ab\n\n\rc\nlonger than it may be\nlast";
        for capacity in 1..40 {
            let mut lines = Lines::new(io::BufReader::with_capacity(capacity, &text[..]), 5);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                let too_long = line.is_too_long();
                let Place { number, offset, length, ended, .. } = line.place;
                seen.push((number, offset, line.bytes.to_vec(), length, ended, too_long));
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
