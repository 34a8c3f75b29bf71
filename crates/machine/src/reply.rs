//! Who waits for what becomes of a command.

/// Identifies the sender that waits for the acknowledgement of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyId(pub u64);
