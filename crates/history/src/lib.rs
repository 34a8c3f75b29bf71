//! Looks at the graph: what stands around a node, what it holds, how it came about, who wrote a line of a file, and what
//! two branches did. Nothing here writes.
//!
//! Knows the store and what nodes mean; knows no session at work, no tool and no front. What is shown to a model is framed as an
//! archive ([`END`]), so that nobody takes it for a message of now.

mod blame;
mod carryover;
mod diff;
mod life;
mod listing;
mod log;
mod origin;
mod preview;
mod projects;
mod recall;
mod scope;
mod target;
mod text;
mod time;
mod trace;
mod tree;

pub use blame::{
    BLAMED_CHANGES, Blame, BlameTurn, LineAuthor, LineCommits, NODE_TRAILER, NamedCommit, ReadFile,
    TrailerReport, UnknownReason, blame, blame_lines, credit_commits, file_names, sibling_file,
};
pub use carryover::{
    CARRYOVER_LIMIT, COUNTED, CarryoverError, carryover, carryover_note, count_left, line_of,
};
pub use diff::{BranchDiff, BranchSide, branch_diff};
pub use life::{Filter, Life, LifeLine, LifeQuery, life, life_seen};
pub use listing::{ListedIds, needed};
pub use log::{LogEntry, SessionEnd, log};
pub use origin::{content_of, made_by_command};
pub use projects::Projects;
pub use recall::{
    BUDGET, CONTEXT_BUDGET, MOST, NEIGHBOURS, Neighbours, RecallError, RecallQuery, RecalledNode, recall,
    recall_seen,
};
pub use scope::{NodeNameError, Sight};
pub use target::{IllegalTarget, LegalTarget, legal_target};
pub use text::{BEGIN, BEGIN_HISTORY, END, TextDetail, escaped, framed, piece, shortened, text_of};
pub use time::{instant, minute};
pub use trace::{
    INCARNATE, RowPayload, Trace, TraceFilter, TraceQuery, TraceScope, row_payload, row_text, trace,
};
pub use tree::{SessionTree, TreeItem, TreeLine, TreeQuery, is_note, session_tree};

/// The type of messages that are changes of a memory's files: their nodes say who made them.
pub const MEMORY_CHANGE: &str = "quipu.memory";
