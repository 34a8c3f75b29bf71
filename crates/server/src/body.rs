//! Bodies of requests, a piece at a time.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use crate::answer::ApiError;

/// A body that is read, at most so many bytes of it.
pub(crate) struct RequestBody {
    body: Incoming,
    left: usize,
    most: usize,
    patience: Duration,
}

impl RequestBody {
    /// # Errors
    /// One that says that it is longer is not read at all.
    pub(crate) fn new(body: Incoming, most: usize, patience: Duration) -> Result<Self, ApiError> {
        if usize::try_from(body.size_hint().lower()).is_ok_and(|length| length <= most) {
            return Ok(Self { body, left: most, most, patience });
        }
        Err(too_large(most))
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = match tokio::time::timeout(self.patience, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(ApiError::invalid("the body of the request broke off")),
                Err(_) => {
                    let message = "the body of the request came too slowly";
                    return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message));
                }
            };
            let Ok(piece) = frame.into_data() else { continue };
            self.left = self.left.checked_sub(piece.len()).ok_or_else(|| too_large(self.most))?;
            return Ok(Some(piece));
        }
    }

    /// All of it.
    pub(crate) async fn whole(mut self) -> Result<Vec<u8>, ApiError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }
}

/// Refuses JSON that is no object: a list of what the members would be counts as one otherwise.
pub(crate) fn check_object(body: &[u8]) -> Result<(), ApiError> {
    match body.trim_ascii_start().first() {
        Some(b'{') | None => Ok(()),
        Some(_) => Err(ApiError::invalid("the body must be a JSON object")),
    }
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body of the request has more than {} MiB", most >> 20);
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}
