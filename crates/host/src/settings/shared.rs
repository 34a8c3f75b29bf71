//! What programs of others may see of the graph.

/// The sessions that the MCP server shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharedHistory {
    /// Those of the client's roots, or of the directory of the server.
    #[default]
    Directory,
    /// Every session.
    All,
}

impl SharedHistory {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("all") => Self::All,
            _ => Self::Directory,
        }
    }
}

/// How much history the hooks of other agents give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookBudget {
    /// None.
    Off,
    /// Little.
    #[default]
    Small,
    /// More.
    Normal,
}

impl HookBudget {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("off") => Self::Off,
            Some("normal") => Self::Normal,
            _ => Self::Small,
        }
    }

    /// Tokens at the start of a session.
    pub fn at_start(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Small => 300,
            Self::Normal => 1_000,
        }
    }

    /// Tokens beside a prompt, before an edit and after a failure.
    pub fn beside_prompt(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Small => 100,
            Self::Normal => 300,
        }
    }
}
