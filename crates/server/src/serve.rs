//! The server: connections, and its end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::access::Access;
use crate::answer::ApiError;
use crate::error::ServerError;
use crate::front::Front;
use crate::limits::{BEHIND, HEADERS};
use crate::listener::{ServerAddress, ServerListener, Stream};
use crate::options::ServerOptions;
use crate::routes;
use crate::stall::StallGuard;

/// Connections for which there is no place that still get an error, at most.
const REFUSALS: usize = 64;
/// How long such a connection may still send.
const REFUSED: Duration = Duration::from_secs(1);

/// Serves clients until `stop` is cancelled. Then nothing new is taken, what runs is aborted and recorded, and answers that are on
/// their way are finished, for as long as the limits allow.
///
/// # Errors
/// `NoToken` where everybody could ask at an address.
pub async fn serve(
    options: ServerOptions,
    listener: ServerListener,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let is_open = matches!(options.access, Access::Anyone);
    if is_open && matches!(listener.address(), ServerAddress::Loopback(_)) {
        return Err(ServerError::NoToken);
    }
    let limits = options.limits;
    let (tasks, kill) = (TaskTracker::new(), CancellationToken::new());
    let _kill = kill.clone().drop_guard();
    let front = Arc::new(Front::new(options, listener.hosts(), tasks.clone(), kill.clone(), stop.clone()));
    let conversing = {
        let front = front.clone();
        tokio::spawn(async move { front.conversations.run(&front.conversation_options, front.stop()).await })
    };
    let conversing = AbortOnDropHandle::new(conversing);
    let places = Arc::new(Semaphore::new(limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    while let Some(stream) = listener.accept(&stop).await {
        let work = match places.clone().try_acquire_owned() {
            Ok(place) => connection(front.clone(), stream, place),
            Err(_) => {
                let place = refusals.clone().try_acquire_owned().ok();
                tasks.spawn(kill.clone().run_until_cancelled_owned(refuse(stream, place)));
                continue;
            }
        };
        let kill = kill.clone();
        tasks.spawn(async move { kill.run_until_cancelled_owned(work).await });
    }
    // Nobody waits in vain for an answer.
    drop(listener);
    let (_, conversed) = tokio::join!(front.desk.shutdown(), conversing);
    if let Err(error) = conversed {
        tracing::error!(%error, "the runner of conversations ended early");
    }
    tasks.close();
    if tokio::time::timeout(limits.end, tasks.wait()).await.is_err() {
        kill.cancel();
        tasks.wait().await;
    }
    Ok(())
}

/// Tells a connection that there is no place for it. Where it has a place for that, what it still sends is read for a moment: a
/// connection that is closed before loses what it was told.
async fn refuse(mut stream: Box<dyn Stream>, place: Option<OwnedSemaphorePermit>) {
    let error =
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", "too many connections");
    let body = error.body().to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
        Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // A new connection has room for it.
    let is_told = tokio::select! {
        biased;
        told = stream.write_all(answer.as_bytes()) => told.is_ok(),
        () = std::future::ready(()) => false,
    };
    if place.is_none() || !is_told || stream.shutdown().await.is_err() {
        return;
    }
    drop(tokio::time::timeout(REFUSED, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await);
}

async fn connection(front: Arc<Front>, stream: Box<dyn Stream>, place: OwnedSemaphorePermit) {
    let (limits, stop) = (*front.limits(), front.stop().clone());
    let answer = service_fn(move |request| {
        let front = front.clone();
        async move { Ok::<Response<_>, Infallible>(routes::answered(front, request).await) }
    });
    let stream = StallGuard::new(stream, limits.stalled + BEHIND);
    let serve = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    let mut serve = std::pin::pin!(serve);
    let served = tokio::select! {
        served = &mut serve => served,
        () = stop.cancelled() => {
            serve.as_mut().graceful_shutdown();
            serve.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
    drop(place);
}
