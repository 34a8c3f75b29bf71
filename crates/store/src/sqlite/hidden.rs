//! Searches and lists without what is hidden.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use quipu_protocol::{NodeId, SessionId};
use rusqlite::{OptionalExtension as _, params};

use super::{QUERY_LIMIT, SEARCH_PATIENCE, SqliteStore, forest, lists, search};
use crate::{
    HiddenSnapshot, HiddenSource, Hit, Label, Order, SearchHits, SearchQuery, SessionQuery, SessionRow,
    StoreError, WithdrawnSource,
};

/// What hides nodes, once somebody does, and what knows which are withdrawn.
#[derive(Default)]
pub(super) struct HiddenSlot {
    hidden: OnceLock<Arc<dyn HiddenSource>>,
    withdrawn: OnceLock<Arc<dyn WithdrawnSource>>,
}

impl SqliteStore {
    /// From now on these nodes are found by no search of this store. The first to say so counts.
    pub fn hide(&self, hidden: Arc<dyn HiddenSource>) {
        // Whoever opens a store has one list.
        drop(self.hidden.hidden.set(hidden));
    }

    /// From now on searches know which nodes are withdrawn. The first to say so counts.
    pub fn tell_withdrawn(&self, withdrawn: Arc<dyn WithdrawnSource>) {
        // As above.
        drop(self.hidden.withdrawn.set(withdrawn));
    }

    /// Leaves out hits that are hidden, and marks those that are withdrawn, or leaves them out. Says whether any were left out.
    pub(super) async fn only_shown(&self, hits: &mut Vec<Hit>, are_wanted: bool) -> Result<bool, StoreError> {
        let before = hits.len();
        let hidden = self.hidden_now();
        if !hidden.is_empty() {
            hits.retain(|hit| !hidden.hides(&hit.node));
        }
        self.without_withdrawn(hits, are_wanted).await?;
        Ok(hits.len() < before)
    }

    async fn without_withdrawn(&self, hits: &mut Vec<Hit>, are_wanted: bool) -> Result<(), StoreError> {
        let Some(source) = self.hidden.withdrawn.get() else { return Ok(()) };
        let nodes: Vec<_> = hits.iter().filter_map(|hit| Some((hit.node, hit.session.clone()?))).collect();
        let withdrawn = source.withdrawn(self, &nodes).await?;
        for hit in &mut *hits {
            hit.withdrawn = withdrawn.get(&hit.node).copied();
        }
        hits.retain(|hit| are_wanted || hit.withdrawn.is_none());
        Ok(())
    }

    /// What is hidden now.
    pub(super) fn hidden_now(&self) -> HiddenSnapshot {
        self.hidden.hidden.get().map(|hidden| hidden.now()).unwrap_or_default()
    }

    pub(super) async fn shown_hits(&self, query: SearchQuery) -> Result<SearchHits, StoreError> {
        if query.words.len() > QUERY_LIMIT {
            let (size, limit) = (query.words.len() as u64, QUERY_LIMIT as u64);
            return Err(StoreError::TooLarge { what: "a search".to_owned(), size, limit });
        }
        // What was committed just now is found; of much, as much as there is time for.
        self.index_for(SEARCH_PATIENCE, &Arc::default()).await?;
        let mut times = 1;
        loop {
            let wider = SearchQuery {
                limit: query.limit.saturating_mul(times),
                per_session: query.per_session.map(|most| most.saturating_mul(times)),
                ..query.clone()
            };
            let room = wider.limit;
            let mut found = self.read(move |connection| search::find(connection, &wider)).await?;
            let is_filled = found.hits.len() >= room || found.hits.iter().any(|hit| hit.more > 0);
            let is_less = self.only_shown(&mut found.hits, query.withdrawn).await?;
            if times > 1 {
                found.hits = first_hits(found.hits, &query);
            }
            if !is_less || !is_filled || found.hits.len() >= query.limit {
                return Ok(found);
            }
            // Of what was found much was left out: there may be more behind it.
            let Some(more) = search::more_room(query.limit, times) else {
                found.cut = true;
                return Ok(found);
            };
            times = more;
        }
    }

    pub(super) async fn shown_labels(&self, sessions: Vec<SessionId>) -> Result<Vec<Label>, StoreError> {
        let mut labels = self.read_indexed(move |connection| forest::labels(connection, &sessions)).await?;
        let hidden = self.hidden_now();
        if !hidden.is_empty() {
            labels.retain(|label| !hidden.hides(&label.node));
        }
        Ok(labels)
    }

    pub(super) async fn shown_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, StoreError> {
        let mut sessions = self.read_indexed(move |connection| lists::sessions(connection, &query)).await?;
        let hidden = self.hidden_now();
        if hidden.is_empty() {
            return Ok(sessions);
        }
        let ids: Vec<SessionId> = sessions.iter().map(|row| row.id.clone()).collect();
        let titled = self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT n.id FROM quipu_x_session s JOIN quipu_x_node n ON n.seq = s.titled WHERE s.id = ?1",
            )?;
            let mut titled = Vec::with_capacity(ids.len());
            for id in ids {
                let node: Option<[u8; 32]> =
                    statement.query_row(params![id.as_str()], |row| row.get(0)).optional()?;
                titled.extend(node.map(|node| (id, NodeId(node))));
            }
            Ok(titled)
        });
        let titled = titled.await?.into_iter();
        let untitled: HashSet<SessionId> =
            titled.filter(|(_, node)| hidden.hides(node)).map(|(id, _)| id).collect();
        for row in sessions.iter_mut().filter(|row| untitled.contains(&row.id)) {
            row.title.clear();
        }
        for row in sessions.iter_mut().filter(|row| !row.called.is_empty() && hidden.hides_line(&row.called))
        {
            row.called.clear();
        }
        Ok(sessions)
    }
}

/// Of hits that were found with more room, those that are asked for; the others are counted.
fn first_hits(hits: Vec<Hit>, query: &SearchQuery) -> Vec<Hit> {
    let most = query.per_session.unwrap_or(usize::MAX);
    let mut sessions: HashMap<Option<SessionId>, (usize, u64)> = HashMap::new();
    let mut first: Vec<Hit> = Vec::new();
    for mut hit in hits {
        let is_full = first.len() >= query.limit;
        if is_full && query.order == Order::Newest {
            break;
        }
        let (taken, more) = sessions.entry(hit.session.clone()).or_default();
        *more += std::mem::take(&mut hit.more);
        if is_full || *taken >= most {
            *more += 1;
        } else {
            *taken += 1;
            first.push(hit);
        }
    }
    for (session, (_, more)) in sessions {
        if let Some(hit) = first.iter_mut().rev().find(|hit| hit.session == session) {
            hit.more = more;
        }
    }
    first
}
