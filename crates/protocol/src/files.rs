//! Files: how one was before a step, and how after it.

use serde::{Deserialize, Serialize};

use crate::ChunkId;

/// One file before and after a step. The node of the step records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// The file: relative to the directory of the session where it lies below that, so that a workspace that was moved is
    /// still meant; else absolute. Links on the way are resolved. One that is no UTF-8 stands here as it is shown, and
    /// both states are unknown.
    pub path: String,
    /// State before the step, which undoing the step with its files restores.
    pub before: FileState,
    /// As the step left it.
    pub after: FileState,
}

impl FileChange {
    /// Whether there is or was more than a directory.
    pub fn is_of_file(&self) -> bool {
        let is_file = |state: &FileState| !matches!(state, FileState::Absent | FileState::Directory { .. });
        is_file(&self.before) || is_file(&self.after)
    }
}

/// What is at a path. JSON form: an object with a `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FileState {
    /// Neither a file nor a link nor a directory has this path.
    Absent,
    /// A regular file, whose bytes are a chunk of the store.
    File {
        /// Permission bits, 0 to 0o7777.
        mode: u32,
        /// Length of the content in bytes.
        size: u64,
        /// The chunk of its bytes.
        content: ChunkId,
    },
    /// A symbolic link. The file that the link points to is not part of this state.
    Link {
        /// Path in the link, not resolved.
        target: String,
    },
    /// A directory that is there also where no file needs it: one that was empty before the step, or is after it.
    Directory {
        /// Permission bits, 0 to 0o7777.
        mode: u32,
    },
    /// There may be something, and it cannot be restored.
    Unknown {
        /// The reason, such as `tooLarge` or `secret`.
        why: Unknown,
        /// Bytes, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
}

/// Why the state of a file is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unknown {
    /// It is larger than what is kept of one file, or of all files of a run.
    TooLarge,
    /// It holds what looks like a secret, or lies where programs keep secrets.
    Secret,
    /// It could not be read, or is neither a regular file nor a link.
    Unreadable,
    /// A command changed it, and nobody had looked at it before.
    BeforeUnknown,
    /// It was kept, and was dropped to make room.
    Dropped,
    /// A later version of this program says why.
    #[serde(other)]
    Other,
}

impl FileState {
    /// Not kept, for this reason.
    pub fn unknown(why: Unknown) -> Self {
        Self::Unknown { why, size: None }
    }

    /// The chunk that holds its bytes.
    pub fn content(&self) -> Option<ChunkId> {
        match self {
            Self::File { content, .. } => Some(*content),
            Self::Absent | Self::Link { .. } | Self::Directory { .. } | Self::Unknown { .. } => None,
        }
    }

    /// Whether this is [`FileState::Directory`].
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// Whether it can be put back.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "larger than the limit for saved files",
            Self::Secret => "contains a secret, which is not saved",
            Self::Unreadable => "could not be read, or is not a file",
            Self::BeforeUnknown => "not checked before a command changed it",
            Self::Dropped => "no longer saved, to free space",
            Self::Other => "not saved",
        })
    }
}
