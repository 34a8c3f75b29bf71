//! Event streams as the server of the first wire sends them.

use serde_json::{Value, json};

use crate::Reply;

/// Builds the event stream of one answer, block after block.
///
/// ```
/// let reply = quipu_testkit::Answer::new().text("Hello").reply();
/// let server = quipu_testkit::FakeServer::start([reply]);
/// assert!(server.url().starts_with("http://127.0.0.1:"));
/// ```
#[derive(Debug, Clone)]
pub struct Answer {
    events: Vec<Value>,
    blocks: usize,
    usage: Value,
    output_tokens: u64,
    stop: Option<String>,
    has_calls: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            blocks: 0,
            usage: json!({ "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 }),
            output_tokens: 5,
            stop: None,
            has_calls: false,
        }
    }
}

impl Answer {
    /// An answer without content: 10 tokens in, 5 out.
    pub fn new() -> Self {
        Self::default()
    }

    /// A text block, in two pieces when it is long enough.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        let deltas = halves(text).map(|piece| json!({ "type": "text_delta", "text": piece }));
        self.block(&json!({ "type": "text", "text": "" }), deltas)
    }

    /// A thinking block with its signature.
    #[must_use]
    pub fn thinking(self, thinking: &str, signature: &str) -> Self {
        let deltas = halves(thinking).map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
        let signature = json!({ "type": "signature_delta", "signature": signature });
        self.block(&json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas.chain([signature]))
    }

    /// A thinking block that came encrypted only.
    #[must_use]
    pub fn redacted_thinking(self, data: &str) -> Self {
        self.block(&json!({ "type": "redacted_thinking", "data": data }), [])
    }

    /// A tool call. `arguments` are sent as they are, JSON or not.
    #[must_use]
    pub fn tool_call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.has_calls = true;
        let deltas =
            halves(arguments).map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
        self.block(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), deltas)
    }

    /// An event as it is.
    #[must_use]
    pub fn event(mut self, event: Value) -> Self {
        self.events.push(event);
        self
    }

    /// Tokens: uncached input, output, read from and written to the cache.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cache_read: u64, cache_write: u64) -> Self {
        self.usage = json!({
            "input_tokens": input,
            "cache_creation_input_tokens": cache_write,
            "cache_read_input_tokens": cache_read,
        });
        self.output_tokens = output;
        self
    }

    /// The stop reason; without this `tool_use` after tool calls and else `end_turn`.
    #[must_use]
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// The stream without its end: what was built so far and no stop reason.
    pub fn unfinished(&self) -> String {
        let message = json!({
            "id": "msg_test", "type": "message", "role": "assistant", "model": "test-model", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": self.usage,
        });
        let mut out = frame(&json!({ "type": "message_start", "message": message }));
        for event in &self.events {
            out.push_str(&frame(event));
        }
        out
    }

    /// The whole stream.
    pub fn stream(&self) -> String {
        let natural = if self.has_calls { "tool_use" } else { "end_turn" };
        let reason = self.stop.as_deref().unwrap_or(natural);
        let mut out = self.unfinished();
        out.push_str(&frame(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": { "output_tokens": self.output_tokens },
        })));
        out.push_str(&frame(&json!({ "type": "message_stop" })));
        out
    }

    /// The whole stream as a reply.
    pub fn reply(&self) -> Reply {
        Reply::sse(self.stream())
    }

    fn block(mut self, start: &Value, deltas: impl IntoIterator<Item = Value>) -> Self {
        let index = self.blocks;
        self.blocks += 1;
        self.events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in deltas {
            self.events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        self.event(json!({ "type": "content_block_stop", "index": index }))
    }
}

fn frame(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {event}\n\n")
}

/// `text` in at most two pieces, none of them empty.
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|piece| !piece.is_empty())
}
