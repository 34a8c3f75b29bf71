//! Many words looked for at once. Each place of a text is looked up in three tables, for three bytes of each word; the few
//! places that are in all of them are compared in full.
//!
//! It takes no time to make, which an automaton does: more than all else that a short run does.

/// The three bytes of each word that decide whether it is compared.
pub(crate) struct Words {
    /// For each of the three and each value of a byte, the groups whose words may have it there; a letter is the same in
    /// either case.
    tables: Box<[[u64; 256]; 3]>,
    /// The words of each bit, in the order that they came in where all three bytes are the same.
    groups: Vec<Vec<usize>>,
}

/// Groups of words, one bit each.
const GROUPS: usize = 64;
/// Places that are looked at together.
const STEP: usize = 8;

impl Default for Words {
    fn default() -> Self {
        Self::new([])
    }
}

impl Words {
    /// From three bytes of each word and what to call it.
    pub(crate) fn new(words: impl IntoIterator<Item = ([u8; 3], usize)>) -> Self {
        let mut all: Vec<_> = words
            .into_iter()
            .map(|(three, word)| (three.map(|byte| byte.to_ascii_lowercase()), word))
            .collect();
        all.sort_by_key(|(three, _)| *three);
        let mut made = Self { tables: Box::new([[0; 256]; 3]), groups: vec![Vec::new(); GROUPS] };
        for (group, alike) in all.chunk_by(|a, b| a.0 == b.0).enumerate() {
            let group = group % GROUPS;
            for (table, byte) in made.tables.iter_mut().zip(alike[0].0) {
                table[usize::from(byte)] |= 1 << group;
                table[usize::from(byte.to_ascii_uppercase())] |= 1 << group;
            }
            made.groups[group].extend(alike.iter().map(|(_, word)| *word));
        }
        made
    }

    /// The groups of words that may have their three bytes here.
    #[inline]
    fn at(&self, a: u8, b: u8, c: u8) -> u64 {
        let [first, second, third] = &*self.tables;
        first[usize::from(a)] & second[usize::from(b)] & third[usize::from(c)]
    }

    /// The first place from `from` on where three bytes stand that some word may have, and those words.
    #[inline]
    pub(crate) fn next(&self, text: &[u8], from: usize) -> Option<(usize, impl Iterator<Item = &usize>)> {
        let (at, mut groups) = self.place(text.get(from..)?)?;
        let words = std::iter::from_fn(move || {
            let group = usize::try_from(groups.trailing_zeros()).ok()?;
            groups &= groups.wrapping_sub(1);
            self.groups.get(group)
        });
        Some((from + at, words.flatten()))
    }

    fn place(&self, text: &[u8]) -> Option<(usize, u64)> {
        let mut from = 0;
        while let Some(part) = text.get(from..).and_then(<[u8]>::first_chunk::<{ STEP + 2 }>) {
            let at = |place: usize| self.at(part[place], part[place + 1], part[place + 2]);
            // Without a branch for each.
            let any = at(0) | at(1) | at(2) | at(3) | at(4) | at(5) | at(6) | at(7);
            if any != 0 {
                return (0..STEP).map(|place| (from + place, at(place))).find(|(_, groups)| *groups != 0);
            }
            from += STEP;
        }
        let rest = text.get(from..)?.windows(3).zip(from..);
        rest.map(|(three, place)| (place, self.at(three[0], three[1], three[2])))
            .find(|(_, groups)| *groups != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_at_every_place_in_either_case() {
        // More than there are groups.
        let words: Vec<[u8; 3]> =
            (b'a'..=b'z').flat_map(|a| [[a, b'-', b'Q'], [b'1', a, a], [b'_', b'K', a]]).collect();
        let all = Words::new(words.iter().copied().zip(0..));
        for (index, word) in words.iter().enumerate() {
            for before in 0..20 {
                for after in [0, 1, 9] {
                    let mut text = vec![b'.'; before];
                    text.extend(word.map(|byte| byte.to_ascii_uppercase()));
                    text.extend(vec![b'.'; after]);
                    let (place, found) = all.next(&text, 0).unwrap();
                    assert_eq!(place, before);
                    assert!(found.into_iter().any(|found| *found == index), "{word:?}");
                    assert!(all.next(&text, before + 1).is_none());
                }
            }
        }
        assert!(all.next(b"1a", 0).is_none() && all.next(b"", 0).is_none() && all.next(b"", 1).is_none());
    }
}
