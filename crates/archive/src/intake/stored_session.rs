//! What the store has of a session and of those that share items with it.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{Graph, LineageEnd, Resolution, Scope, SessionQuery, StoreError};

use super::Outline;
use crate::built_node::ContentDigest;
use crate::key::Key;
use crate::lineages;

/// Nodes that are read at once at most.
const MOST: usize = 4_096;

/// An item of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredItem {
    pub(super) node: NodeId,
    pub(super) digest: ContentDigest,
}

#[derive(Debug, Default)]
pub(super) struct StoredSession {
    /// Items by their own ids.
    pub(super) items: HashMap<Key, StoredItem>,
    /// The first nodes of sessions, and what those hang on.
    pub(super) bases: HashMap<SessionId, (NodeId, Option<NodeId>)>,
    /// The ends of branches, and whose they are.
    pub(super) tips: Vec<(SessionId, NodeId)>,
    /// All nodes that were looked at.
    seen: HashSet<NodeId>,
    /// Those at which others were looked at before.
    met: HashSet<NodeId>,
}

impl StoredSession {
    pub(super) async fn load(store: &dyn Graph, agent: &str, outline: &Outline) -> Result<Self, StoreError> {
        let mut known = Self::default();
        known.catch_up(store, agent, outline).await?;
        Ok(known)
    }

    /// Takes in what came since. `false` where an end that was known has gone and nothing follows it: then what was known holds no
    /// more.
    pub(super) async fn catch_up(
        &mut self,
        store: &dyn Graph,
        agent: &str,
        outline: &Outline,
    ) -> Result<bool, StoreError> {
        let before = std::mem::take(&mut self.tips);
        self.met.clear();
        self.bases.clear();
        let mut sessions: Vec<SessionId> = vec![outline.session.clone()];
        sessions.extend(outline.related.iter().cloned());
        if let Some(first) = &outline.first {
            let spelling = format!("ext:{first}").into();
            let candidates = match store.resolve(&spelling, &Scope::default()).await? {
                Resolution::One(candidate) => vec![candidate],
                Resolution::Many(candidates) => candidates,
                Resolution::None => Vec::new(),
            };
            sessions.extend(candidates.into_iter().filter_map(|candidate| candidate.session));
        }
        // Those whose forks count: this one and what comes of it. The forks of others share nothing that they do not have.
        let mut own = HashSet::from([outline.session.clone()]);
        let mut at = 0;
        while let Some(session) = sessions.get(at).cloned() {
            at += 1;
            if sessions[..at - 1].contains(&session) {
                continue;
            }
            let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
            let rows = store.sessions(query).await?;
            // Forks may have been imported before what they were forked from.
            if own.contains(&session) {
                let forks = SessionQuery { parent: Some(session.clone()), ..SessionQuery::default() };
                let forks = store.sessions(forks).await?.into_iter().filter(|fork| fork.agent == agent);
                for fork in forks {
                    own.insert(fork.id.clone());
                    sessions.push(fork.id);
                }
            }
            let Some(row) = rows.into_iter().find(|row| row.agent == agent) else { continue };
            let base = store.nodes(&[row.base]).await?.into_iter().flatten().next();
            self.bases.insert(session.clone(), (row.base, base.and_then(|base| base.record.parent)));
            // What it was forked from holds items that its file repeats.
            sessions.extend(row.parent);
            for head in lineages::tips(store, agent, &session).await? {
                self.tips.push((session.clone(), head.node));
                self.walk(store, head.node).await?;
            }
        }
        let now: HashSet<NodeId> = self.tips.iter().map(|(_, node)| *node).collect();
        Ok(before.iter().all(|(_, node)| now.contains(node) || self.met.contains(node)))
    }

    /// These are in the store now.
    pub(super) fn add(&mut self, nodes: &HashSet<NodeId>) {
        self.seen.extend(nodes);
    }

    /// Takes in what leads to `tip`. Each node is read once, and few more.
    async fn walk(&mut self, store: &dyn Graph, tip: NodeId) -> Result<(), StoreError> {
        let mut from = Some(tip);
        let mut count = 16;
        while let Some(start) = from.take().filter(|start| !self.seen.contains(start)) {
            for node in store.lineage(start, LineageEnd::Count(count)).await?.into_iter().rev() {
                if !self.seen.insert(node.id) {
                    self.met.insert(node.id);
                    return Ok(());
                }
                from = node.record.parent;
                if let Some(id) = &node.record.external_id {
                    let digest = ContentDigest::of(&node.record.role, &node.record.parts);
                    self.items.insert(Key::of(id), StoredItem { node: node.id, digest });
                }
            }
            count = (count * 4).min(MOST);
        }
        Ok(())
    }
}
