//! Nodes of a session, a page at a time: none is in memory as a whole.

use quipu_protocol::NodeId;
use quipu_store::{Graph, Piece, ReadParts, Seq, StoreError};

/// Nodes that are read at once, and bytes of their parts.
pub(crate) const PAGE: usize = 512;
const PAGE_BYTES: usize = 4 << 20;

/// The nodes below one, up to another, in their order.
pub(crate) struct Pages<'a> {
    store: &'a dyn Graph,
    seqs: Vec<Seq>,
    read: usize,
}

impl<'a> Pages<'a> {
    pub(crate) async fn below(store: &'a dyn Graph, base: NodeId, head: NodeId) -> Result<Self, StoreError> {
        Ok(Self { store, seqs: store.below(base, &[head]).await?, read: 0 })
    }

    /// Whether there are none left.
    pub(crate) fn is_empty(&self) -> bool {
        self.read >= self.seqs.len()
    }

    /// The next ones; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, StoreError> {
        let rest = self.seqs.get(self.read..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let page = &rest[..rest.len().min(PAGE)];
        let piece = self.store.written(page, ReadParts::All, PAGE_BYTES).await?;
        self.read += piece.read.max(1);
        Ok(Some(piece))
    }
}
