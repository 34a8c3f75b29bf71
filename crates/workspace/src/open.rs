//! Opening files so that nothing but a regular file gets through, and loading them whole.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use tokio_util::sync::CancellationToken;

use crate::{FileError, FileKind};

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Opens a regular file for reading. Never blocks on a fifo, never becomes anyone's controlling terminal.
///
/// # Errors
/// [`FileError::NotAFile`] for anything but a regular file, judged by the opened handle; missing, denied and
/// system errors as such.
pub fn open_for_reading(path: &Path) -> Result<(File, Metadata), FileError> {
    open(path, OpenOptions::new().read(true), "cannot open")
}

pub(crate) fn open(
    path: &Path,
    options: &mut OpenOptions,
    action: &'static str,
) -> Result<(File, Metadata), FileError> {
    open_with(path, options, OFlag::empty(), action)
}

/// A small text file, or nothing: what is missing, larger than `limit` bytes, no text or no regular file.
pub(crate) fn read_small(path: &Path, limit: u64) -> Option<String> {
    let (file, metadata) = open_for_reading(path).ok()?;
    let mut text = String::new();
    (metadata.len() <= limit && file.take(limit).read_to_string(&mut text).is_ok()).then_some(text)
}

pub(crate) fn open_with(
    path: &Path,
    options: &mut OpenOptions,
    flags: OFlag,
    action: &'static str,
) -> Result<(File, Metadata), FileError> {
    let failed = |source| FileError::from_io(path, action, source);
    let refuse = |metadata: &Metadata| match FileKind::other_than_file(metadata) {
        Some(kind) => Err(FileError::NotAFile { path: path.to_path_buf(), kind }),
        None => Ok(()),
    };
    // Opening alone can have effects on a device, so look first; the handle decides all the same.
    refuse(&std::fs::metadata(path).map_err(failed)?)?;
    let file = options
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY | flags).bits())
        .open(path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    refuse(&metadata)?;
    Ok((file, metadata))
}

/// Loads a whole file of at most `limit` bytes, and what to compare with before writing it back.
///
/// # Errors
/// As [`open_for_reading`]; [`FileError::TooLarge`] above the limit; [`FileError::Cancelled`].
pub fn read_whole(
    path: &Path,
    limit: u64,
    cancel: &CancellationToken,
) -> Result<(Vec<u8>, FileStamp), FileError> {
    let (mut file, metadata) = open_for_reading(path)?;
    let bytes = read_rest(&mut file, path, metadata.len(), limit, cancel)?;
    Ok((bytes, FileStamp::from(&metadata)))
}

/// Loads what is left of an open file; `size` is a first guess.
pub(crate) fn read_rest(
    file: &mut File,
    path: &Path,
    size: u64,
    limit: u64,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, FileError> {
    if size > limit {
        return Err(FileError::TooLarge { path: path.to_path_buf(), size, limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    loop {
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        let got = file
            .by_ref()
            .take(1 << 20)
            .read_to_end(&mut bytes)
            .map_err(|source| FileError::from_io(path, "cannot read", source))?;
        if got == 0 {
            return Ok(bytes);
        }
        // A file may grow while it is read, and those of /proc have no size at all.
        if bytes.len() as u64 > limit {
            return Err(FileError::TooLarge { path: path.to_path_buf(), size: bytes.len() as u64, limit });
        }
    }
}
