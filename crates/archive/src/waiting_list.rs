//! Entries that come before the entry they follow.

use std::collections::{HashMap, HashSet};

use crate::ProblemKind;
use crate::key::Key;

/// An entry of a [`WaitingList`]: it can wait for its parent.
pub(crate) trait ListEntry {
    /// The id of what it follows.
    fn parent(&self) -> Option<Key>;

    /// The ids by which other entries can follow it.
    fn keys(&self) -> Vec<Key>;

    /// Bytes of it in memory, about.
    fn size(&self) -> usize;
}

/// Entries that wait for their parents, in the order in which they came.
#[derive(Clone)]
pub(crate) struct WaitingList<T> {
    /// `None` for one that waits no longer.
    entries: Vec<Option<T>>,
    by_parent: HashMap<Key, Vec<usize>>,
    count: usize,
    bytes: usize,
}

/// A pass over the entries whose parents do not come any more.
pub(crate) struct UnresolvedPass {
    /// The ids of all entries that waited when the pass began.
    keys: HashSet<Key>,
    next: usize,
    only_cycles_left: bool,
}

impl<T> Default for WaitingList<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), by_parent: HashMap::new(), count: 0, bytes: 0 }
    }
}

impl<T: ListEntry> WaitingList<T> {
    pub(crate) fn push(&mut self, parent: Key, entry: T) {
        self.by_parent.entry(parent).or_default().push(self.entries.len());
        self.count += 1;
        self.bytes += entry.size();
        self.entries.push(Some(entry));
    }

    /// Bytes of all entries, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts the entries that wait for `key` on a stack, the first of them on top.
    pub(crate) fn release(&mut self, key: Key, stack: &mut Vec<T>) {
        let Some(list) = self.by_parent.remove(&key) else { return };
        let released = list.into_iter().rev().filter_map(|index| self.take(index));
        stack.extend(released);
    }

    /// Begins a pass over what is left when no more entries come.
    pub(crate) fn unresolved(&self) -> UnresolvedPass {
        let keys = self.entries.iter().flatten().flat_map(ListEntry::keys).collect();
        UnresolvedPass { keys, next: 0, only_cycles_left: false }
    }

    /// The next entry of the pass: first the orphans, which wait for none of the others, then the first entry of each
    /// cycle. Release what waits for it before you ask for the next one.
    pub(crate) fn next_unresolved(&mut self, pass: &mut UnresolvedPass) -> Option<(T, ProblemKind)> {
        loop {
            while pass.next < self.entries.len() {
                let index = pass.next;
                pass.next += 1;
                let parent = self.entries[index].as_ref().map(ListEntry::parent);
                let is_orphan = parent.flatten().is_some_and(|parent| !pass.keys.contains(&parent));
                if !pass.only_cycles_left && !is_orphan {
                    continue;
                }
                let kind = if pass.only_cycles_left { ProblemKind::Cycle } else { ProblemKind::Orphan };
                if let Some(entry) = self.take(index) {
                    return Some((entry, kind));
                }
            }
            if pass.only_cycles_left {
                return None;
            }
            (pass.only_cycles_left, pass.next) = (true, 0);
        }
    }

    fn take(&mut self, index: usize) -> Option<T> {
        let entry = self.entries.get_mut(index)?.take()?;
        self.count -= 1;
        self.bytes = self.bytes.saturating_sub(entry.size());
        if self.count == 0 {
            self.entries.clear();
            self.by_parent.clear();
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry by its id and its parent's.
    #[derive(Debug, Clone, PartialEq)]
    struct Pair(&'static str, &'static str);

    impl ListEntry for Pair {
        fn parent(&self) -> Option<Key> {
            Some(Key::of(self.1))
        }

        fn keys(&self) -> Vec<Key> {
            vec![Key::of(self.0)]
        }

        fn size(&self) -> usize {
            10
        }
    }

    fn list(pairs: &[Pair]) -> WaitingList<Pair> {
        let mut list = WaitingList::default();
        for pair in pairs {
            list.push(Key::of(pair.1), pair.clone());
        }
        list
    }

    #[test]
    fn released_entries_come_in_order() {
        let mut list = list(&[Pair("b", "a"), Pair("x", "y"), Pair("c", "a")]);
        let mut stack = Vec::new();
        list.release(Key::of("a"), &mut stack);
        assert_eq!(stack, [Pair("c", "a"), Pair("b", "a")]);
        assert_eq!(list.bytes(), 10);
        list.release(Key::of("a"), &mut stack);
        assert_eq!(stack.len(), 2);
    }

    #[test]
    fn orphans_come_before_cycles() {
        let mut list =
            list(&[Pair("a", "c"), Pair("b", "a"), Pair("c", "b"), Pair("e", "d"), Pair("f", "e")]);
        let (mut pass, mut order, mut stack) = (list.unresolved(), Vec::new(), Vec::new());
        while let Some((entry, kind)) = list.next_unresolved(&mut pass) {
            order.push((entry.0, Some(kind)));
            let mut next = entry.0;
            loop {
                list.release(Key::of(next), &mut stack);
                let Some(entry) = stack.pop() else { break };
                order.push((entry.0, None));
                next = entry.0;
            }
        }
        let expect = [
            ("e", Some(ProblemKind::Orphan)),
            ("f", None),
            ("a", Some(ProblemKind::Cycle)),
            ("b", None),
            ("c", None),
        ];
        assert_eq!(order, expect);
        assert_eq!(list.bytes(), 0);
    }
}
