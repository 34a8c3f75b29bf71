//! Lines over pipes: bounded, and written by one task.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

/// Bytes of a line at most: 16 MiB.
pub const LINE_LIMIT: usize = 16 << 20;
/// Requests that wait for an answer at most; beyond, nothing is read.
pub const REQUESTS: usize = 1_024;
/// Bytes of a buffer that are kept for the next line.
const KEPT: usize = 64 << 10;
/// How long the other side may read nothing while an answer waits.
const UNREAD: Duration = Duration::from_secs(30);

/// A line of the other side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads lines. Dropped in the middle of one, [`next`](LineSource::next) goes on from there.
pub(crate) struct LineSource<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> LineSource<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(KEPT, reader), line: Vec::new(), is_too_long: false }
    }

    /// The next line. One without an end is the beginning of a line of somebody who is gone, and is dropped.
    pub(crate) async fn next(&mut self) -> Line {
        loop {
            let Ok(available) = self.reader.fill_buf().await else { return Line::End };
            if available.is_empty() {
                return Line::End;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = end.unwrap_or(available.len());
            if self.line.len() + part > LINE_LIMIT {
                (self.is_too_long, self.line) = (true, Vec::new());
            } else if !self.is_too_long {
                self.line.extend_from_slice(&available[..part]);
            }
            let used = end.map_or(part, |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return if std::mem::take(&mut self.is_too_long) { Line::TooLong } else { Line::Whole(line) };
            }
        }
    }
}

/// Writes lines until no more come, in the order in which they come.
///
/// # Errors
/// `TimedOut` when the other side stopped reading; what the pipe says.
pub(crate) async fn write_lines<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut lines: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        let written = tokio::time::timeout(UNREAD, async {
            writer.write_all(&line).await?;
            writer.flush().await
        });
        written.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    Ok(())
}
