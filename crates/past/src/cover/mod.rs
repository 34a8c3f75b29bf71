//! Which summaries are served: from a forest of chunks, a budget, a boundary and a signal to an antichain. Pure: the same input
//! gives the same bytes, in whatever order the chunks are given.

mod forest;
mod item;
mod relevance;
mod render;
mod select;

pub use forest::Forest;
pub use item::{
    Choice, Cover, CoverAsk, CoverItem, Decision, Exclusion, Fault, Gap, Loss, Member, Shortfall, Span,
    SplitCause, Verdict,
};
pub use relevance::RelevanceIndex;
pub(crate) use relevance::stems;
pub(crate) use render::text as line_text;
pub use render::{Charge, CoverLine, frame_cost, line_cost, render};

/// The cover of these chunks. Who asks often about the same chunks keeps a [`Forest`].
#[must_use]
pub fn cover(items: Vec<CoverItem>, ask: &CoverAsk) -> Cover {
    Forest::new(items).cover(ask)
}

impl Forest {
    /// The cover for what is asked.
    #[must_use]
    pub fn cover(&self, ask: &CoverAsk) -> Cover {
        select::select(self, ask)
    }
}
