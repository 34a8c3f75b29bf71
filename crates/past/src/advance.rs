//! What came to a past since it was read: the index goes on from where it was, where nothing else came than what builds write.

use std::collections::HashSet;

use quipu_protocol::Provenance;
use quipu_store::Graph;
use quipu_transcript::decode;

use crate::chunk::PastRecord;
use crate::pages::Pages;
use crate::record::{StoredRecord, read_chunk};
use crate::{ChunkAuthor, MemoryChunk, PastError, PastId, PastIndex, PastScope, ReviewState};

/// What builds did with chunks.
#[derive(Debug, Default)]
pub(crate) struct IndexNews {
    /// Chunks that they made, or put back.
    pub(crate) made: HashSet<PastId>,
    /// Chunks whose place others took.
    pub(crate) superseded: HashSet<PastId>,
}

impl PastIndex {
    /// The past as its ref stands now: only what came is read, where that is what builds write.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_on(mut self, store: &dyn Graph, scope: &PastScope) -> Result<Self, PastError> {
        let can_continue = self.advance(store, scope).await?.is_some() && self.is_removed_same(store).await?;
        if can_continue { Ok(self) } else { Self::read(store, scope).await }
    }

    /// Reads what was written to the past since. `None` where that is more than chunks of builds, what they supersede, verdicts and
    /// proofs, or where something is wrong with it: the past is to be read as a whole, and this index is not to be used.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn advance(
        &mut self,
        store: &dyn Graph,
        scope: &PastScope,
    ) -> Result<Option<IndexNews>, PastError> {
        let mut news = IndexNews::default();
        let head = store.head(&scope.ref_name()).await?;
        if head == self.head {
            return Ok(Some(news));
        }
        let (Some(stood), Some(head)) = (self.head, head) else { return Ok(None) };
        let mut pages = Pages::below(store, stood, head).await?;
        // It was undone.
        if pages.is_empty() {
            return Ok(None);
        }
        let known = (self.fault_count, self.forgotten_count());
        let before = self.count();
        let hidden = store.hidden();
        while let Some(piece) = pages.next().await? {
            for stored in &piece.nodes {
                if stored.node.id == head {
                    (self.listed, self.last) =
                        (stored.node.record.external_id.clone(), stored.node.record.timestamp);
                }
                let decoded = decode(&stored.node, &piece.objects);
                let record = match StoredRecord::of(&decoded) {
                    None => continue,
                    Some(Err(_)) => return Ok(None),
                    Some(Ok(record)) => record,
                };
                if !self.note(&record, scope, &mut news) {
                    return Ok(None);
                }
                let at = (stored.node.id, stored.node.record.timestamp, stored.seq);
                self.take_record(record, at, scope, &hidden);
            }
        }
        let is_as_expected = known == (self.fault_count, self.forgotten_count()) && self.settle(&news);
        if !is_as_expected {
            return Ok(None);
        }
        (before..self.count()).for_each(|at| self.list(at));
        self.forget_keys();
        self.head = Some(head);
        Ok(Some(news))
    }

    /// Notes what a record does with chunks, before it is taken. `false` where no build of ours writes it so.
    fn note(&self, stored: &StoredRecord, scope: &PastScope, news: &mut IndexNews) -> bool {
        let is_of_a_build =
            |id: &PastId| self.get(id).is_some_and(|chunk| chunk.author == ChunkAuthor::Build);
        match &stored.record {
            PastRecord::Grounding { .. } | PastRecord::Proof(_) => {
                stored.from.as_ref() == Some(&Provenance::quipu())
            }
            PastRecord::Review { .. } => false,
            PastRecord::Supersede { of } => {
                news.superseded.extend(of.iter().filter(|id| self.is_standing(id)));
                stored.from.as_ref() == Some(&Provenance::quipu()) && of.iter().all(is_of_a_build)
            }
            PastRecord::Chunk(record) => {
                let read = read_chunk((**record).clone(), stored.text.clone(), stored.from.as_ref(), scope);
                let Ok(chunk) = read else { return false };
                let id = chunk.id();
                let is_new = self.get(&id).is_none();
                news.made.insert(id);
                news.superseded.extend(chunk.supersedes.iter().filter(|id| self.is_standing(id)));
                (is_new || is_of_a_build(&id))
                    && !self.tells_forgotten(&id)
                    && chunk.children.iter().all(|child| self.get(child).is_some())
                    && chunk.supersedes.iter().all(is_of_a_build)
                    && !self.is_of_removed(&chunk)
            }
        }
    }

    fn is_standing(&self, id: &PastId) -> bool {
        self.get(id).is_some_and(crate::ChunkEntry::is_standing)
    }

    fn is_of_removed(&self, chunk: &MemoryChunk) -> bool {
        chunk.session.as_ref().is_some_and(|session| self.removed.contains(session))
            || chunk.children.iter().any(|child| self.get(child).is_some_and(|child| child.is_removed))
    }

    /// Gives children to the parents that came. `false` where somebody else has or names one of them.
    fn settle(&mut self, news: &IndexNews) -> bool {
        for id in &news.superseded {
            if self.is_standing(id) {
                continue;
            }
            let Some(chunk) = self.get(id) else { return false };
            let is_wanted = |child: &PastId| self.lost.contains(child);
            if !chunk.lost.is_empty() || chunk.children.iter().any(is_wanted) {
                return false;
            }
            for child in chunk.children.clone() {
                if self.owners.get(&child) == Some(id) {
                    self.owners.remove(&child);
                }
            }
        }
        for id in &news.made {
            let Some(chunk) = self.get(id) else { return false };
            if chunk.author != ChunkAuthor::Build
                || chunk.state != ReviewState::Made
                || chunk.is_replaced
                || chunk.is_removed
                || !chunk.lost.is_empty()
                || self.lost.contains(id)
            {
                return false;
            }
            let (span, is_live, children) = (chunk.span, chunk.is_live(), chunk.children.clone());
            let mut seen = HashSet::new();
            for child in children {
                let covers = self.get(&child).is_some_and(|child| span.covers(child.span));
                let is_had = is_live && self.owners.get(&child).is_some_and(|owner| owner != id);
                if !covers || !seen.insert(child) || is_had || self.lost.contains(&child) {
                    return false;
                }
                if is_live {
                    self.owners.insert(child, *id);
                }
            }
        }
        true
    }
}
