//! What stands for what leaves the context of a session: sentences of it by time, in place of a model's summary.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{CompactionAsk, ContextSource, SourceError, SourceSummary};
use quipu_past::cover_session;
use quipu_protocol::{Entry, Message, NodeId};
use quipu_store::{Graph, SessionQuery, StoreError, decode_nodes};

use crate::past_opening::{PAST_CHARGE, questions};

/// The source, as records name it.
pub const COVER_SOURCE: &str = "past-cover";
/// What stands before the lines.
const HEAD: &str = "These are sentences of the conversation so far, by time, chosen without a model.";
/// Tokens that are left for what stands around the lines.
const MARGIN: u64 = 64;
/// Nodes between the end of a conversation and the newest request that are looked at.
const STEPS: usize = 512;

/// Sums up what leaves a context without a model.
pub(crate) struct CoverCompaction {
    store: Arc<dyn Graph>,
}

impl CoverCompaction {
    pub(crate) fn new(store: Arc<dyn Graph>) -> Self {
        Self { store }
    }

    /// What the user said last, with its node.
    async fn newest_request(&self, head: NodeId) -> Result<Option<(NodeId, String)>, StoreError> {
        let mut next = Some(head);
        for _ in 0..STEPS {
            let Some(id) = next else { break };
            let nodes: Vec<_> = self.store.nodes(&[id]).await?.into_iter().flatten().collect();
            let Some(node) = nodes.first() else { break };
            next = node.record.parent;
            for decoded in decode_nodes(&*self.store, &nodes).await? {
                if let Entry::Message(message @ Message::User(_)) = decoded.entry {
                    return Ok(questions(&[Arc::new(message)]).map(|text| (id, text)));
                }
            }
        }
        Ok(None)
    }

    async fn cover(&self, ask: &CompactionAsk) -> Result<Option<SourceSummary>, SourceError> {
        let Some(session) = &ask.cx.session else { return Ok(None) };
        let store = &*self.store;
        let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
        let row = store.sessions(query).await.map_err(SourceError::new)?.into_iter().next();
        let Some(mut row) = row else { return Ok(None) };
        // All that was said on the way here and does not stay, whatever compactions left of it before.
        let first = match ask.first_kept {
            Some(first) => {
                let node =
                    store.nodes(&[first]).await.map_err(SourceError::new)?.into_iter().flatten().next();
                node.and_then(|node| node.record.parent)
            }
            None => Some(ask.head),
        };
        let Some(last) = first else { return Err(SourceError::new("nothing leaves the context")) };
        row.base = store.ancestor(last, 0).await.map_err(SourceError::new)?.unwrap_or(row.base);
        row.head = Some(last);
        let budget = ask.max_tokens.saturating_sub(MARGIN);
        // What is read anew anyway may be about what is asked now.
        let (asked, about) = match &ask.focus {
            Some(focus) => (None, Some(focus.clone())),
            None => self.newest_request(ask.head).await.map_err(SourceError::new)?.unzip(),
        };
        let covered = cover_session(store, &row, budget, PAST_CHARGE, (about.as_deref(), asked)).await;
        let covered = covered.map_err(SourceError::new)?;
        let text = format!("{HEAD}\n\n{}", covered.text.trim_end());
        Ok(Some(SourceSummary { text, author: Some(covered.class), parts: covered.parts }))
    }
}

impl ContextSource for CoverCompaction {
    fn name(&self) -> &str {
        COVER_SOURCE
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn compaction<'a>(
        &'a self,
        ask: &'a CompactionAsk,
    ) -> BoxFuture<'a, Result<Option<SourceSummary>, SourceError>> {
        Box::pin(self.cover(ask))
    }
}
