//! A request whose answer is one body, and not a stream.

use std::time::Instant;

use bytes::Bytes;
use quipu_protocol::ModelError;
use reqwest::header::HeaderMap;

use crate::CallOptions;
use crate::access::Access;
use crate::call::{Failure, again, answered, network, silent, stalled, too_large};
use crate::credentials::CallOutcome;
use crate::failure::advice;
use crate::target::Target;

/// Sends `body` until it is answered, and `read` takes the answer, which is read whole. `read` complains in words that
/// follow the name of the server.
pub(crate) async fn exchange<T>(
    access: &Access,
    options: &CallOptions,
    body: Bytes,
    read: impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, ModelError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut failure = match exchanged(access, options, &body, &read).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        match again(options, attempts, &mut failure) {
            Some(delay) => tokio::time::sleep(delay).await,
            None => return Err(failure.error),
        }
    }
}

async fn exchanged<T>(
    access: &Access,
    options: &CallOptions,
    body: &Bytes,
    read: &impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, Failure> {
    let reached = access.reach(options).await?;
    let signed = access.signed(&reached, &reached.target.headers, body, options).await?;
    let (target, headers) = match &signed {
        Some((target, headers)) => (target, headers),
        None => (&*reached.target, &reached.target.headers),
    };
    let done = answer(target, headers, options, body, read).await;
    let error = done.as_ref().err().map(|failure| failure.error.kind);
    access.report(&reached.credential, CallOutcome::of(error)).await;
    done
}

async fn answer<T>(
    target: &Target,
    headers: &HeaderMap,
    options: &CallOptions,
    body: &Bytes,
    read: &impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, Failure> {
    let name = target.name();
    let (mut response, heard) = answered(target, options, headers, body, &mut None).await?;
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
