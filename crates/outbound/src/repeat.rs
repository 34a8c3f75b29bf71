//! Text of an answer that left before the answer was asked for again.

use quipu_protocol::hex;
use sha2::{Digest as _, Sha256};

/// Text that was sent already and comes again.
#[derive(Debug, Clone, Default)]
pub(crate) enum Repeat {
    #[default]
    Nothing,
    /// So many bytes of it.
    Length(usize),
    /// This text, of which so many bytes came.
    Text(String, usize),
    /// So many bytes with this digest. All text waits until it is known whether they come again.
    Digest(usize, String),
}

/// The digest of the beginning of a text that grows, without reading it anew each time.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextDigest {
    state: Sha256,
    length: usize,
}

impl TextDigest {
    /// That of the first `length` bytes of `text`: SHA-256, in hexadecimal digits.
    pub(crate) fn of(&mut self, text: &str, length: usize) -> String {
        let length = length.min(text.len());
        if length < self.length {
            *self = Self::default();
        }
        self.state.update(&text.as_bytes()[self.length..length]);
        self.length = length;
        hex(&self.state.clone().finalize())
    }
}
