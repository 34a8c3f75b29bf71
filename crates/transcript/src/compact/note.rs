//! The words that stand in place of what a compaction took out of the context.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use quipu_protocol::{Body, Content, Message};

use super::TouchedFiles;
use crate::planning::{PLAN_BLOCK, TODO_BLOCK, is_plan_note};

/// Characters of one message of the user at most; the middle of a longer one is left out.
const ONE: usize = 8_000;
/// Characters that tell how many are missing, at most.
const MISSING: usize = 64;
/// Between two messages.
pub(crate) const BETWEEN: &str = "\n---\n";
/// After the number of those that are left out.
const LEFT_OUT: &str = " earlier messages are left out)";
/// The blocks that stand after the summary itself.
const BLOCKS: [&str; 5] = ["user-messages", "read-files", "modified-files", TODO_BLOCK, PLAN_BLOCK];

/// The summary, then what needs no model to be carried on: what the user said, word for word, and the files that
/// were touched.
///
/// The user's words are those that an earlier note carried (`earlier`, from [`words_of_note`]) and the messages of
/// the user in `said`, up to `most` characters, the newest first, and of one message up to 8,000.
/// The paths have `most` characters as well, first those that were changed. What is left out is counted. Blocks that
/// would be empty are left out.
pub fn compaction_note(
    summary: &str,
    earlier: Option<&str>,
    said: &[Arc<Message>],
    files: &TouchedFiles,
    most: usize,
) -> String {
    let mut note = without_blocks(summary.trim_end());
    let words = user_words(earlier, said, most);
    let mut room = most;
    let modified = paths(&files.modified_files, &mut room);
    let contents = [words, paths(&files.read_files, &mut room), modified];
    for (name, content) in BLOCKS.iter().zip(contents) {
        if !content.is_empty() {
            note.push_str(&format!("\n\n<{name}>\n{content}\n</{name}>"));
        }
    }
    note
}

/// A text in which nothing looks like one of our blocks: the next compaction would take it for one.
pub(crate) fn without_blocks(text: &str) -> String {
    let mut note = text.to_owned();
    for name in BLOCKS {
        let block = format!("\n\n<{name}>\n");
        while note.contains(&block) {
            note = note.replace(&block, &block[1..]);
        }
    }
    note
}

/// The summary of a note, without the blocks that follow it.
pub fn summary_of_note(note: &str) -> &str {
    let ends = BLOCKS.iter().filter_map(|name| note.find(&format!("\n\n<{name}>\n")));
    &note[..ends.min().unwrap_or(note.len())]
}

/// The user's words that a note carries.
pub fn words_of_note(note: &str) -> Option<&str> {
    let (_, rest) = note.split_once(&format!("\n\n<{}>\n", BLOCKS[0]))?;
    // The last one: the user may have said these very words.
    let (words, _) = rest.rsplit_once(&format!("\n</{}>", BLOCKS[0]))?;
    Some(words)
}

/// Where the user's words stand in a note that carries them, the last of which are `last` where any are.
pub(crate) fn place_of_words(note: &str, last: &str) -> Option<Range<usize>> {
    let (open, close) = (format!("\n\n<{}>\n", BLOCKS[0]), format!("\n</{}>", BLOCKS[0]));
    let start = note.find(&open)? + open.len();
    let rest = note.get(start..)?;
    let mut ends = rest.rmatch_indices(&close).map(|(end, _)| end);
    // A plan that stands behind them may have the same mark.
    let end = ends.clone().find(|end| rest[..*end].ends_with(last)).or_else(|| ends.next())?;
    let words = &rest[..end];
    let (first, others) = words.split_once(BETWEEN).unwrap_or((words, ""));
    let count = first.strip_prefix('(').and_then(|text| text.strip_suffix(LEFT_OUT));
    let is_count = count.is_some_and(|count| count.parse::<usize>().is_ok());
    let end = start + end;
    Some(if is_count { end - others.len()..end } else { start..end })
}

fn paths(files: &BTreeSet<String>, room: &mut usize) -> String {
    let mut lines = Vec::new();
    for path in files {
        let Some(left) = room.checked_sub(path.chars().count() + 1) else {
            lines.push(format!("({} more are left out)", files.len() - lines.len()));
            break;
        };
        *room = left;
        lines.push(path.clone());
    }
    lines.join("\n")
}

fn user_words(earlier: Option<&str>, messages: &[Arc<Message>], most: usize) -> String {
    let earlier = earlier.into_iter().flat_map(|words| words.split(BETWEEN)).map(str::to_owned);
    let mut missing = 0;
    let earlier: Vec<String> = earlier
        .filter(|text| match text.strip_prefix('(').and_then(|text| text.strip_suffix(LEFT_OUT)) {
            Some(count) => {
                missing += count.parse().unwrap_or(0);
                false
            }
            None => true,
        })
        .collect();
    let new = messages.iter().filter_map(|message| said_by_user(message));
    let texts: Vec<String> = earlier.into_iter().chain(new).map(|text| carried_text(text, most)).collect();
    let mut room = most;
    let fits = |text: &&String| {
        let size = text.chars().count();
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let count = texts.iter().rev().take_while(fits).count();
    let dropped = texts.len() - count;
    missing += dropped;
    let mut words = texts[dropped..].join(BETWEEN);
    if missing > 0 {
        let between = if words.is_empty() { "" } else { BETWEEN };
        words.insert_str(0, &format!("({missing}{LEFT_OUT}{between}"));
    }
    words
}

/// What the user says in a message, without blank space around it.
fn said_by_user(message: &Message) -> Option<String> {
    let Message::User(user) = message else { return None };
    let text = match &user.content {
        Body::Text(text) => text.trim().to_owned(),
        Body::Blocks(blocks) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(Content::as_text).filter(|text| !is_plan_note(text)).collect();
            texts.join("\n").trim().to_owned()
        }
    };
    Some(text).filter(|text| !text.is_empty())
}

/// The words of the user in a message as a note has them that has room for so many characters.
pub fn carried_words(message: &Message, most: usize) -> Option<String> {
    said_by_user(message).map(|text| carried_text(text, most))
}

pub(crate) fn carried_text(text: String, most: usize) -> String {
    shortened(text, ONE.min(most))
}

fn shortened(text: String, most: usize) -> String {
    let count = text.chars().count();
    // The words about what is missing have characters, too.
    if count <= most.max(MISSING) {
        return text;
    }
    let shown = most.saturating_sub(MISSING);
    let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (at(shown / 2), at(count - shown / 2));
    let missing = count - shown / 2 * 2;
    format!("{}\n(... {missing} characters omitted ...)\n{}", &text[..head], &text[tail..])
}
