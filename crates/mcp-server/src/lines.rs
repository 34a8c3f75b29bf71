//! Messages as lines, over any pair of pipes: bounded, with back-pressure, and an answer to each line that is no message.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::in_flight::InFlight;

/// Bytes of a message of a client.
const LINE: usize = 1 << 20;
/// Lines in a row that are no messages.
const BAD_LINES: u32 = 100;
/// How long a client may read nothing while an answer waits.
const UNREAD: Duration = Duration::from_secs(30);

/// What became of the writing end.
#[derive(Debug, Default)]
struct WriterState {
    is_stalled: AtomicBool,
    /// Nothing is written any more.
    closed: CancellationToken,
}

/// The transport.
pub(crate) struct Lines<R, W> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The line is longer than it may be, and the rest of it is skipped.
    is_too_long: bool,
    bad_lines: u32,
    began: bool,
    writer: Arc<Mutex<W>>,
    state: Arc<WriterState>,
    in_flight: InFlight,
}

/// Whether the client stopped reading.
#[derive(Clone)]
pub(crate) struct Stall(Arc<WriterState>);

impl Stall {
    pub(crate) fn happened(&self) -> bool {
        self.0.is_stalled.load(Ordering::Relaxed)
    }
}

/// A line of a client.
enum Line {
    Whole,
    TooLong,
    End,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(reader: R, writer: W, in_flight: InFlight) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            is_too_long: false,
            bad_lines: 0,
            began: false,
            writer: Arc::new(Mutex::new(writer)),
            state: Arc::default(),
            in_flight,
        }
    }

    pub(crate) fn stall(&self) -> Stall {
        Stall(self.state.clone())
    }

    /// Reads on to the end of a line. Dropped, it goes on from there the next time.
    async fn read_line(&mut self) -> Line {
        loop {
            let Ok(available) = self.reader.fill_buf().await else { return Line::End };
            if available.is_empty() {
                return Line::End;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = end.unwrap_or(available.len());
            if self.line.len() + part > LINE {
                self.is_too_long = true;
            } else if !self.is_too_long {
                self.line.extend_from_slice(&available[..part]);
            }
            let used = end.map_or(part, |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return if std::mem::take(&mut self.is_too_long) { Line::TooLong } else { Line::Whole };
            }
        }
    }

    /// Answers a line that is no message, in order and before the next is read. `false` where there were too many.
    async fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) -> bool {
        self.bad_lines += 1;
        let message = TxJsonRpcMessage::<RoleServer>::error(error, id);
        write(self.writer.clone(), self.state.clone(), &message).await.is_ok() && self.bad_lines < BAD_LINES
    }

    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.in_flight.room().await;
            match self.read_line().await {
                Line::End => return None,
                Line::TooLong => {
                    self.line = Vec::new();
                    let error =
                        ErrorData::invalid_request(format!("a message has more than {LINE} bytes"), None);
                    if !self.refuse(error, None).await {
                        return None;
                    }
                    continue;
                }
                Line::Whole => {}
            }
            let line = std::mem::take(&mut self.line);
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(text) {
                Ok(message) => {
                    if let Some(message) = self.admitted(message).await? {
                        return Some(message);
                    }
                }
                Err(error) => {
                    let (error, id) = reason(text, &error);
                    if !self.refuse(error, id).await {
                        return None;
                    }
                }
            }
        }
    }

    /// The message, where it is one to hand on; the outer `None` ends the connection.
    async fn admitted(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Option<Option<RxJsonRpcMessage<RoleServer>>> {
        match &message {
            JsonRpcMessage::Request(request) => {
                if !self.in_flight.begin(&request.id) {
                    let error =
                        ErrorData::invalid_request("another request with this id is not answered yet", None);
                    return self.refuse(error, None).await.then_some(None);
                }
                self.began = true;
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.in_flight.end(id);
                }
                // What comes before the first request belongs to no session.
                if !self.began {
                    return Some(None);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) if !self.began => return Some(None),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        self.bad_lines = 0;
        Some(Some(message))
    }
}

/// Why a line is no message, and the id to answer with, where it has one.
fn reason(text: &[u8], error: &serde_json::Error) -> (ErrorData, Option<RequestId>) {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(text) else {
        return (ErrorData::parse_error(format!("the line is no JSON: {error}"), None), None);
    };
    let id = json.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    (ErrorData::invalid_request("the line is no message of this protocol", None), id)
}

async fn write<W: AsyncWrite + Send + Unpin>(
    writer: Arc<Mutex<W>>,
    state: Arc<WriterState>,
    message: &TxJsonRpcMessage<RoleServer>,
) -> io::Result<()> {
    let mut line = Vec::with_capacity(256);
    message.serialize(&mut serde_json::Serializer::new(&mut line))?;
    line.push(b'\n');
    let written = async {
        let mut writer = writer.lock().await;
        // From here on it is this line's turn.
        let timed = tokio::time::timeout(UNREAD, async {
            writer.write_all(&line).await?;
            writer.flush().await
        });
        match timed.await {
            Ok(written) => written,
            Err(_) => {
                state.is_stalled.store(true, Ordering::Relaxed);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    };
    let written = tokio::select! {
        written = written => written,
        () = state.closed.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
    };
    if written.is_err() {
        // A part of a line may stand there: nothing can follow.
        state.closed.cancel();
    }
    written
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (writer, state, in_flight) = (self.writer.clone(), self.state.clone(), self.in_flight.clone());
        async move {
            let written = write(writer, state, &item).await;
            match &item {
                JsonRpcMessage::Response(response) => in_flight.end(&response.id),
                JsonRpcMessage::Error(error) => error.id.iter().for_each(|id| in_flight.end(id)),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let state = self.state.clone();
        tokio::select! {
            message = self.next() => message,
            () = state.closed.cancelled() => None,
        }
    }

    /// Each message was flushed; what is not written by now is given up.
    async fn close(&mut self) -> Result<(), io::Error> {
        self.state.closed.cancel();
        Ok(())
    }
}
