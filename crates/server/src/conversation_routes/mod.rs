//! Requests for conversations.

mod request;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use quipu_outbound::Acknowledgement;
use quipu_runtime::{Acceptance, QueueSettings, SessionKey, WakeOutcome};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};

use crate::answer::{Answer, ApiError, full, json_answer};
use crate::body::RequestBody;
use crate::conversations::{AckOutcome, MailboxFilter, RunNews, follow};
use crate::front::Front;
use crate::limits::KEEP_ALIVE;

/// The conversation that a path names, of an agent that is set up.
fn conversation(front: &Front, part: &str) -> Result<SessionKey, ApiError> {
    let key = request::conversation(part)?;
    let Some(agent) = key.agent().filter(|agent| agent.as_str() != quipu_runtime::DEFAULT_AGENT) else {
        return Ok(key);
    };
    if front.home.config().named_agents.contains_key(agent.as_str()) {
        return Ok(key);
    }
    Err(unknown_agent(agent.as_str()))
}

pub(crate) fn unknown_agent(agent: &str) -> ApiError {
    let message = format!("no agent `{agent}` is set up; `agents.byId` in the settings names agents");
    ApiError::new(StatusCode::NOT_FOUND, "unknown_agent", message)
}

async fn body(front: &Front, request: Request<Incoming>) -> Result<Vec<u8>, ApiError> {
    let limits = front.limits();
    RequestBody::new(request.into_body(), limits.message, limits.request)?.whole().await
}

/// `POST /v1/conversations/KEY/messages`: 202 once the message survives the loss of power.
pub(crate) async fn post_message(
    front: &Arc<Front>,
    part: &str,
    request: Request<Incoming>,
) -> Result<Answer, ApiError> {
    let key = conversation(front, part)?;
    let body = body(front, request).await?;
    let settings = QueueSettings::from(&front.home.config().queue);
    let request = request::message(key.clone(), &body, &settings, quipu_host::now())?;
    drop(body);
    let name = key.to_string();
    match front.conversations.accept(request).await? {
        Some(Acceptance::Queued(run)) => {
            let id = run.id.clone();
            let (mailboxes, stop) = (front.conversations.mailboxes.clone(), front.stop().clone());
            front.spawn(async move {
                stop.run_until_cancelled(follow(mailboxes, key, run)).await;
            });
            let body = json!({ "status": "queued", "conversation": name, "id": id });
            Ok(json_answer(StatusCode::ACCEPTED, &body))
        }
        Some(Acceptance::Stopped) => Ok(done("stopped", &name)),
        None => Ok(done("duplicate", &name)),
    }
}

fn done(status: &str, conversation: &str) -> Answer {
    json_answer(StatusCode::OK, &json!({ "status": status, "conversation": conversation }))
}

/// `POST /v1/conversations/KEY/stop`.
pub(crate) async fn stop(front: &Front, part: &str, request: Request<Incoming>) -> Result<Answer, ApiError> {
    // Also where messages wait for an agent that is not set up any more.
    let key = request::conversation(part)?;
    let authority = request::stop(&body(front, request).await?)?;
    front.conversations.stop(&key, authority).await?;
    Ok(full(StatusCode::NO_CONTENT, "application/json", Bytes::new()))
}

/// `POST /v1/conversations/KEY/wake`: the heartbeat of the conversation looks after things as soon as it may.
pub(crate) async fn wake(front: &Front, part: &str) -> Result<Answer, ApiError> {
    let key = conversation(front, part)?;
    match front.conversations.wake(&key).await? {
        WakeOutcome::Woken => Ok(full(StatusCode::NO_CONTENT, "application/json", Bytes::new())),
        WakeOutcome::Unknown => {
            let message =
                "this conversation has no heartbeat; `agents.byId` in the settings gives agents one";
            Err(ApiError::new(StatusCode::NOT_FOUND, "no_heartbeat", message))
        }
    }
}

/// `POST /v1/conversations/KEY/replies/ID/ack`: 204 once the reply is never offered again.
pub(crate) async fn acknowledge(
    front: &Front,
    part: &str,
    id: &str,
    request: Request<Incoming>,
) -> Result<Answer, ApiError> {
    let key = request::conversation(part)?;
    let request::AckBody { message } = request::read(&body(front, request).await?)?;
    front.conversations.is_able()?;
    let acknowledged = front.conversations.mailboxes.acknowledge(&key, id, Acknowledgement { message });
    match tokio::time::timeout(front.limits().stalled, acknowledged).await {
        Ok(AckOutcome::Stored) => Ok(full(StatusCode::NO_CONTENT, "application/json", Bytes::new())),
        Ok(AckOutcome::Unknown) => {
            let message = "no such reply waits in this conversation; it may be acknowledged already";
            Err(ApiError::new(StatusCode::NOT_FOUND, "no_reply", message))
        }
        Ok(AckOutcome::Retry) | Err(_) => {
            let message =
                "the acknowledgement could not be stored; acknowledge the reply when it is offered again";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_stored", message))
        }
    }
}

/// Shows replies to one reader.
struct ReplyReader {
    front: Arc<Front>,
    filter: MailboxFilter,
    /// The number of the last reply that was shown.
    seen: u64,
    offered: watch::Receiver<u64>,
    news: broadcast::Receiver<RunNews>,
    _place: OwnedSemaphorePermit,
}

/// `GET /v1/conversations/KEY/replies`, or `GET /v1/replies` for all: what waits, and then what comes, as an event stream.
pub(crate) fn replies(front: &Arc<Front>, part: Option<&str>) -> Result<Answer, ApiError> {
    let filter = match part {
        Some(part) => MailboxFilter::Conversation(Box::new(request::conversation(part)?)),
        None => MailboxFilter::All,
    };
    let place = front.conversations.reader()?;
    let mailboxes = &front.conversations.mailboxes;
    let (offered, news) = (mailboxes.offered(), mailboxes.news());
    let reader = ReplyReader { front: front.clone(), filter, seen: 0, offered, news, _place: place };
    let pieces = unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Some(piece) => Some((piece, Some(reader))),
            None => Some((format!("event: end\ndata: {}\n\n", json!({ "reason": "closing" })), None)),
        }
    });
    // The head goes out at once.
    let first = futures_util::stream::once(async { ": replies\n\n".to_owned() });
    let frames = first.chain(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece))));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

impl ReplyReader {
    /// The next piece of the stream; `None` where the server is ending.
    async fn next(&mut self) -> Option<String> {
        let stop = self.front.stop().clone();
        loop {
            self.offered.mark_unchanged();
            if let Some((number, id, event)) =
                self.front.conversations.mailboxes.next(self.seen, &self.filter)
            {
                self.seen = number;
                return Some(format!("event: reply\nid: {id}\ndata: {event}\n\n"));
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                // It lives as long as the server.
                _ = self.offered.changed() => {}
                news = self.news.recv() => match news {
                    Ok(news) if self.filter.takes(&news.conversation) => {
                        return Some(format!("event: status\ndata: {}\n\n", news.event));
                    }
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(": nothing new\n\n".to_owned()),
            }
        }
    }
}
