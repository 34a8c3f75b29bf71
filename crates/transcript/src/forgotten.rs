//! What is left of a node that a person had forgotten, for whoever is shown it: how it stands in its conversation, and no word.

use quipu_protocol::{Body, Compaction, Content, Entry, Json, Message, TextContent, ThinkingContent};

use crate::DecodedEntry;
use crate::blocks::member;

/// What a compaction keeps of the tokens that were counted: numbers.
const MEASURED: &str = "measured";
/// What stands in the place of a forgotten text.
pub const FORGOTTEN: &str = "[forgotten: the user had this removed]";

/// The same node without what it says. Roles, ids of calls, names of tools, times, usage and the order of blocks stay, so that a
/// conversation with it is as valid as before. The node itself is not changed: its history keeps it.
///
/// ```
/// use quipu_protocol::{Entry, Message};
/// use quipu_transcript::{DecodedEntry, FORGOTTEN, forgotten};
///
/// let said = Entry::Message(Message::user("the cat is called Mia", 7));
/// let left = forgotten(DecodedEntry { entry: said, step: Default::default() });
/// assert_eq!(left.entry, Entry::Message(Message::user(FORGOTTEN, 7)));
/// ```
#[must_use]
pub fn forgotten(decoded: DecodedEntry) -> DecodedEntry {
    let DecodedEntry { entry, mut step } = decoded;
    // What hooks said, and events that nobody knows.
    step.extra.retain(|name, _| name == MEASURED);
    let entry = match entry {
        Entry::Message(message) => Entry::Message(forgotten_message(&message)),
        Entry::Compaction(compaction) => Entry::Compaction(forgotten_compaction(&compaction)),
        Entry::Meta(json) => Entry::Meta(forgotten_meta(json)),
        entry @ (Entry::Session(_) | Entry::Epoch(_)) => entry,
    };
    DecodedEntry { entry, step }
}

/// A message without what it says.
#[must_use]
pub fn forgotten_message(message: &Message) -> Message {
    let mut left = message.clone();
    match &mut left {
        Message::User(said) => forget_body(&mut said.content),
        Message::Custom(said) => {
            forget_body(&mut said.content);
            said.details = None;
        }
        Message::Assistant(answer) => {
            let had = !answer.content.is_empty();
            answer.content = answer.content.iter().filter_map(answered).collect();
            if had && answer.content.iter().all(|block| matches!(block, Content::Thinking(_))) {
                answer.content.push(Content::text(FORGOTTEN));
            }
            answer.error_message = answer.error_message.take().map(|_| FORGOTTEN.to_owned());
            answer.response_id = None;
        }
        Message::ToolResult(result) => {
            result.content = vec![Content::text(FORGOTTEN)];
            result.details = None;
        }
        Message::BashExecution(run) => {
            run.command = FORGOTTEN.to_owned();
            run.output = String::new();
            run.full_output_path = None;
        }
        Message::BranchSummary(branch) => {
            branch.summary = FORGOTTEN.to_owned();
            branch.details = None;
        }
        Message::CompactionSummary(compaction) => compaction.summary = FORGOTTEN.to_owned(),
        // Nobody knows what it says, and no conversation shows it.
        Message::Other(json) => *json = without_text(json, &["role", "timestamp"]),
    }
    left
}

/// A compaction without what it says, and without what the messages say that it keeps itself.
#[must_use]
pub fn forgotten_compaction(compaction: &Compaction) -> Compaction {
    let kept = crate::retained_messages(compaction);
    let kept: Vec<Message> = kept.iter().map(forgotten_message).collect();
    Compaction {
        summary: FORGOTTEN.to_owned(),
        retained_tail: compaction.retained_tail.as_ref().map(|_| Json::of(&kept).unwrap_or_default()),
        details: None,
        ..compaction.clone()
    }
}

/// A block of an answer. Proof of the model's thinking is worth nothing without the thinking; that there was some stays, since
/// ids of calls are tied to it.
fn answered(block: &Content) -> Option<Content> {
    match block {
        Content::Text(_) | Content::Image(_) => Some(Content::text(FORGOTTEN)),
        Content::Thinking(_) => Some(Content::Thinking(ThinkingContent::default())),
        Content::Other(_) => None,
        Content::ToolCall(call) => {
            let mut left = call.clone();
            left.arguments = Json::from(&serde_json::json!({}));
            left.thought_signature = None;
            Some(Content::ToolCall(left))
        }
    }
}

/// Each block stays one, since others are known by their places.
fn forget_body(body: &mut Body) {
    match body {
        Body::Text(text) => *text = FORGOTTEN.to_owned(),
        Body::Blocks(blocks) => {
            for block in blocks {
                *block = Content::Text(TextContent { text: FORGOTTEN.to_owned(), text_signature: None });
            }
        }
    }
}

/// Entries that other programs keep beside the messages and show to a model, labels and names. Others say nothing of anybody's.
fn forgotten_meta(json: Json) -> Json {
    let kind = member(&json, "type");
    let text = match kind.as_deref() {
        Some("custom_message") => "content",
        Some("branch_summary") => "summary",
        Some("label") => "label",
        Some("session_info") => "name",
        _ => return json,
    };
    let kept = ["type", "id", "parentId", "timestamp", "customType", "display", "fromId", "targetId"];
    let left = without_text(&json, &kept);
    let Ok(mut left) = left.read::<serde_json::Map<String, serde_json::Value>>() else { return left };
    let blocks = json.read::<MetaContent>().ok().map(|meta| meta.content);
    let said = match blocks {
        // As many as there were, as of a message.
        Some(Body::Blocks(blocks)) => {
            let block = serde_json::json!({ "type": "text", "text": FORGOTTEN });
            serde_json::Value::Array(blocks.iter().map(|_| block.clone()).collect())
        }
        Some(Body::Text(_)) | None => FORGOTTEN.into(),
    };
    left.insert(text.to_owned(), said);
    Json::from(&serde_json::Value::Object(left))
}

#[derive(serde::Deserialize)]
struct MetaContent {
    content: Body,
}

/// These members of an object alone.
fn without_text(json: &Json, kept: &[&str]) -> Json {
    let mut left = json.read::<serde_json::Map<String, serde_json::Value>>().unwrap_or_default();
    left.retain(|name, _| kept.contains(&name.as_str()));
    Json::from(&serde_json::Value::Object(left))
}
