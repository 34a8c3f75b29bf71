//! The class of a node's author: whose words its text is.

use quipu_protocol::{Entry, Message, NodeId, Origin, StepInfo};
use quipu_store::{Graph, LineageEnd, SessionQuery, StoreError, decode_nodes};
use quipu_transcript::provenance;

use crate::AuthorClass;

/// Nodes of a turn that are looked at. A longer turn read something untrusted, as far as we know.
const TURN: usize = 4_096;
/// Nodes that are read at a time: most turns are short.
const PAGE: usize = 64;
/// Tools whose results are words of ours alone.
const CLEAN: [&str; 4] = ["memory_note", quipu::PLAN_TOOL, quipu::TODO_TOOL, "write"];

/// The class of what a model writes at this point of a session: `agent`, or `untrusted` where its turn read text of somebody
/// else's before: results of tools, pages, files, other agents. `at` is the last node that the model has read.
///
/// # Errors
/// What the store says.
pub async fn class_of_turn(store: &dyn Graph, at: NodeId) -> Result<AuthorClass, StoreError> {
    let mut from = Some(at);
    let mut seen = 0;
    while let Some(node) = from {
        let nodes = store.lineage(node, LineageEnd::Count(PAGE)).await?;
        from = nodes.first().and_then(|first| first.record.parent);
        let decoded = decode_nodes(store, &nodes).await?;
        for one in decoded.iter().rev() {
            match reads(&one.entry, &one.step) {
                ReadKind::Untrusted => return Ok(AuthorClass::Untrusted),
                ReadKind::Start => return Ok(AuthorClass::Agent),
                ReadKind::Nothing => {}
            }
        }
        seen += nodes.len();
        if seen >= TURN || nodes.is_empty() {
            return Ok(AuthorClass::Untrusted);
        }
    }
    Ok(AuthorClass::Agent)
}

/// What a node of a turn gives the model to read.
enum ReadKind {
    Untrusted,
    /// The person's message that the turn begins with.
    Start,
    Nothing,
}

fn reads(entry: &Entry, step: &StepInfo) -> ReadKind {
    let is_foreign = |class| AuthorClass::from(class) == AuthorClass::Untrusted;
    if step.added.iter().any(|added| is_foreign(added.provenance.author)) {
        return ReadKind::Untrusted;
    }
    match entry {
        Entry::Message(Message::ToolResult(result)) if CLEAN.contains(&result.tool_name.as_str()) => {
            ReadKind::Nothing
        }
        Entry::Message(Message::User(_)) => {
            let from = provenance(entry, step, None).unwrap_or_default();
            match AuthorClass::from(from.author) {
                AuthorClass::Untrusted => ReadKind::Untrusted,
                _ if from.origin == Origin::Person => ReadKind::Start,
                _ => ReadKind::Nothing,
            }
        }
        Entry::Message(_) if provenance(entry, step, None).is_some_and(|from| is_foreign(from.author)) => {
            ReadKind::Untrusted
        }
        Entry::Message(_) | Entry::Compaction(_) | Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => {
            ReadKind::Nothing
        }
    }
}

/// The class of the author of a node's own text. A person's messages are the owner's, also in sessions that were imported from
/// files of this machine; an answer has the class of its turn; results, summaries and what other programs added are
/// untrusted. `None` where there is no such node, or it has no text of anybody's.
///
/// # Errors
/// What the store says.
pub async fn class_of_node(store: &dyn Graph, node: NodeId) -> Result<Option<AuthorClass>, StoreError> {
    let nodes: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
    let Some(decoded) = decode_nodes(store, &nodes).await?.pop() else { return Ok(None) };
    let parent = nodes.first().and_then(|node| node.record.parent);
    let said = decoded.step.provenance.as_ref().map(|from| AuthorClass::from(from.author));
    let added_foreign = decoded
        .step
        .added
        .iter()
        .any(|added| AuthorClass::from(added.provenance.author) == AuthorClass::Untrusted);
    if added_foreign {
        return Ok(Some(AuthorClass::Untrusted));
    }
    Ok(match &decoded.entry {
        Entry::Message(Message::User(_)) => match said {
            Some(class) => Some(class),
            None if is_shared(store, node).await? => Some(AuthorClass::Untrusted),
            None => Some(AuthorClass::Owner),
        },
        Entry::Message(Message::Assistant(_)) => match (said, parent) {
            (Some(AuthorClass::Untrusted), _) => Some(AuthorClass::Untrusted),
            (_, Some(parent)) => Some(class_of_turn(store, parent).await?),
            (_, None) => Some(AuthorClass::Untrusted),
        },
        // A summary may say what anybody said before it.
        Entry::Compaction(_) => Some(AuthorClass::Untrusted),
        Entry::Message(Message::CompactionSummary(_) | Message::BranchSummary(_)) => {
            Some(AuthorClass::Untrusted)
        }
        Entry::Message(_) => {
            said.or_else(|| provenance(&decoded.entry, &decoded.step, None).map(|from| from.author.into()))
        }
        Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => None,
    })
}

/// Whether a node is of a session that is known by no ref of this machine: somebody else's, that came with a bundle.
async fn is_shared(store: &dyn Graph, node: NodeId) -> Result<bool, StoreError> {
    let session = store.sessions_of(&[node]).await?.into_iter().next().flatten();
    let Some(session) = session else { return Ok(true) };
    let query = SessionQuery { id: Some(session), children: true, limit: Some(1), ..SessionQuery::default() };
    Ok(store.sessions(query).await?.is_empty())
}
