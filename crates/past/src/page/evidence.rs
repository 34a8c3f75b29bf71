//! What the chunks of a page stand on: the beginnings of their sources, and what was said at their time without being one. One walk
//! over the sessions for all chunks.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Graph, Seq, decode_shown};

use super::columns::PageColumns;
use super::given::GivenCovers;
use super::html::shown;
use crate::pages::Pages;
use crate::segments::importer_of;
use crate::source::{SourceSpeaker, source_of, time_of};
use crate::{PastError, PastScope};

/// Bytes of all excerpts, about, and of one at most and at least.
const EXCERPTS: usize = 3 << 20;
const LONGEST: usize = 400;
const SHORTEST: usize = 120;
/// Ranges without a summary that are kept.
const GAPS: usize = 500;

#[derive(Debug, Default)]
pub(super) struct PageEvidence {
    /// Of each chunk with sources: how many nodes were said at its time and are none, came late, or are missing.
    pub(super) overlap: HashMap<usize, usize>,
    pub(super) late: HashMap<usize, usize>,
    pub(super) missing: HashMap<usize, usize>,
    /// Of a source: who said it, when, and how it begins.
    pub(super) said: HashMap<NodeId, SaidExcerpt>,
    /// Ranges that no chunk names the nodes of.
    pub(super) gaps: Vec<PageGap>,
    pub(super) gap_count: usize,
}

#[derive(Debug)]
pub(super) struct SaidExcerpt {
    pub(super) who: u8,
    pub(super) at: UnixMs,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PageGap {
    pub(super) start: UnixMs,
    pub(super) end: UnixMs,
    pub(super) nodes: usize,
    /// Whether a chunk lies at its time: it is late evidence of that.
    pub(super) is_late: bool,
}

impl PageEvidence {
    pub(super) fn excerpts(&self) -> usize {
        self.said.len()
    }

    pub(super) async fn read(
        store: &dyn Graph,
        scope: &PastScope,
        columns: &PageColumns,
        given: &mut GivenCovers,
    ) -> Result<Self, PastError> {
        let mut found = Self::default();
        let all: usize = columns.sources.iter().map(Vec::len).sum();
        let (has_excerpts, length) = excerpted(columns);
        // By which chunks each source is named, and whether it was found.
        let mut named: HashMap<NodeId, (Vec<usize>, bool)> = HashMap::with_capacity(all);
        for (at, sources) in columns.sources.iter().enumerate() {
            for node in sources {
                named.entry(*node).or_default().0.push(at);
            }
        }
        let leaves = Leaves::of(columns);
        let hidden = store.hidden();
        let rows = scope.sessions(store).await?;
        let mut firsts = GivenCovers::first_covers(store, &rows).await?;
        for row in rows {
            let Some(head) = row.head else { continue };
            given.begin(&row, firsts.remove(&row.base));
            let mut gap: Option<PageGap> = None;
            let mut pages = Pages::below(store, row.base, head).await?;
            while let Some(piece) = pages.next().await? {
                for stored in piece.nodes.iter().filter(|stored| !hidden.hides(&stored.node.id)) {
                    let decoded = decode_shown(&hidden, &stored.node, &piece.objects);
                    given.take(&stored.node, &decoded.entry);
                    let Some((said, _)) = source_of(&decoded, importer_of(&row)) else { continue };
                    let at = time_of(&decoded.entry, stored.node.record.timestamp);
                    match named.get_mut(&stored.node.id) {
                        Some((chunks, is_found)) => {
                            *is_found = true;
                            found.close(gap.take());
                            if chunks.iter().any(|chunk| has_excerpts.contains(chunk)) {
                                let text = shown(&said.text, length);
                                let excerpt =
                                    SaidExcerpt { who: who(said.speaker), at: at.unwrap_or(0), text };
                                found.said.insert(stored.node.id, excerpt);
                            }
                        }
                        None => {
                            let Some(at) = at else { continue };
                            let is_late = found.beside(&leaves, at, stored.seq);
                            let one = PageGap { start: at, end: at, nodes: 0, is_late };
                            let open = gap.get_or_insert(one);
                            (open.start, open.end) = (open.start.min(at), open.end.max(at));
                            open.nodes += 1;
                            open.is_late |= is_late;
                        }
                    }
                }
            }
            found.close(gap);
            given.end();
        }
        // Of sessions that were removed, or that are of another scope, a node may still be there.
        let lost: Vec<(NodeId, Vec<usize>)> = named
            .into_iter()
            .filter(|(_, (_, is_found))| !is_found)
            .map(|(node, (chunks, _))| (node, chunks))
            .collect();
        for some in lost.chunks(1_024) {
            let nodes: Vec<NodeId> = some.iter().map(|(node, _)| *node).collect();
            for ((_, chunks), node) in some.iter().zip(store.nodes(&nodes).await?) {
                for at in chunks.iter().filter(|_| node.is_none()) {
                    *found.missing.entry(*at).or_default() += 1;
                }
            }
        }
        found.cut_gaps();
        found.gaps.sort_by_key(|gap| (gap.start, gap.end));
        Ok(found)
    }

    /// Counts a node that is no source for the chunks at its time; whether there is one.
    fn beside(&mut self, leaves: &Leaves, at: UnixMs, seq: Seq) -> bool {
        let mut is_late = false;
        for leaf in leaves.at(at) {
            is_late = true;
            let counts = if seq > leaf.seq { &mut self.late } else { &mut self.overlap };
            *counts.entry(leaf.place).or_default() += 1;
        }
        is_late
    }

    fn close(&mut self, gap: Option<PageGap>) {
        let Some(gap) = gap else { return };
        self.gap_count += 1;
        self.gaps.push(gap);
        if self.gaps.len() >= 2 * GAPS {
            self.cut_gaps();
        }
    }

    /// Leaves the newest.
    fn cut_gaps(&mut self) {
        self.gaps.sort_by_key(|gap| std::cmp::Reverse((gap.end, gap.start)));
        self.gaps.truncate(GAPS);
    }
}

const fn who(speaker: SourceSpeaker) -> u8 {
    match speaker {
        SourceSpeaker::Person => 0,
        SourceSpeaker::Model => 1,
        SourceSpeaker::Tool => 2,
    }
}

/// The chunks whose sources have an excerpt, and how long it is: the newest have one where there are too many. One with too many alone
/// keeps it from no other.
fn excerpted(columns: &PageColumns) -> (HashSet<usize>, usize) {
    let most = EXCERPTS / SHORTEST;
    let (mut chosen, mut count) = (HashSet::new(), 0);
    for (at, sources) in columns.sources.iter().enumerate().rev() {
        if count + sources.len() > most {
            continue;
        }
        chosen.insert(at);
        count += sources.len();
    }
    (chosen, (EXCERPTS / count.max(1)).clamp(SHORTEST, LONGEST))
}

/// A chunk with sources.
struct Leaf {
    start: UnixMs,
    end: UnixMs,
    place: usize,
    seq: Seq,
}

/// Those by their beginning, with the latest end up to each.
struct Leaves {
    leaves: Vec<Leaf>,
    ends: Vec<UnixMs>,
}

impl Leaves {
    fn of(columns: &PageColumns) -> Self {
        let with_sources = (0..columns.len()).filter(|at| !columns.sources[*at].is_empty());
        let leaves: Vec<Leaf> = with_sources
            .map(|place| {
                let start = columns.starts[place];
                Leaf { start, end: start + columns.widths[place], place, seq: columns.seqs[place] }
            })
            .collect();
        let ends = leaves.iter().scan(UnixMs::MIN, |latest, leaf| {
            *latest = leaf.end.max(*latest);
            Some(*latest)
        });
        let ends = ends.collect();
        Self { leaves, ends }
    }

    /// Those at a time.
    fn at(&self, at: UnixMs) -> impl Iterator<Item = &Leaf> {
        let last = self.leaves.partition_point(|leaf| leaf.start <= at);
        // Before the first whose end, and that of all before it, lies earlier, there is none.
        let first = self.ends[..last].partition_point(|end| *end <= at);
        self.leaves[first..last].iter().filter(move |leaf| at < leaf.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_that_stay_are_the_newest() {
        let mut found = PageEvidence::default();
        for nth in 0..3 * GAPS {
            let at = ((nth * 7) % (3 * GAPS)) as UnixMs;
            found.close(Some(PageGap { start: at, end: at, nodes: 1, is_late: false }));
        }
        found.cut_gaps();
        assert_eq!((found.gaps.len(), found.gap_count), (GAPS, 3 * GAPS));
        assert!(found.gaps.iter().all(|gap| gap.start >= 2 * GAPS as UnixMs));
    }

    #[test]
    fn excerpts_go_on_behind_a_chunk_with_too_many() {
        let node = NodeId([0; 32]);
        let sources = vec![vec![node; 2], vec![node; EXCERPTS / SHORTEST + 1], vec![node]];
        let columns = PageColumns { sources, ..PageColumns::default() };
        assert_eq!(excerpted(&columns).0, [0, 2].into());
    }
}
