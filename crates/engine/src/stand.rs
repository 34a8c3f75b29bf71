//! Where a session would stand at another node, what it would have before it, and what it would leave behind.

use std::sync::Arc;

use quipu_dag::Node;
use quipu_machine::{JumpTarget, SessionPlace};
use quipu_protocol::{Body, Compaction, Entry, Message, NodeId, Refusal, SessionId, UserInput};
use quipu_store::{Graph, LineageEnd, Resolution, Scope, Spelling, StoreError, decode_nodes};
use quipu_transcript::{DecodedEntry, TouchedFiles, context, message_of};

use crate::error::OpenError;
use crate::files::tells_of_files;
use crate::resume::read_past;

/// Where a session stands that goes to a node.
pub(crate) struct Stand {
    pub(crate) at: NodeId,
    /// The user's message of the node, when it stands before it.
    pub(crate) prompt: Option<UserInput>,
}

/// Before a message of the user, behind everything else. `None` when the node is not one of the session.
pub(crate) async fn stand(
    store: &dyn Graph,
    session: &SessionId,
    to: NodeId,
) -> Result<Option<Stand>, StoreError> {
    let found = match store.resolve(&Spelling::from(to.to_string()), &Scope::default()).await? {
        Resolution::One(found) => found,
        Resolution::Many(_) | Resolution::None => return Ok(None),
    };
    if found.node != to || found.session.as_ref() != Some(session) {
        return Ok(None);
    }
    let nodes: Vec<Node> = store.nodes(&[to]).await?.into_iter().flatten().collect();
    let Some(node) = nodes.first() else { return Ok(None) };
    let decoded = decode_nodes(store, &nodes).await?;
    // A note for the model about files is nobody's message.
    let prompt = decoded.first().filter(|one| !tells_of_files(&one.entry));
    let body: Option<Body> = match prompt.and_then(|one| message_of(&one.entry)).as_deref() {
        Some(Message::User(user)) => Some(user.content.clone()),
        Some(Message::Custom(custom)) => Some(custom.content.clone()),
        _ => None,
    };
    Ok(Some(match (body, node.record.parent) {
        (Some(body), Some(at)) => Stand { at, prompt: Some(UserInput::new(body.blocks().into_owned())) },
        (_, _) => Stand { at: to, prompt: None },
    }))
}

/// Where a session would stand that goes to a node, and what it would leave behind.
pub(crate) async fn look(
    store: &dyn Graph,
    session: &SessionId,
    from: NodeId,
    to: NodeId,
    wants_left: bool,
) -> Result<JumpTarget, Refusal> {
    let failed = |error: OpenError| Refusal::Store { why: error.to_string() };
    let stand = stand(store, session, to).await.map_err(|error| failed(error.into()))?;
    let Some(Stand { at, .. }) = stand else { return Err(Refusal::NotInSession { node: to }) };
    let (mut left, mut nodes, mut files) = (Vec::new(), Vec::new(), TouchedFiles::default());
    if wants_left {
        let branch = left_behind(store, from, at).await.map_err(|error| failed(error.into()))?;
        for place in context(&branch) {
            let (node, entry) = &branch[place];
            if let Entry::Compaction(Compaction { details: Some(details), .. }) = entry {
                files.join(TouchedFiles::of_details(details));
            }
            left.extend(message_of(entry).map(|message| Arc::new(message.into_owned())));
            nodes.resize(left.len(), *node);
        }
        files.add(&left);
    }
    Ok(JumpTarget { at, left, nodes, files })
}

/// The context that a session would have behind a node.
pub(crate) async fn place_at(store: &dyn Graph, at: NodeId) -> Result<SessionPlace, OpenError> {
    let past = read_past(store, at).await?;
    let (messages, nodes, compacted, prunes) = (past.messages, past.nodes, past.compacted, past.prunes);
    Ok(SessionPlace { messages, nodes, compacted, old: past.old, prunes, epoch: past.epoch })
}

/// The entries of the lineage of `from` that `to` does not share, root first: what was summed up among them already
/// as its summary.
async fn left_behind(
    store: &dyn Graph,
    from: NodeId,
    to: NodeId,
) -> Result<Vec<(NodeId, Entry)>, StoreError> {
    let shared = store.fork_point(from, to).await?;
    if shared == Some(from) {
        return Ok(Vec::new());
    }
    let mut nodes = store.lineage(from, LineageEnd::Checkpoint).await?;
    if let Some(at) = nodes.iter().position(|node| Some(node.id) == shared) {
        nodes.drain(..=at);
        return entries(store, &nodes).await;
    }
    // The summary at its beginning covers more than the branch, unless the branch holds all that it kept.
    let (Some(first), Some(shared)) = (nodes.first(), shared) else { return entries(store, &nodes).await };
    let compaction = entries(store, std::slice::from_ref(first)).await?;
    let kept = match compaction.first() {
        Some((_, Entry::Compaction(compaction))) => compaction.first_kept,
        _ => None,
    };
    let Some(parent) = first.record.parent else { return entries(store, &nodes).await };
    let covers_branch = match kept {
        None => true,
        Some(kept) => {
            let first = store.nodes(&[kept]).await?.into_iter().flatten().next();
            let follows = first.is_some_and(|first| first.record.parent == Some(shared));
            kept != shared && !follows && store.fork_point(kept, shared).await? == Some(shared)
        }
    };
    let until = if covers_branch { kept } else { Some(shared) };
    let mut before = match until {
        Some(until) => store.lineage(parent, LineageEnd::Node(until)).await?,
        None => Vec::new(),
    };
    if !covers_branch {
        // All of the branch stands in what it kept.
        before.remove(0);
        nodes.remove(0);
    }
    before.extend(nodes);
    entries(store, &before).await
}

async fn entries(store: &dyn Graph, nodes: &[Node]) -> Result<Vec<(NodeId, Entry)>, StoreError> {
    let decoded = decode_nodes(store, nodes).await?;
    Ok(nodes
        .iter()
        .map(|node| node.id)
        .zip(decoded.into_iter().map(|DecodedEntry { entry, .. }| entry))
        .collect())
}
