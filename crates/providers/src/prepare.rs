//! What every wire does to a conversation before it is written down. Pure and deterministic.

use std::borrow::Cow;
use std::collections::HashSet;

use quipu_protocol::{
    AssistantMessage, Body, CallId, Content, ImageContent, Json, Message, Model, ModelError, ModelErrorKind,
    ModelRequest, StopReason, Thinking, without_lone_surrogates,
};
use serde_json::{Map, Value};

use crate::ThinkingBudgets;

/// Tokens of the window that stay free beside the estimated input.
const MARGIN: u64 = 4_096;
/// Output that is kept possible before a larger margin than [`MARGIN`] is asked for.
const OUTPUT_BEFORE_MARGIN: u64 = 32_768;
/// What an image is estimated at, in tokens.
const IMAGE_TOKENS: u64 = 1_200;
/// Tokens of the answer that a thinking budget must leave.
pub(crate) const MIN_ANSWER: u64 = 1_024;
/// Nested arguments deeper than this are sent as text: no server takes them.
const MAX_DEPTH: usize = 100;
pub(crate) const NO_OUTPUT: &str = "(no output)";
/// What a result says that has nothing but images, where these stand behind it.
pub(crate) const SEE_IMAGE: &str = "(see attached image)";
/// Stands before images of results that a server takes only from the user.
pub(crate) const IMAGES_FOLLOW: &str = "Attached image(s) from tool result:";
/// Length of a tool's name at most, where a wire has no other limit; a model can make up a longer one, and every later
/// request would be refused.
pub(crate) const MAX_NAME: usize = 64;
pub(crate) const NO_RESULT: &str = "No result provided";
pub(crate) const NO_TOOL_OUTPUT: &str = "(no tool output)";
/// Stands between results and the user's words for servers that want an answer there.
pub(crate) const RESULTS_READ: &str = "The tool results are in.";
const IMAGE_OMITTED: &str = "(image omitted: model does not support images)";
pub(crate) const TOOL_IMAGE_OMITTED: &str = "(tool image omitted: model does not support images)";
const IMAGE_UNKNOWN: &str = "(image omitted: not a PNG, JPEG, GIF or WebP image in base64)";

/// A content block of the user's side of the conversation, ready for the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UserBlock<'a> {
    Text(&'a str),
    Image { media_type: &'a str, data: &'a str },
}

/// What stands on the user's side of the conversation; `None` for an answer, a result and what the model must not
/// see.
pub(crate) fn user_side<'a>(message: &'a Message, model: &Model) -> Option<Vec<UserBlock<'a>>> {
    let body = |body: &'a Body| match body {
        Body::Text(plain) => text(plain).into_iter().collect(),
        Body::Blocks(content) => shown(content, model, IMAGE_OMITTED),
    };
    Some(match message {
        Message::User(user) => body(&user.content),
        Message::Custom(custom) => body(&custom.content),
        Message::BranchSummary(summary) => text(&summary.summary).into_iter().collect(),
        Message::CompactionSummary(summary) => text(&summary.summary).into_iter().collect(),
        Message::BashExecution(bash) if bash.exclude_from_context == Some(true) => return None,
        Message::BashExecution(bash) => {
            [text(&bash.command), text(&bash.output)].into_iter().flatten().collect()
        }
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => return None,
    })
}

/// Text and images; for a model that sees no images each run of them as one text.
pub(crate) fn shown<'a>(content: &'a [Content], model: &Model, omitted: &'static str) -> Vec<UserBlock<'a>> {
    let mut out = Vec::new();
    let mut in_run = false;
    for block in content {
        match block {
            Content::Text(block) => out.extend(text(&block.text)),
            Content::Image(image) if model.sees_images() => {
                out.extend(picture(image).or_else(|| text(IMAGE_UNKNOWN)));
            }
            Content::Image(_) if in_run => {}
            Content::Image(_) => out.extend(text(omitted)),
            Content::Thinking(_) | Content::ToolCall(_) | Content::Other(_) => {}
        }
        in_run = matches!(block, Content::Image(_));
    }
    out
}

/// Servers refuse text that is empty or only white space.
fn text(text: &str) -> Option<UserBlock<'_>> {
    (!text.trim().is_empty()).then_some(UserBlock::Text(text))
}

/// The image, when it is one that servers take: a single other one would have the whole request refused.
fn picture(image: &ImageContent) -> Option<UserBlock<'_>> {
    let media_type = match image.mime_type.as_str() {
        "image/jpg" => "image/jpeg",
        known @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp") => known,
        _ => return None,
    };
    let data = image.data.as_bytes();
    let padding = data.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let (digits, _) = data.split_at(data.len() - padding);
    let is_base64 = !digits.is_empty()
        && data.len().is_multiple_of(4)
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    is_base64.then_some(UserBlock::Image { media_type, data: &image.data })
}

/// Whether the answer broke off: what is known of it stays in the session, and is not sent.
pub(crate) fn is_broken(answer: &AssistantMessage) -> bool {
    matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Whether the answer is one of this very model on this very wire.
pub(crate) fn is_own(answer: &AssistantMessage, model: &Model) -> bool {
    answer.provider == model.provider && answer.api == model.api && answer.model == model.id
}

/// A tool call of the last answer, with the id that it has on the wire.
#[derive(Clone)]
pub(crate) struct Call {
    id: CallId,
    wire_id: String,
    answered: bool,
}

/// Tool calls and what answers them.
#[derive(Default)]
pub(crate) struct Calls {
    /// Ids that are taken: wires want each tool call's id once in a conversation, and ours are unique only within a
    /// message.
    taken: HashSet<String>,
    /// The calls of the last answer.
    pub(crate) open: Vec<Call>,
}

impl Calls {
    /// Notes a call and gives its id on the wire: `base` (ASCII), cut to `longest` bytes, with a number when it is
    /// taken.
    pub(crate) fn open(&mut self, id: &CallId, mut base: String, longest: usize) -> String {
        base.truncate(longest);
        self.open_as(id, |attempt| {
            let suffix = if attempt == 0 { String::new() } else { format!("_{}", attempt + 1) };
            let start = base.len().min(longest - suffix.len());
            format!("{}{suffix}", &base[..start])
        })
    }

    /// Notes a call and gives its id on the wire: the first of these names that is not taken.
    pub(crate) fn open_as(&mut self, id: &CallId, name: impl Fn(u32) -> String) -> String {
        let mut attempt = 0;
        let mut wire_id = name(attempt);
        while !self.taken.insert(wire_id.clone()) {
            attempt += 1;
            wire_id = name(attempt);
        }
        self.open.push(Call { id: id.clone(), wire_id: wire_id.clone(), answered: false });
        wire_id
    }

    /// The call on the wire that a result for `id` answers. The conversation is valid: what answers no call answers
    /// one of an answer that was left out.
    pub(crate) fn answer(&mut self, id: &CallId) -> Option<String> {
        let call = self.open.iter_mut().find(|call| !call.answered && call.id == *id)?;
        call.answered = true;
        Some(call.wire_id.clone())
    }

    /// Forgets the last answer's calls and gives those that nothing answered.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = String> + '_ {
        self.open.drain(..).filter(|call| !call.answered).map(|call| call.wire_id)
    }
}

/// Output tokens that the caller asks for, within what the model has.
pub(crate) fn wanted_tokens(request: &ModelRequest) -> u64 {
    let own = own_tokens(&request.model);
    request.max_tokens.unwrap_or(own).min(own).max(1)
}

/// The limit of output where thinking at `level` counts as output: a caller's limit is for the answer, so the budget of
/// the level comes on top, within what the model and its window have.
pub(crate) fn output_tokens(request: &ModelRequest, level: Thinking, budgets: ThinkingBudgets) -> u64 {
    let mut wanted = wanted_tokens(request);
    if level != Thinking::Off && request.max_tokens.is_some() {
        wanted = wanted.saturating_add(budgets.of(level)).min(own_tokens(&request.model));
    }
    fit(request, wanted)
}

/// Output tokens that the model has.
pub(crate) fn own_tokens(model: &Model) -> u64 {
    if model.max_tokens == 0 { u64::from(u32::MAX) } else { model.max_tokens }
}

/// `wanted` output tokens, or as many as the window leaves room for; at least one.
pub(crate) fn fit(request: &ModelRequest, wanted: u64) -> u64 {
    let window = request.model.context_window;
    if window == 0 {
        return wanted;
    }
    let input = estimate(request);
    let free = window.saturating_sub(input);
    // Servers count tokens differently; a large input is given a proportional margin while that leaves enough.
    let mut room = free.saturating_sub(MARGIN.max(input.saturating_mul(15).div_ceil(100)));
    if room < OUTPUT_BEFORE_MARGIN {
        room = free.saturating_sub(MARGIN).min(OUTPUT_BEFORE_MARGIN);
    }
    wanted.min(room).max(1)
}

/// Tokens of the input: what the last answer counted, and a quarter of the bytes since then.
fn estimate(request: &ModelRequest) -> u64 {
    let size = |message: &Message| -> u64 {
        let blocks = match message {
            Message::User(m) => m.content.blocks(),
            Message::Assistant(m) => m.content.as_slice().into(),
            Message::ToolResult(m) => m.content.as_slice().into(),
            Message::Custom(m) => m.content.blocks(),
            other => return (serde_json::to_string(other).map_or(0, |text| text.len() as u64)) / 4,
        };
        blocks
            .iter()
            .map(|block| match block {
                Content::Text(b) => b.text.len() as u64 / 4 + 1,
                Content::Thinking(b) => b.thinking.len() as u64 / 4 + 1,
                Content::ToolCall(b) => (b.name.len() + b.arguments.get().len()) as u64 / 4 + 1,
                Content::Image(_) => IMAGE_TOKENS,
                Content::Other(_) => 0,
            })
            .sum()
    };
    let mut since: u64 = 0;
    for message in request.messages.iter().rev() {
        if let Message::Assistant(answer) = &**message
            && answer.usage.total_tokens > 0
            && !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
        {
            return since.saturating_add(answer.usage.total_tokens);
        }
        since = since.saturating_add(size(message));
    }
    let tools: usize = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.get().len())
        .sum();
    since + (request.system.len() + tools) as u64 / 4
}

/// `text` in the characters that the wire takes in names and ids; never empty, always ASCII.
pub(crate) fn wire_name(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    if name.is_empty() { "_".into() } else { name }
}

/// FNV-1a: short, and the same everywhere.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The blocks as texts; `None` where an image is among them.
pub(crate) fn texts<'a>(shown: &[UserBlock<'a>]) -> Option<Vec<&'a str>> {
    let text = |shown: &UserBlock<'a>| match *shown {
        UserBlock::Text(text) => Some(text),
        UserBlock::Image { .. } => None,
    };
    shown.iter().map(text).collect()
}

/// Arguments as the wire wants them: an object. What the model wrote that is none is shown to it as text.
pub(crate) fn arguments(arguments: &Json) -> Json {
    if arguments.get().starts_with('{') && depth(arguments.get()) <= MAX_DEPTH {
        return sendable(arguments);
    }
    let text = match serde_json::from_str::<String>(arguments.get()) {
        Ok(text) => text,
        Err(_) => arguments.get().to_owned(),
    };
    Json::from(serde_json::json!({ "INVALID_JSON": text }))
}

/// `json` without halves of surrogate pairs and without numbers that are beyond a double, which servers refuse.
pub(crate) fn sendable(json: &Json) -> Json {
    let whole = without_lone_surrogates(json.get());
    match within_doubles(&whole).map_or(whole, Cow::Owned) {
        Cow::Borrowed(_) => json.clone(),
        Cow::Owned(text) => Json::parse(&text).unwrap_or_else(|_| json.clone()),
    }
}

/// A JSON text with the greatest double for each number beyond it, if there is one.
fn within_doubles(json: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        let length = if rest.starts_with('"') {
            let mut escaped = false;
            let end = rest.bytes().skip(1).position(|byte| {
                let end = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                end
            });
            end.map_or(rest.len(), |end| end + 2)
        } else {
            let in_number = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
            rest.bytes().position(|byte| !in_number(byte)).unwrap_or(rest.len())
        };
        let (found, after) = rest.split_at(length);
        if found.parse().is_ok_and(f64::is_infinite) {
            let start = json.len() - rest.len();
            out.push_str(&json[copied..start]);
            out.push_str(&format!("{:e}", if found.starts_with('-') { f64::MIN } else { f64::MAX }));
            copied = start + length;
        }
        rest = after;
    }
    (copied > 0).then(|| out + &json[copied..])
}

/// How deep the arrays and objects of a JSON text nest.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// `samplingParams` of the model, without the `fixed` members, which would make another request of it.
pub(crate) fn sampling(model: &Model, fixed: &[&str]) -> Map<String, Value> {
    match model.sampling_params.as_ref().map(|params| sendable(params).value()) {
        Some(Value::Object(mut params)) => {
            params.retain(|name, _| !fixed.contains(&name.as_str()));
            params
        }
        Some(_) | None => Map::new(),
    }
}

/// The beginning of a session's name that caches are found by: at most 64 characters.
pub(crate) fn cache_key(session: &str) -> &str {
    const LONGEST: usize = 64;
    session.char_indices().nth(LONGEST).map_or(session, |(end, _)| &session[..end])
}

/// A message or what stands beside them cannot be written as JSON.
pub(crate) fn no_form(error: &serde_json::Error) -> ModelError {
    invalid(format!("The conversation cannot be sent with this API: {error}."))
}

/// A conversation without messages.
pub(crate) fn nothing_to_send() -> ModelError {
    invalid("There is nothing to send: the conversation is empty.")
}

fn invalid(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_a_double_become_the_greatest() {
        let sent = |json: &str| sendable(&Json::parse(json).unwrap()).get().to_owned();
        let long = "1".repeat(400);
        assert_eq!(
            sent(&format!(r#"{{"a":[-1e999,{long}.5, 1e9 ],"1e999\"":"é1e999","b":1E+999}}"#)),
            r#"{"a":[-1.7976931348623157e308,1.7976931348623157e308, 1e9 ],"1e999\"":"é1e999","b":1.7976931348623157e308}"#
        );
        for same in [r#"{"a":1e308,"b":0.1e-999,"c":-0}"#, r#""\\""#, "12", "null"] {
            assert_eq!(sent(same), same);
        }
    }
}
