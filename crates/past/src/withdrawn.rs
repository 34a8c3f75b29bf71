//! Which nodes of pasts hold chunks that a person took back, that others stand in the place of, or that sum up removed sessions: for
//! searches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{Fut, Graph, RefName, StoreError, Withdrawal, WithdrawnSource, decode_nodes};

use crate::record::StoredRecord;
use crate::removed::RemovedSessions;
use crate::{PAST_SESSION, PastError, PastId, PastIndex, PastScope};

/// Pasts that are remembered, until they change.
const KNOWN: usize = 16;

/// Reads the pasts that hits of a search are of.
#[derive(Debug, Default)]
pub struct WithdrawnChunks {
    known: Mutex<HashMap<SessionId, KnownPast>>,
    /// Each past is read by one at a time: the others wait for what it finds.
    reading: Mutex<HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>>,
}

/// What is withdrawn of a past that stands at a head, while so much was forgotten.
#[derive(Debug, Clone)]
struct KnownPast {
    head: Option<NodeId>,
    hidden: u64,
    /// Sessions that leaves are of, and those of them that were removed.
    sessions: Arc<HashSet<SessionId>>,
    removed: Arc<RemovedSessions>,
    withdrawn: Arc<HashMap<PastId, Withdrawal>>,
}

impl WithdrawnChunks {
    async fn of_past(
        &self,
        store: &dyn Graph,
        scope: &PastScope,
    ) -> Result<Arc<HashMap<PastId, Withdrawal>>, StoreError> {
        let session = scope.session();
        let reading = self.reading(&session);
        let _reading = reading.lock().await;
        let head = store.head(&RefName::session(&session)).await?;
        let hidden = store.hidden().version();
        // Nothing can break down while it is held.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned();
        if let Some(known) = known.filter(|known| (known.head, known.hidden) == (head, hidden))
            && known.removed.is_same(store, known.sessions.iter()).await?
        {
            return Ok(known.withdrawn);
        }
        let index = match PastIndex::read(store, scope).await {
            Ok(index) => index,
            Err(PastError::Store(error)) => return Err(error),
            // Reading finds nothing else wrong.
            Err(_) => PastIndex::default(),
        };
        let gone = index.chunks().filter_map(|chunk| {
            let what = if chunk.is_taken_back() {
                Withdrawal::TakenBack
            } else if chunk.is_superseded || chunk.is_removed {
                Withdrawal::Superseded
            } else {
                return None;
            };
            Some((chunk.id, what))
        });
        let withdrawn: Arc<HashMap<PastId, Withdrawal>> = Arc::new(gone.collect());
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KNOWN {
            all.clear();
        }
        let (sessions, removed) = (Arc::new(index.sessions()), Arc::new(index.removed));
        all.insert(session, KnownPast { head, hidden, sessions, removed, withdrawn: withdrawn.clone() });
        Ok(withdrawn)
    }

    fn reading(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        // As above.
        let mut all = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KNOWN {
            all.retain(|_, reading| Arc::strong_count(reading) > 1);
        }
        all.entry(session.clone()).or_default().clone()
    }
}

impl WithdrawnSource for WithdrawnChunks {
    fn withdrawn<'a>(
        &'a self,
        store: &'a dyn Graph,
        nodes: &'a [(NodeId, SessionId)],
    ) -> Fut<'a, HashMap<NodeId, Withdrawal>> {
        Box::pin(async move {
            let mut found = HashMap::new();
            let mut pasts: HashMap<SessionId, Arc<HashMap<PastId, Withdrawal>>> = HashMap::new();
            let of_pasts = nodes.iter().filter(|(_, session)| session.as_str().starts_with(PAST_SESSION));
            let of_pasts: HashMap<NodeId, &SessionId> =
                of_pasts.map(|(node, session)| (*node, session)).collect();
            if of_pasts.is_empty() {
                return Ok(found);
            }
            let ids: Vec<NodeId> = of_pasts.keys().copied().collect();
            let stored: Vec<_> = store.nodes(&ids).await?.into_iter().flatten().collect();
            let decoded = decode_nodes(store, &stored).await?;
            for (node, decoded) in stored.iter().zip(&decoded) {
                let Some(chunk) = StoredRecord::chunk_of(decoded, None) else { continue };
                let session = chunk.scope.session();
                if of_pasts.get(&node.id).is_none_or(|of| **of != session) {
                    continue;
                }
                let withdrawn = match pasts.get(&session) {
                    Some(withdrawn) => Arc::clone(withdrawn),
                    None => self.of_past(store, &chunk.scope).await?,
                };
                found.extend(withdrawn.get(&chunk.id()).map(|what| (node.id, *what)));
                pasts.insert(session, withdrawn);
            }
            Ok(found)
        })
    }
}
