//! Answers that the proxy gives in the place of a model, in the form of each wire.

use serde_json::{Value, json};

use crate::wire_kind::WireKind;

const STREAM: &str = "text/event-stream";
const ONE: &str = "application/json";

/// The kind of content and the body of an answer that says `text`.
pub(crate) fn local_answer(
    wire: WireKind,
    is_stream: bool,
    model: &str,
    text: &str,
) -> (&'static str, String) {
    let id = uuid::Uuid::now_v7().simple().to_string();
    match (wire, is_stream) {
        (WireKind::Messages, false) => (
            ONE,
            message(&id, model, &[json!({ "type": "text", "text": text })], Some("end_turn")).to_string(),
        ),
        (WireKind::Messages, true) => (STREAM, events(&message_events(&id, model, text))),
        (WireKind::Completions, false) => {
            let message = json!({ "role": "assistant", "content": text });
            let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
            (ONE, completion(&id, model, "chat.completion", &choice).to_string())
        }
        (WireKind::Completions, true) => {
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
                completion(&id, model, "chat.completion.chunk", &choice)
            };
            let said = chunk(json!({ "role": "assistant", "content": text }), Value::Null);
            let end = chunk(json!({}), json!("stop"));
            (STREAM, format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
        }
        (WireKind::Responses, false) => {
            (ONE, response(&id, model, "completed", &[item(&id, text, "completed")]).to_string())
        }
        (WireKind::Responses, true) => (STREAM, events(&response_events(&id, model, text))),
    }
}

fn events(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect()
}

fn message(id: &str, model: &str, content: &[Value], stop: Option<&str>) -> Value {
    json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": stop, "stop_sequence": null, "usage": { "input_tokens": 0, "output_tokens": 0 },
    })
}

fn message_events(id: &str, model: &str, text: &str) -> Vec<Value> {
    vec![
        json!({ "type": "message_start", "message": message(id, model, &[], None) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null },
            "usage": { "output_tokens": 0 },
        }),
        json!({ "type": "message_stop" }),
    ]
}

fn completion(id: &str, model: &str, object: &str, choice: &Value) -> Value {
    json!({
        "id": format!("chatcmpl-{id}"), "object": object, "created": crate::exchange::now() / 1_000, "model": model,
        "choices": [choice], "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
    })
}

fn item(id: &str, text: &str, status: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([part(text)]) };
    json!({ "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": status, "content": content })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn response(id: &str, model: &str, status: &str, output: &[Value]) -> Value {
    json!({
        "id": format!("resp_{id}"), "object": "response", "created_at": crate::exchange::now() / 1_000, "model": model,
        "status": status, "output": output, "error": null, "incomplete_details": null,
        "usage": {
            "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
            "input_tokens_details": { "cached_tokens": 0 }, "output_tokens_details": { "reasoning_tokens": 0 },
        },
    })
}

fn response_events(id: &str, model: &str, text: &str) -> Vec<Value> {
    let name = format!("msg_{id}");
    let at = |mut event: Value, number: u64| {
        event["sequence_number"] = json!(number);
        event
    };
    let within = |kind: &str| json!({ "type": kind, "item_id": name, "output_index": 0, "content_index": 0 });
    let with = |kind: &str, member: &str, value: Value| {
        let mut event = within(kind);
        event[member] = value;
        event
    };
    let all = vec![
        json!({ "type": "response.created", "response": response(id, model, "in_progress", &[]) }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item(id, "", "in_progress") }),
        with("response.content_part.added", "part", part("")),
        with("response.output_text.delta", "delta", json!(text)),
        with("response.output_text.done", "text", json!(text)),
        with("response.content_part.done", "part", part(text)),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item(id, text, "completed") }),
        json!({ "type": "response.completed", "response": response(id, model, "completed", &[item(id, text, "completed")]) }),
    ];
    (0..).zip(all).map(|(number, event)| at(event, number)).collect()
}
