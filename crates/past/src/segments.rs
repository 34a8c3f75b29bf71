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

/// The same with what each node takes in a prompt, where that is wanted.
async fn measured_segments(
    store: &dyn Graph,
    row: &SessionRow,
    now: UnixMs,
    for_model: bool,
    taken: &HashMap<NodeId, PastId>,
) -> Result<SessionSegments, PastError> {
    let mut cutter = SessionCutter::new(row, for_model);
    cutter.read(store, row).await?;
    let segments = cutter.cut(taken);
    let mut found = SessionSegments {
        segments,
        untimed: cutter.untimed,
        unsaid: cutter.unsaid,
        ..SessionSegments::default()
    };
    match cutter.rest(now) {
        SessionTail::Open(tail) => found.open = tail.len(),
        SessionTail::Closed(segment) => found.segments.push(segment),
        SessionTail::Nothing => {}
    }
    Ok(found)
}

/// What stands behind the last cut of a session.
pub(crate) enum SessionTail<'a> {
    Nothing,
    /// It may still grow.
    Open(&'a [NodeMeasure]),
    Closed(Segment),
}

/// Cuts a session as far as it was read. What lies before the last cut is done with, and only what lies behind it is kept: a session
/// that goes on is read on from where it was.
#[derive(Debug)]
pub(crate) struct SessionCutter {
    session: SessionId,
    importer: Option<String>,
    for_model: bool,
    /// Nodes before the last cut.
    before: usize,
    /// Those behind it.
    nodes: Vec<NodeMeasure>,
    /// By how many calls more are under way before each of these, and at the end; the first has those from before the cut.
    changes: Vec<i64>,
    /// Where calls stand that have no result yet.
    pending: HashMap<CallId, usize>,
    last: UnixMs,
    untimed: usize,
    unsaid: usize,
    /// Whether a result came whose call lies before the last cut: the session was cut between the two.
    is_torn: bool,
    /// Whether the ref of the session stands at nodes that do not come from its first one.
    is_apart: bool,
}

impl SessionCutter {
    pub(crate) fn new(row: &SessionRow, for_model: bool) -> Self {
        Self {
            session: row.id.clone(),
            importer: importer_of(row).map(str::to_owned),
            for_model,
            before: 0,
            nodes: Vec::new(),
            changes: vec![0],
            pending: HashMap::new(),
            last: 0,
            untimed: 0,
            unsaid: 0,
            is_torn: false,
            is_apart: false,
        }
    }

    /// Reads a session from its beginning, a page at a time.
    pub(crate) async fn read(&mut self, store: &dyn Graph, row: &SessionRow) -> Result<(), PastError> {
        let Some(head) = row.head else { return Ok(()) };
        let hidden = store.hidden();
        // The first node of a session of another program may be a message.
        let first: Vec<_> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
        for (node, decoded) in first.iter().zip(decode_nodes(store, &first).await?) {
            if !hidden.hides(&node.id) {
                self.take(node.id, node.record.timestamp, &decoded);
            }
        }
        let mut pages = Pages::below(store, row.base, head).await?;
        self.is_apart = pages.is_empty() && head != row.base;
        self.read_pages(store, &mut pages).await
    }

    /// Reads on from where the session stood. `false` where it does not go on from there, or was cut where it must not be: it is to
    /// be read from its beginning.
    pub(crate) async fn read_on(
        &mut self,
        store: &dyn Graph,
        stood: NodeId,
        head: NodeId,
    ) -> Result<bool, PastError> {
        if self.is_apart {
            return Ok(false);
        }
        let mut pages = Pages::below(store, stood, head).await?;
        if pages.is_empty() {
            return Ok(false);
        }
        self.read_pages(store, &mut pages).await?;
        Ok(!self.is_torn)
    }

    async fn read_pages(&mut self, store: &dyn Graph, pages: &mut Pages<'_>) -> Result<(), PastError> {
        let hidden = store.hidden();
        while let Some(piece) = pages.next().await? {
            for stored in &piece.nodes {
                if hidden.hides(&stored.node.id) {
                    continue;
                }
                let decoded = decode_shown(&hidden, &stored.node, &piece.objects);
                self.take(stored.node.id, stored.node.record.timestamp, &decoded);
            }
        }
        Ok(())
    }

    fn take(&mut self, node: NodeId, written: UnixMs, decoded: &DecodedEntry) {
        let source = source_of(decoded, self.importer.as_deref());
        self.unsaid += usize::from(self.is_unsaid(decoded, source.as_ref().map(|(source, _)| source)));
        let Some((source, calls)) = source else { return };
        // One of no known time was said when the one before it was.
        let known = time_of(&decoded.entry, written);
        let Some(at) = known.or(Some(self.last).filter(|last| *last > 0)) else {
            self.untimed += 1;
            return;
        };
        self.last = at;
        let index = self.before + self.nodes.len();
        let NodeCalls { begun, ended } = calls;
        // Some programs give every call the same id: a result is that of the last one.
        self.pending.extend(begun.into_iter().map(|call| (call, index)));
        let call = ended.and_then(|call| self.pending.remove(&call));
        self.put(
            NodeMeasure {
                node,
                at,
                bytes: source.bytes(),
                said: self.for_model.then(|| prompt_bytes(&source)),
                class: source.class,
                is_request: source.speaker == SourceSpeaker::Person,
            },
            call,
        );
    }

    /// A node, and where the call stands whose result it is.
    fn put(&mut self, node: NodeMeasure, call: Option<usize>) {
        let at = self.nodes.len();
        self.nodes.push(node);
        self.changes.push(0);
        let Some(call) = call else { return };
        match call.checked_sub(self.before) {
            // Between the two nothing is cut.
            Some(call) => {
                self.changes[call + 1] += 1;
                self.changes[at + 1] -= 1;
            }
            None => self.is_torn = true,
        }
    }

    fn is_unsaid(&self, decoded: &DecodedEntry, source: Option<&SourceText>) -> bool {
        let has_text = source.is_some_and(|source| !source.text.trim().is_empty());
        match &decoded.entry {
            Entry::Message(Message::User(_)) => !has_text && !decoded.step.added.is_empty(),
            Entry::Message(Message::CompactionSummary(_)) | Entry::Compaction(_) => {
                self.before == 0 && self.nodes.is_empty()
            }
            Entry::Message(Message::Other(_)) => false,
            entry => source.is_none() && message_of(entry).is_some(),
        }
    }

    /// The segments that are closed by what stands behind them. `taken` are nodes of leaves that a person took back: it is cut also
    /// where these begin and end, so that what is added later is summed up without them.
    pub(crate) fn cut(&mut self, taken: &HashMap<NodeId, PastId>) -> Vec<Segment> {
        let Self { session, nodes, changes, .. } = self;
        let mut segments = Vec::new();
        let (mut start, mut bytes, mut running, mut under_way) = (0, 0, 0_i64, None);
        for at in 0..nodes.len() {
            running += changes[at];
            let count = at - start;
            let is_edge = || {
                taken.get(&nodes[at].node) != at.checked_sub(1).and_then(|last| taken.get(&nodes[last].node))
            };
            let may_end = count > 0 && running == 0;
            let ends = may_end && (count >= SOFT_NODES || ends_before(nodes, at, bytes));
            if count >= HARD_NODES || ends || (count > 0 && is_edge()) {
                segments.extend(segment(session, &nodes[start..at]));
                (start, bytes, under_way) = (at, 0, Some(running));
            }
            bytes += nodes[at].bytes;
        }
        if let Some(under_way) = under_way {
            nodes.drain(..start);
            nodes.shrink_to_fit();
            changes.drain(..start);
            changes.shrink_to_fit();
            changes[0] = under_way;
            self.before += start;
        }
        segments
    }

    /// What stands behind the last cut, as it is at `now`.
    pub(crate) fn rest(&self, now: UnixMs) -> SessionTail<'_> {
        let Some(last) = self.nodes.last() else { return SessionTail::Nothing };
        // What lies in the future was written by a clock that was wrong: nothing is added to it.
        if (0..IDLE).contains(&now.saturating_sub(last.at)) {
            return SessionTail::Open(&self.nodes);
        }
        segment(&self.session, &self.nodes).map_or(SessionTail::Nothing, SessionTail::Closed)
    }

    /// Whether the same is behind the last cut at any later time.
    pub(crate) fn is_settled(&self, now: UnixMs) -> bool {
        self.nodes.last().is_none_or(|last| now.saturating_sub(last.at) >= IDLE)
    }

    /// Nodes of which nobody knows when they were said.
    pub(crate) const fn untimed(&self) -> usize {
        self.untimed
    }

    pub(crate) fn importer(&self) -> Option<&str> {
        self.importer.as_deref()
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
        let mut cutter = SessionCutter::new(&row, false);
        (0..count).for_each(|at| cutter.put(measure(at), (at == count - 1).then_some(0)));
        let mut found = cutter.cut(&HashMap::new());
        let SessionTail::Closed(rest) = cutter.rest(UnixMs::MAX) else { panic!("it may still grow") };
        found.push(rest);
        let counts: Vec<usize> = found.iter().map(|segment| segment.nodes.len()).collect();
        assert_eq!(counts, [HARD_NODES, 10]);
    }
}
