//! The past of a project as summaries over time: coarse for long ago, fine for today.
//!
//! A chunk ([`MemoryChunk`]) is a node on the ref of its scope ([`PastScope`]) with a summary, the range of time that it is of, and
//! the nodes or chunks that it sums up. [`PastPlan`] says what a past is to have and what of it is missing; [`build_past`] makes
//! that. Knows the graph and what nodes mean; knows no session at work, no model, no command line.

mod advance;
mod build;
mod check;
mod chunk;
pub mod cover;
mod cursor;
pub mod delay;
pub mod disturb;
mod draft;
mod error;
mod evidence;
pub mod grounding;
mod index;
mod layout;
mod model;
mod opening_state;
mod overlap;
pub mod page;
mod pages;
mod plan;
mod proof_record;
pub mod prove;
mod range;
mod recalled;
mod record;
mod removed;
mod scope;
mod segments;
mod served;
mod session_cover;
mod source;
mod summary;
mod telling;
mod tree;
mod withdrawn;
mod work;
mod writer;

pub use build::{
    BuildEnd, BuildProgress, BuildStop, ReplacedSummary, Summaries, build_past, build_with_model,
    set_review_state,
};
pub use check::{PastCheck, PastGap};
pub use chunk::{
    AskedModel, CHILD_LIMIT, ChunkFault, ChunkSource, MemoryChunk, PAST_CHUNK, PastId, RefusedSummary,
    ReviewState, SOURCE_LIMIT, SUMMARY_LIMIT, SUMMARY_TRIES, SummaryMethod, WorkId, class_name,
};
pub use cursor::PastCursor;
pub use draft::{ChunkDraft, DraftAuthor, WrittenChunk, replace_chunks, write_chunk};
pub use error::PastError;
pub use evidence::{Evidence, EvidenceKind, EvidenceNode, evidence_of};
pub use index::{ChunkAuthor, ChunkEntry, FaultyNode, PastIndex};
pub use model::{
    AnswerFault, AskFut, AskRefusal, CallSize, LEAF_TOKENS, PARENT_TOKENS, SummaryAsk, SummaryModel,
    SummaryReply, TOKEN_BYTES, model_method,
};
pub use opening_state::{OpeningState, PAST_SOURCE};
pub use plan::{BuildSize, PastPlan};
pub use proof_record::{
    AblationRecord, AskedQuestion, ChunkChange, ChunkVerdict, DifferentRequest, GROUNDING_RULES,
    GroundingCounts, ProofRecord, StructureRecord, UngroundedPlace,
};
pub use range::{RangeError, TimeRange};
pub use record::read_chunks;
pub use scope::{PAST_SESSION, PastScope};
pub use segments::{
    HARD_BYTES, HARD_NODES, IDLE, SOFT_BYTES, SOFT_NODES, Segment, SessionSegments, segments_of,
};
pub use served::{CoverDetail, CoverSearch, CoverStock, PastCover, ServedCover, ServedMember};
pub use session_cover::{SessionCover, SessionCoverError, cover_session};
pub use source::{SourceSpeaker, SourceText, time_of};
pub use summary::{ChildSummary, ExtractiveSummary, Summariser};
pub use telling::chunks_telling;
pub use tree::{FEWEST, MOST};
pub use withdrawn::WithdrawnChunks;
pub use work::RULES;
