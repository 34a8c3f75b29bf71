//! What was found on the disk, as it is kept.

use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{ChunkId, FileState, Unknown};
use quipu_seal::Sealer;
use quipu_workspace::PathContent;
use sha2::{Digest as _, Sha256};

/// A file as it was found, and its bytes where they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSnapshot {
    pub(crate) state: FileState,
    pub(crate) bytes: Option<Arc<[u8]>>,
}

impl FileSnapshot {
    pub(crate) fn of(captured: PathContent, sealer: &Sealer) -> Self {
        let plain = |state| Self { state, bytes: None };
        match captured {
            // What is in a directory are files of their own.
            PathContent::Absent | PathContent::Directory { .. } => plain(FileState::Absent),
            PathContent::File { bytes, .. } if holds_secret(&bytes, sealer) => {
                plain(FileState::Unknown { why: Unknown::Secret, size: Some(bytes.len() as u64) })
            }
            PathContent::File { mode, bytes } => {
                let content = ChunkId(Sha256::digest(&bytes).into());
                let state = FileState::File { mode, size: bytes.len() as u64, content };
                Self { state, bytes: Some(bytes.into()) }
            }
            PathContent::Link { target } => plain(match target.into_os_string().into_string() {
                Ok(target) if !holds_secret(target.as_bytes(), sealer) => FileState::Link { target },
                Ok(_) => FileState::unknown(Unknown::Secret),
                Err(_) => FileState::unknown(Unknown::Unreadable),
            }),
            PathContent::TooLarge { size } => {
                plain(FileState::Unknown { why: Unknown::TooLarge, size: Some(size) })
            }
            PathContent::Secret => plain(FileState::unknown(Unknown::Secret)),
            PathContent::Unreadable => plain(FileState::unknown(Unknown::Unreadable)),
        }
    }

    /// What was found where this was found before: the same bytes are neither searched nor hashed again.
    pub(crate) fn again(captured: PathContent, before: Option<&Self>, sealer: &Sealer) -> Self {
        let known = before.and_then(|before| Some((before.state.content()?, before.bytes.as_ref()?)));
        match (captured, known) {
            (PathContent::File { mode, bytes }, Some((content, old))) if **old == *bytes => {
                let state = FileState::File { mode, size: bytes.len() as u64, content };
                Self { state, bytes: Some(old.clone()) }
            }
            (captured, _) => Self::of(captured, sealer),
        }
    }

    /// The same without its bytes.
    pub(crate) fn dropped(&mut self, why: Unknown) {
        if let FileState::File { size, .. } = self.state {
            *self = Self { state: FileState::Unknown { why, size: Some(size) }, bytes: None };
        }
    }
}

fn holds_secret(bytes: &[u8], sealer: &Sealer) -> bool {
    let text = String::from_utf8_lossy(bytes);
    matches!(sealer.seal(&text), std::borrow::Cow::Owned(_))
}

/// A path as nodes name it: relative to the directory of the session where it lies below. `None` for one that is no
/// UTF-8.
pub(crate) fn named(root: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(root).ok().filter(|below| !below.as_os_str().is_empty());
    Some(below.unwrap_or(path).to_str()?.to_owned())
}
