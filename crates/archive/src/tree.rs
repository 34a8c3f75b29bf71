//! Where each entry of a file hangs, by the ids that its writer gave.

use std::collections::{BTreeSet, HashMap, HashSet};

use quipu_dag::sha256;
use quipu_protocol::NodeId;

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

/// What is known of an id.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The last entry of this id.
    node: NodeId,
    /// Whether it was in the file, and not only in the store.
    met: bool,
}

/// The entries of a session that were placed, those of earlier imports included.
pub(crate) struct Tree {
    slots: HashMap<Key, Slot>,
    /// Entries of the store that share their id with another one of the store.
    twins: HashMap<Key, Twins>,
    /// Entries of the store without an id.
    nameless: HashSet<NodeId>,
    tips: HashSet<NodeId>,
    root: NodeId,
}

/// Entries of one id.
struct Twins {
    /// Those that the file did not have yet.
    left: BTreeSet<NodeId>,
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

impl Tree {
    pub(crate) fn new(root: NodeId) -> Self {
        Self {
            slots: HashMap::new(),
            twins: HashMap::new(),
            nameless: HashSet::new(),
            tips: HashSet::new(),
            root,
        }
    }

    /// Takes in a node of an earlier import.
    pub(crate) fn stored(&mut self, node: NodeId, id: Option<&str>, is_tip: bool) {
        if is_tip {
            self.tips.insert(node);
        }
        let Some(id) = id else {
            self.nameless.insert(node);
            return;
        };
        let key = Key::of(id);
        if let Some(other) = self.slots.insert(key, Slot { node, met: false }) {
            let twins = self
                .twins
                .entry(key)
                .or_insert_with(|| Twins { left: BTreeSet::from([other.node]), changed: 0 });
            twins.left.insert(node);
        }
    }

    /// The last entry of an id.
    pub(crate) fn find(&self, key: Key) -> Option<NodeId> {
        self.slots.get(&key).map(|slot| slot.node)
    }

    /// The last entry of an id, if the file had it before.
    pub(crate) fn find_met(&self, key: Key) -> Option<NodeId> {
        self.slots.get(&key).filter(|slot| slot.met).map(|slot| slot.node)
    }

    /// Whether the store has this very entry.
    pub(crate) fn has(&self, key: Key, node: NodeId) -> bool {
        match self.twins.get(&key) {
            Some(twins) => twins.left.contains(&node),
            None => self.slots.get(&key).is_some_and(|slot| slot.node == node),
        }
    }

    /// Whether the store has an entry of this id that the file did not have yet.
    pub(crate) fn is_stored(&self, key: Key) -> bool {
        match self.twins.get(&key) {
            Some(twins) => !twins.left.is_empty(),
            None => self.slots.get(&key).is_some_and(|slot| !slot.met),
        }
    }

    /// Adds the entry `key` below `parent`, which would be `node`.
    pub(crate) fn place(&mut self, key: Option<Key>, node: NodeId, parent: NodeId) -> Placed {
        let Some(key) = key else {
            if self.nameless.contains(&node) {
                return Placed::Present;
            }
            self.grow(node, parent);
            return Placed::New;
        };
        let placed = match (self.twins.get_mut(&key), self.slots.get(&key)) {
            (Some(twins), _) => {
                if twins.left.remove(&node) {
                    Placed::Present
                } else if let Some(first) = twins.left.first().filter(|_| twins.left.len() > twins.changed) {
                    twins.changed += 1;
                    Placed::Changed(*first)
                } else {
                    Placed::New
                }
            }
            (None, Some(slot)) if slot.node == node => Placed::Present,
            (None, Some(slot)) if !slot.met => Placed::Changed(slot.node),
            // New, or a second entry of an id that comes for the first time.
            (None, _) => Placed::New,
        };
        let now = match placed {
            Placed::Changed(kept) => kept,
            Placed::Present | Placed::New => node,
        };
        self.slots.insert(key, Slot { node: now, met: true });
        if placed == Placed::New {
            self.grow(node, parent);
        }
        placed
    }

    fn grow(&mut self, node: NodeId, parent: NodeId) {
        self.tips.remove(&parent);
        self.tips.insert(node);
    }

    /// The ends of all branches; the root itself when it is all there is.
    pub(crate) fn into_tips(mut self) -> HashSet<NodeId> {
        if self.tips.is_empty() {
            self.tips.insert(self.root);
        }
        self.tips
    }
}
