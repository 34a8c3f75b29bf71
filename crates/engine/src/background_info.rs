//! What is known of a background command.

use std::time::Duration;

use quipu_protocol::{BackgroundEnd, BackgroundId};

/// A background command, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundInfo {
    /// Its id.
    pub id: BackgroundId,
    /// The command line.
    pub command: String,
    /// How long it runs, or ran.
    pub took: Duration,
    /// How it ended; `None` while it runs.
    pub end: Option<BackgroundEnd>,
}
