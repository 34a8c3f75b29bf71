//! What was read of a file goes into the store while more of it is read.

use std::sync::{Arc, Mutex, PoisonError};

use quipu_store::{Bulk, Commit, Extent, Graph, Portion, SessionQuery, Window};
use tokio::sync::{mpsc, watch};

use crate::{ArchiveError, ImportOptions, Progress};

/// Files of fewer bytes are committed batch by batch: nothing is gained by gathering so few.
const LARGE: u64 = 16 << 20;

/// How much is committed together, about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    nodes: usize,
    bytes: usize,
    /// Nodes of the next one: the first are few, and of fewer bytes, so that writing begins at once.
    now: usize,
}

impl Most {
    /// What suits a file of this size: a large one's batches are gathered, and several of them are there at once.
    pub(crate) fn of(total: u64) -> Self {
        if total < LARGE {
            Self { nodes: 2_400, bytes: 5 << 20, now: 500 }
        } else {
            Self { nodes: 500, bytes: 1 << 20, now: 500 }
        }
    }

    /// After so many batches of a file.
    pub(crate) fn after(self, batches: u64) -> Self {
        let doublings = u32::try_from(batches.min(8)).unwrap_or_default();
        Self { now: self.now.saturating_mul(1 << doublings).min(self.nodes), ..self }
    }

    /// Whether a commit of so many bytes is enough.
    pub(crate) fn is_reached(self, commit: &Commit, bytes: usize) -> bool {
        commit.nodes.len() >= self.now || bytes >= self.bytes * self.now / self.nodes
    }
}

/// What is to be committed together.
pub(crate) struct Batch {
    pub(crate) commit: Commit,
    /// Bytes of the file up to here.
    pub(crate) bytes: u64,
    /// Entries of the file up to here.
    pub(crate) entries: u64,
}

/// Where batches of a file of this size wait to be written, one of a small file's: what is read ahead takes the time of who
/// writes.
pub(crate) fn waiting(total: u64) -> (mpsc::Sender<Batch>, mpsc::Receiver<Batch>) {
    mpsc::channel(if total < LARGE { 1 } else { 2 })
}

/// What becomes of a window.
enum Piece {
    /// To be committed, and how many bytes of the file are in the store then.
    Commit(Commit, u64),
    /// So many batches are committed.
    End(u64),
}

/// Commits batches in the order in which they come. `total` is the size of the file; a large one's batches are gathered
/// first, so that as many keys as possible fall on each page of an index.
pub(crate) async fn commit_all(
    store: &dyn Graph,
    batches: mpsc::Receiver<Batch>,
    total: u64,
    options: &ImportOptions<'_>,
) -> Result<(), ArchiveError> {
    commit_after(0, store, batches, total, &watch::Sender::new(0), options).await
}

/// The same after the first bytes of a file. `committed` is told how many batches are.
pub(crate) async fn commit_after(
    begun: u64,
    store: &dyn Graph,
    mut batches: mpsc::Receiver<Batch>,
    total: u64,
    committed: &watch::Sender<u64>,
    options: &ImportOptions<'_>,
) -> Result<(), ArchiveError> {
    let at = Mutex::new(Progress { bytes: begun, stored: begun, total, entries: 0 });
    let tell = |change: &dyn Fn(&mut Progress)| {
        let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut at);
        at.total = at.total.max(at.bytes);
        let now = *at;
        drop(at);
        (options.progress)(now);
    };
    if options.dry_run || total < LARGE {
        while let Some(batch) = batches.recv().await {
            if !options.dry_run {
                store.commit(batch.commit).await?;
            }
            tell(&|at| (at.bytes, at.stored, at.entries) = (batch.bytes, batch.bytes, batch.entries));
            committed.send_modify(|count| *count += 1);
        }
        return Ok(());
    }
    // One window is written while the next one is gathered, and no more: each takes memory.
    let (full, mut windows) = mpsc::channel::<(Window, u64, u64)>(1);
    let gather = async {
        let mut bulk = Bulk::new(Extent::of(store).await?);
        let (mut bytes, mut count) = (begun, 0);
        // Room first, so that no third one is begun while two are there.
        while let Ok(room) = full.reserve().await {
            let window = loop {
                let Some(batch) = batches.recv().await else { break bulk.end() };
                bytes = batch.bytes;
                count += 1;
                tell(&|at| (at.bytes, at.entries) = (batch.bytes, batch.entries));
                let added;
                (bulk, added) = off_the_runtime(move || {
                    let added = bulk.add(batch.commit);
                    (bulk, added)
                })
                .await?;
                if let Some(window) = added? {
                    break Some(window);
                }
            };
            match window {
                Some(window) => room.send((window, bytes, count)),
                None => break,
            }
        }
        drop(full);
        Ok::<_, ArchiveError>(())
    };
    // A commit is made ready while the one before it is written, also that of the next window: what a window begins with
    // takes a while to be put in order.
    let (ready, mut pieces) = mpsc::channel::<Piece>(1);
    let prepare = async {
        let mut before = begun;
        while let Some((mut window, bytes, count)) = windows.recv().await {
            // Room first: of two that wait, each would take memory.
            while let Ok(room) = ready.reserve().await {
                let piece;
                (window, piece) = off_the_runtime(move || {
                    let piece = window.piece();
                    (window, piece)
                })
                .await?;
                let Some(Portion { commit, done }) = piece? else {
                    room.send(Piece::End(count));
                    break;
                };
                room.send(Piece::Commit(commit, before + (bytes - before).saturating_mul(done) / 1_000));
            }
            before = bytes;
        }
        drop(ready);
        Ok::<_, ArchiveError>(())
    };
    let write = async {
        while let Some(piece) = pieces.recv().await {
            match piece {
                Piece::Commit(commit, stored) => {
                    store.commit(commit).await?;
                    tell(&|at| at.stored = stored);
                }
                Piece::End(count) => drop(committed.send_replace(count)),
            }
        }
        Ok(())
    };
    tokio::try_join!(gather, prepare, write)?;
    // Rows that the last window left to be derived: or whoever reads next would wait for them.
    store.sessions(SessionQuery { limit: Some(1), ..SessionQuery::default() }).await?;
    Ok(())
}

pub(crate) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ArchiveError> {
    // Behind a pointer, the task of the runtime is compiled once, not for each work.
    let answer = Arc::new(Mutex::new(None));
    let place = Arc::clone(&answer);
    let work: Box<dyn FnOnce() + Send> =
        Box::new(move || *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(work()));
    tokio::task::spawn_blocking(work).await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer.ok_or_else(|| ArchiveError::Fault("a background task returned no result".into()))
}
