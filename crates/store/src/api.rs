//! The trait that everything above the store is written against, and its words.
//!
//! Length: whoever writes another store, or reads what one promises, has it all before them.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use quipu_dag::{Blob, NewChunk, Node};
use quipu_protocol::{BlobId, CallId, ChunkId, ItemId, Json, NodeId, RunId, SessionId, UnixMs};
use quipu_transcript::Decoded;
use serde::{Deserialize, Serialize};

use crate::{
    Done, DoneQuery, DroppedFiles, Extent, FileChange, FileStep, FileStepQuery, Found, Known, Label,
    Landmark, LoggedMove, Meeting, OpenJump, Piece, ReadParts, ReflogQuery, SearchQuery, Seq, SpooledNodes,
    StoreError, TellDropping, Told, Touched, Unindexed, UsageQuery, UsageSum,
};

/// What every operation returns. Runs on any executor: the work is done by threads of the store.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Bytes of one chunk at most: 1 GiB.
pub const CHUNK_LIMIT: u64 = 1 << 30;
/// Bytes of one blob's content at most: 512 MiB.
pub const BLOB_LIMIT: u64 = 512 << 20;

/// A graph of nodes with refs into it, and what a crash must not lose.
///
/// Dropping a future may stop a read; a write that was queued is finished.
pub trait Store: Send + Sync + 'static {
    /// Writes all of `batch` or nothing, in one transaction. Resolved = durable as asked.
    ///
    /// # Errors
    /// `Conflict`, `Fenced`, `Missing` (a parent, part, ref target or inbox item that does not exist),
    /// `TooLarge`, `Busy`, `Full`, `ReadOnly`, `Corrupt`, `Io`.
    fn commit(&self, batch: Commit) -> Fut<'_, ()>;

    /// Whether all that was acknowledged is where the store was opened, as far as the last commit showed: not when its file
    /// was removed or replaced, or its log cut short.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Where a ref stands.
    fn head<'a>(&'a self, name: &'a RefName) -> Fut<'a, Option<NodeId>>;

    /// All refs whose names begin with `prefix`, by name.
    fn heads<'a>(&'a self, prefix: &'a str) -> Fut<'a, Vec<Head>>;

    /// The nodes, one for each id, in the order asked.
    fn nodes<'a>(&'a self, ids: &'a [NodeId]) -> Fut<'a, Vec<Option<Node>>>;

    /// The nodes between `root` and `ends` in the order in which they were written; `root` is left out, and so are ends
    /// that do not come from it.
    ///
    /// # Errors
    /// `Missing` when one of the ends is not there.
    fn below<'a>(&'a self, root: NodeId, ends: &'a [NodeId]) -> Fut<'a, Vec<Seq>>;

    /// Nodes with their parts, in the order asked, until these are `bytes` long together: at least one node, and as many
    /// as that leaves room for. Fast where `seqs` are in order and lie close together.
    fn written<'a>(&'a self, seqs: &'a [Seq], parts: ReadParts, bytes: usize) -> Fut<'a, Piece>;

    /// The blobs, one for each id, in the order asked.
    fn blobs<'a>(&'a self, ids: &'a [BlobId]) -> Fut<'a, Vec<Option<Blob>>>;

    /// Bytes of a chunk; the range is cut to its size, `0..u64::MAX` is all of it. What is returned was checked
    /// against the chunk's id (or, in a large chunk, the ids of the pieces that were read).
    ///
    /// # Errors
    /// `Missing` when there is no such chunk, `Corrupt` when its bytes are not those of its id.
    fn chunk(&self, id: ChunkId, bytes: Range<u64>) -> Fut<'_, Vec<u8>>;

    /// The nodes from `until` down to `from`, oldest first, `from` last. A missing parent ends it like a root.
    ///
    /// # Errors
    /// `Missing` when `from` is not there, or `Until::Node` names a node that is not one of its ancestors.
    fn lineage(&self, from: NodeId, until: Until) -> Fut<'_, Vec<Node>>;

    /// The nodes with what each means, in this order. A part that is missing or damaged leaves a gap.
    fn decoded(&self, nodes: Vec<Node>) -> Fut<'_, Vec<(Node, Decoded)>>;

    /// Says that a difference to this chunk will be written soon, so that it can be read before.
    fn will_build_on(&self, base: ChunkId);

    /// The node on the lineage of `of` that has `depth` nodes before it: 0 is the root. `None` when the lineage
    /// is shorter or `of` is not there.
    fn ancestor(&self, of: NodeId, depth: u32) -> Fut<'_, Option<NodeId>>;

    /// The last node that both lineages share (which may be one of the two); `None` when they share none.
    fn fork_point(&self, a: NodeId, b: NodeId) -> Fut<'_, Option<NodeId>>;

    /// The direct children of each node, in the order in which they were written.
    fn children<'a>(&'a self, of: &'a [NodeId]) -> Fut<'a, Vec<Edge>>;

    /// The first `limit` children of each node, in the order in which they were written.
    fn first_children<'a>(&'a self, of: &'a [NodeId], limit: usize) -> Fut<'a, Vec<Edge>>;

    /// How many nodes stand below each, in the order asked; of all of them together no more than `limit` are counted.
    fn descendants<'a>(&'a self, of: &'a [NodeId], limit: u64) -> Fut<'a, Vec<u64>>;

    /// The session of each node, in the order asked; `None` for a node of no session, or one that is not there.
    fn sessions_of<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<SessionId>>>;

    /// What a person or another program calls a node.
    fn resolve<'a>(&'a self, id: &'a Spelling, scope: &'a Scope) -> Fut<'a, Resolved>;

    /// The action log, newest first.
    fn actions(&self, query: ActionQuery) -> Fut<'_, Vec<LoggedAction>>;

    /// How a ref moved, newest first.
    fn reflog<'a>(&'a self, query: &'a ReflogQuery) -> Fut<'a, Vec<LoggedMove>>;

    /// Sessions, the last changed first.
    fn sessions(&self, query: SessionQuery) -> Fut<'_, Vec<SessionRow>>;

    /// The labels that were given in these sessions, the last one in time for each node, the newest first; those that
    /// were cleared are left out.
    fn labels<'a>(&'a self, sessions: &'a [SessionId]) -> Fut<'a, Vec<Label>>;

    /// Ends and compactions of these sessions, the newest first, at most `limit` of each kind for each session. Reads
    /// what it returns, however large the sessions are.
    fn landmarks<'a>(&'a self, sessions: &'a [SessionId], limit: usize) -> Fut<'a, Vec<Landmark>>;

    /// Where the lineage of each node leaves that of `trunk`, in the order asked; `None` for a node that has no root
    /// or is not there.
    fn meetings<'a>(&'a self, trunk: NodeId, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<Meeting>>>;

    /// The nearest nodes on the lineage of `of`, itself included, that say how its session is set: a change of the model,
    /// a change of thinking, an epoch, a first node or a compaction with a checkpoint; the nearest first, one of each at
    /// most. Reads what it returns and the places of such nodes, however long the lineage is.
    fn settings(&self, of: NodeId) -> Fut<'_, Vec<Node>>;

    /// Nodes without a root, the oldest first, at most 1,000: below a parent that is missing, or in a circle.
    fn astray(&self) -> Fut<'_, Vec<NodeId>>;

    /// Nodes that say something. What was committed before the call is found, unless the index is far behind, which
    /// the answer tells; a store that cannot be written has only what was indexed before.
    ///
    /// # Errors
    /// `TooLarge` for words of more than [`QUERY_LIMIT`](crate::QUERY_LIMIT) bytes.
    fn search(&self, query: SearchQuery) -> Fut<'_, Found>;

    /// US dollars that model calls have cost since then: answers of ours that carry a cost, by the time of their
    /// nodes, in steps of a quarter hour. Reads a row for each quarter hour in which something was spent, no more.
    fn spent(&self, since: UnixMs) -> Fut<'_, f64>;

    /// US dollars that model calls may have cost since then besides: those of which the server did not tell what they cost,
    /// and those that were lost, for which something was reserved.
    fn assumed(&self, since: UnixMs, now: UnixMs) -> Fut<'_, f64>;

    /// Reserves what a call may cost at most, unless that, what was spent and what others have reserved are more than the
    /// limit together. Looked at and written in one transaction, so that no two processes are given the same money. What
    /// is reserved counts until [`Op::Release`]; where nobody renews it ([`Op::Renew`]) it counts as spent.
    fn reserve(&self, ask: ReserveAsk) -> Fut<'_, Reserved>;

    /// Tokens and cost of all model calls, those of summaries too, in groups. A node counts once, however many lineages
    /// it is on.
    fn usage(&self, query: UsageQuery) -> Fut<'_, Known<Vec<UsageSum>>>;

    /// Files that a session touched, the last touched first, at most [`TOUCHED`](crate::TOUCHED): those that calls which
    /// succeeded name.
    fn touched<'a>(&'a self, session: &'a SessionId) -> Fut<'a, Known<Vec<Touched>>>;

    /// Changes of a file that is known by these absolute paths, the oldest first; the newest
    /// [`CHANGES`](crate::CHANGES) of each.
    fn changes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, Known<Vec<FileChange>>>;

    /// Steps that changed files, by the states before and after that nodes keep, the oldest first; commands and files
    /// that were put back included.
    fn file_steps(&self, query: FileStepQuery) -> Fut<'_, Known<Vec<FileStep>>>;

    /// What sessions did since a time, the last changed first.
    fn done(&self, query: DoneQuery) -> Fut<'_, Known<Vec<Done>>>;

    /// Takes, or renews, the lease on a ref for `ttl`; `Duration::ZERO` gives it back. Each new holder gets a
    /// higher fence. Moves that carry a fence fail once somebody else has the lease.
    ///
    /// # Errors
    /// `Fenced` while somebody else holds it.
    fn lease<'a>(&'a self, name: &'a RefName, owner: &'a Owner, ttl: Duration) -> Fut<'a, Fence>;

    /// What a session left open: queued inputs, steps that began, a jump that is not over.
    fn pending<'a>(&'a self, session: &'a SessionId) -> Fut<'a, Pending>;

    /// How large the store is: what [`Bulk`](crate::Bulk) goes by.
    fn extent(&self) -> Fut<'_, Extent> {
        Box::pin(std::future::ready(Ok(Extent::default())))
    }

    /// Resolves after the next commit to the store, by this process or (within about a quarter of a second) by
    /// another. May resolve once when nothing has changed.
    fn changed(&self) -> Fut<'_, ()>;
}

/// Care for a store.
pub trait Upkeep: Send + Sync + 'static {
    /// Reads everything and reports what does not hold. Finding damage is not an error.
    fn check(&self) -> Fut<'_, Report>;

    /// Drops all derived tables and makes them anew from the graph.
    fn rebuild(&self) -> Fut<'_, ()>;

    /// Drops derived tables and marks that they are to be made anew, unless that was begun before and is not done yet.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn begin_rebuild(&self, what: Derived) -> Fut<'_, RebuildBegun>;

    /// Makes what was dropped anew, for about a quarter of a second, and tells what is left then; nothing when it is
    /// done. What is left after the process died goes on with the next call, or in somebody's quiet moments.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn go_on_with_rebuild(&self) -> Fut<'_, RebuildLeft>;

    /// Makes the text of nodes searchable that is not yet, for about a quarter of a second, and tells what is left
    /// then. Not needed: it happens in quiet moments as well.
    fn index(&self) -> Fut<'_, Unindexed>;

    /// Drops states of files that tools changed, the oldest first, until those that are left take no more than `most`
    /// bytes: [`DroppedFiles`] says which stay. Errors: `ReadOnly`, `Full`, `Busy`.
    fn drop_files<'a>(&'a self, most: u64, tell: TellDropping<'a>) -> Fut<'a, DroppedFiles>;

    /// The same when the whole store has become larger than `most`, at most once a day, whoever asks; else `None`.
    fn drop_files_when_due<'a>(&'a self, most: u64, tell: TellDropping<'a>) -> Fut<'a, Option<DroppedFiles>>;

    /// Writes the file anew, without what is free in it; gives by how many bytes it is smaller then. Needs as much room
    /// again meanwhile, and nobody else can write. While others read, it gets smaller later.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`; nothing is changed then.
    fn shrink(&self) -> Fut<'_, u64>;

    /// Writes a consistent copy to a new file, mode 0600.
    ///
    /// # Errors
    /// `Io` when `to` exists, `Full`.
    fn backup<'a>(&'a self, to: &'a Path) -> Fut<'a, ()>;
}

/// One step: everything in it becomes durable together.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Content. Blobs that are there already are left as they are.
    pub blobs: Vec<Blob>,
    /// Plain bytes.
    pub chunks: Vec<NewChunk>,
    /// Nodes, parents before children. Their parents and parts must be in the store or in this commit.
    pub nodes: Vec<Node>,
    /// What some of these nodes say, so that it need not be read again.
    pub told: Vec<(NodeId, Told)>,
    /// More nodes, of the window of a [`Bulk`](crate::Bulk), whose blobs are in the store.
    pub spooled: Option<SpooledNodes>,
    /// Refs that move.
    pub moves: Vec<RefMove>,
    /// Rows for the action log.
    pub actions: Vec<Action>,
    /// Changes to inbox, steps and open jumps, applied in order, after the refs moved.
    pub ops: Vec<Op>,
    /// What it must survive.
    pub durability: Durability,
}

/// What a commit survives once it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// The loss of power.
    Power,
}

/// How the names of bookmarks begin.
pub const BOOKMARK: &str = "bookmark/";

/// The name of a ref.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefName(Arc<str>);

impl RefName {
    /// Where the session of ours stands that moved last. Who moves last wins; never parented on.
    pub const NEWEST: &'static str = "quipu_head";

    /// The one head of another program, which its next node follows. Moved by that program, and by nobody else who was not
    /// told to.
    pub const PI_HEAD: &'static str = "PI_HEAD";

    /// The ref of a session: `quipu/<session>`.
    pub fn session(session: &SessionId) -> Self {
        Self::of_agent("quipu", session)
    }

    /// The ref of a session by the program that writes it: `<agent>/<session>`. Those of other agents only an
    /// importer moves.
    pub fn of_agent(agent: &str, session: &SessionId) -> Self {
        Self(format!("{agent}/{session}").into())
    }

    /// The ref of the labels and names that we give to a session of another program, which we never write to.
    pub fn notes(agent: &str, session: &SessionId) -> Self {
        Self(format!("quipu-notes/{agent}/{session}").into())
    }

    /// The ref of a bookmark: `bookmark/<name>`.
    pub fn bookmark(name: &str) -> Self {
        Self(format!("{BOOKMARK}{name}").into())
    }

    /// The bookmark that it is, if it is one.
    pub fn bookmarked(&self) -> Option<&str> {
        self.0.strip_prefix(BOOKMARK)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for RefName {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefName({})", self.0)
    }
}

/// A ref that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefMove {
    /// The ref.
    pub name: RefName,
    /// Where it must stand for the move to happen.
    pub expect: Expect,
    /// Where it goes; `None` removes it.
    pub to: Option<NodeId>,
    /// The lease under which it is moved, where one is held.
    pub fence: Option<Fence>,
    /// Why, for the log of refs.
    pub why: String,
}

impl RefMove {
    /// A move that happens only if the ref stands at `expect` (`None`: does not exist).
    pub fn swap(name: RefName, expect: Option<NodeId>, to: NodeId, why: impl Into<String>) -> Self {
        let expect = expect.map_or(Expect::Absent, Expect::At);
        Self { name, expect, to: Some(to), fence: None, why: why.into() }
    }

    /// A move that happens wherever the ref stands: for refs that several writers set, of whom the last wins.
    pub fn publish(name: RefName, to: NodeId, why: impl Into<String>) -> Self {
        Self { name, expect: Expect::Any, to: Some(to), fence: None, why: why.into() }
    }
}

/// Where a ref must stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expect {
    /// At this node.
    At(NodeId),
    /// It must not exist.
    Absent,
    /// Anywhere or nowhere.
    Any,
}

/// A ref and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The ref.
    pub name: RefName,
    /// Its node.
    pub node: NodeId,
}

/// Who holds a lease: unique for each process that writes, such as host, process and start time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(pub String);

/// The number of a lease; grows with each new holder of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// A row for the action log, which other programs read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub timestamp: UnixMs,
    /// Such as `BOOT`, `SESSION_SWITCH`, `INCARNATE`; ours begin with `QUIPU_`.
    pub kind: String,
    /// The node that was left.
    pub from: Option<NodeId>,
    /// The node that was reached.
    pub to: Option<NodeId>,
    /// JSON, or plain text of older programs.
    pub metadata: Option<String>,
}

/// A row of the action log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedAction {
    /// Its number; grows.
    pub id: i64,
    /// The row.
    pub action: Action,
    /// Whether it left the lineage that was asked about, and did not reach it.
    pub left: bool,
}

/// Which rows of the action log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionQuery {
    /// Only these kinds; empty for all.
    pub kinds: Vec<String>,
    /// Only rows that reached a node on the lineage of this one.
    pub lineage: Option<NodeId>,
    /// With `lineage`, also rows that left it: from a node on it, or from a child of one, to somewhere else.
    pub left: bool,
    /// Only rows that left or reached a node of this session.
    pub session: Option<SessionId>,
    /// Only rows that left or reached a node of a session that works in this directory, as its start spells it.
    pub project: Option<String>,
    /// Only rows with a lower number.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A change to the small tables that hold what a crash must not lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// An input waits in a queue of the session. One that waits already stays as it is.
    InboxPut {
        /// The session.
        session: SessionId,
        /// The input.
        item: InboxItem,
    },
    /// An input left its queue: taken in the commit of its user node, or taken back. Leaves exactly once: the
    /// commit fails with `Missing` when it is not there.
    InboxTake {
        /// The session.
        session: SessionId,
        /// The input.
        item: ItemId,
    },
    /// A step began or went on: inserts or replaces the row of its session, run and call.
    StepPut {
        /// The session.
        session: SessionId,
        /// The step.
        step: Step,
    },
    /// A step is part of the graph now, or never will be.
    StepRemove {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// The step.
        call: StepCall,
    },
    /// Removes all steps of a run.
    RunRemove {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// What was reserved is needed for longer: until then.
    Renew {
        /// Which one.
        id: ReserveId,
        /// By the clock of whoever reserved it.
        expires: UnixMs,
    },
    /// What was reserved is not needed any more: the cost of the call is in this commit, or it was not made.
    Release {
        /// Which one.
        id: ReserveId,
        /// What the call may have cost besides, in billionths of a US dollar: it counts as spent. 0: nothing.
        charged: i64,
    },
    /// A session's jump began or went on: inserts or replaces its row.
    JumpPut {
        /// The session.
        session: SessionId,
        /// The jump.
        jump: OpenJump,
    },
    /// A session's jump is over, or void. Nothing happens where there is none.
    JumpRemove {
        /// The session.
        session: SessionId,
    },
}

/// Names what is reserved for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveId(pub String);

/// What is to be reserved for a call. Amounts are in billionths of a US dollar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveAsk {
    /// Names it. One of this name is replaced.
    pub id: ReserveId,
    /// When the day began.
    pub since: UnixMs,
    /// The time.
    pub now: UnixMs,
    /// When it counts as lost, unless it is renewed.
    pub expires: UnixMs,
    /// What may be spent in the day.
    pub limit: i64,
    /// What was spent besides what the store knows.
    pub elsewhere: i64,
    /// The most that the call can cost as it is.
    pub full: i64,
    /// The least with which it can be made.
    pub least: i64,
    /// Whether it takes less than `full` while only the reservations of others stand in the way.
    pub settles: bool,
}

/// What came of asking for money. Amounts are in billionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// What is reserved now: `full`, or as much between `least` and it as is left. `None`: nothing is.
    pub granted: Option<i64>,
    /// What was spent, calls that were lost included.
    pub spent: i64,
    /// What others have reserved.
    pub others: i64,
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxItem {
    /// Names it; unique within its session.
    pub id: ItemId,
    /// The queue, such as `steer` or `followUp`.
    pub queue: String,
    /// The input.
    pub input: Json,
}

/// A model call or a tool call under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The run that it belongs to.
    pub run: RunId,
    /// Which step of the run.
    pub call: StepCall,
    /// How far it is.
    pub state: StepState,
    /// What is known of it: a recorded request, a call, a result. Opaque to the store; at most [`BLOB_LIMIT`].
    pub data: Option<Vec<u8>>,
}

/// Which step of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepCall {
    /// The model call; a run has one at a time.
    Model,
    /// A model call that an earlier version began before its session was there. No such call is made any more.
    Early,
    /// A tool call.
    Tool(CallId),
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepState {
    /// A model call was recorded and its request may have been sent.
    Sent,
    /// A tool call was recorded and has not begun.
    Announced,
    /// A tool call may have begun.
    Running,
    /// The result is kept, but is not yet a node.
    Done,
}

/// What a session left open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    /// Inputs in the order in which they came.
    pub inbox: Vec<InboxItem>,
    /// Steps in the order in which they were first put.
    pub steps: Vec<Step>,
    /// A jump that is not over.
    pub jump: Option<OpenJump>,
}

/// How far back a lineage goes. The node named is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Until {
    /// To the root.
    Root,
    /// To this node.
    Node(NodeId),
    /// This many nodes at most.
    Count(usize),
    /// To the newest node that stands for all before it (a compaction), else to the root.
    Checkpoint,
}

/// A node and one of its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The node that was asked about.
    pub parent: NodeId,
    /// Its child.
    pub child: NodeId,
}

/// What somebody calls a node: `HEAD`, `pi:…` or `ext:…` (an entry's own id), 64 hexadecimal digits or at least
/// the first four, a session or at least the first four characters of one, the name of a ref or of a bookmark.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spelling(pub String);

impl<T: Into<String>> From<T> for Spelling {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Where a spelling is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// What `HEAD` means; among entries with the same id of their own, the one on its lineage wins.
    pub head: Option<NodeId>,
}

/// What a spelling means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// This node.
    One(Candidate),
    /// One of these (at least two, at most 20, the newest first); say more.
    Many(Vec<Candidate>),
    /// Nothing.
    None,
}

/// A node that a spelling could mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// How it was found.
    pub by: FoundBy,
    /// Its role.
    pub role: String,
    /// The writer's own id of the entry.
    pub external_id: Option<String>,
    /// When it was committed.
    pub timestamp: UnixMs,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
}

/// How a spelling led to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FoundBy {
    /// `HEAD`.
    Head,
    /// Its id or the beginning of it.
    Hash,
    /// The writer's own id of the entry.
    ExternalId,
    /// A session, whose head it is.
    Session,
    /// A ref, which stands at it.
    Ref,
}

/// Which sessions. Those that were removed are given only when they are asked for by `id`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only those that work in this directory, as the session's start spells it.
    pub cwd: Option<String>,
    /// Only this one.
    pub id: Option<SessionId>,
    /// Only those that were given this name.
    pub called: Option<String>,
    /// Only those that were forked from this one.
    pub parent: Option<SessionId>,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A session at a glance. Numbers cover everything below its first node that is no later session, abandoned
/// branches too.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// The session.
    pub id: SessionId,
    /// Its ref.
    pub name: RefName,
    /// Where the ref stands; `None` when it was removed or never set.
    pub head: Option<NodeId>,
    /// Its first node.
    pub base: NodeId,
    /// The directory that it works in.
    pub cwd: String,
    /// The program that writes it.
    pub agent: String,
    /// The name that it was given: one line, at most 200 characters; empty for none.
    pub called: String,
    /// The first line that the user said, at most 200 characters, without control characters; may be empty.
    pub title: String,
    /// The model that it began with.
    pub model: String,
    /// The session that it was forked from.
    pub parent: Option<SessionId>,
    /// When its first node was written.
    pub created: UnixMs,
    /// When its last node was written.
    pub updated: UnixMs,
    /// Its nodes, without the first.
    pub entries: u64,
    /// US dollars, as far as known.
    pub cost: f64,
}

/// Tables that are made from the graph and can be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Derived {
    /// The indexes of the search.
    Search,
    /// All.
    All,
}

/// How a rebuild began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RebuildBegun {
    /// The tables were dropped.
    Anew,
    /// An earlier one was not done; it goes on.
    GoesOn,
}

/// Nodes that a rebuild has still to look at, for each kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebuildLeft {
    /// Where nodes stand, and sessions.
    pub graph: u64,
    /// What was spent and done to files.
    pub deeds: u64,
    /// The search by words.
    pub words: u64,
    /// The search by substrings.
    pub substrings: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Nodes.
    pub nodes: u64,
    /// Blobs.
    pub blobs: u64,
    /// Chunks.
    pub chunks: u64,
    /// Chunks among them that are files which tools changed, as they were at some time.
    pub file_states: u64,
    /// Bytes that those take.
    pub file_state_bytes: u64,
    /// Those that were dropped so far to make room.
    pub dropped_files: DroppedFiles,
    /// Refs.
    pub refs: u64,
    /// Sessions.
    pub sessions: u64,
    /// Steps that a crash left open; not a problem.
    pub open_steps: u64,
    /// Inputs that wait; not a problem.
    pub inbox: u64,
    /// Nodes whose id is no hash of any known form of record: written by another program, not damage.
    pub unverifiable: u64,
    /// When the store was made from what could be read of a damaged one. What is missing since then is known.
    pub salvaged: Option<UnixMs>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes among them that nothing stands in: used again before the file grows.
    pub free_bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first 100 of them.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What to branch on.
    pub kind: ProblemKind,
    /// What and where, in one line.
    pub what: String,
}

/// What does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// SQLite finds the file damaged.
    File,
    /// A blob's content is not that of its id.
    Blob,
    /// A chunk's bytes are not those of its id, or cannot be read.
    Chunk,
    /// A node of ours whose id is not that of its record.
    Node,
    /// A node's parent is missing, or its lineage runs in a circle.
    Parent,
    /// A part of a node of ours is missing.
    Part,
    /// A ref stands at a node that does not exist.
    Ref,
    /// An open step or waiting input of a session that does not exist.
    Orphan,
    /// A derived table is not what `rebuild` would make.
    Derived,
}
