//! States of a file that the store reads while others are looked at.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use quipu_protocol::ChunkId;
use quipu_store::{Fut, Graph, StoreError};

use super::TOGETHER_BYTES;

type Found = Vec<Option<Arc<[u8]>>>;

/// A read under way.
pub(super) struct ReadAhead<'a> {
    pub(super) ids: Vec<ChunkId>,
    pub(super) reading: Reading<'a>,
}

/// What is read, or will be when somebody waits for it.
pub(super) enum Reading<'a> {
    Under(Fut<'a, Found>),
    Done(Result<Found, StoreError>),
}

impl<'a> ReadAhead<'a> {
    pub(super) fn new(store: &'a dyn Graph, ids: Vec<ChunkId>) -> Self {
        let wanted = ids.clone();
        let reading = Box::pin(async move { store.chunks(&wanted, TOGETHER_BYTES).await });
        Self { ids, reading: Reading::Under(reading) }
    }

    /// Lets the store begin, without waiting.
    pub(super) fn begin(&mut self) {
        if let Reading::Under(reading) = &mut self.reading {
            // Whoever waits later leaves a waker of its own.
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(found) = reading.as_mut().poll(&mut context) {
                self.reading = Reading::Done(found);
            }
        }
    }
}

impl Future for Reading<'_> {
    type Output = Result<Found, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Under(reading) => reading.as_mut().poll(context),
            Self::Done(found) => Poll::Ready(std::mem::replace(found, Ok(Vec::new()))),
        }
    }
}
