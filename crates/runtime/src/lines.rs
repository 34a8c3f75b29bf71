//! Lines of a stream, none longer than is said.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

/// Bytes of a line at most: 16 MiB. An image of a prompt fits.
pub const LINE_LIMIT: usize = 16 << 20;

/// A line that was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// It was longer than the limit; what followed was passed over.
    TooLong,
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that is too long is passed over.
    skips: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The lines of what is read.
    pub fn new(read: R) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, read), line: Vec::new(), skips: false }
    }

    /// The next line that is not empty; `None` at the end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What the stream says.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
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

/// Writes lines until nobody sends any more, or the client reads them no more.
pub async fn write_lines(
    mut write: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<String>,
    patience: Duration,
) {
    while let Some(mut line) = lines.recv().await {
        // Those that wait already go along.
        while line.len() < 64 << 10
            && let Ok(next) = lines.try_recv()
        {
            line.push_str(&next);
        }
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match tokio::time::timeout(patience, write.write(rest)).await {
                Ok(Ok(count)) if count > 0 => rest = &rest[count..],
                Ok(_) | Err(_) => return,
            }
        }
        if !matches!(tokio::time::timeout(patience, write.flush()).await, Ok(Ok(()))) {
            return;
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
