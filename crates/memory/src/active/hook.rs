//! The step before a run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use quipu::{
    ChildRequest, Hook, HookContext, HookError, RunEnd, RunEndVerdict, RunStart, RunStartVerdict,
    RunnerError, RunnerPurpose,
};
use quipu_protocol::{Outcome, SessionId};
use quipu_store::Graph;
use quipu_tools::quoted;

use super::frame::line;
use super::query::cut;
use super::standing::standing;
use super::{
    ACTIVE_ADDED, ACTIVE_HITS, ACTIVE_MEMORY, ActiveBudget, ActiveHit, ActiveMode, ActiveOptions,
    ActiveSearch, Breaker, RecallCache, RecentTurns, Recollection, coverage, framed, said, search_query,
    summary_of,
};

const SYSTEM: &str = include_str!("prompt.md");
/// What a model may use.
const TOOLS: [&str; 2] = ["memory_search", "memory_get"];
/// Turns of a model at most.
const TURNS: u32 = 5;
/// Output tokens of one of its answers.
const TOKENS: u64 = 1_024;
/// A hit with this share of the words of a query fits; with the second one it settles the matter.
const FITS: f64 = 0.34;
const SETTLES: f64 = 0.6;
/// How the ids of sessions begin that are begun for another one: nobody speaks in them.
const CHILD: &str = "child-";
/// A budget that no call with a price fits.
const NOTHING: f64 = 1e-9;
/// Characters of a prompt that a model is shown.
const PROMPT: usize = 4_000;
/// Sessions whose turns are remembered.
const SESSIONS: usize = 64;

/// Puts what is remembered beside prompts.
pub struct ActiveMemory {
    search: Arc<dyn ActiveSearch>,
    store: Arc<dyn Graph>,
    options: ActiveOptions,
    state: Mutex<State>,
    /// Its own session of a model is under way: that asks for nothing.
    asks: AtomicBool,
}

struct State {
    breaker: Breaker,
    cache: RecallCache,
    sessions: HashMap<String, RecentTurns>,
}

/// What a search or a model came to.
enum RecallOutcome {
    Found(Recollection),
    /// It took too long; this is what there was by then.
    Late(Recollection),
}

impl ActiveMemory {
    /// Searches with `search`, for sessions of this store.
    #[must_use]
    pub fn new(search: Arc<dyn ActiveSearch>, store: Arc<dyn Graph>, options: ActiveOptions) -> Self {
        let state = State {
            breaker: Breaker::new(options.timeouts, options.cooldown),
            cache: RecallCache::new(options.cache),
            sessions: HashMap::new(),
        };
        Self { search, store, options, state: Mutex::new(state), asks: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn beside(&self, start: &RunStart, cx: &HookContext) -> Option<String> {
        let session = cx.session.as_ref().map_or("", |id| id.as_str()).to_owned();
        if self.options.mode == ActiveMode::Off
            || session.starts_with(CHILD)
            || self.asks.load(Ordering::Acquire)
        {
            return None;
        }
        let prompt = said(start);
        let (query, turns, cached) = {
            let mut state = self.state();
            let now = Instant::now();
            if state.sessions.len() >= SESSIONS && !state.sessions.contains_key(&session) {
                state.sessions.clear();
            }
            let turns = &mut state.sessions.entry(session.clone()).or_default();
            let query = search_query(&prompt, turns.last_prompt());
            let before = turns.clone();
            turns.prompt(&prompt);
            let query = query?;
            if state.breaker.is_open(now) {
                return None;
            }
            let cached = state.cache.get(&session, &query, now);
            (query, before, cached)
        };
        if let Some(found) = cached {
            return self.unless_standing(&session, found).await;
        }
        let recalled = self.recall(&session, &query, &prompt, &turns, cx).await;
        let found = {
            let mut state = self.state();
            match recalled {
                Ok(RecallOutcome::Found(found)) => {
                    state.breaker.answered();
                    state.cache.put(&session, &query, found.clone(), Instant::now());
                    found
                }
                Ok(RecallOutcome::Late(found)) => {
                    state.breaker.timed_out(Instant::now());
                    found
                }
                // The prompt goes on without it, and the next one tries again.
                Err(_) => return None,
            }
        };
        self.unless_standing(&session, found).await
    }

    /// What is added: nothing that stands beside an earlier prompt of the session, and is sent with it.
    async fn unless_standing(&self, session: &str, found: Recollection) -> Option<String> {
        if found == Recollection::default() {
            return None;
        }
        // Where that cannot be read, it may stand there twice.
        let there = standing(&*self.store, &SessionId::from(session)).await.unwrap_or_default();
        let stands = |line: &str| there.iter().any(|text| text.lines().any(|one| one == line));
        let hits: Vec<ActiveHit> = found.hits.into_iter().filter(|hit| !stands(&line(hit))).collect();
        let summary = found.summary.filter(|summary| !stands(&quoted(summary)));
        framed(&hits, summary.as_deref())
    }

    async fn recall(
        &self,
        session: &str,
        query: &str,
        prompt: &str,
        turns: &RecentTurns,
        cx: &HookContext,
    ) -> Result<RecallOutcome, super::ActiveSearchError> {
        let began = Instant::now();
        let searched = self.search.search(session, query, ACTIVE_HITS);
        let Ok(hits) = tokio::time::timeout(self.options.deadline, searched).await else {
            return Ok(RecallOutcome::Late(Recollection::default()));
        };
        let hits = fitting(query, hits?);
        let is_settled = hits.first().is_some_and(|(_, share)| *share >= SETTLES);
        let hits = hits.into_iter().map(|(hit, _)| hit).take(ACTIVE_ADDED).collect();
        let found = Recollection { hits, summary: None };
        match self.options.mode {
            ActiveMode::Off | ActiveMode::Search => return Ok(RecallOutcome::Found(found)),
            ActiveMode::Escalate if is_settled => return Ok(RecallOutcome::Found(found)),
            ActiveMode::Escalate | ActiveMode::Always => {}
        }
        let left = self.options.deadline.saturating_sub(began.elapsed());
        match self.ask(prompt, turns, left, cx).await {
            // It knows better than the words, also where it says that there is nothing.
            Some(ModelOutcome::Answered(summary)) => {
                Ok(RecallOutcome::Found(Recollection { hits: Vec::new(), summary }))
            }
            Some(ModelOutcome::Late) => Ok(RecallOutcome::Late(found)),
            // No model may be asked: what the search found is what there is.
            None => Ok(RecallOutcome::Found(found)),
        }
    }

    /// Asks a model in a session of its own; `None` where none can be asked.
    async fn ask(
        &self,
        prompt: &str,
        turns: &RecentTurns,
        left: Duration,
        cx: &HookContext,
    ) -> Option<ModelOutcome> {
        let purpose = RunnerPurpose::new(ACTIVE_MEMORY).ok()?;
        let said = format!("{}User: {}\n", turns.as_text(), cut(prompt, PROMPT));
        let ActiveBudget { left: dollars, daily } = self.search.budget().await;
        let request = ChildRequest {
            system: SYSTEM.to_owned(),
            tools: TOOLS.map(str::to_owned).to_vec(),
            max_tokens: TOKENS,
            max_turns: TURNS,
            budget: Some(dollars.max(NOTHING)),
            daily,
            deadline: left.max(Duration::from_millis(1)),
            ..ChildRequest::new(purpose, said)
        };
        self.asks.store(true, Ordering::Release);
        let _done = AskGuard(&self.asks);
        match cx.runner().session(request).await {
            Ok(answer) if answer.outcome == Outcome::Done => {
                Some(ModelOutcome::Answered(summary_of(&answer.text, self.options.summary)))
            }
            Err(RunnerError::Deadline { .. }) => Some(ModelOutcome::Late),
            Ok(_) | Err(_) => None,
        }
    }
}

/// What a model that was asked came to.
enum ModelOutcome {
    /// A summary, or that there is nothing.
    Answered(Option<String>),
    Late,
}

/// Until this is dropped, also where nobody waits any more.
struct AskGuard<'a>(&'a AtomicBool);

impl Drop for AskGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Hits that share enough words with a query, the best first.
fn fitting(query: &str, hits: Vec<ActiveHit>) -> Vec<(ActiveHit, f64)> {
    let mut fitting: Vec<(ActiveHit, f64)> = hits
        .into_iter()
        .filter_map(|hit| {
            let (share, words) = coverage(query, &hit.text);
            (share >= FITS && (words >= 2 || share >= SETTLES)).then_some((hit, share))
        })
        .collect();
    fitting.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    fitting
}

impl Hook for ActiveMemory {
    fn name(&self) -> &str {
        ACTIVE_MEMORY
    }

    fn deadline(&self) -> Duration {
        // Its own deadline ends first.
        self.options.deadline + Duration::from_secs(2)
    }

    fn before_run<'a>(
        &'a self,
        start: &'a RunStart,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        Box::pin(async move {
            Ok(self.beside(start, cx).await.map_or(RunStartVerdict::Pass, RunStartVerdict::beside))
        })
    }

    fn run_end<'a>(
        &'a self,
        end: &'a RunEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        let session = cx.session.as_ref().map_or("", |id| id.as_str());
        if let Some(known) = self.state().sessions.get_mut(session) {
            known.answer(&end.answer);
        }
        Box::pin(std::future::ready(Ok(RunEndVerdict::Pass)))
    }
}
