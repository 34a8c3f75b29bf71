//! Answers to a question: what has its rare words comes first, then what stands beside it and in its session; with vectors also what
//! has words that are near these, and what means about the same as the question.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _};

use super::super::failure::Outcome;
use super::super::search::{self, Reader};
use super::super::{places, rows};
use super::asked::AskedWords;
use super::effort::Effort;
use super::ranker::{Candidate, NEAR, Ranker, WordScore};
use super::scope::Scope;
use super::space::{Space, Totals, Unit, kind, totals};
use super::terms::{self, NearWords};
use super::vectors::{self, VectorTarget};
use super::{author_of, notes, words};
use crate::{
    MOST_RECALLED, RecallHit, RecallHits, RecallKind, RecallPlace, RecallQuery, RecallSignal, WordVectors,
};

/// How much the nearness of a text counts beside words where these answer nothing of the question, and how much of it that of the nearest
/// text of its session.
const NEARNESS: f32 = 1.5;
const GROUP_NEARNESS: f32 = 0.6;

/// Answers a question from what is indexed.
pub(in crate::sqlite) fn find(
    connection: &Connection,
    query: &RecallQuery,
    vectors: Option<&dyn WordVectors>,
) -> Outcome<RecallHits> {
    let mut found = RecallHits::default();
    let last = places::last(connection)?;
    found.left = super::left(connection)?.unwrap_or(last);
    let stems = words::of_question(&query.question);
    found.wordless = stems.is_empty();
    let ranked = rank(connection, query, &stems, vectors, Effort::USUAL)?;
    found.hits = hits(connection, query, &stems, ranked)?;
    Ok(found)
}

/// What may answer a question, with its score, the best first.
pub(super) fn rank(
    connection: &Connection,
    query: &RecallQuery,
    stems: &[String],
    vectors: Option<&dyn WordVectors>,
    effort: Effort,
) -> Outcome<Vec<(f32, Candidate)>> {
    let wants = |kind: RecallKind| query.kinds.is_empty() || query.kinds.contains(&kind);
    let mut spaces = Vec::new();
    let sessions = [RecallKind::User, RecallKind::Assistant, RecallKind::Summary];
    if sessions.into_iter().any(wants) && Space::Sessions.exists(connection)? {
        spaces.push(Space::Sessions);
    }
    if wants(RecallKind::Note) && !query.memories.is_empty() && Space::Notes.exists(connection)? {
        spaces.push(Space::Notes);
    }
    let mut sums = [Totals::default(); 2];
    for space in &spaces {
        sums[space.slot()] = totals(connection, *space)?;
    }
    let (mut near, mut wanted) = (NearWords::new(), None);
    if let Some(vectors) = vectors {
        let mut with_vectors = spaces.clone();
        with_vectors.retain(|space| sums[space.slot()].units > 0);
        near = near_words(connection, with_vectors, vectors, &query.question)?;
        wanted = VectorTarget::new(connection, vectors, &query.question)?;
    }
    let asked = AskedWords::new(connection, &spaces, &sums, stems, &near, effort)?;
    let mut candidates = Vec::new();
    for space in spaces {
        let totals = sums[space.slot()];
        if totals.units > 0 {
            let scope = Scope::of(connection, query, space, totals)?;
            let (words, wanted) = (asked.words.as_slice(), wanted.as_ref());
            let ranker = Ranker { connection, query, space, totals, words, scope, wanted, effort };
            ranker.rank(&mut candidates)?;
        }
    }
    candidates.retain(|candidate| candidate.wide.unit > 0.0 || candidate.near > 0.0);
    Ok(ranked(candidates, asked.mass))
}

/// The words of those indexes that have vectors of this model.
fn near_words(
    connection: &Connection,
    spaces: Vec<Space>,
    vectors: &dyn WordVectors,
    question: &str,
) -> Outcome<NearWords> {
    let mut known = Vec::new();
    for space in spaces {
        if vectors::done(connection, space, vectors.id())? > 0 {
            known.push(space);
        }
    }
    terms::near(connection, &known, vectors, question, words::OF_A_QUESTION)
}

/// The candidates with their scores, the best first. `mass` is how rare all words of the question are together.
fn ranked(mut candidates: Vec<Candidate>, mass: f32) -> Vec<(f32, Candidate)> {
    let (mut own, mut wide) = (WordScore::default(), WordScore::default());
    for candidate in &candidates {
        (own, wide) = (own.max(candidate.own), wide.max(candidate.wide));
    }
    let first = candidates.iter().max_by(|a, b| a.own.of(own).total_cmp(&b.own.of(own)));
    // How much of the question its own words answer: where they answer little, texts that are near have to.
    let known = first.map_or(0.0, |first| if mass > 0.0 { (first.mass / mass).min(1.0) } else { 0.0 });
    let top = candidates.iter().map(|candidate| candidate.wide.of(wide)).fold(0.0_f32, f32::max);
    let groups = scale_nearness(&mut candidates);
    let share = NEARNESS * (1.0 - known.sqrt());
    let score = |candidate: &Candidate| {
        let by_words = if candidate.wide.unit > 0.0 { candidate.wide.of(wide) / top } else { 0.0 };
        let group = groups.get(&(candidate.space.slot(), candidate.unit.group)).copied().unwrap_or(0.0);
        by_words + share * (candidate.near + GROUP_NEARNESS * group)
    };
    let mut ranked: Vec<(f32, Candidate)> =
        candidates.into_iter().map(|candidate| (score(&candidate), candidate)).collect();
    // What is near counts nothing where the words answer all of the question.
    ranked.retain(|(score, _)| *score > 0.0);
    // Of equal ones notes come first, then what was said first.
    ranked.sort_by(|(a, one), (b, other)| {
        let slots = other.space.slot().cmp(&one.space.slot());
        b.total_cmp(a).then(slots).then(one.number.cmp(&other.number))
    });
    let top = ranked.first().map_or(0.0, |(score, _)| *score).max(f32::MIN_POSITIVE);
    for (score, _) in &mut ranked {
        *score /= top;
    }
    ranked
}

/// Makes the nearest one 1, and nothing of what the nearest ones go beyond; how near the nearest text of each session is.
fn scale_nearness(candidates: &mut [Candidate]) -> HashMap<(usize, u32), f32> {
    let mut nearness: Vec<f32> = candidates.iter().map(|candidate| candidate.near).collect();
    nearness.sort_by(|a, b| b.total_cmp(a));
    let most = nearness.first().copied().unwrap_or(0.0);
    let least = nearness.get(NEAR).copied().unwrap_or(0.0);
    let mut groups: HashMap<(usize, u32), f32> = HashMap::new();
    for candidate in candidates {
        candidate.near =
            if most > least { ((candidate.near - least) / (most - least)).max(0.0) } else { 0.0 };
        let group = groups.entry((candidate.space.slot(), candidate.unit.group)).or_default();
        *group = group.max(candidate.near);
    }
    groups
}

/// The best candidates, as they are shown.
fn hits(
    connection: &Connection,
    query: &RecallQuery,
    stems: &[String],
    ranked: Vec<(f32, Candidate)>,
) -> Outcome<Vec<RecallHit>> {
    let limit = query.limit.min(MOST_RECALLED);
    let mut reader = Reader::new(connection);
    let mut sessions: HashMap<u32, Option<SessionId>> = HashMap::new();
    let mut shown: HashSet<(i64, String)> = HashSet::new();
    let mut hits = Vec::new();
    for (score, candidate) in ranked {
        if hits.len() >= limit {
            break;
        }
        let unit = candidate.unit;
        let place = match candidate.space {
            Space::Notes => notes::place(connection, candidate.number)?
                .filter(|place| query.memories.contains(&place.memory))
                .map(|place| RecallPlace::Note {
                    memory: place.memory,
                    path: place.path,
                    first: place.lines.0,
                    last: place.lines.1,
                }),
            Space::Sessions => node_place(connection, &mut reader, &mut sessions, &mut shown, stems, &unit)?,
        };
        let Some(place) = place else { continue };
        let by = match (candidate.own.unit > 0.0, candidate.near > 0.0) {
            (true, false) => RecallSignal::Words,
            (false, _) => RecallSignal::Semantic,
            (true, true) => RecallSignal::Both,
        };
        let kind = match unit.kind {
            kind::USER => RecallKind::User,
            kind::ASSISTANT => RecallKind::Assistant,
            kind::SUMMARY => RecallKind::Summary,
            _ => RecallKind::Note,
        };
        let at = i64::from(unit.at) * 1_000;
        hits.push(RecallHit { place, kind, author: author_of(unit.author), at, score: f64::from(score), by });
    }
    Ok(hits)
}

/// A node that still stands, unless the same was shown in another session.
fn node_place(
    connection: &Connection,
    reader: &mut Reader<'_>,
    sessions: &mut HashMap<u32, Option<SessionId>>,
    shown: &mut HashSet<(i64, String)>,
    stems: &[String],
    unit: &Unit,
) -> Outcome<Option<RecallPlace>> {
    let Some(node) = rows::node_at(connection, i64::from(unit.seq))? else { return Ok(None) };
    let session = (unit.group > 0).then_some(unit.group);
    if !search::stands(connection, session.map(i64::from), &node.id)? {
        return Ok(None);
    }
    if let Some(id) = &node.record.external_id
        && !shown.insert((node.record.timestamp, id.clone()))
    {
        return Ok(None);
    }
    let id = match session {
        None => None,
        Some(number) => match sessions.get(&number) {
            Some(known) => known.clone(),
            None => {
                let mut statement =
                    connection.prepare_cached("SELECT id FROM quipu_x_session WHERE num = ?1")?;
                let id: Option<String> = statement.query_row([number], |row| row.get(0)).optional()?;
                let id = id.map(SessionId::from);
                sessions.insert(number, id.clone());
                id
            }
        },
    };
    let text = match unit.kind {
        kind::USER => super::own_words(connection, reader, &node)?.text,
        _ => reader.said(&node)?,
    };
    let excerpt = search::excerpt_of(&text, stems, &|word| super::stem::stem(word));
    let node_id: NodeId = node.id;
    Ok(Some(RecallPlace::Node { node: node_id, external_id: node.record.external_id, session: id, excerpt }))
}
