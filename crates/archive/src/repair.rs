//! What an import had to mend, read from the nodes that came of it.

use quipu_dag::Node;
use quipu_protocol::NodeId;
use quipu_transcript::DecodedEntry;

/// Why an import placed an entry elsewhere than its file says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PlacementRepair {
    /// A header in the middle of the file.
    SecondHeader,
    /// It has no id.
    NoId,
    /// It does not say what it follows.
    NoParent,
    /// It names what it follows, and could not be put there: that is not in the file, or follows it in turn.
    Parent(String),
}

/// How a node of an imported session was mended; `None` for one that was not, and for nodes that no importer wrote.
/// `first` is the session's first node. Entries that share an id are told by comparing them.
pub fn placement_repair(
    agent: &str,
    node: &Node,
    decoded: &DecodedEntry,
    first: NodeId,
) -> Option<PlacementRepair> {
    match agent {
        crate::pi::AGENT => crate::pi::placement_repair(node, decoded, first),
        _ => None,
    }
}
