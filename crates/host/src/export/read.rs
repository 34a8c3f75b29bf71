//! Every node of a session in the order of its tree, read in pieces.

use quipu::history::{SessionTree, TreeItem, TreeQuery};
use quipu_dag::Node;
use quipu_protocol::NodeId;
use quipu_store::{Graph, LineageEnd, SessionRow, decode_whole};
use quipu_transcript::DecodedEntry;

use super::{ExportError, ExportSummary};
use crate::json::{label_counts, session_json};
use crate::{Advice, Failure, FailureKind};

/// Nodes that are looked for at once.
const TOGETHER: usize = 256;
/// Nodes that are held with their content, which may be large.
const DECODED: usize = 16;
/// Branches, labels and forks at most.
const MOST: usize = 10_000;

/// Where a node stands.
pub(super) struct RowPosition<'a> {
    /// How many branches it is away from the line to the head.
    pub(super) level: usize,
    /// Whether a branch begins here.
    pub(super) starts: bool,
    /// Whether it is of the session that this one goes on from.
    pub(super) past: bool,
    /// Whether the session stands here.
    pub(super) head: bool,
    /// What it was called.
    pub(super) label: Option<&'a str>,
}

/// What a session is written with.
pub(super) trait Writer {
    /// Before the first node.
    fn begin(&mut self, row: &SessionRow, session: &serde_json::Value) -> Result<(), ExportError>;
    fn node(
        &mut self,
        position: &RowPosition<'_>,
        node: &Node,
        decoded: &DecodedEntry,
    ) -> Result<(), ExportError>;
    /// A session that goes on from the node before.
    fn fork(&mut self, row: &SessionRow) -> Result<(), ExportError>;
    /// After the last; whether there are more branches, labels or forks than were written.
    fn end(&mut self, more: bool) -> Result<(), ExportError>;
}

/// Hands every node of a session to `out`, what it goes on from first.
pub(super) async fn read(
    store: &dyn Graph,
    row: &SessionRow,
    out: &mut dyn Writer,
) -> Result<ExportSummary, ExportError> {
    let labels = label_counts(store, std::slice::from_ref(&row.id)).await?;
    let tree = quipu::history::session_tree(
        store,
        row,
        &TreeQuery { whole: true, most: MOST, ..TreeQuery::default() },
    )
    .await?;
    out.begin(row, &session_json(row, &labels))?;
    let mut reading = TreeExport { store, tree: &tree, out, written: 0 };
    let base = store.fork_points(tree.head, &[row.base]).await?.into_iter().flatten().next();
    let before = base.map_or(0, |base| base.depth);
    reading.row(row.base, 0, before, (0, false, true)).await?;
    let mut ids: Vec<(NodeId, usize, bool)> = Vec::new();
    for line in &tree.lines {
        match &line.item {
            TreeItem::Node(id) => {
                ids.push((*id, line.level, line.starts));
                if ids.len() >= TOGETHER {
                    reading.nodes(&ids, false).await?;
                    ids.clear();
                }
            }
            TreeItem::Folded { below, depth, count } => {
                reading.nodes(&ids, false).await?;
                ids.clear();
                reading.row(*below, *depth, *count, (line.level, line.starts, false)).await?;
            }
            TreeItem::Session(row) => {
                reading.nodes(&ids, false).await?;
                ids.clear();
                reading.out.fork(row)?;
            }
        }
    }
    reading.nodes(&ids, false).await?;
    let written = reading.written;
    out.end(tree.more)?;
    Ok(ExportSummary { entries: written, more: tree.more })
}

struct TreeExport<'a> {
    store: &'a dyn Graph,
    tree: &'a SessionTree,
    out: &'a mut dyn Writer,
    written: u64,
}

impl TreeExport<'_> {
    /// Nodes in a row before `below`, the first with `depth` nodes before it.
    async fn row(
        &mut self,
        below: NodeId,
        depth: u64,
        count: u64,
        (level, mut starts, past): (usize, bool, bool),
    ) -> Result<(), ExportError> {
        let mut done = 0;
        while done < count {
            let together = (count - done).min(TOGETHER as u64);
            let at = u32::try_from(depth + done + together - 1).unwrap_or(u32::MAX);
            let Some(last) = self.store.ancestor(below, at).await? else { break };
            let until = LineageEnd::Count(usize::try_from(together).unwrap_or(TOGETHER));
            let nodes = self.store.lineage(last, until).await?;
            let ids: Vec<_> =
                nodes.iter().map(|node| (node.id, level, std::mem::take(&mut starts))).collect();
            self.nodes(&ids, past).await?;
            done += together;
        }
        Ok(())
    }

    async fn nodes(&mut self, places: &[(NodeId, usize, bool)], past: bool) -> Result<(), ExportError> {
        for places in places.chunks(DECODED) {
            let ids: Vec<NodeId> = places.iter().map(|(id, ..)| *id).collect();
            let mut nodes = Vec::with_capacity(ids.len());
            for (id, node) in ids.iter().zip(self.store.nodes(&ids).await?) {
                nodes.push(node.ok_or_else(|| {
                    let what = format!("node {id} of the session is missing from the store");
                    Failure::new(FailureKind::Store, what).advise(Advice::Examine)
                })?);
            }
            let decoded = decode_whole(self.store, &nodes).await?;
            for ((node, decoded), (_, level, starts)) in nodes.iter().zip(&decoded).zip(places) {
                let label = self.tree.labels.get(&node.id).map(String::as_str);
                let head = node.id == self.tree.head;
                let position = RowPosition { level: *level, starts: *starts, past, head, label };
                self.out.node(&position, node, decoded)?;
                self.written += 1;
            }
        }
        Ok(())
    }
}
