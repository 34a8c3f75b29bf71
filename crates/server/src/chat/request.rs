//! What a request for an answer says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use quipu_protocol::{Content, ImageContent, Thinking};
use quipu_runtime::SessionKey;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::ApiError;
use crate::body::check_object;

use super::model_names::AGENT;

/// Bytes of the name of a session.
const KEY_LIMIT: usize = 256;
/// Kinds of images that sessions take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// How the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamMode {
    Whole,
    Pieces,
    PiecesAndUsage,
}

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChatRequest {
    /// As it is written.
    pub(super) model: String,
    /// The last message.
    pub(super) prompt: Vec<Content>,
    /// The messages before it, as a text for a session that has none.
    pub(super) earlier: Option<String>,
    pub(super) mode: StreamMode,
    /// The name of the session; `None` for one of its own.
    pub(super) key: Option<SessionKey>,
    pub(super) thinking: Option<Thinking>,
}

struct RawRequest {
    model: Option<String>,
    messages: Option<Vec<RawMessage>>,
    stream: Option<bool>,
    stream_options: Option<RawStreamOptions>,
    user: Option<String>,
    reasoning_effort: Option<String>,
    n: Option<u64>,
    tools: Option<Vec<Value>>,
    functions: Option<Vec<Value>>,
    response_format: Option<Value>,
    modalities: Option<Vec<String>>,
    audio: Option<Value>,
    logprobs: Option<bool>,
    stop: Option<Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object of options")]
struct RawStreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(expecting = "a message: an object with `role` and `content`")]
struct RawMessage {
    role: String,
    content: Option<RawContent>,
    tool_calls: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`content` must be a text or a list of parts")]
enum RawContent {
    Text(String),
    Parts(Vec<RawPart>),
}

#[derive(Deserialize)]
#[serde(expecting = "a part: an object with `type`")]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<RawImage>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with `url`")]
struct RawImage {
    url: String,
}

/// A member of a request; `None` where it is not there.
fn member<T: for<'a> Deserialize<'a>>(
    members: &mut Map<String, Value>,
    name: &'static str,
) -> Result<Option<T>, ApiError> {
    let Some(value) = members.remove(name) else { return Ok(None) };
    serde_json::from_value(value).map_err(|error| ApiError {
        param: Some(name),
        ..ApiError::invalid(format!("`{name}` is not as wanted: {error}"))
    })
}

impl RawRequest {
    fn read(mut members: Map<String, Value>) -> Result<Self, ApiError> {
        let all = &mut members;
        Ok(Self {
            model: member(all, "model")?.flatten(),
            messages: member(all, "messages")?,
            stream: member(all, "stream")?.flatten(),
            stream_options: member(all, "stream_options")?.flatten(),
            user: member(all, "user")?.flatten(),
            reasoning_effort: member(all, "reasoning_effort")?.flatten(),
            n: member(all, "n")?.flatten(),
            tools: member(all, "tools")?.flatten(),
            functions: member(all, "functions")?.flatten(),
            response_format: member(all, "response_format")?,
            modalities: member(all, "modalities")?.flatten(),
            audio: member(all, "audio")?,
            logprobs: member(all, "logprobs")?.flatten(),
            stop: member(all, "stop")?,
        })
    }

    /// Refuses what would ask for another form of answer. What only tunes the model, such as `temperature`, has no effect.
    fn check(&self) -> Result<(), ApiError> {
        let refuse = |param, message: &str| Err(ApiError::unsupported(param, message));
        if self.n.is_some_and(|count| count != 1) {
            return refuse("n", "the agent gives one answer; `n` must be 1");
        }
        if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            return refuse("tools", "the agent has tools of its own; those of a client are not supported");
        }
        if self.functions.as_ref().is_some_and(|functions| !functions.is_empty()) {
            return refuse(
                "functions",
                "the agent has tools of its own; those of a client are not supported",
            );
        }
        let format = self.response_format.as_ref().map(|format| &format["type"]);
        if format.is_some_and(|format| !format.is_null() && format != "text") {
            return refuse("response_format", "answers are text; `response_format` must be `text`");
        }
        if self.modalities.as_ref().is_some_and(|kinds| kinds.iter().any(|kind| kind != "text")) {
            return refuse("modalities", "answers are text; `modalities` must be `text` alone");
        }
        if self.audio.as_ref().is_some_and(|audio| !audio.is_null()) {
            return refuse("audio", "answers are text; `audio` is not supported");
        }
        if self.logprobs == Some(true) {
            return refuse("logprobs", "`logprobs` is not supported");
        }
        if self.stop.as_ref().is_some_and(|stop| !stop.is_null() && *stop != Value::Array(Vec::new())) {
            return refuse("stop", "`stop` is not supported: it would break off the work of the agent");
        }
        Ok(())
    }
}

/// The conversation that a client's name for a session stands for.
fn conversation(name: &str) -> Result<SessionKey, ApiError> {
    if name.trim().is_empty() || name.len() > KEY_LIMIT || name.chars().any(char::is_control) {
        let message = format!("the name of a session (`user`) is a line of 1 to {KEY_LIMIT} bytes");
        return Err(ApiError::invalid(message));
    }
    let invalid = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "invalid_key", message);
    let key = SessionKey::parse(name).map_err(|error| invalid(error.to_string()))?;
    if key.is_heartbeat() {
        return Err(invalid("conversations of heartbeats take no messages".to_owned()));
    }
    Ok(key)
}

impl ChatRequest {
    /// Reads the body of a request. `key` names the session before the member `user`.
    pub(super) fn read(body: &[u8], key: Option<String>) -> Result<Self, ApiError> {
        check_object(body)?;
        let members: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body is not valid JSON: {error}")))?;
        let raw = RawRequest::read(members)?;
        raw.check()?;
        let key = key.or(raw.user).map(|name| conversation(&name)).transpose()?;
        let thinking = raw.reasoning_effort.as_deref().map(thinking).transpose()?;
        let usage = raw.stream_options.and_then(|options| options.include_usage).unwrap_or_default();
        let mode = match (raw.stream.unwrap_or_default(), usage) {
            (false, _) => StreamMode::Whole,
            (true, false) => StreamMode::Pieces,
            (true, true) => StreamMode::PiecesAndUsage,
        };
        let mut messages = raw.messages.unwrap_or_default();
        let Some(last) = messages.pop().filter(|last| last.role == "user") else {
            let error = ApiError::invalid("the last message must be one of the role `user`");
            return Err(ApiError { param: Some("messages"), ..error });
        };
        let prompt = prompt_of(last.content)?;
        Ok(Self {
            model: raw.model.unwrap_or_else(|| AGENT.to_owned()),
            prompt,
            earlier: earlier_of(messages)?,
            mode,
            key,
            thinking,
        })
    }

    pub(super) fn has_images(&self) -> bool {
        self.prompt.iter().any(|block| matches!(block, Content::Image(_)))
    }
}

fn thinking(effort: &str) -> Result<Thinking, ApiError> {
    let level = if effort == "none" { "off" } else { effort };
    serde_json::from_value(level.into()).map_err(|_| {
        ApiError::unsupported("reasoning_effort", format!("`{effort}` is not a level of `reasoning_effort`"))
    })
}

fn in_messages(message: impl Into<String>) -> ApiError {
    ApiError { param: Some("messages"), ..ApiError::invalid(message) }
}

fn unknown_part(kind: &str) -> ApiError {
    in_messages(format!("a part of the type `{kind}` is not supported; parts are `text` and `image_url`"))
}

fn prompt_of(content: Option<RawContent>) -> Result<Vec<Content>, ApiError> {
    let parts = match content {
        Some(RawContent::Text(text)) => return Ok(vec![Content::text(text)]),
        Some(RawContent::Parts(parts)) => parts,
        None => Vec::new(),
    };
    let block = |part: RawPart| match (part.kind.as_str(), part.text, part.image_url) {
        ("text", Some(text), _) => Ok(Content::text(text)),
        ("image_url", _, Some(image)) => image_of(&image.url).map(Content::Image),
        ("text" | "image_url", ..) => {
            Err(in_messages(format!("a part of the type `{0}` needs the member `{0}`", part.kind)))
        }
        (kind, ..) => Err(unknown_part(kind)),
    };
    parts.into_iter().map(block).collect()
}

fn image_of(url: &str) -> Result<ImageContent, ApiError> {
    let Some(rest) = url.strip_prefix("data:") else {
        return Err(in_messages("an image must be a data URL; nothing is fetched from other servers"));
    };
    let (kind, data) = rest
        .split_once(";base64,")
        .ok_or_else(|| in_messages("the data URL of an image must have the form data:TYPE;base64,DATA"))?;
    let kind =
        if kind.eq_ignore_ascii_case("image/jpg") { "image/jpeg".into() } else { kind.to_ascii_lowercase() };
    if !IMAGES.contains(&kind.as_str()) {
        return Err(in_messages(format!(
            "images of the type `{kind}` are not supported; use {}",
            IMAGES.join(", ")
        )));
    }
    match STANDARD.decode(data) {
        Ok(bytes) if !bytes.is_empty() => Ok(ImageContent { data: data.to_owned(), mime_type: kind }),
        Ok(_) => Err(in_messages("an image is empty")),
        Err(error) => Err(in_messages(format!("the data of an image is not base64: {error}"))),
    }
}

/// The text of a message for a session.
fn text_of(message: RawMessage) -> Result<String, ApiError> {
    let text = match message.content {
        Some(RawContent::Text(text)) => text,
        Some(RawContent::Parts(parts)) => {
            let texts = parts.into_iter().map(|part| match part.kind.as_str() {
                "text" => Ok(part.text.unwrap_or_default()),
                "refusal" => Ok(part.refusal.unwrap_or_default()),
                "image_url" => Ok("(an image)".to_owned()),
                kind => Err(unknown_part(kind)),
            });
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        None => String::new(),
    };
    match message.tool_calls.as_deref() {
        None | Some([]) => Ok(text),
        Some(calls) => {
            let names = calls.iter().map(|call| call["function"]["name"].as_str().unwrap_or("a tool"));
            let called = format!("(calls {})", names.collect::<Vec<_>>().join(", "));
            Ok(if text.is_empty() { called } else { format!("{text}\n{called}") })
        }
    }
}

/// Messages before the prompt as one text; `None` where there are none.
fn earlier_of(messages: Vec<RawMessage>) -> Result<Option<String>, ApiError> {
    let (mut instructions, mut earlier) = (Vec::new(), Vec::new());
    for message in messages {
        let role = message.role.clone();
        match role.as_str() {
            "system" | "developer" => instructions.push(text_of(message)?),
            "user" | "assistant" | "tool" | "function" => {
                earlier.push(format!("{role}: {}", text_of(message)?));
            }
            other => return Err(in_messages(format!("`{other}` is not a role of a message"))),
        }
    }
    let mut text = Vec::new();
    if !instructions.is_empty() {
        text.push(format!(
            "Instructions of the program that sends this conversation:\n\n{}",
            instructions.join("\n\n")
        ));
    }
    if !earlier.is_empty() {
        text.push(format!(
            "Earlier messages of this conversation, as that program has them:\n\n{}",
            earlier.join("\n\n")
        ));
    }
    Ok((!text.is_empty()).then(|| text.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<ChatRequest, ApiError> {
        ChatRequest::read(body.to_string().as_bytes(), None)
    }

    fn user(content: &Value) -> Value {
        json!({ "model": "quipu", "messages": [{ "role": "user", "content": content }] })
    }

    #[test]
    fn request_has_the_last_message_as_its_prompt() {
        let body = json!({
            "model": "testing/one", "stream": true, "stream_options": { "include_usage": true }, "user": "me",
            "temperature": 0.2, "max_tokens": 7, "reasoning_effort": "none",
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": [{ "type": "text", "text": "One?" }, { "type": "image_url", "image_url": { "url": "https://x" } }] },
                { "role": "assistant", "content": null, "tool_calls": [{ "function": { "name": "look" } }] },
                { "role": "tool", "content": "1", "tool_call_id": "c" },
                { "role": "user", "content": "Two?" },
            ],
        });
        let request = read(&body).unwrap();
        let earlier = "Instructions of the program that sends this conversation:\n\nBe brief.\n\n\
            Earlier messages of this conversation, as that program has them:\n\n\
            user: One?\n(an image)\n\nassistant: (calls look)\n\ntool: 1";
        let wanted = ChatRequest {
            model: "testing/one".into(),
            prompt: vec![Content::text("Two?")],
            earlier: Some(earlier.into()),
            mode: StreamMode::PiecesAndUsage,
            key: Some(SessionKey::parse("me").unwrap()),
            thinking: Some(Thinking::Off),
        };
        assert_eq!(request, wanted);
        let named = ChatRequest::read(body.to_string().as_bytes(), Some("header".into())).unwrap();
        assert_eq!(named.key.map(|key| key.to_string()).as_deref(), Some("header"));
    }

    #[test]
    fn image_is_taken_from_a_data_url() {
        let image = |url: &str| {
            let part = json!({ "type": "image_url", "image_url": { "url": url } });
            read(&user(&json!([{ "type": "text", "text": "?" }, part])))
        };
        let request = image("data:image/jpg;base64,AAAA").unwrap();
        let wanted = ImageContent { data: "AAAA".into(), mime_type: "image/jpeg".into() };
        assert_eq!(request.prompt[1], Content::Image(wanted));
        assert!(request.has_images());
        for (url, word) in [
            ("https://example.com/x.png", "data URL"),
            ("data:image/png,AAAA", "base64"),
            ("data:image/svg+xml;base64,AAAA", "image/png"),
            ("data:image/png;base64,!", "not base64"),
            ("data:image/png;base64,", "empty"),
        ] {
            let error = image(url).unwrap_err();
            assert!(error.message.contains(word) && error.param == Some("messages"), "{url}: {error:?}");
        }
    }

    #[test]
    fn request_of_another_form_is_refused_by_its_member() {
        for (member, value) in [
            ("n", json!(2)),
            ("tools", json!([{ "type": "function" }])),
            ("functions", json!([{}])),
            ("response_format", json!({ "type": "json_object" })),
            ("modalities", json!(["audio"])),
            ("audio", json!({})),
            ("logprobs", json!(true)),
            ("stop", json!("END")),
            ("reasoning_effort", json!("very")),
        ] {
            let mut body = user(&json!("hi"));
            body[member] = value;
            let error = read(&body).unwrap_err();
            assert_eq!((error.param, error.status.as_u16()), (Some(member), 400), "{error:?}");
        }
        let mut harmless = user(&json!("hi"));
        for (member, value) in [
            ("n", json!(1)),
            ("tools", json!([])),
            ("response_format", json!({ "type": "text" })),
            ("stop", json!(null)),
            ("seed", json!(7)),
        ] {
            harmless[member] = value;
        }
        assert!(read(&harmless).is_ok());
    }

    #[test]
    fn member_of_a_wrong_type_is_named() {
        for (member, value) in [
            ("model", json!(7)),
            ("messages", json!("hi")),
            ("messages", json!([7])),
            ("messages", json!([{ "role": "user", "content": [7] }])),
            ("stream", json!("yes")),
            ("stream_options", json!(7)),
            ("user", json!([])),
            ("n", json!(-1)),
            ("tools", json!({})),
        ] {
            let mut body = user(&json!("hi"));
            body[member] = value;
            let error = read(&body).unwrap_err();
            assert_eq!((error.param, error.status.as_u16()), (Some(member), 400), "{error:?}");
            assert!(!error.message.contains("Raw") && !error.message.contains("struct"), "{error:?}");
        }
        let error = read(&json!({})).unwrap_err();
        assert_eq!(error.param, Some("messages"), "{error:?}");
        let mut nothing = user(&json!("hi"));
        for member in ["model", "stream", "stream_options", "user", "n", "tools", "logprobs"] {
            nothing[member] = Value::Null;
        }
        assert!(read(&nothing).is_ok());
    }

    #[test]
    fn broken_request_is_refused() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"messages":{}}"#,
            r#"{"messages":[]}"#,
            r#"{"messages":[{"role":"user"}],"n":-1}"#,
            r#"{"messages":[{"role":"assistant","content":"x"}]}"#,
            r#"{"messages":[{"role":"king","content":"x"},{"role":"user","content":"x"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}"#,
            r#"{"messages":[{"role":"user","content":"x"}],"user":" "}"#,
            r#"{"messages":[{"role":"user","content":"x"}],"user":"a\nb"}"#,
        ] {
            let error = ChatRequest::read(body.as_bytes(), None).unwrap_err();
            assert_eq!(error.status.as_u16(), 400, "{body}: {error:?}");
        }
        let deep = format!("{{\"messages\":{}", "[".repeat(100_000));
        assert!(ChatRequest::read(deep.as_bytes(), None).is_err());
    }
}
