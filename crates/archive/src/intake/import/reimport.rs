//! A file that is followed: what was read of it is not read again.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::super::incremental::{CompletedRead, IncrementalState, ResumableReader};
use super::super::lines::LinePosition;
use super::super::lines::{End, SealedLines};
use super::super::node_builder::{BuiltSession, Stop};
use super::super::stored_session::StoredSession;
use super::super::{Outline, idle};
use super::FileImport;
use crate::batches::{BatchLimit, run_blocking};
use crate::import_cache::Mark;
use crate::lineages::main_ref;
use crate::stamp::{Stamp, tail_of};
use crate::{ArchiveError, Report};

impl FileImport<'_> {
    /// Whether it is kept in memory how far files were read.
    pub(super) fn is_followed(&self) -> bool {
        self.cache.follows() && !self.options.dry_run
    }

    /// Reads on where a file was left that is followed; `None` when all of it has to be read.
    pub(super) async fn resume(
        &self,
        mut state: IncrementalState,
        path: &Path,
        file: &File,
        stamp: Stamp,
        mark: Option<&Mark>,
    ) -> Result<Option<Report>, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
        let head = self.store.head(&main_ref(self.agent, &state.outline.session)).await?;
        let is_known = self.is_followed() && state.is_of(&stamp) && head.is_some();
        if !is_known || !state.known.catch_up(&**self.store, self.agent, &state.outline).await? {
            return Ok(None);
        }
        let again = file.try_clone().map_err(fail)?;
        // What cannot be read is told by who reads all of it.
        let checked = run_blocking(move || (state.checked(again), state));
        let (Ok(Some(rest)), mut state) = checked.await? else { return Ok(None) };
        let (at, outline) = (state.at.clone(), state.outline.clone());
        let idle = idle(file).map_err(fail)?;
        let left = stamp.bytes - at.bytes;
        let mut lines = SealedLines::after(&at, rest, left, Arc::clone(self.sealer));
        let taken = self.place(path, left, move |sender| {
            state.prepare(sender, BatchLimit::of(left));
            let done = state.course.run(&mut lines, idle)?;
            ImportedFile::of(done, lines)
        });
        let taken = taken.await?;
        let after = Stamp::of(&file.metadata().map_err(fail)?);
        if after != stamp {
            let (bytes, from) = (taken.end.bytes, at.clone());
            let mut again = file.try_clone().map_err(fail)?;
            let now = run_blocking(move || from.moved(&mut again, bytes, 0)).await?.map_err(fail)?;
            if after.bytes < stamp.bytes || now.sha256() != taken.end.sha256() {
                return Err(ArchiveError::Changed { path: path.to_owned() });
            }
        }
        let kept = file.try_clone().map_err(fail)?;
        self.end(taken, path, (kept, stamp), (at, outline), mark, None).await.map(Some)
    }

    /// Notes what was read of a file, from a place on, and how far it was read when it is followed.
    pub(super) async fn end(
        &self,
        taken: ImportedFile,
        path: &Path,
        (mut file, stamp): (File, Stamp),
        (from, outline): (LinePosition, Outline),
        mark: Option<&Mark>,
        settled: Option<Stamp>,
    ) -> Result<Report, ArchiveError> {
        let ImportedFile { placed, course, end } = taken;
        let session = placed.report.session.clone();
        let note = (end.whole && !placed.unfinished).then(|| Mark {
            stamp: settled,
            ..Mark::new(self.agent, path, session, end.bytes, end.sha256())
        });
        let note = note.filter(|note| mark != Some(note));
        let course = course.map(|(course, mut known)| {
            known.add(&placed.nodes);
            (course, known)
        });
        let report = self.finish(placed, note).await?;
        if let Some((course, known)) = course {
            let kept = run_blocking(move || {
                let (bytes, number) = end.ended;
                let at = match bytes == end.bytes {
                    true => LinePosition { bytes, number, hash: end.hash },
                    false => from.moved(&mut file, bytes, number)?,
                };
                let tail = tail_of(&file, bytes)?;
                Ok::<_, std::io::Error>(IncrementalState { course, known, outline, file: stamp, at, tail })
            });
            // What cannot be read any more is read whole the next time, or told then.
            if let Ok(state) = kept.await? {
                self.cache.keep(path, state);
            }
        }
        Ok(report)
    }
}

/// A file whose items are in the store.
pub(super) struct ImportedFile {
    pub(super) placed: BuiltSession,
    /// What goes on from its last whole line, where it is followed, and what the store has of it.
    course: Option<(Box<dyn ResumableReader>, StoredSession)>,
    pub(super) end: End,
}

impl ImportedFile {
    pub(super) fn of(done: CompletedRead, lines: SealedLines) -> Result<Self, Stop> {
        let (placed, known) = done.builder.end_with_known()?;
        Ok(Self { placed, course: done.course.zip(known), end: lines.end() })
    }
}
