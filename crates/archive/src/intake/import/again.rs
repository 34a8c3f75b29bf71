//! A file that is followed: what was read of it is not read again.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::super::follow::{Course, Done, Going};
use super::super::known::Known;
use super::super::lines::At;
use super::super::lines::{End, SealedLines};
use super::super::place::{Placed, Stop};
use super::super::{Outline, idle};
use super::One;
use crate::batches::{Most, off_the_runtime};
use crate::lineages::main_ref;
use crate::seen::Mark;
use crate::stamp::{Stamp, tail_of};
use crate::{ArchiveError, Report};

impl One<'_> {
    /// Whether it is kept in memory how far files were read.
    pub(super) fn is_followed(&self) -> bool {
        self.seen.follows() && !self.options.dry_run
    }

    /// Reads on where a file was left that is followed; `None` when all of it has to be read.
    pub(super) async fn go_on(
        &self,
        mut going: Going,
        path: &Path,
        file: &File,
        stamp: Stamp,
        mark: Option<&Mark>,
    ) -> Result<Option<Report>, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
        let head = self.store.head(&main_ref(self.agent, &going.outline.session)).await?;
        let is_known = self.is_followed() && going.is_of(&stamp) && head.is_some();
        if !is_known || !going.known.catch_up(&**self.store, self.agent, &going.outline).await? {
            return Ok(None);
        }
        let again = file.try_clone().map_err(fail)?;
        // What cannot be read is told by who reads all of it.
        let checked = off_the_runtime(move || (going.checked(again), going));
        let (Ok(Some(rest)), mut going) = checked.await? else { return Ok(None) };
        let (at, outline) = (going.at.clone(), going.outline.clone());
        let idle = idle(file).map_err(fail)?;
        let left = stamp.bytes - at.bytes;
        let mut lines = SealedLines::after(&at, rest, left, Arc::clone(self.sealer));
        let taken = self.place(path, left, move |sender| {
            going.prepare(sender, Most::of(left));
            let done = going.course.run(&mut lines, idle)?;
            Taken::of(done, lines)
        });
        let taken = taken.await?;
        let after = Stamp::of(&file.metadata().map_err(fail)?);
        if after != stamp {
            let (bytes, from) = (taken.end.bytes, at.clone());
            let mut again = file.try_clone().map_err(fail)?;
            let now = off_the_runtime(move || from.moved(&mut again, bytes, 0)).await?.map_err(fail)?;
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
        taken: Taken,
        path: &Path,
        (mut file, stamp): (File, Stamp),
        (from, outline): (At, Outline),
        mark: Option<&Mark>,
        settled: Option<Stamp>,
    ) -> Result<Report, ArchiveError> {
        let Taken { placed, course, end } = taken;
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
            let kept = off_the_runtime(move || {
                let (bytes, number) = end.ended;
                let at = match bytes == end.bytes {
                    true => At { bytes, number, hash: end.hash },
                    false => from.moved(&mut file, bytes, number)?,
                };
                let tail = tail_of(&file, bytes)?;
                Ok::<_, std::io::Error>(Going { course, known, outline, file: stamp, at, tail })
            });
            // What cannot be read any more is read whole the next time, or told then.
            if let Ok(going) = kept.await? {
                self.seen.keep(path, going);
            }
        }
        Ok(report)
    }
}

/// A file that was read, whose items are in the store.
pub(super) struct Taken {
    pub(super) placed: Placed,
    /// What goes on from its last whole line, where it is followed, and what the store has of it.
    course: Option<(Box<dyn Course>, Known)>,
    pub(super) end: End,
}

impl Taken {
    pub(super) fn of(done: Done, lines: SealedLines) -> Result<Self, Stop> {
        let (placed, known) = done.placer.end_with_known()?;
        Ok(Self { placed, course: done.course.zip(known), end: lines.end() })
    }
}
