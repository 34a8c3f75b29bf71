//! Where builds of a past are: what they read of its sessions, and how its chunks lie. A build that has it reads only what is new.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Graph, RefName, SessionQuery, SessionRow};

use crate::layout::{ChunkPlaces, NewLeaf};
use crate::plan::{TakenNodes, taken_back};
use crate::segments::{NodeMeasure, SessionCutter, SessionTail, segment};
use crate::work::leaf_work;
use crate::{PastError, PastId, PastIndex, PastPlan, PastScope, Segment, SummaryMethod, SummaryModel};

/// What builds of one past know of it between them. With it, a plan reads what came since the one before; without it, or where
/// something happened that no build does, it reads everything. The plan is the same.
#[derive(Debug, Default)]
pub struct PastCursor {
    state: Option<CursorState>,
    whole: u64,
}

/// A session by its id and its first node.
type SessionKey = (SessionId, NodeId);

#[derive(Debug)]
struct SessionState {
    name: RefName,
    head: NodeId,
    agent: String,
    cutter: SessionCutter,
    /// Where the leaves stand that nothing changes any more.
    leaves: Vec<usize>,
    /// The one behind the last cut, and whether it was closed.
    rest: Option<(usize, bool)>,
    open: usize,
}

#[derive(Debug)]
struct CursorState {
    scope: PastScope,
    method: SummaryMethod,
    hidden: u64,
    now: UnixMs,
    index: Arc<PastIndex>,
    taken: TakenNodes,
    /// Where all refs stand.
    heads: HashMap<RefName, NodeId>,
    /// The sessions of a ref: two, where it was removed and another one with its id begun.
    names: HashMap<RefName, Vec<SessionKey>>,
    sessions: BTreeMap<SessionKey, SessionState>,
    /// Sessions of which time alone may close the end, or open it.
    unsettled: BTreeSet<SessionKey>,
    places: ChunkPlaces,
    /// Chunks that what is planned takes the place of.
    outdated: Vec<PastId>,
}

/// What became of sessions since.
#[derive(Default)]
struct SessionNews {
    removed: Vec<usize>,
    added: Vec<NewLeaf>,
}

impl PastCursor {
    /// Plans the past of a scope as its sessions stand at `now`, in milliseconds since the epoch. Writes nothing.
    ///
    /// # Errors
    /// What the store says.
    pub async fn plan(
        &mut self,
        store: &dyn Graph,
        scope: &PastScope,
        method: &SummaryMethod,
        now: UnixMs,
    ) -> Result<PastPlan, PastError> {
        // Where it fails, nothing is kept.
        let state = match self.state.take() {
            Some(state) if state.is_of(store, scope, method, now) => state.refreshed(store, now).await?,
            Some(_) | None => None,
        };
        let state = match state {
            Some(state) => state,
            None => {
                self.whole += 1;
                CursorState::read(store, scope, method, now).await?
            }
        };
        let plan = state.plan();
        self.state = Some(state);
        Ok(plan)
    }

    /// The same for summaries by a model. Looks for answers that were paid for already, too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn plan_for(
        &mut self,
        store: &dyn Graph,
        scope: &PastScope,
        model: &dyn SummaryModel,
        now: UnixMs,
    ) -> Result<PastPlan, PastError> {
        let mut plan = self.plan(store, scope, &crate::model_method(model), now).await?;
        plan.look_up(model).await;
        Ok(plan)
    }

    /// Goes on behind what a build of the last plan has written, so that the next plan need not. Drop the plan before.
    ///
    /// # Errors
    /// What the store says.
    pub async fn settle(&mut self, store: &dyn Graph) -> Result<(), PastError> {
        if let Some(mut state) = self.state.take()
            && state.settle(store).await?
        {
            self.state = Some(state);
        }
        Ok(())
    }

    /// The past as it was when a build had last [`settle`](Self::settle)d.
    #[must_use]
    pub fn index(&self) -> Option<&PastIndex> {
        self.state.as_ref().map(|state| &*state.index)
    }

    /// How many plans had to read everything.
    #[must_use]
    pub const fn read_whole(&self) -> u64 {
        self.whole
    }
}

impl PastPlan {
    /// Plans the past of a scope as its sessions stand at `now`, in milliseconds since the epoch. Reads them all; writes nothing.
    ///
    /// # Errors
    /// What the store says.
    pub async fn make(
        store: &dyn Graph,
        scope: &PastScope,
        method: &SummaryMethod,
        now: UnixMs,
    ) -> Result<Self, PastError> {
        PastCursor::default().plan(store, scope, method, now).await
    }
}

impl CursorState {
    fn is_of(&self, store: &dyn Graph, scope: &PastScope, method: &SummaryMethod, now: UnixMs) -> bool {
        // What is over is so for good only while clocks go forward.
        (&self.scope, &self.method, self.hidden) == (scope, method, store.hidden().version())
            && now >= self.now
    }

    /// Reads everything.
    async fn read(
        store: &dyn Graph,
        scope: &PastScope,
        method: &SummaryMethod,
        now: UnixMs,
    ) -> Result<Self, PastError> {
        let hidden = store.hidden().version();
        let heads = heads_of(store).await?;
        let index = Arc::new(PastIndex::read(store, scope).await?);
        let taken = taken_back(store, scope, &index).await?;
        let mut state = Self {
            scope: scope.clone(),
            method: method.clone(),
            hidden,
            now,
            index,
            taken,
            heads,
            names: HashMap::new(),
            sessions: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            places: ChunkPlaces::new(method.clone()),
            outdated: Vec::new(),
        };
        let mut leaves = Vec::new();
        for row in scope.sessions(store).await? {
            leaves.extend(state.begin(store, &row).await?);
        }
        // What is closed comes first: it has the say where two rows have the same nodes.
        let keys: Vec<SessionKey> = state.sessions.keys().cloned().collect();
        let mut kept = Vec::new();
        for key in keys {
            match state.rest_of(&key) {
                Some(leaf) if leaf.stands.is_some() => kept.push(leaf),
                leaf => leaves.extend(leaf),
            }
        }
        leaves.sort_by(|a, b| (&a.key, a.ordinal).cmp(&(&b.key, b.ordinal)));
        leaves.extend(kept);
        let news = SessionNews { removed: Vec::new(), added: leaves };
        state.lay_out(news);
        let wanted = state.places.there();
        let index = &state.index;
        let old = index.chunks().filter(|old| old.is_standing() && old.work.is_some());
        state.outdated = old.map(|old| old.id).filter(|id| !wanted.contains(id)).collect();
        Ok(state)
    }

    /// Reads what came since. `None` where that is more than goes without a look at everything.
    async fn refreshed(mut self, store: &dyn Graph, now: UnixMs) -> Result<Option<Self>, PastError> {
        if !self.settle(store).await? {
            return Ok(None);
        }
        self.now = now;
        let heads = heads_of(store).await?;
        let mut changed = std::mem::take(&mut self.unsettled);
        let mut is_listed = false;
        for (name, head) in &heads {
            match (self.heads.get(name), self.names.get(name)) {
                (Some(stood), _) if stood == head => {}
                (Some(_), Some(keys)) => changed.extend(keys.iter().cloned()),
                // It may have come to be one of the scope.
                (Some(_), None) => is_listed |= *name != self.scope.ref_name(),
                (None, _) => is_listed = true,
            }
        }
        // Some were removed: what summed them up is shown no more.
        if self.names.keys().any(|name| !heads.contains_key(name)) {
            return Ok(None);
        }
        self.heads = heads;
        let mut news = SessionNews::default();
        let mut begun = Vec::new();
        if is_listed {
            for row in self.scope.sessions(store).await? {
                let key = (row.id.clone(), row.base);
                if self.sessions.contains_key(&key) {
                    continue;
                }
                // It was removed, and is there again.
                if self.index.removed.contains(&row.id) {
                    return Ok(None);
                }
                begun.extend(self.begin(store, &row).await?);
                // It may have gone on since the refs were read.
                self.heads.extend(row.head.map(|head| (row.name.clone(), head)));
                changed.insert(key);
            }
        }
        news.added = begun;
        for key in changed {
            if !self.go_on(store, &key, &mut news).await? {
                return Ok(None);
            }
        }
        news.added.sort_by(|a, b| (&a.key, a.ordinal).cmp(&(&b.key, b.ordinal)));
        if !self.places.are_single(&news.removed, &news.added) {
            return Ok(None);
        }
        self.lay_out(news);
        Ok(Some(self))
    }

    /// Takes what was planned as made, where the past has just that. Where it does not, or somebody else wrote to it, everything is
    /// to be read again.
    async fn settle(&mut self, store: &dyn Graph) -> Result<bool, PastError> {
        let Some(index) = Arc::get_mut(&mut self.index) else { return Ok(false) };
        let was_empty = index.head.is_none();
        let planned = !self.outdated.is_empty() || self.places.is_pending();
        if was_empty && planned {
            *index = PastIndex::read(store, &self.scope).await?;
            let is_clean = index.fault_count == 0
                && index.forgotten_count() == 0
                && index.removed.is_empty()
                && index.chunks().all(|chunk| chunk.work.is_some() && chunk.is_live());
            if !is_clean {
                return Ok(false);
            }
            let made: HashSet<PastId> = index.chunks().map(|chunk| chunk.id).collect();
            return Ok(self.outdated.is_empty() && self.places.settle(&self.index) == Some(made));
        }
        let Some(news) = index.advance(store, &self.scope).await? else { return Ok(false) };
        let outdated: HashSet<PastId> = self.outdated.drain(..).collect();
        Ok(news.superseded == outdated && self.places.settle(&self.index) == Some(news.made))
    }

    /// A session that was not read before, and what is closed of it.
    async fn begin(&mut self, store: &dyn Graph, row: &SessionRow) -> Result<Vec<NewLeaf>, PastError> {
        let Some(head) = row.head else { return Ok(Vec::new()) };
        let mut cutter = SessionCutter::new(row, matches!(self.method, SummaryMethod::Model(_)));
        cutter.read(store, row).await?;
        let key = (row.id.clone(), row.base);
        let segments = cutter.cut(&self.taken);
        let importer = cutter.importer().map(str::to_owned);
        let session = SessionState {
            name: row.name.clone(),
            head,
            agent: row.agent.clone(),
            cutter,
            leaves: Vec::new(),
            rest: None,
            open: 0,
        };
        let named = self.names.entry(row.name.clone()).or_default();
        if !named.contains(&key) {
            named.push(key.clone());
        }
        self.sessions.insert(key.clone(), session);
        let leaves = segments.into_iter().enumerate();
        Ok(leaves
            .map(|(nth, segment)| self.new_leaf(&key, (nth, false), segment, importer.clone(), None))
            .collect())
    }

    fn new_leaf(
        &self,
        key: &SessionKey,
        (ordinal, is_rest): (usize, bool),
        segment: Segment,
        importer: Option<String>,
        stands: Option<PastId>,
    ) -> NewLeaf {
        let is_taken =
            !self.taken.is_empty() && segment.nodes.iter().all(|node| self.taken.contains_key(node));
        NewLeaf { key: key.clone(), ordinal, is_rest, segment, importer, is_taken, stands }
    }

    /// What a session has behind its last cut now: a leaf that is closed, or the one that it has while it is open again.
    fn rest_of(&mut self, key: &SessionKey) -> Option<NewLeaf> {
        let session = self.sessions.get(key)?;
        if !session.cutter.is_settled(self.now) {
            self.unsettled.insert(key.clone());
        }
        let ordinal = usize::MAX;
        let importer = || session.cutter.importer().map(str::to_owned);
        let (leaf, open) = match session.cutter.rest(self.now) {
            SessionTail::Nothing => (None, 0),
            SessionTail::Closed(segment) => {
                (Some(self.new_leaf(key, (ordinal, true), segment, importer(), None)), 0)
            }
            SessionTail::Open(tail) => match self.kept(&key.0, tail) {
                Some((kept, id)) => {
                    let open = tail.len() - kept.nodes.len();
                    (Some(self.new_leaf(key, (ordinal, true), kept, importer(), Some(id))), open)
                }
                None => (None, tail.len()),
            },
        };
        if let Some(session) = self.sessions.get_mut(key) {
            session.open = open;
        }
        leaf
    }

    /// The chunk that a segment has which was closed, and is open again: it stays until the segment is closed.
    fn kept(&self, session: &SessionId, tail: &[NodeMeasure]) -> Option<(Segment, PastId)> {
        let leaves = self.index.leaves_of(session).filter(|leaf| leaf.is_live());
        let of_tail = leaves.filter_map(|leaf| {
            let kept = segment(session, tail.get(..leaf.sources)?)?;
            let is_it = kept.span == leaf.span && leaf.work == Some(leaf_work(&kept.nodes));
            is_it.then_some((kept, leaf.id))
        });
        of_tail.max_by_key(|(kept, _)| kept.nodes.len())
    }

    /// Reads on in a session. `false` where its row is another one than it was.
    async fn go_on(
        &mut self,
        store: &dyn Graph,
        key: &SessionKey,
        news: &mut SessionNews,
    ) -> Result<bool, PastError> {
        let Some(session) = self.sessions.get_mut(key) else { return Ok(false) };
        let Some(head) = self.heads.get(&session.name).copied() else { return Ok(false) };
        if head != session.head {
            if session.cutter.read_on(store, session.head, head).await? {
                session.head = head;
                let importer = session.cutter.importer().map(str::to_owned);
                let first = session.leaves.len();
                let mut segments = session.cutter.cut(&self.taken);
                // What was closed by time is now closed by what stands behind it.
                if let (Some((at, true)), Some(closed)) = (session.rest, segments.first())
                    && self.places.is_at(at, closed)
                {
                    session.rest = None;
                    session.leaves.push(at);
                    segments.remove(0);
                }
                for (nth, segment) in segments.into_iter().enumerate() {
                    let leaf = self.new_leaf(key, (first + nth, false), segment, importer.clone(), None);
                    news.added.push(leaf);
                }
            } else {
                let query = SessionQuery { id: Some(key.0.clone()), ..SessionQuery::default() };
                let rows = store.sessions(query).await?;
                // Another session was begun with its id.
                let is_known = |row: &SessionRow| self.sessions.contains_key(&(row.id.clone(), row.base));
                if rows.iter().any(|row| row.head.is_some() && !is_known(row)) {
                    return Ok(false);
                }
                let Some(session) = self.sessions.get_mut(key) else { return Ok(false) };
                let row = rows.into_iter().find(|row| row.base == key.1 && row.head == Some(head));
                let Some(row) = row.filter(|row| row.agent == session.agent && row.name == session.name)
                else {
                    return Ok(false);
                };
                news.removed.append(&mut session.leaves);
                news.removed.extend(session.rest.take().map(|(at, _)| at));
                news.added.extend(self.begin(store, &row).await?);
            }
        }
        let Some(session) = self.sessions.get(key) else { return Ok(false) };
        let rest = session.rest;
        let leaf = self.rest_of(key);
        let is_same = match (rest, &leaf) {
            (None, None) => true,
            (Some((at, was_closed)), Some(leaf)) => {
                was_closed == leaf.stands.is_none() && self.places.is_at(at, &leaf.segment)
            }
            _ => false,
        };
        if is_same {
            return Ok(true);
        }
        if let Some(session) = self.sessions.get_mut(key) {
            news.removed.extend(session.rest.take().map(|(at, _)| at));
        }
        news.added.extend(leaf);
        Ok(true)
    }

    /// Puts leaves in their places, and parents above them.
    fn lay_out(&mut self, news: SessionNews) {
        let SessionNews { removed, added } = news;
        let (removed, mut gone) = self.places.take_out(&removed);
        let mut put = Vec::with_capacity(added.len());
        for leaf in added {
            let (key, is_rest, is_closed) = (leaf.key.clone(), leaf.is_rest, leaf.stands.is_none());
            let Some(at) = self.places.leaf(&self.index, leaf) else { continue };
            put.push(at);
            let Some(session) = self.sessions.get_mut(&key) else { continue };
            if is_rest {
                session.rest = Some((at, is_closed));
            } else {
                session.leaves.push(at);
            }
        }
        gone.extend(self.places.lay_out(&self.index, removed, &put));
        if gone.is_empty() {
            return;
        }
        // What is wanted in another place is not gone.
        let wanted: HashSet<PastId> = self.places.there_of_new();
        let mut outdated: Vec<PastId> = gone.into_iter().filter(|id| !wanted.contains(id)).collect();
        outdated.sort_by_key(|id| self.index.place(id));
        outdated.dedup();
        self.outdated = outdated;
    }

    fn plan(&self) -> PastPlan {
        let mut plan = PastPlan {
            index: Arc::clone(&self.index),
            hidden: self.hidden,
            sessions: self.sessions.len(),
            open: self.sessions.values().map(|session| session.open).sum(),
            untimed: self.sessions.values().map(|session| session.cutter.untimed()).sum(),
            ..PastPlan::default()
        };
        self.places.plan(&mut plan);
        plan.compare(&self.outdated);
        plan
    }
}

async fn heads_of(store: &dyn Graph) -> Result<HashMap<RefName, NodeId>, PastError> {
    Ok(store.heads("").await?.into_iter().map(|head| (head.name, head.node)).collect())
}
