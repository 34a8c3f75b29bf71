//! What the server does with one request.

use std::time::Duration;

use bytes::Bytes;

use crate::{Gate, Wire};

/// One reply: a head, then steps. Without a `content-length` of its own it ends when the connection is closed.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) head: Option<Head>,
    pub(crate) steps: Vec<Step>,
    /// Only for requests that hold this text.
    pub(crate) only: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether the body is sent in chunks, so that an early end is seen as such.
    pub(crate) chunked: bool,
    /// Whether the connection takes another request afterwards.
    pub(crate) keep: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Bytes(Bytes),
    Drip(Bytes, Duration),
    Repeat(Bytes, u64),
    Gate(Gate),
    Reset,
    Hang,
    Cut,
}

impl Reply {
    /// A status and a body of this media type.
    pub fn new(status: u16, media_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), media_type.to_owned())];
        let head = Head { status, headers, chunked: true, keep: false };
        Self { head: Some(head), steps: vec![Step::Bytes(body.into())], only: None }
    }

    /// 200 with an event stream.
    pub fn sse(body: impl Into<Bytes>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", body)
    }

    /// 200 with this stream of the wire, as [`Answer`](crate::Answer) writes it.
    pub fn stream_on(wire: Wire, text: &str) -> Self {
        match wire {
            Wire::Converse => Self::new(200, "application/vnd.amazon.eventstream", wire.bytes(text)),
            Wire::Messages
            | Wire::Completions
            | Wire::Responses
            | Wire::Contents
            | Wire::Subscription
            | Wire::Chunks
            | Wire::Gateway
            | Wire::Envelope => Self::sse(text.to_owned()),
        }
    }

    /// A status with an error body in the shape of the wire.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        let body = serde_json::json!({ "type": "error", "error": { "type": kind, "message": message } });
        Self::new(status, "application/json", body.to_string())
    }

    /// The same in the shape of this wire.
    pub fn error_on(wire: Wire, status: u16, kind: &str, message: &str) -> Self {
        let error = match wire {
            Wire::Messages => return Self::error(status, kind, message),
            Wire::Chunks => {
                let body =
                    serde_json::json!({ "object": "error", "message": message, "type": kind, "code": "1" });
                return Self::new(status, "application/json", body.to_string());
            }
            Wire::Gateway => serde_json::json!({ "message": message, "code": kind }),
            Wire::Completions | Wire::Responses | Wire::Subscription => {
                serde_json::json!({ "message": message, "type": kind, "param": null, "code": null })
            }
            Wire::Contents | Wire::Envelope => {
                serde_json::json!({ "code": status, "message": message, "status": kind })
            }
            Wire::Converse => {
                let body = serde_json::json!({ "message": message }).to_string();
                return Self::new(status, "application/json", body).header("x-amzn-errortype", kind);
            }
        };
        Self::new(status, "application/json", serde_json::json!({ "error": error }).to_string())
    }

    /// Bytes instead of HTTP.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { head: None, steps: vec![Step::Bytes(bytes.into())], only: None }
    }

    /// The request is read, and nothing ever comes back.
    pub fn never() -> Self {
        Self { head: None, steps: vec![Step::Hang], only: None }
    }

    /// The request is read and the connection reset.
    pub fn reset() -> Self {
        Self { head: None, steps: vec![Step::Reset], only: None }
    }

    /// Adds a header. No effect on raw bytes.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Some(head) = &mut self.head {
            head.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Keeps the connection for the next request, as real servers do. No effect on raw bytes and on replies that
    /// end early.
    #[must_use]
    pub fn keep_alive(mut self) -> Self {
        if let Some(head) = &mut self.head {
            head.keep = true;
        }
        self
    }

    /// Then these bytes.
    #[must_use]
    pub fn then(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Bytes(bytes.into()))
    }

    /// Then these bytes, one by one.
    #[must_use]
    pub fn then_drip(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Drip(bytes.into(), Duration::ZERO))
    }

    /// Then these bytes, one by one with this pause behind each.
    #[must_use]
    pub fn then_drip_slowly(self, bytes: impl Into<Bytes>, pause: Duration) -> Self {
        self.step(Step::Drip(bytes.into(), pause))
    }

    /// Then these bytes, so many times.
    #[must_use]
    pub fn then_repeat(self, bytes: impl Into<Bytes>, times: u64) -> Self {
        self.step(Step::Repeat(bytes.into(), times))
    }

    /// Only for requests whose body holds this text; others get the next reply of the script.
    #[must_use]
    pub fn only_for(mut self, text: &str) -> Self {
        self.only = Some(text.to_owned());
        self
    }

    /// Then wait for the test.
    #[must_use]
    pub fn then_gate(self, gate: &Gate) -> Self {
        self.step(Step::Gate(gate.clone()))
    }

    /// Then reset the connection.
    #[must_use]
    pub fn then_reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// Then nothing more, with the connection open.
    #[must_use]
    pub fn then_hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Then close the connection as if all had been sent, without the end of the body.
    #[must_use]
    pub fn then_cut(self) -> Self {
        self.step(Step::Cut)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}
