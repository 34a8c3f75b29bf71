//! A server on this machine's own network: streamable HTTP, each request for itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quipu_loopback::{BearerToken, LoopbackListener};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::ServeError;
use crate::handler::GraphServer;

/// The path of the server.
const PATH: &str = "/mcp";
/// Connections at once.
const CONNECTIONS: usize = 64;
/// Bytes of a request.
const BODY: usize = 1 << 20;
/// Bytes of the headers of a request, and how long a client may take to send them.
const HEADERS: usize = 32 << 10;
const HEADERS_TIME: Duration = Duration::from_secs(30);
/// How long an answer and what is around it may take.
const REQUEST_TIME: Duration = Duration::from_secs(90);

/// Who may ask.
#[derive(Debug, Clone)]
pub enum Access {
    /// Whoever sends the token.
    Token(BearerToken),
    /// Every program on this machine: for tests, and where something in front checks.
    Anyone,
}

type Service = StreamableHttpService<GraphServer, NeverSessionManager>;
type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves clients at `/mcp` of a listener on a loopback address until `stop` is cancelled. Each request stands for itself: a
/// client's roots are not asked for, so the scope is the directory of the server.
///
/// # Errors
/// `NotLoopback`; `Network` where the listener fails.
pub async fn serve_http(
    server: GraphServer,
    listener: TcpListener,
    access: Access,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let listener = LoopbackListener::new(listener)?;
    let hosts = listener.hosts();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_origins(hosts.iter().map(|host| format!("http://{host}")))
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
        .with_max_request_body_bytes(BODY)
        .with_cancellation_token(stop.child_token());
    let service = StreamableHttpService::new(
        move || Ok(server.for_another()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // A connection beyond the limit waits in the system's queue.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = stop.cancelled() => break,
        };
        let Ok(place) = place else { break };
        let Some(stream) = listener.accept(&stop).await else { break };
        while connections.try_join_next().is_some() {}
        let (service, access) = (service.clone(), access.clone());
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let (service, access) = (service.clone(), access.clone());
                async move { Ok::<_, Infallible>(answered(&service, &access, request).await) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIME)
                .max_buf_size(HEADERS)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    connections.shutdown().await;
    Ok(())
}

async fn answered(service: &Service, access: &Access, request: Request<Incoming>) -> Answer {
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "the server is at /mcp");
    }
    if let Access::Token(token) = access {
        let given = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        if !given.is_some_and(|given| token.is_sent_as(given)) {
            let mut answer = plain(StatusCode::UNAUTHORIZED, "a bearer token is missing, or is another one");
            answer.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
            return answer;
        }
    }
    match tokio::time::timeout(REQUEST_TIME, service.handle(request)).await {
        Ok(answer) => answer,
        Err(_) => plain(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
