//! A file that is followed: its builder up to a line, to resume from there.

use std::collections::HashMap;

use tokio::sync::mpsc;

use super::{NodeBuilder, PriorTotals, StoredSession};
use crate::Report;
use crate::batches::{Batch, BatchBuffer, BatchLimit};

impl NodeBuilder {
    /// Resumes a followed file with the present content of the store. Items that were read before count as present.
    pub(in crate::intake) fn resume(
        &mut self,
        known: StoredSession,
        most: BatchLimit,
        batches: mpsc::Sender<Batch>,
    ) {
        let Report { path, session, read, .. } = self.report.clone();
        self.report = Report { read, present: read, ..Report::new(path, session) };
        (self.batch, self.batches) = (BatchBuffer::new(most), batches);
        for owner in &mut self.owners {
            if let Some((base, below)) = known.bases.get(&owner.start.session) {
                (owner.base, owner.below) = (Some(*base), *below);
            }
        }
        self.take_up(known);
    }
}

/// A copy knows the same of the file so far, to go on from when it has grown. What is to be committed, and what the store has,
/// stays with the first.
impl Clone for NodeBuilder {
    fn clone(&self) -> Self {
        Self {
            agent: self.agent,
            report: self.report.clone(),
            known: StoredSession::default(),
            owners: self.owners.clone(),
            met: self.met.clone(),
            twins: HashMap::new(),
            others: self.others.clone(),
            nodes: self.nodes.clone(),
            tips: HashMap::new(),
            held: HashMap::new(),
            changed_tips: Vec::new(),
            waiting: self.waiting.clone(),
            last: self.last,
            end: self.end,
            batch: BatchBuffer::new(self.batch.limit()),
            // One that nobody takes from: or who commits would wait for more.
            batches: mpsc::channel(1).0,
            before: PriorTotals::default(),
            unfinished: false,
        }
    }
}
