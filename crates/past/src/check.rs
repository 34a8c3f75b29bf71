//! Whether a past is whole: what it has no summary of, what came after it, and how its chunks lie.

use std::collections::HashSet;

use crate::overlap::OverlapIndex;
use crate::plan::{PlannedProgress, PlannedSources};
use crate::{ChunkEntry, PastPlan, ReviewState, TimeRange, WorkId};

/// A stretch of the past that no chunk sums up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastGap {
    /// When.
    pub span: TimeRange,
    /// How many nodes were said in it.
    pub nodes: usize,
    /// The key of the finest chunk that lies at the same time, to which it is late evidence; `None` where none does.
    pub late_for: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastCheck {
    /// What has no summary yet, by time.
    pub gaps: Vec<PastGap>,
    /// What has none because a person took it back, by time.
    pub retracted: Vec<PastGap>,
    /// Chunks that are shown, by their level.
    pub levels: Vec<usize>,
    /// Chunks that are shown and have no parent.
    pub roots: usize,
    /// Chunks that are shown and will give their place to others at the next build.
    pub outdated: usize,
}

impl PastPlan {
    /// Compares the past with its sessions.
    #[must_use]
    pub fn check(&self) -> PastCheck {
        let mut check = PastCheck { roots: self.index.roots().len(), ..PastCheck::default() };
        for chunk in self.index.live() {
            // Somebody else's chunk may say anything of its level.
            let level = usize::try_from(chunk.level).unwrap_or(usize::MAX).min(64);
            if check.levels.len() <= level {
                check.levels.resize(level + 1, 0);
            }
            check.levels[level] += 1;
        }
        check.outdated =
            self.orphans.len() + self.chunks.iter().map(|chunk| chunk.supersedes.len()).sum::<usize>();
        // The finest first, and of equals the one with the lowest id.
        let live = self.index.live().map(|live| (live.span, (live.span.width(), live.id)));
        let live = OverlapIndex::new(live);
        // Where a person's words stand in the place of a chunk, it is not missed.
        let replaced = self.index.chunks().filter(|chunk| chunk.is_replaced && !is_retracted(chunk));
        let replaced: HashSet<WorkId> = replaced.filter_map(|chunk| chunk.work).collect();
        for chunk in &self.chunks {
            let PlannedSources::Nodes { count, .. } = &chunk.of else { continue };
            let mut gap = PastGap { span: chunk.span, nodes: *count, late_for: None };
            if chunk.progress == PlannedProgress::Retracted {
                if !replaced.contains(&chunk.work) {
                    check.retracted.push(gap);
                }
            } else if chunk.is_pending() {
                let finest = live.least(chunk.span).and_then(|(_, id)| self.index.get(&id));
                gap.late_for = finest.map(|live| self.index.key(live));
                check.gaps.push(gap);
            }
        }
        check.gaps.sort_by_key(|gap| gap.span);
        check.retracted.sort_by_key(|gap| gap.span);
        check
    }
}

fn is_retracted(chunk: &ChunkEntry) -> bool {
    chunk.state == ReviewState::Retracted
}
