//! How long servers are asked to keep what they have read.

use serde::Serialize;

/// How long servers are asked to keep the beginning of a conversation, so that it need not be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheRetention {
    /// Not at all, and the session is not named to them.
    Off,
    /// As long as is usual, most often five minutes.
    #[default]
    Short,
    /// An hour or a day, where a server can; to write costs more.
    Long,
}

/// Marks the end of a prefix that the server keeps: for five minutes, or as long as `ttl` says.
#[derive(Serialize, Clone, Copy)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum CacheControl {
    Ephemeral {
        #[serde(skip_serializing_if = "Option::is_none")]
        ttl: Option<&'static str>,
    },
}

impl CacheControl {
    /// The mark for a server that can keep it long, or cannot; `None` when nothing is to be kept.
    pub(crate) fn of(retention: CacheRetention, can_be_long: bool) -> Option<Self> {
        match retention {
            CacheRetention::Off => None,
            CacheRetention::Long if can_be_long => Some(Self::Ephemeral { ttl: Some("1h") }),
            CacheRetention::Short | CacheRetention::Long => Some(Self::Ephemeral { ttl: None }),
        }
    }
}
