//! Nodes whose words somebody took back, or put others in the place of: the graph keeps them, and searches leave them out or mark them.

use std::collections::HashMap;

use quipu_protocol::{NodeId, SessionId};

use crate::{Fut, Graph};

/// What became of the words of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Withdrawal {
    /// A person took them back.
    TakenBack,
    /// Others stand in their place.
    Superseded,
}

impl Withdrawal {
    /// As people and programs read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TakenBack => "retracted",
            Self::Superseded => "superseded",
        }
    }
}

/// Knows which nodes that is.
pub trait WithdrawnSource: Send + Sync + 'static {
    /// Of these nodes, each with its session, those that are withdrawn now.
    fn withdrawn<'a>(
        &'a self,
        store: &'a dyn Graph,
        nodes: &'a [(NodeId, SessionId)],
    ) -> Fut<'a, HashMap<NodeId, Withdrawal>>;
}
