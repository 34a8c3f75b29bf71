//! Whether a past can be believed: its requests, what its chunks say, and whether answers depend on them.

mod ablation;
mod grounded;
mod questions;
mod structure;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::Graph;

use crate::writer::PastWriter;
use crate::{ChunkVerdict, PastError, PastIndex, PastScope, ProofRecord};

pub use ablation::{AblationAsk, Answers, Reader, ReaderError, ReaderFut, ReaderPrompt, ask_questions};
pub(crate) use grounded::is_kept_out;
pub use grounded::{GroundingProof, UngroundedChunk, ground_all, ground_pending, verdicts_of};
pub use questions::{ProofQuestion, QuestionFault, read_questions};
pub use structure::{JudgeFut, RequestJudge, RequestVerdict, first_difference, prove_structure};

/// Verdicts of one node.
const VERDICTS: usize = 500;

/// Keeps what was found of chunks that were not checked before, and what came of a proof, in the session of the past. `None` where there is
/// nothing to keep.
///
/// # Errors
/// `Busy` where another process writes to the same past; `Store`.
pub async fn keep_proof(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    verdicts: Vec<ChunkVerdict>,
    proof: Option<ProofRecord>,
    now: UnixMs,
) -> Result<Option<NodeId>, PastError> {
    let writer = PastWriter::new(store, scope, index);
    keep(writer, index, verdicts, proof, now).await
}

async fn keep(
    mut writer: PastWriter<'_>,
    index: &PastIndex,
    verdicts: Vec<ChunkVerdict>,
    proof: Option<ProofRecord>,
    now: UnixMs,
) -> Result<Option<NodeId>, PastError> {
    let new = verdicts.into_iter().filter(|verdict| {
        let is_needed = index.get(&verdict.chunk).is_some_and(|chunk| chunk.needs_grounding);
        is_needed && index.verdict(&verdict.chunk).is_none()
    });
    let new: Vec<ChunkVerdict> = new.collect();
    let mut node = None;
    for some in new.chunks(VERDICTS) {
        node = Some(writer.grounding(some.to_vec(), now));
    }
    if let Some(proof) = proof {
        node = Some(writer.proof(proof, now));
    }
    writer.save().await?;
    Ok(node)
}

/// Checks the chunks that need it and were not checked yet, and keeps what was found: for who has just made some, up to the node `made`,
/// with which they are undone.
///
/// # Errors
/// `Busy`, `Store`.
pub async fn mark_ungrounded(
    store: &dyn Graph,
    scope: &PastScope,
    made: Option<NodeId>,
    now: UnixMs,
) -> Result<Vec<ChunkVerdict>, PastError> {
    let index = PastIndex::read(store, scope).await?;
    let found: Vec<ChunkVerdict> = ground_pending(store, scope, &index).await?.into_values().collect();
    let mut found: Vec<ChunkVerdict> =
        found.into_iter().filter(|verdict| index.verdict(&verdict.chunk).is_none()).collect();
    found.sort_by_key(|verdict| verdict.chunk);
    let writer = PastWriter::new(store, scope, &index).after(made);
    keep(writer, &index, found.clone(), None, now).await?;
    Ok(found)
}
