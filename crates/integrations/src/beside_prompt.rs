//! Beside a prompt: archived passages that share its words.

use std::collections::HashMap;

use quipu_history::{TextDetail, minute, text_of};
use quipu_protocol::NodeId;
use quipu_store::{
    Excerpt, Hit, MatchMode, Order, SearchQuery, SessionQuery, Sessions, Speaker, StoreError, decode_nodes,
};
use quipu_transcript::one_line;

use crate::framed_lines::{FramedLines, without_frames};
use crate::view::{HookAnswer, View};
use crate::words::telling_words;

const HEAD: &str = "Said here before:";
/// Bytes of a prompt that are looked at.
const PROMPT: usize = 8 << 10;
/// Words that are looked for.
const WORDS: usize = 8;
/// Hits of one search: a word with fewer is rare.
const HITS: usize = 8;
/// Passages that are tried, and given.
const TRIED: usize = 6;
const GIVEN: usize = 3;
/// Characters of a rare word that suffices alone.
const TELLING: usize = 5;

pub(crate) async fn text(view: &View<'_>, prompt: &str) -> Result<Option<HookAnswer>, StoreError> {
    let prompt = without_frames(prompt);
    let (start, _) = quipu_history::piece(&prompt, 0, PROMPT as u64);
    let words = telling_words(&view.sealed(start), WORDS);
    let found = ranked(view, &words).await?;
    let nodes: Vec<NodeId> = found.iter().map(|hit| hit.node).collect();
    let read: Vec<_> = view.store.nodes(&nodes).await?.into_iter().flatten().collect();
    let texts = decode_nodes(view.store, &read).await?;
    let texts: HashMap<NodeId, String> = read
        .iter()
        .zip(texts)
        .map(|(node, decoded)| (node.id, text_of(&decoded.entry, TextDetail::Shortened)))
        .collect();
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    let mut given = Vec::new();
    for hit in &found {
        let said = texts.get(&hit.node).map(String::as_str).unwrap_or_default();
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

/// Passages that hold the rarest words, those that hold more of them first.
async fn ranked(view: &View<'_>, words: &[String]) -> Result<Vec<Hit>, StoreError> {
    let mut known: Vec<(usize, &String, Vec<Hit>)> = Vec::new();
    for word in words {
        if !view.has_time() {
            break;
        }
        let hits = search(view, word.clone()).await?;
        if !hits.is_empty() {
            known.push((hits.len(), word, hits));
        }
    }
    known.sort_by_key(|(count, ..)| *count);
    let mut scores: HashMap<NodeId, (f64, Hit)> = HashMap::new();
    let mut add = |hits: Vec<Hit>, score: f64| {
        for hit in hits {
            scores.entry(hit.node).or_insert_with(|| (0.0, hit)).0 += score;
        }
    };
    // Two words that stand together say more than one.
    for (at, (_, one, _)) in known.iter().enumerate().take(3) {
        for (_, other, _) in known.iter().skip(at + 1).take(2).filter(|_| view.has_time()) {
            add(search(view, format!("{one} {other}")).await?, 2.0);
        }
    }
    for (count, word, hits) in known {
        if count < HITS && word.chars().count() >= TELLING {
            add(hits, 1.0 + 1.0 / f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        }
    }
    let mut found: Vec<(f64, Hit)> = scores.into_values().collect();
    found.sort_by(|(one, hit), (other, next)| {
        other.total_cmp(one).then(next.at.cmp(&hit.at)).then(next.node.cmp(&hit.node))
    });
    Ok(found.into_iter().map(|(_, hit)| hit).take(TRIED).collect())
}

/// The newest passages with these words that the session does not know.
async fn search(view: &View<'_>, words: String) -> Result<Vec<Hit>, StoreError> {
    let query = SearchQuery {
        words,
        matching: MatchMode::Words,
        project: Some(view.project.clone()),
        speakers: vec![Speaker::User, Speaker::Assistant, Speaker::Summary],
        sessions: Sessions::Standing,
        order: Order::Newest,
        limit: HITS,
        per_session: Some(2),
        ..SearchQuery::default()
    };
    let mut hits = view.store.search(query).await?.hits;
    hits.retain(|hit| {
        hit.session.as_ref().is_some_and(|session| !view.is_own(session)) && !view.is_seen(&hit.node.short())
    });
    Ok(hits)
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
