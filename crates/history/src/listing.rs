//! Under which ids programs that share the store list our nodes. What is no message has its own id and its parent's in it, so
//! both must be known when it is written.

use std::collections::HashMap;

use quipu_dag::Node;
use quipu_protocol::{Entry, Message, NodeId};
use quipu_store::{Graph, StoreError};
use quipu_transcript::listed_as;

use super::target::Parts;

/// Nodes that no program lists are passed by, at most so many.
const FAR: usize = 64;

/// Whether an entry has its place among others in it. All others get theirs from the reader.
fn has_place(entry: &Entry) -> bool {
    match entry {
        Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => true,
        Entry::Message(message) => match message {
            Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) => false,
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => true,
        },
    }
}

/// The id of a node, or of the nearest before it that is listed; `None` where none is.
async fn listed_id(store: &dyn Graph, node: NodeId) -> Result<Option<String>, StoreError> {
    let mut next = Some(node);
    for _ in 0..FAR {
        let Some(id) = next else { break };
        let Some(node) = store.nodes(&[id]).await?.into_iter().flatten().next() else { break };
        next = node.record.parent;
        let nodes = [node];
        let parts = Parts::of(store, &nodes).await?;
        if let Some(listed) = listed_as(&nodes[0], &parts) {
            return Ok(Some(listed));
        }
    }
    Ok(None)
}

/// The ids that entries of one commit need of nodes before it.
#[derive(Debug, Clone, Default)]
pub struct ListedIds(HashMap<NodeId, String>);

/// The nodes whose ids a chain of entries below `parent` needs.
pub fn needed<'a>(parent: Option<NodeId>, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<NodeId> {
    let mut needed = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        // Those after the first follow what is written with them.
        needed.extend(parent.filter(|_| at == 0 && has_place(entry)));
        if let Entry::Compaction(compaction) = entry {
            needed.extend(compaction.first_kept);
        }
    }
    needed
}

impl ListedIds {
    /// The ids of these nodes, as far as they are listed.
    pub async fn read(store: &dyn Graph, nodes: Vec<NodeId>) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for node in nodes {
            if !found.0.contains_key(&node)
                && let Some(id) = listed_id(store, node).await?
            {
                found.0.insert(node, id);
            }
        }
        Ok(found)
    }

    /// A node that is written in the same commit.
    pub fn wrote(&mut self, node: &Node) {
        if let Some(id) = &node.record.external_id {
            self.0.insert(node.id, id.clone());
        }
    }

    /// The id that a node is listed under.
    pub fn of(&self, node: Option<NodeId>) -> Option<&str> {
        self.0.get(&node?).map(String::as_str)
    }

    /// Of a compaction, the oldest node that stays.
    pub fn kept_by(&self, entry: &Entry) -> Option<&str> {
        match entry {
            Entry::Compaction(compaction) => self.of(compaction.first_kept),
            Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => None,
        }
    }
}
