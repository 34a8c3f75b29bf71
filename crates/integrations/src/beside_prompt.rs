//! Beside a prompt: archived passages that share its words.

use std::collections::{BTreeSet, HashMap};

use quipu_history::{TextDetail, minute, text_of};
use quipu_protocol::NodeId;
use quipu_store::{Excerpt, Hit, SearchQuery, SessionQuery, Speaker, StoreError, decode_nodes};
use quipu_transcript::one_line;

use crate::framed_lines::{FramedLines, without_frames};
use crate::view::{HookAnswer, View};
use crate::words::telling_words;

const HEAD: &str = "Said here before:";
/// Bytes of a prompt that are looked at.
const PROMPT: usize = 8 << 10;
/// Words of a prompt that count, and those of them, the longest, that are searched.
const WORDS: usize = 24;
const SEARCHED: usize = 6;
/// Of the words that many passages have, those that are searched two by two.
const PAIRED: usize = 3;
/// Hits of one search: a word with fewer is rare.
const HITS: usize = 8;
/// Passages that are read.
const READ: usize = 24;
/// Passages that are tried, and given.
const TRIED: usize = 6;
const GIVEN: usize = 3;
/// Characters of a rare word that suffices alone.
const TELLING: usize = 5;

pub(crate) async fn text(view: &View<'_>, prompt: &str) -> Result<Option<HookAnswer>, StoreError> {
    let prompt = without_frames(prompt);
    let (start, _) = quipu_history::piece(&prompt, 0, PROMPT as u64);
    let words = searched(&telling_words(&view.sealed(start), WORDS));
    let found = ranked(view, &words).await?;
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    let mut given = Vec::new();
    for Passage { hit, text: said, .. } in &found {
        let without = without_frames(said);
        // What a hook gave is no passage of its own.
        let passage = if without.len() == said.trim().len() {
            excerpt(&hit.excerpt)
        } else if words.iter().any(|word| without.to_lowercase().contains(word)) {
            one_line(&without, 200)
        } else {
            continue;
        };
        let agent = agent_of(view, hit).await?;
        let line = format!("{} {} {agent}{}: {passage}", hit.node.short(), minute(hit.at), hit.role);
        if given.len() == GIVEN || !lines.push(&line) {
            break;
        }
        given.push(hit.node.short());
    }
    Ok(lines.finish().map(|text| HookAnswer { text, given }))
}

/// The longest of the words, in the order of the prompt: they tend to be the rare ones.
fn searched(words: &[String]) -> Vec<String> {
    let mut longest: Vec<usize> = (0..words.len()).collect();
    longest.sort_by_key(|at| std::cmp::Reverse(words[*at].chars().count()));
    longest.truncate(SEARCHED);
    longest.sort_unstable();
    longest.into_iter().map(|at| words[at].clone()).collect()
}

/// A passage that may be given.
struct Passage {
    hit: Hit,
    text: String,
    /// What it holds of the words, by their places.
    holds: BTreeSet<usize>,
}

/// Passages that hold the rarest words, those that hold more of them first.
async fn ranked(view: &View<'_>, words: &[String]) -> Result<Vec<Passage>, StoreError> {
    // One that there is no time for counts as common.
    let mut counts = vec![HITS; words.len()];
    let mut found: Vec<Passage> = Vec::new();
    let add = |found: &mut Vec<Passage>, hits: Vec<Hit>, of: &[usize]| {
        for hit in hits {
            match found.iter_mut().find(|known| known.hit.node == hit.node) {
                Some(known) => known.holds.extend(of),
                None => found.push(Passage { hit, text: String::new(), holds: of.iter().copied().collect() }),
            }
        }
    };
    for (at, word) in words.iter().enumerate() {
        if !view.has_time() {
            break;
        }
        let hits = search(view, word.clone()).await?;
        counts[at] = hits.len();
        // Those of a rare word are all there are.
        if hits.len() < HITS {
            add(&mut found, hits, &[at]);
        }
    }
    let common: Vec<usize> = (0..words.len()).filter(|at| counts[*at] >= HITS).take(PAIRED).collect();
    for (nth, one) in common.iter().enumerate() {
        for other in common.iter().skip(nth + 1).filter(|_| view.has_time()) {
            let hits = search(view, format!("{} {}", words[*one], words[*other])).await?;
            add(&mut found, hits, &[*one, *other]);
        }
    }
    found.truncate(READ);
    let nodes: Vec<NodeId> = found.iter().map(|passage| passage.hit.node).collect();
    let read: Vec<_> = view.store.nodes(&nodes).await?.into_iter().flatten().collect();
    let texts = decode_nodes(view.store, &read).await?;
    let mut texts: HashMap<NodeId, String> = read
        .iter()
        .zip(texts)
        .map(|(node, decoded)| (node.id, text_of(&decoded.entry, TextDetail::Shortened)))
        .collect();
    for passage in &mut found {
        passage.text = texts.remove(&passage.hit.node).unwrap_or_default();
        let lower = passage.text.to_lowercase();
        passage.holds.extend((0..words.len()).filter(|at| lower.contains(&words[*at])));
    }
    let is_telling = |at: &usize| counts[*at] < HITS && words[*at].chars().count() >= TELLING;
    found.retain(|passage| passage.holds.len() > 1 || passage.holds.iter().any(is_telling));
    let score = |passage: &Passage| -> f64 {
        let count = |at: &usize| f64::from(u32::try_from(counts[*at].max(1)).unwrap_or(u32::MAX));
        passage.holds.iter().map(|at| 0.5 + 1.0 / count(at)).sum()
    };
    found.sort_by(|one, other| {
        let newest = || (other.hit.at, other.hit.node).cmp(&(one.hit.at, one.hit.node));
        score(other).total_cmp(&score(one)).then_with(newest)
    });
    found.truncate(TRIED);
    Ok(found)
}

/// The newest passages with these words that the session does not know.
async fn search(view: &View<'_>, words: String) -> Result<Vec<Hit>, StoreError> {
    let query = SearchQuery {
        words,
        speakers: vec![Speaker::User, Speaker::Assistant, Speaker::Summary],
        limit: HITS,
        per_session: Some(2),
        ..SearchQuery::default()
    };
    view.newest(query).await
}

/// The program of a passage, with a blank behind it.
pub(crate) async fn agent_of(view: &View<'_>, hit: &Hit) -> Result<String, StoreError> {
    let Some(session) = &hit.session else { return Ok(String::new()) };
    let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
    let row = view.store.sessions(query).await?.into_iter().next();
    Ok(row.map_or_else(String::new, |row| format!("{} ", one_line(&row.agent, 40))))
}

fn excerpt(excerpt: &Excerpt) -> String {
    let [before, after] = [excerpt.cut_before, excerpt.cut_after].map(|cut| if cut { "…" } else { "" });
    format!("{before}{}{after}", excerpt.text)
}
