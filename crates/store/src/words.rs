//! What goes into a store and comes out of its core: commits, refs, leases, steps, reservations.

use std::fmt;
use std::sync::Arc;

use quipu_dag::{Blob, NewChunk, Node};
use quipu_protocol::{CallId, ItemId, Json, NodeId, RunId, SessionId, UnixMs};
use serde::{Deserialize, Serialize};

use crate::{NodeHint, OpenJump, SpooledNodes};

/// One step: everything in it becomes durable together.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Content. Blobs that are there already are left as they are.
    pub blobs: Vec<Blob>,
    /// Plain bytes.
    pub chunks: Vec<NewChunk>,
    /// Nodes, parents before children. Their parents and parts must be in the store or in this commit.
    pub nodes: Vec<Node>,
    /// Facts of some of these nodes for the derived tables, so that their parts are not read again.
    pub hints: Vec<(NodeId, NodeHint)>,
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
    pub expect: RefExpectation,
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
        let expect = expect.map_or(RefExpectation::Absent, RefExpectation::At);
        Self { name, expect, to: Some(to), fence: None, why: why.into() }
    }

    /// A move that happens wherever the ref stands: for refs that several writers set, of whom the last wins.
    pub fn publish(name: RefName, to: NodeId, why: impl Into<String>) -> Self {
        Self { name, expect: RefExpectation::Any, to: Some(to), fence: None, why: why.into() }
    }
}

/// Where a ref must stand for a move to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefExpectation {
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
    /// Milliseconds since 1970.
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
        /// With it, only while the row has this data: another call can have taken its place.
        data: Option<Vec<u8>>,
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
    /// The call is over that something was reserved of an account for: in place of that, so much counts as spent of the account
    /// until the day is over. Nothing happens where nothing is reserved.
    Spend {
        /// Which one.
        id: ReserveId,
        /// In the unit of the account.
        amount: i64,
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

impl ReserveId {
    /// What is reserved of the amount of a purpose, or of an account, beside what is reserved of the day. What counts as spent of
    /// an account is what [`Op::Spend`] says, so its amounts can be of any unit.
    #[must_use]
    pub fn of_purpose(purpose: &str, id: &str) -> Self {
        Self(format!("{purpose}/{id}"))
    }

    /// The purpose or the account, and the slash behind it, where it is reserved of the amount of one.
    #[must_use]
    pub fn purpose(&self) -> Option<&str> {
        self.0.find('/').and_then(|end| self.0.get(..=end))
    }
}

/// What is to be reserved for a call. Amounts are in billionths of a US dollar. For the amount of a purpose only what is reserved of
/// that counts, and what was spent of it is in `elsewhere`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveRequest {
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

/// The answer to a [`ReserveRequest`]. Amounts are in billionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// What is reserved now: `full`, or as much between `least` and it as is left. `None`: nothing is.
    pub granted: Option<i64>,
    /// What was spent, calls that were lost included.
    pub spent: i64,
    /// What others have reserved.
    pub others: i64,
}

/// In whose inbox messages wait that are of no session yet: a name that no session can have. Their queue is the conversation.
pub const MESSAGE_INBOX: &str = "runtime:messages";

/// In whose inbox replies wait that no chat has acknowledged: as [`MESSAGE_INBOX`], of no session.
pub const REPLY_OUTBOX: &str = "runtime:replies";

/// The inbox that says which session a conversation has, by the name of the conversation: as [`MESSAGE_INBOX`], of no session.
pub fn conversation_inbox(conversation: &str) -> SessionId {
    format!("runtime:session:{conversation}").into()
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
    /// What is known of it: a recorded request, a call, a result. Opaque to the store; at most [`BLOB_LIMIT`](crate::BLOB_LIMIT).
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

/// Work that a session left open: queued inputs, steps, a jump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenWork {
    /// Inputs in the order in which they came.
    pub inbox: Vec<InboxItem>,
    /// Steps in the order in which they were first put.
    pub steps: Vec<Step>,
    /// A jump that is not over.
    pub jump: Option<OpenJump>,
}

/// Where a lineage that is read backward ends. The node named is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineageEnd {
    /// To the root.
    Root,
    /// To this node.
    Node(NodeId),
    /// This many nodes at most.
    Count(usize),
    /// To the newest node that stands for all before it (a compaction), else to the root.
    Checkpoint,
}
