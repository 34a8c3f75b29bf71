//! Numbers of entries by their ids.

use std::hash::{BuildHasher as _, RandomState};

use crate::key::{EntryIndex, Key};
use crate::ledger::Ledger;

/// A map from ids to entries, for millions of them: 8 bytes for each place, of which three quarters at most are taken. The
/// ids themselves stand in the [`Ledger`], which is asked where half of a hash agrees. Nothing is ever taken out.
#[derive(Default)]
pub(crate) struct Slots {
    /// Half of a hash, and a number counted from 1, each at the place of that half or behind it; 0 is a free one. A power of
    /// two of them.
    table: Vec<u64>,
    taken: usize,
    hasher: RandomState,
}

/// Where the half of a hash begins.
const HALF: u32 = 32;

impl Slots {
    pub(crate) fn get(&self, key: Key, ledger: &Ledger) -> Option<EntryIndex> {
        let slot = self.find(self.half(key), key, ledger).ok()?;
        Some(number(*self.table.get(slot)?))
    }

    /// Puts one in, which stands in the ledger under this id; the one that was there before.
    pub(crate) fn insert(&mut self, key: Key, at: EntryIndex, ledger: &Ledger) -> Option<EntryIndex> {
        self.grow();
        let half = self.half(key);
        let new = half << HALF | (u64::from(at.0) + 1);
        match self.find(half, key, ledger) {
            Ok(slot) => self.table.get_mut(slot).map(|before| number(std::mem::replace(before, new))),
            Err(slot) => {
                self.taken += 1;
                if let Some(free) = self.table.get_mut(slot) {
                    *free = new;
                }
                None
            }
        }
    }

    /// The slot of an id, else the free one where it belongs.
    fn find(&self, half: u64, key: Key, ledger: &Ledger) -> Result<usize, usize> {
        let Some(last) = self.table.len().checked_sub(1) else { return Err(0) };
        let mut slot = start(half) & last;
        loop {
            match self.table.get(slot).copied() {
                None | Some(0) => return Err(slot),
                Some(found)
                    if found >> HALF == half
                        && ledger.get(place(number(found))).is_some_and(|row| row.key == key) =>
                {
                    return Ok(slot);
                }
                Some(_) => slot = (slot + 1) & last,
            }
        }
    }

    fn half(&self, key: Key) -> u64 {
        self.hasher.hash_one(key) >> HALF
    }

    /// Room for one more.
    fn grow(&mut self) {
        if (self.taken + 1) * 4 <= self.table.len() * 3 {
            return;
        }
        let last = (self.table.len() * 2).max(16) - 1;
        let before = std::mem::replace(&mut self.table, vec![0; last + 1]);
        for found in before.into_iter().filter(|found| *found != 0) {
            let mut slot = start(found >> HALF) & last;
            while self.table[slot] != 0 {
                slot = (slot + 1) & last;
            }
            self.table[slot] = found;
        }
    }
}

fn start(half: u64) -> usize {
    usize::try_from(half).unwrap_or_default()
}

fn number(found: u64) -> EntryIndex {
    // Files of more lines than that are not read: see `Tree::push`.
    EntryIndex(u32::try_from((found & u64::from(u32::MAX)).saturating_sub(1)).unwrap_or(u32::MAX))
}

/// Where an entry stands in the ledger.
pub(crate) fn place(at: EntryIndex) -> usize {
    usize::try_from(at.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use quipu_protocol::NodeId;

    use super::*;
    use crate::ledger::Row;

    #[test]
    fn slots_behave_like_a_hash_map() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::tried(Some(dir.path().to_owned()), 100);
        let (mut slots, mut map) = (Slots::default(), HashMap::new());
        assert_eq!(slots.get(Key::of(""), &ledger), None);
        for n in 0..5_000_u32 {
            let key = Key::of(&(n.wrapping_mul(2_654_435_761) % 3_000).to_string());
            ledger.push(Row { key, node: NodeId([0; 32]) });
            assert_eq!(slots.insert(key, EntryIndex(n), &ledger), map.insert(key, EntryIndex(n)));
        }
        for n in 0..4_000 {
            let key = Key::of(&n.to_string());
            assert_eq!(slots.get(key, &ledger), map.get(&key).copied(), "{n}");
        }
    }
}
