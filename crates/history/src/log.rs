//! What was done: sessions with what was asked, and how they ended.

use quipu_protocol::{Entry, Message, NodeId, StopReason};
use quipu_store::{Done, DoneQuery, Graph, Known, StoreError, Until, decode_nodes};

/// Nodes at the end of a session that are looked through for its last message.
const LAST: usize = 16;
/// Characters of a prompt's first line at most.
const LINE: usize = 200;

/// A session, what was asked in it, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// What it did.
    pub done: Done,
    /// The first lines of what the user said, the newest, the oldest of them first: at most 200 characters each.
    pub asked: Vec<(NodeId, String)>,
    /// How it ended.
    pub ended: Ended,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With an answer.
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
    query: DoneQuery,
    prompts: usize,
) -> Result<Known<Vec<LogEntry>>, StoreError> {
    let known = store.done(query).await?;
    let mut entries = Vec::with_capacity(known.found.len());
    for done in known.found {
        let newest = &done.asked[done.asked.len().saturating_sub(prompts)..];
        let nodes: Vec<_> = store.nodes(newest).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &nodes).await?;
        let asked = nodes.iter().zip(decoded).filter_map(|(node, decoded)| match decoded.entry {
            Entry::Message(Message::User(said)) => Some((node.id, first_line(&said.content.text()))),
            Entry::Message(_)
            | Entry::Session(_)
            | Entry::Epoch(_)
            | Entry::Compaction(_)
            | Entry::Meta(_) => None,
        });
        let asked = asked.collect();
        let last = store.lineage(done.head, Until::Count(LAST)).await?;
        let last = decode_nodes(store, &last).await?;
        let ended = last.into_iter().rev().find_map(|decoded| match decoded.entry {
            Entry::Message(message) => ended(message),
            Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
        });
        entries.push(LogEntry { done, asked, ended: ended.unwrap_or(Ended::Unfinished) });
    }
    Ok(Known { found: entries, behind: known.behind })
}

fn ended(message: Message) -> Option<Ended> {
    match message {
        Message::Assistant(answer) => Some(match answer.stop_reason {
            StopReason::Stop => Ended::Answered,
            StopReason::Length => Ended::Cut,
            StopReason::Error => Ended::Failed(answer.error_message.unwrap_or_default()),
            StopReason::Aborted => Ended::Aborted,
            StopReason::ToolUse | StopReason::Deferred | StopReason::Pending => Ended::Unfinished,
        }),
        Message::User(_) | Message::ToolResult(_) => Some(Ended::Unfinished),
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
