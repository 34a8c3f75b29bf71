//! The core of a store: what a database must do so that an engine can stand on it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, NodeId, SessionId};

use crate::{
    ActionQuery, Commit, Edge, Fence, Head, HiddenSnapshot, LineageEnd, LoggedAction, OpenWork, Owner,
    RefName, Reservation, ReserveRequest, SeriesChunk, StoreError,
};

/// What every operation returns. Runs on any executor: the work is done by threads of the store.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Bytes of one chunk at most: 1 GiB.
pub const CHUNK_LIMIT: u64 = 1 << 30;
/// Bytes of one blob's content at most: 512 MiB.
pub const BLOB_LIMIT: u64 = 512 << 20;

/// A graph of nodes with refs into it, and what a crash must not lose: all that the engine's promises stand on. `docs/store.md`
/// says what each method promises; the conformance suite checks it for every implementation.
///
/// Dropping a future may stop a read; a write that was queued is finished.
pub trait Store: Send + Sync + 'static {
    /// Writes all of `batch` or nothing, in one transaction. Resolved = durable as asked.
    ///
    /// # Errors
    /// `Conflict`, `Fenced`, `Missing` (a parent, part, ref target or inbox item that does not exist),
    /// `TooLarge`, `Busy`, `Full`, `ReadOnly`, `Corrupt`, `Io`.
    fn commit(&self, batch: Commit) -> Fut<'_, ()>;

    /// Where a ref stands.
    fn head<'a>(&'a self, name: &'a RefName) -> Fut<'a, Option<NodeId>>;

    /// All refs whose names begin with `prefix`, by name.
    fn heads<'a>(&'a self, prefix: &'a str) -> Fut<'a, Vec<Head>>;

    /// The nodes, one for each id, in the order asked.
    fn nodes<'a>(&'a self, ids: &'a [NodeId]) -> Fut<'a, Vec<Option<Node>>>;

    /// The blobs, one for each id, in the order asked.
    fn blobs<'a>(&'a self, ids: &'a [BlobId]) -> Fut<'a, Vec<Option<Blob>>>;

    /// Bytes of a chunk; the range is cut to its size, `0..u64::MAX` is all of it. What is returned was checked
    /// against the chunk's id (or, in a large chunk, the ids of the pieces that were read).
    ///
    /// # Errors
    /// `Missing` when there is no such chunk, `Corrupt` when its bytes do not match its id.
    fn chunk(&self, id: ChunkId, bytes: Range<u64>) -> Fut<'_, Vec<u8>>;

    /// Whole chunks, each checked against its id: of the first at most as many as have `most` bytes together, one at least, and
    /// fewer where the next ones are cheaper to read by themselves. `None` for one that cannot be read;
    /// [`chunk`](Self::chunk) says why. Made for states of one file, the newest first: each is a small difference to the next,
    /// and is given as one.
    ///
    /// # Errors
    /// What concerns the whole store.
    fn chunk_series<'a>(&'a self, ids: &'a [ChunkId], most: u64) -> Fut<'a, Vec<Option<SeriesChunk>>> {
        Box::pin(async move {
            let (mut found, mut left) = (Vec::new(), most);
            for id in ids {
                let bytes = match self.chunk(*id, 0..u64::MAX).await {
                    Ok(bytes) => Some(bytes),
                    Err(
                        StoreError::Missing { .. } | StoreError::Erased { .. } | StoreError::Corrupt { .. },
                    ) => None,
                    Err(error) => return Err(error),
                };
                let size = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                if size > left && !found.is_empty() {
                    break;
                }
                left = left.saturating_sub(size);
                found.push(bytes.map(|bytes| SeriesChunk::Whole(bytes.into())));
            }
            Ok(found)
        })
    }

    /// The nodes from `until` down to `from`, oldest first, `from` last. A missing parent ends it like a root.
    ///
    /// # Errors
    /// `Missing` when `from` is not there, or `LineageEnd::Node` names a node that is not one of its ancestors.
    fn lineage(&self, from: NodeId, until: LineageEnd) -> Fut<'_, Vec<Node>>;

    /// The direct children of each node, in the order in which they were written.
    fn children<'a>(&'a self, of: &'a [NodeId]) -> Fut<'a, Vec<Edge>>;

    /// The action log, newest first.
    fn actions(&self, query: ActionQuery) -> Fut<'_, Vec<LoggedAction>>;

    /// Takes, or renews, the lease on a ref for `ttl`; `Duration::ZERO` gives it back. Each new holder gets a
    /// higher fence. Moves that carry a fence fail once somebody else has the lease.
    ///
    /// # Errors
    /// `Fenced` while somebody else holds it.
    fn lease<'a>(&'a self, name: &'a RefName, owner: &'a Owner, ttl: Duration) -> Fut<'a, Fence>;

    /// What a session left open: queued inputs, steps that began, a jump that is not over.
    fn pending<'a>(&'a self, session: &'a SessionId) -> Fut<'a, OpenWork>;

    /// The sessions that have queued inputs and whose names begin with this, by name.
    fn inboxes<'a>(&'a self, beginning: &'a str) -> Fut<'a, Vec<SessionId>>;

    /// Reserves what a call may cost at most, unless that, what was spent and what others have reserved are more than the
    /// limit together. Looked at and written in one transaction, so that no two processes are given the same money. What
    /// is reserved counts until [`Op::Release`](crate::Op::Release); or [`Op::Spend`](crate::Op::Spend);
    /// where nobody renews it ([`Op::Renew`](crate::Op::Renew)) it counts as spent.
    fn reserve(&self, ask: ReserveRequest) -> Fut<'_, Reservation>;

    /// Resolves after the next commit to the store, by this process or (within about a quarter of a second) by
    /// another. May resolve once when nothing has changed.
    fn changed(&self) -> Fut<'_, ()>;

    /// What nobody is shown any more now, though the graph keeps it. Asked once for all nodes of a request or a view.
    fn hidden(&self) -> HiddenSnapshot {
        HiddenSnapshot::default()
    }
}
