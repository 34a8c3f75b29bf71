//! Words as numbers of pieces that were merged pair by pair (BPE), as models of the Llama family have them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde_json::Value;

/// What stands for a space.
const SPACE: char = '\u{2581}';
/// Characters of a word at most that are merged; the rest is left out.
const LONGEST: usize = 200;

/// What a `tokenizer.json` says, as far as it is done here.
#[derive(Debug)]
pub(super) struct Bpe {
    pieces: HashMap<String, u32>,
    /// Which pairs are merged, the first ones first.
    merges: HashMap<(String, String), usize>,
    bytes: bool,
}

impl Bpe {
    /// Reads the model of a `tokenizer.json`. Words are put into pieces one by one, so what the file says of spaces is known:
    /// only the form with a mark for them is read.
    pub(super) fn read(file: &Value) -> Result<Self, String> {
        let model = &file["model"];
        let Some(vocab) = model["vocab"].as_object() else {
            return Err("its vocabulary is not an object".into());
        };
        let mut pieces = HashMap::with_capacity(vocab.len());
        for (piece, id) in vocab {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            pieces.insert(piece.clone(), id.ok_or("its vocabulary has an invalid id")?);
        }
        if !pieces.keys().any(|piece| piece.starts_with(SPACE)) {
            return Err(
                "its pieces do not mark spaces with \"\u{2581}\"; such a tokenizer is not supported".into()
            );
        }
        let mut merges = HashMap::new();
        for (rank, merge) in model["merges"].as_array().into_iter().flatten().enumerate() {
            let pair = match merge {
                Value::String(both) => {
                    both.split_once(' ').map(|(one, other)| (one.to_owned(), other.to_owned()))
                }
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(one), Value::String(other)] => Some((one.clone(), other.clone())),
                    _ => None,
                },
                _ => None,
            };
            merges.insert(pair.ok_or("one of its merges is no pair")?, rank);
        }
        Ok(Self { pieces, merges, bytes: model["byte_fallback"].as_bool().unwrap_or(false) })
    }

    /// How many numbers there can be: one more than the highest.
    pub(super) fn rows(&self) -> u64 {
        self.pieces.values().max().map_or(0, |id| u64::from(*id) + 1)
    }

    /// At most so many numbers of pieces of `text`, word by word.
    pub(super) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for word in text.split_whitespace() {
            self.add_word(word, &mut found);
            if found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        found
    }

    fn add_word(&self, word: &str, found: &mut Vec<u32>) {
        let mut parts: Vec<Option<String>> =
            std::iter::once(SPACE).chain(word.chars()).take(LONGEST).map(|c| Some(c.to_string())).collect();
        let count = parts.len();
        let mut after: Vec<usize> = (1..=count).collect();
        let rank = |parts: &[Option<String>], at: usize, next: usize| {
            let pair = (parts.get(at)?.clone()?, parts.get(next)?.clone()?);
            self.merges.get(&pair).copied()
        };
        let mut open: BinaryHeap<Reverse<(usize, usize, usize, usize)>> = BinaryHeap::new();
        for at in 0..count {
            if let Some(rank) = rank(&parts, at, at + 1) {
                open.push(Reverse((rank, at, 1, 1)));
            }
        }
        // Where a part begins, and of how many characters it is: a pair that changed since is passed over.
        let length = |parts: &[Option<String>], at: usize| {
            parts.get(at).and_then(Option::as_ref).map_or(0, |part| part.chars().count())
        };
        let mut before: Vec<Option<usize>> = (0..count).map(|at| at.checked_sub(1)).collect();
        while let Some(Reverse((_, at, one, other))) = open.pop() {
            let Some(next) = after.get(at).copied().filter(|next| *next < count) else { continue };
            if length(&parts, at) != one || length(&parts, next) != other {
                continue;
            }
            let Some(taken) = parts[next].take() else { continue };
            if let Some(part) = &mut parts[at] {
                part.push_str(&taken);
            }
            after[at] = after[next];
            if let Some(back) = before.get_mut(after[at]) {
                *back = Some(at);
            }
            let next = after[at];
            if let Some(rank) = rank(&parts, at, next) {
                open.push(Reverse((rank, at, length(&parts, at), length(&parts, next))));
            }
            if let Some(back) = before[at]
                && let Some(rank) = rank(&parts, back, at)
            {
                open.push(Reverse((rank, back, length(&parts, back), length(&parts, at))));
            }
        }
        for part in parts.into_iter().flatten() {
            match self.pieces.get(&part) {
                Some(id) => found.push(*id),
                None if self.bytes => {
                    found.extend(part.bytes().filter_map(|byte| self.pieces.get(&format!("<0x{byte:02X}>"))));
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pairs_merge_in_the_order_of_the_file() {
        let pieces = ["<0xC3>", "<0xA9>", "▁", "a", "b", "c", "▁a", "bc", "▁abc"];
        let vocab: serde_json::Map<String, Value> =
            pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), id.into())).collect();
        let file = json!({ "model": { "type": "BPE", "byte_fallback": true, "vocab": vocab,
                           "merges": ["b c", "▁ a", ["▁a", "bc"]] } });
        let bpe = Bpe::read(&file).unwrap();
        assert_eq!(bpe.rows(), 9);
        assert_eq!(bpe.pieces("abc", 9), [8]);
        assert_eq!(bpe.pieces("ab  bc", 9), [6, 4, 2, 7]);
        assert_eq!(bpe.pieces("é", 9), [2, 0, 1]);
        assert_eq!(bpe.pieces("abc abc abc", 2), [8, 8]);
        assert_eq!(bpe.pieces("", 9), Vec::<u32>::new());
        let none = json!({ "model": { "vocab": { "a": 1 }, "merges": [] } });
        assert!(Bpe::read(&none).unwrap_err().contains("spaces"));
    }
}
