//! `quipu context --at NODE`: what stood in one request, part by part.

use std::io::Write as _;
use std::sync::Arc;

use quipu::RequestParts;
use quipu_host::{Home, iso};
use quipu_past::OpeningState;
use quipu_protocol::{Body, Content, Message, NodeId, OpeningBoundary};
use quipu_store::Graph;
use quipu_transcript::{estimate_text, sent_tokens};
use serde_json::{Value, json};

use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::no_sessions;
use crate::print::{counted, printable};

/// How a block begins that active memory put beside a prompt.
const BESIDE: &str = "[Added by the hook active-memory]";
/// Tools whose results are of the past.
const RECALLING: [&str; 4] = ["memory_search", "memory_get", "memory_range", "recall"];

pub(crate) async fn show(home: &Home, node: &str, as_json: bool) -> Result<(), Failure> {
    let Some(store) = home.existing_store().await? else { return Err(no_sessions(home)) };
    let newest = match current_dir() {
        Ok(here) => quipu_host::newest_in(&*store, &here).await?,
        Err(_) => None,
    };
    let node = quipu_host::resolve(&*store, node, newest.as_ref()).await?.node;
    let parts = home.engine(store.clone(), &home.settings())?.request_parts(node).await?;
    let left_out = left_out(&*store, &parts).await?;
    let value = as_value(node, &parts, left_out.as_ref());
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if as_json {
        writeln!(out, "{value}")?;
    } else {
        for line in lines(&value) {
            writeln!(out, "{}", printable(&line))?;
        }
    }
    Ok(out.flush()?)
}

/// The range of the nodes that a compaction took out, where it did.
async fn left_out(store: &dyn Graph, parts: &RequestParts) -> Result<Option<Value>, Failure> {
    let Some((_, compaction)) = &parts.compacted else { return Ok(None) };
    let first = compaction.first_kept;
    let kept = match first {
        Some(first) => store.nodes(&[first]).await?.into_iter().flatten().next(),
        None => None,
    };
    let last = kept.and_then(|node| node.record.parent);
    let Some(last) = last else { return Ok(Some(json!({ "firstKept": first }))) };
    let root = store.ancestor(last, 0).await?.unwrap_or(last);
    let ends = store.nodes(&[root, last]).await?;
    let at = |nth: usize| ends.get(nth).and_then(Option::as_ref).map(|node| iso(node.record.timestamp));
    Ok(Some(json!({ "firstKept": first, "from": at(0), "to": at(1), "last": last })))
}

fn size(text: &str) -> Value {
    json!({ "bytes": text.len(), "tokens": estimate_text(text) })
}

fn size_of(messages: &[Arc<Message>]) -> (usize, u64) {
    let bytes =
        messages.iter().map(|message| serde_json::to_vec(&**message).map_or(0, |json| json.len())).sum();
    (bytes, messages.iter().map(|message| sent_tokens(message)).sum())
}

fn as_value(node: NodeId, parts: &RequestParts, left_out: Option<&Value>) -> Value {
    let RequestParts { head, call, epoch, system, opening, opening_messages, compacted, messages } = parts;
    let state = opening.as_ref().and_then(OpeningState::of);
    let has_memory = opening.as_ref().is_some_and(|opening| !opening.text.trim().is_empty());
    let cover = opening.as_ref().filter(|_| has_memory).map(|opening| {
        let mut value = size(&opening.text);
        value["source"] = json!(opening.source);
        if let Some(state) = &state {
            value["scope"] = json!(state.scope);
            value["until"] = json!(iso(state.boundary));
            value["members"] = json!(state.served.members);
            value["leftOut"] = json!(state.served.left_out);
            value["next"] = json!(state.pending.as_ref().map(|next| &next.members));
        }
        value
    });
    let boundary = opening.as_ref().and_then(|opening| opening.boundary.as_ref());
    // Nothing is separated from nothing.
    let boundary = boundary.filter(|_| has_memory || compacted.is_some());
    let boundary =
        boundary.map(|OpeningBoundary { assistant, user }| json!({ "assistant": assistant, "user": user }));
    let summary = compacted.as_ref().map(|(node, compaction)| {
        let mut value = size(&compaction.summary);
        value["node"] = json!(node);
        value["byModel"] = json!(compaction.from_hook != Some(true));
        value
    });
    let live: Vec<Arc<Message>> = messages.iter().map(|(_, message)| message.clone()).collect();
    let (bytes, tokens) = size_of(&live);
    let at = |message: Option<&(NodeId, Arc<Message>)>| message.map(|(_, message)| iso(message.timestamp()));
    let recalled: Vec<Value> = messages.iter().flat_map(|(node, message)| recalled(*node, message)).collect();
    let tools = serde_json::to_string(&epoch.tools).unwrap_or_default();
    let mut tools_size = size(&tools);
    tools_size["count"] = json!(epoch.tools.len());
    json!({
        "node": node,
        "head": head,
        "sent": call.is_some(),
        "body": call.as_ref().map(|call| json!({ "bytes": call.body_bytes, "sha256": call.body })),
        "model": format!("{}/{}", epoch.provider, epoch.model),
        "system": size(system),
        "tools": tools_size,
        "cover": cover,
        "coverBudget": state.as_ref().map(|state| state.budget),
        "summary": summary,
        "boundary": boundary,
        "opening": opening_messages.len(),
        "leftOut": left_out,
        "live": {
            "messages": live.len(), "bytes": bytes, "tokens": tokens,
            "from": at(messages.first()), "to": at(messages.last()), "first": messages.first().map(|(node, _)| node),
        },
        "recalled": recalled,
    })
}

/// What was recalled for a prompt or by a call: always in the conversation, behind the boundary.
fn recalled(node: NodeId, message: &Message) -> Vec<Value> {
    let found = |by: &str, text: &str| {
        let mut value = size(text);
        value["node"] = json!(node);
        value["by"] = json!(by);
        value
    };
    match message {
        Message::User(user) => {
            let Body::Blocks(blocks) = &user.content else { return Vec::new() };
            let texts = blocks.iter().filter_map(Content::as_text);
            texts.filter(|text| text.starts_with(BESIDE)).map(|text| found("active-memory", text)).collect()
        }
        Message::ToolResult(result) if RECALLING.contains(&result.tool_name.as_str()) => {
            let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
            vec![found(&result.tool_name, &text.join("\n"))]
        }
        _ => Vec::new(),
    }
}

fn lines(value: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let sized = |value: &Value| {
        format!("{} bytes, about {} tokens", number(&value["bytes"]), number(&value["tokens"]))
    };
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut lines = vec![match value["sent"].as_bool() {
        Some(true) => {
            format!("The request that {} answers, to {}:", text(&value["node"]), text(&value["model"]))
        }
        _ => format!("A request at {}, to {}:", text(&value["node"]), text(&value["model"])),
    }];
    lines.push(format!("system prompt: {}", sized(&value["system"])));
    lines.push(format!("{} tools: {}", number(&value["tools"]["count"]), sized(&value["tools"])));
    match &value["cover"] {
        Value::Null => lines.push(match value["coverBudget"].as_u64() {
            Some(budget) => {
                format!("no past: no chunk that ends before the session fits into {budget} tokens")
            }
            None => "no past".to_owned(),
        }),
        cover => {
            let members = cover["members"].as_array().map(Vec::as_slice).unwrap_or_default();
            lines.push(format!("past: {}, {}", counted(members.len() as u64, "chunk"), sized(cover)));
            for member in members {
                let id: String = text(&member["id"]).chars().take(12).collect();
                lines.push(format!("  {} {id} {} tokens", text(&member["key"]), number(&member["cost"])));
            }
            if let Some(range) = cover["leftOut"].as_str() {
                lines.push(format!("  nothing is shown of {range}"));
            }
            if let Some(next) = cover["next"].as_array() {
                lines.push(format!(
                    "  another cover, of {} chunks, is served from the next run on",
                    next.len()
                ));
            }
        }
    }
    if !value["summary"].is_null() {
        let by = if value["summary"]["byModel"] == json!(true) { "a model" } else { "no model" };
        let summary = &value["summary"];
        lines.push(format!("summary {}: {}, made by {by}", text(&summary["node"]), sized(summary)));
    }
    if let Some(last) = value["leftOut"].get("last") {
        let range = &value["leftOut"];
        let (from, to) = (text(&range["from"]), text(&range["to"]));
        lines.push(format!("left out: the nodes from {from} to {to}, the last one {}", text(last)));
    }
    match &value["boundary"] {
        Value::Null => {}
        pair => lines.push(format!("boundary: `{}`, `{}`", text(&pair["assistant"]), text(&pair["user"]))),
    }
    lines.push(format!(
        "conversation: {} messages, {}",
        number(&value["live"]["messages"]),
        sized(&value["live"])
    ));
    for one in value["recalled"].as_array().map(Vec::as_slice).unwrap_or_default() {
        lines.push(format!("  recalled by {} at {}: {}", text(&one["by"]), text(&one["node"]), sized(one)));
    }
    if let Some(bytes) = value["body"]["bytes"].as_u64() {
        lines.push(format!("body as it was sent: {bytes} bytes"));
    }
    lines
}
