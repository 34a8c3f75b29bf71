//! Looks at the graph: what stands around a node, what was said in it, how it came about, who wrote a line of a file, and what
//! two branches did. Nothing here writes.
//!
//! Knows the store and what nodes mean; knows no session at work, no tool and no front. What is shown to a model is framed as an
//! archive ([`END`]), so that nobody takes it for something that is said now.

mod blame;
mod diff;
mod life;
mod listed;
mod log;
mod origin;
mod preview;
mod projects;
mod recall;
mod scope;
mod target;
mod text;
mod trace;
mod tree;

pub use blame::{BLAMED_CHANGES, Blame, BlameTurn, LineOf, NotKnown, ReadFile, blame};
pub use diff::{BranchDiff, BranchSide, branch_diff};
pub use life::{Filter, Life, LifeLine, LifeQuery, life, life_seen};
pub use listed::{ListedIds, needed};
pub use log::{Ended, LogEntry, log};
pub use origin::{content_of, made_by_command};
pub use projects::Projects;
pub use recall::{
    BUDGET, CONTEXT_BUDGET, MOST, NEIGHBOURS, Neighbours, RecallError, RecallQuery, Recalled, recall,
    recall_seen,
};
pub use scope::{NodeNameError, Sight};
pub use target::{Illegal, LegalTarget, legal_target};
pub use text::{BEGIN, BEGIN_HISTORY, END, Whole, escaped, piece, shortened, text_of};
pub use trace::{Carried, INCARNATE, Trace, TraceFilter, TraceQuery, TraceScope, carried, row_text, trace};
pub use tree::{SessionTree, TreeItem, TreeLine, TreeQuery, is_note, session_tree};
