//! Where each entry of a file hangs, by the ids that its writer gave.

use std::collections::{BTreeMap, HashMap, HashSet};

use quipu_dag::sha256;
use quipu_protocol::NodeId;

use crate::slots::Slots;

/// An id of an entry, in 16 bytes so that a million of them fit into memory: itself when it is short, else a part
/// of its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 16]);

impl Key {
    pub(crate) fn of(id: &str) -> Self {
        let bytes = id.as_bytes();
        let mut key = [0; 16];
        // The first byte is the length, which no hash begins with.
        match u8::try_from(bytes.len()) {
            Ok(length @ 0..16) => {
                key[0] = length;
                key[1..=bytes.len()].copy_from_slice(bytes);
            }
            _ => {
                key.copy_from_slice(&sha256(bytes)[..16]);
                key[0] = 255;
            }
        }
        Self(key)
    }
}

/// An entry, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(u32);

#[cfg(test)]
impl At {
    pub(crate) fn tried(number: u32) -> Self {
        Self(number)
    }
}

/// The session itself, which no entry is.
pub(crate) const ROOT: At = At(0);

/// What is known of an entry: small, since there may be millions.
#[derive(Debug, Clone, Copy)]
struct Known {
    node: NodeId,
    /// Of the marks below.
    marks: u8,
}

/// It was in the file, and not only in the store.
const MET: u8 = 1;
/// Nothing follows it.
const TIP: u8 = 2;
/// A ref of the store says so.
const HELD: u8 = 4;

/// The entries of a session that were placed, those of earlier imports included.
pub(crate) struct Tree {
    /// The session first.
    entries: Vec<Known>,
    /// The last entry of each id.
    slots: Slots,
    /// Entries of the store that share their id with another one of the store.
    twins: HashMap<Key, Twins>,
    /// Entries of the store without an id.
    nameless: HashMap<NodeId, At>,
    /// Nodes of our own that are written to the file, by the ids of their lines, and those that nothing follows.
    own: HashMap<Key, At>,
    own_ends: Vec<NodeId>,
    /// What nodes of our own follow.
    followed: HashSet<NodeId>,
    tips: u64,
    /// Those that became ends, or ceased to be some that refs stand at, since refs were told of last.
    turned: Vec<At>,
    /// Nodes that a ref calls ends, and that are none.
    left: Vec<NodeId>,
}

/// Entries of one id.
struct Twins {
    /// Those that the file did not have yet.
    left: BTreeMap<NodeId, At>,
    /// How many of those the file has with another content.
    changed: usize,
}

/// What an entry is to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It has it.
    Present,
    /// It has another content under this id, as this node.
    Changed(NodeId),
    /// It has not.
    New,
}

/// How the refs of ends have to change.
pub(crate) struct Turned {
    pub(crate) arrive: Vec<NodeId>,
    pub(crate) leave: Vec<NodeId>,
}

impl Tree {
    pub(crate) fn new(root: NodeId) -> Self {
        Self {
            entries: vec![Known { node: root, marks: 0 }],
            slots: Slots::default(),
            twins: HashMap::new(),
            nameless: HashMap::new(),
            own: HashMap::new(),
            own_ends: Vec::new(),
            followed: HashSet::new(),
            tips: 0,
            turned: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Takes in a node of an earlier import.
    pub(crate) fn stored(&mut self, node: NodeId, id: Option<&str>, is_tip: bool) {
        let at = self.push(node, if is_tip { TIP | HELD } else { 0 });
        self.tips += u64::from(is_tip);
        let Some(id) = id else {
            self.nameless.insert(node, at);
            return;
        };
        let key = Key::of(id);
        if let Some(other) = self.slots.insert(key, at) {
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
        let at = match self.known(ROOT) {
            Some(root) if root.node == node => ROOT,
            _ => self.push(node, if is_tip { TIP | HELD } else { 0 }),
        };
        self.tips += u64::from(is_tip);
        for id in ids {
            let key = Key::of(id);
            self.own.insert(key, at);
            self.slots.insert_new(key, at);
        }
        self.followed.extend(parent);
        self.own_ends.extend(Some(node).filter(|_| is_end && !is_tip));
    }

    /// The node of our own that a line of this id is; it is in the file now.
    pub(crate) fn meet_own(&mut self, key: Key) -> Option<NodeId> {
        let at = *self.own.get(&key)?;
        if let Some(marks) = self.marks(at) {
            *marks |= MET;
        }
        self.slots.insert(key, at);
        Some(self.node(at))
    }

    /// Whether a node stands in the file.
    pub(crate) fn stands(&self, id: &str, node: NodeId) -> bool {
        self.find_met(Key::of(id)).is_some_and(|at| self.node(at) == node)
    }

    /// Whether the file has an entry of this id.
    pub(crate) fn has_met(&self, id: &str) -> bool {
        self.find_met(Key::of(id)).is_some()
    }

    /// Takes in refs of ends that are none: that of the session, when it has no entry, stands where it should.
    pub(crate) fn stored_inner(&mut self, refs: Vec<NodeId>) {
        self.left = refs;
        if let ([root], [left]) = (&mut self.entries[..], &self.left[..])
            && root.node == *left
        {
            root.marks |= TIP | HELD;
            self.tips = 1;
            self.left.clear();
        }
    }

    fn push(&mut self, node: NodeId, marks: u8) -> At {
        // More lines than that are 40 GB; the last number is then shared, and what follows such an entry hangs elsewhere.
        let at = At(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(Known { node, marks });
        at
    }

    fn known(&self, at: At) -> Option<&Known> {
        self.entries.get(usize::try_from(at.0).ok()?)
    }

    fn marks(&mut self, at: At) -> Option<&mut u8> {
        self.entries.get_mut(usize::try_from(at.0).ok()?).map(|known| &mut known.marks)
    }

    pub(crate) fn node(&self, at: At) -> NodeId {
        self.known(at).map_or(NodeId([0; 32]), |known| known.node)
    }

    /// The last entry of an id.
    pub(crate) fn find(&self, key: Key) -> Option<At> {
        self.slots.get(key)
    }

    /// The entry of an id, if the store has no second one of it.
    pub(crate) fn find_only(&self, key: Key) -> Option<At> {
        self.find(key).filter(|_| !self.twins.contains_key(&key))
    }

    /// The last entry of an id, if the file had it before.
    pub(crate) fn find_met(&self, key: Key) -> Option<At> {
        self.find(key).filter(|at| self.is_met(*at))
    }

    fn is_met(&self, at: At) -> bool {
        self.known(at).is_some_and(|known| known.marks & MET != 0)
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
    pub(crate) fn place(&mut self, key: Option<Key>, node: NodeId, parent: At) -> Placed {
        let Some(key) = key else {
            if self.nameless.contains_key(&node) {
                return Placed::Present;
            }
            self.grow(node, parent);
            return Placed::New;
        };
        let (placed, at) = match self.twins.get_mut(&key) {
            Some(twins) => {
                if let Some(at) = twins.left.remove(&node) {
                    (Placed::Present, Some(at))
                } else if let Some((first, at)) =
                    twins.left.first_key_value().filter(|_| twins.left.len() > twins.changed)
                {
                    twins.changed += 1;
                    (Placed::Changed(*first), Some(*at))
                } else {
                    (Placed::New, None)
                }
            }
            None => match self.find(key) {
                Some(at) if self.node(at) == node => (Placed::Present, Some(at)),
                Some(at) if !self.is_met(at) => (Placed::Changed(self.node(at)), Some(at)),
                // New, or a second entry of an id that comes for the first time.
                Some(_) | None => (Placed::New, None),
            },
        };
        let at = at.unwrap_or_else(|| self.grow(node, parent));
        if let Some(marks) = self.marks(at) {
            *marks |= MET;
        }
        self.slots.insert(key, at);
        placed
    }

    fn grow(&mut self, node: NodeId, parent: At) -> At {
        if let Some(marks) = self.marks(parent).filter(|marks| **marks & TIP != 0) {
            *marks &= !TIP;
            if *marks & HELD != 0 {
                self.turned.push(parent);
            }
            self.tips -= 1;
        }
        if !self.own_ends.is_empty() {
            self.followed.insert(self.node(parent));
        }
        let at = self.push(node, TIP);
        self.turned.push(at);
        self.tips += 1;
        at
    }

    /// Ends of branches; the session itself when it is all there is.
    pub(crate) fn tips(&self) -> u64 {
        if self.own.is_empty() {
            return self.tips.max(1);
        }
        let tips = self.entries.iter().filter(|known| known.marks & TIP != 0).map(|known| &known.node);
        let ends = tips.chain(&self.own_ends).filter(|end| !self.followed.contains(end));
        ends.count().max(1) as u64
    }

    /// At the end: a session of nothing else is its own end.
    pub(crate) fn close(&mut self) {
        if self.tips == 0 && self.own.is_empty() {
            self.tips = 1;
            if let Some(marks) = self.marks(ROOT) {
                *marks |= TIP;
            }
            self.turned.push(ROOT);
        }
    }

    /// How refs have to change for what became of the ends since this was asked last.
    pub(crate) fn turned(&mut self) -> Turned {
        let mut refs = Turned { arrive: Vec::new(), leave: std::mem::take(&mut self.left) };
        for at in std::mem::take(&mut self.turned) {
            let node = self.node(at);
            let Some(marks) = self.marks(at) else { continue };
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
