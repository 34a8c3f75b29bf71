//! Ids of entries, and places in a tree of them, small enough for a million.

use quipu_dag::sha256;

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

    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryIndex(pub(crate) u32);
