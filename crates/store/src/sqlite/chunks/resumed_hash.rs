//! The SHA-256 of bytes that change a little at a time: what stands before a change is not hashed again.

use sha2::{Digest as _, Sha256};

/// Bytes after which the state of the hash is kept: whole blocks of it.
const STEP: usize = 4 << 10;

/// The hash of some bytes, kept at each step.
pub(super) struct ResumedHash {
    /// The state before each step of the bytes.
    states: Vec<Sha256>,
    /// Bytes that were hashed, of all that it was asked about.
    #[cfg(test)]
    pub(super) hashed: usize,
}

impl ResumedHash {
    /// Of no bytes.
    pub(super) fn new() -> Self {
        Self {
            states: vec![Sha256::new()],
            #[cfg(test)]
            hashed: 0,
        }
    }

    /// The hash of these parts after each other, of which the first `same` bytes are those that it was asked about before.
    pub(super) fn of(&mut self, parts: [&[u8]; 3], same: usize) -> [u8; 32] {
        self.states.truncate(same / STEP + 1);
        let mut at = (self.states.len() - 1) * STEP;
        let mut state = self.states.last().cloned().unwrap_or_default();
        let mut before = 0;
        for part in parts {
            let mut rest = part.get(at.saturating_sub(before)..).unwrap_or_default();
            before += part.len();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(STEP - at % STEP));
                state.update(now);
                at += now.len();
                if at.is_multiple_of(STEP) {
                    self.states.push(state.clone());
                }
                rest = later;
                #[cfg(test)]
                {
                    self.hashed += now.len();
                }
            }
        }
        state.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hash_of_changed_bytes_is_that_of_all(
            edits in proptest::collection::vec((0_usize..30_000, 0_usize..9_000, 0_usize..9_000), 1..12),
            size in 0_usize..30_000,
        ) {
            let mut bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
            let mut hash = ResumedHash::new();
            prop_assert_eq!(hash.of([&bytes, &[], &[]], 0), <[u8; 32]>::from(Sha256::digest(&bytes)));
            for (number, (from, out, put)) in (0_u8..).zip(edits) {
                let prefix = from.min(bytes.len());
                let end = (prefix + out).min(bytes.len());
                let middle = vec![number; put];
                let found = hash.of([&bytes[..prefix], &middle, &bytes[end..]], prefix);
                bytes.splice(prefix..end, middle);
                prop_assert_eq!(found, <[u8; 32]>::from(Sha256::digest(&bytes)));
            }
        }
    }
}
