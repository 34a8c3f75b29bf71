//! The laws of the event stream, as a checker for tests of anything that answers like a model.

use quipu_protocol::{CallId, Content, Delta, ModelErrorKind, ServerToolBlock, StopReason};

use crate::{CallEnd, CallEvent, tool_arguments};

/// A violated law of event streams, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LawViolation(pub String);

#[derive(Debug, PartialEq)]
enum Kind {
    Text,
    Thinking,
    ToolCall(CallId, String),
    ServerTool,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    text: String,
    open: bool,
}

/// Checks the events of one call and its end against each other:
///
/// - each attempt starts once, before its pieces, with an empty pending message;
/// - blocks are numbered in the order in which they start, and each is started, added to and ended in this
///   order, by pieces of its own kind that are not empty;
/// - a retry makes void what came before it, and counts up from 2;
/// - the pieces together are the message: texts, thinking, ids, names and arguments;
/// - a message never ends pending, and has an error exactly when its call has one.
///
/// # Errors
/// The first law that is broken.
pub fn check(events: &[CallEvent], end: &CallEnd) -> Result<(), LawViolation> {
    let broken = |what: String| Err(LawViolation(what));
    let mut started = false;
    let mut retries: u32 = 0;
    let mut blocks: Vec<Block> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match event {
            CallEvent::Started(_) if started => {
                return broken(format!("event {place} starts the answer again"));
            }
            CallEvent::Started(message) => {
                if !message.content.is_empty() || message.stop_reason != StopReason::Pending {
                    return broken(format!("event {place} starts with content or a stop reason"));
                }
                started = true;
            }
            CallEvent::Retry { attempt, error, .. } => {
                retries += 1;
                if *attempt != retries + 1 {
                    return broken(format!("event {place} announces attempt {attempt}, not {}", retries + 1));
                }
                if error.kind == ModelErrorKind::Aborted {
                    return broken(format!("event {place} retries what was aborted"));
                }
                started = false;
                blocks.clear();
            }
            CallEvent::Delta(_) if !started => {
                return broken(format!("event {place} comes before the start"));
            }
            CallEvent::Delta(delta) => {
                add(&mut blocks, delta).map_err(|why| LawViolation(format!("event {place} {why}")))?;
            }
        }
    }
    let message = &end.message;
    let sent = end.attempts.len();
    // A pure decoder sends nothing; a call may end while it waits for the next attempt.
    if sent > 0 && sent != retries as usize && sent != retries as usize + 1 {
        return broken(format!("{sent} attempts with {retries} retries"));
    }
    let aborted = end.error.as_ref().is_some_and(|error| error.kind == ModelErrorKind::Aborted);
    let fits = match message.stop_reason {
        StopReason::Error => end.error.is_some() && !aborted,
        StopReason::Aborted => aborted,
        StopReason::Pending => false,
        StopReason::Stop | StopReason::Length | StopReason::ToolUse | StopReason::Deferred => {
            end.error.is_none()
        }
    };
    if !fits {
        return broken(format!("it ended with {:?} and the error {:?}", message.stop_reason, end.error));
    }
    let usage = &message.usage;
    if usage.total_tokens != usage.input + usage.output + usage.cache_read + usage.cache_write {
        return broken(format!("the tokens do not add up: {usage:?}"));
    }
    let partial = end.error.as_ref().is_some_and(|error| error.kind != ModelErrorKind::Refused);
    if !partial {
        if !started {
            return broken("it succeeded without a start".into());
        }
        if let Some(open) = blocks.iter().position(|block| block.open) {
            return broken(format!("block {open} was never ended"));
        }
    }
    let kept: Vec<_> = blocks
        .iter()
        .filter(|block| match block.kind {
            Kind::Text => !(partial && block.text.is_empty()),
            Kind::Thinking | Kind::ServerTool => true,
            Kind::ToolCall(..) => !(partial && block.open),
        })
        .collect();
    // Half a character that was waiting when a broken answer ended.
    let cut = |text: &str| text.strip_suffix('\u{fffd}').map(String::from);
    let kept_len = message.content.len();
    if kept.len() != kept_len {
        return broken(format!("{} blocks were streamed, {kept_len} are in the message", kept.len()));
    }
    for (index, (block, content)) in kept.iter().zip(&message.content).enumerate() {
        let same_text =
            |text: &str| text == block.text || (block.open && cut(text).as_ref() == Some(&block.text));
        let same = match (&block.kind, content) {
            (Kind::Text, Content::Text(content)) => same_text(&content.text),
            (Kind::Thinking, Content::Thinking(content)) => same_text(&content.thinking),
            (Kind::ToolCall(id, name), Content::ToolCall(call)) => {
                call.id == *id && call.name == *name && call.arguments == tool_arguments(&block.text)
            }
            (Kind::ServerTool, Content::Other(json)) => {
                ServerToolBlock::of_json(json).is_some_and(|used| used.summary() == block.text)
            }
            _ => false,
        };
        if !same {
            return broken(format!(
                "block {index} of the message is {content:?}, but {block:?} was streamed"
            ));
        }
    }
    Ok(())
}

fn add(blocks: &mut Vec<Block>, delta: &Delta) -> Result<(), String> {
    let (index, kind) = match delta {
        Delta::TextStarted { index } => (index, Some(Kind::Text)),
        Delta::ThinkingStarted { index } => (index, Some(Kind::Thinking)),
        Delta::ToolCallStarted { index, id, name } => (index, Some(Kind::ToolCall(id.clone(), name.clone()))),
        Delta::ServerTool { index, summary } => {
            if *index != blocks.len() {
                return Err(format!("adds block {index}, but the next is {}", blocks.len()));
            }
            blocks.push(Block { kind: Kind::ServerTool, text: summary.clone(), open: false });
            return Ok(());
        }
        Delta::Text { index, .. }
        | Delta::TextEnded { index }
        | Delta::Thinking { index, .. }
        | Delta::ThinkingEnded { index }
        | Delta::ToolCallArguments { index, .. }
        | Delta::ToolCallEnded { index } => (index, None),
    };
    if let Some(kind) = kind {
        if *index != blocks.len() {
            return Err(format!("starts block {index}, but the next is {}", blocks.len()));
        }
        blocks.push(Block { kind, text: String::new(), open: true });
        return Ok(());
    }
    let block = blocks.get_mut(*index).filter(|block| block.open);
    let block = block.ok_or_else(|| format!("is about block {index}, which is not open"))?;
    let (fits, more) = match delta {
        Delta::Text { text, .. } => (block.kind == Kind::Text, Some(text)),
        Delta::Thinking { text, .. } => (block.kind == Kind::Thinking, Some(text)),
        Delta::ToolCallArguments { json, .. } => (matches!(block.kind, Kind::ToolCall(..)), Some(json)),
        Delta::TextEnded { .. } => (block.kind == Kind::Text, None),
        Delta::ThinkingEnded { .. } => (block.kind == Kind::Thinking, None),
        Delta::ToolCallEnded { .. } => (matches!(block.kind, Kind::ToolCall(..)), None),
        Delta::TextStarted { .. }
        | Delta::ThinkingStarted { .. }
        | Delta::ToolCallStarted { .. }
        | Delta::ServerTool { .. } => (true, None),
    };
    if !fits {
        return Err(format!("is not for a block such as {index}"));
    }
    match more {
        Some(text) if text.is_empty() => return Err(format!("adds nothing to block {index}")),
        Some(text) => block.text.push_str(text),
        None => block.open = false,
    }
    Ok(())
}
