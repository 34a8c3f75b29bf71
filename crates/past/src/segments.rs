//! The conversations of a scope in segments: by session, idle time, day and size, never between a call and its result.

use std::collections::HashMap;

use quipu_protocol::{AuthorClass, CallId, Entry, Message, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, SessionRow, decode_nodes, decode_shown};
use quipu_transcript::{DecodedEntry, message_of};

use crate::chunk::worse;
use crate::model::prompt_bytes;
use crate::pages::Pages;
use crate::source::{NodeCalls, SourceSpeaker, SourceText, source_of, time_of};
use crate::{PastError, PastId, TimeRange};

/// A pause of this length ends a segment.
pub const IDLE: UnixMs = 30 * 60_000;
/// Bytes after which a segment ends before the next request of a person, and those after which it ends before the next step.
pub const SOFT_BYTES: usize = 8_000;
/// See [`SOFT_BYTES`].
pub const HARD_BYTES: usize = 32_000;
/// Nodes after which a segment ends before the next step, and those after which it ends wherever it is.
pub const SOFT_NODES: usize = 4_096;
/// See [`SOFT_NODES`].
pub const HARD_NODES: usize = 65_536;
const DAY: UnixMs = 86_400_000;
/// The program whose sessions are ours.
pub(crate) const AGENT: &str = "quipu";

/// Nodes of a session that are summed up together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The session.
    pub session: SessionId,
    /// The nodes, in their order.
    pub nodes: Vec<NodeId>,
    /// From the first to behind the last.
    pub span: TimeRange,
    /// Bytes that whoever sums them up reads.
    pub bytes: usize,
    /// The class of the least trusted of them.
    pub class: AuthorClass,
    /// Bytes of each in the prompt of a model; empty where none is asked.
    pub(crate) said: Vec<usize>,
}

/// The segments of a session, and what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSegments {
    /// The segments, in the order of the session.
    pub segments: Vec<Segment>,
    /// Nodes at the end that are younger than a pause: the segment may still grow.
    pub open: usize,
    /// Those nodes.
    pub(crate) tail: Vec<NodeMeasure>,
    /// Nodes of which nobody knows when they were said.
    pub untimed: usize,
    /// Nodes that a model is shown and that are no source, and that say what no source here says: messages of programs, text
    /// that came with an empty prompt, a summary before which there is nothing.
    pub unsaid: usize,
}

/// What decides where a session is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeMeasure {
    node: NodeId,
    at: UnixMs,
    bytes: usize,
    /// In the prompt of a model.
    said: Option<usize>,
    class: AuthorClass,
    is_request: bool,
}

/// Who imported a session, where it is not ours.
pub(crate) fn importer_of(row: &SessionRow) -> Option<&str> {
    (row.agent != AGENT).then_some(row.agent.as_str())
}

/// Cuts a session as it stands now. Reads it a page at a time.
///
/// # Errors
/// What the store says.
pub async fn segments_of(
    store: &dyn Graph,
    row: &SessionRow,
    now: UnixMs,
) -> Result<SessionSegments, PastError> {
    measured_segments(store, row, now, false, &HashMap::new()).await
}

/// The same, cut also where nodes of leaves begin and end that a person took back: what is added later is summed up without them.
/// With `for_model` also what each node takes in a prompt.
pub(crate) async fn measured_segments(
    store: &dyn Graph,
    row: &SessionRow,
    now: UnixMs,
    for_model: bool,
    taken: &HashMap<NodeId, PastId>,
) -> Result<SessionSegments, PastError> {
    let Some(head) = row.head else { return Ok(SessionSegments::default()) };
    let mut cutter = Cutter::new(row, for_model);
    let hidden = store.hidden();
    // The first node of a session of another program may be a message.
    let first: Vec<_> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
    for (node, decoded) in first.iter().zip(decode_nodes(store, &first).await?) {
        if !hidden.hides(&node.id) {
            cutter.take(node.id, node.record.timestamp, &decoded);
        }
    }
    let mut pages = Pages::below(store, row.base, head).await?;
    while let Some(piece) = pages.next().await? {
        for stored in &piece.nodes {
            if hidden.hides(&stored.node.id) {
                continue;
            }
            let decoded = decode_shown(&hidden, &stored.node, &piece.objects);
            cutter.take(stored.node.id, stored.node.record.timestamp, &decoded);
        }
    }
    Ok(cutter.cut(now, taken))
}

struct Cutter<'a> {
    row: &'a SessionRow,
    nodes: Vec<NodeMeasure>,
    /// Where calls stand that have no result yet.
    pending: HashMap<CallId, usize>,
    /// Calls and their results: between the two nothing is cut.
    pairs: Vec<(usize, usize)>,
    last: UnixMs,
    untimed: usize,
    unsaid: usize,
    for_model: bool,
}

impl<'a> Cutter<'a> {
    fn new(row: &'a SessionRow, for_model: bool) -> Self {
        let (nodes, pending, pairs) = (Vec::new(), HashMap::new(), Vec::new());
        Self { row, nodes, pending, pairs, last: 0, untimed: 0, unsaid: 0, for_model }
    }

    fn take(&mut self, node: NodeId, written: UnixMs, decoded: &DecodedEntry) {
        let source = source_of(decoded, importer_of(self.row));
        self.unsaid += usize::from(self.is_unsaid(decoded, source.as_ref().map(|(source, _)| source)));
        let Some((source, calls)) = source else { return };
        // One of no known time was said when the one before it was.
        let known = time_of(&decoded.entry, written);
        let Some(at) = known.or(Some(self.last).filter(|last| *last > 0)) else {
            self.untimed += 1;
            return;
        };
        self.last = at;
        let index = self.nodes.len();
        let NodeCalls { begun, ended } = calls;
        // Some programs give every call the same id: a result is that of the last one.
        self.pending.extend(begun.into_iter().map(|call| (call, index)));
        if let Some(call) = ended.and_then(|call| self.pending.remove(&call)) {
            self.pairs.push((call, index));
        }
        self.nodes.push(NodeMeasure {
            node,
            at,
            bytes: source.bytes(),
            said: self.for_model.then(|| prompt_bytes(&source)),
            class: source.class,
            is_request: source.speaker == SourceSpeaker::Person,
        });
    }

    fn is_unsaid(&self, decoded: &DecodedEntry, source: Option<&SourceText>) -> bool {
        let has_text = source.is_some_and(|source| !source.text.trim().is_empty());
        match &decoded.entry {
            Entry::Message(Message::User(_)) => !has_text && !decoded.step.added.is_empty(),
            Entry::Message(Message::CompactionSummary(_)) | Entry::Compaction(_) => self.nodes.is_empty(),
            Entry::Message(Message::Other(_)) => false,
            entry => source.is_none() && message_of(entry).is_some(),
        }
    }

    fn cut(self, now: UnixMs, taken: &HashMap<NodeId, PastId>) -> SessionSegments {
        let Self { row, nodes, pairs, untimed, unsaid, .. } = self;
        // How many calls are under way before each node.
        let mut changes = vec![0_i64; nodes.len() + 1];
        for (call, result) in pairs {
            changes[call + 1] += 1;
            changes[result + 1] -= 1;
        }
        let mut found = SessionSegments { untimed, unsaid, ..SessionSegments::default() };
        let (mut start, mut bytes, mut running) = (0, 0, 0_i64);
        for at in 0..nodes.len() {
            running += changes[at];
            let count = at - start;
            let is_edge = || {
                taken.get(&nodes[at].node) != at.checked_sub(1).and_then(|last| taken.get(&nodes[last].node))
            };
            let may_end = count > 0 && running == 0;
            let ends = may_end && (count >= SOFT_NODES || ends_before(&nodes, at, bytes));
            if count >= HARD_NODES || ends || (count > 0 && is_edge()) {
                found.segments.extend(segment(&row.id, &nodes[start..at]));
                (start, bytes) = (at, 0);
            }
            bytes += nodes[at].bytes;
        }
        let rest = &nodes[start..];
        if let Some(last) = rest.last() {
            // What lies in the future was written by a clock that was wrong: nothing is added to it.
            if (0..IDLE).contains(&now.saturating_sub(last.at)) {
                found.open = rest.len();
                found.tail = rest.to_vec();
            } else {
                found.segments.extend(segment(&row.id, rest));
            }
        }
        found
    }
}

/// Whether a segment ends before a node, before which no call is under way.
fn ends_before(nodes: &[NodeMeasure], at: usize, bytes: usize) -> bool {
    let (before, next) = (&nodes[at - 1], &nodes[at]);
    let is_idle = (next.at - before.at).abs() >= IDLE;
    let is_next_day = next.at.div_euclid(DAY) != before.at.div_euclid(DAY);
    is_idle || bytes >= HARD_BYTES || (next.is_request && (is_next_day || bytes >= SOFT_BYTES))
}

pub(crate) fn segment(session: &SessionId, nodes: &[NodeMeasure]) -> Option<Segment> {
    let start = nodes.iter().map(|node| node.at).min()?;
    let end = nodes.iter().map(|node| node.at).max()?;
    Some(Segment {
        session: session.clone(),
        nodes: nodes.iter().map(|node| node.node).collect(),
        span: TimeRange::new(start, end + 1)?,
        bytes: nodes.iter().map(|node| node.bytes).sum(),
        class: nodes.iter().fold(AuthorClass::Owner, |class, node| worse(class, node.class)),
        said: nodes.iter().filter_map(|node| node.said).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_with_a_very_late_result_is_cut_all_the_same() {
        let count = HARD_NODES + 10;
        let measure = |at: usize| NodeMeasure {
            node: NodeId([0; 32]),
            at: 1_700_000_000_000 + at as UnixMs,
            bytes: 0,
            said: None,
            class: AuthorClass::Owner,
            is_request: false,
        };
        let row = SessionRow {
            id: "s".to_owned().into(),
            name: "s".into(),
            head: None,
            base: NodeId([0; 32]),
            cwd: String::new(),
            agent: AGENT.into(),
            called: String::new(),
            title: String::new(),
            model: String::new(),
            parent: None,
            created: 0,
            updated: 0,
            entries: 0,
            cost: 0.0,
        };
        let mut cutter = Cutter::new(&row, false);
        cutter.nodes = (0..count).map(measure).collect();
        cutter.pairs = vec![(0, count - 1)];
        let found = cutter.cut(UnixMs::MAX, &HashMap::new());
        let counts: Vec<usize> = found.segments.iter().map(|segment| segment.nodes.len()).collect();
        assert_eq!(counts, [HARD_NODES, 10]);
    }
}
