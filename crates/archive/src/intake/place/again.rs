//! A file that is followed: what is known of it up to a line, to go on from there.

use std::collections::HashMap;

use quipu_store::Commit;
use tokio::sync::mpsc;

use super::{Before, Known, Placer};
use crate::Report;
use crate::batches::{Batch, Most};

impl Placer {
    /// Goes on with a file that is followed, with what the store has by now. What was read before counts as present.
    pub(in crate::intake) fn go_on(&mut self, known: Known, most: Most, batches: mpsc::Sender<Batch>) {
        let Report { path, session, read, .. } = self.report.clone();
        self.report = Report { read, present: read, ..Report::new(path, session) };
        (self.most, self.batches) = (most, batches);
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
impl Clone for Placer {
    fn clone(&self) -> Self {
        Self {
            agent: self.agent,
            report: self.report.clone(),
            known: Known::default(),
            owners: self.owners.clone(),
            met: self.met.clone(),
            twins: HashMap::new(),
            others: self.others.clone(),
            nodes: self.nodes.clone(),
            tips: HashMap::new(),
            held: HashMap::new(),
            turned: Vec::new(),
            waiting: self.waiting.clone(),
            waiting_bytes: self.waiting_bytes,
            last: self.last,
            end: self.end,
            batch: Commit::default(),
            batch_bytes: 0,
            most: self.most,
            // One that nobody takes from: or who commits would wait for more.
            batches: mpsc::channel(1).0,
            before: Before::default(),
            unfinished: false,
        }
    }
}
