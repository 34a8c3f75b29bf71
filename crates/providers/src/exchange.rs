//! A request whose answer is one body, and not a stream.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quipu_protocol::ModelError;

use crate::CallOptions;
use crate::access::{Access, ResolvedAccess};
use crate::call::{AttemptRequest, Failure, again, answered, network, silent, stalled, too_large};
use crate::credentials::{CallOutcome, Credential};
use crate::failure::advice;

/// Sends `body` until it is answered, and `read` takes the answer, which is read whole. `read` complains in words that
/// follow the name of the server.
pub(crate) async fn exchange<T>(
    access: &Access,
    options: &CallOptions,
    body: Bytes,
    read: impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, ModelError> {
    let mut attempts: usize = 0;
    // Those that were refused, and the way that comes after them.
    let mut used: Vec<Arc<Credential>> = Vec::new();
    let mut next: Option<ResolvedAccess> = None;
    loop {
        attempts += 1;
        let reached = match next.take() {
            Some(reached) => reached,
            None => access.reach(options).await?,
        };
        let mut failure = match exchanged(access, &reached, options, &body, &read).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let outcome = CallOutcome::of(Some(failure.error.kind));
        if outcome.is_refusal() {
            if !used.iter().any(|known| Arc::ptr_eq(known, &reached.credential)) {
                used.push(reached.credential.clone());
            }
            match access.another(&used, outcome, options).await {
                Ok(Some(other)) => {
                    // The bytes are sent with another credential, which is no retry.
                    attempts -= 1;
                    next = Some(other);
                    continue;
                }
                Ok(None) => {}
                Err(problem) => {
                    let detail = ModelError::from(problem).message;
                    failure.error.message = format!("{} {detail}", failure.error.message);
                }
            }
        }
        match again(options, attempts, &mut failure) {
            Some(delay) => tokio::time::sleep(delay).await,
            None => return Err(failure.error),
        }
    }
}

async fn exchanged<T>(
    access: &Access,
    reached: &ResolvedAccess,
    options: &CallOptions,
    body: &Bytes,
    read: &impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, Failure> {
    let signed = access.signed(reached, &reached.target.headers, body, options).await?;
    let (target, headers) = match &signed {
        Some((target, headers)) => (target, headers),
        None => (&*reached.target, &reached.target.headers),
    };
    let outgoing = AttemptRequest { target, headers, body, heads: None };
    let done = answer(&outgoing, options, read).await;
    let error = done.as_ref().err().map(|failure| failure.error.kind);
    access.report(&reached.credential, CallOutcome::of(error)).await;
    done
}

async fn answer<T>(
    outgoing: &AttemptRequest<'_>,
    options: &CallOptions,
    read: &impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, Failure> {
    let name = outgoing.target.name();
    let (mut response, heard) = answered(outgoing, options, &mut None).await?;
    let mut answer = Vec::new();
    let began = Instant::now();
    loop {
        let left = options.longest_stall().saturating_sub(began.elapsed());
        match tokio::time::timeout(options.idle_timeout.min(left), response.chunk()).await {
            Ok(Ok(None)) => break,
            Ok(Ok(Some(chunk))) => answer.extend_from_slice(&chunk),
            Ok(Err(error)) => return Err(heard.complete(network(&name, &error)).into()),
            Err(_) if left <= options.idle_timeout => {
                return Err(heard.complete(stalled(&name, options)).into());
            }
            Err(_) => return Err(heard.complete(silent(&name, options)).into()),
        }
        if answer.len() as u64 > options.max_reply_bytes {
            return Err(heard.complete(too_large(&name, options)).into());
        }
    }
    read(&answer).map_err(|mut error| {
        error.message = format!("{name} {}.{}", error.message.trim_end_matches('.'), advice(error.kind));
        heard.complete(error).into()
    })
}
