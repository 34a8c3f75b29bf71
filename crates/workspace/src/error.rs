//! What can go wrong with a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::Reach;

/// A file operation that failed. Every message names the path; nothing was changed unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is nothing at the path, or a directory on the way is missing.
    #[error("ENOENT: no such file or directory: {path}", path = path.display())]
    NotFound {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The path leads to something that is not a regular file.
    #[error("{code}: {path} is {kind}, not a regular file{hint}", code = kind.code(), path = path.display(), hint = kind.hint())]
    NotAFile {
        /// The path that was asked for.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// The system does not let us.
    #[error("EACCES: permission denied: {path}", path = path.display())]
    Denied {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The file is larger than an operation takes that needs all of it in memory.
    #[error("EFBIG: {path} has {size} bytes; at most {limit} can be loaded at once. Work on a part of it with a command instead", path = path.display())]
    TooLarge {
        /// The path that was asked for.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Someone changed the file between our reading and our writing.
    #[error("ESTALE: {path} was changed by another program since it was read; nothing was written. Read it again", path = path.display())]
    Changed {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The file is not where tools may go, judged by where the path truly leads.
    #[error("EPERM: {path}{leads}: {why}. Nothing was done", path = path.display(), leads = leads(path, real), why = why(*reach))]
    Refused {
        /// The path as it was asked for.
        path: PathBuf,
        /// Where it leads.
        real: PathBuf,
        /// What it is.
        reach: Reach,
    },
    /// The file was allowed, and is another one since: it has other names.
    #[error("EPERM: {path}{leads}: it was allowed, but was then replaced by a file with other names (hard links), which may lie elsewhere. Nothing was done. Make the call again to ask again", path = path.display(), leads = leads(path, real))]
    Exchanged {
        /// The path as it was asked for.
        path: PathBuf,
        /// Where it leads.
        real: PathBuf,
    },
    /// The caller asked us to stop.
    #[error("Operation aborted")]
    Cancelled,
    /// Anything else that the system reports.
    #[error("{code}: {action} {path}: {source}", code = errno_name(source), path = path.display())]
    Io {
        /// The path that was asked for.
        path: PathBuf,
        /// What was tried, such as `cannot read`.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl FileError {
    /// Sorts a system error into the variants; `action` says what was tried, such as `cannot open`.
    pub(crate) fn from_io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::Denied { path },
            io::ErrorKind::IsADirectory => Self::NotAFile { path, kind: FileKind::Directory },
            _ => Self::Io { path, action, source },
        }
    }

    /// The same failure of a file that is called by another path here.
    pub(crate) fn named(mut self, name: &Path) -> Self {
        match &mut self {
            Self::NotFound { path }
            | Self::NotAFile { path, .. }
            | Self::Denied { path }
            | Self::TooLarge { path, .. }
            | Self::Changed { path }
            | Self::Refused { path, .. }
            | Self::Exchanged { path, .. }
            | Self::Io { path, .. } => *path = name.to_path_buf(),
            Self::Cancelled => {}
        }
        self
    }

    /// The system's short name for the failure, such as `ENOENT`; `EIO` when there is none.
    pub fn code(&self) -> String {
        match self {
            Self::NotFound { .. } => "ENOENT".into(),
            Self::NotAFile { kind, .. } => kind.code().into(),
            Self::Denied { .. } => "EACCES".into(),
            Self::TooLarge { .. } => "EFBIG".into(),
            Self::Changed { .. } => "ESTALE".into(),
            Self::Refused { .. } | Self::Exchanged { .. } => "EPERM".into(),
            Self::Cancelled => "ECANCELED".into(),
            Self::Io { source, .. } => errno_name(source),
        }
    }
}

fn leads(path: &Path, real: &Path) -> String {
    if path == real { String::new() } else { format!(" leads to {}", real.display()) }
}

fn why(reach: Reach) -> &'static str {
    match reach {
        Reach::Free => "it is free",
        Reach::Outside => "it is outside the directories that tools may use, and was not allowed",
        Reach::Secret => "programs store secrets there, and it was not allowed",
        Reach::Linked => {
            "the file has other names (hard links), which may lie outside, and it was not allowed"
        }
        Reach::Configures => "it configures git, agents, editors or shells, and was not allowed",
        Reach::Own => "it is one of Quipu's own files, which tools must not change",
    }
}

fn errno_name(error: &io::Error) -> String {
    errno(error).map_or_else(|| "EIO".into(), |errno| format!("{errno:?}"))
}

/// The system's number for an error, guessed from its kind where a library wrapped it to add a path.
fn errno(error: &io::Error) -> Option<Errno> {
    if let Some(raw) = error.raw_os_error() {
        return Some(Errno::from_raw(raw));
    }
    match error.kind() {
        io::ErrorKind::StorageFull => Some(Errno::ENOSPC),
        io::ErrorKind::QuotaExceeded => Some(Errno::EDQUOT),
        io::ErrorKind::FileTooLarge => Some(Errno::EFBIG),
        io::ErrorKind::ReadOnlyFilesystem => Some(Errno::EROFS),
        io::ErrorKind::NotADirectory => Some(Errno::ENOTDIR),
        io::ErrorKind::InvalidFilename => Some(Errno::ENAMETOOLONG),
        io::ErrorKind::InvalidInput => Some(Errno::EINVAL),
        _ => None,
    }
}

/// What a path leads to when it is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A folder of files.
    Directory,
    /// A named pipe.
    Fifo,
    /// A socket of this machine.
    Socket,
    /// A character device, such as a terminal or `/dev/zero`.
    CharacterDevice,
    /// A block device, such as a disk.
    BlockDevice,
    /// Something that this system has and we do not know.
    Unknown,
}

impl FileKind {
    /// The kind of what `metadata` describes, unless it is a regular file.
    pub(crate) fn other_than_file(metadata: &std::fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_file() {
            None
        } else if kind.is_dir() {
            Some(Self::Directory)
        } else if kind.is_fifo() {
            Some(Self::Fifo)
        } else if kind.is_socket() {
            Some(Self::Socket)
        } else if kind.is_char_device() {
            Some(Self::CharacterDevice)
        } else if kind.is_block_device() {
            Some(Self::BlockDevice)
        } else {
            Some(Self::Unknown)
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Directory => "EISDIR",
            Self::Fifo | Self::Socket | Self::CharacterDevice | Self::BlockDevice | Self::Unknown => "EINVAL",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Directory => ". List it with a command such as ls",
            Self::Fifo | Self::Socket | Self::CharacterDevice | Self::BlockDevice | Self::Unknown => "",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a fifo (named pipe)",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Unknown => "something else",
        })
    }
}
