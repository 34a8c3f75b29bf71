//! The file of a recording: one JSON object a line, each chained to the one before it. Described in
//! `docs/recording.md`.

use quipu_protocol::{
    Body, CallId, Content, Json, Message, Model, ModelError, ModelErrorKind, ModelRequest, StopReason,
    Thinking, Usage,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::places::Places;

/// The version of the format that is written; older ones are read.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a recording at most.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// Calls of a recording at most.
const MAX_CALLS: usize = 10_000;
const CHAIN: &str = ",\"chain\":\"";

/// Why a recording cannot be written or played.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file is there already; nothing was written.
    #[error("{0} already exists; remove it or choose another name")]
    Exists(String),
    /// The file cannot be made, written or read.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no file that could be read to an end: a directory, a pipe, a device.
    #[error("{0} is not a regular file")]
    NotAFile(String),
    /// It is larger than 256 MiB or has more than 10,000 calls.
    #[error("{0} exceeds the limit for a recording (256 MiB, 10,000 calls)")]
    TooLarge(String),
    /// It does not begin as a recording does.
    #[error("{0} is not a recording: its first line is not a recording header")]
    NotARecording(String),
    /// A later version wrote it.
    #[error(
        "{path} is a recording of version {version}; this program replays versions up to {VERSION}. Update Quipu"
    )]
    Newer {
        /// Its path.
        path: String,
        /// Its version.
        version: u64,
    },
    /// Its last line is not whole.
    #[error("{path} is incomplete: line {line} is cut off. Remove that line to replay the calls before it")]
    Torn {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// A line is not as it was written.
    #[error(
        "{path} was modified: the hash of line {line} does not match the lines before it. Record it again"
    )]
    Changed {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// A line is as it was written, but not what a line must be.
    #[error("{path}: line {line} is not a recorded call: {why}")]
    BadLine {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// It has a first line and nothing else.
    #[error("{0} contains no calls")]
    Empty(String),
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(crate) quipu_recording: u32,
    pub(crate) by: String,
    pub(crate) model: RecordedModel,
    pub(crate) thinking: Thinking,
    /// SHA-256 of the system prompt, without what differs by nature.
    pub(crate) system: String,
    /// Names, as declared.
    pub(crate) tools: Vec<String>,
    /// SHA-256 of the tool declarations' JSON text.
    pub(crate) tool_declarations: String,
}

/// What a front wants to know of the model. Never its address, headers or key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedModel {
    pub(crate) provider: String,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) api: String,
    pub(crate) input: Vec<String>,
    pub(crate) context_window: u64,
    pub(crate) max_tokens: u64,
}

/// Each other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedCall {
    /// Counts from 1.
    pub(crate) call: u32,
    /// SHA-256 of the body that was sent.
    pub(crate) body: String,
    pub(crate) body_bytes: u64,
    /// Whether it summed the conversation up and belongs to no turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) summary: bool,
    /// What the user said since the call before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) said: Vec<Body>,
    /// What the tools returned since the call before, comparable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) results: Vec<RecordedResult>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retries: Vec<RecordedRetry>,
    pub(crate) answer: RecordedAnswer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ModelError>,
    pub(crate) attempts: Vec<RecordedAttempt>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<Json>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedResult {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) failed: bool,
    pub(crate) text: String,
    /// SHA-256 of each image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRetry {
    /// Whether something of the answer had come.
    pub(crate) begun: bool,
    pub(crate) error: ModelError,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedAttempt {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ModelErrorKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedAnswer {
    pub(crate) content: Vec<Content>,
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_stop_reason: Option<String>,
}

impl Header {
    pub(crate) fn of(request: &ModelRequest, places: &Places) -> Self {
        let model: &Model = &request.model;
        Self {
            quipu_recording: VERSION,
            by: concat!("quipu ", env!("CARGO_PKG_VERSION")).into(),
            model: RecordedModel {
                provider: model.provider.clone(),
                id: model.id.clone(),
                name: model.name.clone(),
                api: model.api.clone(),
                input: model.input.clone(),
                context_window: model.context_window,
                max_tokens: model.max_tokens,
            },
            thinking: request.thinking,
            system: hash(places.comparable(&request.system).as_bytes()),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_declarations: hash(Json::of(&*request.tools).unwrap_or_default().get().as_bytes()),
        }
    }
}

/// Whether a request is to sum the conversation up: it is the only kind that stands in no session.
pub(crate) fn is_summary(request: &ModelRequest) -> bool {
    request.session.is_none()
}

/// SHA-256 as text.
pub(crate) fn hash(bytes: &[u8]) -> String {
    quipu_protocol::ChunkId(Sha256::digest(bytes).into()).to_string()
}

/// What came into the conversation since the last call.
#[derive(Debug, Default)]
pub(crate) struct Since {
    calls: u32,
    shown: usize,
}

impl Since {
    /// The conversation is summed up, or was tried to be.
    pub(crate) fn summary(&mut self) {
        // A context that was compacted begins with its summary, which nobody said.
        self.shown = 1;
    }

    /// What is new in a request. Results before the first call are not of this recording.
    pub(crate) fn look(
        &mut self,
        request: &ModelRequest,
        places: &Places,
    ) -> (Vec<Body>, Vec<RecordedResult>) {
        let messages = &request.messages;
        let answered = messages.iter().rposition(|message| matches!(&**message, Message::Assistant(_)));
        let first = answered.map_or(0, |at| at + 1).max(self.shown.min(messages.len()));
        self.shown = messages.len();
        self.calls += 1;
        let (mut said, mut results) = (Vec::new(), Vec::new());
        for message in &messages[first..] {
            match &**message {
                Message::User(user) => said.push(match &user.content {
                    Body::Blocks(blocks) => match &blocks[..] {
                        [Content::Text(text)] => Body::Text(text.text.clone()),
                        _ => Body::Blocks(blocks.clone()),
                    },
                    text @ Body::Text(_) => text.clone(),
                }),
                Message::ToolResult(result) if self.calls > 1 => {
                    let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
                    let images = result.content.iter().filter_map(|block| match block {
                        Content::Image(image) => Some(hash(image.data.as_bytes())),
                        Content::Text(_)
                        | Content::Thinking(_)
                        | Content::ToolCall(_)
                        | Content::Other(_) => None,
                    });
                    results.push(RecordedResult {
                        call: result.tool_call_id.clone(),
                        tool: result.tool_name.clone(),
                        failed: result.is_error,
                        text: places.comparable(&text.join("\n")),
                        images: images.collect(),
                    });
                }
                _ => {}
            }
        }
        (said, results)
    }
}

/// The running hash over all lines so far.
#[derive(Debug, Default)]
pub(crate) struct Chain([u8; 32]);

impl Chain {
    /// The next line, with its newline; `line` is an object with members.
    pub(crate) fn seal(&mut self, line: &str) -> String {
        let open = line.strip_suffix('}').unwrap_or(line);
        format!("{open}{CHAIN}{}\"}}\n", self.next(open))
    }

    fn next(&mut self, open: &str) -> quipu_protocol::ChunkId {
        let mut sum = Sha256::new();
        sum.update(self.0);
        sum.update(open);
        self.0 = sum.finalize().into();
        quipu_protocol::ChunkId(self.0)
    }

    /// The object in a line that was sealed, when nothing of it and nothing before it was changed.
    fn open(&mut self, line: &str) -> Option<String> {
        let (open, sum) = line.strip_suffix("\"}")?.rsplit_once(CHAIN)?;
        (self.next(open).to_string() == sum).then(|| format!("{open}}}"))
    }
}

/// Reads a whole recording; `path` is for messages.
pub(crate) fn read(path: &str, bytes: &[u8]) -> Result<(Header, Vec<RecordedCall>), RecordingError> {
    let path = || path.to_owned();
    if bytes.len() as u64 > MAX_BYTES {
        return Err(RecordingError::TooLarge(path()));
    }
    let not_one = || RecordingError::NotARecording(path());
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if bytes.starts_with(b"{\"quipuRecording\":") => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            let torn = error.error_len().is_none();
            return Err(match torn {
                true => RecordingError::Torn { path: path(), line },
                false => RecordingError::Changed { path: path(), line },
            });
        }
        Err(_) => return Err(not_one()),
    };
    if !text.starts_with("{\"quipuRecording\":") {
        return Err(not_one());
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let first = lines.first().copied().unwrap_or_default();
    // Before anything else: a later version may say everything else in another way.
    let digits = first["{\"quipuRecording\":".len()..].split(|c: char| !c.is_ascii_digit()).next();
    match digits.unwrap_or_default().parse::<u64>() {
        Ok(version) if version > u64::from(VERSION) => {
            return Err(RecordingError::Newer { path: path(), version });
        }
        Ok(1..) => {}
        Ok(0) | Err(_) => return Err(not_one()),
    }
    let mut chain = Chain::default();
    let mut header = None;
    let mut calls: Vec<RecordedCall> = Vec::new();
    for (line, text) in (1..).zip(lines) {
        let Some(text) = text.strip_suffix('\n') else {
            return Err(RecordingError::Torn { path: path(), line });
        };
        let object = chain.open(text).ok_or_else(|| RecordingError::Changed { path: path(), line })?;
        let bad = |why: String| RecordingError::BadLine { path: path(), line, why };
        if header.is_none() {
            header = Some(serde_json::from_str::<Header>(&object).map_err(|error| bad(error.to_string()))?);
            continue;
        }
        let call: RecordedCall = serde_json::from_str(&object).map_err(|error| bad(error.to_string()))?;
        if usize::try_from(call.call).ok() != Some(calls.len() + 1) {
            return Err(bad(format!("expected call {}, got call {}", calls.len() + 1, call.call)));
        }
        calls.push(call);
        if calls.len() > MAX_CALLS {
            return Err(RecordingError::TooLarge(path()));
        }
    }
    match header {
        Some(_) if calls.is_empty() => Err(RecordingError::Empty(path())),
        Some(header) => Ok((header, calls)),
        None => Err(not_one()),
    }
}

/// Applies `map` to every text of an answer and `map_json` to every JSON value of it.
pub(crate) fn map_content(
    content: &mut [Content],
    map: impl Fn(&str) -> String,
    map_json: impl Fn(&Json) -> Json,
) {
    for block in content {
        match block {
            Content::Text(text) => text.text = map(&text.text),
            // What is signed or encrypted must stay as it is.
            Content::Thinking(thinking) if thinking.thinking_signature.is_none() => {
                thinking.thinking = map(&thinking.thinking);
            }
            Content::Thinking(_) | Content::Image(_) => {}
            Content::ToolCall(call) => call.arguments = map_json(&call.arguments),
            Content::Other(json) => *json = map_json(json),
        }
    }
}
