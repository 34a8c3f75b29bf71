//! What stands beside the prompts of a session already: that is not added again.

use quipu_protocol::{Entry, Message, SessionId};
use quipu_store::{Graph, LineageEnd, RefName, StoreError, decode_nodes};

use super::ACTIVE_MEMORY;

/// Nodes of a session that are looked at.
const NODES: usize = 2_000;
/// Nodes that are read at a time.
const PAGE: usize = 200;
/// Roles of nodes that can hold nothing of it.
const OTHERS: [&str; 2] = ["assistant", "toolResult"];

/// The texts that active memory put beside prompts, on the way to where a session stands now, since its last compaction.
pub(super) async fn standing(store: &dyn Graph, session: &SessionId) -> Result<Vec<String>, StoreError> {
    let mut from = store.head(&RefName::session(session)).await?;
    let (mut texts, mut seen) = (Vec::new(), 0);
    while let Some(node) = from.filter(|_| seen < NODES) {
        let mut nodes = store.lineage(node, LineageEnd::Count(PAGE)).await?;
        from = nodes.first().and_then(|first| first.record.parent);
        seen += nodes.len().max(1);
        nodes.retain(|node| !OTHERS.contains(&node.record.role.as_str()));
        for decoded in decode_nodes(store, &nodes).await?.into_iter().rev() {
            match &decoded.entry {
                Entry::Compaction(_) => return Ok(texts),
                Entry::Message(Message::User(message)) => {
                    let blocks = message.content.blocks();
                    let ours = decoded
                        .step
                        .added
                        .iter()
                        .filter(|added| added.provenance.name.as_deref() == Some(ACTIVE_MEMORY));
                    let texts_of =
                        ours.filter_map(|added| blocks.get(usize::try_from(added.block).ok()?)?.as_text());
                    texts.extend(texts_of.map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    Ok(texts)
}
