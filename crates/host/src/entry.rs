//! What an entry says, in a few words.

use quipu_protocol::{Body, Content, Entry, Message, StopReason};

use quipu_transcript::typed_text;

use crate::text::one_line;

/// Columns that are left for what is said, however long the word before it is.
const NARROW: usize = 4;

/// Whose an entry is, in a word, and what it says.
pub fn entry_words(entry: &Entry) -> (&'static str, String) {
    match entry {
        Entry::Session(start) => ("session", format!("{} in {}", start.session, start.cwd)),
        Entry::Epoch(epoch) => ("epoch", format!("{}/{}", epoch.provider, epoch.model)),
        Entry::Compaction(compaction) => ("compaction", compaction.summary.clone()),
        Entry::Meta(json) => match quipu_transcript::message_of(entry) {
            Some(message) => message_words(&message),
            None => ("entry", json.to_string()),
        },
        Entry::Message(message) => message_words(message),
    }
}

/// How many of a line's columns are left behind the word that says whose it is.
pub fn room_behind(who: &str, columns: usize) -> usize {
    columns.saturating_sub(who.len() + 1).max(NARROW)
}

/// An entry on one line of so many columns.
pub(crate) fn entry_line(entry: &Entry, columns: usize) -> String {
    let (who, text) = entry_words(entry);
    format!("{who} {}", one_line(&text, room_behind(who, columns)))
}

fn message_words(message: &Message) -> (&'static str, String) {
    match message {
        Message::User(user) => ("user", with_images(typed_text(&user.content.blocks()), &user.content)),
        Message::Assistant(answer) => {
            let mut parts: Vec<String> = Vec::new();
            let text = answer.text();
            if !text.trim().is_empty() {
                parts.push(text);
            }
            parts.extend(answer.tool_calls().map(|call| format!("[{} {}]", call.name, call.arguments)));
            match (answer.stop_reason, &answer.error_message) {
                (StopReason::Error, Some(error)) => parts.push(format!("(failed: {error})")),
                (StopReason::Aborted, _) => parts.push("(aborted)".into()),
                (StopReason::Length, _) => parts.push("(cut off)".into()),
                _ => {}
            }
            ("assistant", parts.join(" "))
        }
        Message::ToolResult(result) => {
            let text = result.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join(" ");
            let failed = if result.is_error { "failed: " } else { "" };
            ("result", format!("[{}] {failed}{text}", result.tool_name))
        }
        Message::BashExecution(run) => ("command", run.command.clone()),
        Message::Custom(custom) => ("custom", with_images(custom.content.text(), &custom.content)),
        Message::BranchSummary(summary) => ("summary", summary.summary.clone()),
        Message::CompactionSummary(summary) => ("summary", summary.summary.clone()),
        Message::Other(json) => ("message", json.to_string()),
    }
}

fn with_images(text: String, body: &Body) -> String {
    let images = body.blocks().iter().filter(|block| matches!(block, Content::Image(_))).count();
    if images > 0 { format!("{text} [{images} image(s)]") } else { text }
}
