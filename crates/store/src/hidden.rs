//! Nodes that nobody is shown any more, though the graph keeps them.

use quipu_protocol::NodeId;

/// What is hidden now.
pub trait HiddenNodes: Send + Sync + 'static {
    /// Whether nothing is: then nodes are not asked for.
    fn is_empty(&self) -> bool;

    /// Whether this node is: no search finds it, and no session has a title from it.
    fn hides(&self, node: &NodeId) -> bool;
}
