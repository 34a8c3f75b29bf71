//! What is read of a store beside its objects: derived from the graph, by whatever indexes the store has.

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_transcript::DecodedEntry;

use crate::{
    ActivityQuery, Erasure, FileActivity, FileChange, FileStep, FileStepQuery, ForkPoint, Fut, IndexedAnswer,
    Label, Landmark, Local, LoggedMove, Piece, ReadParts, RecallIndex, RefName, ReflogQuery, Revision,
    SearchHits, SearchQuery, Seq, SessionActivity, Store, UsageQuery, UsageSum, Vectors,
};

/// Questions that a store answers from what it derives of the graph: where nodes stand, sessions, text, money, files.
pub trait ReadModel: Send + Sync + 'static {
    /// The nodes between `root` and `ends` in the order in which they were written; `root` is left out, and so are ends
    /// that do not come from it.
    ///
    /// # Errors
    /// `Missing` when one of the ends is not there.
    fn below<'a>(&'a self, root: NodeId, ends: &'a [NodeId]) -> Fut<'a, Vec<Seq>>;

    /// Nodes with their parts, in the order asked, until these are `bytes` long together: at least one node, and as many
    /// as that leaves room for. Fast where `seqs` are in order and lie close together.
    fn written<'a>(&'a self, seqs: &'a [Seq], parts: ReadParts, bytes: usize) -> Fut<'a, Piece>;

    /// The nodes with what each means, in this order. A part that is missing or damaged leaves a gap.
    fn decoded(&self, nodes: Vec<Node>) -> Fut<'_, Vec<(Node, DecodedEntry)>>;

    /// The node on the lineage of `of` that has `depth` nodes before it: 0 is the root. `None` when the lineage
    /// is shorter or `of` is not there.
    fn ancestor(&self, of: NodeId, depth: u32) -> Fut<'_, Option<NodeId>>;

    /// The last node that both lineages share (which may be one of the two); `None` when they share none.
    fn fork_point(&self, a: NodeId, b: NodeId) -> Fut<'_, Option<NodeId>>;

    /// The first `limit` children of each node, in the order in which they were written.
    fn first_children<'a>(&'a self, of: &'a [NodeId], limit: usize) -> Fut<'a, Vec<Edge>>;

    /// How many nodes stand below each, in the order asked; of all of them together no more than `limit` are counted.
    fn descendants<'a>(&'a self, of: &'a [NodeId], limit: u64) -> Fut<'a, Vec<u64>>;

    /// The session of each node, in the order asked; `None` for a node of no session, or one that is not there.
    fn sessions_of<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<SessionId>>>;

    /// What a person or another program calls a node.
    fn resolve<'a>(&'a self, id: &'a Spelling, scope: &'a Scope) -> Fut<'a, Resolution>;

    /// How a ref moved, newest first.
    fn reflog<'a>(&'a self, query: &'a ReflogQuery) -> Fut<'a, Vec<LoggedMove>>;

    /// Refs that came to stand or were removed since a place of the log of their moves. Reads the moves since, and nothing else.
    fn ref_changes(&self, since: Option<RefLogPlace>) -> Fut<'_, RefChanges>;

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
    fn fork_points<'a>(&'a self, trunk: NodeId, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<ForkPoint>>>;

    /// The nearest nodes on the lineage of `of`, itself included, that say how its session is set: a change of the model,
    /// a change of thinking, an epoch, a first node or a compaction with a checkpoint; the nearest first, one of each at
    /// most. Reads what it returns and the places of such nodes, however long the lineage is.
    fn settings(&self, of: NodeId) -> Fut<'_, Vec<Node>>;

    /// When and why each node was erased, in the order asked; `None` for one that was not.
    fn erasures<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<Erasure>>>;

    /// Nodes without a root, the oldest first, at most 1,000: below a parent that is missing, or in a circle.
    fn astray(&self) -> Fut<'_, Vec<NodeId>>;

    /// Nodes that say something. What was committed before the call is found, unless the index is far behind, which
    /// the answer tells; a store that cannot be written has only what was indexed before.
    ///
    /// # Errors
    /// `TooLarge` for words of more than [`QUERY_LIMIT`](crate::QUERY_LIMIT) bytes.
    fn search(&self, query: SearchQuery) -> Fut<'_, SearchHits>;

    /// US dollars that model calls have cost since then: answers of ours that carry a cost, by the time of their
    /// nodes, in steps of a quarter hour. Reads a row for each quarter hour in which something was spent, no more.
    fn spent(&self, since: UnixMs) -> Fut<'_, f64>;

    /// US dollars that model calls may have cost since then besides: those of which the server did not tell what they cost,
    /// and those that were lost, for which something was reserved.
    fn assumed(&self, since: UnixMs, now: UnixMs) -> Fut<'_, f64>;

    /// What was spent of an account since then, in its unit: what calls that are over used, and what was reserved for those that were lost.
    fn spent_of<'a>(&'a self, account: &'a str, since: UnixMs, now: UnixMs) -> Fut<'a, i64>;

    /// Tokens and cost of all model calls, those of summaries too, in groups. A node counts once, however many lineages
    /// it is on.
    fn usage(&self, query: UsageQuery) -> Fut<'_, IndexedAnswer<Vec<UsageSum>>>;

    /// Files that a session touched, the last touched first, at most [`TOUCHED`](crate::TOUCHED): those that calls which
    /// succeeded name.
    fn file_activity<'a>(&'a self, session: &'a SessionId) -> Fut<'a, IndexedAnswer<Vec<FileActivity>>>;

    /// The state that answers about files are of: a cache of such answers holds while it stays.
    fn revision(&self) -> Fut<'_, Revision>;

    /// Changes of a file that is known by these absolute paths, the oldest first; the newest
    /// [`CHANGES`](crate::CHANGES) of each.
    fn changes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, IndexedAnswer<Vec<FileChange>>>;

    /// Steps that changed files, by the states before and after that nodes keep, the oldest first; commands and files
    /// that were put back included.
    fn file_steps(&self, query: FileStepQuery) -> Fut<'_, IndexedAnswer<Vec<FileStep>>>;

    /// What sessions did since a time, the last changed first.
    fn session_activity(&self, query: ActivityQuery) -> Fut<'_, IndexedAnswer<Vec<SessionActivity>>>;
}

/// A store with its read model: what an engine is given.
pub trait Graph: Store + ReadModel {
    /// What the store can do because it is a file on this machine; `None` for one that is not.
    fn local(&self) -> Option<&dyn Local> {
        None
    }

    /// Its index for questions; `None` for a store without one.
    fn recall_index(&self) -> Option<&dyn RecallIndex> {
        None
    }

    /// Its vectors; `None` for a store without them.
    fn vectors(&self) -> Option<&dyn Vectors> {
        None
    }
}

/// A place in the log of moves of refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefLogPlace {
    /// The newest move before it; 0 where there is none.
    pub id: i64,
    /// When that was.
    pub at: UnixMs,
}

/// What became of refs since a place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefChanges {
    /// Where the log ends now.
    pub until: RefLogPlace,
    /// The refs that came to stand or were removed, each as often as that. `None` where no place was given, or where the log has it no
    /// more: then all may be others.
    pub names: Option<Vec<RefName>>,
}

/// A node and one of its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The node that was asked about.
    pub parent: NodeId,
    /// The node whose parent it is.
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

/// The nodes that a spelling can mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
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
    pub by: SpellingKind,
    /// Its role.
    pub role: String,
    /// The writer's own id of the entry.
    pub external_id: Option<String>,
    /// When it was committed.
    pub timestamp: UnixMs,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
}

/// Which kind of spelling led to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpellingKind {
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

/// How the ids of sessions begin that were begun for another one, or for a job.
pub const CHILD_SESSION: &str = "child-";

/// Which sessions. Those that were removed are given only when they are asked for by `id`; those that were begun for another one
/// or for a job, whose ids begin with [`CHILD_SESSION`], when they are asked for by `id`, `called` or `parent`, or `children`
/// says so.
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
    /// Also those that were begun for another one, or for a job.
    pub children: bool,
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
