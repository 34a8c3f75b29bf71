//! Clients that post lines and read answers as an event stream.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use quipu_runtime::ServeEnd;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::OwnedMutexGuard;

use crate::answer::{Answer, ApiError, full, json_answer};
use crate::body::RequestBody;
use crate::event_clients::{AttachGuard, ClientInput, ClientOutput, EventClient, detached};
use crate::front::{Front, too_many_clients};
use crate::limits::{KEEP_ALIVE, PIPE};
use crate::line_meter::LineMeter;
use crate::metrics::ClientKind;

fn no_client() -> ApiError {
    let message = "no such client is here; POST /v1/clients makes one";
    ApiError::new(StatusCode::NOT_FOUND, "no_client", message)
}

fn gone(reason: &str) -> ApiError {
    ApiError::new(StatusCode::GONE, "client_ended", format!("the client ended: {reason}"))
}

fn found(front: &Front, id: &str) -> Result<Arc<EventClient>, ApiError> {
    front.event_clients.client(id).ok_or_else(no_client)
}

/// `POST /v1/clients`: a new client, which greets with its first line.
pub(crate) fn create(front: &Arc<Front>) -> Result<Answer, ApiError> {
    let limits = *front.limits();
    let place = front.clients.clone().try_acquire_owned().map_err(|_| too_many_clients(&limits))?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let (read, write) = tokio::io::split(ours);
    let output = ClientOutput { read: BufReader::with_capacity(PIPE, read), line: Vec::new() };
    let input = ClientInput { write, meter: LineMeter::new(limits.lines) };
    let client = Arc::new(EventClient::new(input, output));
    front.event_clients.all().insert(id.clone(), client.clone());
    front.metrics.client_came(ClientKind::EventStream);
    let (shared, name) = (front.clone(), id.clone());
    front.spawn(async move {
        let end = serve(&shared, &client, theirs).await;
        drop(client.end.set(end));
        // What waits for it is read, where somebody reads it.
        tokio::select! {
            () = client.is_read.cancelled() => {}
            () = detached(&client, limits.detached) => {}
            () = shared.stop().cancelled() => {}
        }
        shared.event_clients.all().remove(&name);
        shared.metrics.client_left(ClientKind::EventStream, end);
        drop(place);
    });
    let mut answer = json_answer(StatusCode::CREATED, &json!({ "client": id }));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/clients/{id}")) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

/// Serves a client until it ends; why.
async fn serve(front: &Front, client: &EventClient, theirs: DuplexStream) -> &'static str {
    let (read, write) = tokio::io::split(theirs);
    tokio::select! {
        served = front.desk.serve(read, write) => match served {
            ServeEnd::Left => client.reason(),
            ServeEnd::OtherVersion => "version",
            ServeEnd::Stalled => "stalled",
            ServeEnd::Closed => "closing",
        },
        () = client.closed.cancelled() => client.reason(),
        () = detached(client, front.limits().detached) => "detached",
    }
}

/// `DELETE /v1/clients/ID`.
pub(crate) fn remove(front: &Front, id: &str) -> Result<Answer, ApiError> {
    found(front, id)?.close("left");
    front.event_clients.all().remove(id);
    Ok(full(StatusCode::NO_CONTENT, "application/json", Bytes::new()))
}

/// `POST /v1/clients/ID`: lines for the desk.
pub(crate) async fn post(front: &Front, id: &str, request: Request<Incoming>) -> Result<Answer, ApiError> {
    let limits = front.limits();
    let client = found(front, id)?;
    let mut body = RequestBody::new(request.into_body(), limits.body, limits.request)?;
    let mut input = tokio::time::timeout(limits.stalled, client.input.lock()).await.map_err(|_| {
        let message = "another request of this client is still being taken";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "client_busy", message)
    })?;
    let (mut lines, mut is_open) = (0_u64, false);
    let taken = loop {
        let piece = match body.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        for byte in &piece {
            if *byte == b'\n' {
                is_open = false;
            } else if !std::mem::replace(&mut is_open, true) {
                lines += 1;
                if !input.meter.take() {
                    client.close("flood");
                    let message = "too many lines in ten seconds; the client is closed";
                    return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "flood", message).once());
                }
            }
        }
        pass(&client, &mut input, &piece, limits.stalled).await?;
    };
    // Also what broke off is a line of its own, which nobody takes for another.
    pass(&client, &mut input, b"\n", limits.stalled).await?;
    taken?;
    Ok(json_answer(StatusCode::ACCEPTED, &json!({ "lines": lines })))
}

async fn pass(
    client: &EventClient,
    input: &mut ClientInput,
    bytes: &[u8],
    patience: std::time::Duration,
) -> Result<(), ApiError> {
    match tokio::time::timeout(patience, input.write.write_all(bytes)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(gone(client.end.get().copied().unwrap_or_else(|| client.reason())).once()),
        Err(_) => {
            client.close("stalled");
            Err(gone("stalled").once())
        }
    }
}

struct EventReader {
    output: OwnedMutexGuard<ClientOutput>,
    attached: AttachGuard,
}

/// `GET /v1/clients/ID/events`: what the desk says, a line for each event.
pub(crate) fn events(front: &Front, id: &str) -> Result<Answer, ApiError> {
    let client = found(front, id)?;
    let output = client.output.clone().try_lock_owned().map_err(|_| {
        let message = "another request reads the events of this client";
        ApiError::new(StatusCode::CONFLICT, "events_taken", message)
    })?;
    let reader = EventReader { output, attached: AttachGuard::new(client) };
    let pieces = unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let ClientOutput { read, line } = &mut *reader.output;
        let read = tokio::select! {
            read = read.read_until(b'\n', line) => read,
            () = tokio::time::sleep(KEEP_ALIVE) => return Some((": nothing new\n\n".to_owned(), Some(reader))),
        };
        if matches!(read, Ok(count) if count > 0) && line.ends_with(b"\n") {
            let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            line.clear();
            return Some((format!("data: {text}\n\n"), Some(reader)));
        }
        let client = reader.attached.client();
        let reason = *client.end.wait().await;
        client.is_read.cancel();
        Some((format!("event: end\ndata: {}\n\n", json!({ "reason": reason })), None))
    });
    // The head goes out at once.
    let first = futures_util::stream::once(async { ": events\n\n".to_owned() });
    let frames = first.chain(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece))));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
