//! Whole files that others wrote, within a limit.

use std::io::Read as _;
use std::path::Path;

use quipu_workspace::FileError;

/// Why a file was not read.
#[derive(Debug)]
pub(crate) enum BoundedReadError {
    /// It cannot be opened, or is no regular file.
    Open(FileError),
    /// It cannot be read to its end.
    Read(std::io::Error),
    /// It has more bytes than were asked for.
    TooLarge,
}

impl BoundedReadError {
    /// The reason for people; `limit` is the limit in words, such as `1 MiB`.
    pub(crate) fn in_words(&self, limit: &str) -> String {
        match self {
            Self::Open(error) => error.to_string(),
            Self::Read(error) => error.to_string(),
            Self::TooLarge => format!("it is larger than {limit}"),
        }
    }
}

/// The bytes of a regular file that has at most `most` of them.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, BoundedReadError> {
    let (file, found) = quipu_workspace::open_for_reading(path).map_err(BoundedReadError::Open)?;
    if found.len() > most {
        return Err(BoundedReadError::TooLarge);
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(BoundedReadError::Read)?;
    if bytes.len() as u64 > most { Err(BoundedReadError::TooLarge) } else { Ok(bytes) }
}
