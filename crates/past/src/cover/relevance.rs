//! How much summaries have to do with a question, by words and identifiers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use quipu_protocol::NodeId;

/// Usual values of BM25.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;
/// How much a whole identifier weighs beside its words.
const IDENTIFIER: f64 = 2.0;
/// Words of one question that count at most.
const QUESTION_WORDS: usize = 200;

/// Words that say nothing about what a text is about.
const STOP: &str = "a about after all also an and any are as at be because been before but by can could did do does for from \
    get got had has have he her his how i if in into is it its just like me more my no not now of on one or our out over she \
    should so some than that the their them then there these they this to too up us was we were what when where which who why \
    will with would you your";
static STOP_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP.split_whitespace().collect());

/// The words of summaries.
#[derive(Debug, Clone, Default)]
pub struct RelevanceIndex {
    ids: Vec<NodeId>,
    lengths: Vec<f64>,
    postings: HashMap<String, Vec<(u32, f64)>>,
}

impl RelevanceIndex {
    /// Reads the words of each summary.
    #[must_use]
    pub fn new<'a>(summaries: impl IntoIterator<Item = (NodeId, &'a str)>) -> Self {
        let mut index = Self::default();
        for (id, text) in summaries {
            let Ok(place) = u32::try_from(index.ids.len()) else { break };
            let terms = terms(text);
            index.ids.push(id);
            index.lengths.push(terms.values().map(|term| term.count).sum());
            for (word, term) in terms {
                index.postings.entry(word).or_default().push((place, term.count));
            }
        }
        index
    }

    /// The summaries that have words of the question, with how much they have to do with it: BM25 over words without their endings
    /// and over whole identifiers, which weigh more. Of more than 200 words that the summaries have, the rarest count. The order is
    /// that of the summaries.
    #[must_use]
    pub fn scores(&self, question: &str) -> Vec<(NodeId, f64)> {
        let count = self.ids.len() as f64;
        let mean = (self.lengths.iter().sum::<f64>() / count.max(1.0)).max(1.0);
        let mut scores: BTreeMap<u32, f64> = BTreeMap::new();
        // Of a long question the rarest words: they say the most about what it leads to.
        let known =
            terms(question).into_iter().filter_map(|(word, term)| Some((self.postings.get(&word)?, term)));
        let mut known: Vec<(&Vec<(u32, f64)>, Term)> = known.collect();
        known.sort_by_key(|(postings, _)| postings.len());
        for (postings, term) in known.into_iter().take(QUESTION_WORDS) {
            let found = postings.len() as f64;
            let rarity = (1.0 + (count - found + 0.5) / (found + 0.5)).ln();
            for (place, times) in postings {
                let length = self.lengths[*place as usize];
                let saturated = times * (SATURATION + 1.0)
                    / (times + SATURATION * (1.0 - LENGTH + LENGTH * length / mean));
                *scores.entry(*place).or_default() += term.weight * rarity * saturated;
            }
        }
        scores.into_iter().map(|(place, score)| (self.ids[place as usize], score)).collect()
    }
}

/// The words of a text as they are compared.
pub(crate) fn stems(text: &str) -> BTreeSet<String> {
    terms(text).into_keys().collect()
}

struct Term {
    count: f64,
    weight: f64,
}

/// The words of a text, each with how often it is there, in the order of the alphabet.
fn terms(text: &str) -> BTreeMap<String, Term> {
    let mut terms = BTreeMap::new();
    let mut add = |word: String, weight: f64| {
        terms.entry(word).or_insert(Term { count: 0.0, weight }).count += 1.0;
    };
    for run in text.split(|c: char| !(c.is_alphanumeric() || "_-./:".contains(c))) {
        let run = run.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
        if run.is_empty() {
            continue;
        }
        let parts = parts(run);
        if parts.len() > 1 {
            add(run.to_lowercase(), IDENTIFIER);
        }
        for part in parts {
            let part = part.to_lowercase();
            if !STOP_WORDS.contains(part.as_str()) {
                add(stem(&part), 1.0);
            }
        }
    }
    terms
}

/// The words of an identifier: apart by signs, and where a capital follows a small letter.
fn parts(run: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut was_small = false;
    for c in run.chars() {
        if !c.is_alphanumeric() || (was_small && c.is_uppercase()) {
            parts.extend((!part.is_empty()).then(|| std::mem::take(&mut part)));
        }
        if c.is_alphanumeric() {
            part.push(c);
        }
        was_small = c.is_lowercase();
    }
    parts.extend((!part.is_empty()).then_some(part));
    parts
}

/// A word without its ending, as far as that is easy in English; others stay as they are.
fn stem(word: &str) -> String {
    if !word.is_ascii() {
        return word.to_owned();
    }
    for (ending, with) in [("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")] {
        if let Some(rest) = word.strip_suffix(ending)
            && rest.len() >= 3
            && !(ending == "s" && rest.ends_with(['s', 'u', 'i']))
        {
            return rest.strip_suffix('e').unwrap_or(rest).to_owned() + with;
        }
    }
    word.strip_suffix('e').filter(|rest| rest.len() >= 3).unwrap_or(word).to_owned()
}
