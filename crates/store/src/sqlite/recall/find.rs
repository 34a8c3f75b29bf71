//! Ranking: what has the rare words of a question first, then what stands beside it and in its session.
//!
//! A unit is scored as one text of four columns: its own words, those of the one before (half), of the one after (a quarter)
//! and of its date (half), by BM25. To that comes the BM25 of its session. Each is scaled by its best before they are added.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _};

use super::super::failure::Outcome;
use super::super::search::{self, Reader};
use super::super::{places, rows};
use super::scope::Scope;
use super::space::{Space, Totals, Unit, Units, frequency, kind, postings, totals};
use super::vectors::VectorTarget;
use super::words::weight;
use super::{author_of, notes, words};
use crate::{
    MOST_RECALLED, RecallHit, RecallHits, RecallKind, RecallPlace, RecallQuery, RecallSignal, WordVectors,
};

/// How much the words of the unit before count, of the unit after, and of the date.
const BEFORE: f32 = 0.5;
const AFTER: f32 = 0.25;
const DATE: f32 = 0.5;
/// How much the session counts beside the unit.
const GROUP: f32 = 0.5;
/// How much the best vector of a session counts for all of it.
const GROUP_VECTOR: f32 = 0.3;
/// How much less vectors count where one unit has all words of the question.
const KNOWN: f32 = 0.9;
/// How BM25 weighs repetition and length.
const REPETITION: f32 = 1.2;
const LENGTH: f32 = 0.75;
/// Units of which nearness counts.
const NEAR: usize = 200;
/// Steps of scores by which the first ones are told from the others.
const STEPS: usize = 1_024;
/// How much longer its date makes a unit.
const DATE_WORDS: f32 = 3.0;

/// How much is looked at for one question: what of an answer may be missed lies beyond it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Postings that are read, of rare words first.
    pub(super) read: u32,
    /// In an index of more units than this, words that one of four has are not read, and only the first ones are scored exactly.
    pub(super) large: u32,
    /// Units that are scored exactly, all of them where they are no more, in an index that is not large.
    pub(super) exact: usize,
    /// Units that are scored exactly of more: those that the words alone rank first.
    pub(super) first: usize,
    /// Units whose vectors are nearest that are looked at.
    pub(super) nearest: usize,
    /// Units that are nearest by their signs, of which those are found in a large index.
    pub(super) likely: usize,
}

impl Effort {
    /// That of a question of a person or a model.
    pub(super) const USUAL: Self =
        Self { read: 300_000, large: 20_000, exact: 2_000, first: 500, nearest: 2_000, likely: 4_000 };
}

/// A word of the question and how rare it is.
struct Word {
    stem: String,
    rarity: f32,
    /// In how many units of each index.
    units: [u32; 2],
}

/// A unit that may answer.
pub(super) struct Candidate {
    space: Space,
    pub(super) number: u32,
    unit: Unit,
    own: f32,
    group: f32,
    /// The words of the question that it or a unit beside it has, as much as they are rare.
    mass: f32,
    near: f32,
}

impl Candidate {
    fn words(&self, best: (f32, f32)) -> f32 {
        let of = |value: f32, best: f32| if best > 0.0 { value / best } else { 0.0 };
        (of(self.own, best.0) + GROUP * of(self.group, best.1)) / (1.0 + GROUP)
    }
}

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
        sums[slot(*space)] = totals(connection, *space)?;
    }
    let (words, mass) = rarity(connection, &spaces, &sums, stems, effort)?;
    let wanted = match vectors {
        None => None,
        Some(vectors) => VectorTarget::new(connection, vectors, &query.question)?,
    };
    let mut candidates = Vec::new();
    for space in spaces {
        let totals = sums[slot(space)];
        if totals.units > 0 {
            let scope = Scope::of(connection, query, space, totals)?;
            let wanted = wanted.as_ref();
            let ranker = Ranker { connection, query, space, totals, words: &words, scope, wanted, effort };
            ranker.rank(&mut candidates)?;
        }
    }
    candidates.retain(|candidate| candidate.own > 0.0 || candidate.near > 0.0);
    Ok(ranked(candidates, mass, vectors.is_some()))
}

fn slot(space: Space) -> usize {
    match space {
        Space::Sessions => 0,
        Space::Notes => 1,
    }
}

/// The words of the question that are worth reading, the rarest first, and how rare all of them are together.
fn rarity(
    connection: &Connection,
    spaces: &[Space],
    sums: &[Totals; 2],
    stems: &[String],
    effort: Effort,
) -> Outcome<(Vec<Word>, f32)> {
    let all: u32 = sums.iter().map(|totals| totals.units).sum();
    let (mut words, mut mass) = (Vec::new(), 0.0);
    for stem in stems {
        let mut units = [0; 2];
        for space in spaces {
            units[slot(*space)] = frequency(connection, *space, stem)?;
        }
        let count = units[0].saturating_add(units[1]);
        let (number, all) = (f64::from(count), f64::from(all));
        let rarity = weight((1.0 + (all - number + 0.5).max(0.5) / (number + 0.5)).ln());
        mass += rarity;
        if count > 0 {
            words.push(Word { stem: stem.clone(), rarity, units });
        }
    }
    words.sort_by_key(|word| word.units[0].saturating_add(word.units[1]));
    let mut read = 0_u32;
    let mut kept = 0;
    words.retain(|word| {
        let count = word.units[0].saturating_add(word.units[1]);
        let keep = kept == 0
            || read.saturating_add(count) <= effort.read && (all <= effort.large || count <= all / 4);
        if keep {
            read = read.saturating_add(count);
            kept += 1;
        }
        keep
    });
    Ok((words, mass))
}

/// So many of these units, those with the highest scores; of equal ones those that were said first.
fn first(units: &[u32], scores: &[f32], most: usize) -> Vec<u32> {
    let score = |unit: &u32| scores.get(*unit as usize).copied().unwrap_or(0.0);
    let best = units.iter().map(score).fold(0.0_f32, f32::max);
    if units.len() <= most || best <= 0.0 {
        return units.to_vec();
    }
    // By steps of their scores, in one pass: sorting them would take longer than all the rest.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the number of steps"
    )]
    let step = |unit: &u32| ((score(unit) / best * (STEPS - 1) as f32) as usize).min(STEPS - 1);
    let mut counts = [0_usize; STEPS];
    units.iter().for_each(|unit| counts[step(unit)] += 1);
    let (mut from, mut count) = (STEPS, 0);
    while from > 0 && count < most {
        from -= 1;
        count += counts[from];
    }
    let mut first: Vec<u32> = units.iter().filter(|unit| step(unit) >= from).copied().collect();
    if first.len() > most {
        first.select_nth_unstable_by(most, |a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
        first.truncate(most);
    }
    first
}

struct Ranker<'a> {
    connection: &'a Connection,
    query: &'a RecallQuery,
    space: Space,
    totals: Totals,
    words: &'a [Word],
    scope: Scope,
    /// The vector of the question.
    wanted: Option<&'a VectorTarget<'a>>,
    effort: Effort,
}

/// Units with how often they have a word, and a bit for their date.
type Postings = Vec<(u32, u32)>;

fn times_of(value: u32) -> (f32, bool) {
    ((value >> 1) as f32, value & 1 == 1)
}

impl Ranker<'_> {
    fn rank(&self, candidates: &mut Vec<Candidate>) -> Outcome<()> {
        let mut lists: Vec<(&Word, Postings)> = Vec::new();
        for word in self.words.iter().filter(|word| word.units[slot(self.space)] > 0) {
            let count = word.units[slot(self.space)];
            lists.push((word, postings(self.connection, self.space, &word.stem, count)?));
        }
        let count = usize::try_from(self.totals.units).unwrap_or(usize::MAX).saturating_add(2);
        let (mut rough, mut touched) = (vec![0.0_f32; count], Vec::<u32>::new());
        for (word, list) in &lists {
            for (unit, value) in list {
                let at = *unit as usize;
                if at >= count || !self.scope.may_hold(*unit) {
                    continue;
                }
                if rough[at] == 0.0 {
                    touched.push(*unit);
                }
                let (times, dated) = times_of(*value);
                let times = times + if dated { DATE } else { 0.0 };
                rough[at] += word.rarity * times * (REPETITION + 1.0) / (times + REPETITION);
            }
        }
        let mut units = Units::new(self.connection, self.space);
        let near = self.nearest(&mut units)?;
        let wanted = self.query.limit.clamp(1, MOST_RECALLED);
        let exact = if self.totals.units > self.effort.large { self.effort.first } else { self.effort.exact };
        let mut most = if touched.len() <= exact { touched.len() } else { self.effort.first };
        loop {
            let first = first(&touched, &rough, most);
            let scored = self.score(&mut units, &lists, &first, &near, count)?;
            if scored.len() >= wanted || most >= touched.len() {
                candidates.extend(scored);
                return Ok(());
            }
            // Other conditions let few of them pass.
            most = most.saturating_mul(8);
        }
    }

    /// The exact scores of these units, of those beside them and of those with near vectors.
    fn score(
        &self,
        units: &mut Units<'_>,
        lists: &[(&Word, Postings)],
        first: &[u32],
        near: &HashMap<u32, f32>,
        count: usize,
    ) -> Outcome<Vec<Candidate>> {
        let mut place = vec![0_u32; count];
        let mut taken: Vec<(u32, Unit)> = Vec::new();
        for number in first.iter().chain(near.keys()) {
            let unit = units.get(*number)?;
            for number in [*number, unit.before, unit.after] {
                if number > 0 && (number as usize) < count && place[number as usize] == 0 {
                    taken.push((number, units.get(number)?));
                    place[number as usize] = u32::try_from(taken.len()).unwrap_or(0);
                }
            }
        }
        let length = self.lengths(units, &taken)?;
        let mut own = vec![0.0_f32; taken.len()];
        let mut weights = vec![0.0_f32; taken.len()];
        let mut mass = vec![0.0_f32; taken.len()];
        let mut groups: HashMap<u32, f32> = HashMap::new();
        let group_words = self.group_words(&taken)?;
        let sessions = f64::from(u32::try_from(self.totals.groups).unwrap_or(u32::MAX)).max(1.0);
        let average = weight(self.totals.words.max(1) as f64 / sessions);
        for (word, list) in lists {
            let mut changed: Vec<usize> = Vec::new();
            let mut of_groups: HashMap<u32, (f32, bool)> = HashMap::new();
            for (number, value) in list {
                let Some(at) = place.get(*number as usize).and_then(|at| at.checked_sub(1)) else { continue };
                let unit = taken[at as usize].1;
                let (times, dated) = times_of(*value);
                let mut add = |number: u32, weight: f32| {
                    let Some(at) = place.get(number as usize).and_then(|at| at.checked_sub(1)) else {
                        return;
                    };
                    if number > 0 && weight > 0.0 {
                        if weights[at as usize] == 0.0 {
                            changed.push(at as usize);
                        }
                        weights[at as usize] += weight;
                    }
                };
                add(*number, times + if dated { DATE } else { 0.0 });
                add(unit.after, BEFORE * times);
                add(unit.before, AFTER * times);
                let of_group = of_groups.entry(unit.group).or_default();
                of_group.0 += times;
                of_group.1 |= dated;
            }
            for at in changed {
                let times = std::mem::take(&mut weights[at]);
                mass[at] += word.rarity;
                own[at] += word.rarity * times * (REPETITION + 1.0) / (times + REPETITION * length[at]);
            }
            let has = f64::from(u32::try_from(of_groups.len()).unwrap_or(u32::MAX));
            let rarity = weight((1.0 + (sessions - has + 0.5).max(0.5) / (has + 0.5)).ln());
            for (group, (times, dated)) in of_groups {
                let times = times + if dated { 1.0 } else { 0.0 };
                let words = group_words.get(&group).copied().unwrap_or(average);
                let length = 1.0 - LENGTH + LENGTH * words / average.max(1.0);
                *groups.entry(group).or_default() +=
                    rarity * times * (REPETITION + 1.0) / (times + REPETITION * length);
            }
        }
        let candidates = taken
            .into_iter()
            .zip(own)
            .zip(mass)
            .filter(|(((number, unit), _), _)| self.scope.holds(*number, unit));
        Ok(candidates
            .map(|(((number, unit), own), mass)| Candidate {
                space: self.space,
                number,
                unit,
                own,
                mass,
                group: if own > 0.0 { groups.get(&unit.group).copied().unwrap_or(0.0) } else { 0.0 },
                near: near.get(&number).copied().unwrap_or(0.0),
            })
            .collect())
    }

    /// How long each unit is with those beside it, as BM25 weighs it.
    fn lengths(&self, units: &mut Units<'_>, taken: &[(u32, Unit)]) -> Outcome<Vec<f32>> {
        let all = f64::from(self.totals.units).max(1.0);
        let mean = weight(self.totals.words.max(1) as f64 / all);
        let average = 3.0 * mean + DATE_WORDS;
        let mut lengths = Vec::with_capacity(taken.len());
        for (_, unit) in taken {
            let mut words = unit.words as f32 + DATE_WORDS;
            for beside in [unit.before, unit.after] {
                if beside > 0 {
                    words += units.get(beside)?.words as f32;
                }
            }
            lengths.push(1.0 - LENGTH + LENGTH * words / average);
        }
        Ok(lengths)
    }

    fn group_words(&self, taken: &[(u32, Unit)]) -> Outcome<HashMap<u32, f32>> {
        let sql = format!("SELECT words FROM {}_group WHERE num = ?1", self.space.table());
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = HashMap::new();
        for (_, unit) in taken {
            if let std::collections::hash_map::Entry::Vacant(place) = found.entry(unit.group) {
                let words: Option<f64> = statement.query_row([unit.group], |row| row.get(0)).optional()?;
                place.insert(weight(words.unwrap_or(0.0)));
            }
        }
        Ok(found)
    }

    /// The units whose vectors, with those beside them, are nearest to that of the question, and how near.
    fn nearest(&self, units: &mut Units<'_>) -> Outcome<HashMap<u32, f32>> {
        let Some(wanted) = self.wanted else { return Ok(HashMap::new()) };
        let count = usize::try_from(self.totals.units).unwrap_or(usize::MAX).saturating_add(2);
        let (mut known, mut near) = (vec![f32::NAN; count], Vec::new());
        let most = self.effort.nearest;
        // Of many units their signs tell which ones are read.
        let by_signs = self.space == Space::Sessions && self.totals.units > self.effort.large;
        if by_signs {
            near = wanted.likely(self.connection, self.effort.likely, |unit| self.scope.may_hold(unit))?;
            for unit in &near {
                if let Some(place) = known.get_mut(*unit as usize) {
                    *place = wanted.of(self.connection, *unit)?;
                }
            }
            near.retain(|unit| known.get(*unit as usize).is_some_and(|cosine| *cosine > 0.0));
        } else {
            let take = |unit: u32, cosine: f32| {
                let Some(place) = known.get_mut(unit as usize) else { return };
                *place = cosine;
                if cosine > 0.0 && self.scope.may_hold(unit) {
                    near.push(unit);
                }
            };
            match self.space {
                // Nobody else's: they stand beside none of these.
                Space::Notes => {
                    notes::each(self.connection, wanted, |unit| self.scope.may_hold(unit), take)?;
                }
                Space::Sessions => wanted.each(self.connection, take)?,
            }
        }
        if near.len() > most {
            near.select_nth_unstable_by(most, |a, b| {
                known[*b as usize].total_cmp(&known[*a as usize]).then(a.cmp(b))
            });
            near.truncate(most);
        }
        let mut of = |unit: u32| -> Outcome<f32> {
            match known.get_mut(unit as usize) {
                None => Ok(0.0),
                Some(cosine) => {
                    if cosine.is_nan() {
                        *cosine = if by_signs { wanted.of(self.connection, unit)? } else { 0.0 };
                    }
                    Ok(*cosine)
                }
            }
        };
        let (mut found, mut nearness) = (HashSet::new(), Vec::new());
        for number in near {
            let unit = units.get(number)?;
            for number in [number, unit.before, unit.after] {
                if number == 0 || !found.insert(number) {
                    continue;
                }
                let unit = units.get(number)?;
                if self.scope.holds(number, &unit) {
                    let of_all = of(number)? + BEFORE * of(unit.before)? + AFTER * of(unit.after)?;
                    nearness.push((of_all, number));
                }
            }
        }
        // One more tells how near the others are at most.
        if nearness.len() > NEAR + 1 {
            nearness.select_nth_unstable_by(NEAR, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            nearness.truncate(NEAR + 1);
        }
        Ok(nearness.into_iter().map(|(nearness, number)| (number, nearness)).collect())
    }
}

/// The candidates with their scores, the best first. `mass` is how rare all words of the question are together.
fn ranked(mut candidates: Vec<Candidate>, mass: f32, with_vectors: bool) -> Vec<(f32, Candidate)> {
    let best = |of: fn(&Candidate) -> f32| candidates.iter().map(of).fold(0.0_f32, f32::max);
    let words = (best(|candidate| candidate.own), best(|candidate| candidate.group));
    let first = candidates.iter().max_by(|a, b| a.words(words).total_cmp(&b.words(words)));
    let top = first.map_or(0.0, |first| first.words(words));
    // How much of the question its words answer: where they answer little, vectors have to.
    let known = first.map_or(0.0, |first| if mass > 0.0 { (first.mass / mass).min(1.0) } else { 0.0 });
    let mut nearness: Vec<f32> = candidates.iter().map(|candidate| candidate.near).collect();
    nearness.sort_by(|a, b| b.total_cmp(a));
    let most = nearness.first().copied().unwrap_or(0.0);
    let least = nearness.get(NEAR.min(nearness.len().saturating_sub(1))).copied().unwrap_or(0.0);
    let mut groups: HashMap<(usize, u32), f32> = HashMap::new();
    for candidate in &mut candidates {
        candidate.near =
            if most > least { ((candidate.near - least) / (most - least)).max(0.0) } else { 0.0 };
        let group = groups.entry((slot(candidate.space), candidate.unit.group)).or_default();
        *group = group.max(candidate.near);
    }
    let score = |candidate: &Candidate| {
        let by_words = if top > 0.0 && candidate.own > 0.0 { candidate.words(words) / top } else { 0.0 };
        if !with_vectors {
            return by_words;
        }
        let group = groups.get(&(slot(candidate.space), candidate.unit.group)).copied().unwrap_or(0.0);
        known * known * by_words + (1.0 - KNOWN * known) * candidate.near + GROUP_VECTOR * group
    };
    let mut ranked: Vec<(f32, Candidate)> =
        candidates.into_iter().map(|candidate| (score(&candidate), candidate)).collect();
    // Of equal ones notes come first, then what was said first.
    ranked.sort_by(|(a, one), (b, other)| {
        b.total_cmp(a).then(slot(other.space).cmp(&slot(one.space))).then(one.number.cmp(&other.number))
    });
    let top = ranked.first().map_or(0.0, |(score, _)| *score).max(f32::MIN_POSITIVE);
    for (score, _) in &mut ranked {
        *score /= top;
    }
    ranked
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
        let by = match (candidate.own > 0.0, candidate.near > 0.0) {
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
