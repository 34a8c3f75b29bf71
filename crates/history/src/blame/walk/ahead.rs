//! What the store reads while other things are looked at: states of a file, and the answers whose calls made them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use quipu_protocol::{ChunkId, Entry, NodeId};
use quipu_store::{Fut, Graph, SeriesChunk, StoreError};

use super::TOGETHER_BYTES;

/// States that are read, or will be when somebody waits for them.
pub(super) struct StatePrefetch<'a> {
    pub(super) ids: Vec<ChunkId>,
    pub(super) reading: PendingRead<'a, Vec<Option<SeriesChunk>>>,
}

impl<'a> StatePrefetch<'a> {
    pub(super) fn new(store: &'a dyn Graph, ids: Vec<ChunkId>) -> Self {
        let wanted = ids.clone();
        let reading = Box::pin(async move { store.chunk_series(&wanted, TOGETHER_BYTES).await });
        Self { ids, reading: PendingRead::Under(reading) }
    }
}

/// Answers that are read, or will be when somebody waits for them.
pub(super) struct AnswerPrefetch<'a> {
    pub(super) ids: Vec<NodeId>,
    pub(super) reading: PendingRead<'a, Vec<(NodeId, Entry)>>,
}

impl<'a> AnswerPrefetch<'a> {
    pub(super) fn new(store: &'a dyn Graph, ids: Vec<NodeId>) -> Self {
        let wanted = ids.clone();
        let reading = Box::pin(async move {
            let nodes = store.nodes(&wanted).await?.into_iter().flatten().collect();
            let decoded = store.decoded(nodes).await?;
            Ok(decoded.into_iter().map(|(node, decoded)| (node.id, decoded.entry)).collect())
        });
        Self { ids, reading: PendingRead::Under(reading) }
    }
}

/// Two reads at once.
pub(super) async fn both<A: Default + Unpin, B: Default + Unpin>(
    a: Fut<'_, A>,
    b: Fut<'_, B>,
) -> Result<(A, B), StoreError> {
    let (mut a, mut b) = (PendingRead::Under(a), PendingRead::Under(b));
    poll_fn(|context| {
        a.proceed(context);
        b.proceed(context);
        if matches!((&a, &b), (PendingRead::Done(_), PendingRead::Done(_))) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    Ok((a.await?, b.await?))
}

/// A read under way, or its result.
pub(super) enum PendingRead<'a, T> {
    Under(Fut<'a, T>),
    Done(Result<T, StoreError>),
}

impl<T> PendingRead<'_, T> {
    /// Lets the store begin, or go on with the next step, without waiting.
    pub(super) fn advance(&mut self) {
        // Whoever waits later leaves a waker of its own.
        self.proceed(&mut Context::from_waker(Waker::noop()));
    }

    fn proceed(&mut self, context: &mut Context<'_>) {
        if let Self::Under(reading) = self
            && let Poll::Ready(found) = reading.as_mut().poll(context)
        {
            *self = Self::Done(found);
        }
    }
}

impl<T: Default + Unpin> Future for PendingRead<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Under(reading) => reading.as_mut().poll(context),
            Self::Done(found) => Poll::Ready(std::mem::replace(found, Ok(T::default()))),
        }
    }
}
