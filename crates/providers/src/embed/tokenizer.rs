//! The tokenizers of static models.

use serde_json::Value;

use super::bpe::Bpe;
use super::wordpiece::WordPiece;

/// One of those that are read.
#[derive(Debug)]
pub(super) enum Tokenizer {
    WordPiece(WordPiece),
    Bpe(Bpe),
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let file: Value = serde_json::from_slice(json)
            .map_err(|error| format!("it is not a valid tokenizer.json ({error})"))?;
        if file["model"]["type"] == "BPE" {
            Bpe::read(&file).map(Self::Bpe)
        } else {
            WordPiece::read(json).map(Self::WordPiece)
        }
    }

    /// How many numbers there can be: one more than the highest.
    pub(super) fn rows(&self) -> u64 {
        match self {
            Self::WordPiece(words) => words.rows(),
            Self::Bpe(pairs) => pairs.rows(),
        }
    }

    /// At most so many numbers of pieces of `text`. What is unknown is left out.
    pub(super) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        match self {
            Self::WordPiece(words) => words.pieces(text, most),
            Self::Bpe(pairs) => pairs.pieces(text, most),
        }
    }
}
