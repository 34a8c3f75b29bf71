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
use tokio::time::Sleep;

use crate::exchange::{AnswerEnd, Exchange};
use crate::recorder::RecorderHandle;
use crate::server::Activity;

/// What the client gets.
pub(crate) type AnswerBody = BoxBody<Bytes, std::io::Error>;

/// A body that is there at once.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// An exchange under way: handed over when it ends, however that is.
pub(crate) struct Recording {
    exchange: Option<Exchange>,
    recorder: RecorderHandle,
    begun: Instant,
}

impl Recording {
    pub(crate) fn new(exchange: Exchange, recorder: RecorderHandle, begun: Instant) -> Self {
        Self { exchange: Some(exchange), recorder, begun }
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
            exchange.end = end;
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
    limit: usize,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
    activity: Arc<Activity>,
}

impl Tee {
    pub(crate) fn new(
        inner: reqwest::Body,
        recording: Option<Recording>,
        limit: usize,
        silence: Duration,
        activity: Arc<Activity>,
    ) -> Self {
        let deadline = Box::pin(tokio::time::sleep(silence));
        Self { inner, recording, kept: 0, limit, silence, deadline, activity }
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
                if let Some(bytes) = frame.data_ref()
                    && let Some(Recording { exchange: Some(exchange), begun, .. }) = &mut this.recording
                {
                    exchange.first_ms.get_or_insert_with(|| millis(*begun));
                    this.kept += bytes.len();
                    if this.kept <= this.limit {
                        exchange.answer.push(bytes.clone());
                    } else {
                        exchange.end = AnswerEnd::TooLarge;
                    }
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
    }
}
