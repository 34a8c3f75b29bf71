//! A request to the server behind its wire, and the answer back.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use quipu_providers::net::{describe, unchanged_client};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::exchange::{AnswerEnd, Exchange, now};
use crate::headers::{outgoing, passed};
use crate::limits::ProxyLimits;
use crate::origin;
use crate::recorder::{Decision, RecorderHandle};
use crate::refusal::Refusal;
use crate::tee::{AnswerBody, PIECE, Recording, Tee, whole};
use crate::upstream::{Upstream, Upstreams};
use crate::wire_kind::WireKind;

/// Says on an answer that messages were left out of its request.
const NOTE: HeaderName = HeaderName::from_static("quipu-proxy-tobe");

/// Passes requests on.
pub(crate) struct Forwarder {
    upstreams: Arc<Upstreams>,
    hosts: Vec<String>,
    limits: ProxyLimits,
    room: Arc<Semaphore>,
    recorder: RecorderHandle,
    stop: CancellationToken,
}

impl Forwarder {
    pub(crate) fn new(
        upstreams: Arc<Upstreams>,
        hosts: Vec<String>,
        limits: ProxyLimits,
        recorder: RecorderHandle,
        stop: CancellationToken,
    ) -> Self {
        let room = Arc::new(Semaphore::new(limits.memory.div_ceil(PIECE)));
        Self { upstreams, hosts, limits, room, recorder, stop }
    }

    pub(crate) async fn answered(
        &self,
        request: Request<Incoming>,
        activity: Arc<Activity>,
    ) -> Response<AnswerBody> {
        activity.begins();
        match self.passed_on(request, Arc::clone(&activity)).await {
            Ok(answer) => answer,
            Err(refusal) => {
                activity.ends();
                refusal.answer()
            }
        }
    }

    async fn passed_on(
        &self,
        request: Request<Incoming>,
        activity: Arc<Activity>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (head, body) = request.into_parts();
        origin::check(&head.method, &head.uri, &head.headers, &self.hosts)?;
        let routed = self.upstreams.route(head.uri.path(), &head.headers);
        let (upstream, is_exchange) = routed.ok_or_else(|| {
            let text = "the path is of no wire, and the wires have different upstreams, so nobody knows for which server \
                        its key is; nothing was sent. Start the proxy with a server for other paths";
            Refusal::new(StatusCode::NOT_FOUND, text)
        })?;
        let address = upstream.address(head.uri.path_and_query().map_or("/", |path| path.as_str()));
        let address = address.ok_or_else(|| {
            let text =
                "the path has parts that a server would read in another way, such as `..`; nothing was sent";
            Refusal::new(StatusCode::BAD_REQUEST, text)
        })?;
        let is_recorded = is_exchange && head.method == Method::POST;
        let (mut body, room) = self.read(&head.headers, body).await?;
        let mut headers = outgoing(&head.headers, is_recorded);
        let mut note = None;
        if is_recorded && self.is_concerned(upstream.wire, &head.headers, &body).await {
            let decided = self.recorder.decide(upstream.wire, head.headers.clone(), body.clone());
            let decided = tokio::time::timeout(self.limits.decision, decided).await;
            match decided.ok().flatten() {
                Some(Decision::Pass) => {}
                Some(Decision::Send { bytes, target }) => {
                    body = bytes;
                    headers.remove(CONTENT_ENCODING);
                    note = HeaderValue::from_str(&target).ok();
                }
                Some(Decision::Answer { kind, text }) => {
                    activity.ends();
                    let mut answer = Response::new(whole(text));
                    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
                    return Ok(answer);
                }
                Some(Decision::Refuse(text)) => return Err(Refusal::new(StatusCode::CONFLICT, text)),
                None => {
                    let text = "the store did not say whether messages of this conversation are left out; nothing was \
                                sent, try again";
                    return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text));
                }
            }
        }
        let (started, begun) = (now(), Instant::now());
        if is_recorded {
            self.recorder.begin(upstream.wire, &head.headers, &body);
        }
        let mut recording = is_recorded.then(|| {
            let exchange = Exchange {
                wire: upstream.wire,
                headers: head.headers,
                body: body.clone(),
                started,
                status: None,
                answer_headers: HeaderMap::new(),
                answer: Vec::new(),
                first_ms: None,
                duration_ms: 0,
                end: AnswerEnd::Broken,
                room,
            };
            Recording::new(exchange, self.recorder.clone(), begun, self.stop.clone())
        });
        let sent = self.sent(upstream, head.method, address, headers, body).await;
        let answer = match (sent, &mut recording) {
            (Ok(answer), _) => answer,
            (Err(refusal), recording) => {
                if let Some(recording) = recording {
                    recording.finish(AnswerEnd::Broken);
                }
                return Err(refusal);
            }
        };
        let (head, body) = http::Response::from(answer).into_parts();
        if let Some(recording) = &mut recording {
            recording.answered(head.status, &head.headers);
        }
        let kept = (self.limits.answer, Arc::clone(&self.room));
        let tee = Tee::new(body, recording, kept, self.limits.silence, activity);
        let mut answer = Response::new(tee.boxed());
        *answer.status_mut() = head.status;
        *answer.headers_mut() = passed(&head.headers);
        answer.headers_mut().remove(NOTE);
        if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            // No body follows, whatever its length would be.
            answer.headers_mut().remove(CONTENT_LENGTH);
        }
        if let Some(note) = note {
            answer.headers_mut().insert(NOTE, note);
        }
        Ok(answer)
    }

    /// Whether the conversation may have to do with a jump.
    async fn is_concerned(&self, wire: WireKind, headers: &HeaderMap, body: &Bytes) -> bool {
        let concerned = self.recorder.is_concerned(wire, headers, body);
        tokio::time::timeout(self.limits.decision, concerned).await.unwrap_or(true)
    }

    /// The whole body of a request, and the room that it takes.
    async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
        let too_large = || {
            let text = format!("the request has more than {} MiB", self.limits.body >> 20);
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        };
        let told = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if told.is_some_and(|length| length > self.limits.body) {
            return Err(too_large());
        }
        if body.is_end_stream() {
            return Ok((Bytes::new(), None));
        }
        let pieces = told.unwrap_or(self.limits.body).div_ceil(PIECE).max(1);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(pieces);
        let room = tokio::time::timeout(self.limits.request, room).await;
        let Ok(Ok(mut room)) = room else {
            let text = format!("requests under way fill {} MiB; try again", self.limits.memory >> 20);
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text));
        };
        let mut out = BytesMut::with_capacity(told.unwrap_or_default());
        loop {
            let frame = tokio::time::timeout(self.limits.request, body.frame()).await;
            let Ok(frame) = frame else {
                return Err(Refusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body of the request did not come",
                ));
            };
            let Some(frame) = frame else { break };
            let Ok(frame) = frame else {
                return Err(Refusal::new(StatusCode::BAD_REQUEST, "the body of the request broke off"));
            };
            if let Some(bytes) = frame.data_ref() {
                if out.len() + bytes.len() > self.limits.body {
                    return Err(too_large());
                }
                out.extend_from_slice(bytes);
            }
        }
        // What was taken for a length that nobody told.
        let used = u32::try_from(out.len().div_ceil(PIECE).max(1)).unwrap_or(u32::MAX);
        if let Some(rest) = pieces.checked_sub(used).filter(|rest| *rest > 0) {
            drop(room.split(rest as usize));
        }
        Ok((out.freeze(), Some(room)))
    }

    async fn sent(
        &self,
        upstream: &Upstream,
        method: Method,
        address: reqwest::Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, Refusal> {
        let host = upstream.base.host_str().unwrap_or_default();
        let client = unchanged_client(&address)
            .map_err(|error| Refusal::new(StatusCode::BAD_GATEWAY, error.message))?;
        let is_empty = body.is_empty() && (method == Method::GET || method == Method::HEAD);
        let mut request = client.request(method, address).headers(headers);
        if !is_empty {
            request = request.body(body);
        }
        match tokio::time::timeout(self.limits.silence, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let text = format!("{host} could not be reached: {}", describe(&error.without_url()));
                Err(Refusal::new(StatusCode::BAD_GATEWAY, text))
            }
            Err(_) => {
                let text = format!("{host} did not answer within {} s", self.limits.silence.as_secs());
                Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, text))
            }
        }
    }
}
