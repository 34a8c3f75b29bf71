//! A session file on disk: found, locked and appended to, and never changed otherwise.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use quipu_store::StoreError;

use super::import::Source;
use super::migrate::migrate;
use super::{LINE_LIMIT, VERSION};
use crate::ArchiveError;
use crate::intake::open_file;

/// How long another program is given for the end of a line that it began.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a lock is waited for.
const LOCKED: Duration = Duration::from_millis(500);

/// Why lines were not written to a session file. They stand in the graph.
#[derive(Debug, thiserror::Error)]
pub enum WriteFailure {
    /// The file was removed, or another one has its name.
    #[error("another program replaced or removed it while it was in use")]
    Replaced,
    /// Another program cut it.
    #[error("another program cut it from {before} to {now} bytes while it was in use")]
    Shrunk {
        /// Bytes that were there.
        before: u64,
        /// Bytes that are there.
        now: u64,
    },
    /// It was empty, and another program started a session in it.
    #[error("another program started a session in it")]
    Begun,
    /// The session went to an older entry of its own, which only reading the file shows to be in it.
    #[error("the session went back to an older entry")]
    Moved,
    /// It could not be written.
    #[error("{0}")]
    Io(std::io::Error),
    /// The graph could not be read.
    #[error(transparent)]
    Store(StoreError),
    /// A fault of ours.
    #[error("this is a bug in Quipu, please report it: {0}")]
    Fault(String),
}

impl WriteFailure {
    /// Whether nothing more is written to it before it is opened again: it is not the one any more that was opened.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Replaced | Self::Shrunk { .. } | Self::Begun | Self::Moved => true,
            Self::Io(_) | Self::Store(_) | Self::Fault(_) => false,
        }
    }
}

impl From<StoreError> for WriteFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A session file that was opened.
pub(super) struct OpenedFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) writer: Option<File>,
    pub(super) made: bool,
    pub(super) size: u64,
}

/// What is to be appended to a file as it was seen last.
pub(super) struct Job {
    pub(super) file: Arc<File>,
    pub(super) writer: Option<Arc<File>>,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) ended: bool,
    pub(super) torn: Vec<u8>,
    pub(super) text: String,
}

pub(super) struct AppendResult {
    pub(super) result: Result<(), WriteFailure>,
    /// What was written.
    pub(super) written: Vec<u8>,
    pub(super) size: u64,
    pub(super) ended: bool,
    /// Another program appended something, before or after.
    pub(super) foreign: bool,
    /// What was written of it, when that was not all: the next try begins with it.
    pub(super) torn: Vec<u8>,
    /// What was written completed a line that was cut off.
    pub(super) completed: bool,
    pub(super) writer: Option<Arc<File>>,
}

impl Job {
    pub(super) fn run(mut self) -> AppendResult {
        let mut done = AppendResult {
            result: Ok(()),
            written: Vec::new(),
            size: self.size,
            ended: self.ended,
            foreign: false,
            torn: self.torn.clone(),
            completed: false,
            writer: self.writer.take(),
        };
        done.result = self.write(&mut done);
        done
    }

    fn write(&self, done: &mut AppendResult) -> Result<(), WriteFailure> {
        let open = self.file.metadata().map_err(WriteFailure::Io)?;
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => named,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(WriteFailure::Replaced),
            Err(error) => return Err(WriteFailure::Io(error)),
        };
        if !is_same(&open, &named) {
            return Err(WriteFailure::Replaced);
        }
        let now = open.len();
        if now < self.size {
            return Err(WriteFailure::Shrunk { before: self.size, now });
        }
        if now > self.size {
            if self.size == 0 {
                return Err(WriteFailure::Begun);
            }
            done.foreign = true;
            let until = Instant::now() + PATIENCE;
            loop {
                done.size = self.file.metadata().map_err(WriteFailure::Io)?.len();
                let mut last = [0];
                self.file.read_exact_at(&mut last, done.size.saturating_sub(1)).map_err(WriteFailure::Io)?;
                done.ended = last == *b"\n";
                // Another program may be in the middle of its line.
                if done.ended || Instant::now() >= until {
                    break;
                }
                std::thread::sleep(PATIENCE / 50);
            }
        }
        let writer = match &done.writer {
            Some(writer) => writer.clone(),
            None => {
                let writer = OpenOptions::new().append(true).open(&self.path).map_err(WriteFailure::Io)?;
                if !is_same(&open, &writer.metadata().map_err(WriteFailure::Io)?) {
                    return Err(WriteFailure::Replaced);
                }
                done.writer.insert(Arc::new(writer)).clone()
            }
        };
        match self.text.as_bytes().strip_prefix(&self.torn[..]) {
            // The beginning of it was written before.
            Some(rest) if !done.foreign && !self.torn.is_empty() => {
                done.completed = true;
                done.written.extend_from_slice(rest);
            }
            Some(_) | None => {
                if !done.ended {
                    done.written.push(b'\n');
                }
                done.written.extend_from_slice(self.text.as_bytes());
            }
        }
        let mut rest = &done.written[..];
        let result = loop {
            if rest.is_empty() {
                break Ok(());
            }
            match (&*writer).write(rest) {
                Ok(0) => break Err(WriteFailure::Io(ErrorKind::WriteZero.into())),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(WriteFailure::Io(error)),
            }
        };
        let size = self.file.metadata().map_err(WriteFailure::Io)?.len();
        let added = (done.written.len() - rest.len()) as u64;
        done.foreign |= size != done.size + added;
        done.size = size;
        if rest.is_empty() || done.foreign {
            done.torn.clear();
        } else {
            let part = &done.written[..done.written.len() - rest.len()];
            done.torn = match (done.completed, part) {
                (true, part) => [&self.torn, part].concat(),
                (false, [b'\n', part @ ..]) => part.to_vec(),
                (false, part) => part.to_vec(),
            };
        }
        if added > 0 {
            done.ended = rest.is_empty() || done.written[..done.written.len() - rest.len()].ends_with(b"\n");
        }
        result
    }
}

pub(super) fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// The last line, which has no end; nothing when it is JSON, or longer than a line may be.
pub(super) fn last_line(file: &File, size: u64) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut at = size;
    while at > 0 && line.len() < LINE_LIMIT {
        let from = at.saturating_sub(1 << 16);
        let mut piece = vec![0; usize::try_from(at - from).unwrap_or(0)];
        file.read_exact_at(&mut piece, from)?;
        let newline = memchr::memrchr(b'\n', &piece);
        piece.drain(..newline.map_or(0, |newline| newline + 1));
        piece.append(&mut line);
        line = piece;
        if newline.is_some() {
            break;
        }
        at = from;
    }
    Ok(if serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok() { Vec::new() } else { line })
}

/// Opens, locks and, where it is of an old version, migrates a file. Gives its version too; `None` for an empty one.
pub(super) fn find(path: &Path) -> Result<(OpenedFile, Option<u64>), ArchiveError> {
    let fail = |doing| move |source| ArchiveError::File { path: path.to_owned(), doing, source };
    let no_file = || ArchiveError::NotASession { path: path.to_owned(), why: "it is not a regular file" };
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let (path, file, writer, made) = match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(no_file()),
        Ok(_) => {
            let path = path.canonicalize().map_err(fail("found"))?;
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags);
            match options.clone().append(true).open(&path) {
                Ok(file) => {
                    let writer = file.try_clone().map_err(fail("opened"))?;
                    (path, file, Some(writer), false)
                }
                // What it holds can be gone on with all the same.
                Err(_) => {
                    let file = options.open(&path).map_err(fail("opened"))?;
                    (path, file, None, false)
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create_new(true).mode(0o600).custom_flags(flags);
            let file = options.open(path).map_err(fail("made"))?;
            let path = path.canonicalize().map_err(fail("found"))?;
            let writer = file.try_clone().map_err(fail("opened"))?;
            (path, file, Some(writer), true)
        }
        Err(error) => return Err(fail("opened")(error)),
    };
    let fail = |doing| {
        let path = path.clone();
        move |source| ArchiveError::File { path, doing, source }
    };
    let meta = file.metadata().map_err(fail("read"))?;
    if !meta.is_file() {
        return Err(no_file());
    }
    match lock(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ArchiveError::InUse { path }),
        Err(TryLockError::Error(source)) => return Err(fail("locked")(source)),
    }
    if !std::fs::metadata(&path).is_ok_and(|named| is_same(&meta, &named)) {
        // Migrated, or replaced, between the two.
        return Err(ArchiveError::Changed { path });
    }
    let size = file.metadata().map_err(fail("read"))?.len();
    if size == 0 {
        return Ok((OpenedFile { path, file, writer, made, size }, None));
    }
    let version = Source::begin(open_file(&path)?, path.clone())?.header.version;
    if version >= VERSION {
        return Ok((OpenedFile { path, file, writer, made, size }, Some(version)));
    }
    let new = migrate(&path, &file)?;
    let writer = new.try_clone().map_err(fail("opened"))?;
    let size = new.metadata().map_err(fail("read"))?.len();
    Ok((OpenedFile { path, file: new, writer: Some(writer), made, size }, Some(version)))
}

/// Locks the file. Who was killed holds the lock until the children that it was starting have begun, so it is waited
/// for a moment.
fn lock(file: &File) -> Result<(), TryLockError> {
    let until = Instant::now() + LOCKED;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCKED / 50),
            done => return done,
        }
    }
}
