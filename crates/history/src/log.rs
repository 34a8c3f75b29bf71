//! What was done: sessions with what was asked, and how they ended.

use quipu_protocol::{Entry, Message, NodeId, StopReason};
use quipu_store::{
    ActivityQuery, Graph, IndexedAnswer, LineageEnd, SessionActivity, StoreError, decode_with,
};
use quipu_transcript::typed_text;

/// Nodes at the end of a session that are looked through for its last message.
const LAST: usize = 16;
/// Characters of a prompt's first line at most.
const LINE: usize = 200;

/// A session, what was asked in it, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// What it did.
    pub done: SessionActivity,
    /// The first lines of the user's messages, the newest, the oldest of them first: at most 200 characters each.
    pub asked: Vec<(NodeId, String)>,
    /// The last event of the session.
    pub ended: SessionEnd,
}

/// The last event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// The model answered, and no call is open.
    Answered,
    /// The answer was cut off at the output limit.
    Cut,
    /// The call failed, with these words.
    Failed(String),
    /// Somebody stopped it.
    Aborted,
    /// A call or an answer is missing: it is at work, or was killed.
    Unfinished,
}

/// Reads what sessions did, the last changed first; of each at most `prompts` of the newest prompts.
///
/// # Errors
/// What the store says.
pub async fn log(
    store: &dyn Graph,
    query: ActivityQuery,
    prompts: usize,
) -> Result<IndexedAnswer<Vec<LogEntry>>, StoreError> {
    let known = store.session_activity(query).await?;
    let hidden = store.hidden();
    let mut entries = Vec::with_capacity(known.found.len());
    for done in known.found {
        let newest = &done.asked[done.asked.len().saturating_sub(prompts)..];
        let nodes: Vec<_> = store.nodes(newest).await?.into_iter().flatten().collect();
        let decoded = decode_with(store, &hidden, &nodes).await?;
        let asked = nodes.iter().zip(decoded).filter_map(|(node, decoded)| match decoded.entry {
            Entry::Message(Message::User(message)) => {
                Some((node.id, first_line(&typed_text(&message.content.blocks()))))
            }
            Entry::Message(_)
            | Entry::Session(_)
            | Entry::Epoch(_)
            | Entry::Compaction(_)
            | Entry::Meta(_) => None,
        });
        let asked = asked.collect();
        let last = store.lineage(done.head, LineageEnd::Count(LAST)).await?;
        let last = decode_with(store, &hidden, &last).await?;
        let ended = last.into_iter().rev().find_map(|decoded| match decoded.entry {
            Entry::Message(message) => ended(message),
            Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
        });
        entries.push(LogEntry { done, asked, ended: ended.unwrap_or(SessionEnd::Unfinished) });
    }
    Ok(IndexedAnswer { found: entries, behind: known.behind })
}

fn ended(message: Message) -> Option<SessionEnd> {
    match message {
        Message::Assistant(answer) => Some(match answer.stop_reason {
            StopReason::Stop => SessionEnd::Answered,
            StopReason::Length => SessionEnd::Cut,
            StopReason::Error => SessionEnd::Failed(answer.error_message.unwrap_or_default()),
            StopReason::Aborted => SessionEnd::Aborted,
            StopReason::ToolUse | StopReason::Deferred | StopReason::Pending => SessionEnd::Unfinished,
        }),
        Message::User(_) | Message::ToolResult(_) => Some(SessionEnd::Unfinished),
        Message::BashExecution(_)
        | Message::Custom(_)
        | Message::BranchSummary(_)
        | Message::CompactionSummary(_)
        | Message::Other(_) => None,
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LINE).collect()
}
