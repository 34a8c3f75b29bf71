//! Bytes that are put together of parts of others, and copied once.

use std::ops::Range;

/// Bytes of all parts that are held before they are put together.
const HELD: usize = 16 << 20;

/// Bytes as parts of others.
pub(super) struct SplicedBytes {
    sources: Vec<Vec<u8>>,
    /// Which part of which source comes next.
    parts: Vec<(usize, Range<usize>)>,
    size: usize,
    held: usize,
}

impl SplicedBytes {
    pub(super) fn new(whole: Vec<u8>) -> Self {
        let size = whole.len();
        Self { sources: vec![whole], parts: vec![(0, 0..size)], size, held: size }
    }

    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// Puts `middle` in the place of what stands between the first `prefix` bytes and the last `suffix` ones, which do not
    /// overlap.
    pub(super) fn splice(&mut self, prefix: usize, middle: Vec<u8>, suffix: usize) {
        let mut parts = Vec::with_capacity(self.parts.len() + 2);
        self.take(0..prefix, &mut parts);
        parts.push((self.sources.len(), 0..middle.len()));
        self.take(self.size - suffix..self.size, &mut parts);
        self.size = prefix + middle.len() + suffix;
        self.held += middle.len();
        self.parts = parts;
        self.sources.push(middle);
        if self.held > HELD + self.size {
            let whole = self.bytes();
            *self = Self::new(whole);
        }
    }

    fn take(&self, range: Range<usize>, into: &mut Vec<(usize, Range<usize>)>) {
        let mut at = 0;
        for (source, part) in &self.parts {
            let (from, to) = (range.start.max(at), range.end.min(at + part.len()));
            if from < to {
                into.push((*source, part.start + (from - at)..part.start + (to - at)));
            }
            at += part.len();
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size);
        for (source, part) in &self.parts {
            bytes.extend_from_slice(&self.sources[*source][part.clone()]);
        }
        bytes
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        match &self.parts[..] {
            [(source, part)] if part.len() == self.sources[*source].len() => {
                self.sources.swap_remove(*source)
            }
            _ => self.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spliced_bytes_are_those_of_each_splice_alone(
            first in proptest::collection::vec(any::<u8>(), 0..40),
            splices in proptest::collection::vec((0_usize..50, proptest::collection::vec(any::<u8>(), 0..9), 0_usize..50), 0..12),
        ) {
            let mut expect = first.clone();
            let mut spliced = SplicedBytes::new(first);
            for (prefix, middle, suffix) in splices {
                let prefix = prefix.min(expect.len());
                let suffix = suffix.min(expect.len() - prefix);
                expect = [&expect[..prefix], &middle, &expect[expect.len() - suffix..]].concat();
                spliced.splice(prefix, middle, suffix);
                prop_assert_eq!(spliced.len(), expect.len());
            }
            prop_assert_eq!(spliced.into_bytes(), expect);
        }
    }
}
