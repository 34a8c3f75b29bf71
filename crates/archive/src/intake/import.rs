//! A file into the graph.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use nix::fcntl::OFlag;
use quipu_protocol::{ChunkId, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Action, Commit, RefMove, Store, StoreError};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::known::Known;
use super::place::{Batch, Placed, Placer, Stop};
use super::seen::{IMPORTED, Mark, Marks};
use super::{Format, SealedLines};
use crate::lineages::main_ref;
use crate::{ArchiveError, ImportOptions, Progress, Report};

/// Files that follow each other at most.
const DEEPEST: usize = 64;

/// Imports one file, and before it those that it goes on from; the report of each, the file's own last.
pub(crate) async fn import(
    store: &Arc<dyn Store>,
    sealer: &Arc<Sealer>,
    format: &'static Format,
    path: &Path,
    marks: &Marks,
    options: &ImportOptions<'_>,
) -> Result<Vec<Report>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "found", source };
    let path = std::path::absolute(path).map_err(fail)?;
    let one = One { store, sealer, format, marks, options };
    let mut reports = Vec::new();
    one.with_those_before(path, &mut Vec::new(), &mut reports).await?;
    Ok(reports)
}

/// What does not change from file to file.
struct One<'a> {
    store: &'a Arc<dyn Store>,
    sealer: &'a Arc<Sealer>,
    format: &'static Format,
    marks: &'a Marks,
    options: &'a ImportOptions<'a>,
}

impl One<'_> {
    fn with_those_before<'a>(
        &'a self,
        path: PathBuf,
        open: &'a mut Vec<PathBuf>,
        reports: &'a mut Vec<Report>,
    ) -> Pin<Box<dyn Future<Output = Result<(), ArchiveError>> + Send + 'a>> {
        Box::pin(async move {
            let mut file = open_file(&path)?;
            let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
            let total = file.metadata().map_err(fail)?.len();
            if let Some(mark) = self.marks.of(self.format.agent, &path)
                && mark.bytes == total
                && let Some(head) = self.store.head(&main_ref(self.format.agent, &mark.session)).await?
            {
                let (returned, hash) = off_the_runtime(move || hash_of(file)).await?.map_err(fail)?;
                if hash == mark.sha256 {
                    let mut report = Report::new(path.clone(), mark.session.clone());
                    (report.bytes, report.unchanged, report.head) = (total, true, Some(head));
                    reports.push(report);
                    return Ok(());
                }
                file = returned;
            }
            let outline = self.format.outline;
            let owned = path.clone();
            let (mut file, outline) =
                off_the_runtime(move || outline(&mut file, &owned).map(|outline| (file, outline))).await??;
            file.rewind().map_err(fail)?;
            for before in &outline.before {
                if open.len() < DEEPEST && *before != path && !open.contains(before) {
                    open.push(path.clone());
                    // What the other file is does not decide over this one.
                    let done = self.with_those_before(before.clone(), open, reports).await;
                    open.pop();
                    if let Err(error @ ArchiveError::Store(_)) = done {
                        return Err(error);
                    }
                }
            }
            let known = Known::load(&**self.store, self.format.agent, &outline).await?;
            let (sender, batches) = mpsc::channel::<Batch>(2);
            let report = Report::new(path.clone(), outline.session.clone());
            let mut placer = Placer::new(self.format.agent, report, known, sender);
            let mut lines = SealedLines::new(file, Arc::clone(self.sealer));
            let read = self.format.read;
            let reader = tokio::task::spawn_blocking(move || {
                read(&mut lines, &outline, &mut placer)?;
                Ok::<_, Stop>((placer.end()?, lines.end()))
            });
            let committed = self.commit(batches, total).await;
            let done = reader.await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
            committed?;
            let (placed, (sha256, whole)) = match done {
                Ok(done) => done,
                Err(Stop::Io(source)) => return Err(fail(source)),
                Err(Stop::Closed) => return Err(ArchiveError::Fault("nobody took what was read".into())),
            };
            let whole = whole && !placed.unfinished;
            let bytes = placed.report.bytes;
            let session = placed.report.session.clone();
            let note = Mark { format: self.format.agent.into(), path: path.clone(), session, bytes, sha256 };
            let note = (whole && self.marks.of(self.format.agent, &path) != Some(&note)).then_some(note);
            reports.push(self.finish(placed, note).await?);
            Ok(())
        })
    }

    async fn commit(&self, mut batches: mpsc::Receiver<Batch>, total: u64) -> Result<(), StoreError> {
        while let Some(batch) = batches.recv().await {
            if !self.options.dry_run {
                self.store.commit(batch.commit).await?;
            }
            (self.options.progress)(Progress {
                bytes: batch.bytes,
                total: total.max(batch.bytes),
                entries: batch.entries,
            });
        }
        Ok(())
    }

    /// Moves the session's ref, and notes what was imported.
    async fn finish(&self, placed: Placed, note: Option<Mark>) -> Result<Report, ArchiveError> {
        let Placed { mut report, last, nodes, .. } = placed;
        if self.options.dry_run {
            report.head = self.store.head(&main_ref(self.format.agent, &report.session)).await?;
            return Ok(report);
        }
        if let Some(last) = last {
            report.head = Some(self.move_main(&report.session, last, &nodes, note).await?);
        }
        Ok(report)
    }

    /// The session's own ref: at the last item of the file, unless the store has one that the file does not know and
    /// that is later.
    async fn move_main(
        &self,
        session: &SessionId,
        last: (UnixMs, NodeId),
        nodes: &HashSet<NodeId>,
        note: Option<Mark>,
    ) -> Result<NodeId, ArchiveError> {
        let name = main_ref(self.format.agent, session);
        loop {
            let found = self.store.head(&name).await?;
            let current = match found.filter(|node| !nodes.contains(node)) {
                None => None,
                Some(node) => {
                    let nodes = self.store.nodes(&[node]).await?;
                    nodes.into_iter().flatten().next().map(|node| (node.record.timestamp, node.id))
                }
            };
            let head = current.filter(|current| *current > last).unwrap_or(last).1;
            let stays = found == Some(head);
            if stays && note.is_none() {
                return Ok(head);
            }
            let mut batch = Commit::default();
            if !stays {
                batch.moves.push(RefMove::swap(name.clone(), found, head, "import"));
            }
            if let Some(note) = &note {
                let now =
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                batch.actions.push(Action {
                    timestamp: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
                    kind: IMPORTED.into(),
                    from: found,
                    to: Some(head),
                    metadata: serde_json::to_string(note).ok(),
                });
            }
            match self.store.commit(batch).await {
                Ok(()) => return Ok(head),
                // Another import was faster: whose item is later is looked at again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ArchiveError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ArchiveError::Fault(error.to_string()))
}

/// Opens a regular file, and nothing that could be waited for.
fn open_file(path: &Path) -> Result<File, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "opened", source };
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(ArchiveError::NotASession { path: path.to_owned(), why: "it is no regular file" });
    }
    Ok(file)
}

fn hash_of(mut file: File) -> std::io::Result<(File, ChunkId)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    file.rewind()?;
    Ok((file, ChunkId(hash.finalize().into())))
}
