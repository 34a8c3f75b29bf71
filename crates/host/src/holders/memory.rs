//! The files of memories: what holds a text goes line by line, and the rest of the file stays.

use std::io::Write as _;
use std::path::PathBuf;

use quipu_store::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderFut,
    KeptReason, Needles,
};

use super::disk;
use super::files::{bytes_below, unread};
use crate::Home;

/// Bytes of a file that is rewritten: no file of a memory has more.
const MOST: u64 = 1 << 20;

/// The memories of a home. Those of repositories and of other agents lie in files that belong to others.
pub(super) struct MemoryFiles {
    root: PathBuf,
}

impl MemoryFiles {
    pub(super) fn of(home: &Home) -> Self {
        Self { root: crate::memory::memory_home(home).root() }
    }
}

impl ContentHolder for MemoryFiles {
    fn name(&self) -> &str {
        "memory"
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
            let root = self.root.clone();
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
                    match without_lines(&file, &needles) {
                        Ok(bytes) => erased.add(bytes),
                        Err(error) => {
                            let place = FoundPlace::File { path: file.path.clone(), line: None };
                            let told = format!("it could not be rewritten: {error}; edit it by hand");
                            erased.keep(place, KeptReason::Failed, told);
                        }
                    }
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

/// Takes the lines out that hold what is looked for; all of them where it stands in several lines. How many bytes went.
fn without_lines(file: &disk::DiskFile, needles: &Needles) -> std::io::Result<u64> {
    if file.bytes > MOST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    let bytes = std::fs::read(&file.path)?;
    let mut kept: Vec<u8> = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if !needles.are_in(line) {
            kept.extend(line);
        }
    }
    if needles.are_in(&kept) || kept.len() == bytes.len() {
        kept.clear();
    }
    let dir = file.path.parent().unwrap_or(&file.path);
    let mut aside = tempfile::Builder::new().prefix(".quipu-").tempfile_in(dir)?;
    aside.write_all(&kept)?;
    aside.as_file().sync_all()?;
    aside.persist(&file.path).map_err(|error| error.error)?;
    Ok((bytes.len() - kept.len()) as u64)
}
