//! Where a session can be set: behind whole turns only. `life` hides the names of other nodes, `recall` says so of them,
//! and `tobe` refuses them, all by this one rule.

use std::collections::{HashMap, HashSet};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, CallId, ChunkId, Content, Entry, Json, Message, NodeId};
use quipu_store::{Graph, LineageEnd, StoreError};
use quipu_transcript::{INTERNAL, Lookup, counts, decode};
use serde::Deserialize;

#[cfg(test)]
mod tests;

/// Nodes that are read at once, at first and at most.
const TOGETHER: (usize, usize) = (16, 1_024);
/// Nodes that are gone back over in search of an answer.
const FAR: usize = 4_096;
/// Turns that are gone back over in search of a node that can be gone to.
const TURNS: usize = 100;

/// Whether a node can be gone to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegalTarget {
    /// The id of the node that was asked about.
    pub node: NodeId,
    /// Why it cannot be gone to; `None` when it can.
    pub illegal: Option<IllegalTarget>,
    /// The nearest node on its lineage that can be gone to: itself, an ancestor, or `None` when none of the nearest 100
    /// turns has one.
    pub nearest: Option<NodeId>,
}

/// Why a node cannot be gone to: a model would be shown a turn that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalTarget {
    /// Calls of the answer before it have no result here.
    #[error("{} of the answer before it has no result at that point", calls(.0))]
    Unanswered(Vec<CallId>),
    /// Calls of the answer before it have more than one result here.
    #[error("{} of the answer before it has more than one result at that point", calls(.0))]
    Repeated(Vec<CallId>),
    /// A part of the answer before it is missing or cannot be understood, so its calls are not known.
    #[error("the answer before it cannot be read completely, so its tool calls are not known")]
    Unreadable,
    /// There is no answer before it, and what stood before its first ancestor is missing.
    #[error("the nodes before it are missing from the store")]
    Lost,
    /// None of so many nodes before it is an answer.
    #[error("none of the {0} nodes before it is an answer, so tool calls may still be open there")]
    Far(usize),
}

fn calls(ids: &[CallId]) -> String {
    match ids {
        [one] => format!("the tool call {one}"),
        many => format!("each of {} tool calls", many.len()),
    }
}

/// What a node is to the turn that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// An answer, with the ids of its calls in their order.
    Answer(Vec<CallId>),
    /// An answer that no request shows: it failed, was aborted or says nothing.
    Dropped,
    /// The result of a call.
    Result(CallId),
    /// An answer, or what may be one, of which something is missing.
    Unreadable,
    /// Anything else.
    Other,
}

impl Step {
    /// Whether a turn begins with it.
    pub(crate) fn begins(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Unreadable)
    }
}

/// The turn that a lineage ends in: its last answer, and what came after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Each call once, and how often its id was called and answered.
    calls: Vec<(CallId, usize, usize)>,
    broken: Option<IllegalTarget>,
    /// An answer that counts for nothing came after it, and its results are not those of the turn.
    over: bool,
}

impl Turn {
    /// A turn that is never whole.
    pub(crate) fn broken(by: IllegalTarget) -> Self {
        Self { broken: Some(by), ..Self::default() }
    }

    /// Goes on by one node.
    pub(crate) fn add(&mut self, step: &Step) {
        match step {
            Step::Answer(ids) => {
                *self = Self::default();
                for id in ids {
                    match self.call(id) {
                        Some((_, called, _)) => *called += 1,
                        None => self.calls.push((id.clone(), 1, 0)),
                    }
                }
            }
            Step::Unreadable => *self = Self::broken(IllegalTarget::Unreadable),
            Step::Dropped => self.over = true,
            Step::Result(id) if !self.over => {
                if let Some((_, _, answered)) = self.call(id) {
                    *answered += 1;
                }
            }
            Step::Result(_) | Step::Other => {}
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut (CallId, usize, usize)> {
        self.calls.iter_mut().find(|(known, ..)| known == id)
    }

    /// Why nobody can go to where it ends: each call must have exactly one result.
    pub(crate) fn illegal(&self) -> Option<IllegalTarget> {
        if let Some(broken) = &self.broken {
            return Some(broken.clone());
        }
        let such = |wrong: fn(usize, usize) -> bool| {
            let calls = self.calls.iter().filter(|(_, called, answered)| wrong(*called, *answered));
            Some(calls.map(|(id, ..)| id.clone()).collect::<Vec<_>>()).filter(|ids| !ids.is_empty())
        };
        let unanswered = such(|called, answered| answered < called).map(IllegalTarget::Unanswered);
        unanswered.or_else(|| such(|called, answered| answered > called).map(IllegalTarget::Repeated))
    }
}

/// The parts of some nodes; images are not among them.
#[derive(Default)]
pub(crate) struct Parts(HashMap<BlobId, Blob>);

impl Parts {
    pub(crate) async fn of(store: &dyn Graph, nodes: &[Node]) -> Result<Self, StoreError> {
        // In the order of the nodes: what was written together is found together.
        let mut seen = HashSet::new();
        let ids = nodes.iter().flat_map(|node| &node.record.parts).copied();
        let ids: Vec<BlobId> = ids.filter(|id| seen.insert(*id)).collect();
        let blobs = store.blobs(&ids).await?;
        Ok(Self(blobs.into_iter().flatten().map(|blob| (blob.id, blob)).collect()))
    }
}

impl Parts {
    /// Our own parts of those nodes that are no messages: by them it is known which is a compaction.
    pub(crate) async fn of_internal(store: &dyn Graph, nodes: &[Node]) -> Result<Self, StoreError> {
        let internal = nodes.iter().filter(|node| node.record.role == INTERNAL);
        let ids: Vec<BlobId> = internal.filter_map(|node| node.record.parts.last().copied()).collect();
        if ids.is_empty() {
            return Ok(Self::default());
        }
        let blobs = store.blobs(&ids).await?;
        Ok(Self(blobs.into_iter().flatten().map(|blob| (blob.id, blob)).collect()))
    }
}

impl Lookup for Parts {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.0.get(id)
    }

    fn chunk(&self, _: &ChunkId) -> Option<&[u8]> {
        None
    }
}

/// What a node is to its turn, whoever wrote it.
pub(crate) fn step_of(node: &Node, parts: &dyn Lookup) -> Step {
    #[derive(Deserialize)]
    struct Blocks {
        content: Vec<Content>,
    }
    // Never an answer and never a result: need no reading.
    if matches!(node.record.role.as_str(), quipu_transcript::COMPACTION | "branchSummary" | "bashExecution") {
        return Step::Other;
    }
    let blobs: Vec<Option<&Blob>> = node.record.parts.iter().map(|part| parts.blob(part)).collect();
    let lacks_some = blobs.iter().any(Option::is_none);
    let calls = blobs.iter().flatten().filter(|blob| blob.kind == "tool_call").count();
    match decode(node, parts).entry {
        Entry::Message(Message::Assistant(answer)) => {
            let ids: Vec<CallId> = answer.tool_calls().map(|call| call.id.clone()).collect();
            // An erased call is a part that is there and says nothing.
            if lacks_some || ids.len() < calls {
                return Step::Unreadable;
            }
            if counts(&answer) { Step::Answer(ids) } else { Step::Dropped }
        }
        Entry::Message(Message::ToolResult(result)) => Step::Result(result.tool_call_id),
        // A role that nobody knows: an answer when it calls tools, and who knows what when it cannot be read.
        Entry::Message(Message::Other(json)) => {
            let blocks = Json::read::<Blocks>(&json).map_or_else(|_| Vec::new(), |blocks| blocks.content);
            let ids: Vec<CallId> =
                blocks.iter().filter_map(Content::as_tool_call).map(|call| call.id.clone()).collect();
            let is_answer = Message::Other(json).role().is_some_and(|role| role == "assistant");
            if lacks_some || is_answer || ids.len() < calls {
                Step::Unreadable
            } else if ids.is_empty() {
                Step::Other
            } else {
                Step::Answer(ids)
            }
        }
        Entry::Message(
            Message::User(_)
            | Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_),
        )
        | Entry::Session(_)
        | Entry::Epoch(_)
        | Entry::Compaction(_)
        | Entry::Meta(_) => Step::Other,
    }
}

/// A node of a turn.
struct Place {
    id: NodeId,
    parent: Option<NodeId>,
    step: Step,
}

/// The nodes from the last answer on the lineage of `node` to it, or from the root; and the turn before them.
async fn places(store: &dyn Graph, node: NodeId) -> Result<(Turn, Vec<Place>), StoreError> {
    let (mut together, most) = TOGETHER;
    let (mut places, mut seen) = (Vec::new(), HashSet::new());
    let mut at = node;
    let before = 'before: loop {
        let nodes = match store.lineage(at, LineageEnd::Count(together)).await {
            Ok(nodes) => nodes,
            Err(StoreError::Missing { .. }) if at != node => break Turn::broken(IllegalTarget::Lost),
            Err(error) => return Err(error),
        };
        let parts = Parts::of(store, &nodes).await?;
        for node in nodes.iter().rev() {
            if !seen.insert(node.id) {
                break 'before Turn::broken(IllegalTarget::Lost);
            }
            let step = step_of(node, &parts);
            let begins = step.begins();
            places.push(Place { id: node.id, parent: node.record.parent, step });
            if begins {
                break 'before Turn::default();
            }
        }
        match nodes.first().and_then(|first| first.record.parent) {
            None => break Turn::default(),
            Some(_) if nodes.len() < together => break Turn::broken(IllegalTarget::Lost),
            Some(_) if places.len() >= FAR => break Turn::broken(IllegalTarget::Far(places.len())),
            Some(parent) => at = parent,
        }
        together = (together * 4).min(most);
    };
    places.reverse();
    Ok((before, places))
}

/// The turn that a lineage ends in.
///
/// # Errors
/// `Missing` when `node` is not there; what the store says.
pub(crate) async fn turn_at(store: &dyn Graph, node: NodeId) -> Result<Turn, StoreError> {
    let (mut turn, places) = places(store, node).await?;
    places.iter().for_each(|place| turn.add(&place.step));
    Ok(turn)
}

/// Whether a session can be set to a node: on its lineage, each tool call of the nearest answer that counts has exactly
/// one result. Which answers count is what requests are made by: those that failed or were aborted do not. When it
/// cannot, the nearest ancestor that can is named.
///
/// # Errors
/// `Missing` when there is no such node; what the store says.
pub async fn legal_target(store: &dyn Graph, node: NodeId) -> Result<LegalTarget, StoreError> {
    let (mut illegal, mut nearest, mut next) = (None, None, Some(node));
    for turns in 0..TURNS {
        let Some(at) = next else { break };
        let (mut turn, places) = match places(store, at).await {
            Ok(found) => found,
            Err(StoreError::Missing { .. }) if turns > 0 => break,
            Err(error) => return Err(error),
        };
        for place in &places {
            turn.add(&place.step);
            if turn.illegal().is_none() {
                nearest = Some(place.id);
            }
        }
        if turns == 0 {
            illegal = turn.illegal();
        }
        if nearest.is_some() {
            break;
        }
        next = places.first().and_then(|first| first.parent);
    }
    Ok(LegalTarget { node, illegal, nearest })
}
