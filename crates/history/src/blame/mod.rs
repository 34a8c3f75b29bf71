//! Whose each line of a file is: by what the file was before and after each call, as nodes keep it.

mod alignment;
mod calls;
mod commits;
mod files;
mod lines;
mod walk;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use quipu_protocol::{Entry, Message, NodeId, SessionId, UnixMs};
use quipu_store::{CHANGES, Graph, StoreError, decode_with};

pub use self::commits::{LineCommits, NODE_TRAILER, NamedCommit, TrailerReport, credit_commits};
pub use self::files::{file_names, sibling_file};
use self::walk::{Attribution, Call, Walk};
use crate::MEMORY_CHANGE;

/// Nodes that are read at a time.
const PAGE: usize = 64;
/// How many changes are looked at, for those who tell people.
pub const BLAMED_CHANGES: usize = CHANGES;

/// Whose the lines of a file are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blame {
    /// Whose each line is, of those that were asked for.
    pub lines: Vec<LineAuthor>,
    /// Turns that wrote lines, the oldest first.
    pub turns: Vec<BlameTurn>,
    /// Changes of the file that are known. When there are [`CHANGES`] or more, older ones were not looked at.
    pub changes: usize,
    /// Nodes that were not looked at yet.
    pub behind: u64,
}

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineAuthor {
    /// A turn's, as a place in [`Blame::turns`].
    Turn(usize),
    /// No agent's: a person wrote it, or a program that no agent called.
    Nobody,
    /// Not known.
    Unknown(UnknownReason),
}

/// Why the author of a line is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnknownReason {
    /// A call changed the file whose content is not kept before or after it: too large, a secret, no longer kept.
    NotKept,
    /// The file was changed by an agent whose commands nobody watched.
    NotWatched,
    /// The same line was removed elsewhere by the same call: it was moved, or written anew.
    Alike,
    /// A command copied it from where nobody looked.
    NotSeen,
    /// The changes before were not looked at: there are too many.
    TooMany,
    /// Its commit names several turns, and which of them wrote it is not known.
    SeveralTurns,
}

impl std::fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotKept => "a call changed the file, but its content was not saved",
            Self::NotWatched => "an agent whose commands are not tracked changed the file",
            Self::Alike => "the call removed the same line elsewhere: it was moved or rewritten",
            Self::NotSeen => "a command copied it from an unknown file",
            Self::TooMany => "it is older than the changes that were searched",
            Self::SeveralTurns => "its commit names several turns",
        })
    }
}

/// A call that wrote lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlameTurn {
    /// The answer that holds the call.
    pub node: NodeId,
    /// The session that the answer belongs to; `None` when it is in none that stands.
    pub session: Option<SessionId>,
    /// The program that wrote it; empty when it is not known.
    pub agent: String,
    /// When the change was made.
    pub at: UnixMs,
    /// The user's message before it.
    pub asked: Option<NodeId>,
    /// The user's words, or what the change of a memory says of itself; empty when they are not known.
    pub reason: String,
    /// The commit by whose message the turn is known, where it is known by that alone.
    pub commit: Option<String>,
}

/// Reads a file as it is now, for lines that a command copied from one that no call changed. `None` where it cannot be
/// read, is too large, or is none.
pub type ReadFile<'a> = &'a (dyn Fn(&Path) -> Option<Vec<u8>> + Sync);

/// Tells whose each line of `content` is: of a file that is known by these absolute paths. A line belongs to the newest
/// call that changed it; one that was moved or copied belongs to whom it belonged before. What differs between the end of
/// one call and the begin of the next is nobody's. Takes as long as the changes of the file are many and large, and no
/// longer in a large store.
///
/// # Errors
/// What the store says.
pub async fn blame(
    store: &dyn Graph,
    paths: &[String],
    content: &str,
    read: ReadFile<'_>,
) -> Result<Blame, StoreError> {
    blame_lines(store, paths, content, 0..usize::MAX, read).await
}

/// The same of these lines alone, counted from 0: what is older than they are is not looked at.
///
/// # Errors
/// What the store says.
pub async fn blame_lines(
    store: &dyn Graph,
    paths: &[String],
    content: &str,
    lines: Range<usize>,
    read: ReadFile<'_>,
) -> Result<Blame, StoreError> {
    let mut walk = Walk::new(store, read);
    let by = walk.lines(paths, content.as_bytes(), lines).await?;
    let (changes, behind) = (walk.changes, walk.behind);
    let mut found: HashMap<NodeId, Call> = HashMap::new();
    for by in &by {
        if let Attribution::Call(call) = by {
            let known = found.entry(call.node).or_insert_with(|| call.clone());
            if call.at > known.at {
                *known = call.clone();
            }
        }
    }
    let mut calls: Vec<Call> = found.into_values().collect();
    calls.sort_by_key(|call| (call.at, call.node));
    let places: HashMap<NodeId, usize> =
        calls.iter().enumerate().map(|(place, call)| (call.node, place)).collect();
    let words = words(store, &calls).await?;
    let turns = calls
        .into_iter()
        .map(|call| BlameTurn {
            reason: words.get(&call.asked.unwrap_or(call.node)).cloned().unwrap_or_default(),
            node: call.node,
            session: call.session.clone(),
            agent: call.agent.clone(),
            at: call.at,
            asked: call.asked,
            commit: None,
        })
        .collect();
    let lines = by.into_iter().map(|by| match by {
        Attribution::Call(call) => places
            .get(&call.node)
            .map_or(LineAuthor::Unknown(UnknownReason::NotKept), |at| LineAuthor::Turn(*at)),
        Attribution::Nobody => LineAuthor::Nobody,
        Attribution::Unknown(why) => LineAuthor::Unknown(why),
    });
    Ok(Blame { lines: lines.collect(), turns, changes, behind })
}

/// The user's messages before calls, and what changes of a memory say of themselves.
async fn words(store: &dyn Graph, calls: &[Call]) -> Result<HashMap<NodeId, String>, StoreError> {
    let mut ids: Vec<NodeId> = calls.iter().map(|call| call.asked.unwrap_or(call.node)).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut words = HashMap::new();
    let hidden = store.hidden();
    for page in ids.chunks(PAGE) {
        let nodes: Vec<_> = store.nodes(page).await?.into_iter().flatten().collect();
        let decoded = decode_with(store, &hidden, &nodes).await?;
        for (node, decoded) in nodes.iter().zip(decoded) {
            let text = match decoded.entry {
                Entry::Message(Message::User(message)) => message.content.text(),
                Entry::Message(Message::Custom(change)) if change.custom_type == MEMORY_CHANGE => {
                    change.content.text()
                }
                _ => continue,
            };
            words.insert(node.id, text);
        }
    }
    Ok(words)
}
