//! SQLite behind the trait.

mod actions;
mod activity;
mod check;
mod checkpointer;
mod chunks;
mod commit;
mod connect;
#[cfg(test)]
mod cost;
mod costs;
mod dreams;
mod erase;
mod erased;
mod failure;
mod file;
mod foreign;
mod forest;
mod graph;
mod hidden;
mod index;
mod job;
mod job_runs;
mod lists;
mod local;
mod mount;
mod opening;
mod options;
mod pages;
mod places;
mod questions;
mod readers;
mod reading;
mod rebuild;
mod recall;
mod resolve;
mod retain;
mod revision;
mod rows;
mod salvage;
mod schedule;
mod schema;
mod search;
mod setting;
mod shared;
mod shrink;
mod spend;
mod twins;
mod vectors;
mod wal_state;
mod watch;
mod writer;
mod written;

use crate::error::system_error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, NodeId, SessionId, UnixMs};
use quipu_transcript::DecodedEntry;
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::checkpointer::Checkpointer;
use self::chunks::RecentChunks;
pub use self::chunks::{Delta, delta};
use self::connect::Patience;
pub use self::erase::{OwnerDeathCheck, StoreHolder};
use self::failure::{Failure, Outcome, Place};
pub use self::foreign::{ForeignCursor, ForeignDatabase, ForeignRows, ForeignValue};
use self::hidden::HiddenSlot;
pub use self::index::NodeHint;
use self::job::CommitJob;
pub use self::mount::network_file_system;
use self::opening::open_for_writing;
pub use self::options::{OpenOptions, SearchIndex};
use self::readers::{Connect, Readers, UntypedRead, in_transaction, untyped};
pub use self::salvage::{Salvage, salvage};
use self::search::Prefetch;
use self::shared::SharedMemory;
use self::writer::{Job, Writer};
use crate::{
    ActionQuery, ActivityQuery, Commit, DerivedTables, DroppedFiles, Durability, Edge, Erasure, Fence,
    FileActivity, FileChange, FileDropListener, FileStep, FileStepQuery, ForkPoint, Fut, Head,
    HiddenSnapshot, IndexBacklog, IndexedAnswer, Label, Landmark, LineageEnd, LoggedAction, LoggedMove,
    OpenWork, Owner, Piece, QUERY_LIMIT, ReadModel, ReadParts, RebuildBacklog, RebuildStart, RefChanges,
    RefLogPlace, RefName, ReflogQuery, Report, Reservation, ReserveRequest, Resolution, Revision, Scope,
    SearchHits, SearchQuery, Seq, SeriesChunk, SessionActivity, SessionQuery, SessionRow, Spelling, Store,
    StoreError, Upkeep, UsageQuery, UsageSum,
};

/// Readers beside the writer.
const READERS: usize = 2;
/// Nodes that are indexed in one transaction when many are new.
const INDEX_BATCH: usize = 10_000;

/// Text that is indexed in one transaction when somebody waits for it: half a second, in which nobody else can write. Each
/// leaves a piece of the index of words, and of fewer pieces fewer are merged again.
const SEARCH_STEP: search::Step =
    search::Step { words: 8 << 20, substrings: 256 << 10, nodes: 32_000, prefetch: 16 << 20 };
/// How long a search waits for the index.
const SEARCH_PATIENCE: Duration = Duration::from_millis(1_000);
/// Nodes whose activity is added in one transaction while a reader waits for it.
const ACTIVITY_STEP: usize = 2_000;
/// How long one call indexes, about.
const INDEX_PATIENCE: Duration = Duration::from_millis(250);

/// A store in one SQLite file, or in memory.
///
/// Dropping it commits what is queued and waits for that.
pub struct SqliteStore {
    // Before the writer: the last connection to close tidies up the WAL, and that should be one that may write.
    readers: Option<Readers>,
    checkpointer: Option<Checkpointer>,
    /// `None` when the file cannot be written.
    writer: Option<Writer>,
    /// Why there is no writer.
    refusal: Option<StoreError>,
    place: Place,
    /// Of whoever indexes until all is done, call by call.
    prefetch: Arc<Mutex<Prefetch>>,
    hidden: HiddenSlot,
}

impl SqliteStore {
    /// Opens the store at `path`, making or upgrading it where needed. Directories that are made get mode 0700,
    /// files 0600. A file or directory that cannot be written opens for reading. Blocks.
    ///
    /// # Errors
    /// `Symlink`, `NotOwner`, `NotAStore`, `NewerVersion`, `Corrupt`, `Busy`, `Full`, `ReadOnly` (nothing there
    /// and it cannot be made), `Io`.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let path = file::prepare(path, options.create)?;
        let place = Place { identity: file::identity(&path), path, busy: options.busy };
        let patience = Patience::new(options.busy);
        // Beside what this process has open of it already.
        let shared = SharedMemory::of(&place.path);
        let _held = shared.hold()?;
        match open_for_writing(&place.path, &patience) {
            Ok(connection) => {
                connect::limit_cache(&connection, options.cache)
                    .map_err(|failure| place.error("open", failure))?;
                shared.opened();
                Self::start(connection, place, patience, &shared, options)
            }
            Err(Failure::Sql(error)) if connect::cannot_open(&error) => {
                let path = place.path.clone();
                Self::start_read_only(place, patience, StoreError::ReadOnly { path })
            }
            // What is there can be read all the same.
            Err(Failure::Sql(error)) if connect::has_no_room(&error) && file::size(&place.path) > 0 => {
                let why = place.error("open", error.into());
                Self::start_read_only(place, patience, why)
            }
            Err(failure) => Err(place.error("open", failure)),
        }
    }

    /// A store that lives as long as this value and leaves nothing behind.
    ///
    /// # Errors
    /// `Io` when SQLite or the system refuses.
    pub fn in_memory() -> Result<Self, StoreError> {
        let options = OpenOptions::default();
        let place = Place { path: PathBuf::from(":memory:"), busy: options.busy, identity: None };
        let connection = connect::in_memory()
            .and_then(|connection| schema::create(&connection).map(|()| connection))
            .map_err(|failure| place.error("make", failure))?;
        let name = options.writer.into();
        let writer = Writer::start(
            connection,
            place.clone(),
            Patience::new(options.busy),
            None,
            name,
            options.search_index,
        )
        .map_err(|error| system_error(&place.path, "start a thread for", &error))?;
        let prefetch = Arc::default();
        let (readers, checkpointer, refusal, hidden) = (None, None, None, HiddenSlot::default());
        Ok(Self { readers, checkpointer, writer: Some(writer), refusal, place, prefetch, hidden })
    }

    /// The file, with its directory resolved; `:memory:` for none.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Whether commits will fail with `ReadOnly`.
    pub fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    /// Why commits will fail, of a store that can only be read.
    pub fn refusal(&self) -> Option<&StoreError> {
        self.refusal.as_ref()
    }

    fn start(
        connection: Connection,
        place: Place,
        patience: Patience,
        shared: &Arc<SharedMemory>,
        options: &OpenOptions,
    ) -> Result<Self, StoreError> {
        let connect: Connect = {
            let place = place.clone();
            let (patience, cache) = (Patience::new(options.busy), options.cache);
            Arc::new(move || {
                // Beside what is open of the old file, a new one would share its WAL.
                if file::identity(&place.path) != place.identity {
                    let (path, lost) = (place.path.clone(), place.path.clone());
                    return Err(StoreError::Replaced { path, lost, saved: false, recovered: None }.into());
                }
                let connection = connect::reader(&place.path, &patience)?;
                connect::limit_cache(&connection, cache)?;
                Ok(connection)
            })
        };
        let checkpointer = Checkpointer::new(Arc::clone(&connect), place.clone(), Some(Arc::clone(shared)));
        let readers = Readers::new(READERS, connect, place.clone(), Some(Arc::clone(shared)));
        let name = options.writer.as_str().into();
        let writer = Writer::start(
            connection,
            place.clone(),
            patience,
            Some(Arc::clone(shared)),
            name,
            options.search_index,
        )
        .map_err(|error| system_error(&place.path, "start a thread for", &error))?;
        let (readers, checkpointer) = (Some(readers), Some(checkpointer));
        let (writer, prefetch) = (Some(writer), Arc::default());
        let hidden = HiddenSlot::default();
        Ok(Self { readers, checkpointer, writer, refusal: None, place, prefetch, hidden })
    }

    /// `why` is what commits will be told.
    fn start_read_only(place: Place, patience: Patience, why: StoreError) -> Result<Self, StoreError> {
        if file::size(&place.path) == 0 {
            return Err(why);
        }
        let connect: Connect = {
            let path = place.path.clone();
            Arc::new(move || {
                let connection = connect::read_only(&path, &patience)?;
                schema::complete_in_memory(&connection, &path)?;
                Ok(connection)
            })
        };
        let first = connect().map_err(|error| place.error("open", error))?;
        // One: what is completed in memory is a connection's own.
        let readers = Readers::new(1, connect, place.clone(), None);
        readers
            .spawn(Some(first))
            .map_err(|error| system_error(&place.path, "start a thread for", &error))?;
        let prefetch = Arc::default();
        Ok(Self {
            readers: Some(readers),
            checkpointer: None,
            writer: None,
            refusal: Some(why),
            place,
            prefetch,
            hidden: HiddenSlot::default(),
        })
    }

    /// Makes the connections that read, beside the caller: for who will read much soon.
    pub fn warm_up(&self) {
        if let Some(readers) = &self.readers {
            readers.warm_up();
        }
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
        self.writer.as_ref().ok_or_else(|| match &self.refusal {
            Some(why) => why.clone(),
            None => StoreError::ReadOnly { path: self.place.path.clone() },
        })
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = untyped(work);
        self.read_untyped(work).await?;
        answer.take().ok_or_else(|| self.closed())
    }

    async fn read_untyped(&self, work: UntypedRead) -> Result<(), StoreError> {
        match &self.readers {
            Some(readers) => readers.read(work).await,
            None => self.writer()?.alone("read", work).await,
        }
    }

    /// A read of so many rows one by one: many within one transaction, or each would take its locks anew.
    async fn read_many<T: Send + 'static>(
        &self,
        count: usize,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = untyped(work);
        let work = if count < 4 { work } else { in_transaction(work) };
        self.read_untyped(work).await?;
        answer.take().ok_or_else(|| self.closed())
    }

    /// A long lineage, read from its end and from its middle at once; `None` of a short one, and where that fails: what
    /// is wrong is told by a read of the whole.
    async fn lineage_in_halves(&self, from: NodeId) -> Option<Vec<Node>> {
        self.readers.as_ref()?;
        let found = self.read(move |connection| graph::middle(connection, &from)).await;
        let [middle, parent] = found.ok()??;
        let older = self.read(move |connection| graph::lineage(connection, &parent, LineageEnd::Root));
        let newer = self.read(move |connection| graph::lineage(connection, &from, LineageEnd::Node(middle)));
        let (mut nodes, newer) = tokio::try_join!(older, newer).ok()?;
        // The index says where the middle is; whether it is, the nodes themselves.
        if newer.first().is_none_or(|first| first.record.parent != Some(parent)) {
            return None;
        }
        nodes.extend(newer);
        Some(nodes)
    }

    /// A read that wants the derived tables up to date.
    async fn read_indexed<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = untyped(work);
        self.read_indexed_untyped(work).await?;
        answer.take().ok_or_else(|| self.closed())
    }

    async fn read_indexed_untyped(&self, work: UntypedRead) -> Result<(), StoreError> {
        // Nearly always there is nothing to catch up with, so one visit to a reader is enough.
        let attempt = self.read(move |connection| {
            if places::is_behind(connection)? {
                return Ok(Some(work));
            }
            work(connection)?;
            Ok(None)
        });
        let Some(work) = attempt.await? else { return Ok(()) };
        match self.catch_up().await {
            // What is indexed is better than nothing while somebody else writes, or where there is no room.
            Ok(()) | Err(StoreError::Busy { .. } | StoreError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        self.read_untyped(work).await
    }

    /// Indexes what other programs wrote since the last time, and what our commits left.
    async fn catch_up(&self) -> Result<(), StoreError> {
        if self.writer.is_none() {
            return self.read(index::index_in_memory).await;
        }
        let step = |connection: &Connection| index::advance_or_renew(connection, INDEX_BATCH);
        while self.work(Durability::Process, step).await? {}
        Ok(())
    }

    /// Makes the text of new nodes searchable for about so long; what another program holds up is left for later.
    async fn index_for(&self, patience: Duration, prefetch: &Arc<Mutex<Prefetch>>) -> Result<(), StoreError> {
        if self.is_read_only() || self.read(search::unindexed).await? == IndexBacklog::default() {
            return Ok(());
        }
        let began = Instant::now();
        let done = async {
            if self.read(places::is_behind).await? {
                self.catch_up().await?;
            }
            let step = || {
                let prefetch = Arc::clone(prefetch);
                move |connection: &Connection| {
                    let mut prefetch = prefetch.lock().unwrap_or_else(PoisonError::into_inner);
                    index::place_first(connection, search::PLACED)?;
                    search::advance(connection, SEARCH_STEP, &mut prefetch)
                }
            };
            while self.work(Durability::Process, step()).await? && began.elapsed() < patience {}
            Ok(())
        };
        match done.await {
            Err(StoreError::Busy { .. } | StoreError::Full { .. }) => Ok(()),
            other => other,
        }
    }

    /// A read of what was done, which is added first for up to as long as a search waits.
    async fn read_activity<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (work, answer) = untyped(work);
        self.read_activity_untyped(work).await?;
        answer.take().ok_or_else(|| self.closed())
    }

    async fn read_activity_untyped(&self, work: UntypedRead) -> Result<(), StoreError> {
        self.update_activity(SEARCH_PATIENCE).await?;
        self.read_untyped(work).await
    }

    /// Adds what new nodes did for about so long; what another program holds up is left for later.
    async fn update_activity(&self, patience: Duration) -> Result<(), StoreError> {
        if self.is_read_only() || self.read(activity::behind).await? == 0 {
            return Ok(());
        }
        let began = Instant::now();
        let step = |connection: &Connection| {
            index::place_first(connection, ACTIVITY_STEP)?;
            activity::advance(connection, ACTIVITY_STEP)
        };
        loop {
            match self.work(Durability::Process, step).await {
                Ok(true) if began.elapsed() < patience => {}
                Ok(_) | Err(StoreError::Busy { .. } | StoreError::Full { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    async fn work<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (job, result) = Work::new(durability, self.place.clone(), work);
        self.writer()?.submit(job).await?;
        result.await.map_err(|_| self.closed())?
    }

    fn closed(&self) -> StoreError {
        StoreError::Io {
            path: self.place.path.clone(),
            doing: "use".to_owned(),
            detail: "the store was closed".to_owned(),
        }
    }
}

/// Work for the writer's transaction, with an answer.
struct Work<T, F> {
    durability: Durability,
    place: Place,
    work: F,
    done: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

type Answer<T> = oneshot::Receiver<Result<T, StoreError>>;

impl<T: Send + 'static, F: FnMut(&Connection) -> Outcome<T> + Send + 'static> Work<T, F> {
    #[expect(clippy::new_ret_no_self, reason = "the two ends belong together")]
    fn new(durability: Durability, place: Place, work: F) -> (Box<dyn Job>, Answer<T>) {
        let (answer, result) = oneshot::channel();
        (Box::new(Self { durability, place, work, done: None, answer }), result)
    }
}

impl<T: Send, F: FnMut(&Connection) -> Outcome<T> + Send> Job for Work<T, F> {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn prepare(&mut self, _: &Connection, _: &mut RecentChunks) -> Outcome<()> {
        Ok(())
    }

    fn run(&mut self, connection: &Connection) -> Outcome<()> {
        self.done = Some((self.work)(connection)?);
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { place, done, answer, .. } = *self;
        let result = result.and_then(|()| {
            let nothing = || Failure::Missing("an answer".to_owned());
            done.ok_or_else(nothing).map_err(|failure| place.error("use", failure))
        });
        // Nobody waits any more: it is done all the same.
        answer.send(result).ok();
    }
}

impl Store for SqliteStore {
    fn commit(&self, batch: Commit) -> Fut<'_, ()> {
        let span = commit::span(&batch);
        let committed = span.clone();
        let work = async move {
            let writer = self.writer()?;
            commit::check_limits(&batch)?;
            let (answer, result) = oneshot::channel();
            let job = CommitJob::new(batch, self.place.identity, answer);
            let is_large = job.is_large();
            writer.submit(Box::new(job)).await?;
            let done = result.await.map_err(|_| self.closed())?;
            if let (true, Some(checkpointer)) = (is_large && done.is_ok(), &self.checkpointer) {
                // Beside the commits to come, which would else wait for it when the WAL is full. Where it is done before the
                // next one, that begins the WAL anew.
                checkpointer.checkpoint();
            }
            done.inspect_err(|error| commit::failed(&committed, error))
        };
        Box::pin(tracing::Instrument::instrument(work, span))
    }

    fn head<'a>(&'a self, name: &'a RefName) -> Fut<'a, Option<NodeId>> {
        let name = name.clone();
        Box::pin(self.read(move |connection| lists::head(connection, name.as_str())))
    }

    fn heads<'a>(&'a self, prefix: &'a str) -> Fut<'a, Vec<Head>> {
        let prefix = prefix.to_owned();
        Box::pin(self.read(move |connection| lists::heads(connection, &prefix)))
    }

    fn nodes<'a>(&'a self, ids: &'a [NodeId]) -> Fut<'a, Vec<Option<Node>>> {
        let ids = ids.to_vec();
        Box::pin(self.read_many(ids.len(), move |connection| {
            ids.iter().map(|id| rows::find_node(connection, id)).collect()
        }))
    }

    fn blobs<'a>(&'a self, ids: &'a [BlobId]) -> Fut<'a, Vec<Option<Blob>>> {
        let ids = ids.to_vec();
        Box::pin(self.read_many(ids.len(), move |connection| written::blobs(connection, &ids)))
    }

    fn chunk(&self, id: ChunkId, bytes: Range<u64>) -> Fut<'_, Vec<u8>> {
        Box::pin(self.read(move |connection| {
            // As it stands at one moment: what it is the difference to may go in the next one, and then it stands alone.
            let _moment = connection.unchecked_transaction()?;
            chunks::read(connection, id, bytes)
        }))
    }

    fn chunk_series<'a>(&'a self, ids: &'a [ChunkId], most: u64) -> Fut<'a, Vec<Option<SeriesChunk>>> {
        let ids = ids.to_vec();
        Box::pin(self.read(move |connection| {
            let _moment = connection.unchecked_transaction()?;
            chunks::read_series(connection, &ids, most)
        }))
    }

    fn lineage(&self, from: NodeId, until: LineageEnd) -> Fut<'_, Vec<Node>> {
        Box::pin(async move {
            if until == LineageEnd::Root
                && let Some(nodes) = self.lineage_in_halves(from).await
            {
                return Ok(nodes);
            }
            self.read(move |connection| graph::lineage(connection, &from, until)).await
        })
    }

    fn children<'a>(&'a self, of: &'a [NodeId]) -> Fut<'a, Vec<Edge>> {
        let of = of.to_vec();
        Box::pin(self.read(move |connection| graph::children(connection, &of)))
    }

    fn actions(&self, query: ActionQuery) -> Fut<'_, Vec<LoggedAction>> {
        Box::pin(self.read_indexed(move |connection| actions::find(connection, &query)))
    }

    fn lease<'a>(&'a self, name: &'a RefName, owner: &'a Owner, ttl: Duration) -> Fut<'a, Fence> {
        let (name, owner) = (name.clone(), owner.clone());
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        Box::pin(
            self.work(Durability::Process, move |connection| commit::lease(connection, &name, &owner, ttl)),
        )
    }

    fn pending<'a>(&'a self, session: &'a SessionId) -> Fut<'a, OpenWork> {
        let session = session.clone();
        Box::pin(self.read(move |connection| lists::pending(connection, &session)))
    }

    fn inboxes<'a>(&'a self, beginning: &'a str) -> Fut<'a, Vec<SessionId>> {
        let beginning = beginning.to_owned();
        Box::pin(self.read(move |connection| lists::inboxes(connection, &beginning)))
    }

    fn reserve(&self, ask: ReserveRequest) -> Fut<'_, Reservation> {
        Box::pin(async move {
            // Most of what is to be indexed, outside of the transaction.
            self.read_indexed(|_| Ok(())).await?;
            self.work(Durability::Process, move |connection| spend::reserve(connection, &ask)).await
        })
    }

    fn changed(&self) -> Fut<'_, ()> {
        // Counted from the call, not from the first poll.
        let changes = self.writer().map(Writer::changes);
        Box::pin(async move { changes?.changed().await.map_err(|_| self.closed()) })
    }

    fn hidden(&self) -> HiddenSnapshot {
        self.hidden_now()
    }
}

impl ReadModel for SqliteStore {
    fn below<'a>(&'a self, root: NodeId, ends: &'a [NodeId]) -> Fut<'a, Vec<Seq>> {
        let ends = ends.to_vec();
        Box::pin(self.read_indexed(move |connection| written::below(connection, &root, &ends)))
    }

    fn written<'a>(&'a self, seqs: &'a [Seq], parts: ReadParts, bytes: usize) -> Fut<'a, Piece> {
        let seqs = seqs.to_vec();
        Box::pin(
            self.read_many(3 * seqs.len(), move |connection| written::read(connection, &seqs, parts, bytes)),
        )
    }

    fn decoded(&self, nodes: Vec<Node>) -> Fut<'_, Vec<(Node, DecodedEntry)>> {
        Box::pin(self.read_many(nodes.len(), move |connection| written::decoded(connection, nodes)))
    }

    fn ancestor(&self, of: NodeId, depth: u32) -> Fut<'_, Option<NodeId>> {
        Box::pin(self.read_indexed(move |connection| graph::ancestor(connection, &of, depth)))
    }

    fn fork_point(&self, a: NodeId, b: NodeId) -> Fut<'_, Option<NodeId>> {
        Box::pin(self.read_indexed(move |connection| graph::fork_point(connection, &a, &b)))
    }

    fn first_children<'a>(&'a self, of: &'a [NodeId], limit: usize) -> Fut<'a, Vec<Edge>> {
        let of = of.to_vec();
        Box::pin(self.read_many(of.len(), move |connection| graph::first_children(connection, &of, limit)))
    }

    fn descendants<'a>(&'a self, of: &'a [NodeId], limit: u64) -> Fut<'a, Vec<u64>> {
        let of = of.to_vec();
        Box::pin(self.read(move |connection| graph::descendants(connection, &of, limit)))
    }

    fn sessions_of<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<SessionId>>> {
        let nodes = nodes.to_vec();
        Box::pin(self.read_indexed(move |connection| graph::sessions_of(connection, &nodes)))
    }

    fn resolve<'a>(&'a self, id: &'a Spelling, scope: &'a Scope) -> Fut<'a, Resolution> {
        let (spelling, scope) = (id.0.clone(), scope.clone());
        Box::pin(self.read_indexed(move |connection| resolve::resolve(connection, &spelling, &scope)))
    }

    fn reflog<'a>(&'a self, query: &'a ReflogQuery) -> Fut<'a, Vec<LoggedMove>> {
        let query = query.clone();
        Box::pin(self.read(move |connection| lists::reflog(connection, &query)))
    }

    fn ref_changes(&self, since: Option<RefLogPlace>) -> Fut<'_, RefChanges> {
        Box::pin(self.read(move |connection| lists::ref_changes(connection, since)))
    }

    fn sessions(&self, query: SessionQuery) -> Fut<'_, Vec<SessionRow>> {
        Box::pin(self.shown_sessions(query))
    }

    fn labels<'a>(&'a self, sessions: &'a [SessionId]) -> Fut<'a, Vec<Label>> {
        Box::pin(self.shown_labels(sessions.to_vec()))
    }

    fn landmarks<'a>(&'a self, sessions: &'a [SessionId], limit: usize) -> Fut<'a, Vec<Landmark>> {
        let sessions = sessions.to_vec();
        Box::pin(self.read_indexed(move |connection| forest::landmarks(connection, &sessions, limit)))
    }

    fn fork_points<'a>(&'a self, trunk: NodeId, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<ForkPoint>>> {
        let nodes = nodes.to_vec();
        Box::pin(self.read_indexed(move |connection| forest::fork_points(connection, &trunk, &nodes)))
    }

    fn settings(&self, of: NodeId) -> Fut<'_, Vec<Node>> {
        Box::pin(self.read_indexed(move |connection| setting::nearest(connection, &of)))
    }

    fn erasures<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<Erasure>>> {
        let nodes = nodes.to_vec();
        Box::pin(self.read_many(nodes.len(), move |connection| {
            nodes.iter().map(|node| erased::erasure(connection, &node.0)).collect()
        }))
    }

    fn astray(&self) -> Fut<'_, Vec<NodeId>> {
        Box::pin(self.read_indexed(forest::astray))
    }

    fn search(&self, query: SearchQuery) -> Fut<'_, SearchHits> {
        Box::pin(self.shown_hits(query))
    }

    fn spent(&self, since: UnixMs) -> Fut<'_, f64> {
        Box::pin(self.read_indexed(move |connection| spend::since(connection, since)))
    }

    fn assumed(&self, since: UnixMs, now: UnixMs) -> Fut<'_, f64> {
        Box::pin(self.read(move |connection| spend::assumed(connection, since, now)))
    }

    fn spent_of<'a>(&'a self, account: &'a str, since: UnixMs, now: UnixMs) -> Fut<'a, i64> {
        let account = account.to_owned();
        Box::pin(self.read(move |connection| spend::spent_of(connection, &account, since, now)))
    }

    fn usage(&self, query: UsageQuery) -> Fut<'_, IndexedAnswer<Vec<UsageSum>>> {
        Box::pin(self.read_activity(move |connection| activity::usage(connection, &query)))
    }

    fn file_activity<'a>(&'a self, session: &'a SessionId) -> Fut<'a, IndexedAnswer<Vec<FileActivity>>> {
        let session = session.clone();
        Box::pin(self.read_activity(move |connection| activity::file_activity(connection, &session)))
    }

    fn revision(&self) -> Fut<'_, Revision> {
        Box::pin(self.read_activity(revision::revision))
    }

    fn changes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, IndexedAnswer<Vec<FileChange>>> {
        let paths = paths.to_vec();
        Box::pin(self.read_activity(move |connection| activity::changes(connection, &paths)))
    }

    fn file_steps(&self, query: FileStepQuery) -> Fut<'_, IndexedAnswer<Vec<FileStep>>> {
        Box::pin(self.read_activity(move |connection| activity::file_steps(connection, &query)))
    }

    fn session_activity(&self, query: ActivityQuery) -> Fut<'_, IndexedAnswer<Vec<SessionActivity>>> {
        Box::pin(self.read_activity(move |connection| activity::session_activity(connection, &query)))
    }
}

impl Upkeep for SqliteStore {
    fn check(&self) -> Fut<'_, Report> {
        let place = self.place.clone();
        Box::pin(self.read_indexed(move |connection| check::check(connection, &place)))
    }

    fn rebuild(&self) -> Fut<'_, ()> {
        Box::pin(self.rebuild_at_once())
    }

    fn begin_rebuild(&self, what: DerivedTables) -> Fut<'_, RebuildStart> {
        Box::pin(self.begin_rebuilding(what))
    }

    fn continue_rebuild(&self) -> Fut<'_, RebuildBacklog> {
        Box::pin(self.continue_rebuild_once())
    }

    fn index(&self) -> Fut<'_, IndexBacklog> {
        Box::pin(async move {
            self.update_activity(INDEX_PATIENCE).await?;
            self.index_for(INDEX_PATIENCE, &self.prefetch).await?;
            if self.is_read_only() {
                return Ok(IndexBacklog::default());
            }
            self.read(search::unindexed).await
        })
    }

    fn drop_files<'a>(&'a self, most: u64, tell: FileDropListener<'a>) -> Fut<'a, DroppedFiles> {
        Box::pin(self.drop_files_beyond(most, tell))
    }

    fn drop_files_when_due<'a>(
        &'a self,
        most: u64,
        tell: FileDropListener<'a>,
    ) -> Fut<'a, Option<DroppedFiles>> {
        Box::pin(self.drop_files_daily(most, tell))
    }

    fn shrink(&self) -> Fut<'_, u64> {
        Box::pin(async move { self.writer()?.alone("shrink", erase::shrink).await })
    }

    fn backup<'a>(&'a self, to: &'a Path) -> Fut<'a, ()> {
        let to = to.to_owned();
        Box::pin(async move {
            match &self.writer {
                Some(writer) => {
                    writer.alone("copy", move |connection| schema::copy_to(connection, &to)).await
                }
                None => self.read(move |connection| schema::copy_to(connection, &to)).await,
            }
        })
    }
}
