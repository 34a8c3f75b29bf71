//! What is kept of proofs: counts, places and questions, no other words of anybody.

use std::collections::BTreeMap;
use std::ops::Range;

use quipu_protocol::{NodeId, UnixMs};
use serde::{Deserialize, Serialize};

use crate::PastId;
use crate::grounding::ClaimKind;

/// The rules by which chunks are checked. What was found by others is not used.
pub const GROUNDING_RULES: u32 = 2;

/// Questions of a proof that are kept, and bytes of each.
const QUESTIONS: usize = 1_000;
const QUESTION: usize = 512;

/// Where a chunk says something that its sources do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UngroundedPlace {
    /// What it claims.
    pub kind: ClaimKind,
    /// Where it stands in the summary, in bytes.
    pub place: Range<usize>,
}

/// What was found when the words of a chunk were looked for in its sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkVerdict {
    /// The chunk.
    pub chunk: PastId,
    /// How many claims it makes.
    pub claims: usize,
    /// How many of them do not occur in its sources.
    pub ungrounded: usize,
    /// The first of those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<UngroundedPlace>,
    /// Whether not all of its sources could be read, so that what was not found may stand in the others. Such a verdict is not kept.
    #[serde(skip)]
    pub is_unchecked: bool,
}

impl ChunkVerdict {
    /// Whether everything occurs in its sources.
    #[must_use]
    pub const fn is_grounded(&self) -> bool {
        self.ungrounded == 0
    }
}

/// What came of a proof.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProofRecord {
    /// When it was made.
    pub at: UnixMs,
    /// Whether recorded requests equal their reassembly.
    pub structure: StructureRecord,
    /// Whether chunks say what their sources do.
    pub grounding: GroundingCounts,
    /// Whether answers depend on chunks; `None` where nothing was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ablation: Option<AblationRecord>,
}

impl ProofRecord {
    /// In one line, for who reads the past as a conversation.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { structure, grounding, ablation, .. } = self;
        let asked = ablation.as_ref().map_or(0, |ablation| ablation.questions.len());
        format!(
            "Proof: {} of {} requests equal, {} of {} chunks grounded, {asked} questions asked",
            structure.equal,
            structure.equal + structure.different.len(),
            grounding.chunks - grounding.ungrounded,
            grounding.chunks,
        )
    }

    /// What is shown of it as text: the questions too, so that who looks for their words finds them here.
    pub(crate) fn text(&self) -> String {
        let mut text = self.in_words();
        for asked in self.ablation.iter().flat_map(|ablation| &ablation.questions) {
            text.push('\n');
            text.push_str(&asked.question);
        }
        text
    }

    /// What is kept of it.
    pub(crate) fn kept(mut self) -> Self {
        if let Some(ablation) = &mut self.ablation {
            ablation.failed = None;
            ablation.not_kept += ablation.questions.len().saturating_sub(QUESTIONS);
            ablation.questions.truncate(QUESTIONS);
            for asked in &mut ablation.questions {
                let end = asked.question.floor_char_boundary(QUESTION);
                asked.question.truncate(end);
            }
        }
        self
    }

    /// Whether no request differs, and no chunk is kept out of covers for what it says.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.structure.different.is_empty() && self.grounding.kept_out == 0
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A request that is not what the graph gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferentRequest {
    /// The node of its answer.
    pub node: NodeId,
    /// The first place that differs: of the JSON a pointer, else a byte.
    pub at: String,
}

/// Whether recorded requests equal their reassembly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StructureRecord {
    /// Sessions that were looked at.
    pub sessions: usize,
    /// Requests that were recorded in them.
    pub requests: usize,
    /// Of those, how many equal their reassembly to the byte.
    pub equal: usize,
    /// Those that do not.
    pub different: Vec<DifferentRequest>,
    /// How many could not be reassembled, by why.
    pub unchecked: BTreeMap<String, usize>,
    /// How many were not looked at, as there are more than are wanted of a session.
    pub skipped: usize,
}

/// Whether chunks say what their sources do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroundingCounts {
    /// Chunks that were checked.
    pub chunks: usize,
    /// Claims of theirs.
    pub claims: usize,
    /// Chunks that say what their sources do not.
    pub ungrounded: usize,
    /// Claims that do not occur in sources, by kind.
    pub findings: BTreeMap<ClaimKind, usize>,
    /// Chunks that could not be checked, as a source or a child is not there.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchecked: usize,
    /// Chunks that are kept out of covers for that.
    pub kept_out: usize,
}

/// Whether answers depend on chunks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AblationRecord {
    /// The model that was asked.
    pub model: String,
    /// Tokens of the cover.
    pub tokens: u64,
    /// What the changes were drawn with.
    pub seed: u64,
    /// What was asked.
    pub questions: Vec<AskedQuestion>,
    /// How many questions were not asked, as the budget was spent or an answer failed.
    pub unasked: usize,
    /// Why an answer failed, where one did; not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// How many questions were asked and are not kept, as there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_kept: usize,
    /// US dollars.
    pub cost: f64,
}

impl AblationRecord {
    /// How many questions were answered rightly with the cover, without it, and with a disturbed one.
    #[must_use]
    pub fn right(&self) -> [usize; 3] {
        let count =
            |right: fn(&AskedQuestion) -> bool| self.questions.iter().filter(|one| right(one)).count();
        [count(|one| one.with), count(|one| one.without), count(|one| one.disturbed)]
    }
}

/// A question, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AskedQuestion {
    /// The question.
    pub question: String,
    /// Chunks of its cover.
    pub members: usize,
    /// Whether the answer with the cover was right.
    pub with: bool,
    /// Whether that without it was.
    pub without: bool,
    /// Whether that with a disturbed one was.
    pub disturbed: bool,
    /// Whether the answer without the cover is another than with it.
    pub changed_without: bool,
    /// Whether the answer with a disturbed cover is another.
    pub changed_disturbed: bool,
    /// Of the nodes that are evidence, how many a member of the cover sums up.
    pub evidence_served: usize,
    /// The nodes that are evidence.
    pub evidence: usize,
    /// Single chunks that were removed and disturbed.
    pub chunks: Vec<ChunkChange>,
}

/// What became of an answer when one chunk was removed, or disturbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChunkChange {
    /// The chunk.
    pub chunk: PastId,
    /// Whether the answer without it is right.
    pub right_removed: bool,
    /// Whether it is another one.
    pub changed_removed: bool,
    /// Whether the answer with the disturbed chunk is right.
    pub right_disturbed: bool,
    /// Whether it is another one.
    pub changed_disturbed: bool,
    /// How much was changed in the chunk.
    pub changes: usize,
}
