//! Ranking: what has the rare words of a question first, then what stands beside it and in its session.
//!
//! A unit is scored as one text of four columns: its own words, those of the one before (half), of the one after (a quarter)
//! and of its date (half), by BM25. To that comes the BM25 of its session. Each is scaled by its best before they are added.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::search::{self, Reader};
use super::super::vectors::{cosine, packed};
use super::super::{places, rows};
use super::space::{Space, Totals, Unit, Units, frequency, kind, postings, totals};
use super::vectors::{Weights, each};
use super::words::weight;
use super::{author_number, author_of, notes, words};
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
/// Units that are scored exactly, all of them; of more, those that the words alone rank first.
const EXACT: usize = 2_000;
const FIRST: usize = 500;
/// Postings that are read for one question, of rare words first.
const READ: u32 = 300_000;
/// In an index of more units than this, words that one of four has are not read.
const LARGE: u32 = 20_000;
/// Units whose vectors are nearest that are looked at, and of which nearness counts.
const NEAREST: usize = 2_000;
const NEAR: usize = 200;
/// Steps of scores by which the first ones are told from the others.
const STEPS: usize = 1_024;
/// How much longer its date makes a unit.
const DATE_WORDS: f32 = 3.0;

/// A word of the question and how rare it is.
struct Word {
    stem: String,
    rarity: f32,
    /// In how many units of each index.
    units: [u32; 2],
}

/// A unit that may answer.
struct Candidate {
    space: Space,
    number: u32,
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
    let (words, mass) = rarity(connection, &spaces, &sums, &stems)?;
    let vector = match vectors {
        None => None,
        Some(vectors) => {
            let vector = Weights::new(connection)?.vector(vectors, &query.question)?;
            Some((vectors, packed(&vector)))
        }
    };
    let mut candidates = Vec::new();
    for space in spaces {
        let totals = sums[slot(space)];
        if totals.units > 0 {
            let scope = Scope::of(connection, query, space, totals)?;
            let vector = vector.as_ref().map(|(vectors, bytes)| (*vectors, bytes.as_slice()));
            let ranker = Ranker { connection, query, space, totals, words: &words, scope, vector };
            ranker.rank(&mut candidates)?;
        }
    }
    candidates.retain(|candidate| candidate.own > 0.0 || candidate.near > 0.0);
    let ranked = ranked(candidates, mass, vector.is_some());
    found.hits = hits(connection, query, &stems, ranked)?;
    Ok(found)
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
        let keep = kept == 0 || read.saturating_add(count) <= READ && (all <= LARGE || count <= all / 4);
        if keep {
            read = read.saturating_add(count);
            kept += 1;
        }
        keep
    });
    Ok((words, mass))
}

/// Which units may be shown.
struct Scope {
    /// Sessions or files; `None` for all.
    groups: Option<HashSet<u32>>,
    /// From one unit to another, in order: none of these groups has one elsewhere.
    ranges: Vec<(u32, u32)>,
    kinds: Vec<u8>,
    authors: Vec<u8>,
    since: u32,
    until: u32,
}

impl Scope {
    fn of(connection: &Connection, query: &RecallQuery, space: Space, totals: Totals) -> Outcome<Self> {
        let groups = match (space, &query.projects) {
            (Space::Sessions, None) => None,
            (Space::Sessions, Some(projects)) => Some(sessions_below(connection, projects)?),
            (Space::Notes, _) => Some(notes::files(connection, &query.memories)?),
        };
        let mut ranges = vec![(1, totals.units)];
        if let Some(groups) = &groups {
            ranges.clear();
            let sql = format!("SELECT first, last FROM {}_group WHERE num = ?1", space.table());
            let mut statement = connection.prepare_cached(&sql)?;
            for group in groups {
                let range = statement.query_row([group], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
                ranges.extend(range);
            }
            ranges.sort_unstable();
            let mut joined: Vec<(u32, u32)> = Vec::new();
            for (first, last) in ranges {
                match joined.last_mut() {
                    Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
                    _ => joined.push((first, last)),
                }
            }
            ranges = joined;
        }
        let kinds = query.kinds.iter().map(|kind| kind_number(*kind)).collect();
        let seconds = |at: Option<i64>, none: u32| at.map_or(none, super::seconds);
        Ok(Self {
            groups: groups.map(|groups| groups.into_iter().collect()),
            ranges,
            kinds,
            authors: query.authors.iter().map(|author| author_number(*author)).collect(),
            since: seconds(query.since, 0),
            until: seconds(query.until, u32::MAX),
        })
    }

    /// Whether a unit can be in one of the groups.
    fn may_hold(&self, number: u32) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < number);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= number)
    }

    fn holds(&self, unit: &Unit) -> bool {
        unit.kind != kind::GONE
            && (self.kinds.is_empty() || self.kinds.contains(&unit.kind))
            && (self.authors.is_empty() || self.authors.contains(&unit.author))
            && unit.at >= self.since
            && (self.until == u32::MAX || unit.at < self.until)
            && self.groups.as_ref().is_none_or(|groups| groups.contains(&unit.group))
    }
}

fn kind_number(kind: RecallKind) -> u8 {
    match kind {
        RecallKind::User => kind::USER,
        RecallKind::Assistant => kind::ASSISTANT,
        RecallKind::Summary => kind::SUMMARY,
        RecallKind::Note => kind::NOTE,
    }
}

fn sessions_below(connection: &Connection, projects: &[String]) -> Outcome<Vec<u32>> {
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT num FROM quipu_x_session WHERE project = ?1 OR (project >= ?2 AND project < ?3)",
    )?;
    for project in projects {
        let project = project.strip_suffix('/').unwrap_or(project);
        // The character after the slash ends the range.
        let (below, end) = (format!("{project}/"), format!("{project}0"));
        let exact = if project.is_empty() { "/" } else { project };
        for number in statement.query_map(params![exact, below, end], |row| row.get::<_, i64>(0))? {
            found.extend(u32::try_from(number?).ok());
        }
    }
    Ok(found)
}

/// About so many of these units, those with the highest scores, and all that are as good as the last.
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
    units.iter().filter(|unit| step(unit) >= from).take(most.saturating_mul(4)).copied().collect()
}

struct Ranker<'a> {
    connection: &'a Connection,
    query: &'a RecallQuery,
    space: Space,
    totals: Totals,
    words: &'a [Word],
    scope: Scope,
    /// What makes vectors, and that of the question.
    vector: Option<(&'a dyn WordVectors, &'a [u8])>,
}

type Postings = Vec<(u32, u32, bool)>;

impl Ranker<'_> {
    fn rank(&self, candidates: &mut Vec<Candidate>) -> Outcome<()> {
        let mut lists: Vec<(&Word, Postings)> = Vec::new();
        for word in self.words.iter().filter(|word| word.units[slot(self.space)] > 0) {
            lists.push((word, postings(self.connection, self.space, &word.stem)?));
        }
        let count = usize::try_from(self.totals.units).unwrap_or(usize::MAX).saturating_add(2);
        let (mut rough, mut touched) = (vec![0.0_f32; count], Vec::<u32>::new());
        for (word, list) in &lists {
            for (unit, times, dated) in list {
                let at = *unit as usize;
                if at >= count || !self.scope.may_hold(*unit) {
                    continue;
                }
                if rough[at] == 0.0 {
                    touched.push(*unit);
                }
                let times = *times as f32 + if *dated { DATE } else { 0.0 };
                rough[at] += word.rarity * times * (REPETITION + 1.0) / (times + REPETITION);
            }
        }
        let mut units = Units::new(self.connection, self.space);
        let near = self.nearest(&mut units)?;
        let wanted = self.query.limit.clamp(1, MOST_RECALLED);
        let mut most = if touched.len() <= EXACT { touched.len() } else { FIRST };
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
            let mut times_of: HashMap<u32, (f32, bool)> = HashMap::new();
            for (number, times, dated) in list {
                let Some(at) = place.get(*number as usize).and_then(|at| at.checked_sub(1)) else { continue };
                let unit = taken[at as usize].1;
                let times = *times as f32;
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
                add(*number, times + if *dated { DATE } else { 0.0 });
                add(unit.after, BEFORE * times);
                add(unit.before, AFTER * times);
                let of_group = times_of.entry(unit.group).or_default();
                of_group.0 += times;
                of_group.1 |= dated;
            }
            for at in changed {
                let times = std::mem::take(&mut weights[at]);
                mass[at] += word.rarity;
                own[at] += word.rarity * times * (REPETITION + 1.0) / (times + REPETITION * length[at]);
            }
            let has = f64::from(u32::try_from(times_of.len()).unwrap_or(u32::MAX));
            let rarity = weight((1.0 + (sessions - has + 0.5).max(0.5) / (has + 0.5)).ln());
            for (group, (times, dated)) in times_of {
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
            .filter(|(((number, unit), _), _)| self.scope.may_hold(*number) && self.scope.holds(unit));
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
        let Some((vectors, wanted)) = self.vector.filter(|(_, bytes)| !bytes.is_empty()) else {
            return Ok(HashMap::new());
        };
        let count = usize::try_from(self.totals.units).unwrap_or(usize::MAX).saturating_add(2);
        let (mut alone, mut near) = (vec![0.0_f32; count], Vec::new());
        let mut take = |unit: u32, cosine: f32| {
            let Some(place) = alone.get_mut(unit as usize) else { return };
            *place = cosine;
            if *place > 0.0 && self.scope.may_hold(unit) {
                near.push(unit);
            }
        };
        match self.space {
            Space::Notes => notes::vectors(self.connection, vectors.id(), |unit, vector| {
                take(unit, weight(cosine(vector, wanted)));
            })?,
            Space::Sessions => each(self.connection, vectors, wanted, take)?,
        }
        if near.len() > NEAREST {
            near.select_nth_unstable_by(NEAREST, |a, b| {
                alone[*b as usize].total_cmp(&alone[*a as usize]).then(a.cmp(b))
            });
            near.truncate(NEAREST);
        }
        let of = |unit: u32| alone.get(unit as usize).copied().unwrap_or(0.0);
        let mut found = HashMap::new();
        for number in near {
            let unit = units.get(number)?;
            for number in [number, unit.before, unit.after] {
                if number == 0 || found.contains_key(&number) {
                    continue;
                }
                let unit = units.get(number)?;
                if self.scope.holds(&unit) {
                    found.insert(number, of(number) + BEFORE * of(unit.before) + AFTER * of(unit.after));
                }
            }
        }
        Ok(found)
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
    let text = reader.said(&node)?;
    let excerpt = search::excerpt_of(&text, stems, &|word| super::stem::stem(word));
    let node_id: NodeId = node.id;
    Ok(Some(RecallPlace::Node { node: node_id, external_id: node.record.external_id, session: id, excerpt }))
}
