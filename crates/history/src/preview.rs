//! A node on one line, in the form that every program on the shared graph shows it in.

use quipu_dag::Node;
use quipu_protocol::{Body, Content, Entry, Message, UnixMs};
use quipu_transcript::{is_plan_note, role_with};
use serde::Deserialize;

use super::text::{shortened, units};
use quipu_transcript::one_line;

/// Code units of each text of a message, of a result, and of a call's arguments.
const SAID: u64 = 60;
const RESULT: u64 = 40;
const ARGUMENTS: u64 = 40;
/// Code units of all of it.
const ALL: u64 = 240;
/// Characters of a role, of the name of a tool, and of a writer's own id.
const NAME: usize = 64;

/// What a node says, on one line.
pub(crate) fn preview(node: &Node, entry: &Entry) -> String {
    let role = one_line(role_with(node, entry), NAME);
    let (text, quoted) = match entry {
        Entry::Session(_) => return "[session]".into(),
        Entry::Epoch(_) => return "[epoch]".into(),
        Entry::Meta(json) => {
            #[derive(Deserialize)]
            struct Kind {
                r#type: String,
            }
            let kind = json.read().map_or_else(|_| "meta".into(), |Kind { r#type }| r#type);
            return format!("[{}]", one_line(&kind, NAME));
        }
        Entry::Compaction(compaction) => (excerpt_of([compaction.summary.as_str()]), true),
        Entry::Message(message) => match message {
            Message::User(user) => {
                let text = of_body(&user.content);
                return format!("user: \"{}\"", if text.is_empty() { "(no text)" } else { &text });
            }
            Message::Assistant(answer) => {
                let texts = excerpt_of(answer.content.iter().filter_map(Content::as_text));
                match texts.is_empty() {
                    false => return format!("assistant: \"{texts}\""),
                    true => return format!("assistant: {}", calls(&answer.content)),
                }
            }
            Message::ToolResult(result) => {
                let tool = one_line(&result.tool_name, NAME);
                let tool = if tool.is_empty() || tool == "unknown" { "tool" } else { &tool };
                let text = joined(result.content.iter().filter_map(of_block), RESULT);
                return format!("[{tool}]: \"{}\"", if text.is_empty() { "(no output)" } else { &text });
            }
            Message::BashExecution(run) => (excerpt_of([run.command.as_str(), run.output.as_str()]), true),
            Message::Custom(custom) => (of_body(&custom.content), true),
            Message::BranchSummary(branch) => (excerpt_of([branch.summary.as_str()]), true),
            Message::CompactionSummary(compaction) => (excerpt_of([compaction.summary.as_str()]), true),
            Message::Other(_) => (String::new(), false),
        },
    };
    if text.is_empty() || !quoted { format!("({role})") } else { format!("{role}: \"{text}\"") }
}

/// The tool calls of an answer without text.
fn calls(content: &[Content]) -> String {
    let calls = content.iter().filter_map(Content::as_tool_call).map(|call| {
        let arguments = shortened(&flat(call.arguments.get()), ARGUMENTS);
        format!("{}: {arguments}", one_line(&call.name, NAME))
    });
    let calls = limited(calls, ", ");
    if calls.is_empty() { "(no content)".into() } else { format!("[{calls}]") }
}

fn of_body(body: &Body) -> String {
    match body {
        Body::Text(text) => excerpt_of([text.as_str()]),
        Body::Blocks(blocks) => {
            joined(blocks.iter().filter_map(of_block).filter(|text| !is_plan_note(text)), SAID)
        }
    }
}

fn of_block(block: &Content) -> Option<&str> {
    match block {
        Content::Text(text) => Some(&text.text),
        Content::Image(_) => Some("[image]"),
        Content::Thinking(_) | Content::ToolCall(_) | Content::Other(_) => None,
    }
}

fn excerpt_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    joined(texts.into_iter(), SAID)
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>, most: u64) -> String {
    limited(texts.filter(|text| !text.is_empty()).map(|text| shortened(&flat(text), most)), " ")
}

/// As many as there is room for.
fn limited(pieces: impl Iterator<Item = String>, between: &str) -> String {
    let mut out = String::new();
    for piece in pieces {
        if !out.is_empty() {
            out.push_str(between);
            if units(&out) + units(&piece) > ALL {
                out.push_str("...");
                break;
            }
        }
        out.push_str(&piece);
    }
    out
}

/// The beginning of a text without line breaks, and without what would steer a terminal; long enough for every use.
fn flat(text: &str) -> String {
    one_line(text, 2 * NAME)
}

/// The name by which a node is shown: its writer's own id, or the beginning of its hash.
pub(crate) fn name(node: &Node) -> String {
    match &node.record.external_id {
        Some(external) if external.chars().count() <= NAME && one_line(external, NAME) == *external => {
            format!("pi:{external}")
        }
        _ => node.id.short(),
    }
}

/// How long ago, in the largest unit up to hours.
pub(crate) fn age(now: UnixMs, then: UnixMs) -> String {
    let seconds = now.saturating_sub(then).max(0) / 1_000;
    match seconds {
        0 => "now".into(),
        1..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        _ => format!("{}h ago", seconds / 3_600),
    }
}
