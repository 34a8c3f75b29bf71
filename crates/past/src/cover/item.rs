//! What a cover is made of, and what is said about it.

use quipu_protocol::{NodeId, UnixMs};
use serde::{Deserialize, Serialize};

/// A time from its first to its last millisecond, both in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first millisecond.
    pub start: UnixMs,
    /// The last millisecond.
    pub end: UnixMs,
}

impl Span {
    /// Whether the time is in it.
    #[must_use]
    pub fn contains(self, at: UnixMs) -> bool {
        self.start <= at && at <= self.end
    }

    /// How much later it ends than it begins.
    #[must_use]
    pub fn width(self) -> u64 {
        self.end.checked_sub(self.start).map_or(u64::MAX, |width| u64::try_from(width).unwrap_or(0))
    }
}

/// Why the summary of a chunk may not be served. Its children may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Somebody took it back.
    Retracted,
    /// Another chunk stands in its place.
    Superseded,
    /// It says something that its sources do not.
    Ungrounded,
    /// It has no text that could be served.
    Empty,
    /// Content of it was forgotten.
    Forgotten,
}

/// A chunk as a cover sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CoverItem {
    /// Its node.
    pub id: NodeId,
    /// The time that it is about.
    pub span: Span,
    /// What it costs as it is sent, in the unit of the budget: key, text and images. [`super::line_cost`] counts it.
    pub cost: u64,
    /// Why it may not be served, if so.
    pub exclusion: Option<Exclusion>,
    /// The chunks that it sums up.
    pub children: Vec<NodeId>,
}

/// What a cover is asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoverAsk {
    /// What all members may cost together.
    pub budget: u64,
    /// The first moment of the present: a chunk that ends later is not served.
    pub boundary: Option<UnixMs>,
    /// Until when raw turns were left out before. It never moves back.
    pub floor: Option<UnixMs>,
    /// When the raw turns of this conversation were, in any order.
    pub turns: Vec<UnixMs>,
    /// How much chunks have to do with the present question; who is not named has 0. Only its size relative to the best counts.
    pub relevance: Vec<(NodeId, f64)>,
    /// How much of the budget, in percent, may go to relevant chunks one by one, at the price of gaps beside them. With 0 a chunk
    /// is only ever replaced by all of its children.
    pub focus: u8,
}

/// What is served, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cover {
    /// The chunks that are served, in the order of time.
    pub members: Vec<Member>,
    /// What they cost together.
    pub used: u64,
    /// What they may cost together.
    pub budget: u64,
    /// Raw turns until then, and only those, may be left out; which of them, [`Cover::leaves_out`] says.
    pub floor: Option<UnixMs>,
    /// The times between the first chunk and the boundary that no member covers, in order.
    pub gaps: Vec<Gap>,
    /// What was wrong with the chunks.
    pub faults: Vec<Fault>,
    /// Why less is served than could be.
    pub shortfall: Option<Shortfall>,
    /// What was decided about each chunk that was looked at, by time.
    pub decisions: Vec<Decision>,
}

impl Cover {
    /// Whether a raw turn of this time need not be sent: it lies before the floor and what is served covers it.
    #[must_use]
    pub fn leaves_out(&self, turn: UnixMs) -> bool {
        self.floor.is_some_and(|floor| turn <= floor)
            && self.members.iter().any(|member| member.span.contains(turn))
    }
}

/// A chunk that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its node.
    pub id: NodeId,
    /// The time that it is about.
    pub span: Span,
    /// What it costs.
    pub cost: u64,
}

/// A time that no member covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The time.
    pub span: Span,
    /// Raw turns in it.
    pub turns: usize,
    /// Chunks without children that begin in it: what is known about this time and not served.
    pub chunks: usize,
}

/// Something wrong with the chunks. None of them stops a turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Fault {
    /// Several chunks have this id; the first by time is taken.
    Duplicate {
        /// The id.
        id: NodeId,
    },
    /// It ends before it begins, so it is not served.
    BadSpan {
        /// The chunk.
        id: NodeId,
    },
    /// A child is not among the chunks; the chunk is not split.
    MissingChild {
        /// The chunk.
        id: NodeId,
        /// Its child.
        child: NodeId,
    },
    /// Chunks contain each other; the widest stands for all of them.
    Cycle {
        /// The widest.
        id: NodeId,
        /// All of them.
        of: Vec<NodeId>,
    },
    /// Several chunks have this child; it is served once.
    SharedChild {
        /// The child.
        id: NodeId,
        /// Whose child it is.
        of: Vec<NodeId>,
    },
}

/// Why less is served than could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "shortfall")]
pub enum Shortfall {
    /// The budget is zero.
    NoBudget,
    /// No chunk fits into the budget.
    BelowOneChunk {
        /// What the cheapest chunk costs that could be served.
        cheapest: u64,
    },
    /// Some chunks were dropped.
    Dropped {
        /// How many.
        chunks: usize,
    },
}

/// What was decided about a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The chunk.
    pub id: NodeId,
    /// The relevance of it and what it contains, from 0 to 8, 8 for the best.
    pub level: u8,
    /// What was decided.
    pub verdict: Verdict,
}

/// What was decided about a chunk, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is served.
    Chosen(Choice),
    /// Its children stand in its place.
    Split(SplitCause),
    /// Neither it nor its children are served.
    Dropped(Loss),
}

/// Why a chunk is served as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// It has no children.
    Leaf,
    /// It is among the most relevant, and was taken for the question.
    Question,
    /// Its children cost more than is left.
    ChildrenTooLarge,
    /// Its children do not cover all of it: one is missing or may not be served, or a raw turn would be uncovered.
    ChildrenIncomplete,
}

/// Why the children of a chunk stand in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitCause {
    /// What it contains is relevant.
    Relevance,
    /// It is the newest of what could be split.
    Recency,
    /// It is the widest of those.
    Width,
    /// A chunk in it was taken for the question.
    Question,
    /// It ends after the boundary.
    EndsAfterBoundary,
    /// It is larger than what is left.
    TooLarge,
    /// It may not be served.
    Excluded(Exclusion),
    /// It ends before it begins.
    BadSpan,
}

/// Why neither a chunk nor its children are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// It costs more than is left.
    OverBudget,
    /// It ends after the boundary.
    EndsAfterBoundary,
    /// It may not be served.
    Excluded(Exclusion),
    /// It ends before it begins.
    BadSpan,
    /// A member contains it.
    Contained,
}
