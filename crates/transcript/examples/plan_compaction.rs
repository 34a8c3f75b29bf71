//! How long planning a compaction takes: where the context is cut, whether that helps, and what has to be summed up.
//!
//! `plan_compaction RUNS MESSAGES` prints a JSON line `{"what": .., "unit": "ms", "samples": [..]}`, for
//! `cargo xtask bench plan`. The steps are those of the engine's machine before its first call for a summary.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, StopReason, ToolCall, ToolResultMessage, Usage,
};
use quipu_transcript::{cut, freed, sent_tokens};

/// Bytes of a message.
const TEXT: usize = 1_000;
/// Tokens that stay.
const KEEP: u64 = 20_000;

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [runs, count] = arguments.as_slice() else {
        return Err("usage: plan_compaction RUNS MESSAGES".into());
    };
    let (runs, count) = (runs.parse::<usize>()?, count.parse::<usize>()?);
    let messages: Vec<Arc<Message>> = (0..count).map(message).collect();
    // Kept as messages come, and not counted again.
    let all: u64 = messages.iter().map(|message| sent_tokens(message)).sum();
    let mut samples = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        let mut keep = KEEP;
        let found = loop {
            match cut(&messages, keep) {
                Some(found) if freed(&messages, found, all) >= all / 10 => break found,
                _ if keep == 0 => return Err("there is nothing to sum up".into()),
                _ => keep /= 2,
            }
        };
        let turn = found.turn.unwrap_or(found.first_kept);
        let stretch = (messages[found.begin..turn].to_vec(), messages[turn..found.first_kept].to_vec());
        samples.push(start.elapsed().as_secs_f64() * 1_000.0);
        black_box(stretch);
    }
    println!("{}", serde_json::json!({ "what": "plan", "unit": "ms", "samples": samples }));
    Ok(())
}

/// Turns of a prompt, a call, its result and an answer.
fn message(at: usize) -> Arc<Message> {
    let text = format!("{at:>8} ").repeat(TEXT / 9);
    let answer = |content, stop_reason| {
        let usage = Usage { input: at as u64 * 250, output: 200, ..Usage::default() };
        Message::Assistant(AssistantMessage { content, stop_reason, usage, ..AssistantMessage::default() })
    };
    Arc::new(match at % 4 {
        0 => Message::user(text, 0),
        1 => {
            let call = ToolCall {
                id: format!("c{at}").into(),
                name: "read".into(),
                arguments: Json::object(),
                thought_signature: None,
                namespace: None,
            };
            answer(vec![Content::text(text), Content::ToolCall(call)], StopReason::ToolUse)
        }
        2 => Message::ToolResult(ToolResultMessage {
            tool_call_id: format!("c{}", at - 1).into(),
            tool_name: "read".into(),
            content: vec![Content::text(text)],
            details: None,
            usage: None,
            is_error: false,
            timestamp: 0,
        }),
        _ => answer(vec![Content::text(text)], StopReason::Stop),
    })
}
