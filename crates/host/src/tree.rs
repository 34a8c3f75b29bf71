//! Sessions as trees of rows.

use std::collections::HashMap;

use quipu::history::{TreeItem, TreeLine, TreeQuery, session_tree};
use quipu_dag::Node;
use quipu_past::{PastId, PastScope};
use quipu_protocol::{Entry, Message, NodeId, SessionId};
use quipu_store::{Graph, LineageEnd, SessionQuery, decode_nodes};
use quipu_transcript::{DecodedEntry, typed_text};

use crate::entry::entry_line;
use crate::text::{ago, one_line, title_of};
use crate::{Failure, now};

/// Nodes that are read together.
const TOGETHER: usize = 256;
/// Nodes before the head that are shown at once.
const RECENT: u64 = 400;
/// Branches, compactions, forks and labels at most.
const MOST: usize = 2_000;
/// Nodes of a run that are shown when it is unfolded.
const UNFOLDED: u64 = 1_000;
/// Nodes that are looked through for what the user said.
const SOUGHT: usize = 5_000;
/// Nodes that are shown of what a session was forked from; the others can be opened.
const BEFORE: u64 = 30;
/// Forks of forks that are looked at.
const GENERATIONS: usize = 100;
/// Columns of a row at most.
const WIDTH: usize = 300;

/// How far a navigator reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// The nodes of this session alone.
    Session(SessionId),
    /// The sessions of the directory.
    Project,
    /// The sessions of all directories and agents.
    All,
}

/// What a row of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// The user said it.
    User,
    /// The model said it.
    Assistant,
    /// A tool returned it.
    Tool,
    /// The summary of a compaction or of a branch.
    Summary,
    /// No message: a session's start, another model, an entry of another program.
    Other,
    /// So many nodes that are not read yet.
    Folded {
        /// The node behind them.
        below: NodeId,
        /// Nodes before the first of them.
        depth: u64,
        /// The number of folded nodes.
        count: u64,
    },
    /// A session that continues from the row before.
    Session,
    /// A past; its chunks can be listed below it.
    Past,
    /// A summary of the past; the chunks or nodes that it sums up can be listed below it.
    Chunk,
}

/// A past, or a chunk of one, as a row of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRow {
    /// Whose past it is.
    pub scope: PastScope,
    /// Its name for people.
    pub name: String,
    /// The chunk; `None` for the past as a whole.
    pub chunk: Option<PastChunkRow>,
}

/// A chunk as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastChunkRow {
    /// Its id.
    pub id: PastId,
    /// How it is named for people; typed back, it finds the chunk.
    pub key: String,
    /// Its range, as people write one.
    pub range: String,
}

/// A line of a tree, as the terminal lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// The node; of a session its first one.
    pub node: NodeId,
    /// Whether the row is a node, a folded run of nodes or a session.
    pub kind: TreeKind,
    /// How many branches it is away from what leads to where the session stands.
    pub level: usize,
    /// Whether a branch begins here.
    pub starts: bool,
    /// One line of what it says.
    pub text: String,
    /// Its label; empty for none.
    pub label: String,
    /// Whether the session stands here.
    pub head: bool,
    /// The id of a session's row; `None` for other rows.
    pub session: Option<SessionId>,
    /// Of a node: the session that it is shown for, where that is not the one that is open.
    pub of: Option<SessionId>,
    /// Of a past and its chunks: which one it is.
    pub past: Option<PastRow>,
}

impl TreeRow {
    /// A row of the outermost level that is only what it is and says.
    pub fn new(node: NodeId, kind: TreeKind, text: impl Into<String>) -> Self {
        Self {
            node,
            kind,
            level: 0,
            starts: false,
            text: text.into(),
            label: String::new(),
            head: false,
            session: None,
            of: None,
            past: None,
        }
    }
}

/// A session as rows, the oldest first; behind what it was forked from, where that is wanted. One that is not stored yet
/// goes on `from` a node.
pub async fn tree_rows(
    store: &dyn Graph,
    session: &SessionId,
    from: Option<NodeId>,
    with_past: bool,
) -> Result<Vec<TreeRow>, Failure> {
    let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
    let Some(row) = store.sessions(query).await?.into_iter().next() else {
        let Some(from) = from else { return Ok(Vec::new()) };
        let mut rows = past(store, from, RECENT).await?;
        rows.last_mut().into_iter().for_each(|row| row.head = true);
        return Ok(rows);
    };
    let query = TreeQuery { recent: RECENT, most: MOST, ..TreeQuery::default() };
    let tree = session_tree(store, &row, &query).await?;
    let mut rows = Vec::new();
    let base = store.nodes(&[row.base]).await?.into_iter().flatten().next();
    if let Some(at) = base.filter(|_| with_past).and_then(|base| base.record.parent) {
        rows = past(store, at, BEFORE).await?;
        let text = "this session continues from here";
        rows.push(TreeRow::new(row.base, TreeKind::Session, text));
    }
    rows.reserve(tree.lines.len());
    for lines in tree.lines.chunks(TOGETHER) {
        let found = nodes_of(store, lines).await?;
        for line in lines {
            let (level, starts) = (line.level, line.starts);
            match &line.item {
                TreeItem::Node(id) => {
                    let Some((_, decoded)) = found.get(id) else { continue };
                    let label = tree.labels.get(id).cloned().unwrap_or_default();
                    rows.push(TreeRow {
                        level,
                        starts,
                        label,
                        head: *id == tree.head,
                        ..of_node(*id, &decoded.entry)
                    });
                }
                TreeItem::Folded { below, depth, count } => {
                    rows.push(TreeRow { starts, ..folded(*below, *depth, *count, level) });
                }
                TreeItem::Session(row) => {
                    let title = title_of(row);
                    let gone = if row.head.is_none() { " (removed)" } else { "" };
                    let text =
                        format!("session, {} nodes{gone}: {}", row.entries + 1, one_line(title, WIDTH));
                    let session = Some(row.id.clone()).filter(|_| row.head.is_some());
                    rows.push(TreeRow {
                        level,
                        starts,
                        session,
                        ..TreeRow::new(row.base, TreeKind::Session, text)
                    });
                }
            }
        }
    }
    Ok(rows)
}

/// What leads to a node that a session goes on from: the sessions that it is from, the oldest first, and their nodes up to
/// where others went on from them. So many of the last nodes are shown.
async fn past(store: &dyn Graph, mut at: NodeId, mut shown: u64) -> Result<Vec<TreeRow>, Failure> {
    let mut stretches = Vec::new();
    for _ in 0..GENERATIONS {
        let of = store.sessions_of(&[at]).await?.into_iter().flatten().next();
        let row = match of {
            Some(id) => {
                let query = SessionQuery { id: Some(id), limit: Some(1), ..SessionQuery::default() };
                store.sessions(query).await?.into_iter().next()
            }
            None => None,
        };
        let open = row.as_ref().filter(|row| row.head.is_some()).map(|row| row.id.clone());
        let asked = [at, row.as_ref().map_or(at, |row| row.base)];
        let mut met = store.fork_points(at, &asked).await?.into_iter();
        let Some(end) = met.next().flatten() else { break };
        // A session that does not lead there says nothing of where it begins.
        let first = met.next().flatten().filter(|met| met.apart.is_none() && row.is_some());
        let depth = first.as_ref().map_or(0, |met| met.depth);
        let count = end.depth + 1 - depth;
        let left = if count <= shown + 1 { 0 } else { count - shown };
        let nodes = match usize::try_from(count - left) {
            Ok(0) | Err(_) => Vec::new(),
            Ok(count) => store.lineage(at, LineageEnd::Count(count)).await?,
        };
        let decoded = decode_nodes(store, &nodes).await?;
        let mut rows = Vec::new();
        if let Some(row) = &row {
            let title = title_of(row);
            let gone = if row.head.is_none() { " (removed)" } else { "" };
            let text = format!("forked from session{gone}: {}", one_line(title, WIDTH));
            rows.push(TreeRow { session: open.clone(), ..TreeRow::new(row.base, TreeKind::Session, text) });
        }
        if left > 0 {
            let below = nodes.first().map_or(at, |first| first.id);
            rows.push(TreeRow { of: open.clone(), ..folded(below, depth, left, 0) });
        }
        let node = |(node, decoded): (&Node, &DecodedEntry)| TreeRow {
            of: open.clone(),
            ..of_node(node.id, &decoded.entry)
        };
        rows.extend(nodes.iter().zip(&decoded).map(node));
        stretches.push(rows);
        let base = row.filter(|_| first.is_some()).map(|row| row.base);
        let before = store.nodes(base.as_slice()).await?.into_iter().flatten().next();
        let Some(parent) = before.and_then(|base| base.record.parent) else { break };
        (at, shown) = (parent, shown.saturating_sub(count - left));
    }
    Ok(stretches.into_iter().rev().flatten().collect())
}

/// Sessions as rows, the last changed last; those that went on from another one below it.
pub async fn session_rows(
    store: &dyn Graph,
    cwd: Option<String>,
    most: usize,
) -> Result<Vec<TreeRow>, Failure> {
    let all = cwd.is_none();
    let query = SessionQuery { cwd, limit: Some(most), ..SessionQuery::default() };
    let mut found = store.sessions(query).await?;
    found.retain(|row| row.head.is_some());
    found.reverse();
    let places: HashMap<SessionId, usize> =
        found.iter().enumerate().map(|(at, row)| (row.id.clone(), at)).collect();
    let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for (at, row) in found.iter().enumerate() {
        // One that is its own is broken, and stands by itself.
        let parent = row.parent.as_ref().and_then(|parent| places.get(parent)).copied();
        below.entry(parent.filter(|parent| *parent != at)).or_default().push(at);
    }
    let now = now();
    let mut rows = Vec::with_capacity(found.len());
    let mut stack: Vec<(usize, usize)> = Vec::new();
    let push = |stack: &mut Vec<(usize, usize)>, at: Option<Vec<usize>>, level: usize| {
        stack.extend(at.unwrap_or_default().into_iter().rev().map(|at| (at, level)));
    };
    push(&mut stack, below.remove(&None), 0);
    while let Some((at, level)) = stack.pop() {
        let row = &found[at];
        let title = title_of(row);
        let agent = if row.agent == quipu::AGENT { "" } else { &row.agent };
        let mut text = one_line(title, WIDTH);
        for more in [agent, if all { &row.cwd } else { "" }] {
            if !more.is_empty() {
                text.push_str(" · ");
                text.push_str(&one_line(more, WIDTH));
            }
        }
        text.push_str(&format!(" · {} nodes, {}", row.entries + 1, ago(now, row.updated)));
        rows.push(TreeRow {
            level,
            starts: level > 0,
            session: Some(row.id.clone()),
            ..TreeRow::new(row.base, TreeKind::Session, text)
        });
        push(&mut stack, below.remove(&Some(at)), level + 1);
    }
    Ok(rows)
}

/// The nodes of a run that was folded: its last ones, where it is long.
pub async fn unfolded_rows(
    store: &dyn Graph,
    below: NodeId,
    depth: u64,
    count: u64,
    level: usize,
) -> Result<Vec<TreeRow>, Failure> {
    let shown = count.min(UNFOLDED);
    let last = u32::try_from(depth + count - 1).unwrap_or(u32::MAX);
    let Some(last) = store.ancestor(below, last).await? else { return Ok(Vec::new()) };
    let nodes = store.lineage(last, LineageEnd::Count(usize::try_from(shown).unwrap_or(TOGETHER))).await?;
    let decoded = decode_nodes(store, &nodes).await?;
    let mut rows = Vec::with_capacity(nodes.len() + 1);
    if let Some(first) = nodes.first().filter(|_| shown < count) {
        let left = count - shown;
        rows.push(folded(first.id, depth, left, level));
    }
    rows.extend(
        nodes
            .iter()
            .zip(&decoded)
            .map(|(node, decoded)| TreeRow { level, ..of_node(node.id, &decoded.entry) }),
    );
    Ok(rows)
}

/// What the user said, the newest first.
pub async fn user_messages(store: &dyn Graph, head: NodeId) -> Result<Vec<(NodeId, String)>, Failure> {
    let nodes = store.lineage(head, LineageEnd::Count(SOUGHT)).await?;
    let mut messages = Vec::new();
    for nodes in nodes.rchunks(TOGETHER) {
        let decoded = decode_nodes(store, nodes).await?;
        for (node, decoded) in nodes.iter().zip(decoded).rev() {
            if let Entry::Message(Message::User(user)) = decoded.entry {
                messages.push((node.id, one_line(&typed_text(&user.content.blocks()), WIDTH)));
            }
        }
    }
    Ok(messages)
}

/// The row of nodes that are not shown one by one.
fn folded(below: NodeId, depth: u64, count: u64, level: usize) -> TreeRow {
    let kind = TreeKind::Folded { below, depth, count };
    TreeRow { level, ..TreeRow::new(below, kind, format!("⋮ {count} more")) }
}

pub(crate) fn of_node(node: NodeId, entry: &Entry) -> TreeRow {
    let kind = match entry {
        Entry::Message(Message::User(_) | Message::Custom(_) | Message::BashExecution(_)) => TreeKind::User,
        Entry::Message(Message::Assistant(_)) => TreeKind::Assistant,
        Entry::Message(Message::ToolResult(_)) => TreeKind::Tool,
        Entry::Message(Message::BranchSummary(_) | Message::CompactionSummary(_)) | Entry::Compaction(_) => {
            TreeKind::Summary
        }
        Entry::Message(Message::Other(_)) | Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => {
            TreeKind::Other
        }
    };
    TreeRow::new(node, kind, entry_line(entry, WIDTH))
}

/// The nodes of a few lines, and what they hold; those that are gone are left out.
pub async fn nodes_of(
    store: &dyn Graph,
    lines: &[TreeLine],
) -> Result<HashMap<NodeId, (Node, DecodedEntry)>, Failure> {
    let ids: Vec<NodeId> = lines
        .iter()
        .filter_map(|line| match line.item {
            TreeItem::Node(id) => Some(id),
            TreeItem::Folded { .. } | TreeItem::Session(_) => None,
        })
        .collect();
    let nodes: Vec<Node> = store.nodes(&ids).await?.into_iter().flatten().collect();
    let decoded = decode_nodes(store, &nodes).await?;
    Ok(nodes.into_iter().zip(decoded).map(|(node, decoded)| (node.id, (node, decoded))).collect())
}
