//! What chunks are made of, as one hash: work that was done is found by it, and nobody can claim another's.

use quipu_dag::sha256;

use crate::{ChunkSource, SummaryMethod, WorkId};

/// The rules by which the past is cut. Other rules make other chunks of the same nodes.
pub const RULES: u32 = 1;

/// A method as it is hashed.
pub(crate) fn method_bytes(method: &SummaryMethod) -> Vec<u8> {
    serde_json::to_vec(method).unwrap_or_default()
}

pub(crate) fn work_id<'a>(method: &[u8], level: u32, of: impl Iterator<Item = &'a [u8; 32]>) -> WorkId {
    work_by(RULES, method, level, of)
}

fn work_by<'a>(rules: u32, method: &[u8], level: u32, of: impl Iterator<Item = &'a [u8; 32]>) -> WorkId {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&rules.to_le_bytes());
    bytes.extend_from_slice(&level.to_le_bytes());
    bytes.extend_from_slice(&(method.len() as u64).to_le_bytes());
    bytes.extend_from_slice(method);
    of.for_each(|id| bytes.extend_from_slice(id));
    WorkId(sha256(&bytes))
}

/// Whether this is the work of a summary of these nodes, by the present rules or earlier ones.
pub(crate) fn is_work_of_nodes(work: WorkId, method: &SummaryMethod, sources: &[ChunkSource]) -> bool {
    if sources.is_empty() || sources.iter().any(|source| !source.blocks.is_empty()) {
        return false;
    }
    let mut sorted: Vec<&[u8; 32]> = sources.iter().map(|source| &source.node.0).collect();
    sorted.sort_unstable();
    let method = method_bytes(method);
    (1..=RULES).any(|rules| work_by(rules, &method, 0, sorted.iter().copied()) == work)
}

/// Whether this is the work of a summary of chunks that were made of these.
pub(crate) fn is_work_of_chunks(work: WorkId, method: &SummaryMethod, level: u32, of: &[WorkId]) -> bool {
    let method = method_bytes(method);
    let is_of = |rules| work_by(rules, &method, level, of.iter().map(|work| &work.0)) == work;
    !of.is_empty() && (1..=RULES).any(is_of)
}
