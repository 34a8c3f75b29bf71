//! A server on the network: each message is a request, and answers come as JSON or as a stream of events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use quipu_providers::net::{self, LocalRoute};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, SharedState, Transport};
use crate::error::{ConfigError, ConnectError, RequestError};
use crate::events::{EventDecoder, EventError};
use crate::limits::MESSAGE_BYTES;
use crate::oauth::{OauthTokens, TokenStore};
use crate::visible::one_line;

/// How long a server may take to begin an answer that is no stream.
const HEAD: Duration = Duration::from_secs(120);
/// How long a server may take to open a stream of its own.
const LISTEN: Duration = Duration::from_secs(2);
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// The wait before a stream is continued, where the server says nothing else.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Streams in a row that end without a message before one is given up.
const STREAMS: u32 = 8;
/// Bytes of the body of a refusal that are read.
const REFUSAL: usize = 4 << 10;
/// Bytes of a name that a server gives a session or an event.
const ID_BYTES: usize = 1 << 10;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Connects to a server. Nothing is sent yet.
pub(crate) fn connect(
    url: &str,
    headers: &BTreeMap<String, String>,
    tokens: Option<Arc<dyn TokenStore>>,
    roots: Vec<String>,
) -> Result<Client, ConnectError> {
    let (shared, requests) = SharedState::new();
    let inner = Arc::new(Inner {
        url: checked(url)?,
        headers: header_map(headers)?,
        shared: shared.clone(),
        tokens,
        agreement: Mutex::default(),
        renewing: tokio::sync::Mutex::default(),
        ended: CancellationToken::new(),
    });
    let transport = Network { inner, listener: Mutex::new(JoinSet::new()) };
    Ok(Client::over((shared, requests), Box::new(transport), roots))
}

/// Whether a server can be called at an address.
///
/// # Errors
/// Why it cannot.
pub fn check_url(url: &str) -> Result<(), ConfigError> {
    checked(url).map(drop)
}

fn checked(url: &str) -> Result<Url, ConfigError> {
    let failed = |why: &str| ConfigError::Member { member: "url".into(), why: why.to_owned() };
    let parsed = Url::parse(url).map_err(|error| failed(&error.to_string()))?;
    let host = parsed.host_str().unwrap_or_default();
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(failed("it must not hold a name or a password; use `headers`"));
    }
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if net::is_loopback(host) => Ok(parsed),
        "http" => Err(failed("it must begin with https://, except for a server on this machine")),
        _ => Err(failed("it must begin with https://")),
    }
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap, ConfigError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let failed =
            |why: &str| ConfigError::Member { member: format!("headers.{name}"), why: why.to_owned() };
        let key: HeaderName = name.parse().map_err(|_| failed("it is no name of a header"))?;
        let mut value: HeaderValue = value.parse().map_err(|_| failed("its value is none of a header"))?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

/// What server and client agreed on.
#[derive(Default)]
struct Agreement {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

struct Inner {
    url: Url,
    headers: HeaderMap,
    shared: Arc<SharedState>,
    /// Where the login of the server is kept.
    tokens: Option<Arc<dyn TokenStore>>,
    agreement: Mutex<Agreement>,
    renewing: tokio::sync::Mutex<()>,
    ended: CancellationToken,
}

struct Network {
    inner: Arc<Inner>,
    /// Reads what the server sends without being asked.
    listener: Mutex<JoinSet<()>>,
}

impl Transport for Network {
    fn send(&self, message: String, request: Option<u64>) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(self.inner.post(message, request))
    }

    fn agreed(&self, version: &str) {
        self.inner.agreement().version = HeaderValue::from_str(version).ok();
    }

    fn listen(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let follow = Follow { last: None, retry: RETRY, request: None };
            let opened = match self.inner.request(Method::GET) {
                Ok(get) => {
                    let get = get.header("accept", "text/event-stream");
                    tokio::time::timeout(LISTEN, self.inner.sent(get)).await
                }
                Err(error) => Ok(Err(error)),
            };
            // A server need not have such a stream.
            let Ok(Ok(response)) = opened else { return };
            let inner = self.inner.clone();
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            listener.spawn(async move {
                if let Err(error) = inner.follow_from(response, follow).await {
                    tracing::debug!(%error, "the stream of a server ended");
                }
            });
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.ended.cancel();
            if self.inner.agreement().session.is_some()
                && let Ok(request) = self.inner.request(Method::DELETE)
            {
                // A server that cannot be told forgets it by itself.
                drop(tokio::time::timeout(GOODBYE, request.send()).await);
            }
        })
    }
}

/// A stream to be read, or continued.
struct Follow {
    last: Option<String>,
    retry: Duration,
    /// The request whose answer it brings; `None` for one without an end.
    request: Option<u64>,
}

impl Inner {
    fn agreement(&self) -> MutexGuard<'_, Agreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The login for the address, where there is one that it may have.
    fn login(&self) -> Option<OauthTokens> {
        let tokens = self.tokens.as_ref()?.tokens(self.url.as_str())?;
        tokens.is_for(&self.url).then_some(tokens)
    }

    /// Has another access token; whether there is one now. `used` is the one that the server refused.
    async fn renew(&self, used: &str) -> bool {
        let _one_at_a_time = self.renewing.lock().await;
        let Some(tokens) = self.login() else { return false };
        if tokens.access != used {
            return true;
        }
        let renewed = match tokens.refreshed().await {
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::debug!(%error, "a login was not renewed");
                return false;
            }
        };
        let kept = self.tokens.as_ref().map(|store| store.keep(self.url.as_str(), Some(&renewed)));
        matches!(kept, Some(Ok(())))
    }

    fn request(&self, method: Method) -> Result<reqwest::RequestBuilder, RequestError> {
        let client = net::client(&self.url, LocalRoute::default())
            .map_err(|error| RequestError::Unreachable(error.to_string()))?;
        let mut headers = self.headers.clone();
        {
            let agreement = self.agreement();
            headers.extend(agreement.session.clone().map(|session| (SESSION, session)));
            headers.extend(agreement.version.clone().map(|version| (VERSION, version)));
        }
        // What the user configured comes first.
        if !headers.contains_key("authorization")
            && let Some(tokens) = self.login()
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", tokens.access))
        {
            value.set_sensitive(true);
            headers.insert("authorization", value);
        }
        Ok(client.request(method, self.url.clone()).headers(headers))
    }

    async fn post(&self, message: String, request: Option<u64>) -> Result<(), RequestError> {
        let post = || {
            let post = self.request(Method::POST)?.header("accept", "application/json, text/event-stream");
            Ok(post.header("content-type", "application/json").body(message.clone()))
        };
        let can_renew = match self.login().filter(OauthTokens::is_expired) {
            Some(tokens) => self.renew(&tokens.access).await,
            None => true,
        };
        // Who was refused just now is refused again.
        let used = self.login().filter(|_| can_renew).map(|tokens| tokens.access);
        let response = match (self.sent(post()?).await, used) {
            (Err(RequestError::Unauthorized { status: 401, .. }), Some(used)) if self.renew(&used).await => {
                self.sent(post()?).await?
            }
            (sent, _) => sent?,
        };
        if let Some(session) = response.headers().get(SESSION)
            && session.len() <= ID_BYTES
        {
            let mut session = session.clone();
            session.set_sensitive(true);
            self.agreement().session = Some(session);
        }
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            let follow = Follow { last: None, retry: RETRY, request };
            return self.follow_from(response, follow).await;
        }
        let is_json = kind.starts_with("application/json");
        let body = body(response, MESSAGE_BYTES).await?;
        // An answer to what is no request is of no interest.
        if request.is_some() && !(is_json && self.shared.receive(&body)) {
            return Err(RequestError::Invalid("the server sent neither JSON nor a stream of events".into()));
        }
        Ok(())
    }

    /// Sends a request, and looks at the status of the answer.
    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<Response, RequestError> {
        let sent = tokio::time::timeout(HEAD, request.send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(RequestError::Unreachable(causes(&error.without_url()))),
            Err(_) => return Err(RequestError::Timeout(HEAD)),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let has_session = self.agreement().session.is_some();
        if status == StatusCode::NOT_FOUND && has_session {
            let why = "the server ended the session";
            self.shared.close(why);
            return Err(RequestError::Closed(why.into()));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let challenge = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
            let challenge = challenge.map(|text| one_line(text, 2_000));
            return Err(RequestError::Unauthorized { status: status.as_u16(), challenge });
        }
        let text = body(response, REFUSAL).await.unwrap_or_default();
        let text = one_line(&String::from_utf8_lossy(&text), 300);
        Err(RequestError::Unreachable(format!("HTTP {status} {text}").trim().to_owned()))
    }

    /// Reads a stream, and continues it where it ends early and the server can.
    async fn follow_from(&self, response: Response, mut follow: Follow) -> Result<(), RequestError> {
        let mut response = Some(response);
        let mut vain = 0;
        loop {
            let read = match response.take() {
                Some(response) => self.read(response, &mut follow).await,
                None => {
                    let mut get = self.request(Method::GET)?.header("accept", "text/event-stream");
                    if let Some(last) = &follow.last {
                        get = get.header(LAST_EVENT, last);
                    }
                    match self.sent(get).await {
                        Ok(response) => self.read(response, &mut follow).await,
                        Err(error @ RequestError::Unreachable(_)) if vain + 1 < STREAMS => {
                            tracing::debug!(%error, "a stream was not continued");
                            Ok(0)
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            let messages = read?;
            let is_answered = follow.request.is_some_and(|id| !self.shared.waits_for(id));
            if is_answered || self.ended.is_cancelled() {
                return Ok(());
            }
            vain = if messages > 0 { 0 } else { vain + 1 };
            let can = follow.last.is_some() || follow.request.is_none();
            if !can || vain >= STREAMS {
                return Err(RequestError::Invalid(
                    "the stream of the server ended without the answer".into(),
                ));
            }
            tokio::select! {
                () = tokio::time::sleep(follow.retry) => {}
                () = self.ended.cancelled() => return Ok(()),
            }
        }
    }

    /// Reads one stream to its end, or to the answer. Gives how many messages it had.
    async fn read(&self, response: Response, follow: &mut Follow) -> Result<usize, RequestError> {
        let (mut events, mut found, mut messages) = (EventDecoder::default(), Vec::new(), 0);
        let mut bytes = response.bytes_stream();
        loop {
            let piece: Bytes = tokio::select! {
                piece = bytes.next() => match piece {
                    Some(Ok(piece)) => piece,
                    // As one that ended.
                    Some(Err(_)) | None => return Ok(messages),
                },
                () = self.ended.cancelled() => return Ok(messages),
            };
            events.push(&piece, &mut found).map_err(|EventError| {
                RequestError::Invalid(format!("an event has more than {} MiB", MESSAGE_BYTES >> 20))
            })?;
            if let Some(retry) = events.retry {
                follow.retry = retry.min(LONGEST_RETRY);
            }
            for event in found.drain(..) {
                follow.last = event.id.filter(|id| id.len() <= ID_BYTES).or(follow.last.take());
                if !event.data.is_empty() && self.shared.receive(&event.data) {
                    messages += 1;
                }
            }
            if follow.request.is_some_and(|id| !self.shared.waits_for(id)) {
                return Ok(messages);
            }
        }
    }
}

/// A body of at most so many bytes.
async fn body(response: Response, limit: usize) -> Result<Vec<u8>, RequestError> {
    let mut stream = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| RequestError::Unreachable(causes(&error.without_url())))?;
        if body.len() + piece.len() > limit {
            return Err(RequestError::Invalid(format!("the answer has more than {limit} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// An error and its causes in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    one_line(&text, 500)
}
