//! All nodes of an imported session, read from the ends of its branches.

use std::collections::HashSet;

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use quipu_store::{Head, RefName, Store, StoreError, Until};

/// Nodes that are read at once at most.
const MOST: usize = 4_096;

/// The action that notes what was imported.
pub(crate) const IMPORTED: &str = "QUIPU_IMPORT";

/// The id, where it can name a session in the store, else one made from it.
pub(crate) fn session_id(id: &str) -> SessionId {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = id.as_bytes();
    let fits = bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if fits {
        return id.into();
    }
    let hash = quipu_protocol::ChunkId(quipu_dag::sha256(bytes)).to_string();
    hash[..32].into()
}

/// The ref of an imported session.
pub(crate) fn main_ref(agent: &str, session: &SessionId) -> RefName {
    RefName::of_agent(agent, session)
}

/// The refs of the ends of its branches.
pub(crate) async fn tips(
    store: &dyn Store,
    agent: &str,
    session: &SessionId,
) -> Result<Vec<Head>, StoreError> {
    store.heads(&format!("{}/", main_ref(agent, session))).await
}

/// The ref of one end.
pub(crate) fn tip_ref(agent: &str, session: &SessionId, node: &NodeId) -> RefName {
    RefName::from(format!("{}/{node}", main_ref(agent, session)))
}

/// Calls `each` with every node below `root` that leads to one of `tips`, the tip from which it was met first and
/// whether it is that tip, in no order; ends that do not come from `root` are left out. Reads each node once, and little
/// more. Returns those of `tips` that had been met before, or are `root`.
pub(crate) async fn walk(
    store: &dyn Store,
    root: NodeId,
    tips: impl IntoIterator<Item = NodeId>,
    mut each: impl FnMut(Node, NodeId, bool),
) -> Result<Vec<NodeId>, StoreError> {
    let mut inner = Vec::new();
    let mut seen = HashSet::from([root]);
    for tip in tips {
        let mut branch = Vec::new();
        let mut from = Some(tip);
        let mut count = 16;
        let mut joined = false;
        while let (Some(start), false) = (from, joined) {
            from = None;
            for node in store.lineage(start, Until::Count(count)).await?.into_iter().rev() {
                if seen.contains(&node.id) {
                    joined = true;
                    break;
                }
                from = node.record.parent;
                branch.push(node);
            }
            count = (count * 4).min(MOST);
        }
        if !joined {
            continue;
        }
        if branch.is_empty() {
            inner.push(tip);
        }
        for node in branch {
            seen.insert(node.id);
            let is_tip = node.id == tip;
            each(node, tip, is_tip);
        }
    }
    Ok(inner)
}
