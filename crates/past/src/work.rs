//! What chunks are made of, as one hash: work that was done is found by it, and nobody can claim another's.

use quipu_dag::sha256;
use quipu_protocol::NodeId;

use crate::{ChunkSource, SummaryMethod, WorkId};

/// The rules by which the past is cut. Other rules make other chunks of the same nodes.
pub const RULES: u32 = 2;

/// Of chunks that were made of these, by the present rules.
pub(crate) fn work_id<'a>(level: u32, of: impl Iterator<Item = &'a [u8; 32]>) -> WorkId {
    work_by(RULES, None, level, of)
}

/// Of nodes, in whatever order.
pub(crate) fn leaf_work(nodes: &[NodeId]) -> WorkId {
    let mut sorted = nodes.to_vec();
    sorted.sort_unstable();
    work_id(0, sorted.iter().map(|node| &node.0))
}

/// The first rules had the method in the hash.
fn work_by<'a>(
    rules: u32,
    method: Option<&SummaryMethod>,
    level: u32,
    of: impl Iterator<Item = &'a [u8; 32]>,
) -> WorkId {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&rules.to_le_bytes());
    bytes.extend_from_slice(&level.to_le_bytes());
    if let Some(method) = method {
        let method = serde_json::to_vec(method).unwrap_or_default();
        bytes.extend_from_slice(&(method.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&method);
    }
    of.for_each(|id| bytes.extend_from_slice(id));
    WorkId(sha256(&bytes))
}

fn is_work(work: WorkId, method: &SummaryMethod, level: u32, of: &[&[u8; 32]]) -> bool {
    let by = |rules, method| work_by(rules, method, level, of.iter().copied()) == work;
    by(RULES, None) || by(1, Some(method))
}

/// Whether this is the work of a summary of these nodes, by the present rules or earlier ones.
pub(crate) fn is_work_of_nodes(work: WorkId, method: &SummaryMethod, sources: &[ChunkSource]) -> bool {
    if sources.is_empty() || sources.iter().any(|source| !source.blocks.is_empty()) {
        return false;
    }
    let mut sorted: Vec<&[u8; 32]> = sources.iter().map(|source| &source.node.0).collect();
    sorted.sort_unstable();
    is_work(work, method, 0, &sorted)
}

/// Whether this is the work of a summary of chunks that were made of these.
pub(crate) fn is_work_of_chunks(work: WorkId, method: &SummaryMethod, level: u32, of: &[WorkId]) -> bool {
    let of: Vec<&[u8; 32]> = of.iter().map(|work| &work.0).collect();
    !of.is_empty() && is_work(work, method, level, &of)
}
