//! The chunks of a page, by column: a page of a hundred thousand has a few bytes for each beside its words.

use std::collections::HashMap;

use quipu_protocol::NodeId;
use quipu_store::Graph;

use super::html::{data_bytes, shown};
use crate::prove::{ground_pending, is_kept_out};
use crate::record::read_chunks_by_node;
use crate::{ChunkEntry, PastError, PastId, PastIndex, PastScope, ReviewState, SummaryMethod};

/// Chunks that are read at once.
const PAGE: usize = 1_024;
/// Bytes of all summaries, about; of one at most; and of one that is shortened.
const TEXTS: usize = 6 << 20;
const TEXT: usize = 4_096;
const SHORT: usize = 48;

/// What is known of a chunk in one number.
pub(super) const REVIEWED: u32 = 1;
const BY_MODEL: u32 = 2;
const BY_PERSON: u32 = 4;
const KEPT_OUT: u32 = 8;
const SHORTENED: u32 = 16;
const UNTRUSTED: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct PageColumns {
    /// By their beginning, the widest first.
    pub(super) ids: Vec<PastId>,
    pub(super) nodes: Vec<NodeId>,
    pub(super) starts: Vec<i64>,
    pub(super) widths: Vec<i64>,
    pub(super) levels: Vec<u32>,
    /// The place of the parent.
    pub(super) parents: Vec<Option<usize>>,
    pub(super) flags: Vec<u32>,
    pub(super) texts: Vec<String>,
    /// Nodes that a chunk names itself.
    pub(super) sources: Vec<Vec<NodeId>>,
    /// Where each stands in the log of the store.
    pub(super) seqs: Vec<quipu_store::Seq>,
    pub(super) shortened: usize,
}

impl PageColumns {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) async fn read(
        store: &dyn Graph,
        scope: &PastScope,
        index: &PastIndex,
    ) -> Result<Self, PastError> {
        let mut live: Vec<&ChunkEntry> = index.live().collect();
        live.sort_by_key(|chunk| (chunk.span.start(), std::cmp::Reverse(chunk.span.end()), chunk.id));
        let verdicts = ground_pending(store, scope, index).await?;
        let places: HashMap<PastId, usize> =
            live.iter().enumerate().map(|(at, chunk)| (chunk.id, at)).collect();
        let count = live.len();
        let mut columns = Self {
            parents: vec![None; count],
            texts: vec![String::new(); count],
            sources: vec![Vec::new(); count],
            ..Self::default()
        };
        for (at, chunk) in live.iter().enumerate() {
            for child in chunk.children.iter().filter_map(|child| places.get(child)) {
                columns.parents[*child] = Some(at);
            }
            let is_out = verdicts.get(&chunk.id).is_some_and(|verdict| is_kept_out(chunk, verdict));
            columns.ids.push(chunk.id);
            columns.nodes.push(chunk.node);
            columns.seqs.push(chunk.seq);
            columns.starts.push(chunk.span.start());
            columns.widths.push(chunk.span.width());
            columns.levels.push(chunk.level.min(99));
            columns.flags.push(flags(chunk, is_out));
        }
        let mut room = TextRoom::new(count);
        for some in by_weight(&live).chunks(PAGE) {
            let nodes: Vec<NodeId> = some.iter().map(|at| live[*at].node).collect();
            let mut read = read_chunks_by_node(store, scope, &nodes).await?;
            for at in some {
                let Some(chunk) = read.remove(&live[*at].node) else { continue };
                let (text, is_short) = room.text(&chunk.summary);
                if is_short {
                    columns.shortened += 1;
                    columns.flags[*at] |= SHORTENED;
                }
                columns.texts[*at] = text;
                columns.sources[*at] = chunk.sources.iter().map(|source| source.node).collect();
            }
        }
        Ok(columns)
    }
}

fn flags(chunk: &ChunkEntry, is_out: bool) -> u32 {
    let method = match chunk.method {
        SummaryMethod::Extractive { .. } => 0,
        SummaryMethod::Model(_) | SummaryMethod::Agent => BY_MODEL,
        SummaryMethod::Person => BY_PERSON,
    };
    let on = |flag: u32, is_on: bool| if is_on { flag } else { 0 };
    method
        | on(REVIEWED, chunk.state == ReviewState::Reviewed)
        | on(KEPT_OUT, is_out)
        | on(UNTRUSTED, chunk.class == quipu_protocol::AuthorClass::Untrusted)
}

/// The places of chunks, in the order in which their words have room: the coarse first, then the new.
fn by_weight(live: &[&ChunkEntry]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..live.len()).collect();
    order.sort_by_key(|at| {
        let chunk = live[*at];
        (std::cmp::Reverse(chunk.level), std::cmp::Reverse(chunk.span.end()), chunk.id)
    });
    order
}

/// What is left for words: all of a summary while there is room, else its beginning, for which there always is.
struct TextRoom {
    left: usize,
}

impl TextRoom {
    fn new(count: usize) -> Self {
        Self { left: TEXTS.saturating_sub(count * SHORT) }
    }

    /// What the page has of a summary, and whether that is not all.
    fn text(&mut self, summary: &str) -> (String, bool) {
        let whole = shown(summary, TEXT);
        let more = data_bytes(&whole).saturating_sub(SHORT);
        let text = if more <= self.left {
            self.left -= more;
            whole
        } else {
            shown(summary, SHORT)
        };
        let is_short = text != shown(summary, usize::MAX);
        (text, is_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_whole_while_there_is_room_for_its_data() {
        let mut room = TextRoom::new(2);
        let summary = "> Please do step 0 of alpha.\n- Did step 0 in src/alpha.rs & more.";
        assert_eq!(room.text(summary), (summary.to_owned(), false));
        assert!(room.text(&"<".repeat(TEXT)).1, "it is longer than any");
        room.left = data_bytes(summary) - SHORT - 1;
        let (text, is_short) = room.text(summary);
        assert!(is_short && data_bytes(&text) <= SHORT + '…'.len_utf8(), "{text}");
        room.left += 1;
        assert!(!room.text(summary).1);
        assert_eq!(room.left, 0);
    }

    #[test]
    fn summary_with_an_ellipsis_of_its_own_is_shortened_too() {
        let mut room = TextRoom::new(1);
        assert!(!room.text("It goes on…").1);
        assert!(room.text(&format!("{}…", "a".repeat(TEXT + 1))).1);
        assert!(!room.text("a\u{200b}b ").1, "letters by their numbers are all of it");
    }
}
