//! Who wrote each line of a memory's files: a function of the nodes of its changes.

use std::collections::BTreeMap;

use quipu_protocol::{ChunkId, NodeId, UnixMs};
use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::shape::{KNOWN_AGAIN, TextShape};
use crate::AuthorClass;
use crate::files::FileStamp;

/// The lines of a file and the nodes that wrote them, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) version: u32,
    /// The node up to which it is.
    pub(crate) head: Option<NodeId>,
    pub(crate) files: BTreeMap<String, TrackedFile>,
    pub(crate) nodes: BTreeMap<NodeId, ChangeRecord>,
}

/// A file as the last node left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrackedFile {
    pub(crate) content: ChunkId,
    /// How many lines, one behind the other, which node wrote.
    pub(crate) lines: Vec<(u32, NodeId)>,
    /// The state of the file when it was last seen with this content; the default where it was not.
    #[serde(default)]
    pub(crate) stamp: FileStamp,
    /// Its lines, where the graph does not keep the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<TextShape>,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeRecord {
    pub(crate) class: AuthorClass,
    pub(crate) by: String,
    pub(crate) at: UnixMs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<NodeId>,
}

/// Lines of a file, counted from 1, the last included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LineRange {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

/// Who wrote some lines of a file that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineAuthor {
    /// The lines.
    pub lines: LineRange,
    /// The class of their author.
    pub class: AuthorClass,
    /// What wrote them, such as `editor` or the name of a tool; `unexplained` where nobody knows.
    pub by: String,
    /// When, in milliseconds since the epoch.
    pub at: UnixMs,
    /// The node of the change; `None` where the change is no node yet.
    pub node: Option<NodeId>,
    /// The nodes that they came from.
    pub sources: Vec<NodeId>,
}

impl Ledger {
    /// The form that this program reads and writes.
    pub(crate) const VERSION: u32 = 1;

    pub(crate) fn new() -> Self {
        Self { version: Self::VERSION, ..Self::default() }
    }

    /// A file became another one by the change of `node`. What is not known of the text before is nobody's: of such a text
    /// no line is taken for one of the node.
    pub(crate) fn change(
        &mut self,
        path: &str,
        old: FormerText<'_>,
        new: Option<(&str, ChunkId)>,
        node: NodeId,
    ) {
        let before = self.files.remove(path);
        let Some((new, content)) = new else { return };
        let new: Vec<&str> = lines_of(new);
        let owners = before.map(|file| spread(&file.lines)).unwrap_or_default();
        let lines = match old {
            FormerText::Absent => vec![node; new.len()],
            FormerText::Text(old) => match lines_of(old) {
                old if old.len() == owners.len() => self.attribute(&old, &owners, &new, node),
                _ => vec![NOBODY; new.len()],
            },
            FormerText::Unknown => vec![NOBODY; new.len()],
        };
        let stamp = FileStamp::default();
        let file = TrackedFile { content, lines: joined(&lines), stamp, shape: None };
        self.files.insert(path.to_owned(), file);
    }

    /// There is a file whose text is not known.
    pub(crate) fn lose(&mut self, path: &str, content: ChunkId) {
        let file = TrackedFile { content, lines: Vec::new(), stamp: FileStamp::default(), shape: None };
        self.files.insert(path.to_owned(), file);
    }

    fn attribute(&self, old: &[&str], owners: &[NodeId], new: &[&str], node: NodeId) -> Vec<NodeId> {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        let found = capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(end));
        let mut lines = vec![node; new.len()];
        let mut removed: BTreeMap<&str, NodeId> = BTreeMap::new();
        let mut inserted = Vec::new();
        for op in &found {
            if let DiffOp::Equal { old_index, new_index, len } = *op {
                lines[new_index..new_index + len].copy_from_slice(&owners[old_index..old_index + len]);
                continue;
            }
            for at in op.old_range() {
                let text = old[at].trim();
                if text.len() >= KNOWN_AGAIN {
                    let worst = removed.entry(text).or_insert(owners[at]);
                    if self.class(owners[at]) > self.class(*worst) {
                        *worst = owners[at];
                    }
                }
            }
            inserted.extend(op.new_range());
        }
        // A line that was moved, or indented anew, stays whose it was where that is less trusted.
        for at in inserted {
            if let Some(former) = removed.get(new[at].trim())
                && self.class(*former) > self.class(node)
            {
                lines[at] = *former;
            }
        }
        lines
    }

    /// A person accepted lines of a file: they are that person's from here on.
    pub(crate) fn accept(&mut self, path: &str, range: LineRange, node: NodeId) {
        let Some(file) = self.files.get_mut(path) else { return };
        let mut lines = spread(&file.lines);
        let first = usize::try_from(range.first).unwrap_or(1).max(1) - 1;
        let last = usize::try_from(range.last).unwrap_or(0).min(lines.len());
        for line in lines.get_mut(first..last).unwrap_or_default() {
            *line = node;
        }
        file.lines = joined(&lines);
    }

    pub(crate) fn class(&self, node: NodeId) -> AuthorClass {
        self.nodes.get(&node).map_or(AuthorClass::Untrusted, |record| record.class)
    }

    /// Who wrote the lines of a file, as the last node left it.
    pub(crate) fn authors(&self, path: &str) -> Vec<LineAuthor> {
        let Some(file) = self.files.get(path) else { return Vec::new() };
        let mut first = 1;
        let mut found = Vec::new();
        for (count, node) in &file.lines {
            let record = self.nodes.get(node);
            found.push(LineAuthor {
                lines: LineRange { first, last: first + count - 1 },
                class: self.class(*node),
                by: record.map_or_else(|| UNEXPLAINED.to_owned(), |record| record.by.clone()),
                at: record.map_or(0, |record| record.at),
                node: Some(*node).filter(|node| *node != NOBODY),
                sources: record.map(|record| record.sources.clone()).unwrap_or_default(),
            });
            first += count;
        }
        found
    }
}

/// A text of a file before a change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FormerText<'a> {
    /// There was no file.
    Absent,
    Text(&'a str),
    /// There was a file, and nobody knows what stood in it.
    Unknown,
}

/// In place of the node of lines that nobody explains.
pub(crate) const NOBODY: NodeId = NodeId([0; 32]);
/// In place of the hash of a text that is not known.
pub(crate) const NO_CONTENT: ChunkId = ChunkId([0; 32]);

/// What made a change that no command or tool of ours made.
pub(crate) const UNEXPLAINED: &str = "unexplained";

pub(crate) fn lines_of(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn spread(lines: &[(u32, NodeId)]) -> Vec<NodeId> {
    lines
        .iter()
        .flat_map(|(count, node)| std::iter::repeat_n(*node, usize::try_from(*count).unwrap_or(0)))
        .collect()
}

fn joined(lines: &[NodeId]) -> Vec<(u32, NodeId)> {
    let mut found: Vec<(u32, NodeId)> = Vec::new();
    for node in lines {
        match found.last_mut() {
            Some((count, last)) if last == node => *count += 1,
            _ => found.push((1, *node)),
        }
    }
    found
}
