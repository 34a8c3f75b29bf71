//! What nobody explains.

use quipu_protocol::NodeId;

use super::ledger::{LineAuthor, LineRange, UNEXPLAINED, lines_of};
use crate::AuthorClass;
use crate::files::{FileName, FileText};

/// A file that another program changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexplainedChange {
    /// The file.
    pub name: FileName,
    /// The node that keeps the change.
    pub node: NodeId,
}

/// What no node tells of: anybody's, unless a person accepted the whole.
pub(super) fn of_repository(text: &FileText, is_accepted: bool) -> Vec<LineAuthor> {
    let last = u32::try_from(lines_of(&text.text).len()).unwrap_or(u32::MAX);
    let author = LineAuthor {
        lines: LineRange { first: 1, last },
        class: if is_accepted { AuthorClass::Owner } else { AuthorClass::Untrusted },
        by: UNEXPLAINED.to_owned(),
        at: 0,
        node: None,
        sources: Vec::new(),
    };
    if last == 0 { Vec::new() } else { vec![author] }
}
