//! Lines as frames of a WebSocket.

use std::sync::Arc;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use quipu_runtime::ServeEnd;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::answer::{Answer, ApiError};
use crate::front::{Front, too_many_clients};
use crate::limits::{FRAME, LAST_WORD, PIPE};
use crate::line_meter::LineMeter;
use crate::metrics::ClientKind;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Why a client is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientEnd {
    Left,
    Version,
    Stalled,
    Closing,
    Flood,
    TooLong,
    Binary,
    SeveralLines,
    NotUtf8,
    Broken,
}

impl ClientEnd {
    /// For metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Version => "version",
            Self::Stalled => "stalled",
            Self::Closing => "closing",
            Self::Flood => "flood",
            Self::TooLong => "too_long",
            Self::Binary | Self::SeveralLines | Self::NotUtf8 | Self::Broken => "invalid",
        }
    }

    /// The code and the reason of the last frame.
    const fn close(self) -> (CloseCode, &'static str) {
        match self {
            Self::Left => (CloseCode::Normal, ""),
            Self::Version => (CloseCode::Protocol, "version: the first line must be hello"),
            Self::Stalled => (CloseCode::Policy, "stalled: the client reads nothing"),
            Self::Closing => (CloseCode::Away, "closing: the server is shutting down"),
            Self::Flood => (CloseCode::Policy, "flood: too many lines in ten seconds"),
            Self::TooLong => (CloseCode::Size, "tooLong: a frame has more than 16 MiB"),
            Self::Binary => (CloseCode::Unsupported, "invalid: frames are text"),
            Self::SeveralLines => (CloseCode::Invalid, "invalid: a frame is one line"),
            Self::NotUtf8 => (CloseCode::Invalid, "invalid: a frame is UTF-8"),
            Self::Broken => (CloseCode::Protocol, "invalid: not a WebSocket"),
        }
    }
}

fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// Answers a request for a WebSocket, and serves the client then.
pub(crate) fn upgrade(front: &Arc<Front>, mut request: Request<Incoming>) -> Result<Answer, ApiError> {
    let headers = request.headers();
    if !has_word(headers, UPGRADE, "websocket") || !has_word(headers, CONNECTION, "upgrade") {
        let message = "this path speaks WebSocket: send `Connection: Upgrade` and `Upgrade: websocket`";
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(ApiError::invalid("the version of WebSocket must be 13"));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24) else {
        return Err(ApiError::invalid("the header Sec-WebSocket-Key is missing or is no key"));
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| ApiError::invalid("the header Sec-WebSocket-Key is no key"))?;
    let place = front.clients.clone().try_acquire_owned();
    let place = place.map_err(|_| too_many_clients(front.limits()))?;
    let upgraded = hyper::upgrade::on(&mut request);
    let shared = front.clone();
    front.spawn(async move {
        match upgraded.await {
            Ok(stream) => serve(&shared, stream, place).await,
            Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
        }
    });
    let mut answer = Response::new(Empty::new().boxed_unsync());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(answer)
}

async fn serve(front: &Front, stream: Upgraded, place: OwnedSemaphorePermit) {
    front.metrics.client_came(ClientKind::WebSocket);
    let mut config = WebSocketConfig::default();
    (config.max_message_size, config.max_frame_size) = (Some(FRAME), Some(FRAME));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await;
    talk(front, socket).await;
    drop(place);
}

/// Passes lines on in both directions until one side ends.
async fn talk(front: &Front, socket: Socket) {
    let (mut sink, mut stream) = socket.split();
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let ((read, write), (their_read, their_write)) = (tokio::io::split(ours), tokio::io::split(theirs));
    let end = {
        let mut served = std::pin::pin!(front.desk.serve(their_read, their_write));
        let mut sent = std::pin::pin!(send_lines(&mut sink, read));
        let mut taken = std::pin::pin!(take_lines(&mut stream, write, LineMeter::new(front.limits().lines)));
        let (mut is_taken, mut is_sent, mut end) = (false, false, None);
        loop {
            tokio::select! {
                served = &mut served => {
                    let served = match served {
                        ServeEnd::Left => ClientEnd::Left,
                        ServeEnd::OtherVersion => ClientEnd::Version,
                        ServeEnd::Stalled => ClientEnd::Stalled,
                        ServeEnd::Closed => ClientEnd::Closing,
                    };
                    if !is_sent {
                        // What it said last.
                        drop(tokio::time::timeout(LAST_WORD, &mut sent).await);
                    }
                    break end.unwrap_or(served);
                }
                why = &mut sent, if !is_sent => match why {
                    // The desk says why in a moment.
                    SendEnd::Whole => is_sent = true,
                    // What was asked for and has not begun is not done.
                    SendEnd::Gone => break end.unwrap_or(ClientEnd::Left),
                },
                why = &mut taken, if !is_taken => {
                    is_taken = true;
                    // One that left is answered what it asked for, as far as it reads.
                    if why != ClientEnd::Left {
                        break why;
                    }
                    end = Some(why);
                }
            }
        }
    };
    front.metrics.client_left(ClientKind::WebSocket, end.name());
    let (code, reason) = end.close();
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let close = async {
        drop(sink.send(close).await);
        drop(sink.close().await);
        // What it still sends is taken, or it would lose the reason with the connection.
        if end != ClientEnd::Left
            && let Ok(socket) = sink.reunite(stream)
        {
            let mut io = socket.into_inner();
            drop(io.shutdown().await);
            let mut passed = vec![0; PIPE];
            while matches!(io.read(&mut passed).await, Ok(count) if count > 0) {}
        }
    };
    drop(tokio::time::timeout(LAST_WORD, close).await);
}

/// Why no more lines are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendEnd {
    /// There are no more.
    Whole,
    /// The connection takes none.
    Gone,
}

/// Sends each line of the desk as a frame, until there are no more or nobody takes them.
async fn send_lines(sink: &mut SplitSink<Socket, Message>, read: ReadHalf<DuplexStream>) -> SendEnd {
    let mut lines = BufReader::with_capacity(PIPE, read);
    let mut line = String::new();
    while matches!(lines.read_line(&mut line).await, Ok(count) if count > 0) {
        let frame = Message::text(line.trim_end_matches('\n'));
        if sink.send(frame).await.is_err() {
            return SendEnd::Gone;
        }
        line.clear();
    }
    SendEnd::Whole
}

/// Takes frames as lines for the desk, until the client ends or does something that it must not.
async fn take_lines(
    stream: &mut SplitStream<Socket>,
    mut write: WriteHalf<DuplexStream>,
    mut meter: LineMeter,
) -> ClientEnd {
    let end = loop {
        let text = match stream.next().await {
            Some(Ok(Message::Text(text))) => text,
            // Those are counted too: each is answered.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                if meter.take() {
                    continue;
                }
                break ClientEnd::Flood;
            }
            Some(Ok(Message::Binary(_))) => break ClientEnd::Binary,
            Some(Ok(Message::Close(_))) | None => break ClientEnd::Left,
            Some(Err(Error::Capacity(_))) => break ClientEnd::TooLong,
            Some(Err(Error::Utf8(_))) => break ClientEnd::NotUtf8,
            Some(Err(Error::Protocol(_))) => break ClientEnd::Broken,
            Some(Err(_)) => break ClientEnd::Left,
        };
        if !meter.take() {
            break ClientEnd::Flood;
        }
        if text.contains('\n') {
            break ClientEnd::SeveralLines;
        }
        let written = async {
            write.write_all(text.as_bytes()).await?;
            write.write_all(b"\n").await
        };
        if written.await.is_err() {
            // The desk has ended, which says why.
            std::future::pending::<()>().await;
        }
    };
    drop(write.shutdown().await);
    end
}
