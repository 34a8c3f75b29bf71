//! `diff`: what two branches did since they parted.

use std::collections::{BTreeMap, HashMap};

use quipu_dag::Node;
use quipu_protocol::{CallId, Entry, FileChange, Message, NodeId, SessionId};
use quipu_store::{Graph, LineageEnd, SessionQuery, StoreError, decode_shown};
use quipu_transcript::{DecodedEntry, FileOpKind, performed_file_ops};

use super::preview::preview;
use super::target::Parts;
use quipu_transcript::is_restored;

/// Nodes of one side that are read at most, the newest.
const MOST: usize = 20_000;
/// Nodes that are read together.
const TOGETHER: usize = 512;
/// Messages of the user, and files, that are reported at most.
const REPORTED: usize = 200;

/// Two branches.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchDiff {
    /// The last node that both have; `None` when they have none.
    pub ancestor: Option<NodeId>,
    /// What each did since.
    pub sides: [BranchSide; 2],
}

/// What a branch did.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchSide {
    /// Where it ends.
    pub node: NodeId,
    /// The session that the last node belongs to; `None` when it is in none that stands.
    pub session: Option<SessionId>,
    /// The number of nodes since the branches parted; at most 20,000 are read.
    pub nodes: u64,
    /// Whether there are more than were looked at.
    pub more: bool,
    /// Messages of the user.
    pub asked: u64,
    /// The number of answers of models.
    pub answers: u64,
    /// The user's messages, each on one line, the oldest first; the first 200.
    pub prompts: Vec<(NodeId, String)>,
    /// The last answer, on one line.
    pub last: Option<(NodeId, String)>,
    /// Tools by name: how often they were called, and how many of these calls failed.
    pub tools: BTreeMap<String, (u64, u64)>,
    /// Files by absolute path, with the most that was done to each; the first 200.
    pub files: BTreeMap<String, FileOpKind>,
    /// Tokens that were read, from a cache and not, and that were written.
    pub input: u64,
    /// Tokens of answers.
    pub output: u64,
    /// US dollars, as far as known.
    pub cost: f64,
}

/// Compares two branches, each named by the node that it ends in. Takes as long as what they did since they parted is
/// long, of each the newest 20,000 nodes at most.
///
/// # Errors
/// `Missing` when a node is not there; what the store says.
pub async fn branch_diff(store: &dyn Graph, a: NodeId, b: NodeId) -> Result<BranchDiff, StoreError> {
    let ancestor = store.fork_point(a, b).await?;
    let sides = [side(store, a, ancestor).await?, side(store, b, ancestor).await?];
    Ok(BranchDiff { ancestor, sides })
}

/// Calls of the last answer: the tool, and its arguments.
type Calls = HashMap<CallId, (String, String)>;

async fn side(store: &dyn Graph, end: NodeId, ancestor: Option<NodeId>) -> Result<BranchSide, StoreError> {
    let session = store.sessions_of(&[end]).await?.into_iter().next().flatten();
    let mut side = BranchSide {
        node: end,
        session: session.clone(),
        nodes: 0,
        more: false,
        asked: 0,
        answers: 0,
        prompts: Vec::new(),
        last: None,
        tools: BTreeMap::new(),
        files: BTreeMap::new(),
        input: 0,
        output: 0,
        cost: 0.0,
    };
    let cwd = match session {
        Some(id) => {
            let query = SessionQuery { id: Some(id), limit: Some(1), ..SessionQuery::default() };
            store.sessions(query).await?.into_iter().next().map_or_else(String::new, |row| row.cwd)
        }
        None => String::new(),
    };
    let (nodes, more) = own_nodes(store, end, ancestor).await?;
    (side.nodes, side.more) = (nodes.len() as u64, more);
    // Calls whose results are still to come: what they do is done when they succeed.
    let mut calls = Calls::new();
    let hidden = store.hidden();
    for some in nodes.chunks(TOGETHER) {
        let parts = Parts::of(store, some).await?;
        for node in some {
            let DecodedEntry { entry, step } = decode_shown(&hidden, node, &parts);
            let restored = is_restored(&entry);
            if let Entry::Message(message) = entry {
                side.add(node, &message, &cwd, &step.files, &mut calls);
            } else {
                side.changed(performed_file_ops(&cwd, "", "", true, &step.files), restored);
            }
        }
    }
    Ok(side)
}

/// The nodes of a lineage after the one that it shares, the oldest first, and whether there are more before these.
async fn own_nodes(
    store: &dyn Graph,
    end: NodeId,
    ancestor: Option<NodeId>,
) -> Result<(Vec<Node>, bool), StoreError> {
    if ancestor == Some(end) {
        return Ok((Vec::new(), false));
    }
    let (mut nodes, mut at, mut together) = (Vec::new(), end, 64);
    loop {
        let mut some = store.lineage(at, LineageEnd::Count(together)).await?;
        let (full, shared) =
            (some.len() == together, some.iter().rposition(|node| Some(node.id) == ancestor));
        some.drain(..shared.map_or(0, |at| at + 1));
        let parent = some.first().and_then(|first| first.record.parent);
        nodes.extend(some.into_iter().rev());
        let next = parent.filter(|parent| shared.is_none() && full && Some(*parent) != ancestor);
        let more = next.is_some() && nodes.len() >= MOST;
        match next {
            Some(next) if !more => at = next,
            _ => {
                nodes.truncate(MOST);
                nodes.reverse();
                return Ok((nodes, more));
            }
        }
        together = (together * 4).min(4_096);
    }
}

impl BranchSide {
    fn add(&mut self, node: &Node, message: &Message, cwd: &str, states: &[FileChange], calls: &mut Calls) {
        match message {
            Message::User(_) => {
                self.asked += 1;
                if self.prompts.len() < REPORTED {
                    let line = preview(node, &Entry::Message(message.clone()));
                    self.prompts.push((node.id, line));
                }
            }
            Message::Assistant(answer) => {
                self.answers += 1;
                if !answer.text().trim().is_empty() {
                    self.last = Some((node.id, preview(node, &Entry::Message(message.clone()))));
                }
                let usage = &answer.usage;
                self.input += usage.input + usage.cache_read + usage.cache_write;
                self.output += usage.output;
                self.cost += usage.cost.total;
                calls.clear();
                for call in answer.tool_calls() {
                    self.tools.entry(call.name.clone()).or_default().0 += 1;
                    let arguments = call.arguments.get().to_owned();
                    calls.insert(call.id.clone(), (call.name.clone(), arguments));
                }
            }
            Message::ToolResult(result) => {
                let (tool, arguments) = calls.remove(&result.tool_call_id).unwrap_or_default();
                self.changed(performed_file_ops(cwd, &tool, &arguments, result.is_error, states), false);
                if let Some((_, failed)) = self.tools.get_mut(&tool) {
                    *failed += u64::from(result.is_error);
                }
            }
            // Lines that a person ran, and changes of a memory, say how files were before and after.
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => self.changed(performed_file_ops(cwd, "", "", true, states), false),
        }
    }

    /// What was done to files; what was `restored` counts only where the branch did something else to it before.
    fn changed(&mut self, done: Vec<(String, FileOpKind)>, restored: bool) {
        for (path, kind) in done {
            let is_known = self.files.contains_key(&path);
            if is_known || (!restored && self.files.len() < REPORTED) {
                let most = self.files.entry(path).or_insert(kind);
                *most = kind.max(*most);
            }
        }
    }
}
