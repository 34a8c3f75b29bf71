//! A directory of files that may hold what is looked for.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quipu_store::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptReason, Needles,
};

use super::disk;

/// A directory of files. A file that holds what is looked for is removed.
pub struct FilesHolder {
    name: String,
    root: PathBuf,
    eraser: Eraser,
}

/// Erases from a file below the root that holds what is looked for, or says why it stays.
pub(super) type Eraser = fn(root: &Path, file: &disk::DiskFile, needles: &Needles, erased: &mut EraseReport);

impl FilesHolder {
    /// The files in `root` and the directories in it.
    pub fn new(name: impl Into<String>, root: PathBuf) -> Self {
        Self::erased_by(name, root, |_, file, _, erased| removed(file, erased))
    }

    /// The same, where a file goes in a way of its own.
    pub(super) fn erased_by(name: impl Into<String>, root: PathBuf, eraser: Eraser) -> Self {
        Self { name: name.into(), root, eraser }
    }

    /// What commands wrote to caches: of a project that a session has now, nothing is removed.
    pub(super) fn caches(name: impl Into<String>, root: PathBuf) -> Self {
        Self::erased_by(name, root, removed_unless_in_use)
    }
}

/// Removes a file, unless a session has it.
fn removed_unless_in_use(root: &Path, file: &disk::DiskFile, _: &Needles, erased: &mut EraseReport) {
    if slot_is_in_use(root, &file.path) {
        let place = FoundPlace::File { path: file.path.clone(), line: None };
        erased.keep(place, KeptReason::InUse, "a session is using it; close that session and erase again");
        return;
    }
    removed(file, erased);
}

/// Whether a session has the layers that a file belongs to: `PROJECT/SLOT/lock` is locked then.
fn slot_is_in_use(root: &Path, file: &Path) -> bool {
    let Ok(below) = file.strip_prefix(root) else { return false };
    let slot: PathBuf = root.join(below.components().take(2).collect::<PathBuf>());
    let Ok(lock) = File::open(slot.join("lock")) else { return false };
    Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_err()
}

impl ContentHolder for FilesHolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let needles = Needles::of(&query.selection)?;
            let (root, query) = (self.root.clone(), query.clone());
            disk::apart(move || {
                let mut page = FoundPage::begin(&query);
                if needles.is_empty() {
                    return Ok(page);
                }
                for file in disk::files_below(&root)? {
                    let key = file.key();
                    // Nobody can say what is in one that cannot be read.
                    if page.is_past(&key) || !disk::holds(&file.path, &needles).unwrap_or(true) {
                        continue;
                    }
                    let place = FoundPlace::File { path: file.path, line: None };
                    if !page.push(&key, FoundContent { place, bytes: file.bytes }) {
                        break;
                    }
                }
                Ok(page)
            })
            .await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(async move {
            let needles = Needles::of(&targets.selection)?;
            let (root, eraser) = (self.root.clone(), self.eraser);
            disk::apart(move || {
                let mut erased = EraseReport::default();
                if needles.is_empty() {
                    return Ok(erased);
                }
                for file in disk::files_below(&root)? {
                    match disk::holds(&file.path, &needles) {
                        Ok(true) => {}
                        Ok(false) => continue,
                        Err(error) => {
                            unread(&file, &error, &mut erased);
                            continue;
                        }
                    }
                    eraser(&root, &file, &needles, &mut erased);
                }
                Ok(erased)
            })
            .await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let root = self.root.clone();
        Box::pin(disk::apart(move || bytes_below(&root)))
    }
}

fn bytes_below(root: &Path) -> Result<u64, HolderError> {
    Ok(disk::files_below(root)?.iter().map(|file| file.bytes).sum())
}

/// Says that a file could not be looked through.
pub(super) fn unread(file: &disk::DiskFile, error: &HolderError, erased: &mut EraseReport) {
    let place = FoundPlace::File { path: file.path.clone(), line: None };
    erased.keep(
        place,
        KeptReason::Failed,
        format!("it could not be searched, so it may still contain the content: {error}"),
    );
}

/// Removes a file, or says why it is still there.
pub(super) fn removed(file: &disk::DiskFile, erased: &mut EraseReport) {
    match disk::remove(&file.path) {
        Ok(true) => erased.add(file.bytes),
        Ok(false) => {}
        Err(error) => {
            let why = match error.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    KeptReason::ReadOnly
                }
                _ => KeptReason::Failed,
            };
            let place = FoundPlace::File { path: file.path.clone(), line: None };
            erased.keep(place, why, format!("it could not be removed: {error}; remove it by hand"));
        }
    }
}
