//! `recall`: one node of the graph, in pages, with what stands around it.

use quipu_dag::Node;
use quipu_protocol::{Content, Entry, Message, NodeId, UnixMs};
use quipu_store::{Graph, LineageEnd, StoreError, decode_shown, decode_with};
use quipu_transcript::{role_of, role_with};

use super::life::Filter;
use super::preview::{age, name, preview};
use super::scope::Sight;
use super::target::{LegalTarget, Parts, legal_target};
use super::text::{BEGIN, END, TextDetail, escaped, piece, shortened, text_of, units};

/// Code units that are shown when nobody says how many.
pub const BUDGET: u64 = 5_000;
/// Code units that are shown at most.
pub const MOST: u64 = 50_000;
/// Code units of each node before the one that was asked for.
pub const CONTEXT_BUDGET: u64 = 200;
/// Nodes before it that are looked at.
const CONTEXT_NODES: usize = 300;
/// Neighbours that are listed at most.
pub const NEIGHBOURS: usize = 50;
/// Nodes that are read at once.
const AT_ONCE: usize = 16;

/// What is read of a node, and around it. Lengths are UTF-16 code units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallQuery {
    /// The id of the node to read.
    pub node: NodeId,
    /// How much is shown in all: at least 1, at most 50,000.
    pub budget: u64,
    /// How much of the node is skipped.
    pub offset: u64,
    /// How much is shown of each node before it; 0 for none of them.
    pub context_budget: u64,
    /// Nodes before it at most; of more than 300, the nearest.
    pub depth: usize,
    /// Which nodes before it are shown.
    pub filter: Filter,
    /// How many of the nodes that follow it are listed, at most 50.
    pub children: usize,
    /// How many of the other nodes that follow its parent are listed, at most 50.
    pub siblings: usize,
    /// Whether the agent and the model that wrote it are shown.
    pub config: bool,
    /// Whether the output mentions that nobody can go to it.
    pub target: bool,
}

impl RecallQuery {
    /// The beginning of the node, and the messages before it.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            budget: BUDGET,
            offset: 0,
            context_budget: CONTEXT_BUDGET,
            depth: CONTEXT_NODES,
            filter: Filter::Default,
            children: 0,
            siblings: 0,
            config: false,
            target: false,
        }
    }
}

/// The node that `recall` read, with a page of its text.
#[derive(Debug, Clone, PartialEq)]
pub struct RecalledNode {
    /// The stored node.
    pub node: Node,
    /// The decoded content of the node.
    pub entry: Entry,
    /// The page of its text.
    pub text: String,
    /// Where the page begins and how long the text is.
    pub begins: u64,
    /// How long all of its text is.
    pub total: u64,
    /// Nodes before it, the oldest first, each with as much of its text as there is room for.
    pub context: Vec<(Node, String)>,
    /// How many before these were left out, and whether there are more than were counted.
    pub omitted: (usize, bool),
    /// The nodes that follow it, each on one line, and whether there are more.
    pub children: Option<Neighbours>,
    /// The other nodes that follow its parent.
    pub siblings: Option<Neighbours>,
    /// Whether somebody can go to it, where that was asked.
    pub target: Option<LegalTarget>,
    /// Which agent and model wrote it, where that was asked.
    pub config: Option<String>,
}

/// Nodes around another one, each with what it says on one line, and whether there are more.
pub type Neighbours = (Vec<(Node, String)>, bool);

/// Why a node was not read.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has no node with this id.
    #[error("there is no node {} in the store", .0.short())]
    NoSuchNode(NodeId),
    /// The page begins behind the end of the node.
    #[error("The node has {total} characters, so there is nothing at offset {offset}.")]
    Beyond {
        /// Where the page would begin.
        offset: u64,
        /// How long the node is.
        total: u64,
    },
}

/// Reads a node.
///
/// # Errors
/// `NoSuchNode`, `Beyond`, `Store`.
pub async fn recall(store: &dyn Graph, query: &RecallQuery) -> Result<RecalledNode, RecallError> {
    recall_seen(store, query, &Sight::Everything).await
}

/// The same, with what may be seen around it.
pub async fn recall_seen(
    store: &dyn Graph,
    query: &RecallQuery,
    sight: &Sight,
) -> Result<RecalledNode, RecallError> {
    let budget = query.budget.clamp(1, MOST);
    let each = query.context_budget.min(MOST);
    // A later page is more of the same node.
    let reads_context = each > 0 && query.offset == 0;
    let count = if reads_context { query.depth.min(CONTEXT_NODES) + 1 } else { 1 };
    let lineage = match store.lineage(query.node, LineageEnd::Count(count)).await {
        Err(StoreError::Missing { .. }) => return Err(RecallError::NoSuchNode(query.node)),
        lineage => lineage?,
    };
    let Some((target, before)) = lineage.split_last() else {
        return Err(RecallError::NoSuchNode(query.node));
    };
    let hidden = store.hidden();
    let decoded = decode_with(store, &hidden, std::slice::from_ref(target)).await?;
    let Some(entry) = decoded.into_iter().next().map(|decoded| decoded.entry) else {
        return Err(RecallError::NoSuchNode(query.node));
    };

    let parts = Parts::of_internal(store, before).await?;
    let before = before.iter().map(|node| named(node, role_of(node, &parts)));
    let is_person = matches!(sight, Sight::Everything);
    let shows = |node: &Node| query.filter.shows(&node.record.role) && (is_person || !hidden.hides(&node.id));
    let before: Vec<_> = before.filter(shows).collect();
    let most = (before.len() as u64).saturating_mul(each).min(budget / 2);
    let (mut context, mut used) = (Vec::new(), 0);
    'read: for some in before.rchunks(AT_ONCE) {
        let decoded = decode_with(store, &hidden, some).await?;
        for (node, decoded) in some.iter().zip(decoded).rev() {
            let text = shortened(&text_of(&decoded.entry, TextDetail::Shortened), each);
            let length = units(&archived(node, &text));
            if !context.is_empty() && used + length > most {
                break 'read;
            }
            used += length;
            context.push((node.clone(), text));
        }
    }
    context.reverse();
    let omitted = (before.len() - context.len(), reads_context && lineage.len() > CONTEXT_NODES);

    let all = text_of(&entry, TextDetail::Full);
    let total = units(&all);
    if query.offset > 0 && query.offset >= total {
        return Err(RecallError::Beyond { offset: query.offset, total });
    }
    let (page, begins) = piece(&all, query.offset, budget.saturating_sub(used).max(budget / 2).max(1));
    let children = match query.children {
        0 => None,
        most => Some(neighbours(store, sight, target.id, None, most).await?),
    };
    let siblings = match (query.siblings, target.record.parent) {
        (0, _) => None,
        (_, None) => Some((Vec::new(), false)),
        (most, Some(parent)) => Some(neighbours(store, sight, parent, Some(target.id), most).await?),
    };
    let legal = if query.target { Some(legal_target(store, target.id).await?) } else { None };
    let config = || target.config.clone().unwrap_or_else(|| "// config: not available for this node".into());
    Ok(RecalledNode {
        text: page.to_owned(),
        begins,
        total,
        context,
        omitted,
        children,
        siblings,
        target: legal,
        config: query.config.then(|| shortened(&config(), MOST)),
        node: named(target, role_with(target, &entry)),
        entry,
    })
}

/// A node to be shown, by the name of what it is.
fn named(node: &Node, role: &str) -> Node {
    let mut named = node.clone();
    role.clone_into(&mut named.record.role);
    named
}

/// The first nodes that follow `of`, without one of them, as far as they may be seen.
async fn neighbours(
    store: &dyn Graph,
    sight: &Sight,
    of: NodeId,
    without: Option<NodeId>,
    most: usize,
) -> Result<Neighbours, StoreError> {
    let most = most.min(NEIGHBOURS);
    // One more shows that there are more, and one may be left out.
    let edges = store.first_children(&[of], most + 2).await?;
    let ids: Vec<NodeId> = edges.iter().map(|edge| edge.child).filter(|id| Some(*id) != without).collect();
    let sees = sight.sees(store, &ids).await?;
    let nodes = store.nodes(&ids).await?;
    let mut nodes: Vec<Node> =
        nodes.into_iter().zip(sees).filter_map(|(node, sees)| node.filter(|_| sees)).collect();
    let more = nodes.len() > most;
    nodes.truncate(most);
    let parts = Parts::of(store, &nodes).await?;
    let hidden = store.hidden();
    let lines = nodes.into_iter().map(|node| {
        let line = preview(&node, &decode_shown(&hidden, &node, &parts).entry);
        (node, line)
    });
    Ok((lines.collect(), more))
}

fn archived(node: &Node, text: &str) -> String {
    format!("  {{ role: \"{}\", text: \"{}\" }}  // archived", escaped(&node.record.role), escaped(text))
}

impl RecalledNode {
    /// Where the page ends.
    pub fn ends(&self) -> u64 {
        self.begins + units(&self.text)
    }

    /// As text, framed as archive.
    pub fn text(&self, now: UnixMs) -> String {
        let mut lines = vec![BEGIN.to_owned(), "{".into()];
        if let Some(config) = &self.config {
            lines.push(format!("  config: {},", escaped(config)));
        }
        lines.push("  contents: [".into());
        let (omitted, more) = self.omitted;
        if omitted > 0 {
            let more = if more { "+" } else { "" };
            lines.push(format!("    // ... {omitted}{more} earlier turns omitted"));
        }
        lines.extend(self.context.iter().map(|(node, text)| format!("  {},", archived(node, text))));
        let (begins, ends, total) = (self.begins, self.ends(), self.total);
        let mut text = escaped(&self.text);
        if begins > 0 || ends < total {
            let shown = if begins == 0 { ends.to_string() } else { format!("{begins}-{ends}") };
            text.push_str(&format!("\n    // text truncated (showing {shown}/{total} chars)..."));
            if ends < total {
                text.push_str(&format!(" continue with offset {ends}"));
            }
        }
        let role = escaped(&self.node.record.role);
        lines.push(format!(
            "    {{ role: \"{role}\", text: \"{text}\" }}  // <-- TARGET NODE ({})",
            escaped(&name(&self.node))
        ));
        lines.push("  ]".into());
        for (what, found) in [("siblings", &self.siblings), ("children", &self.children)] {
            let Some((nodes, more)) = found else { continue };
            lines.push(format!("  {what}: ["));
            lines.extend(nodes.iter().map(|(node, preview)| {
                let line = format!("[{}] ({}) {preview}", name(node), age(now, node.record.timestamp));
                format!("    {}", escaped(&line))
            }));
            lines.extend(more.then(|| "    // ... more".to_owned()));
            lines.push("  ]".into());
        }
        if let Some(LegalTarget { illegal: Some(illegal), nearest, .. }) = &self.target {
            let nearest =
                nearest.map_or(String::new(), |node| format!("; the nearest before it is {}", node.short()));
            lines
                .push(format!("  // you cannot go to this node: {}{nearest}", escaped(&illegal.to_string())));
        }
        lines.extend(["}".into(), END.to_owned()]);
        lines.join("\n")
    }

    /// The images of the node.
    pub fn images(self) -> Vec<Content> {
        let mut blocks = match self.entry {
            Entry::Message(Message::ToolResult(result)) => result.content,
            Entry::Message(Message::User(user)) => user.content.blocks().into_owned(),
            _ => Vec::new(),
        };
        blocks.retain(|block| matches!(block, Content::Image(_)));
        blocks
    }
}
