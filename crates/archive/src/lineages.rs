//! The nodes and refs of an imported session.

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use quipu_store::{Graph, Head, Piece, ReadParts, RefExpectation, RefMove, RefName, Seq, StoreError};

/// Nodes that are read at once at most.
const MOST: usize = 2_000;

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
    store: &dyn Graph,
    agent: &str,
    session: &SessionId,
) -> Result<Vec<Head>, StoreError> {
    store.heads(&format!("{}/", main_ref(agent, session))).await
}

/// The ref of one end.
pub(crate) fn tip_ref(agent: &str, session: &SessionId, node: &NodeId) -> RefName {
    RefName::from(format!("{}/{node}", main_ref(agent, session)))
}

/// Sets the ref of an end that is new.
pub(crate) fn tip_arrival(agent: &str, session: &SessionId, node: NodeId) -> RefMove {
    RefMove::publish(tip_ref(agent, session, &node), node, "import")
}

/// Removes the ref of a node that is no end any more.
pub(crate) fn tip_departure(agent: &str, session: &SessionId, node: NodeId) -> RefMove {
    RefMove {
        name: tip_ref(agent, session, &node),
        expect: RefExpectation::Any,
        to: None,
        fence: None,
        why: "import".into(),
    }
}

/// Calls `each` with the nodes in these places, in their order.
pub(crate) async fn nodes_of(
    store: &dyn Graph,
    seqs: &[Seq],
    mut each: impl FnMut(Node),
) -> Result<(), StoreError> {
    let mut seqs = seqs;
    while !seqs.is_empty() {
        let some = &seqs[..MOST.min(seqs.len())];
        let Piece { read, nodes, .. } = store.written(some, ReadParts::None, usize::MAX).await?;
        nodes.into_iter().for_each(|written| each(written.node));
        seqs = &seqs[read.clamp(1, seqs.len())..];
    }
    Ok(())
}
