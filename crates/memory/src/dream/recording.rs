//! Noting that a search found something.

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Dreams, SignalKind, SignalPlace, TextSignal};

use super::daily::{DailyPiece, daily_pieces, note_day};
use super::own::{claim_hash, is_dream_output};
use super::signals::to_float;
use super::tags::{concept_tags, content_words};
use super::{DreamError, DreamHost};

/// Characters of what is kept of a node.
const NODE_TEXT: usize = 280;
/// Pieces of one place that are noted at most.
const PIECES: usize = 4;

/// Something that a search found.
#[derive(Debug, Clone, PartialEq)]
pub enum RecalledText {
    /// Lines of a file of the memory.
    Lines {
        /// The file, relative to the directory of the memory.
        path: String,
        /// The first line.
        first: u32,
        /// The last line.
        last: u32,
        /// How well they fit, from 0 to 1.
        score: f64,
    },
    /// A node of the graph.
    Node {
        /// The node.
        node: NodeId,
        /// What it says.
        text: String,
        /// How well it fits, from 0 to 1.
        score: f64,
    },
}

/// The name of the record of a piece of a file: moving it within the file, it stays the same.
pub(super) fn key_of_piece(path: &str, text: &str) -> String {
    format!("memory:{path}:{}", claim_hash(text))
}

pub(super) fn place_of_piece(path: &str, piece: &DailyPiece) -> SignalPlace {
    SignalPlace::Lines { path: path.to_owned(), first: piece.first, last: piece.last }
}

/// How well a text fits a question, from 0 to 1, whatever else a search found: by the share of the question's words that it has.
#[must_use]
pub fn recall_fit(question: &str, text: &str) -> f64 {
    let (asked, said) = (content_words(question), content_words(text));
    if asked.is_empty() {
        return 0.0;
    }
    let begins = |long: &str, short: &str| short.chars().count() >= 4 && long.starts_with(short);
    let has = |word: &&String| {
        said.contains(*word) || said.iter().any(|other| begins(other, word) || begins(word, other))
    };
    let share = to_float(asked.iter().filter(has).count()) / to_float(asked.len());
    share.sqrt()
}

/// Notes what a search found: pieces of the notes of days, and nodes. Whatever else it found, and what dreams wrote, is left
/// out. Only to be called where dreams are on: it writes to the store.
///
/// # Errors
/// What the store says. Files that cannot be read are left out.
pub async fn record_recalls(
    store: &dyn Dreams,
    host: &dyn DreamHost,
    memory: &str,
    query: &str,
    found: &[RecalledText],
    now: UnixMs,
) -> Result<usize, DreamError> {
    let day = host.day_of(now);
    let hash = claim_hash(query);
    let asked = content_words(query);
    let mut signals: Vec<TextSignal> = Vec::new();
    let signal = |key: String, place: SignalPlace, text: &str, score: f64| TextSignal {
        key,
        place,
        text: text.to_owned(),
        tags: concept_tags(text),
        kind: SignalKind::Search,
        score,
        query: hash.clone(),
        day,
        at: now,
    };
    for one in found {
        match one {
            RecalledText::Lines { path, first, last, score } => {
                if note_day(path).is_none() {
                    continue;
                }
                let Ok(Some(text)) = host.read(path).await else { continue };
                let within: Vec<DailyPiece> = daily_pieces(&text)
                    .into_iter()
                    .filter(|piece| piece.first <= *last && piece.last >= *first)
                    .collect();
                // Of a long place, what the question is about.
                let fits = |piece: &&DailyPiece| !content_words(&piece.text).is_disjoint(&asked);
                let fitting: Vec<&DailyPiece> = within.iter().filter(fits).collect();
                let noted = if fitting.is_empty() { within.iter().collect() } else { fitting };
                for piece in noted.into_iter().take(PIECES) {
                    let place = place_of_piece(path, piece);
                    signals.push(signal(key_of_piece(path, &piece.text), place, &piece.text, *score));
                }
            }
            RecalledText::Node { node, text, score } => {
                let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let line: String = line.chars().take(NODE_TEXT).collect();
                if line.chars().count() < 8 || is_dream_output(text) {
                    continue;
                }
                signals.push(signal(format!("node:{node}"), SignalPlace::Node(*node), &line, *score));
            }
        }
    }
    let count = signals.len();
    if count > 0 {
        store.note_recalls(memory, signals).await?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_does_not_depend_on_other_hits() {
        let text = "The deploy server is red and lives in Oslo";
        assert_eq!(recall_fit("which server is red?", text), 1.0);
        assert_eq!(recall_fit("deploys", text), 1.0, "another ending");
        let half = recall_fit("server zebra", text);
        assert!((half - 0.5_f64.sqrt()).abs() < 1e-12, "{half}");
        for nonsense in ["zebra giraffe", "", "the of a"] {
            assert_eq!(recall_fit(nonsense, text), 0.0, "{nonsense}");
        }
    }
}
