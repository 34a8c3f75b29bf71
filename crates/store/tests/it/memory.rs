//! A store in maps: what the core promises, in as few words as possible. The laws of every store hold for it, too, so that
//! whoever puts another database behind the trait has them before them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quipu_dag::{Blob, NewChunk, Node};
use quipu_protocol::{BlobId, ChunkId, Entry, Message, NodeId, SessionId};
use quipu_store::{
    ActionQuery, Commit, Edge, Fence, Fut, Head, LineageEnd, LoggedAction, Op, OpenWork, Owner,
    RefExpectation, RefMove, RefName, Reservation, ReserveRequest, Store, StoreError,
};
use quipu_transcript::DecodedEntry;
use tokio::sync::watch;

use crate::memory_jobs::JobTables;

/// Bytes of a name at most, as in the other store.
const NAME: usize = 1024;

#[derive(Default)]
pub(crate) struct MemoryStore {
    tables: Mutex<Tables>,
    commits: watch::Sender<u64>,
    jobs: Mutex<JobTables>,
}

#[derive(Clone, Default)]
struct Tables {
    blobs: HashMap<BlobId, Blob>,
    chunks: HashMap<ChunkId, Vec<u8>>,
    nodes: HashMap<NodeId, Node>,
    /// In the order of writing.
    order: Vec<NodeId>,
    refs: BTreeMap<String, NodeId>,
    actions: Vec<LoggedAction>,
    open: HashMap<SessionId, OpenWork>,
    leases: HashMap<RefName, (Owner, Fence, i64)>,
    /// Reservations: when, until when, how much.
    reserved: BTreeMap<String, (i64, i64, i64)>,
}

fn missing(what: impl Into<String>) -> StoreError {
    StoreError::Missing { path: PathBuf::from("memory"), what: what.into() }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

pub(crate) fn answer<'a, T: Send + 'a>(result: Result<T, StoreError>) -> Fut<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Tables {
    fn apply(&mut self, commit: Commit) -> Result<(), StoreError> {
        for blob in commit.blobs {
            self.blobs.entry(blob.id).or_insert(blob);
        }
        for chunk in commit.chunks {
            let (id, bytes) = match chunk {
                NewChunk::Full { id, bytes }
                | NewChunk::Plain { id, bytes }
                | NewChunk::Delta { id, bytes, .. } => (id, bytes.to_vec()),
                NewChunk::Grown { id, bytes, .. } => (id, bytes.to_vec()),
            };
            self.chunks.entry(id).or_insert(bytes);
        }
        for node in commit.nodes {
            let record = &node.record;
            if record.parent.is_some_and(|parent| !self.nodes.contains_key(&parent)) {
                return Err(missing("a parent"));
            }
            if !record.parts.iter().all(|part| self.blobs.contains_key(part)) {
                return Err(missing("a part"));
            }
            if !self.nodes.contains_key(&node.id) {
                self.order.push(node.id);
                self.nodes.insert(node.id, node);
            }
        }
        for action in commit.actions {
            let id = self.actions.len() as i64 + 1;
            self.actions.push(LoggedAction { id, action, left: false });
        }
        commit.moves.into_iter().try_for_each(|moved| self.move_ref(moved))?;
        commit.ops.into_iter().try_for_each(|op| self.operate(op))
    }

    fn move_ref(&mut self, RefMove { name, expect, to, fence, .. }: RefMove) -> Result<(), StoreError> {
        let held = self.leases.get(&name);
        if fence.is_some_and(|fence| held.is_none_or(|(_, held, _)| *held != fence)) {
            let owner = held.map(|(owner, ..)| owner.0.clone()).unwrap_or_default();
            return Err(StoreError::Fenced { name, owner });
        }
        let found = self.refs.get(name.as_str()).copied();
        let stands = match expect {
            RefExpectation::Any => true,
            RefExpectation::Absent => found.is_none(),
            RefExpectation::At(node) => found == Some(node),
        };
        match to {
            _ if !stands => return Err(StoreError::Conflict { name, found }),
            Some(to) if !self.nodes.contains_key(&to) => return Err(missing("the node of a ref")),
            Some(to) => drop(self.refs.insert(name.to_string(), to)),
            None => drop(self.refs.remove(name.as_str())),
        }
        Ok(())
    }

    fn operate(&mut self, op: Op) -> Result<(), StoreError> {
        match op {
            Op::InboxPut { session, item } => {
                let inbox = &mut self.open.entry(session).or_default().inbox;
                if inbox.iter().all(|other| other.id != item.id) {
                    inbox.push(item);
                }
            }
            Op::InboxTake { session, item } => {
                let inbox = &mut self.open.entry(session).or_default().inbox;
                let at = inbox.iter().position(|other| other.id == item);
                inbox.remove(at.ok_or_else(|| missing("an input"))?);
            }
            Op::StepPut { session, step } => {
                let steps = &mut self.open.entry(session).or_default().steps;
                match steps.iter_mut().find(|other| (&other.run, &other.call) == (&step.run, &step.call)) {
                    Some(known) => *known = step,
                    None => steps.push(step),
                }
            }
            Op::StepRemove { session, run, call, data } => {
                let steps = &mut self.open.entry(session).or_default().steps;
                let is_other = |step: &quipu_store::Step| data.is_some() && step.data != data;
                steps.retain(|step| (&step.run, &step.call) != (&run, &call) || is_other(step));
            }
            Op::RunRemove { session, run } => {
                self.open.entry(session).or_default().steps.retain(|step| step.run != run);
            }
            Op::JumpPut { session, jump } => self.open.entry(session).or_default().jump = Some(jump),
            Op::JumpRemove { session } => self.open.entry(session).or_default().jump = None,
            Op::Renew { id, expires } => {
                self.reserved.entry(id.0).and_modify(|(_, until, _)| *until = expires);
            }
            Op::Spend { id, amount } => {
                if let (Some((at, ..)), Some(account)) = (self.reserved.remove(&id.0), id.purpose()) {
                    let slot = at.div_euclid(900_000);
                    let row = self.reserved.entry(format!("{account}={slot}"));
                    row.or_insert((slot * 900_000, i64::MIN, 0)).2 += amount;
                }
            }
            Op::Release { id, charged: 0 } => drop(self.reserved.remove(&id.0)),
            Op::Release { id, charged } => {
                self.reserved
                    .entry(id.0)
                    .and_modify(|(_, until, amount)| (*until, *amount) = (i64::MIN, charged));
            }
        }
        Ok(())
    }

    fn decoded(&self, node: &Node) -> DecodedEntry {
        quipu_transcript::decode(node, &Parts(self))
    }

    /// The newest first.
    fn walk(&self, from: NodeId) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.nodes.get(&from), |node| self.nodes.get(&node.record.parent?))
    }

    fn is_on(&self, node: Option<NodeId>, head: NodeId) -> bool {
        node.is_some_and(|node| self.walk(head).any(|other| other.id == node))
    }

    /// The directory and the name of the session that a node belongs to.
    fn session_of(&self, node: Option<NodeId>) -> Option<(SessionId, String)> {
        self.walk(node?).find_map(|node| match self.decoded(node).entry {
            Entry::Session(start) => Some((start.session, start.cwd)),
            _ => None,
        })
    }

    fn lineage(&self, from: NodeId, until: LineageEnd) -> Result<Vec<Node>, StoreError> {
        let mut nodes = Vec::new();
        let mut ended = false;
        for node in self.walk(from).take(if let LineageEnd::Count(most) = until { most } else { usize::MAX })
        {
            nodes.push(node.clone());
            ended = match until {
                LineageEnd::Node(end) => node.id == end,
                LineageEnd::Checkpoint => {
                    node.record.role == "compactionSummary"
                        || matches!(self.decoded(node).entry, Entry::Compaction(_))
                }
                LineageEnd::Root | LineageEnd::Count(_) => false,
            };
            if ended {
                break;
            }
        }
        let lost = nodes.is_empty() && until != LineageEnd::Count(0);
        if lost || matches!(until, LineageEnd::Node(_)) && !ended {
            return Err(missing("a node"));
        }
        nodes.reverse();
        Ok(nodes)
    }

    fn spent(&self, since: i64) -> i64 {
        let since = since.div_euclid(900_000) * 900_000;
        let late = self.nodes.values().filter(|node| node.record.timestamp >= since);
        let charged = late.map(|node| self.decoded(node)).filter(|read| read.step.call.is_some());
        let cost = |entry: &Entry| match entry {
            Entry::Message(Message::Assistant(answer)) => answer.usage.cost.total,
            _ => 0.0,
        };
        #[expect(clippy::cast_possible_truncation, reason = "billionths of what tests spend")]
        charged.map(|read| (cost(&read.entry) * 1e9) as i64).sum()
    }

    fn reserve(&mut self, ask: ReserveRequest) -> Reservation {
        let is_of = |id: &str| quipu_store::ReserveId(id.to_owned()).purpose() == ask.id.purpose();
        let others = self.reserved.iter().filter(|(id, _)| **id != ask.id.0 && is_of(id));
        let others = others.map(|(_, held)| *held);
        let lost = others.clone().filter(|(at, until, _)| *at >= ask.since && *until <= ask.now);
        let known = if ask.id.purpose().is_some() { 0 } else { self.spent(ask.since) };
        let spent = known + ask.elsewhere + lost.map(|(.., amount)| amount).sum::<i64>();
        let others = others.filter(|(_, until, _)| *until > ask.now).map(|(.., amount)| amount).sum::<i64>();
        let (alone, left) = (ask.limit - spent, ask.limit - spent - others);
        let less = ask.least <= left && (ask.full > alone || ask.settles);
        let granted = if ask.full <= left { Some(ask.full) } else { less.then_some(left) };
        let granted = granted.filter(|_| spent < ask.limit);
        if let Some(amount) = granted {
            self.reserved.insert(ask.id.0, (ask.now, ask.expires, amount));
        }
        Reservation { granted, spent, others }
    }
}

/// The parts of nodes, to be read.
struct Parts<'a>(&'a Tables);

impl quipu_transcript::Lookup for Parts<'_> {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.0.blobs.get(id)
    }

    fn chunk(&self, id: &ChunkId) -> Option<&[u8]> {
        self.0.chunks.get(id).map(Vec::as_slice)
    }
}

impl MemoryStore {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, JobTables> {
        self.jobs.lock().unwrap()
    }
}

impl Store for MemoryStore {
    fn commit(&self, batch: Commit) -> Fut<'_, ()> {
        if let Some(long) =
            batch.moves.iter().map(|moved| moved.name.as_str().len()).find(|length| *length > NAME)
        {
            let what = "the name of a ref".to_owned();
            return answer(Err(StoreError::TooLarge { what, size: long as u64, limit: NAME as u64 }));
        }
        let mut tables = self.tables();
        let mut new = tables.clone();
        let result = new.apply(batch);
        if result.is_ok() {
            *tables = new;
            self.commits.send_modify(|count| *count += 1);
        }
        answer(result)
    }

    fn head<'a>(&'a self, name: &'a RefName) -> Fut<'a, Option<NodeId>> {
        answer(Ok(self.tables().refs.get(name.as_str()).copied()))
    }

    fn heads<'a>(&'a self, prefix: &'a str) -> Fut<'a, Vec<Head>> {
        let tables = self.tables();
        let named = tables.refs.iter().filter(|(name, _)| name.starts_with(prefix));
        answer(Ok(named.map(|(name, node)| Head { name: name.as_str().into(), node: *node }).collect()))
    }

    fn nodes<'a>(&'a self, ids: &'a [NodeId]) -> Fut<'a, Vec<Option<Node>>> {
        let tables = self.tables();
        answer(Ok(ids.iter().map(|id| tables.nodes.get(id).cloned()).collect()))
    }

    fn blobs<'a>(&'a self, ids: &'a [BlobId]) -> Fut<'a, Vec<Option<Blob>>> {
        let tables = self.tables();
        answer(Ok(ids.iter().map(|id| tables.blobs.get(id).cloned()).collect()))
    }

    fn chunk(&self, id: ChunkId, bytes: Range<u64>) -> Fut<'_, Vec<u8>> {
        let tables = self.tables();
        let Some(found) = tables.chunks.get(&id) else { return answer(Err(missing("a chunk"))) };
        let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(found.len());
        let (from, to) = (at(bytes.start), at(bytes.end));
        answer(Ok(found[from..to.max(from)].to_vec()))
    }

    fn lineage(&self, from: NodeId, until: LineageEnd) -> Fut<'_, Vec<Node>> {
        answer(self.tables().lineage(from, until))
    }

    fn children<'a>(&'a self, of: &'a [NodeId]) -> Fut<'a, Vec<Edge>> {
        let tables = self.tables();
        let below = |parent: &NodeId| {
            let children = tables.order.iter().filter(|id| tables.nodes[*id].record.parent == Some(*parent));
            children.map(|child| Edge { parent: *parent, child: *child }).collect::<Vec<_>>()
        };
        answer(Ok(of.iter().flat_map(below).collect()))
    }

    fn actions(&self, query: ActionQuery) -> Fut<'_, Vec<LoggedAction>> {
        let tables = self.tables();
        let fits = |logged: &LoggedAction| {
            let (from, to) = (logged.action.from, logged.action.to);
            let sessions = [from, to].map(|node| tables.session_of(node));
            let of_session = |id: &SessionId| sessions.iter().flatten().any(|(session, _)| session == id);
            let of_project = |path: &String| sessions.iter().flatten().any(|(_, cwd)| cwd == path);
            let mut left = false;
            if let Some(head) = query.lineage.filter(|head| !tables.is_on(to, *head)) {
                let before = from.and_then(|from| tables.nodes.get(&from)?.record.parent);
                left = query.left && (tables.is_on(from, head) || tables.is_on(before, head));
                if !left {
                    return None;
                }
            }
            let wanted = (query.kinds.is_empty() || query.kinds.contains(&logged.action.kind))
                && query.before.is_none_or(|before| logged.id < before)
                && query.session.as_ref().is_none_or(of_session)
                && query.project.as_ref().is_none_or(of_project);
            wanted.then(|| LoggedAction { left, ..logged.clone() })
        };
        let found = tables.actions.iter().rev().filter_map(fits);
        answer(Ok(found.take(query.limit.unwrap_or(usize::MAX)).collect()))
    }

    fn lease<'a>(&'a self, name: &'a RefName, owner: &'a Owner, ttl: Duration) -> Fut<'a, Fence> {
        let mut tables = self.tables();
        let fence = match tables.leases.get(name) {
            None => Fence(1),
            Some((_, fence, until)) if *until <= now() => Fence(fence.0 + 1),
            Some((held, fence, _)) if held == owner => *fence,
            Some((held, ..)) => {
                return answer(Err(StoreError::Fenced { name: name.clone(), owner: held.0.clone() }));
            }
        };
        let until = now() + i64::try_from(ttl.as_millis()).unwrap();
        tables.leases.insert(name.clone(), (owner.clone(), fence, until));
        answer(Ok(fence))
    }

    fn pending<'a>(&'a self, session: &'a SessionId) -> Fut<'a, OpenWork> {
        answer(Ok(self.tables().open.get(session).cloned().unwrap_or_default()))
    }

    fn inboxes<'a>(&'a self, beginning: &'a str) -> Fut<'a, Vec<SessionId>> {
        let tables = self.tables();
        let open = tables.open.iter().filter(|(_, work)| !work.inbox.is_empty());
        let mut found: Vec<SessionId> = open.map(|(session, _)| session.clone()).collect();
        found.retain(|session| session.as_str().starts_with(beginning));
        found.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        answer(Ok(found))
    }

    fn reserve(&self, ask: ReserveRequest) -> Fut<'_, Reservation> {
        answer(Ok(self.tables().reserve(ask)))
    }

    fn changed(&self) -> Fut<'_, ()> {
        let mut commits = self.commits.subscribe();
        Box::pin(async move {
            commits.changed().await.unwrap();
            Ok(())
        })
    }
}
