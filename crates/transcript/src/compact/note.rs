//! The words that stand in place of what a compaction took out of the context.

use std::sync::Arc;

use quipu_protocol::{Body, Content, Message};

use super::TouchedFiles;

/// Characters of the user's own words that a note carries.
const SAID: usize = 32_000;
/// Of one message of the user; the middle of a longer one is left out.
const ONE: usize = 8_000;
/// The blocks that stand after the summary itself.
const BLOCKS: [&str; 3] = ["user-messages", "read-files", "modified-files"];

/// The summary, then what needs no model to be carried on: what the user said, word for word, and the files that
/// were touched.
///
/// The user's words are kept up to 32,000 characters, the newest first, and of one message up to 8,000; what is left
/// out is counted. Blocks that would be empty are left out.
pub fn compaction_note(summary: &str, said: &[Arc<Message>], files: &TouchedFiles) -> String {
    let mut note = summary.trim_end().to_owned();
    let words = user_words(said);
    let list = |files: &std::collections::BTreeSet<String>| {
        files.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    };
    let contents = [words, list(&files.read_files), list(&files.modified_files)];
    for (name, content) in BLOCKS.iter().zip(contents) {
        if !content.is_empty() {
            note.push_str(&format!("\n\n<{name}>\n{content}\n</{name}>"));
        }
    }
    note
}

/// The summary of a note, without the blocks that follow it.
pub fn summary_of_note(note: &str) -> &str {
    let ends = BLOCKS.iter().filter_map(|name| note.find(&format!("\n\n<{name}>\n")));
    &note[..ends.min().unwrap_or(note.len())]
}

fn user_words(messages: &[Arc<Message>]) -> String {
    let texts: Vec<String> = messages
        .iter()
        .filter_map(|message| match &**message {
            Message::User(user) => Some(match &user.content {
                Body::Text(text) => text.trim().to_owned(),
                Body::Blocks(blocks) => {
                    let texts: Vec<&str> = blocks.iter().filter_map(Content::as_text).collect();
                    texts.join("\n").trim().to_owned()
                }
            }),
            _ => None,
        })
        .filter(|text| !text.is_empty())
        .map(|text| shortened(&text))
        .collect();
    let mut room = SAID;
    let fits = |text: &&String| {
        let size = text.chars().count();
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let count = texts.iter().rev().take_while(fits).count();
    let missing = texts.len() - count;
    let mut words = texts[missing..].join("\n---\n");
    if missing > 0 {
        words.insert_str(0, &format!("({missing} earlier messages are left out)\n---\n"));
    }
    words
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= ONE {
        return text.to_owned();
    }
    let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (at(ONE / 2), at(count - ONE / 2));
    format!("{}\n(... {} characters are left out ...)\n{}", &text[..head], count - ONE, &text[tail..])
}
