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
