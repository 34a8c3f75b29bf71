//! Lines of a stream, none longer than is said.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Bytes of a line at most: 16 MiB. An image of a prompt fits.
pub const LINE_LIMIT: usize = 16 << 20;

/// A line that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// It was longer than the limit; what followed was passed over.
    TooLong,
}

/// Reads lines.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that is too long is passed over.
    skips: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(read: R) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, read), line: Vec::new(), skips: false }
    }

    /// The next line that is not empty; `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let is_last = buffer.is_empty();
            let taken = end.unwrap_or(buffer.len());
            let fits = self.line.len() + taken <= LINE_LIMIT;
            if !self.skips && fits {
                self.line.extend_from_slice(&buffer[..taken]);
            } else {
                (self.skips, self.line) = (true, Vec::new());
            }
            let length = taken + usize::from(end.is_some());
            self.reader.consume(length);
            if end.is_none() && !is_last {
                continue;
            }
            if std::mem::take(&mut self.skips) {
                return Ok(Some(Line::TooLong));
            }
            let line = std::mem::take(&mut self.line);
            if !line.trim_ascii().is_empty() {
                return Ok(Some(Line::Whole(line)));
            }
            if is_last {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_long_ones_are_passed_over() {
        let long = vec![b'x'; LINE_LIMIT + 1];
        let text = [&b"one\n\n \r\ntwo\r\n"[..], &long, b"\nthree"].concat();
        let mut lines = Lines::new(&text[..]);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(read, [whole("one"), whole("two\r"), Line::TooLong, whole("three")]);
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
