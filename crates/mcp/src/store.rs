//! What is known of definitions from one session to the next.

use quipu_protocol::Json;

/// What is known of definitions between two sessions.
pub trait DefinitionStore: Send + Sync + 'static {
    /// The definitions that a server had last, as it wrote them.
    fn known(&self, server: &str) -> Option<Vec<Json>>;

    /// A server has these definitions now.
    ///
    /// # Errors
    /// Why they cannot be kept.
    fn remember(&self, server: &str, definitions: &[Json]) -> Result<(), DefinitionStoreError>;

    /// Whether the definition of a tool with this hash was accepted.
    fn acceptance(&self, server: &str, tool: &str, hash: &str) -> Acceptance;

    /// Somebody accepted a definition.
    ///
    /// # Errors
    /// Why that cannot be kept.
    fn accept(&self, server: &str, tool: &str, hash: &str) -> Result<(), DefinitionStoreError>;
}

/// What is known of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// It was accepted as it is.
    Accepted,
    /// Another one of the same tool was.
    Changed,
    /// None of the tool was.
    New,
}

/// Why definitions could not be kept, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DefinitionStoreError(pub String);
