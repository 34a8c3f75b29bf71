//! A request whose answer is one body, and not a stream.

use std::time::Instant;

use bytes::Bytes;
use quipu_protocol::ModelError;

use crate::CallOptions;
use crate::call::{Failure, Target, again, answered, network, silent, stalled, too_large};
use crate::failure::advice;

/// Sends `body` until it is answered, and `read` takes the answer, which is read whole. `read` complains in words that
/// follow the name of the server.
pub(crate) async fn exchange<T>(
    target: &Target,
    options: &CallOptions,
    body: Bytes,
    read: impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, ModelError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut failure = match exchanged(target, options, &body, &read).await {
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
    target: &Target,
    options: &CallOptions,
    body: &Bytes,
    read: &impl Fn(&[u8]) -> Result<T, ModelError>,
) -> Result<T, Failure> {
    let name = target.name();
    let (mut response, heard) = answered(target, options, &target.headers, body, &mut None).await?;
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
