//! Derived tables: where each node stands, and sessions at a glance.
//!
//! Every row is a function of the graph alone. Rows of `nodes` are taken in the order of their row numbers, from
//! a cursor; a node whose parent is not yet known waits for it. Rows are taken in groups: by a commit when enough
//! have gathered, in quiet moments, and for a read that needs them.

use std::collections::HashMap;

use quipu_dag::{Blob, Node};
use quipu_protocol::{Entry, Message, NodeId, SessionStart, StepInfo, Usage};
use quipu_transcript::{Lookup, decode};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, params};
use serde::Deserialize;

use super::costs::nano_dollars;
use super::failure::Outcome;
use super::forest::{LabelText, Marks};
use super::places::{Parts, Position, at, cursor, is_behind, kind, last, position};
use super::rows;
use super::schema;

/// What sessions can cost at most, in billionths of a US dollar.
const COST: i64 = 1_000_000_000_000_000_000;
/// Characters of a title at most.
const TITLE: usize = 200;

/// Indexes up to `limit` nodes after the cursor; says whether more may be left. Within the caller's transaction.
pub(super) fn advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    advance_knowing(connection, limit, &HashMap::new(), Vec::new())
}

/// The same, where what some of the nodes mean is known, and what was written last is at hand.
fn advance_knowing(
    connection: &Connection,
    limit: usize,
    hints: &HashMap<NodeId, NodeHint>,
    at_hand: Vec<(i64, Node)>,
) -> Outcome<bool> {
    let mut indexer = Indexer::new(connection, hints)?;
    let from = cursor(connection)?;
    let (last, taken) = match is_all_after(connection, from, &at_hand)? {
        true => indexer.add_all(at_hand.into_iter().take(limit), from)?,
        false => indexer.read_on(from, limit)?,
    };
    indexer.finish()?;
    if last != from {
        connection.prepare_cached("UPDATE quipu_x_cursor SET seq = ?1")?.execute([last])?;
    }
    // Rows of the log name nodes that were committed before or with them.
    Ok(taken == limit || super::actions::advance(connection, limit)?)
}

/// Whether these are all rows after one, in order.
fn is_all_after(connection: &Connection, from: i64, nodes: &[(i64, Node)]) -> Outcome<bool> {
    let is_run = nodes.iter().zip(from + 1..).all(|((seq, _), expected)| *seq == expected);
    match nodes.last() {
        Some((seq, _)) if is_run => Ok(u64::try_from(*seq) == Ok(last(connection)?)),
        _ => Ok(false),
    }
}

/// [`advance`] for connections that write. Derived tables that are damaged must not stand in the way of commits:
/// they are made anew, from the first node on.
pub(super) fn advance_or_renew(connection: &Connection, limit: usize) -> Outcome<bool> {
    advance_or_renew_knowing(connection, limit, &HashMap::new(), Vec::new())
}

/// The same, where what some of the nodes mean is known, and what was written last is at hand.
pub(super) fn advance_or_renew_knowing(
    connection: &Connection,
    limit: usize,
    hints: &HashMap<NodeId, NodeHint>,
    at_hand: Vec<(i64, Node)>,
) -> Outcome<bool> {
    match advance_knowing(connection, limit, hints, at_hand) {
        Err(failure) if failure.is_of_data() => {
            schema::reset_derived(connection)?;
            advance(connection, limit)
        }
        other => other,
    }
}

struct Indexer<'a> {
    connection: &'a Connection,
    put: CachedStatement<'a>,
    /// What became of sessions, by number: latest time, new entries, their cost.
    touched: HashMap<i64, (i64, i64, i64)>,
    /// Whether any node waits for its parent.
    waiting: bool,
    /// What was placed or looked up: the next node mostly stands below the one before.
    placed: HashMap<NodeId, Position>,
    looked_up: HashMap<i64, Position>,
    marks: Marks,
    hints: &'a HashMap<NodeId, NodeHint>,
}

impl<'a> Indexer<'a> {
    fn new(connection: &'a Connection, hints: &'a HashMap<NodeId, NodeHint>) -> Outcome<Self> {
        let waiting = connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM quipu_x_wait)")?
            .query_row([], |row| row.get(0))?;
        Ok(Self {
            connection,
            put: connection.prepare_cached(
                "INSERT OR REPLACE INTO quipu_x_node (seq, id, parent, jump, depth, session, kind, cost) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            touched: HashMap::new(),
            waiting,
            placed: HashMap::new(),
            looked_up: HashMap::new(),
            marks: Marks::default(),
            hints,
        })
    }

    /// Adds nodes that are in the file after the row `from`; gives back the last of them, and how many they are.
    fn add_all(
        &mut self,
        nodes: impl ExactSizeIterator<Item = (i64, Node)>,
        from: i64,
    ) -> Outcome<(i64, usize)> {
        let taken = nodes.len();
        self.placed.reserve(taken);
        self.looked_up.reserve(taken);
        let mut last = from;
        for (seq, node) in nodes {
            last = seq;
            self.add(seq, node, None)?;
        }
        Ok((last, taken))
    }

    /// The same of up to `limit` nodes, which are read.
    fn read_on(&mut self, from: i64, limit: usize) -> Outcome<(i64, usize)> {
        let (mut last, mut taken) = (from, 0);
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {}, n.rowid FROM nodes n WHERE n.rowid > ?1 ORDER BY n.rowid LIMIT ?2",
            rows::NODE
        ))?;
        let mut found = statement.query(params![from, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while let Some(row) = found.next()? {
            last = row.get(9)?;
            taken += 1;
            // A row whose id is not a hash cannot be named by anybody.
            if let Some(node) = rows::node(row)? {
                let rootless = rows::text(row, 1)?.filter(|_| node.record.parent.is_none());
                self.add(last, node, rootless.as_deref())?;
            }
        }
        Ok((last, taken))
    }

    /// Writes what became of sessions, once for each.
    fn finish(self) -> Outcome<()> {
        let mut touch = self.connection.prepare_cached(
            "UPDATE quipu_x_session SET updated = max(updated, ?2), entries = entries + ?3, cost = min(cost + ?4, ?5) \
             WHERE num = ?1",
        )?;
        for (num, (updated, entries, cost)) in self.touched {
            touch.execute(params![num, updated, entries, cost, COST])?;
        }
        self.marks.write(self.connection)
    }

    fn position(&self, id: &NodeId) -> Outcome<Option<Position>> {
        match self.placed.get(id) {
            Some(known) => Ok(Some(*known)),
            None => position(self.connection, id),
        }
    }

    fn at(&mut self, seq: i64) -> Outcome<Position> {
        if let Some(known) = self.looked_up.get(&seq) {
            return Ok(*known);
        }
        let found = at(self.connection, seq)?;
        self.looked_up.insert(seq, found);
        Ok(found)
    }

    /// The jump of a child: two jumps of equal length are joined to one, as carries are in skew-binary numbers.
    fn jump_below(&mut self, parent: Position) -> Outcome<i64> {
        let near = self.at(parent.jump)?;
        let far = self.at(near.jump)?;
        let joined = parent.depth - near.depth == near.depth - far.depth;
        Ok(if joined { near.jump } else { parent.seq })
    }

    /// Adds a node, and those that waited for it. `broken` is a parent that is not a hash.
    fn add(&mut self, seq: i64, node: Node, broken: Option<&str>) -> Outcome<()> {
        if let Some(parent) = broken {
            return self.wait(seq, parent);
        }
        let mut ready = vec![(seq, node)];
        while let Some((seq, node)) = ready.pop() {
            let parent = match &node.record.parent {
                None => None,
                Some(id) => match self.position(id)? {
                    Some(parent) => Some(parent),
                    None => {
                        self.wait(seq, &id.to_string())?;
                        continue;
                    }
                },
            };
            self.place(seq, &node, parent)?;
            if self.waiting {
                self.release(&node.id, &mut ready)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, seq: i64, parent: &str) -> Outcome<()> {
        self.waiting = true;
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO quipu_x_wait VALUES (?1, ?2)")?
            .execute(params![seq, parent])?;
        Ok(())
    }

    fn release(&self, parent: &NodeId, ready: &mut Vec<(i64, Node)>) -> Outcome<()> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {}, n.rowid FROM quipu_x_wait w JOIN nodes n ON n.rowid = w.seq WHERE w.parent = ?1",
            rows::NODE
        ))?;
        let mut found = statement.query([parent.to_string()])?;
        let mut some = false;
        while let Some(row) = found.next()? {
            if let Some(node) = rows::node(row)? {
                let seq = row.get(9)?;
                super::search::placed_late(self.connection, seq)?;
                super::recall::placed_late(self.connection, seq)?;
                super::activity::placed_late(self.connection, seq)?;
                ready.push((seq, node));
                some = true;
            }
        }
        drop(found);
        if some {
            self.connection
                .prepare_cached("DELETE FROM quipu_x_wait WHERE parent = ?1")?
                .execute([parent.to_string()])?;
        }
        Ok(())
    }

    fn place(&mut self, seq: i64, node: &Node, parent: Option<Position>) -> Outcome<()> {
        let (jump, depth) = match parent {
            None => (seq, 0),
            Some(parent) => (self.jump_below(parent)?, parent.depth + 1),
        };
        let inherited = parent.and_then(|parent| parent.session);
        let meaning = self.meaning(node, inherited)?;
        let session = match &meaning.start {
            Some(start) => {
                self.begin_session(seq, node, start)?;
                Some(seq)
            }
            None => inherited,
        };
        self.put.execute(params![
            seq,
            node.id.0,
            parent.map(|parent| parent.seq),
            jump,
            depth,
            session,
            meaning.kind,
            meaning.cost
        ])?;
        if meaning.cost > 0 && meaning.charged {
            super::costs::add(self.connection, node.record.timestamp, meaning.cost)?;
        }
        // Nodes of no session together count as one.
        let (at, number) = (node.record.timestamp, session.unwrap_or(0));
        self.marks.placed(seq, number, parent.map(|parent| (parent.seq, parent.session.unwrap_or(0))), at);
        if meaning.kind == kind::CHECKPOINT {
            self.marks.compaction(seq, number, at);
        }
        if let Some(said) = meaning.says {
            super::setting::add(self.connection, number, said, seq)?;
        }
        if let Some(given) = meaning.given {
            self.marks.given(seq, number, at, given);
        }
        let known = Position { seq, parent: parent.map_or(seq, |parent| parent.seq), jump, depth, session };
        self.placed.insert(node.id, known);
        self.looked_up.insert(seq, known);
        if let (Some(num), None) = (session, &meaning.start) {
            let (updated, entries, cost) = self.touched.entry(num).or_insert((i64::MIN, 0, 0));
            *updated = node.record.timestamp.max(*updated);
            *entries += 1;
            *cost = cost.saturating_add(meaning.cost).min(COST);
            if let Some(title) = &meaning.title {
                self.connection
                    .prepare_cached(
                        "UPDATE quipu_x_session SET title = ?2, titled = ?3 \
                         WHERE num = ?1 AND (titled IS NULL OR titled > ?3)",
                    )?
                    .execute(params![num, title, seq])?;
            }
        }
        Ok(())
    }

    fn begin_session(&self, seq: i64, node: &Node, start: &SessionStart) -> Outcome<()> {
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO quipu_x_session (num, id, ref, base, project, agent, model, parent, title, \
                 titled, created, updated, entries, cost) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, '', NULL, ?9, ?9, 0, 0)",
            )?
            .execute(params![
                seq,
                start.session.as_str(),
                crate::RefName::of_agent(&start.agent, &start.session).as_str(),
                node.id.0,
                start.cwd,
                start.agent,
                start.epoch.model,
                start.parent_session.as_ref().map(quipu_protocol::SessionId::as_str),
                node.record.timestamp
            ])?;
        Ok(())
    }

    /// What the tables need to know of a node. Content is read only where it can matter.
    fn meaning(&self, node: &Node, session: Option<i64>) -> Outcome<NodeFacts> {
        let mut meaning = NodeFacts::of_kind(kind::OTHER);
        let read = match node.record.role.as_str() {
            "user" => {
                meaning.kind = kind::USER;
                match session {
                    Some(num) => self.lacks_title(num)?,
                    None => false,
                }
            }
            "assistant" => {
                meaning.kind = kind::ASSISTANT;
                session.is_some()
            }
            "toolResult" => {
                meaning.kind = kind::TOOL_RESULT;
                false
            }
            "compactionSummary" => {
                meaning.kind = kind::CHECKPOINT;
                session.is_some()
            }
            "bashExecution" | "custom" | "branchSummary" => false,
            _ => true,
        };
        if !read {
            return Ok(meaning);
        }
        if let Some(NodeHint { cost, charged, says }) = self.hints.get(&node.id).copied() {
            return Ok(NodeFacts { cost, charged, says, ..meaning });
        }
        let Some(own) = node.record.parts.last() else { return Ok(meaning) };
        let Some(own) = rows::find_blob(self.connection, own)?.filter(|blob| blob.kind == "quipu") else {
            // Only our nodes begin sessions or tell their cost; a title may come from anyone.
            if meaning.kind != kind::USER {
                return Ok(meaning);
            }
            return self.read(node, None, meaning);
        };
        self.read(node, Some(own), meaning)
    }

    /// Of answers and summaries, only our own part: what they cost stands there.
    fn read(&self, node: &Node, own: Option<Blob>, meaning: NodeFacts) -> Outcome<NodeFacts> {
        let mut blobs = HashMap::new();
        for part in &node.record.parts {
            if !matches!(meaning.kind, kind::ASSISTANT | kind::CHECKPOINT)
                && own.as_ref().is_none_or(|own| own.id != *part)
                && let Some(blob) = rows::find_blob(self.connection, part)?
            {
                blobs.insert(*part, blob);
            }
        }
        blobs.extend(own.map(|own| (own.id, own)));
        Ok(meaning.and_what_stands_in(node, &Parts(blobs)))
    }

    fn lacks_title(&self, num: i64) -> Outcome<bool> {
        let titled: Option<Option<i64>> = self
            .connection
            .prepare_cached("SELECT titled FROM quipu_x_session WHERE num = ?1")?
            .query_row([num], |row| row.get(0))
            .optional()?;
        // A node that waited can come before the one that gave the title.
        Ok(titled.is_some_and(|titled| titled.is_none() || self.waiting))
    }
}

impl NodeFacts {
    fn of_kind(kind: i64) -> Self {
        Self { kind, cost: 0, charged: false, title: None, start: None, given: None, says: None }
    }

    fn and_what_stands_in(self, node: &Node, parts: &dyn Lookup) -> Self {
        let mut meaning = self;
        let decoded = decode(node, parts);
        meaning.charged = decoded.step.call.is_some();
        meaning.says = super::setting::of(&decoded.entry);
        match decoded.entry {
            Entry::Session(start) => {
                meaning.kind = kind::SESSION;
                meaning.start = Some(start);
            }
            Entry::Epoch(_) => meaning.kind = kind::EPOCH,
            Entry::Compaction(compaction) => {
                meaning.kind = kind::CHECKPOINT;
                meaning.cost = compaction.usage.map_or(0, |usage| nano_dollars(usage.cost.total));
            }
            Entry::Meta(json) => {
                meaning.kind = kind::META;
                meaning.given = LabelText::of(&json);
                let is_summary = json.get().contains("\"branch_summary\"");
                if meaning.charged || is_summary {
                    // Calls that belong to no message: for a branch's summary, or for a summary that came to nothing.
                    let SummaryPart { kind, usage, data } = json.read().unwrap_or_default();
                    let (usage, data) = match meaning.charged || kind == "branch_summary" {
                        true => (usage, data),
                        false => Default::default(),
                    };
                    meaning.cost = nano_dollars(usage.or(data.usage).map_or(0.0, |usage| usage.cost.total));
                }
            }
            Entry::Message(Message::User(message)) => {
                meaning.title = Some(title(&message.content.text())).filter(|title| !title.is_empty());
            }
            Entry::Message(Message::Assistant(message)) => {
                meaning.cost = nano_dollars(message.usage.cost.total);
            }
            Entry::Message(_) => {}
        }
        meaning
    }
}

#[derive(Default, Deserialize)]
struct SummaryPart {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    data: SummaryData,
}

#[derive(Default, Deserialize)]
struct SummaryData {
    #[serde(default)]
    usage: Option<Usage>,
}

struct NodeFacts {
    kind: i64,
    /// In billionths of a US dollar.
    cost: i64,
    /// Whether a call of ours gave it; what was imported was paid elsewhere.
    charged: bool,
    title: Option<String>,
    start: Option<SessionStart>,
    /// A label or a name.
    given: Option<LabelText>,
    /// What it says of the session's settings.
    says: Option<i64>,
}

/// What the derived tables need of an answer or a summary. The writer of the node passes it along; otherwise it is read
/// again from the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHint {
    /// In billionths of a US dollar.
    pub(crate) cost: i64,
    /// Whether a call of ours gave it.
    pub(crate) charged: bool,
    /// What it says of the session's settings.
    pub(crate) says: Option<i64>,
}

impl NodeHint {
    /// The hint for the node of an entry; `None` where the tables need more than this.
    pub fn of(entry: &Entry, step: &StepInfo) -> Option<Self> {
        let usage = match entry {
            Entry::Message(Message::Assistant(message)) => Some(&message.usage),
            Entry::Compaction(compaction) => compaction.usage.as_ref(),
            _ => return None,
        };
        let cost = nano_dollars(usage.map_or(0.0, |usage| usage.cost.total));
        Some(Self { cost, charged: step.call.is_some(), says: super::setting::of(entry) })
    }
}

fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(TITLE).collect()
}

/// The same for nodes that are not indexed: all are indexed in memory, since what is in the file cannot be added to.
pub(super) fn index_in_memory(connection: &Connection) -> Outcome<()> {
    schema::temporary(connection, schema::DERIVED)?;
    while advance(connection, super::INDEX_BATCH)? {}
    Ok(())
}

/// Gives nodes their places that have none yet: what comes with a place is made after it.
pub(super) fn place_first(connection: &Connection, limit: usize) -> Outcome<()> {
    if is_behind(connection)? {
        advance_or_renew(connection, limit)?;
    }
    Ok(())
}
