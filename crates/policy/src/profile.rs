//! Profiles: allow lists with a name.

use serde::{Deserialize, Serialize};

/// An allow list with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolProfile {
    /// Status alone.
    Minimal,
    /// Messages and sessions, and the tools of MCP servers.
    Messaging,
    /// Files, commands, the web, memory, sessions, plans, jobs, and the tools of MCP servers.
    Coding,
    /// Every tool.
    Full,
}

impl ToolProfile {
    /// Every profile.
    pub const ALL: [Self; 4] = [Self::Minimal, Self::Messaging, Self::Coding, Self::Full];

    /// Its name in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Messaging => "messaging",
            Self::Coding => "coding",
            Self::Full => "full",
        }
    }

    /// The profile of a name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.word() == word)
    }

    /// Its allow entries.
    pub fn entries(self) -> &'static [&'static str] {
        match self {
            Self::Minimal => &["session_status"],
            Self::Messaging => &[
                "message",
                "sessions_list",
                "sessions_history",
                "sessions_send",
                "session_status",
                "group:mcp",
            ],
            Self::Coding => &[
                "group:fs",
                "group:runtime",
                "group:web",
                "group:memory",
                "group:sessions",
                "group:media",
                "group:mcp",
                "plan",
                "todo",
                "update_plan",
                "schedule",
            ],
            Self::Full => &["*"],
        }
    }
}
