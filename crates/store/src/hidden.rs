//! Nodes that nobody is shown any more, though the graph keeps them.

use quipu_protocol::NodeId;

/// What is hidden now.
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
    fn problem(&self) -> Option<String> {
        None
    }
}
