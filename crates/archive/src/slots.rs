//! Numbers of entries by their ids.

use std::hash::{BuildHasher as _, RandomState};

use crate::tree::{At, Key};

/// A map from ids to entries, for millions of them: 30 bytes each where a `HashMap` takes up to 50, and as much again while
/// it grows. Nothing is ever taken out.
#[derive(Default)]
pub(crate) struct Slots {
    /// What was put in, in that order.
    pairs: Vec<(Key, At)>,
    /// Places in `pairs`, counted from 1, each at the hash of its key or behind it; 0 is a free one. A power of two of
    /// them, of which three quarters at most are taken.
    table: Vec<u32>,
    hasher: RandomState,
}

impl Slots {
    pub(crate) fn get(&self, key: Key) -> Option<At> {
        self.pairs.get(self.find(key).ok()?).map(|(_, at)| *at)
    }

    /// Puts one in; the one that was there before.
    pub(crate) fn insert(&mut self, key: Key, at: At) -> Option<At> {
        self.grow();
        match self.find(key) {
            Ok(pair) => self.pairs.get_mut(pair).map(|(_, before)| std::mem::replace(before, at)),
            Err(slot) => {
                self.pairs.push((key, at));
                self.point(slot, self.pairs.len());
                None
            }
        }
    }

    /// Puts one in where there is none.
    pub(crate) fn insert_new(&mut self, key: Key, at: At) {
        if self.get(key).is_none() {
            self.insert(key, at);
        }
    }

    /// The place of its pair, else of the free slot where that belongs.
    fn find(&self, key: Key) -> Result<usize, usize> {
        let Some(last) = self.table.len().checked_sub(1) else { return Err(0) };
        let mut slot = self.start(key) & last;
        loop {
            match self.table.get(slot).and_then(|number| usize::try_from(*number).ok()) {
                None | Some(0) => return Err(slot),
                Some(number) if self.pairs.get(number - 1).is_some_and(|(found, _)| *found == key) => {
                    return Ok(number - 1);
                }
                Some(_) => slot = (slot + 1) & last,
            }
        }
    }

    fn start(&self, key: Key) -> usize {
        // Its lower half is as good as all of it.
        usize::try_from(self.hasher.hash_one(key) & u64::from(u32::MAX)).unwrap_or_default()
    }

    fn point(&mut self, slot: usize, number: usize) {
        if let Some(free) = self.table.get_mut(slot) {
            // Files of more lines than that are not read: see `Tree::push`.
            *free = u32::try_from(number).unwrap_or(u32::MAX);
        }
    }

    /// Room for one more.
    fn grow(&mut self) {
        if (self.pairs.len() + 1) * 4 <= self.table.len() * 3 {
            return;
        }
        let last = (self.table.len() * 2).max(16) - 1;
        self.table = vec![0; last + 1];
        for pair in 0..self.pairs.len() {
            let mut slot = self.start(self.pairs[pair].0) & last;
            while self.table[slot] != 0 {
                slot = (slot + 1) & last;
            }
            self.point(slot, pair + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn as_a_map_of_the_library() {
        let (mut slots, mut map) = (Slots::default(), HashMap::new());
        assert_eq!(slots.get(Key::of("")), None);
        for n in 0..5_000_u32 {
            let key = Key::of(&(n.wrapping_mul(2_654_435_761) % 3_000).to_string());
            if n % 5 == 0 {
                slots.insert_new(key, At::tried(n));
                map.entry(key).or_insert(At::tried(n));
            } else {
                assert_eq!(slots.insert(key, At::tried(n)), map.insert(key, At::tried(n)));
            }
        }
        for n in 0..4_000 {
            let key = Key::of(&n.to_string());
            assert_eq!(slots.get(key), map.get(&key).copied(), "{n}");
        }
    }
}
