//! The same text in other pieces.

use proptest::prelude::*;

/// `text` in pieces of these many characters, again and again.
pub(crate) fn pieces(text: &str, sizes: &[usize]) -> Vec<String> {
    let mut characters = text.chars();
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        let piece: String = characters.by_ref().take((*size).max(1)).collect();
        if piece.is_empty() {
            break;
        }
        pieces.push(piece);
    }
    pieces
}

/// Sizes of pieces.
pub(crate) fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![1]),
        Just(vec![100_000]),
        prop::collection::vec(1_usize..12, 1..6),
        prop::collection::vec(1_usize..200, 1..4),
    ]
}
