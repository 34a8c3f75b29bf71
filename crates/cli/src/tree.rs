//! A session drawn as a tree.

use std::collections::HashMap;

use quipu_dag::Node;
use quipu_protocol::{Body, Content, Entry, Message, NodeId, StopReason};
use quipu_store::{Edge, SessionRow, Store};
use quipu_transcript::Decoded;

use crate::exit::Failure;
use crate::print::{Paint, one_line};

/// Nodes that are drawn at most.
const LIMIT: usize = 5000;
/// Characters of a preview.
const WIDTH: usize = 72;

/// The nodes of a session in the order in which they are drawn, each with its depth in branches.
pub(crate) struct Tree {
    pub(crate) rows: Vec<Row>,
    /// Whether there were more than are drawn.
    pub(crate) cut: bool,
}

pub(crate) struct Row {
    pub(crate) node: Node,
    pub(crate) decoded: Decoded,
    /// The lines to its left.
    pub(crate) gutter: String,
}

/// What is drawn of sessions that were forked from the one that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forks {
    /// Their first node, which names them.
    Named,
    /// All of them.
    Whole,
}

/// Reads a session's nodes, abandoned branches too.
pub(crate) async fn read(store: &dyn Store, session: &SessionRow, forks: Forks) -> Result<Tree, Failure> {
    let mut children: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    let mut ids = vec![session.base];
    let mut front = vec![session.base];
    let mut cut = false;
    while !front.is_empty() {
        let edges = store.children(&front).await?;
        front.clear();
        for Edge { parent, child } in edges {
            if ids.len() >= LIMIT {
                cut = true;
                break;
            }
            children.entry(parent).or_default().push(child);
            ids.push(child);
            front.push(child);
        }
        if cut {
            break;
        }
    }
    let found: Vec<Node> = store.nodes(&ids).await?.into_iter().flatten().collect();
    let decoded = quipu_store::decode_nodes(store, &found).await?;
    let mut objects: HashMap<NodeId, (Node, Decoded)> =
        found.into_iter().zip(decoded).map(|(node, decoded)| (node.id, (node, decoded))).collect();
    let mut rows = Vec::new();
    // Depth first without recursion; a node with one child goes on in the same column.
    let mut stack = vec![(session.base, String::new(), String::new())];
    while let Some((id, own, below)) = stack.pop() {
        let Some((node, decoded)) = objects.remove(&id) else { continue };
        if forks == Forks::Named
            && id != session.base
            && matches!(&decoded.entry, Entry::Session(start) if start.session != session.id)
        {
            rows.push(Row { node, decoded, gutter: own });
            continue;
        }
        rows.push(Row { node, decoded, gutter: own });
        let kids = children.remove(&id).unwrap_or_default();
        let last = kids.len().saturating_sub(1);
        for (place, kid) in kids.iter().enumerate().rev() {
            let (own, below) = match (last, place == last) {
                (0, _) => (below.clone(), below.clone()),
                (_, true) => (format!("{below}└─ "), format!("{below}   ")),
                (_, false) => (format!("{below}├─ "), format!("{below}│  ")),
            };
            stack.push((*kid, own, below));
        }
    }
    Ok(Tree { rows, cut })
}

/// The lines of a tree; `heads` are marked.
pub(crate) fn draw(tree: &Tree, heads: &[NodeId], paint: Paint) -> Vec<String> {
    let mut lines: Vec<String> = tree
        .rows
        .iter()
        .map(|row| {
            let mark = if heads.contains(&row.node.id) { paint.bold("  <-- HEAD") } else { String::new() };
            let id = paint.dim(&row.node.id.short());
            format!("{id}  {}{}{mark}", row.gutter, preview(&row.decoded.entry, paint))
        })
        .collect();
    if tree.cut {
        lines.push(format!("… more than {LIMIT} nodes; the rest is not drawn"));
    }
    lines
}

/// An entry on one line.
pub(crate) fn preview(entry: &Entry, paint: Paint) -> String {
    let (who, text) = match entry {
        Entry::Session(start) => ("session", format!("{} in {}", start.session, start.cwd)),
        Entry::Epoch(epoch) => ("epoch", format!("{}/{}", epoch.provider, epoch.model)),
        Entry::Compaction(compaction) => ("compaction", compaction.summary.clone()),
        Entry::Meta(json) => ("entry", json.to_string()),
        Entry::Message(message) => message_preview(message),
    };
    format!("{} {}", paint.cyan(who), one_line(&text, WIDTH))
}

fn message_preview(message: &Message) -> (&'static str, String) {
    match message {
        Message::User(user) => ("user", body(&user.content)),
        Message::Assistant(answer) => {
            let mut parts: Vec<String> = Vec::new();
            let text = answer.text();
            if !text.trim().is_empty() {
                parts.push(text);
            }
            parts.extend(answer.tool_calls().map(|call| format!("[{} {}]", call.name, call.arguments)));
            match (answer.stop_reason, &answer.error_message) {
                (StopReason::Error, Some(error)) => parts.push(format!("(failed: {error})")),
                (StopReason::Aborted, _) => parts.push("(aborted)".into()),
                (StopReason::Length, _) => parts.push("(cut off)".into()),
                _ => {}
            }
            ("assistant", parts.join(" "))
        }
        Message::ToolResult(result) => {
            let text = result.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join(" ");
            let failed = if result.is_error { "failed: " } else { "" };
            ("result", format!("[{}] {failed}{text}", result.tool_name))
        }
        Message::BashExecution(run) => ("command", run.command.clone()),
        Message::Custom(custom) => ("custom", body(&custom.content)),
        Message::BranchSummary(summary) => ("summary", summary.summary.clone()),
        Message::CompactionSummary(summary) => ("summary", summary.summary.clone()),
        Message::Other(json) => ("message", json.to_string()),
    }
}

fn body(body: &Body) -> String {
    let images = body.blocks().iter().filter(|block| matches!(block, Content::Image(_))).count();
    let text = body.text();
    if images > 0 { format!("{text} [{images} image(s)]") } else { text }
}
