//! Which units of one index may answer a question, and how well each does by each signal.
//!
//! A unit is scored as one text of four columns: its own words, those of the one before (half), of the one after (a quarter)
//! and of its date (half), by BM25. To that comes the BM25 of its session.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _};

use super::super::failure::Outcome;
use super::asked::AskedWord;
use super::effort::Effort;
use super::scope::Scope;
use super::space::{Space, Totals, Unit, Units, postings};
use super::vectors::VectorTarget;
use super::words::weight;
use crate::{MOST_RECALLED, RecallQuery};

/// How much the words of the unit before count, of the unit after, and of the date.
const BEFORE: f32 = 0.5;
const AFTER: f32 = 0.25;
const DATE: f32 = 0.5;
/// How much the session counts beside the unit.
const GROUP: f32 = 0.5;
/// How BM25 weighs repetition and length.
const REPETITION: f32 = 1.2;
const LENGTH: f32 = 0.75;
/// Units of which nearness counts.
pub(super) const NEAR: usize = 200;
/// Steps of scores by which the first ones are told from the others.
const STEPS: usize = 1_024;
/// How much longer its date makes a unit.
const DATE_WORDS: f32 = 3.0;

/// What words give a unit, and its session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WordScore {
    pub(super) unit: f32,
    pub(super) group: f32,
}

impl WordScore {
    /// The higher of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self { unit: self.unit.max(other.unit), group: self.group.max(other.group) }
    }

    /// Both together, each by the best there is.
    pub(super) fn of(self, best: Self) -> f32 {
        let of = |value: f32, best: f32| if best > 0.0 { value / best } else { 0.0 };
        (of(self.unit, best.unit) + GROUP * of(self.group, best.group)) / (1.0 + GROUP)
    }
}

/// A unit that may answer.
pub(super) struct Candidate {
    pub(super) space: Space,
    pub(super) number: u32,
    pub(super) unit: Unit,
    /// By the words of the question.
    pub(super) own: WordScore,
    /// By these and by words that are near them.
    pub(super) wide: WordScore,
    /// The words of the question that it or a unit beside it has, as much as they are rare.
    pub(super) mass: f32,
    /// How near its vector and those beside it are.
    pub(super) near: f32,
}

pub(super) struct Ranker<'a> {
    pub(super) connection: &'a Connection,
    pub(super) query: &'a RecallQuery,
    pub(super) space: Space,
    pub(super) totals: Totals,
    pub(super) words: &'a [AskedWord],
    pub(super) scope: Scope,
    /// The vector of the question.
    pub(super) wanted: Option<&'a VectorTarget<'a>>,
    pub(super) effort: Effort,
}

/// Units with how often they have a word, and a bit for their date.
type Postings = Vec<(u32, u32)>;

/// A word of the question with what is read for it.
struct Lists {
    rarity: f32,
    forms: Vec<(Option<f32>, Postings)>,
}

fn times_of(value: u32) -> (f32, bool) {
    ((value >> 1) as f32, value & 1 == 1)
}

fn saturated(times: f32, length: f32) -> f32 {
    times * (REPETITION + 1.0) / (times + REPETITION * length)
}

/// How often a group has a word, and one that is near it.
#[derive(Default)]
struct GroupTimes {
    own: f32,
    wide: f32,
    is_dated: bool,
}

/// The units that are scored, and where each stands among them.
struct ScoredUnits {
    units: Vec<(u32, Unit)>,
    places: Vec<u32>,
}

impl ScoredUnits {
    fn place(&self, number: u32) -> Option<usize> {
        let place = self.places.get(number as usize)?.checked_sub(1)?;
        Some(place as usize)
    }

    fn add(&mut self, number: u32, units: &mut Units<'_>) -> Outcome<()> {
        let Some(place) = self.places.get_mut(number as usize).filter(|place| number > 0 && **place == 0)
        else {
            return Ok(());
        };
        self.units.push((number, units.get(number)?));
        *place = u32::try_from(self.units.len()).unwrap_or(0);
        Ok(())
    }
}

impl Ranker<'_> {
    pub(super) fn rank(&self, candidates: &mut Vec<Candidate>) -> Outcome<()> {
        let mut lists: Vec<Lists> = Vec::new();
        for word in self.words {
            let mut forms = Vec::new();
            for form in &word.forms {
                let count = form.units[self.space.slot()];
                if count > 0 {
                    let list = postings(self.connection, self.space, &form.stem, count)?;
                    forms.push((form.share, list));
                }
            }
            lists.push(Lists { rarity: word.rarity, forms });
        }
        let (rough, touched) = self.rough(&lists);
        let mut units = Units::new(self.connection, self.space);
        let near = self.nearest(&mut units)?;
        let wanted = self.query.limit.clamp(1, MOST_RECALLED);
        let exact = if self.is_large() { self.effort.first } else { self.effort.exact };
        let mut most = if touched.len() <= exact { touched.len() } else { self.effort.first };
        loop {
            let first = first(&touched, &rough, most);
            let scored = self.score(&mut units, &lists, &first, &near)?;
            // What is only near takes the place of nothing that has the words.
            let with_words = scored.iter().filter(|candidate| candidate.wide.unit > 0.0).count();
            if with_words >= wanted || most >= touched.len() {
                candidates.extend(scored);
                return Ok(());
            }
            // Other conditions let few of them pass.
            most = most.saturating_mul(8);
        }
    }

    fn is_large(&self) -> bool {
        self.totals.units > self.effort.large
    }

    /// Room for a number of each unit, from 0.
    fn room(&self) -> usize {
        usize::try_from(self.totals.units).unwrap_or(usize::MAX).saturating_add(2)
    }

    /// A score of each unit by its own words alone, and which units have one.
    fn rough(&self, lists: &[Lists]) -> (Vec<f32>, Vec<u32>) {
        let (mut rough, mut touched) = (vec![0.0_f32; self.room()], Vec::<u32>::new());
        for word in lists {
            for (share, list) in &word.forms {
                let (of_times, of_date) = share.map_or((1.0, DATE), |share| (share, 0.0));
                for (unit, value) in list {
                    let Some(score) = rough.get_mut(*unit as usize).filter(|_| self.scope.may_hold(*unit))
                    else {
                        continue;
                    };
                    let (times, is_dated) = times_of(*value);
                    let times = of_times * times + if is_dated { of_date } else { 0.0 };
                    if times > 0.0 {
                        if *score == 0.0 {
                            touched.push(*unit);
                        }
                        *score += word.rarity * saturated(times, 1.0);
                    }
                }
            }
        }
        (rough, touched)
    }

    /// The exact scores of these units, of those beside them and of those with near vectors.
    fn score(
        &self,
        units: &mut Units<'_>,
        lists: &[Lists],
        first: &[u32],
        near: &HashMap<u32, f32>,
    ) -> Outcome<Vec<Candidate>> {
        let mut taken = ScoredUnits { units: Vec::new(), places: vec![0; self.room()] };
        for number in first.iter().chain(near.keys()) {
            let unit = units.get(*number)?;
            for number in [*number, unit.before, unit.after] {
                taken.add(number, units)?;
            }
        }
        let length = self.lengths(units, &taken.units)?;
        let mut scores: Vec<(WordScore, WordScore, f32)> = vec![Default::default(); taken.units.len()];
        // How often a unit has the word, and how often with those that are near it.
        let mut times_there = vec![(0.0_f32, 0.0_f32); taken.units.len()];
        let mut groups: HashMap<u32, (f32, f32)> = HashMap::new();
        let group_words = self.group_words(&taken.units)?;
        let sessions = f64::from(u32::try_from(self.totals.groups).unwrap_or(u32::MAX)).max(1.0);
        let average = weight(self.totals.words.max(1) as f64 / sessions);
        for word in lists {
            let mut changed: Vec<usize> = Vec::new();
            let mut of_groups: HashMap<u32, GroupTimes> = HashMap::new();
            for (share, list) in &word.forms {
                for (number, value) in list {
                    let Some(at) = taken.place(*number) else { continue };
                    let unit = taken.units[at].1;
                    let (times, is_dated) = times_of(*value);
                    let of_date = if is_dated && share.is_none() { DATE } else { 0.0 };
                    let mut add = |number: u32, times: f32| {
                        let Some(at) = taken.place(number).filter(|_| times > 0.0) else { return };
                        let there = &mut times_there[at];
                        if there.1 == 0.0 {
                            changed.push(at);
                        }
                        there.0 += if share.is_none() { times } else { 0.0 };
                        there.1 += share.unwrap_or(1.0) * times;
                    };
                    add(*number, times + of_date);
                    add(unit.after, BEFORE * times);
                    add(unit.before, AFTER * times);
                    if times + of_date > 0.0 {
                        let of_group = of_groups.entry(unit.group).or_default();
                        of_group.own += if share.is_none() { times } else { 0.0 };
                        of_group.wide += share.unwrap_or(1.0) * times;
                        of_group.is_dated |= of_date > 0.0;
                    }
                }
            }
            for at in changed {
                let (own, wide) = std::mem::take(&mut times_there[at]);
                let (of_own, of_wide, mass) = &mut scores[at];
                if own > 0.0 {
                    *mass += word.rarity;
                    of_own.unit += word.rarity * saturated(own, length[at]);
                }
                of_wide.unit += word.rarity * saturated(wide, length[at]);
            }
            let rarity = |has: usize| {
                let has = f64::from(u32::try_from(has).unwrap_or(u32::MAX));
                weight((1.0 + (sessions - has + 0.5).max(0.5) / (has + 0.5)).ln())
            };
            let with_own = of_groups.values().filter(|times| times.own > 0.0 || times.is_dated).count();
            let (of_own, of_wide) = (rarity(with_own), rarity(of_groups.len()));
            for (group, times) in of_groups {
                let of_date = if times.is_dated { 1.0 } else { 0.0 };
                let words = group_words.get(&group).copied().unwrap_or(average);
                let length = 1.0 - LENGTH + LENGTH * words / average.max(1.0);
                let sums = groups.entry(group).or_default();
                sums.0 += of_own * saturated(times.own + of_date, length);
                sums.1 += of_wide * saturated(times.wide + of_date, length);
            }
        }
        let mut candidates = Vec::with_capacity(taken.units.len());
        for ((number, unit), (mut own, mut wide, mass)) in taken.units.into_iter().zip(scores) {
            if self.scope.holds(number, &unit) {
                let of_group = groups.get(&unit.group).copied().unwrap_or_default();
                own.group = if own.unit > 0.0 { of_group.0 } else { 0.0 };
                wide.group = if wide.unit > 0.0 { of_group.1 } else { 0.0 };
                let near = near.get(&number).copied().unwrap_or(0.0);
                candidates.push(Candidate { space: self.space, number, unit, own, wide, mass, near });
            }
        }
        Ok(candidates)
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
        let may = |unit: u32| self.scope.may_hold(unit);
        // Of many units their signs tell which vectors are read, and how near those beside them are.
        let (cosines, mut near, most) = if self.is_large() {
            let likely = self.effort.likely;
            let (cosines, near) = wanted.likely(self.connection, self.space, self.room(), likely, may)?;
            (cosines, near, self.effort.nearest_likely)
        } else {
            // Nobody else's notes: they stand beside none of these.
            let is_wanted = |unit: u32| self.space == Space::Sessions || may(unit);
            let cosines = wanted.all(self.connection, self.space, self.room(), is_wanted)?;
            let near = (0..).zip(&cosines).filter(|(unit, cosine)| **cosine > 0.0 && may(*unit));
            let near: Vec<u32> = near.map(|(unit, _)| unit).collect();
            (cosines, near, self.effort.nearest)
        };
        let of = |unit: u32| cosines.get(unit as usize).map_or(0.0, |cosine| cosine.max(0.0));
        near.retain(|unit| of(*unit) > 0.0);
        if near.len() > most {
            near.select_nth_unstable_by(most, |a, b| of(*b).total_cmp(&of(*a)).then(a.cmp(b)));
            near.truncate(most);
        }
        let (mut found, mut nearness) = (HashSet::new(), Vec::new());
        for number in near {
            let unit = units.get(number)?;
            for number in [number, unit.before, unit.after] {
                if number == 0 || !found.insert(number) {
                    continue;
                }
                let unit = units.get(number)?;
                if self.scope.holds(number, &unit) {
                    let of_all = of(number) + BEFORE * of(unit.before) + AFTER * of(unit.after);
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
