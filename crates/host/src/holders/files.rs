//! A directory of files, each of which goes as a whole.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quipu_store::{
    ContentHolder, ContentQuery, EraseTargets, Erased, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptWhy, Needles,
};

use super::disk;

/// A directory of files. A file that holds what is looked for is removed.
pub struct FilesHolder {
    name: String,
    root: PathBuf,
    in_use: InUse,
}

/// Who has a file.
type InUse = fn(root: &Path, file: &Path) -> bool;

impl FilesHolder {
    /// The files in `root` and the directories in it.
    pub fn new(name: impl Into<String>, root: PathBuf) -> Self {
        Self { name: name.into(), root, in_use: |_, _| false }
    }

    /// What commands wrote to caches: of a project that a session has now, nothing is removed.
    pub(super) fn caches(name: impl Into<String>, root: PathBuf) -> Self {
        Self { in_use: slot_is_in_use, ..Self::new(name, root) }
    }
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

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, Erased> {
        Box::pin(async move {
            let needles = Needles::of(&targets.selection)?;
            let (root, in_use) = (self.root.clone(), self.in_use);
            disk::apart(move || {
                let mut erased = Erased::default();
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
                    if in_use(&root, &file.path) {
                        let place = FoundPlace::File { path: file.path, line: None };
                        let told = "a session is using it; close that session and erase again";
                        erased.keep(place, KeptWhy::InUse, told);
                        continue;
                    }
                    removed(&file, &mut erased);
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

pub(super) fn bytes_below(root: &Path) -> Result<u64, HolderError> {
    Ok(disk::files_below(root)?.iter().map(|file| file.bytes).sum())
}

/// Says that a file could not be looked through.
pub(super) fn unread(file: &disk::DiskFile, error: &HolderError, erased: &mut Erased) {
    let place = FoundPlace::File { path: file.path.clone(), line: None };
    erased.keep(
        place,
        KeptWhy::Failed,
        format!("it could not be searched, so it may still contain the content: {error}"),
    );
}

/// Removes a file, or says why it is still there.
pub(super) fn removed(file: &disk::DiskFile, erased: &mut Erased) {
    match disk::remove(&file.path) {
        Ok(true) => erased.add(file.bytes),
        Ok(false) => {}
        Err(error) => {
            let why = match error.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    KeptWhy::ReadOnly
                }
                _ => KeptWhy::Failed,
            };
            let place = FoundPlace::File { path: file.path.clone(), line: None };
            erased.keep(place, why, format!("it could not be removed: {error}; remove it by hand"));
        }
    }
}
