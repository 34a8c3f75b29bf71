//! A commit as work of the writer.

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::chunks::{self, EncodedChunk, RecentChunks};
use super::commit::{CommitEffects, apply, check_spooled};
use super::failure::Outcome;
use super::writer::{DeferredWork, Job};
use crate::bulk::FileId;
use crate::{Commit, Durability, SpooledNodes, StoreError};

/// Blobs of a large commit: it stands in a transaction of its own, and the WAL may have become long after it.
pub(super) const LARGE: usize = 500;

/// A commit on its way.
pub(super) struct CommitJob {
    commit: Commit,
    /// What the store's file is, unless it is in memory.
    file: Option<FileId>,
    chunks: Vec<EncodedChunk>,
    applied: CommitEffects,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

impl CommitJob {
    pub(super) fn new(
        commit: Commit,
        file: Option<FileId>,
        answer: oneshot::Sender<Result<(), StoreError>>,
    ) -> Self {
        Self { commit, file, chunks: Vec::new(), applied: CommitEffects::default(), answer }
    }
}

impl Job for CommitJob {
    fn durability(&self) -> Durability {
        self.commit.durability
    }

    fn is_large(&self) -> bool {
        self.commit.spooled.is_some() || self.commit.blobs.len() >= LARGE
    }

    fn prepare(&mut self, connection: &Connection, recent: &mut RecentChunks) -> Outcome<()> {
        if let Some(spooled) = &self.commit.spooled {
            check_spooled(connection, spooled, self.file)?;
        }
        self.chunks = chunks::encode(connection, &self.commit.chunks, recent)?;
        Ok(())
    }

    fn run(&mut self, connection: &Connection) -> Outcome<()> {
        self.applied = apply(connection, &self.commit, &self.chunks)?;
        Ok(())
    }

    fn left(&mut self) -> DeferredWork {
        let spooled = self.commit.spooled.as_ref().map_or(0, SpooledNodes::count);
        let CommitEffects { moves, hints, seqs } = std::mem::take(&mut self.applied);
        let nodes = self.commit.nodes.len() + spooled;
        // One that is large is not run again with others, so that they are not needed here any more.
        let at_hand = match self.is_large() {
            true => {
                let nodes = seqs.into_iter().zip(std::mem::take(&mut self.commit.nodes));
                nodes.filter(|(seq, _)| *seq > 0).collect()
            }
            false => Vec::new(),
        };
        DeferredWork { nodes, moves, hints: hints.into_iter().collect(), at_hand }
    }

    fn finish(self: Box<Self>, result: Result<(), StoreError>) {
        if let (Ok(()), Some(spooled), Some(file)) = (&result, &self.commit.spooled, self.file) {
            spooled.blobs_are_in(file, self.commit.blobs.len());
        }
        self.answer.send(result).ok();
    }
}
