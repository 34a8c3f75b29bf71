//! Who wrote a line of a memory, as far as that decides what it may become.

use serde::{Deserialize, Serialize};

/// The class of an author. The order is that of trust, the most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthorClass {
    /// A person: with an editor and accepted, by a command, or in a message of a session on this machine.
    Owner,
    /// A model, in a turn that read nothing untrusted.
    Agent,
    /// Text of tools, of the web, of an import, of another agent or of a repository; what a model wrote in a turn that read
    /// some; and changes that nobody has explained.
    Untrusted,
    /// What Quipu writes itself: reports, diaries, notices.
    System,
}

impl AuthorClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Agent, Self::Untrusted, Self::System];

    /// Whether a line of this class can be promoted.
    #[must_use]
    pub const fn is_promotable(self) -> bool {
        matches!(self, Self::Owner | Self::Agent)
    }

    /// Its name in files and on screens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Agent => "agent",
            Self::Untrusted => "untrusted",
            Self::System => "system",
        }
    }
}
