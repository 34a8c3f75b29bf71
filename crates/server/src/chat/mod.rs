//! Requests for an answer, in the form that clients of chat completions send, in front of an agent.

mod forms;
mod model_names;
mod request;
mod run;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use quipu_protocol::SessionId;
use tokio::sync::mpsc;

use crate::answer::{Answer, ApiError, json_answer};
use crate::body::RequestBody;
use crate::front::{Front, closing};
use crate::limits::KEEP_ALIVE;

pub(crate) use model_names::{model_answer, models_answer};

use forms::ChatForms;
use request::{ChatRequest, StreamMode};
use run::ChatEvent;

/// Events of a run on their way to its client.
const EVENTS: usize = 256;
/// How long a stream waits for its first event: a limit that leaves nothing for the first call has a status of its own.
const FIRST: Duration = Duration::from_secs(1);
/// The header that names the session, before the member `user`.
const SESSION_HEADER: &str = "x-quipu-session-key";
/// The header of an answer that has the id of its session.
const SESSION_ID_HEADER: &str = "x-quipu-session-id";

/// The name of a session that a header gives.
fn session_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(SESSION_HEADER) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| ApiError::invalid(format!("the header {SESSION_HEADER} is not UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// Answers a request for an answer.
pub(crate) async fn answer(front: Arc<Front>, request: Request<Incoming>) -> Result<Answer, ApiError> {
    let limits = *front.limits();
    let place = front.chats.places.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{} requests are being answered already; try again later", limits.chats);
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    })?;
    let key = session_key(request.headers())?;
    let body = RequestBody::new(request.into_body(), limits.body, limits.request)?.whole().await?;
    let wanted = ChatRequest::read(&body, key)?;
    drop(body);
    let forms = ChatForms::new(wanted.model.clone());
    let mode = wanted.mode;
    let (sender, mut events) = mpsc::channel(EVENTS);
    let shared = front.clone();
    front.spawn(async move {
        run::run(&shared, wanted, sender).await;
        drop(place);
    });
    // Until it has begun, a failure has a status of its own.
    let session = match events.recv().await {
        Some(ChatEvent::Started(session)) => session,
        Some(ChatEvent::Ended(Err(error))) => return Err(error),
        Some(ChatEvent::Ended(Ok(_)) | ChatEvent::Text(_)) | None => return Err(closing()),
    };
    let answer = match mode {
        StreamMode::Whole => loop {
            match events.recv().await {
                Some(ChatEvent::Ended(ended)) => break json_answer(StatusCode::OK, &forms.whole(&ended?)),
                Some(ChatEvent::Started(_) | ChatEvent::Text(_)) => {}
                None => return Err(closing().once()),
            }
        },
        StreamMode::Pieces | StreamMode::PiecesAndUsage => {
            let first = match tokio::time::timeout(FIRST, events.recv()).await {
                Ok(Some(ChatEvent::Ended(Err(error)))) if error.status == StatusCode::TOO_MANY_REQUESTS => {
                    return Err(error);
                }
                Ok(Some(event)) => Some(event),
                // Where it has gone, the stream says so.
                Ok(None) | Err(_) => None,
            };
            stream(first, events, forms, mode)
        }
    };
    Ok(with_session(answer, &session))
}

fn with_session(mut answer: Answer, session: &SessionId) -> Answer {
    if let Ok(id) = HeaderValue::from_str(session.as_str()) {
        answer.headers_mut().insert(SESSION_ID_HEADER, id);
    }
    answer
}

/// An event stream of the answer as it comes; `next` is its first event, where it is there.
fn stream(
    next: Option<ChatEvent>,
    events: mpsc::Receiver<ChatEvent>,
    forms: ChatForms,
    mode: StreamMode,
) -> Answer {
    let first = forms.first(mode);
    let rest = unfold(Some((next, events, forms)), move |state| async move {
        let (next, mut events, forms) = state?;
        let event = match next {
            Some(next) => Some(next),
            None => tokio::select! {
                event = events.recv() => event,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    return Some((": still at work\n\n".to_owned(), Some((None, events, forms))));
                }
            },
        };
        match event {
            Some(ChatEvent::Text(text)) => Some((forms.piece(mode, &text), Some((None, events, forms)))),
            Some(ChatEvent::Started(_)) => Some((String::new(), Some((None, events, forms)))),
            Some(ChatEvent::Ended(Ok(outcome))) => Some((forms.last(mode, &outcome), None)),
            Some(ChatEvent::Ended(Err(error))) => Some((ChatForms::failed(&error), None)),
            None => Some((ChatForms::failed(&closing()), None)),
        }
    });
    let pieces = futures_util::stream::once(async move { first }).chain(rest);
    let frames = pieces.map(|piece| Ok(Frame::data(Bytes::from(piece))));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}
