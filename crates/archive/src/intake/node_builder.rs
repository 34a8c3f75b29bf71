//! Builds nodes from items of a file. Of several items with one id, the first is known by it, and the others by `id~2`,
//! `id~3` and so on; an item of an earlier import is found by the digest of its content.

mod resume;

use std::collections::{BTreeMap, HashMap, HashSet};

use quipu_protocol::{Entry, Epoch, NodeId, SessionId, SessionStart, StepInfo, UnixMs};
use quipu_store::RefMove;
use tokio::sync::mpsc;

use super::stored_session::{StoredItem, StoredSession};
use super::{Item, ItemParent, Start};
use crate::batches::{Batch, BatchBuffer, BatchLimit, PartialBatch};
use crate::built_node::{BuiltNode, ContentDigest, NodeParts};
use crate::key::Key;
use crate::lineages::{tip_arrival, tip_departure};
use crate::placer::Placer;
use crate::waiting_list::{ListEntry, WaitingList};
use crate::{ProblemKind, Report};

/// Bytes of items that wait for what they follow, about; beyond it they wait no longer.
const WAITING_BYTES: usize = 64 << 20;
/// Entries of one id among which the one is looked for that another entry meant.
const MOST_TWINS: u64 = 64;

/// Why a reader stops before the end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The store failed, which the other side tells.
    Closed,
    /// The file cannot be read.
    Io(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// A session and its first node.
#[derive(Clone)]
struct Owner {
    start: Start,
    base: Option<NodeId>,
    /// What that hangs on, of another session.
    below: Option<NodeId>,
}

/// Takes items from a reader and builds their nodes.
pub(crate) struct NodeBuilder {
    agent: &'static str,
    pub(crate) report: Report,
    known: StoredSession,
    owners: Vec<Owner>,
    /// Items of this file, by their ids.
    met: HashMap<Key, NodeId>,
    /// Of ids that several items have.
    twins: HashMap<Key, Twins>,
    /// The same by other names for them.
    others: HashMap<Key, NodeId>,
    /// Their nodes.
    nodes: HashSet<NodeId>,
    /// Ends of branches, and the place of their session; also those of earlier imports.
    tips: HashMap<NodeId, SessionId>,
    /// Ends at which refs stand in the store, and whose they are.
    held: HashMap<NodeId, SessionId>,
    /// Nodes that became ends or ceased to be some, since refs were told of last.
    changed_tips: Vec<NodeId>,
    waiting: WaitingList<Item>,
    /// Line, time and node of the last item of the file's own session, at which it can stand.
    last: Option<(u64, UnixMs, NodeId)>,
    /// Line and node of the last item of any.
    end: Option<(u64, NodeId)>,
    batch: BatchBuffer,
    batches: mpsc::Sender<Batch>,
    before: PriorTotals,
    /// Whether something was left out that another import may find whole.
    unfinished: bool,
}

/// Items that have the id of another, and so have numbers, from 2 on.
struct Twins {
    digest: HashMap<ContentDigest, (u64, NodeId)>,
    /// Those of the store that did not come yet.
    left: BTreeMap<u64, NodeId>,
    next: u64,
}

impl Twins {
    /// What the store has.
    fn of(known: &StoredSession, id: &str) -> Self {
        let mut twins = Self { digest: HashMap::new(), left: BTreeMap::new(), next: 2 };
        while let Some(stored) = known.items.get(&numbered(id, twins.next)) {
            twins.digest.entry(stored.digest).or_insert((twins.next, stored.node));
            twins.left.insert(twins.next, stored.node);
            twins.next += 1;
        }
        twins
    }
}

fn numbered(id: &str, number: u64) -> Key {
    Key::of(&format!("{id}~{number}"))
}

/// What other sessions of the same file sent to the store before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PriorTotals {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) batches: u64,
}

impl PriorTotals {
    /// The partial batch that is left at the end of the file.
    pub(super) fn last_batch(self, rest: PartialBatch) -> Batch {
        Batch { commit: rest.into_commit(), bytes: self.bytes, entries: self.entries }
    }
}

/// The result of a file, or of one session of it.
pub(super) struct BuiltSession {
    pub(super) report: Report,
    /// What has gone to the store with it, but for the rest.
    pub(super) before: PriorTotals,
    /// The last of it, which goes with what comes next.
    pub(super) rest: PartialBatch,
    /// The sessions that it holds items of, and those that they go on from.
    pub(super) sessions: Vec<SessionId>,
    pub(super) last: Option<(UnixMs, NodeId)>,
    pub(super) nodes: HashSet<NodeId>,
    /// Ends of branches, and whose they are.
    pub(super) tips: HashMap<NodeId, SessionId>,
    pub(super) unfinished: bool,
}

impl NodeBuilder {
    pub(super) fn new(
        agent: &'static str,
        report: Report,
        known: StoredSession,
        most: BatchLimit,
        before: PriorTotals,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        let mut builder = Self {
            agent,
            report,
            known: StoredSession::default(),
            owners: Vec::new(),
            met: HashMap::new(),
            twins: HashMap::new(),
            others: HashMap::new(),
            nodes: HashSet::new(),
            tips: HashMap::new(),
            held: HashMap::new(),
            changed_tips: Vec::new(),
            waiting: WaitingList::default(),
            last: None,
            end: None,
            batch: BatchBuffer::new(most.after(before.batches)),
            batches,
            before,
            unfinished: false,
        };
        builder.take_up(known);
        builder
    }

    /// With the rest of what came before it.
    pub(super) fn with(mut self, rest: PartialBatch) -> Self {
        self.batch = self.batch.after(rest);
        self
    }

    /// What the store has, before anything comes.
    fn take_up(&mut self, known: StoredSession) {
        self.held = known.tips.iter().map(|(session, node)| (*node, session.clone())).collect();
        // Another session may have begun at an end meanwhile.
        let inner: HashSet<NodeId> = known.bases.values().filter_map(|(_, below)| *below).collect();
        let tips = self.held.iter().filter(|(node, _)| !inner.contains(*node));
        self.tips = tips.map(|(node, session)| (*node, session.clone())).collect();
        self.changed_tips = self.held.keys().filter(|node| !self.tips.contains_key(*node)).copied().collect();
        self.known = known;
    }

    /// Tells of a session; items name it by the number that is returned.
    pub(crate) fn session(&mut self, start: Start) -> usize {
        if let Some(at) = self.owners.iter().position(|owner| owner.start.session == start.session) {
            return at;
        }
        let known = self.known.bases.get(&start.session).copied();
        let (base, below) = known.map_or((None, None), |(base, below)| (Some(base), below));
        self.owners.push(Owner { start, base, below });
        self.owners.len() - 1
    }

    /// Begins a session below this item, or at the beginning, before anything of it comes.
    pub(crate) fn begin(&mut self, owner: usize, below: Option<&str>) {
        if self.owners.get(owner).is_none() {
            return;
        }
        let before = below.and_then(|id| self.find(Key::of(id)));
        let base = self.base(owner, before);
        self.nodes.insert(base.node);
        self.last = Some((0, base.time, base.node));
    }

    /// A session of which nothing came begins below the last item that did, and stands there.
    pub(crate) fn begin_at_end(&mut self, owner: usize) {
        if self.last.is_none() && self.owners.get(owner).is_some() {
            let base = self.base(owner, self.end.map(|(_, node)| node));
            self.nodes.insert(base.node);
            self.last = Some((u64::MAX, base.time, base.node));
        }
    }

    /// The file's own session stands at this item, given with its line and time, whatever came after it; at none where none is left.
    pub(crate) fn stand_at(&mut self, owner: usize, item: Option<(u64, Option<UnixMs>, &str)>) {
        let began = self.began(owner);
        self.last = item.and_then(|(line, time, id)| {
            self.find(Key::of(id)).map(|node| (line, time.unwrap_or(began), node))
        });
    }

    /// When a session began.
    pub(crate) fn began(&self, owner: usize) -> UnixMs {
        self.owners.get(owner).map_or(0, |owner| owner.start.time)
    }

    /// Whether an item came, or is in the store.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.find(Key::of(id)).is_some()
    }

    /// Something is left out until the file is imported again.
    pub(crate) fn unfinished(&mut self, line: u64, detail: &str) {
        self.report.problem(line, ProblemKind::Unfinished, detail);
        self.unfinished = true;
    }

    /// Takes an item.
    pub(crate) fn item(&mut self, item: Item) -> Result<(), Stop> {
        if let ItemParent::Item(before) = &item.follows {
            let key = Key::of(before);
            if before == &item.id || item.also.contains(before) {
                self.report.problem(item.line, ProblemKind::Cycle, before);
                return self.place_with_waiting(Item { follows: ItemParent::Nothing, ..item });
            }
            if self.find(key).is_none() {
                self.waiting.push(key, item);
                if self.waiting.bytes() > WAITING_BYTES {
                    return self.place_unresolved();
                }
                return Ok(());
            }
        }
        self.place_with_waiting(item)
    }

    /// Places an item, and those that wait for it.
    fn place_with_waiting(&mut self, item: Item) -> Result<(), Stop> {
        let ids = item.keys();
        self.place(item, None)?;
        self.send_if_full()?;
        self.place_released(ids)
    }

    fn find(&self, key: Key) -> Option<NodeId> {
        let met = self.met.get(&key).or_else(|| self.others.get(&key)).copied();
        met.or_else(|| self.known.items.get(&key).map(|stored| stored.node))
    }

    fn place_item(&mut self, item: Item) {
        let Item {
            id, also, follows, owner, time, mut entry, first_kept, kept, started, duration_ms, ..
        } = item;
        let (line, is_head) = (item.line, item.is_head);
        let Some(session) = self.owners.get(owner).map(|owner| owner.start.session.clone()) else { return };
        let before = match &follows {
            ItemParent::Nothing => None,
            ItemParent::Item(before) => self.find(Key::of(before)),
        };
        let base = self.base(owner, before);
        // What follows the item from which its session was forked follows the first node of the fork.
        let parent = before.filter(|before| Some(*before) != base.below).unwrap_or(base.node);
        if time.is_none() {
            self.report.problem(line, ProblemKind::NoTime, "");
        }
        let time = time.unwrap_or(base.time);
        let mut step = StepInfo { started, duration_ms, ..StepInfo::default() };
        step.extra.extend(kept.map(|kept| (self.agent.to_owned(), kept)));
        let key = Key::of(&id);
        let stored = self.known.items.get(&key).copied();
        let parts = match &first_kept {
            None => NodeParts::new(self.agent, &entry, &step),
            Some(kept) => self.parts_kept_from(kept, &id, &mut entry, &step),
        };
        let digest = parts.digest();
        self.report.read += 1;
        let mut own = key;
        let node = match stored {
            None => self.grow(parts, digest, parent, time, id, &session),
            Some(stored) if stored.digest == digest => {
                self.report.present += 1;
                stored.node
            }
            // Another item of the id, or the same with another content.
            Some(stored) => {
                let twins = self.twins.entry(key).or_insert_with(|| Twins::of(&self.known, &id));
                let is_second = self.met.contains_key(&key);
                if is_second {
                    self.report.problem(line, ProblemKind::DuplicateId, &id);
                }
                if let Some((number, node)) = twins.digest.get(&digest).copied() {
                    twins.left.remove(&number);
                    self.report.present += 1;
                    own = numbered(&id, number);
                    node
                } else if !is_second {
                    self.report.problem(line, ProblemKind::Changed, &id);
                    stored.node
                } else if let Some((number, node)) = twins.left.pop_first() {
                    let own_id = format!("{id}~{number}");
                    self.report.problem(line, ProblemKind::Changed, &own_id);
                    own = Key::of(&own_id);
                    node
                } else {
                    while self.known.items.contains_key(&numbered(&id, twins.next)) {
                        twins.next += 1;
                    }
                    let number = twins.next;
                    twins.next += 1;
                    own = numbered(&id, number);
                    let node = self.grow(parts, digest, parent, time, format!("{id}~{number}"), &session);
                    if let Some(twins) = self.twins.get_mut(&key) {
                        twins.digest.insert(digest, (number, node));
                    }
                    node
                }
            }
        };
        for name in [own, key] {
            self.met.insert(name, node);
        }
        for name in &also {
            self.others.insert(Key::of(name), node);
        }
        self.nodes.insert(node);
        // Items that waited come late.
        if is_head && self.end.is_none_or(|(before, _)| before <= line) {
            self.end = Some((line, node));
        }
        let is_own = session == self.report.session;
        if is_head && is_own && self.last.is_none_or(|(before, _, _)| before <= line) {
            self.last = Some((line, time, node));
        }
    }

    /// What an entry says that may keep what was said from another one on: as it stands in the store, if it does. When
    /// it was imported, what it keeps may not have been there yet, or have been there already, or it was another one of
    /// that id.
    fn parts_kept_from(&mut self, kept: &str, id: &str, entry: &mut Entry, step: &StepInfo) -> NodeParts {
        let agent = self.agent;
        let mut parts = |kept: Option<NodeId>| {
            if let Entry::Compaction(compaction) = entry {
                compaction.first_kept = kept;
            }
            NodeParts::new(agent, entry, step)
        };
        let (kept_key, key) = (Key::of(kept), Key::of(id));
        let first = parts(self.met.get(&kept_key).copied());
        let Some(stored) = self.known.items.get(&key) else { return first };
        let own = self.twins.entry(key).or_insert_with(|| Twins::of(&self.known, id));
        let is_there = |digest: ContentDigest| stored.digest == digest || own.digest.contains_key(&digest);
        if is_there(first.digest()) {
            return first;
        }
        let other = self.others.get(&kept_key).copied();
        let numbers = (2..MOST_TWINS).map(|number| numbered(kept, number));
        let known = std::iter::once(kept_key).chain(numbers).map_while(|key| self.known.items.get(&key));
        let nodes = other.into_iter().chain(known.map(|stored| stored.node));
        let mut others = std::iter::once(None).chain(nodes.map(Some)).map(parts);
        others.find(|parts| is_there(parts.digest())).unwrap_or(first)
    }

    /// A node that the store does not have.
    fn grow(
        &mut self,
        parts: NodeParts,
        digest: ContentDigest,
        parent: NodeId,
        time: UnixMs,
        id: String,
        session: &SessionId,
    ) -> NodeId {
        let key = Key::of(&id);
        let built = parts.build(Some(parent), time, Some(id));
        let node = built.node.id;
        self.known.items.insert(key, StoredItem { node, digest });
        self.add(built, session);
        self.no_end(parent);
        self.report.added += 1;
        node
    }

    fn add(&mut self, built: BuiltNode, session: &SessionId) {
        self.an_end(built.node.id, session);
        self.batch.add(built);
    }

    fn an_end(&mut self, node: NodeId, session: &SessionId) {
        self.tips.insert(node, session.clone());
        self.changed_tips.push(node);
    }

    fn no_end(&mut self, node: NodeId) {
        if self.tips.remove(&node).is_some() {
            self.changed_tips.push(node);
        }
    }

    /// How the refs of ends have to change. They move with the nodes, so that an import that is cut short goes on
    /// where it was.
    fn moves(&mut self) -> Vec<RefMove> {
        let mut moves = Vec::new();
        for node in std::mem::take(&mut self.changed_tips) {
            match (self.tips.get(&node), self.held.get(&node)) {
                (Some(session), None) => {
                    moves.push(tip_arrival(self.agent, session, node));
                    self.held.insert(node, session.clone());
                }
                (None, Some(session)) => {
                    moves.push(tip_departure(self.agent, session, node));
                    self.held.remove(&node);
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        moves
    }

    /// The first node of a session, made below `before` when there is none yet.
    fn base(&mut self, owner: usize, before: Option<NodeId>) -> Base {
        let start = &self.owners[owner].start;
        let time = start.time;
        if let Some(node) = self.owners[owner].base {
            return Base { node, time, below: self.owners[owner].below };
        }
        let entry = Entry::Session(SessionStart {
            session: start.session.clone(),
            cwd: start.cwd.clone(),
            agent: self.agent.into(),
            parent_session: start.parent.clone(),
            epoch: Epoch::default(),
        });
        let mut step = StepInfo::default();
        step.extra.extend(start.kept.clone().map(|kept| (self.agent.to_owned(), kept)));
        let session = start.session.clone();
        // Without an id of its own: that would be the session's, by which people mean its last entry.
        let built = NodeParts::new(self.agent, &entry, &step).build(before, time, None);
        let node = built.node.id;
        self.add(built, &session);
        if let Some(before) = before {
            self.no_end(before);
        }
        (self.owners[owner].base, self.owners[owner].below) = (Some(node), before);
        Base { node, time, below: before }
    }

    fn send(&mut self) -> Result<(), Stop> {
        let moves = self.moves();
        self.batch.move_refs(moves);
        let commit = self.batch.take();
        self.before.batches += 1;
        let PriorTotals { bytes, entries, .. } = self.before;
        let batch = Batch { commit, bytes: bytes + self.report.bytes, entries: entries + self.report.read };
        self.batches.blocking_send(batch).map_err(|_| Stop::Closed)
    }

    /// Nothing more comes that anything waits for.
    pub(crate) fn settle(&mut self) -> Result<(), Stop> {
        self.place_unresolved()
    }

    /// The end of a session, after which others come.
    pub(super) fn end(mut self) -> Result<BuiltSession, Stop> {
        self.place_unresolved()?;
        let moves = self.moves();
        self.batch.move_refs(moves);
        Ok(self.placed().0)
    }

    /// What did not go to the store yet, where it cannot go on.
    pub(super) fn into_rest(self) -> PartialBatch {
        self.batch.into_partial()
    }

    /// The end of the file; with what the store has then, unless several items had one id: what each of them is, is made
    /// out with all of them.
    pub(super) fn end_with_known(mut self) -> Result<(BuiltSession, Option<StoredSession>), Stop> {
        self.place_unresolved()?;
        self.send()?;
        Ok(self.placed())
    }

    fn placed(self) -> (BuiltSession, Option<StoredSession>) {
        let Self {
            mut report,
            tips,
            last,
            nodes,
            unfinished,
            mut before,
            owners,
            mut known,
            twins,
            batch,
            ..
        } = self;
        let rest = batch.into_partial();
        let is_plain = twins.values().all(|twins| twins.digest.is_empty());
        known.tips = tips.iter().map(|(node, session)| (session.clone(), *node)).collect();
        report.branches = tips.values().filter(|session| **session == report.session).count() as u64;
        let last = last.map(|(_, time, node)| (time, node));
        (before.bytes, before.entries) = (before.bytes + report.bytes, before.entries + report.read);
        let sessions = owners.into_iter().map(|owner| owner.start);
        let sessions =
            sessions.flat_map(|start| std::iter::once(start.session).chain(start.parent)).collect();
        (
            BuiltSession { report, before, rest, sessions, last, nodes, tips, unfinished },
            is_plain.then_some(known),
        )
    }
}

impl Placer for NodeBuilder {
    type Entry = Item;
    type Error = Stop;

    fn waiting(&mut self) -> &mut WaitingList<Item> {
        &mut self.waiting
    }

    /// An item whose parent does not come begins a branch; a cycle is cut at its first item.
    fn place(&mut self, mut item: Item, unresolved: Option<ProblemKind>) -> Result<(), Stop> {
        if let Some(kind) = unresolved {
            let detail = match std::mem::replace(&mut item.follows, ItemParent::Nothing) {
                ItemParent::Item(before) => before,
                ItemParent::Nothing => String::new(),
            };
            self.report.problem(item.line, kind, &detail);
        }
        self.place_item(item);
        Ok(())
    }

    fn send_if_full(&mut self) -> Result<(), Stop> {
        if self.batch.is_full() { self.send() } else { Ok(()) }
    }
}

struct Base {
    node: NodeId,
    time: UnixMs,
    below: Option<NodeId>,
}

impl ListEntry for Item {
    fn parent(&self) -> Option<Key> {
        match &self.follows {
            ItemParent::Item(before) => Some(Key::of(before)),
            ItemParent::Nothing => None,
        }
    }

    fn keys(&self) -> Vec<Key> {
        std::iter::once(&self.id).chain(&self.also).map(|id| Key::of(id)).collect()
    }

    fn size(&self) -> usize {
        let entry = match &self.entry {
            Entry::Meta(json) => json.get().len(),
            other => format!("{other:?}").len(),
        };
        entry + self.kept.as_ref().map_or(0, |kept| kept.get().len()) + 256
    }
}
