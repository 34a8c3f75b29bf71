//! States of a file that the store reads while others are looked at.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quipu_protocol::ChunkId;
use quipu_store::{Fut, Graph, StoreError};

use super::TOGETHER_BYTES;

type ChunkList = Vec<Option<Arc<[u8]>>>;

/// A read under way.
pub(super) struct StatePrefetch<'a> {
    pub(super) ids: Vec<ChunkId>,
    pub(super) reading: PendingRead<'a>,
}

/// What is read, or will be when somebody waits for it.
pub(super) enum PendingRead<'a> {
    Under(Fut<'a, ChunkList>),
    Done(Result<ChunkList, StoreError>),
}

impl<'a> StatePrefetch<'a> {
    pub(super) fn new(store: &'a dyn Graph, ids: Vec<ChunkId>) -> Self {
        let wanted = ids.clone();
        let reading = Box::pin(async move { store.chunks(&wanted, TOGETHER_BYTES).await });
        Self { ids, reading: PendingRead::Under(reading) }
    }

    /// Lets the store begin, without waiting.
    pub(super) fn begin(&mut self) {
        if let PendingRead::Under(reading) = &mut self.reading {
            // Whoever waits later leaves a waker of its own.
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(found) = reading.as_mut().poll(&mut context) {
                self.reading = PendingRead::Done(found);
            }
        }
    }
}

impl Future for PendingRead<'_> {
    type Output = Result<ChunkList, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Under(reading) => reading.as_mut().poll(context),
            Self::Done(found) => Poll::Ready(std::mem::replace(found, Ok(Vec::new()))),
        }
    }
}
