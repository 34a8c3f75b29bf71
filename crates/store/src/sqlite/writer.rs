//! The thread that writes.
//!
//! It owns the only connection that may write. It takes everything that is queued and commits it as one
//! transaction; each piece of work stands in a savepoint of its own, so that one which is refused does not take
//! the others with it. A large one is a transaction by itself: SQLite keeps in memory how each page was before a
//! savepoint. Work that was queued is finished, whether or not anybody still waits for it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quipu_dag::Node;
use quipu_protocol::{ChunkId, NodeId};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::chunks::{self, RecentChunks};
use super::commit::{self, LoggedRefMove};
use super::connect::{self, Patience};
use super::failure::{Failure, Outcome, Place};
use super::index::NodeHint;
use super::search::{self, Prefetch};
use super::shared::{SharedMemory, Slot, lock};
use super::watch::{Names, Watch};
use super::{SearchIndex, Work, activity, file, index, places, recall};
use crate::{Durability, IndexBacklog, StoreError};

/// Pieces of work that may wait for the writer; more callers wait before they queue.
const QUEUE: usize = 256;
/// New nodes that may wait to be indexed, and moves for the log of refs: each commit would change a page of every
/// such table, a group changes hardly more. What waits is written in quiet moments, and by reads that need it.
const LAG: usize = 32;
/// Nodes that one commit indexes; the rest is left for the next, and for quiet moments.
const INDEX_STEP: usize = 256;
/// The same, where more are known to wait.
const INDEX_MOST: usize = 8_000;
/// Nodes that are indexed at once while nothing else is to do.
const INDEX_IDLE: usize = 2_000;
/// The WAL is emptied and cut when it is larger.
const WAL_LIMIT: u64 = 64 << 20;
/// How often the size of the WAL is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long text may wait to be indexed for the search while commits come without a pause.
const UNSEARCHED: Duration = Duration::from_millis(600);
/// Nodes whose activity is added in one transaction when the writer is idle.
const ACTIVITY_STEP: usize = 200;
/// Text that is indexed at once, in quiet moments: a commit that comes meanwhile waits for no more than this.
const SEARCH_STEP: search::Step =
    search::Step { words: 128 << 10, substrings: 32 << 10, nodes: 2_000, prefetch: 192 << 10 };

/// Work inside the writer's transaction. Run again, alone, when the transaction that it was part of fails.
pub(super) trait Job: Send {
    /// What it must survive.
    fn durability(&self) -> Durability;
    /// Whether it changes thousands of pages: then it is committed by itself.
    fn is_large(&self) -> bool {
        false
    }
    /// What takes time and needs no lock.
    fn prepare(&mut self, connection: &Connection, recent: &mut RecentChunks) -> Outcome<()>;
    /// The work.
    fn run(&mut self, connection: &Connection) -> Outcome<()>;
    /// What the work that was done left to be written.
    fn left(&mut self) -> DeferredWork {
        DeferredWork::default()
    }
    /// Told when the transaction is committed, or why there is nothing of it.
    fn finish(self: Box<Self>, result: Result<(), StoreError>);
}

/// What is written a few commits later: nothing that a crash could lose for good. Nodes are found again by their
/// numbers, and what a move of a ref did shows in the graph.
#[derive(Default)]
pub(super) struct DeferredWork {
    /// Nodes that are not indexed.
    pub(super) nodes: usize,
    /// For the log of refs.
    pub(super) moves: Vec<LoggedRefMove>,
    /// What some of the nodes mean, which else is read again.
    pub(super) hints: HashMap<NodeId, NodeHint>,
    /// Nodes of the transaction by their row numbers, which else are read again.
    pub(super) at_hand: Vec<(i64, Node)>,
}

impl DeferredWork {
    fn join(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.moves.extend(other.moves);
        self.hints.extend(other.hints);
        self.at_hand.extend(other.at_hand);
    }
}

/// Work that wants the connection for itself, outside any transaction.
pub(super) type ExclusiveWork = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

enum Task {
    Job(Box<dyn Job>, OwnedSemaphorePermit),
    Exclusive(ExclusiveWork, OwnedSemaphorePermit),
    /// A difference to this chunk will come.
    Base(ChunkId),
    /// Somebody began to wait for changes.
    Wake,
}

/// The handle to the writer's thread.
pub(super) struct Writer {
    tasks: Option<Sender<Task>>,
    room: Arc<Semaphore>,
    changes: watch::Sender<u64>,
    place: Place,
    in_place: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `connection` is opened again from `place` after errors of the disk, except in memory, where
    /// nothing is `shared`.
    pub(super) fn start(
        connection: Connection,
        place: Place,
        patience: Patience,
        shared: Option<Arc<SharedMemory>>,
        name: Arc<str>,
        search_index: SearchIndex,
    ) -> std::io::Result<Self> {
        let (tasks, queue) = channel();
        let in_place = Arc::new(AtomicBool::new(true));
        let changes = watch::Sender::new(0);
        let slot = shared.as_ref().map(|shared| shared.slot()).unwrap_or_default();
        *lock(&slot) = Some(connection);
        let state = State {
            connection: None,
            memory: shared.is_none(),
            shared,
            slot,
            rests: true,
            refused: None,
            in_place: Arc::clone(&in_place),
            recovered: None,
            watch: Watch::new(&place.path, place.identity),
            place: place.clone(),
            patience,
            name,
            left: DeferredWork::default(),
            behind: false,
            synchronous: None,
            recent: RecentChunks::default(),
            changes: changes.clone(),
            dirty: false,
            brisk: false,
            cools_at: None,
            search_index,
            unsearched: search_index == SearchIndex::Ahead,
            searching: false,
            searched: Instant::now(),
            seen: 0,
            looked: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("quipu-store-writer".to_owned())
            .spawn(move || state.serve(&queue))?;
        let room = Arc::new(Semaphore::new(QUEUE));
        Ok(Self { tasks: Some(tasks), room, changes, place, in_place, thread: Some(thread) })
    }

    /// Queues a piece of work; waits while the queue is full.
    pub(super) async fn submit(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        let permit = self.permit().await?;
        self.send(Task::Job(job, permit))
    }

    /// Runs work that wants the connection for itself.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.permit().await?;
        let (answer, result) = oneshot::channel();
        let place = self.place.clone();
        let work: ExclusiveWork = Box::new(move |connection| {
            let result = connection.and_then(|connection| guarded(&place, doing, || work(connection)));
            // Nobody waits any more: the work is done all the same.
            answer.send(result).ok();
        });
        self.send(Task::Exclusive(work, permit))?;
        result.await.map_err(|_| stopped(&self.place))?
    }

    /// Whether what was acknowledged is where the store was opened, as far as the last commit showed.
    pub(super) fn is_in_place(&self) -> bool {
        self.in_place.load(Ordering::Relaxed)
    }

    /// Counts up with every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        let changes = self.changes.subscribe();
        if let Some(tasks) = &self.tasks {
            // A writer that has stopped changes nothing any more; the receiver finds that out itself.
            tasks.send(Task::Wake).ok();
        }
        changes
    }

    /// Reads a chunk before the difference to it comes.
    pub(super) fn will_build_on(&self, base: ChunkId) {
        // Without it, the chunk is read when it is needed.
        self.send(Task::Base(base)).ok();
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        Arc::clone(&self.room).acquire_owned().await.map_err(|_| stopped(&self.place))
    }

    fn send(&self, task: Task) -> Result<(), StoreError> {
        let sent = self.tasks.as_ref().map(|tasks| tasks.send(task));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(stopped(&self.place)) }
    }
}

impl Drop for Writer {
    /// Waits until what is queued is committed.
    fn drop(&mut self) {
        self.tasks = None;
        join(self.thread.take());
    }
}

/// Waits for a thread to end, unless it is this one.
pub(super) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        // A panic in it was reported to whoever waited.
        thread.join().ok();
    }
}

struct State {
    /// While it is used.
    connection: Option<Connection>,
    shared: Option<Arc<SharedMemory>>,
    /// Where the connection rests while nothing is to do.
    slot: Slot,
    /// Whether one was left there, and not closed by the writer itself.
    rests: bool,
    /// Why there is none now.
    refused: Option<StoreError>,
    /// For whoever asks beside the queue.
    in_place: Arc<AtomicBool>,
    /// The file that was made when the store's own lost its name, or its WAL was cut short.
    recovered: Option<PathBuf>,
    watch: Watch,
    place: Place,
    patience: Patience,
    memory: bool,
    /// Who writes, for the log of refs.
    name: Arc<str>,
    left: DeferredWork,
    /// Whether there are many nodes to index, such as those of another program.
    behind: bool,
    synchronous: Option<Durability>,
    recent: RecentChunks,
    changes: watch::Sender<u64>,
    /// Whether the WAL holds commits that the file does not.
    dirty: bool,
    /// Whether the last work came soon after the one before it.
    brisk: bool,
    /// When memory is given back, where nothing is written until then.
    cools_at: Option<Instant>,
    search_index: SearchIndex,
    /// Whether there may be text that is not indexed for the search, which is to be done ahead.
    unsearched: bool,
    /// Whether such text is being indexed, in a quiet moment.
    searching: bool,
    /// When that was done last.
    searched: Instant,
    /// SQLite's counter of other connections' commits.
    seen: i64,
    /// When the size of the WAL was looked at last.
    looked: Instant,
}

impl State {
    fn serve(mut self, queue: &Receiver<Task>) {
        self.using(|state| {
            state.seen = state.data_version();
            // Knows the WAL by now, before anything is written to it.
            state.names();
            let lag = state.connection().map(|connection| places::lag(connection).unwrap_or(LAG));
            state.left.nodes = lag.unwrap_or_default().min(LAG);
            state.behind = state.left.nodes == LAG;
        });
        let mut next = None;
        loop {
            let task = match next.take() {
                Some(task) => task,
                None => match self.wait(queue) {
                    Some(task) => task,
                    None => {
                        return self.using(|state| {
                            state.write_left();
                            state.disconnect();
                        });
                    }
                },
            };
            self.using(|state| state.take_on(task, queue, &mut next));
        }
    }

    /// Does something with the connection, while the memory that it shares is in order.
    fn using<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let shared = self.shared.clone();
        let held = shared.as_ref().map(|shared| shared.hold()).transpose();
        self.connection = held.is_ok().then(|| lock(&self.slot).take()).flatten();
        self.refused = held.as_ref().err().cloned();
        if held.is_ok() && self.rests && self.connection.is_none() {
            // It was closed with all others: whoever was the last to leave since then removed the WAL, as it should.
            self.watch.closed();
        }
        let done = work(self);
        if held.is_ok() {
            self.rests |= self.connection.is_some();
            *lock(&self.slot) = self.connection.take();
        }
        done
    }

    fn take_on(&mut self, task: Task, queue: &Receiver<Task>, next: &mut Option<Task>) {
        match task {
            Task::Wake => {}
            Task::Base(id) => self.read_base(id),
            Task::Exclusive(work, permit) => {
                self.write_left();
                let place = self.place.clone();
                work(
                    self.connection()
                        .map(|connection| &*connection)
                        .map_err(|error| place.error("open", error)),
                );
                drop(permit);
            }
            Task::Job(job, permit) => {
                let most = if job.is_large() { 1 } else { QUEUE };
                let mut group = vec![(job, permit)];
                while group.len() < most {
                    match queue.try_recv() {
                        Ok(Task::Job(job, permit)) if job.is_large() => {
                            *next = Some(Task::Job(job, permit));
                            break;
                        }
                        Ok(Task::Job(job, permit)) => group.push((job, permit)),
                        Ok(Task::Wake) => {}
                        Ok(task @ (Task::Exclusive(..) | Task::Base(_))) => {
                            *next = Some(task);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                self.commit_group(group);
                if self.unsearched && self.searched.elapsed() > UNSEARCHED {
                    self.write_left();
                    self.search_step();
                }
                self.cut_log();
            }
        }
    }

    fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn data_version(&mut self) -> i64 {
        let version = self.connection().map(|connection| {
            connection.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap_or_default()
        });
        version.unwrap_or_default()
    }

    fn connection(&mut self) -> Outcome<&mut Connection> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone().into());
        }
        if self.connection.is_none() {
            let is_new = self.watch.is_new();
            // Beside our readers of the old file or WAL, this would mix them with the new.
            if let Some(error) = self.loss() {
                return Err(error.into());
            }
            self.synchronous = None;
            let connection = self.connection.insert(connect::read_write(&self.place.path, &self.patience)?);
            if is_new {
                // Whoever had the WAL open could remove it until here. Why a read fails, the next one says.
                drop(connect::probe(connection));
                self.watch.closed();
            }
            if let Some(shared) = &self.shared {
                shared.opened();
            }
        }
        self.connection.as_mut().ok_or_else(|| Failure::Missing("the connection".to_owned()))
    }

    fn commit_group(&mut self, group: Vec<(Box<dyn Job>, OwnedSemaphorePermit)>) {
        let mut ready = Vec::with_capacity(group.len());
        for (mut job, permit) in group {
            match self.prepare(&mut job) {
                Ok(()) => ready.push((job, permit)),
                Err(error) => job.finish(Err(error)),
            }
        }
        if ready.is_empty() {
            return;
        }
        let results = match self.attempt(ready.iter_mut().map(|(job, _)| job)) {
            Ok(results) => results,
            // A full disk, a fault or a damaged row may concern one of them: the others get their turn.
            Err(StoreError::Full { .. } | StoreError::Io { .. } | StoreError::Corrupt { .. })
                if ready.len() > 1 =>
            {
                ready.iter_mut().map(|(job, _)| self.attempt([job].into_iter()).and_then(one)).collect()
            }
            Err(error) => ready.iter().map(|_| Err(error.clone())).collect(),
        };
        if results.iter().any(Result::is_ok) {
            self.dirty = true;
            if !self.unsearched && self.search_index == SearchIndex::Ahead {
                self.unsearched = true;
                self.searched = Instant::now();
            }
            self.announce();
        }
        for ((job, permit), result) in ready.into_iter().zip(results) {
            job.finish(result);
            drop(permit);
        }
    }

    fn read_base(&mut self, id: ChunkId) {
        let mut recent = std::mem::take(&mut self.recent);
        if let Ok(connection) = self.connection() {
            chunks::read_base(connection, id, &mut recent);
        }
        self.recent = recent;
    }

    fn prepare(&mut self, job: &mut Box<dyn Job>) -> Result<(), StoreError> {
        let place = self.place.clone();
        let mut recent = std::mem::take(&mut self.recent);
        let prepared = self
            .connection()
            .map_err(|error| place.error("open", error))
            .and_then(|connection| guarded(&place, "write to", || job.prepare(connection, &mut recent)));
        self.recent = recent;
        match prepared {
            // What it read may be what is lost.
            Err(StoreError::Io { .. } | StoreError::Corrupt { .. }) if let Some(error) = self.loss() => {
                Err(error)
            }
            other => other,
        }
    }

    /// One transaction: what became of each job, or why there is nothing of any.
    fn attempt<'a>(
        &mut self,
        jobs: impl Iterator<Item = &'a mut Box<dyn Job>>,
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let jobs: Vec<_> = jobs.collect();
        let place = self.place.clone();
        if let Some(error) = self.loss() {
            return Err(error);
        }
        let wanted = jobs.iter().map(|job| job.durability()).max().unwrap_or_default();
        let change = (self.synchronous != Some(wanted)).then_some(wanted);
        let name = Arc::clone(&self.name);
        let done = {
            let mut left = std::mem::take(&mut self.left);
            let connection = self.connection().map_err(|error| place.error("open", error));
            let done = connection.and_then(|connection| {
                let done = transact(connection, &place, &name, jobs, change, &mut left);
                if done.is_err() && !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").ok();
                }
                done
            });
            self.left = left;
            done
        };
        match &done {
            Ok(_) => {
                self.synchronous = Some(wanted);
                // It has its name again, and what was made then lacks what comes now.
                self.recovered = None;
            }
            Err(_) => {
                self.synchronous = None;
                if !self.memory {
                    // Before the connection goes, and what it has in memory.
                    if let Some(error) = self.loss() {
                        return Err(error);
                    }
                    // What the disk did to this connection is unknown: a new one reads the file as it is.
                    self.disconnect();
                }
            }
        }
        done
    }

    fn names(&mut self) -> Names {
        if self.memory { Names::Kept } else { self.watch.look() }
    }

    /// Writes what was left. Not urgent: where it does not succeed, the next commits or reads do it.
    fn write_left(&mut self) {
        if self.left.nodes == 0 && self.left.moves.is_empty() {
            return;
        }
        self.patience.set(self.place.busy.min(Duration::from_millis(200)));
        self.left.nodes = self.left.nodes.max(LAG);
        self.behind = self.attempt(std::iter::empty()).is_ok() && self.left.nodes >= LAG;
        self.patience.set(self.place.busy);
    }

    /// Indexes a little text for the search; says whether there is more. Not urgent: where it does not succeed, the
    /// next commits or searches do it.
    fn search_step(&mut self) -> bool {
        self.searched = Instant::now();
        // Nearly always another process or a search has done it, which needs no lock to be seen.
        let left = self.connection().and_then(|connection| search::unindexed(connection));
        let activity = self.connection().and_then(|connection| activity::behind(connection));
        let recall = self.connection().and_then(|connection| recall::left(connection));
        if left.is_ok_and(|left| left == IndexBacklog::default())
            && activity.is_ok_and(|behind| behind == 0)
            && recall.is_ok_and(|left| left.is_none_or(|left| left == 0))
        {
            return false;
        }
        self.patience.set(self.place.busy.min(Duration::from_millis(200)));
        let step = |connection: &Connection| {
            index::place_first(connection, search::PLACED)?;
            // They cost little beside the text, and are asked for more often.
            Ok(activity::advance(connection, ACTIVITY_STEP)?
                || search::advance(connection, SEARCH_STEP, &mut Prefetch::default())?
                || recall::advance_quietly(connection)?)
        };
        let (mut job, mut answer) = Work::new(Durability::Process, self.place.clone(), step);
        let result = self.attempt([&mut job].into_iter()).and_then(one);
        job.finish(result);
        self.patience.set(self.place.busy);
        self.dirty = true;
        matches!(answer.try_recv(), Ok(Ok(true)))
    }

    /// Keeps the WAL from growing without end under writers that never pause.
    fn cut_log(&mut self) {
        if self.memory || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        self.cut_if_large();
    }

    fn cut_if_large(&mut self) {
        if file::size(&file::sibling_path(&self.place.path, "-wal")) > WAL_LIMIT {
            // Readers elsewhere may be long; this can be tried again.
            self.patience.set(Duration::from_millis(200));
            self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)");
            self.patience.set(self.place.busy);
        }
    }

    /// Commits are safe in the WAL whether or not this succeeds; it is tried again after the next ones.
    fn checkpoint(&mut self, statement: &str) {
        if let Names::Lost(lost) = self.names() {
            // Told with the next commit.
            self.save(lost);
            return;
        }
        if self.is_wal_cut() {
            return;
        }
        if let (Some(connection), false) = (&self.connection, self.memory) {
            connection.query_row(statement, [], |_| Ok(())).ok();
        }
    }
}

fn one(results: Vec<Result<(), StoreError>>) -> Result<(), StoreError> {
    results.into_iter().collect()
}

fn transact(
    connection: &Connection,
    place: &Place,
    name: &str,
    jobs: Vec<&mut Box<dyn Job>>,
    synchronous: Option<Durability>,
    left: &mut DeferredWork,
) -> Result<Vec<Result<(), StoreError>>, StoreError> {
    let sql = |statement: &str| {
        let mut statement =
            connection.prepare_cached(statement).map_err(|error| place.error("write to", error.into()))?;
        let done = statement.execute([]).map(|_| ());
        done.map_err(|error| place.error("write to", error.into()))
    };
    // Has no effect inside a transaction. A pragma acts when it is prepared, so it cannot be kept.
    let pragma = match synchronous {
        Some(Durability::Process) => "PRAGMA synchronous = NORMAL",
        Some(Durability::Power) => "PRAGMA synchronous = FULL",
        None => "",
    };
    connection.execute_batch(pragma).map_err(|error| place.error("write to", error.into()))?;
    sql("BEGIN IMMEDIATE")?;
    let (single, idle) = (jobs.len() == 1, jobs.is_empty());
    let mut results = Vec::with_capacity(jobs.len());
    let mut new = DeferredWork::default();
    for job in jobs {
        if !single {
            sql("SAVEPOINT job")?;
        }
        let result = guarded(place, "write to", || job.run(connection));
        match &result {
            Ok(()) => new.join(job.left()),
            // SQLite gave up the whole transaction.
            Err(error) if connection.is_autocommit() => return Err(error.clone()),
            Err(error) if concerns_all(error) => return Err(error.clone()),
            Err(_) if single => sql("ROLLBACK")?,
            Err(_) => sql("ROLLBACK TO job")?,
        }
        if !single {
            sql("RELEASE job")?;
        }
        results.push(result);
    }
    if single && results.iter().all(Result::is_err) {
        return Ok(results);
    }
    let now = left.nodes + new.nodes >= LAG
        || left.moves.len() + new.moves.len() >= 2 * LAG
        || new.moves.iter().any(|moved| !moved.can_wait);
    if !now {
        sql("COMMIT")?;
        left.join(DeferredWork { at_hand: Vec::new(), ..new });
        return Ok(results);
    }
    let waiting = left.nodes + new.nodes;
    // A very large one is not made longer by them: those after it take their share.
    left.hints.extend(new.hints);
    let step = if idle { INDEX_IDLE } else { waiting.clamp(INDEX_STEP, INDEX_MOST) };
    let more = guarded(place, "index", || {
        commit::log_moves(connection, &left.moves, name)?;
        commit::log_moves(connection, &new.moves, name)?;
        // What a large commit brought is at hand now; later it would be read from the file again.
        index::advance_or_renew_knowing(connection, step, &left.hints, std::mem::take(&mut new.at_hand))
    })?;
    sql("COMMIT")?;
    let hints = if more { std::mem::take(&mut left.hints) } else { HashMap::new() };
    let nodes = if more { LAG.max(waiting.saturating_sub(step)) } else { 0 };
    *left = DeferredWork { nodes, hints, ..DeferredWork::default() };
    Ok(results)
}

/// Whether an error says something about the file and not about the work.
fn concerns_all(error: &StoreError) -> bool {
    match error {
        StoreError::Busy { .. }
        | StoreError::Full { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Replaced { .. }
        | StoreError::Cut { .. }
        | StoreError::Io { .. } => true,
        StoreError::Conflict { .. }
        | StoreError::Fenced { .. }
        | StoreError::NewerVersion { .. }
        | StoreError::NotOwner { .. }
        | StoreError::Symlink { .. }
        | StoreError::NotAStore { .. }
        | StoreError::Missing { .. }
        | StoreError::Erased { .. }
        | StoreError::TooLarge { .. }
        | StoreError::JobLost { .. }
        | StoreError::NotLeading
        | StoreError::TooManyJobs { .. } => false,
    }
}

/// Runs work of which a panic must not take the thread with it.
pub(super) fn guarded<T>(
    place: &Place,
    doing: &str,
    work: impl FnOnce() -> Outcome<T>,
) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|failure| place.error(doing, failure)),
        Err(panic) => {
            let detail = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let detail = detail.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            let detail = format!("this is a bug in Quipu, please report it: {detail}");
            Err(StoreError::Io { path: place.path.clone(), doing: doing.to_owned(), detail })
        }
    }
}

/// The store is being dropped, so nobody can see this but who holds a future of it.
pub(super) fn stopped(place: &Place) -> StoreError {
    StoreError::Io {
        path: place.path.clone(),
        doing: "use".to_owned(),
        detail: "the store was closed".to_owned(),
    }
}

mod loss;
mod pauses;
#[cfg(test)]
mod tests;
