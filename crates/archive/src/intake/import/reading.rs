//! The sessions of one file, read on one thread.
//!
//! An allocator keeps for a thread what was allocated there and freed elsewhere, until the thread allocates again. On a
//! thread of the pool for each session, each thread would keep what a few sessions took.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_seal::Sealer;
use tokio::sync::oneshot;

use super::super::place::{Placed, Placer, Rest, Stop};
use super::super::{Outline, Sessions};
use crate::ArchiveError;

/// The sessions, also for who asks beside the thread.
pub(super) type Shared = Arc<Mutex<Box<dyn Sessions>>>;

pub(super) fn lock(sessions: &Shared) -> MutexGuard<'_, Box<dyn Sessions>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of a session, and what the next one is about; or why it cannot be read, with what did not go to the store yet.
type Read = Result<(Placed, Result<Option<Outline>, ArchiveError>), (Stop, Box<Rest>)>;

/// The thread. It ends when this is dropped and the session that it reads is read.
pub(super) struct Reading(Sender<(Placer, oneshot::Sender<Read>)>);

impl Reading {
    pub(super) fn begin(sessions: &Shared, sealer: &Arc<Sealer>) -> Self {
        let (asked, placers) = channel::<(Placer, oneshot::Sender<Read>)>();
        let (sessions, sealer) = (Arc::clone(sessions), Arc::clone(sealer));
        let read = move |mut placer: Placer| {
            let read = lock(&sessions).read(&sealer, &mut placer);
            if let Err(stop) = read {
                return Err((stop, Box::new(placer.into_rest())));
            }
            // It fails where nobody takes what was read.
            let placed = placer.end().map_err(|stop| (stop, Box::default()))?;
            Ok((placed, lock(&sessions).next()))
        };
        tokio::task::spawn_blocking(move || {
            for (placer, answer) in placers {
                // Nobody waits for it when the import was stopped.
                drop(answer.send(read(placer)));
            }
        });
        Self(asked)
    }

    /// Reads the session that is next, and goes to the one after it.
    pub(super) async fn next(&self, placer: Placer) -> Result<Read, ArchiveError> {
        let (answer, read) = oneshot::channel();
        let asked = self.0.send((placer, answer));
        let ended = || ArchiveError::Fault("the thread that read its sessions ended".into());
        asked.map_err(|_| ended())?;
        read.await.map_err(|_| ended())
    }
}
