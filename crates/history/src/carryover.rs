//! A message with which a model takes itself to another node: its marks and limits, and what a person is shown of the way.

use quipu_protocol::NodeId;
use quipu_store::{Graph, LineageEnd, StoreError, decode_nodes};
use quipu_transcript::{one_line, role_with};

use crate::text::{BEGIN, END, TextDetail, shortened, text_of};

/// Bytes of a message to itself at most.
pub const CARRYOVER_LIMIT: usize = 64 << 10;
/// Nodes that are counted as left behind at most.
pub const COUNTED: usize = 2_000;
/// Characters of a node that are shown.
const LINE: usize = 60;

/// The marks of a message to itself, which other programs know by them.
const NOTE: &str = "[SYSTEM / INCARNATION NOTE]";
const WARNING: &str = "[SYSTEM WARNING]";
/// The warning where files stay as they are.
const WARNS: &str = "You wrote the note above yourself, later in a branch of this conversation that you left to come \
                     here. Nothing else of that branch is here. Files were not restored: check them before you rely on \
                     what they were.";

/// Why a message to itself cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarryoverError {
    /// It has more bytes than [`CARRYOVER_LIMIT`].
    #[error("The message has {0} bytes; the limit is {CARRYOVER_LIMIT}: shorten it.")]
    TooLong(usize),
    /// Nothing but blanks and control characters is in it.
    #[error("The message is empty: write what you need to know there, because nothing else is kept.")]
    Empty,
    /// It contains a mark that other programs read.
    #[error("The message contains the reserved text \"{0}\": use other words.")]
    Reserved(&'static str),
}

/// A message to itself as it is kept: without control characters.
///
/// # Errors
/// What is wrong with it, in words for a model.
pub fn carryover(message: &str) -> Result<String, CarryoverError> {
    if message.len() > CARRYOVER_LIMIT {
        return Err(CarryoverError::TooLong(message.len()));
    }
    let plain: String = message.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let plain = plain.trim();
    if plain.is_empty() {
        return Err(CarryoverError::Empty);
    }
    let lower = plain.to_lowercase();
    let marks = [NOTE, WARNING, BEGIN, END, "--- archived"];
    if let Some(mark) = marks.into_iter().find(|mark| lower.contains(&mark.to_lowercase())) {
        return Err(CarryoverError::Reserved(mark));
    }
    Ok(plain.to_owned())
}

/// The message as the conversation holds it; `warning` is what it says of files, where they did not just stay.
pub fn carryover_note(message: &str, warning: Option<&str>) -> String {
    format!("{NOTE}: {message}\n{WARNING}: {}", warning.unwrap_or(WARNS))
}

/// Messages and turns on the way to `head` that `target` does not share.
///
/// # Errors
/// What the store says.
pub async fn count_left(
    store: &dyn Graph,
    head: NodeId,
    target: NodeId,
) -> Result<(usize, usize), StoreError> {
    let shared = store.fork_point(head, target).await?;
    if shared == Some(head) {
        return Ok((0, 0));
    }
    let nodes = store.lineage(head, LineageEnd::Count(COUNTED + 1)).await?;
    let from = nodes.iter().position(|node| Some(node.id) == shared).map_or(0, |at| at + 1);
    let roles = || nodes[from..].iter().map(|node| node.record.role.as_str());
    let messages = roles().filter(|role| matches!(*role, "user" | "assistant" | "toolResult")).count();
    Ok((messages, roles().filter(|role| *role == "user").count()))
}

/// A node on one line: its author and the beginning of its text.
///
/// # Errors
/// What the store says.
pub async fn line_of(store: &dyn Graph, node: NodeId) -> Result<String, StoreError> {
    let nodes: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
    let decoded = decode_nodes(store, &nodes).await?;
    let Some((node, decoded)) = nodes.first().zip(decoded.first()) else { return Ok(String::new()) };
    let text = one_line(&text_of(&decoded.entry, TextDetail::Shortened), 4 * LINE);
    Ok(format!("{}: \"{}\"", one_line(role_with(node, &decoded.entry), LINE), shortened(&text, LINE as u64)))
}
