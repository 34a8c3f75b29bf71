//! `life`: the graph around a node.

use std::collections::{HashMap, HashSet};

use quipu_dag::Node;
use quipu_protocol::{Entry, Message, NodeId, UnixMs};
use quipu_store::{Graph, HiddenSnapshot, LineageEnd, StoreError, decode_shown};
use quipu_transcript::{INTERNAL, role_of};
use serde::Deserialize;

use super::preview::{age, name, preview};
use super::scope::Sight;
use super::target::{IllegalTarget, Parts, Turn, step_of, turn_at};
use super::text::{END, escaped};

/// Descendants of all siblings together that are counted.
const COUNTED: u64 = 1_000;

/// Which nodes are shown around the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// All but those that are no messages.
    #[default]
    Default,
    /// No results of tools.
    NoTools,
    /// Only messages of the user.
    UserOnly,
    /// Every node, also those that are no messages.
    All,
}

impl Filter {
    /// Whether nodes of this role are shown.
    pub fn shows(self, role: &str) -> bool {
        match self {
            Self::Default => role != INTERNAL,
            Self::NoTools => role != INTERNAL && role != "toolResult",
            Self::UserOnly => role == "user",
            Self::All => true,
        }
    }
}

/// What is shown of the graph around a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifeQuery {
    /// The node.
    pub focus: NodeId,
    /// The node that is marked as the head of its session.
    pub head: Option<NodeId>,
    /// Nodes before it at most.
    pub ancestors: usize,
    /// Whether what follows it is shown, and what else follows its parent.
    pub children: bool,
    /// Which nodes are shown. The focus and the head always are. What follows a node that is not shown is not shown either.
    pub filter: Filter,
    /// How many nodes below its children are shown.
    pub max_depth: usize,
    /// Lines at most.
    pub most: usize,
}

impl LifeQuery {
    /// Three nodes before it, its children, and ten nodes below each.
    pub fn new(focus: NodeId) -> Self {
        Self {
            focus,
            head: None,
            ancestors: 3,
            children: true,
            filter: Filter::Default,
            max_depth: 10,
            most: 200,
        }
    }
}

/// The graph around a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The node.
    pub focus: NodeId,
    /// Whether there is more before the first line.
    pub earlier: bool,
    /// The lines in their order.
    pub lines: Vec<LifeLine>,
    /// Whether more follows than is shown, beyond what the filter and the depth leave out.
    pub more: bool,
}

/// One node of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifeLine {
    /// The id of the node.
    pub node: NodeId,
    /// The node that it follows.
    pub parent: Option<NodeId>,
    /// What is drawn before it: how it follows from the lines above.
    pub lead: String,
    /// `pi:` and its writer's own id, or the beginning of its hash.
    pub name: String,
    /// The role of its message, or the kind of its entry.
    pub role: String,
    /// When it was committed.
    pub at: UnixMs,
    /// What it says, on one line.
    pub preview: String,
    /// Whether it is the one that was asked for.
    pub is_focus: bool,
    /// Whether its session stands there.
    pub is_head: bool,
    /// How many nodes follow it, where these are not shown, and whether there may be more.
    pub descendants: Option<(u64, bool)>,
    /// Whether it is an answer that calls tools.
    pub calls_tools: bool,
    /// Why nobody can go there; see [`legal_target`](crate::legal_target).
    pub illegal: Option<IllegalTarget>,
}

/// Reads the graph around a node. Takes as long as what is shown is large, and not as the graph is.
///
/// # Errors
/// `Missing` when there is no such node; what the store says.
pub async fn life(store: &dyn Graph, query: &LifeQuery) -> Result<Life, StoreError> {
    life_seen(store, query, &Sight::Everything).await
}

/// The same, as far as it may be seen.
pub async fn life_seen(store: &dyn Graph, query: &LifeQuery, sight: &Sight) -> Result<Life, StoreError> {
    let count = query.ancestors.min(query.most).saturating_add(1);
    let mut chain = store.lineage(query.focus, LineageEnd::Count(count)).await?;
    let ids: Vec<NodeId> = chain.iter().map(|node| node.id).collect();
    let sees = sight.sees(store, &ids).await?;
    // Where the lineage comes from somewhere else, it begins later.
    let unseen = sees.iter().take(sees.len().saturating_sub(1)).rposition(|sees| !sees);
    chain.drain(..unseen.map_or(0, |at| at + 1));
    let mut around =
        Descendants { query, sight, nodes: HashMap::new(), below: HashMap::new(), shown: 0, more: false };
    around.shown = chain.len();
    let mut siblings = Vec::new();
    if query.children {
        if let [.., parent, focus] = chain.as_slice() {
            around.read_children(store, &[parent.id]).await?;
            siblings = around.below.remove(&parent.id).unwrap_or_default();
            siblings.retain(|id| *id != focus.id);
            // It stands in the chain already.
            around.shown -= usize::from(around.nodes.remove(&focus.id).is_some());
        }
        around.read_below(store).await?;
    }
    let counts = store.descendants(&siblings, COUNTED).await?;
    let capped = counts.iter().sum::<u64>() >= COUNTED;

    let all: Vec<Node> = chain.iter().chain(around.nodes.values()).cloned().collect();
    let parts = Parts::of(store, &all).await?;
    let first = chain.first();
    let mut turn = match first.and_then(|first| first.record.parent) {
        // An answer begins a turn, whatever was before it.
        Some(_) if first.is_some_and(|first| step_of(first, &parts).begins()) => Turn::default(),
        Some(parent) => match turn_at(store, parent).await {
            Err(StoreError::Missing { .. }) => Turn::broken(IllegalTarget::Lost),
            found => found?,
        },
        None => Turn::default(),
    };
    let earlier = first.is_some_and(|first| first.record.parent.is_some());
    let mut drawing = Drawing { hidden: store.hidden(), query, parts, around: &around, lines: Vec::new() };
    let last = chain.len().saturating_sub(1);
    for (at, node) in chain.iter().enumerate() {
        if at == last {
            let beside = turn.clone();
            for (id, count) in siblings.iter().zip(&counts) {
                let count = (*count > 0).then_some((*count, capped));
                drawing.line(*id, "├── ".into(), &mut beside.clone(), count);
            }
        }
        let lead = if at == last && !siblings.is_empty() { "└── " } else { "" };
        drawing.node(node, lead.into(), &mut turn, None, at == last);
    }
    drawing.tree(query.focus, if siblings.is_empty() { "" } else { "    " }, &turn);
    Ok(Life { focus: query.focus, earlier, lines: drawing.lines, more: around.more })
}

/// What stands below the chain.
struct Descendants<'a> {
    query: &'a LifeQuery,
    sight: &'a Sight,
    nodes: HashMap<NodeId, Node>,
    /// The children of a node that are shown, in their order.
    below: HashMap<NodeId, Vec<NodeId>>,
    shown: usize,
    more: bool,
}

impl Descendants<'_> {
    /// Level by level, until there are enough.
    async fn read_below(&mut self, store: &dyn Graph) -> Result<(), StoreError> {
        let mut level = vec![self.query.focus];
        let mut seen = HashSet::from([self.query.focus]);
        for _ in 0..=self.query.max_depth {
            self.read_children(store, &level).await?;
            let next = level.iter().filter_map(|id| self.below.get(id)).flatten().copied();
            // Rows that somebody else wrote may lead in a circle.
            level = next.filter(|id| seen.insert(*id)).collect();
            if level.is_empty() {
                break;
            }
        }
        Ok(())
    }

    async fn read_children(&mut self, store: &dyn Graph, of: &[NodeId]) -> Result<(), StoreError> {
        let left = self.query.most.saturating_sub(self.shown);
        let edges = store.first_children(of, left.saturating_add(1)).await?;
        let ids: Vec<NodeId> = edges.iter().map(|edge| edge.child).take(2 * self.query.most).collect();
        self.more |= ids.len() < edges.len();
        let sees = self.sight.sees(store, &ids).await?;
        let nodes = store.nodes(&ids).await?;
        let found: Vec<Node> = nodes.iter().flatten().cloned().collect();
        let parts = Parts::of_internal(store, &found).await?;
        for ((edge, node), sees) in edges.into_iter().zip(nodes).zip(sees) {
            let Some(node) = node.filter(|node| sees && self.shows(node, &parts)) else { continue };
            if self.shown >= self.query.most {
                self.more = true;
                break;
            }
            self.shown += 1;
            self.below.entry(edge.parent).or_default().push(node.id);
            self.nodes.insert(node.id, node);
        }
        Ok(())
    }

    fn shows(&self, node: &Node, parts: &Parts) -> bool {
        node.id == self.query.focus
            || Some(node.id) == self.query.head
            || self.query.filter.shows(role_of(node, parts))
    }
}

/// Lines in the making.
struct Drawing<'a> {
    hidden: HiddenSnapshot,
    query: &'a LifeQuery,
    parts: Parts,
    around: &'a Descendants<'a>,
    lines: Vec<LifeLine>,
}

impl Drawing<'_> {
    /// What follows a node, which ends `turn`.
    fn tree(&mut self, of: NodeId, gutter: &str, turn: &Turn) {
        let children = |id: &NodeId| self.around.below.get(id).cloned().unwrap_or_default();
        // A node with what is drawn before its children's branches, and its turn.
        let mut stack: Vec<(NodeId, String, String, Turn)> = Vec::new();
        let push = |stack: &mut Vec<_>, of: &NodeId, gutter: &str, turn: &Turn| {
            let children = children(of);
            for (at, child) in children.iter().enumerate().rev() {
                let (lead, next) =
                    if at + 1 == children.len() { ("└── ", "    ") } else { ("├── ", "│   ") };
                stack.push((*child, format!("{gutter}{lead}"), format!("{gutter}{next}"), turn.clone()));
            }
        };
        push(&mut stack, &of, gutter, turn);
        let mut drawn = HashSet::from([of]);
        let mut lines = Vec::new();
        while let Some((id, lead, gutter, mut turn)) = stack.pop() {
            let Some(node) = self.around.nodes.get(&id).filter(|_| drawn.insert(id)) else { continue };
            lines.push(self.made(node, lead, &mut turn, None));
            push(&mut stack, &id, &gutter, &turn);
        }
        self.lines.append(&mut lines);
    }

    fn line(&mut self, id: NodeId, lead: String, turn: &mut Turn, descendants: Option<(u64, bool)>) {
        if let Some(node) = self.around.nodes.get(&id) {
            let line = self.made(node, lead, turn, descendants);
            self.lines.push(line);
        }
    }

    /// A node of the chain, which continues the turn also where it is not shown.
    fn node(
        &mut self,
        node: &Node,
        lead: String,
        turn: &mut Turn,
        descendants: Option<(u64, bool)>,
        is_last: bool,
    ) {
        let line = self.made(node, lead, turn, descendants);
        if is_last || self.around.shows(node, &self.parts) {
            self.lines.push(line);
        }
    }

    fn made(&self, node: &Node, lead: String, turn: &mut Turn, descendants: Option<(u64, bool)>) -> LifeLine {
        turn.add(&step_of(node, &self.parts));
        let entry = decode_shown(&self.hidden, node, &self.parts).entry;
        let calls_tools = match &entry {
            Entry::Message(Message::Assistant(answer)) => answer.tool_calls().next().is_some(),
            _ => false,
        };
        LifeLine {
            node: node.id,
            parent: node.record.parent,
            lead,
            name: name(node),
            role: role_of(node, &self.parts).to_owned(),
            at: node.record.timestamp,
            preview: preview(node, &entry),
            is_focus: node.id == self.query.focus,
            is_head: Some(node.id) == self.query.head,
            descendants,
            calls_tools,
            illegal: turn.illegal(),
        }
    }
}

impl LifeLine {
    /// The marks behind its text: the focus, the head, how much follows.
    pub fn marks(&self) -> String {
        let mut marks = match (self.is_focus, self.is_head) {
            (true, true) => "  <-- FOCUS, HEAD".to_owned(),
            (true, false) => "  <-- FOCUS".to_owned(),
            (false, true) => "  <-- HEAD".to_owned(),
            (false, false) => String::new(),
        };
        if let Some((count, more)) = self.descendants {
            let (more, ending) = (if more { "+" } else { "" }, if count == 1 && !more { "" } else { "s" });
            marks.push_str(&format!(" ({count}{more} descendant{ending})"));
        }
        marks
    }
}

impl Life {
    /// As text, framed as archive: the names of nodes that nobody can go to are left out.
    pub fn text(&self, now: UnixMs) -> String {
        self.text_hiding(now, |line| line.illegal.is_some())
    }

    /// The same without the lines that `hides` names.
    pub fn text_hiding(&self, now: UnixMs, hides: impl Fn(&LifeLine) -> bool) -> String {
        let mut lines = Vec::with_capacity(self.lines.len() + 3);
        lines.extend(self.earlier.then(|| "...".to_owned()));
        for line in &self.lines {
            let name = match hides(line) {
                true => " ".repeat(line.name.chars().count() + 2),
                false => format!("[{}]", line.name),
            };
            let text = format!("{name} ({}) {}{}", age(now, line.at), line.preview, line.marks());
            lines.push(format!("{}{}", line.lead, escaped(&text)));
        }
        lines.extend(self.more.then(|| "... more nodes follow; ask for a node below".to_owned()));
        lines.push(END.to_owned());
        lines.join("\n")
    }
}
