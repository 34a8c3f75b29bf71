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
/// How often it is tried again where somebody else writes.
const TRIES: usize = 5;

/// Keeps what was found of chunks that were not checked before, and what came of a proof, in the session of the past. Where somebody else
/// wrote to it since `index` was read, it is read again. `None` where there is nothing to keep, and where there is no past.
///
/// # Errors
/// `Busy` where another process does not stop writing to the same past; `Store`.
pub async fn keep_proof(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    verdicts: Vec<ChunkVerdict>,
    proof: Option<ProofRecord>,
    now: UnixMs,
) -> Result<Option<NodeId>, PastError> {
    let proof = proof.map(ProofRecord::kept);
    let writer = PastWriter::new(store, scope, index);
    let mut kept = keep(writer, index, &verdicts, proof.as_ref(), now).await;
    for _ in 0..TRIES {
        if !matches!(kept, Err(PastError::Busy(_))) {
            break;
        }
        let index = PastIndex::read(store, scope).await?;
        let writer = PastWriter::new(store, scope, &index);
        kept = keep(writer, &index, &verdicts, proof.as_ref(), now).await;
    }
    kept
}

async fn keep(
    mut writer: PastWriter<'_>,
    index: &PastIndex,
    verdicts: &[ChunkVerdict],
    proof: Option<&ProofRecord>,
    now: UnixMs,
) -> Result<Option<NodeId>, PastError> {
    if index.head.is_none() {
        return Ok(None);
    }
    let new = verdicts.iter().filter(|verdict| {
        let is_needed = index.get(&verdict.chunk).is_some_and(|chunk| chunk.needs_grounding);
        is_needed && !verdict.is_unchecked && index.verdict(&verdict.chunk).is_none()
    });
    let new: Vec<ChunkVerdict> = new.cloned().collect();
    let mut node = None;
    for some in new.chunks(VERDICTS) {
        node = Some(writer.grounding(some.to_vec(), now));
    }
    if let Some(proof) = proof {
        node = Some(writer.proof(proof.clone(), now));
    }
    writer.save().await?;
    Ok(node)
}

/// Whether a past has chunks that need it and were not checked yet.
#[must_use]
pub fn has_unchecked(index: &PastIndex) -> bool {
    index.live().any(|chunk| chunk.needs_grounding && index.verdict(&chunk.id).is_none())
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
    mark_ungrounded_in(store, scope, &index, made, now).await
}

/// The same of a past that was read.
///
/// # Errors
/// `Busy`, `Store`.
pub async fn mark_ungrounded_in(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    made: Option<NodeId>,
    now: UnixMs,
) -> Result<Vec<ChunkVerdict>, PastError> {
    let found: Vec<ChunkVerdict> = ground_pending(store, scope, index).await?.into_values().collect();
    let mut found: Vec<ChunkVerdict> = found
        .into_iter()
        .filter(|found| !found.is_unchecked && index.verdict(&found.chunk).is_none())
        .collect();
    found.sort_by_key(|verdict| verdict.chunk);
    let writer = PastWriter::new(store, scope, index).after(made);
    keep(writer, index, &found, None, now).await?;
    Ok(found)
}
