//! Files of lines that are followed: what is known of one stays in memory, and of what is appended nothing else is read.
//!
//! A reader says at the end of a file what it can say then, which more lines may change. So its state before that is kept, and
//! gets the new lines: what comes of it is what reading all of the file would give.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::time::Duration;

use quipu_protocol::ChunkId;
use tokio::sync::mpsc;

use super::lines::{LinePosition, Skip};
use super::node_builder::{NodeBuilder, Stop};
use super::stored_session::StoredSession;
use super::{LINE_LIMIT, Outline, SealedLines, Text};
use crate::batches::{Batch, BatchLimit};
use crate::lines::Lines;
use crate::stamp::{Stamp, tail_of};

/// Reads the lines of a file in order. A clone has the same state.
pub(crate) trait LineReader: Clone + Send + 'static {
    /// Lines that are passed by.
    const SKIP: Skip = |_| None;

    fn out(&mut self) -> &mut NodeBuilder;

    /// Takes the next line.
    fn line(&mut self, text: &Text) -> Result<(), Stop>;

    /// The file ends here, for now; nobody has written to it for so long.
    fn end(self, idle: Duration) -> Result<NodeBuilder, Stop>;

    /// Whether a line that is new says nothing that changes what those before it mean.
    fn can_continue(&self, line: &[u8]) -> bool {
        let _ = line;
        true
    }
}

/// The result of reading a file to its end.
pub(crate) struct CompletedRead {
    pub(super) builder: NodeBuilder,
    /// The reader before the end of the file, where the file is followed.
    pub(super) course: Option<Box<dyn ResumableReader>>,
}

impl CompletedRead {
    /// The result for a file that cannot be resumed.
    pub(crate) fn whole(builder: NodeBuilder) -> Self {
        Self { builder, course: None }
    }
}

/// Reads all lines that are left.
pub(crate) fn run<R: LineReader>(
    mut reader: R,
    lines: &mut SealedLines,
    idle: Duration,
) -> Result<CompletedRead, Stop> {
    let mut before: Option<R> = None;
    while let Some(text) = lines.next(reader.out(), R::SKIP)? {
        // The last one may be longer the next time.
        if lines.is_kept() && !text.ended {
            before = Some(reader.clone());
        }
        reader.line(&text)?;
    }
    if lines.is_kept() && before.is_none() {
        before = Some(reader.clone());
    }
    let course = before.map(|reader| -> Box<dyn ResumableReader> { Box::new(reader) });
    Ok(CompletedRead { builder: reader.end(idle)?, course })
}

/// A reader between two lines.
pub(crate) trait ResumableReader: Send {
    fn builder(&mut self) -> &mut NodeBuilder;
    fn run(self: Box<Self>, lines: &mut SealedLines, idle: Duration) -> Result<CompletedRead, Stop>;
    fn can_continue(&self, line: &[u8]) -> bool;
}

impl<R: LineReader> ResumableReader for R {
    fn builder(&mut self) -> &mut NodeBuilder {
        self.out()
    }

    fn run(self: Box<Self>, lines: &mut SealedLines, idle: Duration) -> Result<CompletedRead, Stop> {
        run(*self, lines, idle)
    }

    fn can_continue(&self, line: &[u8]) -> bool {
        LineReader::can_continue(self, line)
    }
}

/// How far a followed file was read, to read only what is appended.
pub(crate) struct IncrementalState {
    pub(super) course: Box<dyn ResumableReader>,
    /// What the store has of it.
    pub(super) known: StoredSession,
    pub(super) outline: Outline,
    /// What the system said of it.
    pub(super) file: Stamp,
    pub(super) at: LinePosition,
    /// Of the last bytes before that.
    pub(super) tail: ChunkId,
}

impl IncrementalState {
    /// Whether it is of this file, which did not become shorter.
    pub(super) fn is_of(&self, now: &Stamp) -> bool {
        self.file.is_same_file(now) && self.at.bytes <= now.bytes
    }

    /// The file where the new lines begin, when it ends there as it did and they change nothing of what stands before. What was
    /// changed further before shows in its hash, which the next import of its own compares.
    pub(super) fn checked(&self, mut file: File) -> io::Result<Option<File>> {
        let LinePosition { bytes, number, .. } = self.at;
        if tail_of(&file, bytes)? != self.tail {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(bytes))?;
        let reader = BufReader::with_capacity(64 << 10, file);
        let mut lines = Lines::after(reader, LINE_LIMIT, number, bytes, 0);
        while let Some(line) = lines.next()? {
            if !self.course.can_continue(line.bytes) {
                return Ok(None);
            }
        }
        let mut file = lines.into_inner().into_inner();
        file.seek(SeekFrom::Start(bytes))?;
        Ok(Some(file))
    }

    /// Takes up what the store has by now.
    pub(super) fn prepare(&mut self, batches: mpsc::Sender<Batch>, most: BatchLimit) {
        self.course.builder().resume(std::mem::take(&mut self.known), most, batches);
    }
}
