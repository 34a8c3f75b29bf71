//! Whose the lines of a file are, as a dream judges them.

use quipu_protocol::NodeId;

use crate::AuthorClass;

/// Whose one line of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineClass {
    /// The class of its author.
    pub class: AuthorClass,
    /// The node of the change that wrote it, where there is one.
    pub node: Option<NodeId>,
    /// Whether a dream made that change.
    pub is_dream: bool,
}
