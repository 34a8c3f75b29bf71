//! The class of a node's author: whose words its text is.

use quipu_protocol::{
    AuthorClass as Author, Entry, Json, Message, NodeId, Origin, Provenance, SessionId, StepInfo,
};
use quipu_store::{Graph, LineageEnd, SessionQuery, StoreError, decode_whole};
use quipu_transcript::{DecodedEntry, message_of, provenance};

use crate::AuthorClass;

/// Nodes that are looked at. Where a model was sent more, something untrusted was among it, as far as we know.
const NODES: usize = 4_096;
/// Nodes that are read at a time.
const PAGE: usize = 64;
/// Tools whose results are words of ours alone.
const CLEAN: [&str; 4] = ["memory_note", quipu::PLAN_TOOL, quipu::TODO_TOOL, "write"];
/// What types of messages begin with that Quipu writes itself.
const OWN: &str = "quipu.";
/// How records of other agents mark the conversation of a sub-agent, and any other.
const SIDE: &str = "\"isSidechain\"";
const NO_SIDE: &str = "\"isSidechain\":false";

/// The class of what a model writes at this point of a session: `agent`, or `untrusted` where text of somebody else's is in what
/// it was sent: results of tools, pages, files, other agents. A summary says what the nodes before it said, so that a
/// compaction ends nothing. `at` is the last node that the model has read.
///
/// # Errors
/// What the store says.
pub async fn class_of_turn(store: &dyn Graph, at: NodeId) -> Result<AuthorClass, StoreError> {
    let mut from = Some(at);
    let mut seen = 0;
    while let Some(node) = from {
        let nodes = store.lineage(node, LineageEnd::Count(PAGE)).await?;
        from = nodes.first().and_then(|first| first.record.parent);
        let decoded = decode_whole(store, &nodes).await?;
        if decoded.iter().any(|one| is_foreign(&one.entry, &one.step)) {
            return Ok(AuthorClass::Untrusted);
        }
        seen += nodes.len();
        if seen >= NODES || nodes.is_empty() {
            return Ok(AuthorClass::Untrusted);
        }
    }
    Ok(AuthorClass::Agent)
}

/// Whether a node gives the model text of somebody else's to read.
fn is_foreign(entry: &Entry, step: &StepInfo) -> bool {
    if step.added.iter().any(|added| !is_ours(&added.provenance)) {
        return true;
    }
    let said = provenance(entry, step, None);
    match entry {
        Entry::Message(Message::ToolResult(result)) if CLEAN.contains(&result.tool_name.as_str()) => {
            said.is_some_and(|said| said.origin == Origin::Hook)
        }
        // A hook that makes a result shorter gives what the tool gave.
        Entry::Message(Message::ToolResult(_)) => said.is_none_or(|said| !is_notice(&said)),
        Entry::Message(Message::User(_)) => said.is_some_and(|said| !is_ours(&said)),
        // Of another branch, or of another program: nobody says what stood there.
        Entry::Message(
            Message::BranchSummary(_) | Message::CompactionSummary(_) | Message::BashExecution(_),
        ) => true,
        Entry::Message(Message::Custom(custom)) => match &step.provenance {
            Some(said) => !is_ours(said),
            None => !custom.custom_type.starts_with(OWN),
        },
        Entry::Message(Message::Other(_)) => true,
        // What stood before the answer, or before the summary, is looked at by itself.
        Entry::Message(Message::Assistant(_)) | Entry::Compaction(_) => {
            said.is_some_and(|said| !is_ours(&said) && said.origin != Origin::Model)
        }
        Entry::Session(start) => start.agent != quipu::AGENT,
        Entry::Meta(_) => message_of(entry).is_some(),
        Entry::Epoch(_) => false,
    }
}

/// What Quipu says itself. Hooks are the owner's, and what they say may be anybody's.
fn is_notice(said: &Provenance) -> bool {
    said.author == Author::System && said.origin == Origin::Process
}

/// Whether a person or Quipu says it. A message that a model wrote to itself says what it had read elsewhere.
fn is_ours(said: &Provenance) -> bool {
    said.author == Author::Owner || is_notice(said)
}

/// The class of the author of a node's own text, which of a message is the text without what stands beside it. A person's
/// messages are the owner's, also in sessions that were imported from files of this machine; an answer has the class of what its model was sent; results, summaries and what other programs added
/// are untrusted. `None` where there is no such node, or it has no text of anybody's.
///
/// # Errors
/// What the store says.
pub async fn class_of_node(store: &dyn Graph, node: NodeId) -> Result<Option<AuthorClass>, StoreError> {
    let nodes: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
    let Some(decoded) = decode_whole(store, &nodes).await?.pop() else { return Ok(None) };
    let parent = nodes.first().and_then(|node| node.record.parent);
    let DecodedEntry { entry, step, .. } = &decoded;
    let is_said = matches!(entry, Entry::Message(Message::User(_)));
    if !is_said && step.added.iter().any(|added| !is_ours(&added.provenance)) {
        return Ok(Some(AuthorClass::Untrusted));
    }
    let said = step.provenance.as_ref();
    Ok(match entry {
        Entry::Message(Message::User(_)) => match said {
            Some(said) if is_notice(said) => Some(AuthorClass::System),
            Some(said) if !is_ours(said) => Some(AuthorClass::Untrusted),
            _ if is_of_a_side(step) || !is_of_a_person(store, node).await? => Some(AuthorClass::Untrusted),
            _ => Some(AuthorClass::Owner),
        },
        Entry::Message(Message::Assistant(_)) => match parent {
            Some(parent) if !is_foreign(entry, step) => Some(class_of_turn(store, parent).await?),
            _ => Some(AuthorClass::Untrusted),
        },
        // A summary may say what anybody said before it.
        Entry::Compaction(_) => Some(AuthorClass::Untrusted),
        Entry::Message(_) => match said {
            Some(said) => Some(said.author.into()),
            None if is_foreign(entry, step) => Some(AuthorClass::Untrusted),
            None => Some(AuthorClass::System),
        },
        Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => None,
    })
}

/// Whether another agent's file says that a message is of a sub-agent's conversation: a model wrote its prompt.
fn is_of_a_side(step: &StepInfo) -> bool {
    let is_marked = |kept: &Json| kept.get().contains(SIDE) && !kept.get().contains(NO_SIDE);
    step.extra.values().any(is_marked)
}

/// Whether prompts of a node's session are a person's: not those of a session that came with a bundle, so that no ref of this
/// machine knows it, and not those of a sub-agent.
async fn is_of_a_person(store: &dyn Graph, node: NodeId) -> Result<bool, StoreError> {
    let session = store.sessions_of(&[node]).await?.into_iter().next().flatten();
    let Some(session) = session else { return Ok(false) };
    let query = SessionQuery { id: Some(session), children: true, limit: Some(1), ..SessionQuery::default() };
    let Some(row) = store.sessions(query).await?.into_iter().next() else { return Ok(false) };
    // The session of a sub-agent is named after the one that it works for.
    let is_below = |parent: &SessionId| {
        row.id.as_str().strip_prefix(parent.as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    Ok(row.agent == quipu::AGENT || !row.parent.as_ref().is_some_and(is_below))
}
