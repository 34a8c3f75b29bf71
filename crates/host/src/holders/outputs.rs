//! The whole outputs of long commands, a directory for each session.

use std::path::PathBuf;

use quipu_store::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, Needles, Selection,
};

use super::disk::{self, DiskFile};
use super::files;
use crate::Home;

/// The outputs of one store's sessions.
pub(super) struct OutputFiles {
    root: PathBuf,
}

impl OutputFiles {
    pub(super) fn of(home: &Home) -> Self {
        Self { root: home.outputs().root().to_owned() }
    }

    fn work(&self, selection: &Selection) -> Result<Work, HolderError> {
        let needles = Needles::of(selection)?;
        let sessions = selection.sessions.iter().map(|id| self.root.join(id.as_str())).collect();
        Ok(Work { root: self.root.clone(), sessions, needles })
    }
}

struct Work {
    root: PathBuf,
    sessions: Vec<PathBuf>,
    needles: Needles,
}

impl Work {
    /// Files of the sessions, those that hold what is looked for, and with the error those of which nobody can say; until
    /// `show` says enough.
    fn each(&self, show: &mut dyn FnMut(DiskFile, Option<HolderError>) -> bool) -> Result<(), HolderError> {
        if self.sessions.is_empty() && self.needles.is_empty() {
            return Ok(());
        }
        for file in disk::files_below(&self.root)? {
            // What belongs to other stores is theirs.
            let below = file.path.strip_prefix(&self.root).unwrap_or(&file.path);
            if below.to_string_lossy().starts_with('@') {
                continue;
            }
            let is_of = file.path.parent().is_some_and(|dir| self.sessions.iter().any(|of| of == dir));
            let (goes, error) = match if is_of { Ok(true) } else { disk::holds(&file.path, &self.needles) } {
                Ok(goes) => (goes, None),
                Err(error) => (true, Some(error)),
            };
            if goes && !show(file, error) {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl ContentHolder for OutputFiles {
    fn name(&self) -> &str {
        "outputs"
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let (work, query) = (self.work(&query.selection)?, query.clone());
            disk::apart(move || {
                let mut page = FoundPage::begin(&query);
                work.each(&mut |file, _| {
                    let key = file.key();
                    let place = FoundPlace::File { path: file.path, line: None };
                    page.push(&key, FoundContent { place, bytes: file.bytes })
                })?;
                Ok(page)
            })
            .await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(async move {
            let work = self.work(&targets.selection)?;
            disk::apart(move || {
                let mut erased = EraseReport::default();
                work.each(&mut |file, error| {
                    match error {
                        Some(error) => files::unread(&file, &error, &mut erased),
                        None => files::removed(&file, &mut erased),
                    }
                    true
                })?;
                Ok(erased)
            })
            .await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let work = Work { root: self.root.clone(), sessions: Vec::new(), needles: Needles::default() };
        Box::pin(disk::apart(move || {
            let other = |file: &DiskFile| {
                let below = file.path.strip_prefix(&work.root).unwrap_or(&file.path);
                below.to_string_lossy().starts_with('@')
            };
            let files = disk::files_below(&work.root)?;
            Ok(files.iter().filter(|file| !other(file)).map(|file| file.bytes).sum())
        }))
    }
}
