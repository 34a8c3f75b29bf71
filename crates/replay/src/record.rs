//! Keeps a real exchange in a file while it happens.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::{seal_answer, seal_content};
use quipu_protocol::{Body, ModelError, ModelRequest};
use quipu_providers::{Call, CallEnd, CallEvent, Memory, Provider};
use quipu_seal::Sealer;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::places::Places;
use crate::recording::{
    Chain, Header, NewInput, RecordedAnswer, RecordedAttempt, RecordedCall, RecordedRetry, RecordingError,
    hash, is_summary, map_content,
};

/// A model whose calls are kept in a file, sealed, for [`Replay`](crate::Replay). One for one session.
///
/// The file is made at once (mode 0600) and never overwrites another. Each call is one line, written when its
/// answer is there. It holds no key: neither the model's address nor headers are in it.
pub struct Recorder {
    inner: Arc<dyn Provider>,
    sealer: Arc<Sealer>,
    places: Places,
    since: Mutex<NewInput>,
    tape: Arc<Mutex<Tape>>,
}

struct Tape {
    file: File,
    path: PathBuf,
    chain: Chain,
    /// Bytes of whole lines.
    written: u64,
    calls: u32,
    failed: Option<std::io::Error>,
}

impl Recorder {
    /// Records what `inner` is asked and answers into the new file `path`.
    ///
    /// # Errors
    /// `Exists`, `File`.
    pub fn create(
        path: &Path,
        inner: Arc<dyn Provider>,
        sealer: Arc<Sealer>,
        places: Places,
    ) -> Result<Self, RecordingError> {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|source| match source.kind() {
            std::io::ErrorKind::AlreadyExists => RecordingError::Exists(path.display().to_string()),
            _ => RecordingError::File { path: path.display().to_string(), source },
        })?;
        let tape =
            Tape { file, path: path.to_owned(), chain: Chain::default(), written: 0, calls: 0, failed: None };
        Ok(Self { inner, sealer, places, since: Mutex::default(), tape: Arc::new(Mutex::new(tape)) })
    }

    /// How many calls were kept. A file without any is removed.
    ///
    /// # Errors
    /// `File` when a call could not be written: the file then holds those before it, and the session went on.
    pub fn finish(&self) -> Result<u32, RecordingError> {
        let mut tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        if tape.calls == 0 {
            // It is ours, and empty.
            drop(std::fs::remove_file(&tape.path));
        }
        match tape.failed.take() {
            Some(source) => Err(RecordingError::File { path: tape.path.display().to_string(), source }),
            None => Ok(tape.calls),
        }
    }

    /// The call as it goes to the file, without its number.
    fn recorded(&self, call: &PendingRecord, end: &CallEnd, retries: Vec<RecordedRetry>) -> RecordedCall {
        let seal = |error: &ModelError| ModelError {
            message: self.sealer.seal(&error.message).into_owned(),
            ..error.clone()
        };
        let mut message = end.message.clone();
        seal_answer(&mut message, &self.sealer);
        let portable = |text: &str| self.places.portable(text);
        map_content(&mut message.content, portable, |json| self.places.portable_json(json));
        let mut said = call.said.clone();
        for body in &mut said {
            match body {
                Body::Text(text) => *text = portable(&self.sealer.seal(text)),
                Body::Blocks(blocks) => {
                    seal_content(blocks, &self.sealer);
                    map_content(blocks, portable, |json| self.places.portable_json(json));
                }
            }
        }
        let mut results = call.results.clone();
        for result in &mut results {
            result.text = self.places.comparable(&self.sealer.seal(&result.text));
        }
        let attempts = end.attempts.iter();
        RecordedCall {
            call: 0,
            body: call.body.clone(),
            body_bytes: call.body_bytes,
            summary: call.summary,
            said,
            results,
            retries: retries
                .into_iter()
                .map(|retry| RecordedRetry { error: seal(&retry.error), ..retry })
                .collect(),
            answer: RecordedAnswer {
                content: message.content,
                stop_reason: message.stop_reason,
                usage: message.usage,
                response_model: message.response_model,
                response_id: message.response_id,
                error_message: message.error_message,
                raw_stop_reason: message.raw_stop_reason,
            },
            error: end.error.as_ref().map(seal),
            attempts: attempts
                .map(|attempt| RecordedAttempt { error: attempt.error, status: attempt.status })
                .collect(),
            unknown: end.unknown.iter().map(|event| self.sealer.seal_json(event)).collect(),
        }
    }
}

/// What is kept of a request.
struct PendingRecord {
    header: Header,
    body: String,
    body_bytes: u64,
    summary: bool,
    said: Vec<Body>,
    results: Vec<crate::recording::RecordedResult>,
}

impl Provider for Recorder {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.inner.encode(request)
    }

    fn encode_next(
        &self,
        request: &ModelRequest,
        memory: &mut Memory,
    ) -> Result<quipu_providers::Body, ModelError> {
        self.inner.encode_next(request, memory)
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            let summary = is_summary(&call.request);
            let (said, results) = {
                let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
                if summary {
                    since.summary();
                    (Vec::new(), Vec::new())
                } else {
                    since.look(&call.request, &self.places)
                }
            };
            let asked = PendingRecord {
                header: Header::of(&call.request, &self.places),
                body: hash(&call.body),
                body_bytes: call.body.len() as u64,
                summary,
                said,
                results,
            };
            let (events, mut incoming) = mpsc::channel(16);
            let outgoing = call.events.clone();
            let forward = async {
                let (mut retries, mut begun) = (Vec::new(), false);
                while let Some(event) = incoming.recv().await {
                    match &event {
                        CallEvent::Started(_) => begun = true,
                        CallEvent::Delta(_) => {}
                        CallEvent::Retry { error, .. } => {
                            retries.push(RecordedRetry { begun, error: error.clone() });
                            begun = false;
                        }
                    }
                    // A reader that is gone does not stop the call.
                    drop(outgoing.send(event).await);
                }
                retries
            };
            let (end, retries) = tokio::join!(self.inner.send(Call { events, ..call }), forward);
            let line = self.recorded(&asked, &end, retries);
            let tape = self.tape.clone();
            // In a thread: a slow disk holds up nothing else, and a line that was begun is written to its end.
            let written = tokio::task::spawn_blocking(move || {
                tape.lock().unwrap_or_else(PoisonError::into_inner).append(&asked.header, line);
            });
            drop(written.await);
            end
        }
        .boxed()
    }
}

impl Tape {
    /// Writes one call. After a failure nothing more is written, so that no call is missing in the middle.
    fn append(&mut self, header: &Header, mut call: RecordedCall) {
        // What is summed up before the first call was said before the recording.
        if self.failed.is_some() || (self.calls == 0 && call.summary) {
            return;
        }
        call.call = self.calls + 1;
        let mut text = String::new();
        let made = (|| {
            if self.calls == 0 {
                text.push_str(&line(&mut self.chain, header)?);
            }
            text.push_str(&line(&mut self.chain, &call)?);
            self.file.write_all(text.as_bytes())
        })();
        match made {
            Ok(()) => {
                self.calls = call.call;
                self.written += text.len() as u64;
            }
            Err(error) => {
                // Half a line would make the calls before it unreadable; should this fail too, that is told.
                drop(self.file.set_len(self.written));
                self.failed = Some(error);
            }
        }
    }
}

fn line(chain: &mut Chain, value: &impl Serialize) -> std::io::Result<String> {
    Ok(chain.seal(&serde_json::to_string(value)?))
}

#[cfg(test)]
mod tests {
    use quipu_protocol::{Model, StopReason, Thinking, Usage};

    use super::*;

    #[test]
    fn unwritable_call_is_reported_and_ends_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        let request = ModelRequest {
            model: Arc::new(Model::default()),
            system: "".into(),
            tools: [].into(),
            messages: Arc::default(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        };
        let header = Header::of(&request, &Places::default());
        let answer = RecordedAnswer {
            content: Vec::new(),
            stop_reason: StopReason::Stop,
            usage: Usage::default(),
            response_model: None,
            response_id: None,
            error_message: None,
            raw_stop_reason: None,
        };
        let call = RecordedCall {
            call: 0,
            body: String::new(),
            body_bytes: 0,
            summary: false,
            said: Vec::new(),
            results: Vec::new(),
            retries: Vec::new(),
            answer,
            error: None,
            attempts: Vec::new(),
            unknown: Vec::new(),
        };
        let mut tape = Tape {
            file: std::fs::OpenOptions::new().write(true).open(&path).unwrap(),
            path: path.clone(),
            chain: Chain::default(),
            written: 0,
            calls: 0,
            failed: None,
        };
        tape.append(&header, call.clone());
        tape.file = File::open(&path).unwrap();
        for _ in 0..2 {
            tape.append(&header, call.clone());
        }
        assert_eq!(tape.calls, 1);
        assert!(tape.failed.is_some());
        let (_, calls) = crate::recording::read("f", &std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(calls.len(), 1);
    }
}
