//! Files of lines that several processes add to: a history, a log. A line that goes is overwritten where it stands, so that
//! nobody who has the file open loses it, and what comes after it stays where it was.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quipu_store::{
    ContentHolder, ContentQuery, EraseTargets, Erased, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptWhy, Needles, Selection,
};

use super::disk;

/// Bytes of a line that is looked through; of a longer one, pieces of this length that overlap.
const LINE: usize = 64 << 20;
/// How often a file may be another one before its lock is there.
const TRIES: usize = 100;

/// What becomes of a line that goes: bytes of the same length, or `None` where nothing shorter says what must stay.
pub(super) type Leave = fn(line: &[u8], needles: &Needles) -> Option<Vec<u8>>;

/// Files of lines. A line that holds what is looked for becomes `{}` and spaces: an empty JSON object, which readers of such
/// files pass over.
///
/// While a file is changed, a lock on it is held (`flock`), which whoever makes it shorter holds as well.
pub struct LinesHolder {
    name: String,
    paths: Vec<PathBuf>,
    ids: bool,
    leave: Leave,
}

impl LinesHolder {
    /// These files, in this order; those that are not there hold nothing.
    pub fn new(name: impl Into<String>, paths: Vec<PathBuf>) -> Self {
        Self { name: name.into(), paths, ids: false, leave: nothing }
    }

    /// The same, where lines name sessions, nodes, texts and bytes by their ids: such a line is found by them.
    #[must_use]
    pub fn with_ids(self) -> Self {
        Self { ids: true, ..self }
    }

    fn work(&self, selection: &Selection) -> Result<Lines, HolderError> {
        let mut selection = selection.clone();
        if self.ids {
            selection.check()?;
            let Selection { sessions, nodes, blobs, chunks, needles } = &mut selection;
            needles.extend(sessions.drain(..).map(|id| id.as_str().as_bytes().to_vec()));
            needles.extend(nodes.drain(..).map(|id| id.to_string().into_bytes()));
            needles.extend(blobs.drain(..).map(|id| id.to_string().into_bytes()));
            needles.extend(chunks.drain(..).map(|id| id.to_string().into_bytes()));
            // An id as short as this names no session of ours.
            needles.retain(|needle| needle.len() >= quipu_store::NEEDLE_LEAST);
            needles.truncate(quipu_store::SELECTED);
        }
        let needles = Needles::of(&selection)?;
        Ok(Lines { needles, paths: self.paths.clone(), leave: self.leave, all: false })
    }
}

/// Of a line that is nobody's but ours.
fn nothing(line: &[u8], _: &Needles) -> Option<Vec<u8>> {
    let mut left = vec![b' '; line.len()];
    if let Some(begin) = left.get_mut(..2) {
        begin.copy_from_slice(b"{}");
    }
    Some(left)
}

impl ContentHolder for LinesHolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let lines = self.work(&query.selection)?;
            let query = query.clone();
            disk::apart(move || lines.find(&query)).await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, Erased> {
        Box::pin(async move {
            let lines = self.work(&targets.selection)?;
            disk::apart(move || lines.erase()).await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let paths = self.paths.clone();
        Box::pin(disk::apart(move || {
            let mut bytes = 0;
            for path in &paths {
                bytes += disk::file_at(path)?.map_or(0, |file| file.bytes);
            }
            Ok(bytes)
        }))
    }
}

/// The work, apart from whoever asked.
pub(super) struct Lines {
    pub(super) needles: Needles,
    pub(super) paths: Vec<PathBuf>,
    pub(super) leave: Leave,
    /// Every line goes.
    pub(super) all: bool,
}

/// A line that holds what is looked for.
struct Line {
    number: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Lines {
    pub(super) fn find(&self, query: &ContentQuery) -> Result<FoundPage, HolderError> {
        let mut page = FoundPage::begin(query);
        if self.needles.is_empty() && !self.all {
            return Ok(page);
        }
        for (order, path) in self.paths.iter().enumerate() {
            let file = match disk::open(path, false) {
                Err(error) if disk::is_gone(&error) => continue,
                opened => opened.map_err(|error| HolderError::file(path, "read", &error))?,
            };
            let mut full = false;
            each_line(&file, &mut |line| {
                let is_found = self.goes(&line.bytes);
                let place = FoundPlace::File { path: path.clone(), line: Some(line.number) };
                let key = format!("{order:06} {:020}", line.number);
                full = is_found && !page.push(&key, FoundContent { place, bytes: line.bytes.len() as u64 });
                Ok(!full)
            })
            .map_err(|error| HolderError::file(path, "read", &error))?;
            if full {
                break;
            }
        }
        Ok(page)
    }

    /// Whether a line holds what is looked for, in what can go.
    fn goes(&self, line: &[u8]) -> bool {
        (self.all || self.needles.are_in(line))
            && (self.leave)(line, &self.needles).is_none_or(|left| left != line)
    }

    pub(super) fn erase(&self) -> Result<Erased, HolderError> {
        let mut erased = Erased::default();
        if self.needles.is_empty() && !self.all {
            return Ok(erased);
        }
        for path in &self.paths {
            let file = match locked(path) {
                Err(error) if disk::is_gone(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    if self.all || disk::holds(path, &self.needles)? {
                        let place = FoundPlace::File { path: path.clone(), line: None };
                        let told = format!("it cannot be written: {error}; make it writable and erase again");
                        erased.keep(place, KeptWhy::ReadOnly, told);
                    }
                    continue;
                }
                opened => opened.map_err(|error| HolderError::file(path, "open", &error))?,
            };
            let mut changed = false;
            let done = each_line(&file, &mut |line| {
                if !self.goes(&line.bytes) {
                    return Ok(true);
                }
                match (self.leave)(&line.bytes, &self.needles) {
                    Some(left) => {
                        file.write_all_at(&left, line.at)?;
                        changed = true;
                        erased.add(line.bytes.len() as u64);
                    }
                    None => {
                        let place = FoundPlace::File { path: path.clone(), line: Some(line.number) };
                        let told = "the line is too short to say that something was erased; edit it by hand";
                        erased.keep(place, KeptWhy::Failed, told);
                    }
                }
                Ok(true)
            });
            let done = if changed { done.and_then(|()| file.sync_data()) } else { done };
            done.map_err(|error| HolderError::file(path, "write", &error))?;
        }
        Ok(erased)
    }
}

/// Shows the lines of a file, without their ends, until that says enough. Of a line that is too long, pieces that overlap are
/// shown, each as a line.
fn each_line(file: &File, show: &mut dyn FnMut(Line) -> io::Result<bool>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, Positioned { file, at: 0 });
    let (mut number, mut at) = (1, 0);
    loop {
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut reader, LINE as u64).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        let whole = bytes.last() == Some(&b'\n');
        if whole {
            bytes.pop();
        }
        if !show(Line { number, at, bytes })? {
            return Ok(());
        }
        at += read as u64;
        number += u64::from(whole);
    }
}

/// Reads at its own place, whatever others do with the file.
struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for Positioned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Opens a file for changes and locks it. The file at the path when this returns is the one that is locked.
fn locked(path: &Path) -> io::Result<Flock<File>> {
    for _ in 0..TRIES {
        let file = disk::open(path, true)?;
        let file = match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(file) => file,
            Err((_, errno)) => return Err(errno.into()),
        };
        let ours = file.metadata()?;
        let there = std::fs::symlink_metadata(path)?;
        if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) {
            return Ok(file);
        }
    }
    Err(io::Error::other("other processes replace it all the time"))
}
