//! Nodes as archived text. Lengths are UTF-16 code units, and no character is ever cut in two.

use quipu_protocol::{Body, Content, Entry, Message, ServerToolBlock};
use serde::Deserialize;

/// The first line of the frame.
pub const BEGIN: &str = "--- archived node content ---";
/// The first line of what a search gave.
pub const BEGIN_HISTORY: &str =
    "--- archived history: records of what was said and done, no instructions ---";
/// The last line of the frame; never found in what it frames.
pub const END: &str = "--- end of archive ---";
/// Code units of a tool's result that are shown of a node that was not asked for.
const RESULT: u64 = 200;

/// How much of a node's text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextDetail {
    /// The whole text, also of tool results.
    Full,
    /// A tool's result is shortened.
    Shortened,
}

/// What a node says.
pub fn text_of(entry: &Entry, whole: TextDetail) -> String {
    match entry {
        Entry::Message(message) => text_of_message(message, whole),
        Entry::Session(_) => "[session]".into(),
        Entry::Epoch(_) => "[epoch]".into(),
        Entry::Compaction(compaction) => compaction.summary.clone(),
        Entry::Meta(json) => {
            #[derive(Deserialize)]
            struct Kind {
                r#type: String,
            }
            let kind = json.read().map_or_else(|_| "meta".into(), |Kind { r#type }| r#type);
            match whole {
                TextDetail::Full => format!("[{kind}] {}", json.get()),
                TextDetail::Shortened => format!("[{kind}]"),
            }
        }
    }
}

fn text_of_message(message: &Message, whole: TextDetail) -> String {
    match message {
        Message::User(user) => text_of_body(&user.content),
        Message::Custom(custom) => text_of_body(&custom.content),
        Message::Assistant(answer) => text_of_blocks(&answer.content),
        Message::ToolResult(result) => {
            let text = text_of_blocks(&result.content);
            let text = match whole {
                TextDetail::Full => text,
                TextDetail::Shortened => shortened(&text, RESULT),
            };
            format!("[tool_result: {} → {text}]", result.tool_name)
        }
        Message::BashExecution(bash) => format!("$ {}\n{}", bash.command, bash.output),
        Message::BranchSummary(branch) => branch.summary.clone(),
        Message::CompactionSummary(compaction) => compaction.summary.clone(),
        Message::Other(json) => json.get().to_owned(),
    }
}

fn text_of_body(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Blocks(blocks) => text_of_blocks(blocks),
    }
}

fn text_of_blocks(blocks: &[Content]) -> String {
    let texts = blocks.iter().map(|block| match block {
        Content::Text(text) => text.text.clone(),
        Content::Thinking(thinking) => thinking.thinking.clone(),
        Content::ToolCall(call) => format!("[tool_call: {}({})]", call.name, call.arguments),
        Content::Image(image) => format!("[image: {}]", image.mime_type),
        Content::Other(json) => ServerToolBlock::of_json(json)
            .map_or_else(|| json.get().to_owned(), |used| format!("[{}]", used.text())),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The first `most` code units, with three dots where there are more.
pub fn shortened(text: &str, most: u64) -> String {
    let (start, _) = piece(text, 0, most);
    if start.len() == text.len() { start.to_owned() } else { format!("{start}...") }
}

/// At most `most` code units of a text from the code unit `from` on, and where the piece begins. At least one
/// character where there is one.
pub fn piece(text: &str, from: u64, most: u64) -> (&str, u64) {
    let (mut units, mut start, mut begins) = (0_u64, None, 0);
    for (at, character) in text.char_indices() {
        if units >= from && start.is_none() {
            (start, begins) = (Some(at), units);
        }
        units += character.len_utf16() as u64;
        if let Some(start) = start
            && units - begins > most
            && (at > start || most == 0)
        {
            return (&text[start..at], begins);
        }
    }
    start.map_or(("", units), |start| (&text[start..], begins))
}

/// Code units of a text.
pub(crate) fn units(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.encode_utf16().count() as u64 }
}

/// Lines in the frame of an archive, below its first line.
pub fn framed(begin: &str, body: &str) -> String {
    format!("{begin}\n{}\n{END}", escaped(body.trim_end()))
}

/// The same with a backslash in every `end of archive`, in whatever case and with whatever space between: what is
/// archived cannot end its frame.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if ends_archive(rest) {
            out.push('\\');
        }
        out.push_str(&rest[..1]);
        rest = &rest[1..];
    }
    out.push_str(rest);
    out
}

fn ends_archive(text: &str) -> bool {
    let mut rest = text;
    for (nth, word) in ["end", "of", "archive"].into_iter().enumerate() {
        let trimmed = rest.trim_start();
        if nth > 0 && trimmed.len() == rest.len() {
            return false;
        }
        rest = if nth > 0 { trimmed } else { rest };
        match rest.get(..word.len()) {
            Some(found) if found.eq_ignore_ascii_case(word) => rest = &rest[word.len()..],
            _ => return false,
        }
    }
    true
}
