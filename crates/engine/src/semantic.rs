//! Semantic search: vectors of messages, and a ranking that combines their nearness with the search by words.
//!
//! Texts are sealed once more before they are given away: what other programs wrote into the store was not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use quipu_protocol::{ModelError, SessionId, Usage};
use quipu_providers::Embedder;
use quipu_seal::Sealer;
use quipu_store::{Graph, Hit, Order, RANKED, SearchHits, SearchQuery, StoreError, VectorHits, Vectors};

/// What is added to each rank before it is turned over: the higher, the less the first ones weigh.
pub const RANK_OFFSET: u32 = 60;
/// Texts that are given to the model at once.
const BATCH: usize = 64;

/// A semantic search failed.
#[derive(Debug, thiserror::Error)]
pub enum SemanticError {
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The embedding model failed.
    #[error("{0}")]
    Model(ModelError),
}

impl From<ModelError> for SemanticError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

/// What making vectors took.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SemanticIndexReport {
    /// Vectors that were made.
    pub vectors: u64,
    /// Tokens and cost, as far as they were reported.
    pub usage: Usage,
    /// Nodes that have still to be looked at.
    pub left: u64,
}

/// The hits of a semantic search.
#[derive(Debug, Clone, PartialEq)]
pub struct SemanticMatches {
    /// The hits, the best of both rankings first: `score` is the mixed one.
    pub found: SearchHits,
    /// Nodes whose texts were not compared.
    pub left: u64,
    /// Tokens and cost of the query.
    pub usage: Usage,
}

/// Makes vectors of what has none yet, the newest first, for about so long; `None` for as long as it takes. `on_progress` gets
/// after each batch how many nodes are left.
///
/// # Errors
/// Of the store, and of the model; what was made before stays.
pub async fn index_semantic(
    store: &(impl Vectors + ?Sized),
    embedder: &dyn Embedder,
    sealer: &Sealer,
    patience: Option<Duration>,
    mut on_progress: impl FnMut(u64),
) -> Result<SemanticIndexReport, SemanticError> {
    let began = Instant::now();
    let mut done = SemanticIndexReport::default();
    loop {
        let batch = store.without_vectors(embedder.id(), BATCH).await?;
        done.left = batch.left;
        if batch.is_done() {
            return Ok(done);
        }
        let texts: Vec<String> = batch.texts.iter().map(|(_, text)| sealer.seal(text).into_owned()).collect();
        let (vectors, usage) = embed(embedder, &texts).await?;
        done.usage.input = done.usage.input.saturating_add(usage.input);
        done.usage.total_tokens = done.usage.total_tokens.saturating_add(usage.total_tokens);
        done.usage.cost.input += usage.cost.input;
        done.usage.cost.total += usage.cost.total;
        store.keep_vectors(embedder.id(), &batch, &vectors).await?;
        done.vectors += texts.len() as u64;
        on_progress(done.left);
        if done.left == 0 || patience.is_some_and(|patience| began.elapsed() >= patience) {
            return Ok(done);
        }
    }
}

async fn embed(embedder: &dyn Embedder, texts: &[String]) -> Result<(Vec<Vec<f32>>, Usage), ModelError> {
    if texts.is_empty() {
        return Ok(Default::default());
    }
    let made = embedder.embed(texts).await?;
    Ok((made.vectors, made.usage))
}

/// Searches by words and by vectors, and mixes both rankings by reciprocal rank: each hit scores the sum of
/// `1 / (RANK_OFFSET + rank)` over the rankings that it is in. Words rank as [`Order::Best`] does, and what was found by
/// words keeps its marks. The words of `query` are what is compared.
///
/// # Errors
/// Of the store, and of the model.
pub async fn semantic_search(
    store: &(impl Graph + Vectors + ?Sized),
    embedder: &dyn Embedder,
    sealer: &Sealer,
    query: SearchQuery,
) -> Result<SemanticMatches, SemanticError> {
    let words = sealer.seal(&query.words).into_owned();
    let (vectors, usage) = embed(embedder, std::slice::from_ref(&words)).await?;
    let (limit, per_session) = (query.limit, query.per_session);
    let all = SearchQuery { words, order: Order::Best, limit: RANKED, per_session: None, ..query };
    let mut found = store.search(all.clone()).await?;
    let VectorHits { hits, cut, left } = match vectors.first() {
        Some(vector) => store.nearest(all, embedder.id(), vector).await?,
        None => VectorHits::default(),
    };
    found.cut |= cut;
    found.hits = mix(found.hits, hits, limit, per_session.unwrap_or(usize::MAX));
    Ok(SemanticMatches { found, left, usage })
}

/// Both rankings as one; of equal scores the newer hit first.
fn mix(words: Vec<Hit>, near: Vec<Hit>, limit: usize, per_session: usize) -> Vec<Hit> {
    let mut all: Vec<Hit> = Vec::new();
    let mut places = HashMap::new();
    for ranking in [words, near] {
        for (rank, hit) in ranking.into_iter().enumerate() {
            let rank = u32::try_from(rank).unwrap_or(u32::MAX).saturating_add(1);
            let score = 1.0 / f64::from(RANK_OFFSET.saturating_add(rank));
            let place = *places.entry(hit.node).or_insert_with(|| {
                all.push(Hit { score: None, more: 0, ..hit });
                all.len() - 1
            });
            all[place].score = Some(all[place].score.unwrap_or(0.0) + score);
        }
    }
    all.sort_by(|a, b| {
        let score = |hit: &Hit| hit.score.unwrap_or(0.0);
        score(b).total_cmp(&score(a)).then(b.at.cmp(&a.at)).then(a.node.cmp(&b.node))
    });
    let mut sessions: HashMap<Option<SessionId>, (usize, u64)> = HashMap::new();
    let mut kept: Vec<Hit> = Vec::new();
    for hit in all {
        let (taken, passed) = sessions.entry(hit.session.clone()).or_default();
        if *taken >= per_session || kept.len() >= limit {
            *passed += 1;
        } else {
            *taken += 1;
            kept.push(hit);
        }
    }
    for (session, (_, passed)) in sessions {
        if let Some(last) = kept.iter_mut().rev().find(|hit| hit.session == session) {
            last.more = passed;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use quipu_protocol::NodeId;
    use quipu_store::{Excerpt, MatchKind};

    use super::*;

    fn hit(node: u8, session: &str, at: i64, by: MatchKind) -> Hit {
        Hit {
            node: NodeId([node; 32]),
            session: Some(session.into()),
            role: "user".into(),
            tool: None,
            at,
            by,
            excerpt: Excerpt::default(),
            score: Some(99.0),
            more: 7,
            withdrawn: None,
        }
    }

    #[test]
    fn both_rankings_count_and_the_order_is_always_the_same() {
        let words = || vec![hit(1, "a", 1, MatchKind::Words), hit(2, "a", 2, MatchKind::Substring)];
        let near = || [3, 2, 4].map(|node| hit(node, "b", i64::from(node), MatchKind::Semantic)).to_vec();
        let mixed = mix(words(), near(), 10, 10);
        let order: Vec<u8> = mixed.iter().map(|hit| hit.node.0[0]).collect();
        // Two is second in both; of the two first ones the newer comes first.
        assert_eq!(order, [2, 3, 1, 4]);
        assert_eq!(mixed[0].score, Some(2.0 / 62.0));
        assert_eq!(mixed[1].score, Some(1.0 / 61.0));
        assert_eq!((mixed[0].by, mixed[1].by), (MatchKind::Substring, MatchKind::Semantic));
        assert!(mixed.iter().all(|hit| hit.more == 0));
        for _ in 0..50 {
            assert_eq!(mix(words(), near(), 10, 10), mixed);
        }
        // What is left out is counted on the last hit of its session.
        let some = mix(words(), near(), 10, 1);
        let hits: Vec<(u8, u64)> = some.iter().map(|hit| (hit.node.0[0], hit.more)).collect();
        assert_eq!(hits, [(2, 1), (3, 1)]);
        assert_eq!(mix(words(), near(), 1, 10)[0].more, 1);
        assert_eq!(mix(Vec::new(), Vec::new(), 10, 10), Vec::<Hit>::new());
    }
}
