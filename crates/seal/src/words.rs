//! Many words looked for at once. Three bytes of each are in a set that every place of a text is looked up in; the few
//! places that are in it are compared in full.
//!
//! It takes no time to make, which an automaton does: more than all else that a short run does.

/// The three bytes of each word that decide whether it is compared.
pub(crate) struct Words {
    /// One bit for each value of [`fold`].
    set: Box<[u64; SET]>,
    /// How many bits are set before each element of the set.
    before: Box<[u16; SET]>,
    /// The words of each bit that is set, in the order that they came in.
    groups: Vec<Vec<usize>>,
}

const SET: usize = 1 << 15 >> 6;

/// Five bits of each byte, in which a letter is the same in either case: the element of the set, and the bit in it.
#[inline]
fn fold([a, b, c]: [u8; 3]) -> (usize, u32) {
    let element = usize::from(a & 31) << 4 | usize::from(b & 31) >> 1;
    (element, u32::from(b & 1) << 5 | u32::from(c & 31))
}

impl Default for Words {
    fn default() -> Self {
        Self::new([])
    }
}

impl Words {
    /// From three bytes of each word and what to call it.
    pub(crate) fn new(words: impl IntoIterator<Item = ([u8; 3], usize)>) -> Self {
        let mut all: Vec<_> = words.into_iter().map(|(three, word)| (fold(three), word)).collect();
        all.sort_by_key(|(place, _)| *place);
        let mut made = Self { set: Box::new([0; SET]), before: Box::new([0; SET]), groups: Vec::new() };
        for group in all.chunk_by(|a, b| a.0 == b.0) {
            let (element, bit) = group[0].0;
            made.set[element] |= 1 << bit;
            made.groups.push(group.iter().map(|(_, word)| *word).collect());
        }
        let mut count = 0;
        for (bits, before) in made.set.iter().zip(made.before.iter_mut()) {
            *before = count;
            count += u16::try_from(bits.count_ones()).unwrap_or_default();
        }
        made
    }

    /// The first place from `from` on where three bytes stand that some word has, and the words that may have them.
    #[inline]
    pub(crate) fn next(&self, text: &[u8], from: usize) -> Option<(usize, &[usize])> {
        let mut letters = 0;
        let at =
            from + text.get(from..)?.iter().zip(0_usize..).position(|(byte, at)| {
                letters = letters << 5 | u32::from(byte & 31);
                let place = letters & 0x7fff;
                at >= 2 && self.set[usize::try_from(place >> 6).unwrap_or(0)] >> (place & 63) & 1 == 1
            })? - 2;
        let (element, bit) = fold(*text[at..].first_chunk()?);
        let lower = self.set[element] & ((1 << bit) - 1);
        let group = usize::from(self.before[element]) + usize::try_from(lower.count_ones()).ok()?;
        Some((at, &self.groups[group]))
    }
}
