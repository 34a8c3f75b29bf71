//! A file as it is held in memory while commands may change it: neither searched for secrets nor hashed before it is known
//! to have changed.

use quipu_seal::Sealer;
use quipu_workspace::PathContent;

use super::state::Found;

#[derive(Debug, Clone)]
pub(super) enum Held {
    /// As it was read.
    Raw(PathContent),
    /// As it is kept.
    Known(Found),
}

impl Held {
    /// Bytes that it takes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Raw(PathContent::File { bytes, .. }) => bytes.len() as u64,
            Self::Raw(_) => 0,
            Self::Known(found) => found.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
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
                Self::Known(Found { state: FileState::File { mode, .. }, bytes: Some(old) }),
                Self::Raw(new),
            ) => {
                matches!(new, PathContent::File { mode: now, bytes } if now == mode && **old == **bytes)
            }
            (Self::Known(_), _) | (_, Self::Known(_)) => false,
        }
    }

    /// As it is kept.
    pub(super) fn into_found(self, sealer: &Sealer) -> Found {
        match self {
            Self::Raw(captured) => Found::of(captured, sealer),
            Self::Known(found) => found,
        }
    }

    /// As it is kept, and as it is held from now on: what is never kept stays as it was read, so that it can be told whether
    /// it changes. The same bytes as before are not searched again.
    pub(super) fn found(self, before: &Found, sealer: &Sealer) -> (Self, Found) {
        match self {
            Self::Known(found) => (Self::Known(found.clone()), found),
            Self::Raw(captured) => {
                let found = Found::again(captured.clone(), Some(before), sealer);
                let held = match found.bytes {
                    Some(_) => Self::Known(found.clone()),
                    None => Self::Raw(captured),
                };
                (held, found)
            }
        }
    }
}
