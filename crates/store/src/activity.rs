//! Activity of sessions: what it cost, which tools were called, which files were read or changed.

use quipu_protocol::{ChunkId, FileState, NodeId, SessionId, UnixMs};
use quipu_transcript::FileOpKind;

/// Prompts of a session that [`ReadModel::session_activity`](crate::ReadModel::session_activity) gives at most.
pub const ASKED: usize = 50;
/// Files of a session that [`ReadModel::session_activity`](crate::ReadModel::session_activity) gives at most, by what was done to them: the last changed.
pub const LOGGED: usize = 100;
/// Files of one session that are given at most, the last touched first.
pub const TOUCHED: usize = 10_000;
/// Changes of one file that are given at most, the newest.
pub const CHANGES: usize = 2_000;

/// How tokens and cost are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageGrouping {
    /// Quarter hours of UTC, of which calendar days consist in every time zone in use.
    Time,
    /// The directory that the session works in.
    Project,
    /// The model, as `provider/model`.
    Model,
    /// The program that wrote it.
    Agent,
    /// The session.
    Session,
    /// What the calls were for: `answer`, `compaction`, `branch_summary`, or the word of whoever asked a runner.
    Purpose,
}

/// Which calls are summed, and how. Times are rounded to quarter hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// How the sums are grouped.
    pub by: UsageGrouping,
    /// Only calls at or after this time.
    pub since: Option<UnixMs>,
    /// Only calls before this time.
    pub until: Option<UnixMs>,
}

/// Tokens and cost of the model calls of one group and one model, all of which report their cost or none of which does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageSum {
    /// The group: a time in milliseconds, a directory, a model, an agent, a session or a purpose. Empty when it is not known.
    pub key: String,
    /// The model as `provider/model`; empty when it is not known.
    pub model: String,
    /// Whether the calls report their cost; ours always do.
    pub priced: bool,
    /// Model calls.
    pub calls: u64,
    /// Tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Tokens of answers.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to a cache.
    pub cache_write: u64,
    /// US dollars.
    pub cost: f64,
    /// Searches of the web, by the provider or by the tool for it. They are known by group, and stand with one of its sums.
    /// By model, those of a quarter hour in which a session used several models stand with the empty one.
    pub searches: u64,
}

/// An answer from the derived tables, and how many of the newest nodes they lack.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IndexedAnswer<T> {
    /// The answer.
    pub found: T,
    /// Nodes that are not in the tables yet.
    pub behind: u64,
}

/// What a session did to one file, by kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileActivity {
    /// The file: absolute, links not followed.
    pub path: String,
    /// The kind of operation.
    pub kind: FileOpKind,
    /// How often.
    pub times: u64,
    /// When last.
    pub at: UnixMs,
    /// The answer whose call did it last; the result, where the call is not known.
    pub node: NodeId,
}

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The answer whose call made it; the result, where the call is not known.
    pub node: NodeId,
    /// The place of the call in its answer, from 0.
    pub call: Option<usize>,
    /// The node that says how the file was before and after; `None` where only the call is known.
    pub states: Option<NodeId>,
    /// When it was made.
    pub at: UnixMs,
    /// The session of that node.
    pub session: Option<SessionId>,
    /// The program that wrote it; empty without a session.
    pub agent: String,
    /// The directory that the session works in.
    pub cwd: String,
    /// What the user said before it.
    pub asked: Option<NodeId>,
}

/// A step that changed a file: a tool call (commands included) or a restore of files, as its node records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStep {
    /// The file: absolute, links on the way resolved as far as the session's directory is.
    pub path: String,
    /// Where the step stands in the order in which nodes were written.
    pub seq: u64,
    /// The node that keeps it: a result, or one that says that files were put back.
    pub node: NodeId,
    /// The answer whose call it was; `None` where no model called.
    pub answer: Option<NodeId>,
    /// The place of the call in its answer, from 0.
    pub call: usize,
    /// When the answer was written, thus before the call began.
    pub began: UnixMs,
    /// When the call had ended.
    pub at: UnixMs,
    /// The session.
    pub session: Option<SessionId>,
    /// The program that wrote it; empty without a session.
    pub agent: String,
    /// The directory that the session works in.
    pub cwd: String,
    /// What the user said before it.
    pub asked: Option<NodeId>,
    /// The file as it was.
    pub before: FileState,
    /// The file as the step left it.
    pub after: FileState,
}

/// Which steps [`ReadModel::file_steps`](crate::ReadModel::file_steps) gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStepQuery {
    /// The steps whose changes are meant.
    pub of: FileSteps,
    /// At most so many of each, the newest; never more than [`CHANGES`].
    pub limit: usize,
}

/// What steps have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSteps {
    /// They changed one of these files, by absolute paths.
    Paths(Vec<String>),
    /// They found or left a file with this content.
    Content(ChunkId),
    /// They were written before the node at this place in the order of nodes, whatever file they changed.
    Before(u64),
    /// They follow what the user said there.
    Asked(NodeId),
}

/// Which sessions [`ReadModel::session_activity`](crate::ReadModel::session_activity) returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityQuery {
    /// Only those that work in this directory or below it.
    pub below: Option<String>,
    /// Only activity since this time, rounded to quarter hours.
    pub since: UnixMs,
    /// Only sessions of this program.
    pub agent: Option<String>,
    /// The number of sessions at most; the last changed are kept.
    pub limit: usize,
}

/// The activity of a session within a period.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionActivity {
    /// The session.
    pub session: SessionId,
    /// The program that writes it.
    pub agent: String,
    /// The directory that it works in.
    pub cwd: String,
    /// The name that it was given; empty for none.
    pub called: String,
    /// Where it stands.
    pub head: NodeId,
    /// When its last node was written.
    pub updated: UnixMs,
    /// What the user said, the newest [`ASKED`], the oldest of them first.
    pub asked: Vec<NodeId>,
    /// How often the user said something.
    pub asked_count: u64,
    /// Tools, by how often they were called.
    pub tools: Vec<ToolCount>,
    /// Files that it changed, the newest [`LOGGED`], the last changed first.
    pub changed: Vec<FileActivity>,
    /// How many files it changed.
    pub changed_count: u64,
    /// What its model calls used.
    pub usage: Vec<UsageSum>,
}

/// How often a tool was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCount {
    /// The name of the tool.
    pub tool: String,
    /// How often.
    pub calls: u64,
    /// How many of these failed.
    pub failed: u64,
}
