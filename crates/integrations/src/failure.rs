//! After a command that failed: where the same error was seen before, and what was done until the command worked.

use quipu_history::{TextDetail, minute, text_of};
use quipu_protocol::{CallId, Content, Entry, Json, Message, NodeId};
use quipu_store::{Hit, SearchQuery, Speaker, StoreError, decode_nodes};
use quipu_transcript::{FileOpKind, file_ops, one_line};

use crate::beside_prompt::agent_of;
use crate::framed_lines::{FramedLines, without_frames};
use crate::hook_call::{CommandFailure, FailureSign};
use crate::view::{HookAnswer, View};
use crate::words::{error_line, last_line, telling_words};

const HEAD: &str = "Seen before:";
/// Bytes at the end of an output that are looked at.
const OUTPUT: usize = 64 << 10;
/// Words of the error's line that are looked for.
const WORDS: usize = 10;
/// Places that are looked at.
const HITS: usize = 4;
/// Steps after one that are looked at, and answers before it.
const STEPS: usize = 40;
const BACK: usize = 6;
/// Steps that are told.
const TOLD: usize = 5;

pub(crate) async fn text(view: &View<'_>, failed: &CommandFailure) -> Result<Option<HookAnswer>, StoreError> {
    let mut from = failed.output.len().saturating_sub(OUTPUT);
    while !failed.output.is_char_boundary(from) {
        from += 1;
    }
    let output = without_frames(&failed.output[from..]);
    let line = error_line(&output).or_else(|| match failed.sign {
        FailureSign::Reported => last_line(&output),
        FailureSign::Guessed => None,
    });
    let Some(line) = line.map(|line| view.sealed(&line)) else { return Ok(None) };
    let words = telling_words(&line, WORDS);
    let query = SearchQuery {
        words: words.join(" "),
        speakers: vec![Speaker::Tool, Speaker::Shell],
        limit: HITS,
        per_session: Some(1),
        ..SearchQuery::default()
    };
    let hits = view.newest(query).await?;
    let mut best: Option<(Hit, Aftermath)> = None;
    for hit in hits {
        if best.is_some() && !view.has_time() {
            break;
        }
        let after = aftermath(view, hit.node, &words).await?;
        let is_better = best.as_ref().is_none_or(|(_, known)| !known.worked && after.worked);
        if is_better {
            let worked = after.worked;
            best = Some((hit, after));
            if worked {
                break;
            }
        }
    }
    let Some((hit, after)) = best else { return Ok(None) };
    let agent = agent_of(view, &hit).await?;
    let agent = agent.trim_end();
    let mut told = format!("{} {} {agent}: {}", hit.node.short(), minute(hit.at), one_line(&line, 80));
    if !after.steps.is_empty() {
        told.push_str(&format!("; then: {}", after.steps.join("; ")));
    }
    if after.worked {
        told.push_str("; after that the command worked");
    } else if let Some(said) = &after.said {
        told.push_str(&format!("; the model said: {said}"));
    } else if after.steps.is_empty() {
        return Ok(None);
    }
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    lines.push(&told);
    Ok(lines.finish().map(|text| HookAnswer { text, given: vec![hit.node.short()] }))
}

/// What was done after a failure.
#[derive(Debug, Default)]
struct Aftermath {
    steps: Vec<String>,
    /// Whether the same command went well after them.
    worked: bool,
    /// The first words of the model after it.
    said: Option<String>,
}

/// A call of a tool.
struct Call {
    id: CallId,
    command: Option<String>,
    changed: Vec<String>,
}

async fn aftermath(view: &View<'_>, failed: NodeId, words: &[String]) -> Result<Aftermath, StoreError> {
    let mut around: Vec<_> = view.store.nodes(&[failed]).await?.into_iter().flatten().collect();
    for _ in 0..BACK {
        let Some(parent) = around.first().and_then(|node| node.record.parent) else { break };
        let Some(node) = view.store.nodes(&[parent]).await?.into_iter().flatten().next() else { break };
        around.insert(0, node);
    }
    let place = around.len().saturating_sub(1);
    let (mut last, mut later) = (failed, Vec::new());
    for _ in 0..STEPS {
        let children = view.store.first_children(&[last], 1).await?;
        let Some(next) = children.first().map(|edge| edge.child) else { break };
        later.push(next);
        last = next;
    }
    around.extend(view.store.nodes(&later).await?.into_iter().flatten());
    let entries: Vec<Entry> =
        decode_nodes(view.store, &around).await?.into_iter().map(|decoded| decoded.entry).collect();
    let failed_call = match entries.get(place) {
        Some(Entry::Message(Message::ToolResult(result))) => Some(result.tool_call_id.clone()),
        _ => None,
    };
    let before = entries.iter().take(place).flat_map(calls);
    let command = before.filter(|call| Some(&call.id) == failed_call.as_ref()).find_map(|call| call.command);
    let mut after = Aftermath::default();
    let mut open: Vec<Call> = Vec::new();
    for entry in entries.iter().skip(place + 1) {
        match entry {
            Entry::Message(Message::ToolResult(result)) => {
                let Some(at) = open.iter().position(|call| call.id == result.tool_call_id) else { continue };
                let call = open.swap_remove(at);
                let text = text_of(entry, TextDetail::Full).to_lowercase();
                let fails_again = result.is_error || words.iter().all(|word| text.contains(word));
                if call.command.is_some() && call.command == command {
                    if !fails_again {
                        after.worked = true;
                        return Ok(after);
                    }
                    continue;
                }
                if fails_again || after.steps.len() == TOLD {
                    continue;
                }
                let changed = call.changed.iter().map(|path| format!("changed {}", view.short_path(path)));
                let ran = call.command.iter().map(|command| format!("ran {}", one_line(command, 80)));
                let steps: Vec<String> =
                    if call.changed.is_empty() { ran.collect() } else { changed.collect() };
                after.steps.extend(steps.into_iter().take(TOLD - after.steps.len()));
            }
            Entry::Message(Message::Assistant(answer)) => {
                open.extend(calls(entry));
                let mut texts = answer.content.iter().filter_map(Content::as_text);
                if after.said.is_none() {
                    after.said =
                        texts.find(|text| !text.trim().is_empty()).map(|text| one_line(text.trim(), 160));
                }
            }
            // Another task begins.
            Entry::Message(Message::User(_)) => break,
            _ => {}
        }
    }
    Ok(after)
}

fn calls(entry: &Entry) -> Vec<Call> {
    let Entry::Message(Message::Assistant(answer)) = entry else { return Vec::new() };
    let calls = answer.content.iter().filter_map(|block| match block {
        Content::ToolCall(call) => Some(call),
        _ => None,
    });
    calls
        .map(|call| {
            let changed = file_ops(&call.name, call.arguments.get());
            let changed = changed.into_iter().filter(|op| op.kind != FileOpKind::Read).map(|op| op.path);
            Call { id: call.id.clone(), command: command(&call.arguments), changed: changed.collect() }
        })
        .collect()
}

/// The command of a call, on however many lines.
fn command(arguments: &Json) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(arguments.get()).ok()?;
    let found = ["command", "cmd"].iter().find_map(|name| arguments.get(name)?.as_str());
    found.map(|text| text.trim().to_owned())
}
