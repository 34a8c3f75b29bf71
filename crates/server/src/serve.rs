//! The server: connections, and its end.

use std::convert::Infallible;
use std::sync::Arc;

use http::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::access::Access;
use crate::error::ServerError;
use crate::front::Front;
use crate::limits::{BEHIND, HEADERS};
use crate::listener::{ServerAddress, ServerListener, Stream};
use crate::options::ServerOptions;
use crate::routes;
use crate::stall::StallGuard;

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
    while let Some(stream) = listener.accept(&stop).await {
        let work = match places.clone().try_acquire_owned() {
            Ok(place) => connection(front.clone(), stream, place),
            Err(_) => {
                refuse(stream).await;
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

/// Tells a connection that there is no place for it. Waits for nothing.
async fn refuse(mut stream: Box<dyn Stream>) {
    const FULL: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n\
        Connection: close\r\n\r\ntoo many connections\n";
    let said = stream.write_all(FULL);
    // A new connection has room for it.
    tokio::select! {
        biased;
        said = said => drop(said),
        () = std::future::ready(()) => {}
    }
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
