//! The server on the loopback address.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quipu_loopback::{ListenError, LoopbackListener};
use quipu_store::StoreError;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::forward::Forwarder;
use crate::limits::ProxyLimits;
use crate::recorder::{ProxyCounts, Recorder, RecorderOptions};
use crate::upstream::{UpstreamError, Upstreams};

/// Bytes of the headers of a request.
const HEADERS: usize = 64 << 10;
/// How long what waits to be kept may take at the end.
const LAST: Duration = Duration::from_secs(5);
/// How often room is made for a connection that waits.
const ROOM: Duration = Duration::from_millis(50);
/// How often unread answers are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// How to serve.
pub struct ProxyOptions {
    /// Where requests go.
    pub upstreams: Upstreams,
    /// Who keeps conversations.
    pub recorder: RecorderOptions,
    /// What is at most.
    pub limits: ProxyLimits,
}

/// The proxy cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It would listen to other machines.
    #[error("{0} is not an address of this machine alone; use one such as 127.0.0.1:7700")]
    NotLoopback(SocketAddr),
    /// An upstream cannot be used.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The network failed.
    #[error("the network failed: {0}")]
    Network(#[from] std::io::Error),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ListenError> for ProxyError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NotLoopback(address) => Self::NotLoopback(address),
            ListenError::Network(error) => Self::Network(error),
        }
    }
}

/// Serves clients on a listener of a loopback address until `stop` is cancelled; what was kept then, and what was not.
///
/// # Errors
/// `NotLoopback`; `Upstream` where requests would come back; `Network` where the listener or the thread of the recorder fails.
pub async fn serve(
    options: ProxyOptions,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<ProxyCounts, ProxyError> {
    let listener = LoopbackListener::new(listener)?;
    let ProxyOptions { upstreams, recorder, limits } = options;
    upstreams.check(listener.address())?;
    let upstreams = Arc::new(upstreams);
    let recorder = Recorder::start(recorder, Arc::clone(&upstreams))?;
    let forwarder =
        Arc::new(Forwarder::new(upstreams, listener.hosts(), limits, recorder.handle(), stop.clone()));
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let mut open: Vec<Weak<Activity>> = Vec::new();
    loop {
        let Some(stream) = listener.accept(&stop).await else { break };
        while connections.try_join_next().is_some() {}
        let place = tokio::select! {
            place = place(&places, &mut open) => place,
            () = stop.cancelled() => break,
        };
        let Some(place) = place else { break };
        // Pieces of a stream go out as they come.
        drop(stream.set_nodelay(true));
        let forwarder = Arc::clone(&forwarder);
        let activity = Arc::new(Activity::new());
        open.push(Arc::downgrade(&activity));
        connections.spawn(async move {
            let shared = Arc::clone(&activity);
            let answer = service_fn(move |request| {
                let (forwarder, activity) = (Arc::clone(&forwarder), Arc::clone(&shared));
                async move { Ok::<_, Infallible>(forwarder.answered(request, activity).await) }
            });
            let serve = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.request)
                .max_buf_size(HEADERS)
                // The server's own, or none.
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::pin!(serve);
            loop {
                tokio::select! {
                    served = &mut serve => {
                        if let Err(error) = served {
                            tracing::debug!(%error, "a connection ended early");
                        }
                        break;
                    }
                    () = activity.is_left() => {
                        if !activity.was_used() {
                            break;
                        }
                        // A request that came just now is still answered.
                        serve.as_mut().graceful_shutdown();
                    }
                    () = tokio::time::sleep(LOOK.min(limits.unread)) => {
                        if activity.unread_for() >= limits.unread {
                            tracing::debug!("a client read nothing for too long");
                            break;
                        }
                    }
                }
            }
            drop(place);
        });
    }
    connections.shutdown().await;
    drop(forwarder);
    Ok(recorder.end(LAST).await)
}

/// A place for one more connection. Where there is none, the one that asked nothing for longest makes room.
async fn place(places: &Arc<Semaphore>, open: &mut Vec<Weak<Activity>>) -> Option<OwnedSemaphorePermit> {
    loop {
        open.retain(|activity| activity.strong_count() > 0);
        if places.available_permits() == 0 {
            let idle = open.iter().filter_map(Weak::upgrade).filter_map(|one| Some((one.idle_for()?, one)));
            if let Some((_, longest)) = idle.max_by_key(|(idle, _)| *idle) {
                longest.leave();
            }
        }
        let place = tokio::time::timeout(ROOM, Arc::clone(places).acquire_owned()).await;
        if let Ok(place) = place {
            return place.ok();
        }
    }
}
