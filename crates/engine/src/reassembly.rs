//! The request that a session made at a node, put together again from what the graph says alone.

use std::sync::Arc;

use quipu_dag::Verdict;
use quipu_machine::{PruneSettings, PruneState};
use quipu_protocol::{BlobId, Entry, Epoch, Model, ModelRequest, NodeId};
use quipu_store::{Graph, decode_whole};
use quipu_transcript::{OpeningMessages, project_messages_as, source_nodes};

use crate::error::OpenError;
use crate::identity::system_text;
use crate::resume::read_past;

/// A request that was put together again.
#[derive(Debug, Clone)]
pub struct ReassembledRequest {
    /// As it would be sent.
    pub request: ModelRequest,
    /// Whether something that stood in it is not there any more, as a person had it forgotten or erased: it cannot be what it was.
    pub has_lost: bool,
}

/// Puts together the request that a session made when it stood at a node, for this model: the conversation up to the node, the system
/// prompt that is named, the tools and the level of thinking of the epoch there. What the session did later does not matter.
///
/// # Errors
/// What the store says.
pub async fn reassembled_request(
    store: &dyn Graph,
    at: NodeId,
    system: Option<BlobId>,
    model: Arc<Model>,
) -> Result<ReassembledRequest, OpenError> {
    let mut past = read_past(store, at).await?;
    let hidden = store.hidden();
    let mut has_lost = past.nodes.iter().any(|node| hidden.hides(node));
    for some in past.nodes.chunks(ERASURES) {
        has_lost |= store.erasures(some).await?.iter().any(Option::is_some);
    }
    let context = past.epoch.context.as_ref();
    let opened = context.and_then(|context| context.opening.as_ref());
    has_lost |= opened.is_some_and(|opened| opened.nodes.iter().any(|node| hidden.hides(node)));
    if past.compacted.is_some() && !hidden.is_empty() {
        // As it was: what is left of it does not say what it told.
        let first = past.nodes.first().copied();
        let found: Vec<_> = store.nodes(first.as_slice()).await?.into_iter().flatten().collect();
        let whole = decode_whole(store, &found).await?;
        has_lost |= whole.iter().any(|one| match &one.entry {
            Entry::Compaction(compaction) => source_nodes(compaction).iter().any(|told| hidden.hides(told)),
            _ => false,
        });
    }
    let opening = OpeningMessages::of(context);
    let prompt = match system {
        None => None,
        Some(id) => {
            let blob = store.blobs(&[id]).await?.into_iter().flatten().next();
            has_lost |= blob.as_ref().is_none_or(|blob| matches!(blob.verify(), Verdict::Corrupt(_)));
            blob
        }
    };
    let settings = PruneSettings { enabled: past.epoch.prune, ..PruneSettings::default() };
    let records = settings.applied(past.prunes);
    // What it counts is of no interest here.
    PruneState::of(&records, &mut past.messages, &past.nodes, past.old, 0);
    let Epoch { thinking, max_tokens, tools, profile, context, .. } = past.epoch;
    let system = prompt.as_ref().map_or_else(String::new, system_text);
    let request = ModelRequest {
        model,
        stable_system: context.as_ref().and_then(|context| context.stable_bytes(&system)),
        system: system.into(),
        tools,
        messages: Arc::new(project_messages_as(profile, opening.around(&past.messages).cloned())),
        thinking,
        max_tokens,
        session: past.session.map(|session| session.to_string()),
    };
    Ok(ReassembledRequest { request, has_lost })
}

/// Nodes that are asked about at once.
const ERASURES: usize = 1_024;
