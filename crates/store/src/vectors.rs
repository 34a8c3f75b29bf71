//! Finding nodes by what they mean: vectors of texts, which somebody else makes.

use quipu_protocol::NodeId;

use crate::{Fut, Hit, SearchQuery};

/// Of the newest so many nodes vectors are kept and compared.
pub const VECTOR_NODES: u64 = 100_000;
/// Bytes of a node's text that its vector is made of at most; the rest of a longer one does not count.
pub const VECTOR_TEXT: usize = 8_000;

/// A store that keeps vectors beside its nodes, of one model at a time. They are derived: made again when they are gone.
pub trait Vectors: Send + Sync + 'static {
    /// At most so many texts of the newest [`VECTOR_NODES`] nodes that have no vector of `model` yet, new ones and then
    /// the newest first: what users, models and summaries said, without calls and results of tools. Also a batch without
    /// texts is to be kept, unless it [is done](EmbeddingBatch::is_done): nodes were looked at that say nothing.
    fn without_vectors<'a>(&'a self, model: &'a str, most: usize) -> Fut<'a, EmbeddingBatch>;

    /// Keeps the vectors of all texts of `batch`, in their order; vectors of another model go.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`; `Missing` when there are fewer vectors than texts.
    fn keep_vectors<'a>(
        &'a self,
        model: &'a str,
        batch: &'a EmbeddingBatch,
        vectors: &'a [Vec<f32>],
    ) -> Fut<'a, ()>;

    /// The nodes whose vectors point most nearly the same way as `vector` (by their cosine, above 0), the nearest first:
    /// at most [`RANKED`](crate::RANKED). Of `query` its conditions hold; words, order and limits do not.
    fn nearest<'a>(&'a self, query: SearchQuery, model: &'a str, vector: &'a [f32]) -> Fut<'a, VectorHits>;
}

/// A batch of texts that have no vector yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmbeddingBatch {
    /// The texts with their nodes.
    pub texts: Vec<(NodeId, String)>,
    /// Nodes that have still to be looked at when these are done.
    pub left: u64,
    /// The row of each node.
    pub(crate) rows: Vec<i64>,
    /// Which rows were done before this batch, and which will be: after the first, up to the second.
    pub(crate) before: Option<(i64, i64)>,
    pub(crate) after: (i64, i64),
}

impl EmbeddingBatch {
    /// Whether nothing was looked at, so that there is nothing to keep.
    pub fn is_done(&self) -> bool {
        self.texts.is_empty() && self.before.is_none_or(|before| before == self.after)
    }
}

/// The nearest nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VectorHits {
    /// The nearest first; `score` is the cosine.
    pub hits: Vec<Hit>,
    /// Whether the search was ended before everything was looked at: hits that are less near may be missing.
    pub cut: bool,
    /// Nodes whose texts were not compared, since they were not looked at yet.
    pub left: u64,
}
