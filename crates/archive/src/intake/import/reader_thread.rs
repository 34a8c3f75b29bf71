//! The sessions of one file, read on one thread.
//!
//! An allocator keeps for a thread what was allocated there and freed elsewhere, until the thread allocates again. On a
//! thread of the pool for each session, each thread would keep what a few sessions took.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_seal::Sealer;
use tokio::sync::oneshot;

use super::super::node_builder::{BuiltSession, NodeBuilder, Stop};
use super::super::{Outline, Sessions};
use crate::ArchiveError;
use crate::batches::PartialBatch;

/// The sessions, also for who asks beside the thread.
pub(super) type SharedSessions = Arc<Mutex<Box<dyn Sessions>>>;

pub(super) fn lock(sessions: &SharedSessions) -> MutexGuard<'_, Box<dyn Sessions>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of a session, and what the next one is about; or why it cannot be read, with what did not go to the store yet.
type Read = Result<(BuiltSession, Result<Option<Outline>, ArchiveError>), (Stop, Box<PartialBatch>)>;

/// A thread that reads one session after the other. It ends when this handle is dropped and the current session is read.
pub(super) struct ReaderThread(Sender<(NodeBuilder, oneshot::Sender<Read>)>);

impl ReaderThread {
    pub(super) fn begin(sessions: &SharedSessions, sealer: &Arc<Sealer>) -> Self {
        let (asked, builders) = channel::<(NodeBuilder, oneshot::Sender<Read>)>();
        let (sessions, sealer) = (Arc::clone(sessions), Arc::clone(sealer));
        let read = move |mut builder: NodeBuilder| {
            let read = lock(&sessions).read(&sealer, &mut builder);
            if let Err(stop) = read {
                return Err((stop, Box::new(builder.into_rest())));
            }
            // It fails where nobody takes what was read.
            let placed = builder.end().map_err(|stop| (stop, Box::default()))?;
            Ok((placed, lock(&sessions).next()))
        };
        tokio::task::spawn_blocking(move || {
            for (builder, answer) in builders {
                // Nobody waits for it when the import was stopped.
                drop(answer.send(read(builder)));
            }
        });
        Self(asked)
    }

    /// Reads the session that is next, and goes to the one after it.
    pub(super) async fn next(&self, builder: NodeBuilder) -> Result<Read, ArchiveError> {
        let (answer, read) = oneshot::channel();
        let asked = self.0.send((builder, answer));
        let ended = || ArchiveError::Fault("the thread that read its sessions has ended".into());
        asked.map_err(|_| ended())?;
        read.await.map_err(|_| ended())
    }
}
