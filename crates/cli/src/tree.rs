//! A session drawn as a tree: `quipu tree`, and what other commands show of one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use quipu::history::{TreeItem, TreeLine, TreeQuery};
use quipu_archive::PlacementRepair;
use quipu_dag::Node;
use quipu_protocol::{Entry, NodeId};
use quipu_store::{Edge, Graph, LineageEnd, Resolution, Scope, SessionRow};
use quipu_transcript::DecodedEntry;
use unicode_width::UnicodeWidthStr as _;

use crate::args::TreeArgs;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::print::{Paint, ago, counted, dollars, one_line, printable};
use quipu_host::{entry_words, nodes_of, now, room_behind, session_named};

/// Nodes that are drawn at most.
const LIMIT: usize = 5000;
/// Columns of a line's text where the terminal says nothing.
const WIDTH: usize = 80;
/// Columns of a line's text at least, however narrow the terminal is.
const NARROW: usize = 8;
/// Columns of a node's name and what follows it.
const NAME: usize = 14;
/// Branches inside each other that are indented; what is deeper says how deep.
const DEEPEST: usize = 8;
/// Nodes that are read together.
const TOGETHER: usize = 256;
/// Branches and the like that `--all` draws at most.
const MOST: usize = 10_000;
/// Entries with a missing parent that are looked for elsewhere in their session at most.
const SOUGHT: usize = 1_000;

/// `quipu tree`.
pub(crate) async fn run(args: &TreeArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.store_to_read()? else {
        return Err(no_sessions(&home));
    };
    let store: &dyn Graph = &*store;
    let row = match &args.session {
        Some(what) => session_named(store, what).await?,
        None => quipu_host::newest_here(store).await?,
    };
    let mut query = TreeQuery { whole: args.all, ..TreeQuery::default() };
    if args.all {
        query.most = MOST;
    }
    let tree = quipu::history::session_tree(store, &row, &query).await?;
    let terminal = crate::console::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    let mut drawing = Drawing {
        store,
        row: &row,
        tree: &tree,
        whole: args.all,
        json: args.out.json,
        paint: Paint::stdout(),
        width: terminal.map_or(NAME + WIDTH, |(width, _)| usize::from(width.0)),
        out: std::io::BufWriter::new(crate::console::stdout()),
        written: 0,
        starts: false,
        between: 0,
        forks: Vec::new(),
        ids: HashSet::new(),
        mended: BTreeMap::new(),
        sought: 0,
    };
    drawing.head(args.out.json).await?;
    drawing.body().await?;
    drawing.end()
}

/// A tree on its way to stdout.
struct Drawing<'a, W> {
    store: &'a dyn Graph,
    row: &'a SessionRow,
    tree: &'a quipu::history::SessionTree,
    whole: bool,
    json: bool,
    paint: Paint,
    /// Columns of a line.
    width: usize,
    out: W,
    /// Nodes so far.
    written: u64,
    /// Whether a branch began at an entry that is not drawn.
    starts: bool,
    /// Nodes that were left out before the next one.
    between: u64,
    /// Sessions that go on from this one, as JSON.
    forks: Vec<serde_json::Value>,
    /// Hashes of the ids of a foreign session's entries.
    ids: HashSet<u64>,
    /// What was repaired: how often, by what.
    mended: BTreeMap<&'static str, u64>,
    /// Entries with a missing parent so far.
    sought: usize,
}

impl<W: Write> Drawing<'_, W> {
    async fn head(&mut self, json: bool) -> Result<(), Failure> {
        let labels = quipu_host::label_counts(self.store, std::slice::from_ref(&self.row.id)).await?;
        if json {
            let session = quipu_host::session_json(self.row, &labels);
            return Ok(write!(self.out, "{{\"session\":{session},\"nodes\":[")?);
        }
        let (row, paint) = (self.row, self.paint);
        let room = self.width.saturating_sub("session ".len()).max(NARROW);
        write!(self.out, "session {}", paint.bold(&one_line(row.id.as_str(), room)))?;
        if row.head.is_none() {
            write!(self.out, "  {}", paint.red("(removed)"))?;
        }
        writeln!(self.out)?;
        for (what, text) in [("named", &row.called), ("in", &row.cwd)] {
            if !text.is_empty() {
                let room = self.width.saturating_sub(what.len() + 1).max(NARROW);
                writeln!(self.out, "{what} {}", one_line(text, room))?;
            }
        }
        if let Some(parent) = &row.parent {
            let base = self.store.nodes(&[row.base]).await?.into_iter().flatten().next();
            let at = base
                .and_then(|base| base.record.parent)
                .map_or(String::new(), |at| format!(" at {}", at.short()));
            writeln!(self.out, "forked from session {}{at}", printable(parent.as_str()))?;
        }
        let labels = match labels.get(&row.id) {
            None => String::new(),
            Some(1) => ", 1 label".into(),
            Some(count) => format!(", {count} labels"),
        };
        let nodes = counted(row.entries + 1, "node");
        let when = ago(now(), row.updated);
        Ok(writeln!(self.out, "{nodes}{labels}, {}, {when}\n", dollars(row.cost))?)
    }

    async fn body(&mut self) -> Result<(), Failure> {
        let tree = self.tree;
        for lines in tree.lines.chunks(TOGETHER) {
            let mut found = nodes_of(self.store, lines).await?;
            for line in lines {
                match &line.item {
                    TreeItem::Node(id) => {
                        if let Some((node, decoded)) = found.remove(id) {
                            self.node(line, &node, &decoded).await?;
                        }
                    }
                    TreeItem::Folded { below, depth, count } => {
                        self.fold(line, *below, *depth, *count).await?;
                    }
                    TreeItem::Session(row) => self.session(line, row)?,
                }
            }
        }
        Ok(())
    }

    /// Nodes in a row: each of them, or how many they are.
    async fn fold(&mut self, line: &TreeLine, below: NodeId, depth: u64, count: u64) -> Result<(), Failure> {
        let gutter = gutter(line.level, std::mem::take(&mut self.starts) || line.starts);
        if !self.whole {
            self.between += count;
            if !self.json {
                let what = if count == 1 { "1 node".into() } else { format!("{count} nodes") };
                writeln!(self.out, "{:NAME$}{gutter}{}", "", self.paint.dim(&format!("⋮ {what}")))?;
            }
            return Ok(());
        }
        let mut done = 0;
        let mut line = TreeLine { level: line.level, starts: line.starts, item: TreeItem::Node(below) };
        while done < count {
            let together = (count - done).min(TOGETHER as u64);
            let at = u32::try_from(depth + done + together - 1).unwrap_or(u32::MAX);
            let Some(last) = self.store.ancestor(below, at).await? else { break };
            let nodes = self
                .store
                .lineage(last, LineageEnd::Count(usize::try_from(together).unwrap_or(TOGETHER)))
                .await?;
            let decoded = quipu_store::decode_nodes(self.store, &nodes).await?;
            for (node, decoded) in nodes.iter().zip(&decoded) {
                self.node(&line, node, decoded).await?;
                line.starts = false;
            }
            done += together;
        }
        Ok(())
    }

    async fn node(&mut self, line: &TreeLine, node: &Node, decoded: &DecodedEntry) -> Result<(), Failure> {
        let starts = std::mem::take(&mut self.starts) || line.starts;
        let mended = self.mended_of(node, decoded).await?;
        // A label is shown beside its node, and a name above the tree.
        if !self.whole && mended.is_none() && quipu::history::is_note(&decoded.entry) {
            self.starts = starts;
            self.between += 1;
            return Ok(());
        }
        self.written += 1;
        let between = std::mem::take(&mut self.between);
        let label = self.tree.labels.get(&node.id);
        let is_head = node.id == self.tree.head;
        if self.json {
            let more = serde_json::json!({
                "level": line.level, "starts": starts, "between": between, "label": label, "head": is_head,
                "mended": mended,
            });
            let (node, more) = (quipu_host::node_json(node, decoded)?, more.to_string());
            let comma = if self.written > 1 { "," } else { "" };
            // The node holds raw JSON, which a value cannot.
            return Ok(write!(self.out, "{comma}{},{}", &node[..node.len() - 1], &more[1..])?);
        }
        let (paint, gutter) = (self.paint, gutter(line.level, starts));
        let room = self.width.saturating_sub(NAME + gutter.chars().count()).max(NARROW);
        let mut marks = String::new();
        let mut left = room;
        let mut mark = |text: &str, most: usize, colour: fn(Paint, &str) -> String| {
            let text = one_line(text, most.min(left.saturating_sub(NARROW + 2)).max(NARROW));
            left = left.saturating_sub(text.width() + 2);
            marks.push_str("  ");
            marks.push_str(&colour(paint, &text));
        };
        if let Some(label) = label {
            mark(&format!("[{label}]"), room / 2, Paint::cyan);
        }
        if let Some(mended) = mended {
            mark(&format!("(repaired: {mended})"), room, Paint::red);
        }
        if is_head {
            mark("<-- HEAD", room, Paint::bold);
        }
        let text = preview(&decoded.entry, paint, left);
        Ok(writeln!(self.out, "{}  {gutter}{text}{marks}", paint.dim(&node.id.short()))?)
    }

    fn session(&mut self, line: &TreeLine, row: &SessionRow) -> Result<(), Failure> {
        if self.json {
            self.forks.push(serde_json::json!({
                "session": row.id, "base": row.base, "name": row.called, "title": row.title, "entries": row.entries,
                "removed": row.head.is_none(),
            }));
            return Ok(());
        }
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let gutter = gutter(line.level, line.starts);
        let room = self.width.saturating_sub(NAME + gutter.chars().count()).max(NARROW);
        let nodes = counted(row.entries + 1, "node");
        let gone = if row.head.is_none() { ", removed" } else { "" };
        let text = one_line(&format!("session {}, {nodes}{gone}: {title}", row.id), room);
        let text = text.trim_end_matches(": ").trim_end_matches(':');
        Ok(writeln!(self.out, "{}  {gutter}{}", self.paint.dim(&row.base.short()), self.paint.bold(text))?)
    }

    /// What was repaired to make this entry of another program a node.
    async fn mended_of(
        &mut self,
        node: &Node,
        decoded: &DecodedEntry,
    ) -> Result<Option<&'static str>, Failure> {
        let row = self.row;
        if row.agent == quipu::AGENT {
            return Ok(None);
        }
        let twice = node.record.external_id.as_ref().is_some_and(|id| {
            // An entry of ours about this session has an id of ours.
            !self.ids.insert(hash(id)) && node.id != row.base
        });
        let repair = match quipu_archive::placement_repair(&row.agent, node, decoded, row.base) {
            Some(PlacementRepair::SecondHeader) => "a second header, kept separately",
            Some(PlacementRepair::NoId) => "it has no id, and nothing follows it",
            Some(PlacementRepair::NoParent) => "it has no parent id",
            Some(PlacementRepair::Parent(parent)) => {
                self.sought += 1;
                let spelling = format!("ext:{parent}").into();
                let scope = Scope { head: Some(self.tree.head) };
                let found = match self.sought {
                    0..=SOUGHT => self.store.resolve(&spelling, &scope).await?,
                    _ => Resolution::None,
                };
                let found = match found {
                    Resolution::One(one) => vec![one],
                    Resolution::Many(found) => found,
                    Resolution::None => Vec::new(),
                };
                if found.iter().any(|one| one.session.as_ref() == Some(&row.id)) {
                    "it follows itself in a circle, cut here"
                } else {
                    "what it follows is missing"
                }
            }
            None if twice => "another entry has its id",
            None => return Ok(None),
        };
        *self.mended.entry(repair).or_default() += 1;
        Ok(Some(repair))
    }

    fn end(mut self) -> Result<(), Failure> {
        let mended = self.mended.values().sum::<u64>();
        if self.json {
            let forks = serde_json::Value::from(std::mem::take(&mut self.forks));
            let (more, kinds) = (self.tree.more, serde_json::json!(self.mended));
            writeln!(self.out, "],\"forks\":{forks},\"more\":{more},\"mended\":{kinds}}}")?;
            return Ok(self.out.flush()?);
        }
        if self.tree.more {
            let what = if self.whole {
                format!("only the newest {MOST} branches, forks, labels and compactions are shown")
            } else {
                "only the newest branches, forks, labels and compactions are shown; --all shows more".into()
            };
            writeln!(self.out, "\n{}", self.paint.dim(&format!("… {what}")))?;
        }
        if mended > 0 {
            writeln!(self.out, "\nRepaired on import, among the nodes shown: {mended}")?;
            for (what, count) in &self.mended {
                writeln!(self.out, "  {count} × {what}")?;
            }
        }
        Ok(self.out.flush()?)
    }
}

/// What stands before the text of a line: where the branches are that go on below.
fn gutter(level: usize, starts: bool) -> String {
    let shown = level.min(DEEPEST);
    let mut gutter = "│  ".repeat(if starts { shown.saturating_sub(1) } else { shown });
    if starts && shown > 0 {
        gutter.push_str("├─ ");
    }
    if level > DEEPEST {
        gutter.push_str(&format!("({level}) "));
    }
    gutter
}

fn hash(text: &str) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

/// The nodes of a session in the order in which they are drawn, each with its depth in branches.
pub(crate) struct Tree {
    pub(crate) rows: Vec<Row>,
    /// Whether there were more than are drawn.
    pub(crate) cut: bool,
}

pub(crate) struct Row {
    pub(crate) node: Node,
    pub(crate) decoded: DecodedEntry,
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
pub(crate) async fn read(store: &dyn Graph, session: &SessionRow, forks: Forks) -> Result<Tree, Failure> {
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
    let mut objects: HashMap<NodeId, (Node, DecodedEntry)> =
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
        for (index, kid) in kids.iter().enumerate().rev() {
            let (own, below) = match (last, index == last) {
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
            format!("{id}  {}{}{mark}", row.gutter, preview(&row.decoded.entry, paint, WIDTH))
        })
        .collect();
    if tree.cut {
        lines.push(format!("… more than {LIMIT} nodes; the rest is not shown"));
    }
    lines
}

/// An entry on one line of so many columns.
pub(crate) fn preview(entry: &Entry, paint: Paint, width: usize) -> String {
    let (who, text) = entry_words(entry);
    format!("{} {}", paint.cyan(who), one_line(&text, room_behind(who, width)))
}
