//! A file into the graph.

mod again;
mod reading;
mod refs;

use std::collections::HashSet;
use std::fs::File;
use std::io::Seek as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::fcntl::OFlag;
use quipu_protocol::{ChunkId, SessionId};
use quipu_seal::Sealer;
use quipu_store::{Graph, SessionQuery, StoreError};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};

use self::again::Taken;
use self::reading::{Reading, lock};
use super::known::Known;
use super::lines::At;
use super::place::{Before, Placed, Placer, Rest, Stop};
use super::{DatabaseFormat, Format, SealedLines, Watched};
use crate::batches::{Batch, Most, commit_after, commit_all, off_the_runtime, waiting};
use crate::lineages::main_ref;
use crate::seen::{Mark, Seen, unchanged};
use crate::stamp::{Stamp, hash_of_first};
use crate::{ArchiveError, ImportOptions, Report};

/// A file that nobody has written to for so long is not followed before somebody does.
const LIVE: Duration = Duration::from_secs(3_600);

/// Sessions of one file whose refs are moved together at most.
const TOGETHER: usize = 256;

/// Files that follow each other at most.
const DEEPEST: usize = 64;

/// Imports one file, and before it those that it goes on from; the report of each, the file's own last.
pub(crate) async fn import(
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    format: &'static Format,
    path: &Path,
    seen: &Seen,
    options: &ImportOptions<'_>,
) -> Result<Vec<Report>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "found", source };
    let path = std::path::absolute(path).map_err(fail)?;
    let one = One { store, sealer, agent: format.agent, seen, options };
    let mut reports = Vec::new();
    one.with_those_before(format, path, &mut Vec::new(), &mut reports).await?;
    Ok(reports)
}

/// Imports all sessions of a file that holds many; the report of each, and last that of the file where it has one.
pub(crate) async fn import_database(
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    format: &'static DatabaseFormat,
    path: &Path,
    seen: &Seen,
    options: &ImportOptions<'_>,
) -> Result<Vec<Report>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "found", source };
    let path = std::path::absolute(path).map_err(fail)?;
    let one = One { store, sealer, agent: format.agent, seen, options };
    one.database(format, &path).await
}

/// What does not change from file to file.
struct One<'a> {
    store: &'a Arc<dyn Graph>,
    sealer: &'a Arc<Sealer>,
    agent: &'static str,
    seen: &'a Seen,
    options: &'a ImportOptions<'a>,
}

impl One<'_> {
    fn with_those_before<'a>(
        &'a self,
        format: &'static Format,
        path: PathBuf,
        open: &'a mut Vec<PathBuf>,
        reports: &'a mut Vec<Report>,
    ) -> Pin<Box<dyn Future<Output = Result<(), ArchiveError>> + Send + 'a>> {
        Box::pin(async move {
            let file = open_file(&path)?;
            let mark = self.seen.of(self.agent, &path);
            if let Some(report) = unchanged(&**self.store, mark, &file, self.options.dry_run).await? {
                reports.push(report);
                return Ok(());
            }
            let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
            let stamp = Stamp::of(&file.metadata().map_err(fail)?);
            if let Some(going) = self.seen.take(&path)
                && let Some(report) = self.go_on(going, &path, &file, stamp, mark).await?
            {
                reports.push(report);
                return Ok(());
            }
            (&file).rewind().map_err(fail)?;
            let settled = stamp.settled(crate::seen::now());
            let (total, again) = (stamp.bytes, file.try_clone().map_err(fail)?);
            let outline = format.outline;
            let owned = path.clone();
            let (mut file, outline) = off_the_runtime(move || {
                let mut file = file;
                outline(&mut file, &owned).map(|outline| (file, outline))
            })
            .await??;
            file.rewind().map_err(fail)?;
            for before in &outline.before {
                if open.len() < DEEPEST && *before != path && !open.contains(before) {
                    open.push(path.clone());
                    // What the other file is does not decide over this one.
                    let done = self.with_those_before(format, before.clone(), open, reports).await;
                    open.pop();
                    if let Err(error @ ArchiveError::Store(_)) = done {
                        return Err(error);
                    }
                }
            }
            let mut lines = SealedLines::new(file, total, Arc::clone(self.sealer));
            if self.is_followed() && outline.idle < LIVE {
                lines.keep();
            }
            let total = lines.total();
            let read = format.read;
            let about = outline.clone();
            let known = Known::load(&**self.store, self.agent, &outline).await?;
            let (agent, report) = (self.agent, Report::new(path.clone(), outline.session.clone()));
            let taken = self.place(&path, total, move |sender| {
                let placer = Placer::new(agent, report, known, Most::of(total), Before::default(), sender);
                let done = read(&mut lines, &about, placer)?;
                Taken::of(done, lines)
            });
            let taken = taken.await?;
            let kept = again.try_clone().map_err(fail)?;
            let after = Stamp::of(&again.metadata().map_err(fail)?);
            if after != stamp {
                let (bytes, sha256, owned) = (taken.end.bytes, taken.end.sha256(), path.clone());
                let outline = outline.clone();
                let is_still_there = move || {
                    let mut file = again;
                    let is_same = hash_of_first(file.try_clone()?, bytes)? == sha256;
                    file.rewind()?;
                    let now = (format.outline)(&mut file, &owned);
                    Ok::<_, std::io::Error>(is_same && now.is_ok_and(|now| now.is_like(&outline)))
                };
                // Mostly it has grown: then what was read is still there.
                if after.bytes < stamp.bytes || !off_the_runtime(is_still_there).await?.map_err(fail)? {
                    return Err(ArchiveError::Changed { path });
                }
            }
            let settled = settled.filter(|stamp| *stamp == after);
            reports
                .push(self.end(taken, &path, (kept, stamp), (At::default(), outline), mark, settled).await?);
            Ok(())
        })
    }

    /// All sessions of a file that holds many.
    async fn database(
        &self,
        format: &'static DatabaseFormat,
        path: &Path,
    ) -> Result<Vec<Report>, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
        if !path.is_dir() {
            drop(open_file(path)?);
        }
        let (bytes, sha256) = stamp(path).map_err(fail)?;
        if let Some(mark) = self.seen.of(self.agent, path)
            && (mark.bytes, mark.sha256) == (bytes, sha256)
            && let Some(head) = self.store.head(&main_ref(self.agent, &mark.session)).await?
        {
            let mut report = Report::new(path.to_owned(), mark.session.clone());
            (report.bytes, report.unchanged, report.head) = (bytes, true, Some(head));
            return Ok(vec![report]);
        }
        let owned = path.to_owned();
        let (open, sealer) = (format.open, Arc::clone(self.sealer));
        let watched = match self.is_followed() {
            true => Watched::Yes(self.seen.take(path)),
            false => Watched::No,
        };
        let (sessions, mut next) = off_the_runtime(move || {
            let mut sessions = open(&owned, watched, &sealer)?;
            let next = sessions.next()?;
            Ok::<_, ArchiveError>((Arc::new(Mutex::new(sessions)), next))
        })
        .await??;
        let reading = Reading::begin(&sessions, self.sealer);
        let total = match lock(&sessions).bytes() {
            0 => bytes,
            total => total,
        };
        let mut stored = Stored::load(&**self.store).await?;
        let mut reports: Vec<Report> = Vec::new();
        let (mut before, mut whole) = (Before::default(), true);
        let mut unfinished: HashSet<SessionId> = HashSet::new();
        while next.is_some() {
            // Sessions are read one after the other while those before them are committed, up to one that needs to see
            // what the store has of them.
            let begun = Before { batches: 0, ..before };
            let (sender, batches) = waiting(total);
            let (ended, mut placed) = mpsc::unbounded_channel::<Placed>();
            let (count, mut committed) = watch::channel(0);
            let commit = async {
                // Who waits for it hears when it ends.
                let count = count;
                commit_after(begun.bytes, &**self.store, batches, total, &count, self.options).await
            };
            let mut last: Option<Placed> = None;
            let read = async {
                let (sender, ended) = (sender, ended);
                let (mut at, mut rest) = (begun, Rest::default());
                let mut underway: HashSet<SessionId> = HashSet::new();
                let all = async {
                    while let Some(outline) = next.take() {
                        let is_apart = outline.related.is_empty() && outline.first.is_none();
                        if !underway.is_empty() && (!is_apart || underway.contains(&outline.session)) {
                            next = Some(outline);
                            break;
                        }
                        let known = match is_apart && !stored.has(&outline.session) {
                            true => Known::default(),
                            false => Known::load(&**self.store, self.agent, &outline).await?,
                        };
                        let report = Report::new(path.to_owned(), outline.session);
                        let placer =
                            Placer::new(self.agent, report, known, Most::of(total), at, sender.clone());
                        let one = reading.next(placer.with(std::mem::take(&mut rest))).await?;
                        let (mut one, following) = one.map_err(|(stop, left)| {
                            rest = *left;
                            stopped(path, stop)
                        })?;
                        (at, rest) = (one.before, std::mem::take(&mut one.rest));
                        whole &= !one.unfinished;
                        if one.unfinished {
                            unfinished.insert(one.report.session.clone());
                        }
                        underway.extend(one.sessions.iter().cloned());
                        stored.0.extend(one.sessions.iter().cloned());
                        if let Some(done) = last.replace(one) {
                            // What finishes it ends early only where the store fails, which is told there.
                            drop(ended.send(done));
                        }
                        next = following?;
                    }
                    Ok::<_, ArchiveError>(())
                };
                let read = all.await;
                // Also of those before one that cannot be read. Who takes no more says why.
                drop(sender.send(rest.batch(at)).await);
                before = at;
                read
            };
            let finish = async {
                let (mut reports, mut later) = (Vec::new(), None);
                loop {
                    let done = if later.is_some() { later.take() } else { placed.recv().await };
                    let Some(done) = done else { break };
                    let batches = match committed.wait_for(|count| *count > done.before.batches).await {
                        Ok(count) => *count,
                        Err(_) => break,
                    };
                    let mut all = vec![done];
                    while all.len() < TOGETHER
                        && let Ok(done) = placed.try_recv()
                    {
                        if done.before.batches >= batches {
                            later = Some(done);
                            break;
                        }
                        all.push(done);
                    }
                    reports.extend(self.finish_all(all).await?);
                }
                Ok::<_, ArchiveError>(reports)
            };
            let (read, done, finished) = tokio::join!(read, commit, finish);
            done?;
            reports.extend(finished?);
            let is_end = read.is_ok() && next.is_none();
            let rest = if is_end { lock(&sessions).end() } else { None };
            whole &= rest.as_ref().is_none_or(|rest| rest.lost == 0);
            if let Some(last) = last {
                let session = last.report.session.clone();
                let note = Mark::new(self.agent, path, session, bytes, sha256);
                reports.push(
                    self.finish(last, (is_end && whole && !lock(&sessions).is_part()).then_some(note))
                        .await?,
                );
            }
            read?;
            reports.extend(rest);
        }
        if reports.is_empty()
            && let Some(rest) = lock(&sessions).end()
        {
            // Nothing of it could be read: that is no import.
            if let Some(problem) = rest.problems.first() {
                let what = format!("{} ({})", problem.kind.words(), problem.detail);
                return Err(fail(std::io::Error::other(what)));
            }
            reports.push(rest);
        }
        if self.is_followed()
            && let Some(remembered) = lock(&sessions).remember(&unfinished)
        {
            self.seen.keep(path, remembered);
        }
        Ok(reports)
    }

    /// Reads one session and commits its nodes.
    async fn place(
        &self,
        path: &Path,
        total: u64,
        read: impl FnOnce(mpsc::Sender<Batch>) -> Result<Taken, Stop> + Send + 'static,
    ) -> Result<Taken, ArchiveError> {
        let (sender, batches) = waiting(total);
        let reader = tokio::task::spawn_blocking(move || read(sender));
        let committed = commit_all(&**self.store, batches, total, self.options).await;
        let done = reader.await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
        committed?;
        done.map_err(|stop| stopped(path, stop))
    }
}

/// Sessions of the store, and those that they go on from.
struct Stored(HashSet<SessionId>);

impl Stored {
    async fn load(store: &dyn Graph) -> Result<Self, StoreError> {
        let rows = store.sessions(SessionQuery::default()).await?;
        Ok(Self(rows.into_iter().flat_map(|row| std::iter::once(row.id).chain(row.parent)).collect()))
    }

    fn has(&self, session: &SessionId) -> bool {
        self.0.contains(session)
    }
}

fn stopped(path: &Path, stop: Stop) -> ArchiveError {
    match stop {
        Stop::Io(source) => ArchiveError::File { path: path.to_owned(), doing: "read", source },
        Stop::Closed => ArchiveError::Fault("the receiver of the imported data ended".into()),
    }
}

/// Opens a regular file, and nothing that could be waited for.
pub(crate) fn open_file(path: &Path) -> Result<File, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "opened", source };
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(ArchiveError::NotASession {
            path: path.to_owned(),
            why: "it is not a regular file, but a directory, a pipe or a device",
        });
    }
    Ok(file)
}

/// What tells whether a database has changed: its size and that of its log, and when they were written; of a folder those of all
/// JSON files in it.
pub(crate) fn stamp(path: &Path) -> std::io::Result<(u64, ChunkId)> {
    let mut bytes = 0;
    let mut hash = Sha256::new();
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let files = match path.is_dir() {
        true => crate::found::files_with(path, &["json"]).map(|found| found.files).unwrap_or_default(),
        false => vec![path.to_owned(), log.into()],
    };
    for file in files {
        let data = match std::fs::metadata(file) {
            Ok(data) => data,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let written = data.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes += data.len();
        hash.update(format!("{} {}\n", data.len(), written.as_nanos()));
    }
    Ok((bytes, ChunkId(hash.finalize().into())))
}
