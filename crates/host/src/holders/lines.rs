//! Files of lines that several processes add to: a history, a log. A line that goes is overwritten where it stands, so that
//! nobody who has the file open loses it, and what comes after it stays where it was.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use quipu_store::{
    ContentHolder, ContentQuery, EraseTargets, Erased, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptWhy, Needles, Selection,
};

use super::disk;

/// Bytes of a line that is looked through; of a longer one, pieces that overlap. What such a line holds is told, and stays.
const LINE: usize = 64 << 20;
/// How often a file may be another one before its lock is there.
const TRIES: usize = 100;
/// How often a lock that somebody has is asked for, and how long is waited in between: half a second in all. Who has it may
/// wait for a person.
const LOCK_TRIES: usize = 50;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Makes the replacement of an erased line: bytes of the same length, or `None` where what must stay does not fit.
pub(super) type LineEraser = fn(line: &[u8], needles: &Needles) -> Option<Vec<u8>>;

/// Files of lines. A line that holds what is looked for becomes `{}` and spaces: an empty JSON object, which readers of such
/// files pass over.
///
/// While a file is changed, a lock on it is held (`flock`), which whoever makes it shorter holds as well.
pub struct LinesHolder {
    name: String,
    paths: Vec<PathBuf>,
    ids: bool,
    leave: LineEraser,
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
    pub(super) leave: LineEraser,
    /// Every line goes.
    pub(super) all: bool,
}

/// A line that holds what is looked for.
struct Line {
    number: u64,
    at: u64,
    bytes: Vec<u8>,
    /// It is a piece of one that is too long.
    is_piece: bool,
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
            let (mut full, mut told) = (false, 0);
            each_line(&file, LINE, self.needles.longest(), &mut |line| {
                let is_found = line.number != told && self.goes(&line);
                if is_found {
                    told = line.number;
                }
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
    fn goes(&self, Line { bytes, is_piece, .. }: &Line) -> bool {
        (self.all || self.needles.are_in(bytes))
            && (*is_piece || (self.leave)(bytes, &self.needles).is_none_or(|left| left != *bytes))
    }

    /// A file of which nothing can go now, where anything of it should.
    fn keep(&self, path: &Path, why: KeptWhy, detail: String, erased: &mut Erased) {
        if self.all || disk::holds(path, &self.needles).unwrap_or(true) {
            erased.keep(FoundPlace::File { path: path.to_owned(), line: None }, why, detail);
        }
    }

    pub(super) fn erase(&self) -> Result<Erased, HolderError> {
        let mut erased = Erased::default();
        if self.needles.is_empty() && !self.all {
            return Ok(erased);
        }
        for path in &self.paths {
            let file = match locked(path) {
                Err(error) if disk::is_gone(&error) => continue,
                Err(error) => {
                    let (why, told) = match error.kind() {
                        io::ErrorKind::PermissionDenied => {
                            let told =
                                format!("it cannot be written: {error}; make it writable and erase again");
                            (KeptWhy::ReadOnly, told)
                        }
                        io::ErrorKind::WouldBlock => {
                            let told = "another process has locked it; end that process and erase again";
                            (KeptWhy::InUse, told.to_owned())
                        }
                        _ => (KeptWhy::Failed, HolderError::file(path, "open", &error).to_string()),
                    };
                    self.keep(path, why, told, &mut erased);
                    continue;
                }
                Ok(file) => file,
            };
            let (mut changed, mut told) = (false, 0);
            let done = each_line(&file, LINE, self.needles.longest(), &mut |line| {
                if line.number == told || !self.goes(&line) {
                    return Ok(true);
                }
                told = line.number;
                if line.is_piece {
                    let place = FoundPlace::File { path: path.clone(), line: Some(line.number) };
                    erased.keep(place, KeptWhy::Failed, "the line is longer than 64 MiB; edit it by hand");
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
                        let told = "the line is too short to mark it as erased; edit it by hand";
                        erased.keep(place, KeptWhy::Failed, told);
                    }
                }
                Ok(true)
            });
            let done = if changed { done.and_then(|()| file.sync_data()) } else { done };
            if let Err(error) = done {
                let place = FoundPlace::File { path: path.clone(), line: None };
                erased.keep(place, KeptWhy::Failed, HolderError::file(path, "write", &error).to_string());
            }
        }
        Ok(erased)
    }
}

/// Shows the lines of a file, without their ends, until that says enough. Of a line of `most` bytes and more, pieces are shown,
/// of which each begins with the last `over` bytes of the one before.
fn each_line(
    file: &File,
    most: usize,
    over: usize,
    show: &mut dyn FnMut(Line) -> io::Result<bool>,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, PositionedReader { file, at: 0 });
    let (mut number, mut end, mut bytes) = (1, 0, Vec::new());
    loop {
        let again = bytes.len();
        let read = io::Read::take(&mut reader, most as u64).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        let at = end - again as u64;
        end += read as u64;
        let ends = bytes.last() == Some(&b'\n');
        if ends {
            bytes.pop();
        }
        let continues = !ends && read == most;
        let rest = if continues { bytes[bytes.len().saturating_sub(over)..].to_vec() } else { Vec::new() };
        if !show(Line { number, at, bytes, is_piece: continues || again > 0 })? {
            return Ok(());
        }
        number += u64::from(ends);
        bytes = rest;
    }
}

/// Reads at a position of its own, independent of the file's.
struct PositionedReader<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for PositionedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Opens a file for changes and locks it. The file at the path when this returns is the one that is locked. `WouldBlock` where
/// somebody has the lock and keeps it.
fn locked(path: &Path) -> io::Result<Flock<File>> {
    for _ in 0..TRIES {
        let file = lock(disk::open(path, true)?)?;
        let ours = file.metadata()?;
        let there = std::fs::symlink_metadata(path)?;
        if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) {
            return Ok(file);
        }
    }
    Err(io::Error::other("other processes keep replacing it"))
}

fn lock(mut file: File) -> io::Result<Flock<File>> {
    let mut tries = 0;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => return Ok(file),
            Err((same, Errno::EWOULDBLOCK)) if tries < LOCK_TRIES => {
                tries += 1;
                file = same;
                std::thread::sleep(LOCK_WAIT);
            }
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_long_line_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(&path, "ab\n0123456789\ncd").unwrap();
        let mut shown = Vec::new();
        each_line(&File::open(&path).unwrap(), 4, 2, &mut |line| {
            shown.push((line.number, line.at, String::from_utf8(line.bytes).unwrap(), line.is_piece));
            Ok(true)
        })
        .unwrap();
        let piece = |at, text: &str| (2, at, text.to_owned(), true);
        assert_eq!(
            shown,
            [
                (1, 0, "ab".to_owned(), false),
                piece(3, "0123"),
                piece(5, "234567"),
                piece(9, "6789"),
                (3, 14, "cd".to_owned(), false)
            ]
        );
    }
}
