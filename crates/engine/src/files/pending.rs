//! A file as it is held in memory while commands may change it: neither searched for secrets nor hashed before it is known
//! to have changed.

use quipu_seal::Sealer;
use quipu_workspace::PathContent;

use super::state::FileSnapshot;

#[derive(Debug, Clone)]
pub(super) enum PendingSnapshot {
    /// As it was read.
    Raw(PathContent),
    /// As it is kept.
    Ready(FileSnapshot),
}

impl PendingSnapshot {
    /// Bytes that it takes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Raw(PathContent::File { bytes, .. }) => bytes.len() as u64,
            Self::Raw(_) => 0,
            Self::Ready(found) => found.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
        }
    }

    /// Whether both are the same. Of what was not read, the times tell.
    pub(super) fn is_same(&self, other: &Self, same_times: bool) -> bool {
        use quipu_protocol::FileState;
        match (self, other) {
            (
                Self::Raw(PathContent::TooLarge { .. } | PathContent::Unreadable | PathContent::Secret),
                Self::Raw(new),
            ) => same_times && matches!(self, Self::Raw(old) if old == new),
            (Self::Raw(old), Self::Raw(new)) => old == new,
            (
                Self::Ready(FileSnapshot { state: FileState::File { mode, .. }, bytes: Some(old) }),
                Self::Raw(new),
            ) => {
                matches!(new, PathContent::File { mode: now, bytes } if now == mode && **old == **bytes)
            }
            (Self::Ready(_), _) | (_, Self::Ready(_)) => false,
        }
    }

    /// As it is kept.
    pub(super) fn into_found(self, sealer: &Sealer) -> FileSnapshot {
        match self {
            Self::Raw(captured) => FileSnapshot::of(captured, sealer),
            Self::Ready(found) => found,
        }
    }

    /// As it is kept, and as it is held from now on: what is never kept stays as it was read, to find out whether
    /// it changes. The same bytes as before are not searched again.
    pub(super) fn found(self, before: &FileSnapshot, sealer: &Sealer) -> (Self, FileSnapshot) {
        match self {
            Self::Ready(found) => (Self::Ready(found.clone()), found),
            Self::Raw(captured) => {
                let found = FileSnapshot::again(captured.clone(), Some(before), sealer);
                let held = match found.bytes {
                    Some(_) => Self::Ready(found.clone()),
                    None => Self::Raw(captured),
                };
                (held, found)
            }
        }
    }
}
