//! Nodes that nobody is shown any more, though the graph keeps them.

use std::sync::Arc;

use quipu_protocol::NodeId;

/// Knows what is hidden now.
pub trait HiddenSource: Send + Sync + 'static {
    /// What is hidden now. It may read a file: it is asked once for all nodes of a request, a view or a search.
    fn now(&self) -> HiddenSnapshot;
}

/// What is hidden at one moment. It reads nothing.
pub trait HiddenNodes: Send + Sync + 'static {
    /// Whether nothing is: then nodes are not asked for.
    fn is_empty(&self) -> bool;

    /// Whether this node is: no search finds it, no session has a title from it, and nobody is shown what it says.
    fn hides(&self, node: &NodeId) -> bool;

    /// Whether a line says what is hidden, wherever it stands: in a prompt that was made of files before, too.
    fn hides_line(&self, line: &str) -> bool {
        let _ = line;
        false
    }

    /// Another number once something else may be hidden.
    fn version(&self) -> u64 {
        0
    }

    /// Why nobody knows what is hidden. Then all is, and no session is continued.
    fn problem(&self) -> Option<&str> {
        None
    }
}

/// What is hidden at one moment, where something is.
#[derive(Clone, Default)]
pub struct HiddenSnapshot(Option<Arc<dyn HiddenNodes>>);

impl HiddenSnapshot {
    /// Of these nodes.
    pub fn of(nodes: Arc<dyn HiddenNodes>) -> Self {
        Self(Some(nodes).filter(|nodes| !nodes.is_empty()))
    }

    /// Whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// As [`HiddenNodes::hides`].
    #[must_use]
    pub fn hides(&self, node: &NodeId) -> bool {
        self.0.as_ref().is_some_and(|nodes| nodes.hides(node))
    }

    /// As [`HiddenNodes::hides_line`].
    #[must_use]
    pub fn hides_line(&self, line: &str) -> bool {
        self.0.as_ref().is_some_and(|nodes| nodes.hides_line(line))
    }

    /// As [`HiddenNodes::version`].
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, |nodes| nodes.version())
    }

    /// As [`HiddenNodes::problem`].
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.as_ref().and_then(|nodes| nodes.problem())
    }
}

impl std::fmt::Debug for HiddenSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HiddenSnapshot").field("is_empty", &self.is_empty()).finish()
    }
}
