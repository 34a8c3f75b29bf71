//! Where each entry of a file hangs, by the ids that its writer gave.

use std::collections::{BTreeMap, HashMap, HashSet};

use std::io;
use std::path::PathBuf;

use quipu_protocol::NodeId;

use crate::key::{EntryIndex, Key};
use crate::ledger::{Ledger, Row};
use crate::slots::{Slots, place};

/// The session itself, which no entry is.
pub(crate) const ROOT: EntryIndex = EntryIndex(0);

/// It was in the file, and not only in the store.
const MET: u8 = 1;
/// Nothing follows it.
const TIP: u8 = 2;
/// A ref of the store says so.
const HELD: u8 = 4;

/// The entries of a session that were placed, those of earlier imports included.
pub(crate) struct Tree {
    /// The session first.
    entries: Ledger,
    /// What is known of each, of the marks above.
    marks: Vec<u8>,
    /// The last entry of each id, but for those of `own`.
    slots: Slots,
    /// Entries of the store that share their id with another one of the store.
    twins: HashMap<Key, Twins>,
    /// Entries of the store without an id.
    nameless: HashMap<NodeId, EntryIndex>,
    /// Those of the store at which a ref stands, while the store's are taken in.
    held: HashMap<NodeId, EntryIndex>,
    /// Nodes of our own that are written to the file, by the ids of their lines, and those that nothing follows.
    own: HashMap<Key, EntryIndex>,
    own_ends: Vec<NodeId>,
    /// What nodes of our own follow.
    followed: HashSet<NodeId>,
    tips: u64,
    /// Those that became ends, or ceased to be some that refs stand at, since refs were told of last.
    turned: Vec<EntryIndex>,
    /// Nodes that a ref calls ends, and that are none.
    left: Vec<NodeId>,
}

/// Entries of one id.
struct Twins {
    /// Those that the file did not have yet.
    left: BTreeMap<NodeId, EntryIndex>,
    /// How many of those the file has with another content.
    changed: usize,
}

/// How an entry compares with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The store has it.
    Present,
    /// The store has this node with another content under the id.
    Changed(NodeId),
    /// The store does not have it.
    New,
}

/// Changes to the refs of branch tips.
pub(crate) struct TipChanges {
    pub(crate) arrive: Vec<NodeId>,
    pub(crate) leave: Vec<NodeId>,
}

impl Tree {
    /// `dir` is where a file may be that vanishes with the process.
    pub(crate) fn new(root: NodeId, dir: Option<PathBuf>) -> Self {
        let mut tree = Self {
            entries: Ledger::new(dir),
            marks: Vec::new(),
            slots: Slots::default(),
            twins: HashMap::new(),
            nameless: HashMap::new(),
            held: HashMap::new(),
            own: HashMap::new(),
            own_ends: Vec::new(),
            followed: HashSet::new(),
            tips: 0,
            turned: Vec::new(),
            left: Vec::new(),
        };
        tree.push(root, None, 0);
        tree
    }

    /// # Errors
    /// What is known of the entries cannot be read any more: nothing that was placed since holds.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.entries.check()
    }

    /// Takes in a node of an earlier import. Parents come before what follows them.
    pub(crate) fn stored(&mut self, node: NodeId, parent: Option<NodeId>, id: Option<&str>, is_tip: bool) {
        let key = id.map(Key::of);
        let at = self.push(node, key, if is_tip { TIP | HELD } else { 0 });
        if is_tip {
            self.tips += 1;
            self.held.insert(node, at);
        }
        // Its ref says that nothing follows it.
        if let Some(parent) = parent
            && let Some(before) = self.held.remove(&parent)
        {
            self.tips -= 1;
            self.left.push(parent);
            if let Some(marks) = self.marks_of(before) {
                *marks &= !(TIP | HELD);
            }
        }
        let Some(key) = key else {
            self.nameless.insert(node, at);
            return;
        };
        if let Some(other) = self.slots.insert(key, at, &self.entries) {
            let other = (self.node(other), other);
            let twins =
                self.twins.entry(key).or_insert_with(|| Twins { left: BTreeMap::from([other]), changed: 0 });
            twins.left.insert(node, at);
        }
    }

    /// Takes in a node of our own, whose lines have these ids, or one that another program wrote between those. `is_tip`
    /// when a ref says that nothing follows it, `is_end` when it stands there without one.
    pub(crate) fn ours(
        &mut self,
        node: NodeId,
        parent: Option<NodeId>,
        ids: &[String],
        is_tip: bool,
        is_end: bool,
    ) {
        let at = match self.entries.get(place(ROOT)) {
            Some(root) if root.node == node => ROOT,
            _ => self.push(node, None, if is_tip { TIP | HELD } else { 0 }),
        };
        self.tips += u64::from(is_tip);
        self.own.extend(ids.iter().map(|id| (Key::of(id), at)));
        self.followed.extend(parent);
        self.own_ends.extend(Some(node).filter(|_| is_end && !is_tip));
    }

    /// The node of our own that a line of this id is; it is in the file now.
    pub(crate) fn meet_own(&mut self, key: Key) -> Option<NodeId> {
        let at = *self.own.get(&key)?;
        if let Some(marks) = self.marks_of(at) {
            *marks |= MET;
        }
        Some(self.node(at))
    }

    /// Whether something follows this node of the session; `id` is its own.
    pub(crate) fn is_followed(&self, id: Option<&str>, node: NodeId) -> bool {
        let at = match id {
            Some(id) => self.find(Key::of(id)),
            None => self.nameless.get(&node).copied(),
        };
        at.is_some_and(|at| {
            self.node(at) == node && self.marks.get(place(at)).is_some_and(|marks| marks & TIP == 0)
        })
    }

    /// The nodes at which refs stand.
    pub(crate) fn ends(&self) -> HashSet<NodeId> {
        let held = (0..).zip(&self.marks).filter(|(_, marks)| *marks & HELD != 0);
        held.map(|(at, _)| self.node(EntryIndex(at))).collect()
    }

    /// Whether a node stands in the file.
    pub(crate) fn stands(&self, id: &str, node: NodeId) -> bool {
        self.find_met(Key::of(id)).is_some_and(|at| self.node(at) == node)
    }

    /// Whether the file has an entry of this id.
    pub(crate) fn has_met(&self, id: &str) -> bool {
        self.find_met(Key::of(id)).is_some()
    }

    /// Takes in refs of ends that are none: that of the session, when it has no entry, stands where it should. Nothing more
    /// of the store comes.
    pub(crate) fn stored_inner(&mut self, refs: Vec<NodeId>) {
        self.held = HashMap::new();
        self.left.extend(refs);
        if let ([marks], [left]) = (&mut self.marks[..], &self.left[..])
            && self.entries.get(place(ROOT)).is_some_and(|root| root.node == *left)
        {
            *marks |= TIP | HELD;
            self.tips = 1;
            self.left.clear();
        }
    }

    /// Whether the store has so many entries and each under an id of its own, and nothing of ours: where a file has so many,
    /// it has these.
    pub(crate) fn is_plain(&self, count: u64) -> bool {
        self.marks.len() as u64 == count.saturating_add(1)
            && self.twins.is_empty()
            && self.nameless.is_empty()
            && self.own.is_empty()
            && self.left.is_empty()
    }

    /// All that the store has stands in the file, before what is read of it.
    pub(crate) fn meet_all(&mut self) {
        for marks in self.marks.iter_mut().skip(1) {
            *marks |= MET;
        }
    }

    /// Entries of the store that the file did not have.
    pub(crate) fn unmet(&self) -> u64 {
        self.marks.iter().skip(1).filter(|marks| **marks & MET == 0).count() as u64
    }

    fn push(&mut self, node: NodeId, key: Option<Key>, marks: u8) -> EntryIndex {
        // More lines than that are 40 GB; the last number is then shared, and what follows such an entry hangs elsewhere.
        let at = EntryIndex(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(Row { key: key.unwrap_or_else(|| Key::of("")), node });
        self.marks.push(marks);
        at
    }

    fn marks_of(&mut self, at: EntryIndex) -> Option<&mut u8> {
        self.marks.get_mut(place(at))
    }

    pub(crate) fn node(&self, at: EntryIndex) -> NodeId {
        self.entries.get(place(at)).map_or(NodeId([0; 32]), |row| row.node)
    }

    /// The last entry of an id.
    pub(crate) fn find(&self, key: Key) -> Option<EntryIndex> {
        // A line of ours is ours from where it stands on.
        let own = self.own.get(&key).copied();
        own.filter(|at| self.is_met(*at)).or_else(|| self.slots.get(key, &self.entries)).or(own)
    }

    /// The entry of an id, if the store has no second one of it.
    pub(crate) fn find_only(&self, key: Key) -> Option<EntryIndex> {
        let is_twin = self.twins.contains_key(&key)
            || (self.own.contains_key(&key) && self.slots.get(key, &self.entries).is_some());
        self.find(key).filter(|_| !is_twin)
    }

    /// The last entry of an id, if the file had it before.
    pub(crate) fn find_met(&self, key: Key) -> Option<EntryIndex> {
        self.find(key).filter(|at| self.is_met(*at))
    }

    fn is_met(&self, at: EntryIndex) -> bool {
        self.marks.get(place(at)).is_some_and(|marks| marks & MET != 0)
    }

    /// Whether the store has this very entry; `None` is the key of those without an id.
    pub(crate) fn has(&self, key: Option<Key>, node: NodeId) -> bool {
        let Some(key) = key else { return self.nameless.contains_key(&node) };
        match self.twins.get(&key) {
            Some(twins) => twins.left.contains_key(&node),
            None => self.find(key).is_some_and(|at| self.node(at) == node),
        }
    }

    /// Whether the store has an entry of this id that the file did not have yet.
    pub(crate) fn may_have(&self, key: Option<Key>) -> bool {
        let Some(key) = key else { return !self.nameless.is_empty() };
        match self.twins.get(&key) {
            Some(twins) => !twins.left.is_empty(),
            None => self.find(key).is_some_and(|at| !self.is_met(at)),
        }
    }

    /// Adds the entry `key` below `parent`, which would be `node`.
    pub(crate) fn place(&mut self, key: Option<Key>, node: NodeId, parent: EntryIndex) -> Placement {
        let Some(key) = key else {
            if self.nameless.contains_key(&node) {
                return Placement::Present;
            }
            self.grow(node, None, parent);
            return Placement::New;
        };
        let (placed, at) = match self.twins.get_mut(&key) {
            Some(twins) => {
                if let Some(at) = twins.left.remove(&node) {
                    (Placement::Present, Some(at))
                } else if let Some((first, at)) =
                    twins.left.first_key_value().filter(|_| twins.left.len() > twins.changed)
                {
                    twins.changed += 1;
                    (Placement::Changed(*first), Some(*at))
                } else {
                    (Placement::New, None)
                }
            }
            None => match self.find(key) {
                Some(at) if self.node(at) == node => (Placement::Present, Some(at)),
                Some(at) if !self.is_met(at) => (Placement::Changed(self.node(at)), Some(at)),
                // New, or a second entry of an id that comes for the first time.
                Some(_) | None => (Placement::New, None),
            },
        };
        let at = at.unwrap_or_else(|| self.grow(node, Some(key), parent));
        if let Some(marks) = self.marks_of(at) {
            *marks |= MET;
        }
        self.slots.insert(key, at, &self.entries);
        placed
    }

    fn grow(&mut self, node: NodeId, key: Option<Key>, parent: EntryIndex) -> EntryIndex {
        if let Some(marks) = self.marks_of(parent).filter(|marks| **marks & TIP != 0) {
            *marks &= !TIP;
            if *marks & HELD != 0 {
                self.turned.push(parent);
            }
            self.tips -= 1;
        }
        if !self.own_ends.is_empty() {
            self.followed.insert(self.node(parent));
        }
        let at = self.push(node, key, TIP);
        self.turned.push(at);
        self.tips += 1;
        at
    }

    /// Ends of branches; the session itself when it is all there is.
    pub(crate) fn tips(&self) -> u64 {
        if self.own.is_empty() {
            return self.tips.max(1);
        }
        let tips = (0..).zip(&self.marks).filter(|(_, marks)| *marks & TIP != 0);
        let tips = tips.map(|(at, _)| self.node(EntryIndex(at)));
        let ends = tips.chain(self.own_ends.iter().copied()).filter(|end| !self.followed.contains(end));
        ends.count().max(1) as u64
    }

    /// At the end: a session of nothing else is its own end.
    pub(crate) fn close(&mut self) {
        if self.tips == 0 && self.own.is_empty() {
            self.tips = 1;
            if let Some(marks) = self.marks_of(ROOT) {
                *marks |= TIP;
            }
            self.turned.push(ROOT);
        }
    }

    /// How refs have to change for what became of the ends since this was asked last.
    pub(crate) fn turned(&mut self) -> TipChanges {
        let mut refs = TipChanges { arrive: Vec::new(), leave: std::mem::take(&mut self.left) };
        for at in std::mem::take(&mut self.turned) {
            let node = self.node(at);
            let Some(marks) = self.marks_of(at) else { continue };
            match (*marks & TIP != 0, *marks & HELD != 0) {
                (true, false) => refs.arrive.push(node),
                (false, true) => refs.leave.push(node),
                (true, true) | (false, false) => continue,
            }
            *marks ^= HELD;
        }
        refs
    }
}
