//! The body of an answer on its way to the client, of which a copy is kept for the record.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::exchange::{AnswerEnd, Exchange};
use crate::recorder::RecorderHandle;

/// What the client gets.
pub(crate) type AnswerBody = BoxBody<Bytes, std::io::Error>;

/// Room is counted in pieces of this many bytes.
pub(crate) const PIECE: usize = 64 << 10;

/// A body that is there at once.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// An exchange under way: handed over when it ends, however that is.
pub(crate) struct Recording {
    exchange: Option<Exchange>,
    recorder: RecorderHandle,
    begun: Instant,
    stop: CancellationToken,
}

impl Recording {
    pub(crate) fn new(
        exchange: Exchange,
        recorder: RecorderHandle,
        begun: Instant,
        stop: CancellationToken,
    ) -> Self {
        Self { exchange: Some(exchange), recorder, begun, stop }
    }

    /// The answer began.
    pub(crate) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        if let Some(exchange) = &mut self.exchange {
            (exchange.status, exchange.answer_headers) = (Some(status), headers.clone());
        }
    }

    pub(crate) fn finish(&mut self, end: AnswerEnd) {
        let Some(mut exchange) = self.exchange.take() else { return };
        exchange.duration_ms = millis(self.begun);
        if exchange.end != AnswerEnd::TooLarge {
            let is_stopped = end == AnswerEnd::Aborted && self.stop.is_cancelled();
            exchange.end = if is_stopped { AnswerEnd::Stopped } else { end };
        }
        self.recorder.keep(exchange);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish(AnswerEnd::Aborted);
    }
}

/// Passes on each piece as it comes.
pub(crate) struct Tee {
    inner: reqwest::Body,
    /// `None` where nothing is kept, or it was handed over.
    recording: Option<Recording>,
    kept: usize,
    /// Bytes of answers that there is room for.
    taken: usize,
    limit: usize,
    room: Arc<Semaphore>,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
    activity: Arc<Activity>,
}

impl Tee {
    pub(crate) fn new(
        inner: reqwest::Body,
        recording: Option<Recording>,
        (limit, room): (usize, Arc<Semaphore>),
        silence: Duration,
        activity: Arc<Activity>,
    ) -> Self {
        let deadline = Box::pin(tokio::time::sleep(silence));
        Self { inner, recording, kept: 0, taken: 0, limit, room, silence, deadline, activity }
    }

    /// Keeps a copy of a piece, while there is room.
    fn copy(&mut self, bytes: &Bytes) {
        let Some(Recording { exchange: Some(exchange), begun, .. }) = &mut self.recording else { return };
        exchange.first_ms.get_or_insert_with(|| millis(*begun));
        if exchange.end == AnswerEnd::TooLarge {
            return;
        }
        self.kept += bytes.len();
        let mut has_room = self.kept <= self.limit;
        if has_room && self.kept > self.taken {
            let pieces = (self.kept - self.taken).div_ceil(PIECE);
            let more = u32::try_from(pieces).ok();
            match more.and_then(|more| Arc::clone(&self.room).try_acquire_many_owned(more).ok()) {
                Some(more) => {
                    self.taken += pieces * PIECE;
                    match &mut exchange.room {
                        Some(room) => room.merge(more),
                        None => exchange.room = Some(more),
                    }
                }
                None => has_room = false,
            }
        }
        if has_room {
            exchange.answer.push(bytes.clone());
        } else {
            (exchange.end, exchange.answer) = (AnswerEnd::TooLarge, Vec::new());
            // The room of the request stays taken until it is kept; that of the answer is free at once.
            drop(exchange.room.as_mut().and_then(|room| room.split(self.taken / PIECE)));
            self.taken = 0;
        }
    }

    fn finish(&mut self, end: AnswerEnd) {
        if let Some(mut recording) = self.recording.take() {
            recording.finish(end);
        }
    }
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Body for Tee {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        this.activity.reads();
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let deadline = tokio::time::Instant::now() + this.silence;
                this.deadline.as_mut().reset(deadline);
                if let Some(bytes) = frame.data_ref() {
                    this.copy(bytes);
                }
                this.activity.waits();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.finish(AnswerEnd::Broken);
                let error = quipu_providers::net::describe(&error);
                tracing::debug!(%error, "an answer broke off");
                Poll::Ready(Some(Err(std::io::Error::other(error))))
            }
            Poll::Ready(None) => {
                this.finish(AnswerEnd::Whole);
                Poll::Ready(None)
            }
            Poll::Pending => match this.deadline.as_mut().poll(context) {
                Poll::Ready(()) => {
                    this.finish(AnswerEnd::Broken);
                    let text = format!("the server was silent for {} s", this.silence.as_secs());
                    Poll::Ready(Some(Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))))
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        // The end has to be seen, so that the exchange is handed over.
        self.recording.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        let end = if self.inner.is_end_stream() { AnswerEnd::Whole } else { AnswerEnd::Aborted };
        self.finish(end);
        self.activity.reads();
        self.activity.ends();
    }
}
