//! Files of lines that are followed: what is known of one stays in memory, and of what is appended nothing else is read.
//!
//! A reader says at the end of a file what it can say then, which more lines may change. So its state before that is kept, and
//! gets the new lines: what comes of it is what reading all of the file would give.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::time::Duration;

use quipu_protocol::ChunkId;
use tokio::sync::mpsc;

use super::known::Known;
use super::lines::{At, Skip};
use super::place::{Placer, Stop};
use super::{LINE_LIMIT, Outline, SealedLines, Text};
use crate::batches::{Batch, Most};
use crate::lines::Lines;
use crate::stamp::{Stamp, tail_of};

/// What goes through the lines of a file. A copy knows the same of those that came.
pub(crate) trait Reading: Clone + Send + 'static {
    /// Lines that are passed by.
    const SKIP: Skip = |_| None;

    fn out(&mut self) -> &mut Placer;

    /// Takes the next line.
    fn line(&mut self, text: &Text) -> Result<(), Stop>;

    /// The file ends here, for now; nobody has written to it for so long.
    fn end(self, idle: Duration) -> Result<Placer, Stop>;

    /// Whether a line that is new says nothing that changes what those before it mean.
    fn can_go_on(&self, line: &[u8]) -> bool {
        let _ = line;
        true
    }
}

/// A file that was read to its end.
pub(crate) struct Done {
    pub(super) placer: Placer,
    /// What it was before the end, where that was to be kept.
    pub(super) course: Option<Box<dyn Course>>,
}

impl Done {
    /// What cannot be gone on with.
    pub(crate) fn whole(placer: Placer) -> Self {
        Self { placer, course: None }
    }
}

/// Reads all lines that are left.
pub(crate) fn run<R: Reading>(mut reader: R, lines: &mut SealedLines, idle: Duration) -> Result<Done, Stop> {
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
    let course = before.map(|reader| -> Box<dyn Course> { Box::new(reader) });
    Ok(Done { placer: reader.end(idle)?, course })
}

/// A reader between two lines.
pub(crate) trait Course: Send {
    fn placer(&mut self) -> &mut Placer;
    fn run(self: Box<Self>, lines: &mut SealedLines, idle: Duration) -> Result<Done, Stop>;
    fn can_go_on(&self, line: &[u8]) -> bool;
}

impl<R: Reading> Course for R {
    fn placer(&mut self) -> &mut Placer {
        self.out()
    }

    fn run(self: Box<Self>, lines: &mut SealedLines, idle: Duration) -> Result<Done, Stop> {
        run(*self, lines, idle)
    }

    fn can_go_on(&self, line: &[u8]) -> bool {
        Reading::can_go_on(self, line)
    }
}

/// How far a file was read.
pub(crate) struct Going {
    pub(super) course: Box<dyn Course>,
    /// What the store has of it.
    pub(super) known: Known,
    pub(super) outline: Outline,
    /// What the system said of it.
    pub(super) file: Stamp,
    pub(super) at: At,
    /// Of the last bytes before that.
    pub(super) tail: ChunkId,
}

impl Going {
    /// Whether it is of this file, which did not become shorter.
    pub(super) fn is_of(&self, now: &Stamp) -> bool {
        self.file.is_same_file(now) && self.at.bytes <= now.bytes
    }

    /// The file where the new lines begin, when it ends there as it did and they change nothing of what stands before. What was
    /// changed further before shows in its hash, which the next import of its own compares.
    pub(super) fn checked(&self, mut file: File) -> io::Result<Option<File>> {
        let At { bytes, number, .. } = self.at;
        if tail_of(&file, bytes)? != self.tail {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(bytes))?;
        let reader = BufReader::with_capacity(64 << 10, file);
        let mut lines = Lines::after(reader, LINE_LIMIT, number, bytes, 0);
        while let Some(line) = lines.next()? {
            if !self.course.can_go_on(line.bytes) {
                return Ok(None);
            }
        }
        let mut file = lines.into_inner().into_inner();
        file.seek(SeekFrom::Start(bytes))?;
        Ok(Some(file))
    }

    /// Takes up what the store has by now.
    pub(super) fn prepare(&mut self, batches: mpsc::Sender<Batch>, most: Most) {
        self.course.placer().go_on(std::mem::take(&mut self.known), most, batches);
    }
}
