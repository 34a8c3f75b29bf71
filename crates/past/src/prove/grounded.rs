//! Whether each chunk says what its sources do: a chunk of nodes is checked against those, one of chunks against the summaries of
//! its children. What a child says without its sources saying it is no ground for its parent.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::tz::TimeZone;
use quipu_protocol::{Body, Content, Entry, Message, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, decode_nodes};
use quipu_transcript::DecodedEntry;

use crate::grounding::{Finding, GroundingReport, GroundingSources, SourceText};
use crate::record::read_chunks_by_node;
use crate::segments::importer_of;
use crate::source::{source_of, time_of};
use crate::{
    ChunkEntry, ChunkSource, ChunkVerdict, GroundingCounts, MemoryChunk, PastError, PastId, PastIndex,
    PastScope, ReviewState, UngroundedPlace,
};

/// Chunks whose sources are read together.
const BATCH: usize = 64;
/// Nodes of a chunk that are read, and bytes of them: what lies beyond is no ground for anything.
const NODES: usize = 16_384;
const BYTES: usize = 4 << 20;
/// Nodes that are read at once.
const PAGE: usize = 1_024;
/// Places of a chunk that are kept.
const PLACES: usize = 32;

/// A chunk that says what its sources do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UngroundedChunk {
    /// The chunk.
    pub id: PastId,
    /// The key of its range.
    pub key: String,
    /// What does not occur in its sources, in the words of the chunk.
    pub findings: Vec<Finding>,
    /// Whether it is kept out of covers: not where a person found it good, or where its words are no model's.
    pub is_kept_out: bool,
}

/// What was found in the chunks of a past.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroundingProof {
    /// How much.
    pub counts: GroundingCounts,
    /// The chunks that say what their sources do not, by time.
    pub chunks: Vec<UngroundedChunk>,
    /// What was found of each chunk.
    pub verdicts: Vec<ChunkVerdict>,
}

/// Checks every chunk that is shown, also those that the compiler copied.
///
/// # Errors
/// What the store says.
pub async fn ground_all(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
) -> Result<GroundingProof, PastError> {
    let live: Vec<&ChunkEntry> = index.live().collect();
    let found = verdicts_of(store, scope, index, &live).await?;
    let mut proof = GroundingProof::default();
    let mut ungrounded: Vec<&ChunkEntry> = Vec::new();
    for chunk in &live {
        let Some(verdict) = found.get(&chunk.id) else { continue };
        if verdict.is_unchecked {
            proof.counts.unchecked += 1;
            continue;
        }
        proof.counts.chunks += 1;
        proof.counts.claims += verdict.claims;
        if !verdict.is_grounded() {
            ungrounded.push(chunk);
        }
    }
    ungrounded.sort_by_key(|chunk| (chunk.span, chunk.id));
    proof.counts.ungrounded = ungrounded.len();
    for some in ungrounded.chunks(PAGE) {
        let nodes: Vec<NodeId> = some.iter().map(|chunk| chunk.node).collect();
        let read = read_chunks_by_node(store, scope, &nodes).await?;
        for chunk in some {
            let Some(verdict) = found.get(&chunk.id) else { continue };
            let summary = read.get(&chunk.node).map_or("", |chunk| chunk.summary.as_str());
            for place in &verdict.places {
                *proof.counts.findings.entry(place.kind).or_default() += 1;
            }
            let is_kept_out = is_kept_out(chunk, verdict);
            proof.counts.kept_out += usize::from(is_kept_out);
            proof.chunks.push(UngroundedChunk {
                id: chunk.id,
                key: index.key(chunk),
                findings: findings_of(verdict, summary),
                is_kept_out,
            });
        }
    }
    proof.verdicts = live.iter().filter_map(|chunk| found.get(&chunk.id)).cloned().collect();
    Ok(proof)
}

/// Whether a cover does without a chunk for what was found in it.
pub(crate) fn is_kept_out(chunk: &ChunkEntry, verdict: &ChunkVerdict) -> bool {
    chunk.needs_grounding && chunk.state != ReviewState::Reviewed && !verdict.is_grounded()
}

/// The findings in the words of the summary.
fn findings_of(verdict: &ChunkVerdict, summary: &str) -> Vec<Finding> {
    let finding = |place: &UngroundedPlace| Finding {
        kind: place.kind,
        text: summary.get(place.place.clone()).unwrap_or_default().to_owned(),
        place: place.place.clone(),
    };
    verdict.places.iter().map(finding).collect()
}

/// What is known, or is found now, of the chunks that need it before they are served.
///
/// # Errors
/// What the store says.
pub async fn ground_pending(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
) -> Result<HashMap<PastId, ChunkVerdict>, PastError> {
    let wanted: Vec<&ChunkEntry> = index
        .chunks()
        .filter(|chunk| chunk.needs_grounding && !chunk.is_superseded && !chunk.is_removed)
        .collect();
    let mut known: HashMap<PastId, ChunkVerdict> = HashMap::new();
    let mut unknown = Vec::new();
    for chunk in wanted {
        match index.verdict(&chunk.id) {
            Some(verdict) => drop(known.insert(chunk.id, verdict.clone())),
            None => unknown.push(chunk),
        }
    }
    if !unknown.is_empty() {
        known.extend(verdicts_of(store, scope, index, &unknown).await?);
    }
    Ok(known)
}

/// Checks these chunks, and those below them that need it. What is known is not looked for again.
///
/// # Errors
/// What the store says.
pub async fn verdicts_of(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    wanted: &[&ChunkEntry],
) -> Result<HashMap<PastId, ChunkVerdict>, PastError> {
    let mut verdicts: HashMap<PastId, ChunkVerdict> = HashMap::new();
    let mut importers: Option<HashMap<SessionId, String>> = None;
    for level in by_height(index, wanted).into_values() {
        let mut unknown = Vec::new();
        for chunk in level {
            match index.verdict(&chunk.id) {
                Some(verdict) => drop(verdicts.insert(chunk.id, verdict.clone())),
                None => unknown.push(chunk),
            }
        }
        for batch in unknown.chunks(BATCH) {
            if importers.is_none() {
                importers = Some(importers_of(store, scope).await?);
            }
            let importers = importers.as_ref();
            let nodes: Vec<NodeId> = batch.iter().map(|chunk| chunk.node).collect();
            let read = read_chunks_by_node(store, scope, &nodes).await?;
            let children = child_texts(store, scope, index, &verdicts, batch).await?;
            for entry in batch {
                let Some(chunk) = read.get(&entry.node) else { continue };
                let importer = chunk.session.as_ref().and_then(|session| importers?.get(session));
                let (said, is_whole) = texts_of(store, chunk, importer.map(String::as_str)).await?;
                let is_child_there = |child: &PastId| {
                    let verdict =
                        verdicts.get(child).filter(|_| index.get(child).is_some_and(|it| it.needs_grounding));
                    children.contains_key(child) && verdict.is_none_or(|verdict| !verdict.is_unchecked)
                };
                let is_whole = is_whole && entry.lost.is_empty() && entry.children.iter().all(is_child_there);
                let below = entry.children.iter().filter_map(|child| children.get(child));
                let sources: Vec<(&str, Option<UnixMs>)> = said
                    .iter()
                    .map(|(text, at)| (text.as_str(), *at))
                    .chain(below.flat_map(|child| {
                        let (start, end) = (child.span.start(), child.span.end() - 1);
                        // The last day of a range may be named as well as the first.
                        [(child.summary.as_str(), Some(start)), ("", Some(end))]
                    }))
                    .collect();
                let mut verdict = verdict_of(entry.id, &chunk.summary, &sources);
                // What stands in a part of them stands in all of them.
                verdict.is_unchecked = !is_whole && !verdict.is_grounded();
                verdicts.insert(entry.id, verdict);
            }
        }
    }
    Ok(verdicts)
}

/// The wanted chunks and those below them whose words are no ground by themselves: the lowest first.
fn by_height<'a>(index: &'a PastIndex, wanted: &[&'a ChunkEntry]) -> BTreeMap<usize, Vec<&'a ChunkEntry>> {
    let mut heights: HashMap<PastId, usize> = HashMap::new();
    let asked: HashSet<PastId> = wanted.iter().map(|chunk| chunk.id).collect();
    let mut open: Vec<&ChunkEntry> = wanted.to_vec();
    let mut levels: BTreeMap<usize, Vec<&ChunkEntry>> = BTreeMap::new();
    while let Some(chunk) = open.pop() {
        if heights.contains_key(&chunk.id) {
            continue;
        }
        let children = || chunk.children.iter().filter_map(|child| index.get(child));
        // An id is a hash of those below it, so there is an end.
        let unknown: Vec<&ChunkEntry> = children().filter(|child| !heights.contains_key(&child.id)).collect();
        if !unknown.is_empty() {
            open.push(chunk);
            open.extend(unknown);
            continue;
        }
        let height = children().filter_map(|child| heights.get(&child.id)).max().map_or(0, |most| most + 1);
        heights.insert(chunk.id, height);
        if chunk.needs_grounding || asked.contains(&chunk.id) {
            levels.entry(height).or_default().push(chunk);
        }
    }
    levels
}

/// The summaries of the children of these chunks, without what their own sources do not say.
async fn child_texts(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    verdicts: &HashMap<PastId, ChunkVerdict>,
    batch: &[&ChunkEntry],
) -> Result<HashMap<PastId, MemoryChunk>, PastError> {
    let entries = batch.iter().flat_map(|chunk| &chunk.children).filter_map(|child| index.get(child));
    let ids: HashMap<NodeId, PastId> = entries.map(|child| (child.node, child.id)).collect();
    let mut found = HashMap::with_capacity(ids.len());
    let nodes: Vec<NodeId> = ids.keys().copied().collect();
    for some in nodes.chunks(PAGE) {
        for (node, mut chunk) in read_chunks_by_node(store, scope, some).await? {
            let Some(id) = ids.get(&node) else { continue };
            // The words of a person or of the sources themselves are ground, whoever had them checked.
            let needs_grounding = index.get(id).is_some_and(|child| child.needs_grounding);
            if let Some(verdict) = verdicts.get(id).filter(|_| needs_grounding) {
                chunk.summary = without(&chunk.summary, verdict);
            }
            found.insert(*id, chunk);
        }
    }
    Ok(found)
}

/// A summary with gaps where it says what its sources do not. More than is kept of that leaves nothing of it.
fn without(summary: &str, verdict: &ChunkVerdict) -> String {
    if verdict.ungrounded > verdict.places.len() {
        return String::new();
    }
    let (mut text, mut copied) = (String::with_capacity(summary.len()), 0);
    for place in verdict.places.iter().map(|place| &place.place) {
        text.push_str(summary.get(copied..place.start).unwrap_or_default());
        text.push_str(" … ");
        copied = copied.max(place.end);
    }
    text.push_str(summary.get(copied..).unwrap_or_default());
    text
}

/// The agents of imported sessions.
async fn importers_of(store: &dyn Graph, scope: &PastScope) -> Result<HashMap<SessionId, String>, PastError> {
    let rows = scope.sessions(store).await?;
    Ok(rows.iter().filter_map(|row| Some((row.id.clone(), importer_of(row)?.to_owned()))).collect())
}

/// What the nodes say that a chunk names, with the time of each, and whether all of them are there.
async fn texts_of(
    store: &dyn Graph,
    chunk: &MemoryChunk,
    importer: Option<&str>,
) -> Result<(Vec<(String, Option<UnixMs>)>, bool), PastError> {
    let hidden = store.hidden();
    let (mut texts, mut room, mut is_whole) = (Vec::new(), BYTES, true);
    for some in chunk.sources.iter().take(NODES).collect::<Vec<_>>().chunks(PAGE) {
        let ids: Vec<NodeId> = some.iter().map(|source| source.node).collect();
        let found = store.nodes(&ids).await?;
        let there: Vec<_> = found.iter().flatten().cloned().collect();
        let mut decoded = decode_nodes(store, &there).await?.into_iter();
        is_whole &= there.len() == some.len() && !store.erasures(&ids).await?.iter().any(Option::is_some);
        for (source, node) in some.iter().zip(&found) {
            let Some(node) = node else { continue };
            let Some(mut decoded) = decoded.next() else { break };
            if hidden.hides(&node.id) {
                is_whole = false;
                continue;
            }
            only(&mut decoded, source);
            let at = time_of(&decoded.entry, node.record.timestamp);
            let Some((said, _)) = source_of(&decoded, importer) else { continue };
            let text = std::iter::once(said.text).chain(said.calls).collect::<Vec<_>>().join("\n");
            // A long one leaves room for those behind it.
            let text = if text.len() > room { ends_of(&text, room / 2) } else { text };
            room -= text.len();
            texts.push((text, at));
        }
        if room < 4 {
            break;
        }
    }
    Ok((texts, is_whole))
}

/// The beginning and the end of a text, in so many bytes at most.
fn ends_of(text: &str, most: usize) -> String {
    const CUT: &str = "\n…\n";
    let half = most.saturating_sub(CUT.len()) / 2;
    let (head, tail) =
        (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half.min(text.len())));
    if half == 0 || head >= tail { String::new() } else { format!("{}{CUT}{}", &text[..head], &text[tail..]) }
}

/// Leaves the blocks of a message that a source names.
fn only(decoded: &mut DecodedEntry, source: &ChunkSource) {
    if source.blocks.is_empty() {
        return;
    }
    let keep = |blocks: &mut Vec<Content>| {
        let mut at = 0_u32;
        blocks.retain(|_| {
            at += 1;
            source.blocks.contains(&(at - 1))
        });
    };
    let Entry::Message(message) = &mut decoded.entry else { return };
    match message {
        Message::User(user) => {
            if let Body::Blocks(blocks) = &mut user.content {
                keep(blocks);
                // Their places are others now.
                decoded.step.added.clear();
            }
        }
        Message::Assistant(answer) => keep(&mut answer.content),
        Message::ToolResult(result) => keep(&mut result.content),
        _ => {}
    }
}

/// What a summary says that none of the sources does, in any zone in which they may have been said.
fn verdict_of(chunk: PastId, summary: &str, sources: &[(&str, Option<UnixMs>)]) -> ChunkVerdict {
    let texts: Vec<SourceText<'_>> = sources.iter().map(|(text, at)| SourceText { text, at: *at }).collect();
    let check = |zone: &TimeZone| GroundingSources::new(&texts, zone).check(summary);
    let GroundingReport { claims, mut findings } = check(&TimeZone::UTC);
    let here = TimeZone::system();
    if !findings.is_empty() && here != TimeZone::UTC {
        let here = check(&here);
        findings.retain(|finding| here.findings.iter().any(|other| other.place == finding.place));
    }
    let places = findings.iter().take(PLACES);
    let places = places.map(|found| UngroundedPlace { kind: found.kind, place: found.place.clone() });
    ChunkVerdict { chunk, claims, ungrounded: findings.len(), places: places.collect(), is_unchecked: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grounding::ClaimKind;

    #[test]
    fn claims_without_ground_are_cut_out() {
        let place = |place| UngroundedPlace { kind: ClaimKind::Number, place };
        let verdict = |ungrounded, places| ChunkVerdict {
            chunk: PastId([0; 32]),
            claims: 3,
            ungrounded,
            places,
            is_unchecked: false,
        };
        assert_eq!(without("took 31 of 40 s", &verdict(1, vec![place(5..7)])), "took  …  of 40 s");
        assert_eq!(without("took 31 of 40 s", &verdict(0, vec![])), "took 31 of 40 s");
        assert_eq!(without("took 31 of 40 s", &verdict(2, vec![place(5..7)])), "");
    }
}
