//! The step before a run.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use quipu::{
    ChildRequest, Hook, HookContext, HookError, RunEnd, RunEndVerdict, RunStart, RunStartVerdict,
    RunnerError, RunnerPurpose,
};
use quipu_protocol::{Content, Outcome};

use super::{
    ACTIVE_HITS, ActiveHit, ActiveMode, ActiveOptions, ActiveSearch, Breaker, RecallCache, RecentTurns,
    coverage, framed, search_query, summary_of, without_additions,
};

/// The name of the step, and the purpose of its model calls.
pub const ACTIVE_MEMORY: &str = "active-memory";
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
/// Texts that were added to a session, as far as they are known.
const ADDED: usize = 1_000;
/// Sessions whose turns are remembered.
const SESSIONS: usize = 64;

/// Puts what is remembered beside prompts.
pub struct ActiveMemory {
    search: Arc<dyn ActiveSearch>,
    options: ActiveOptions,
    state: Mutex<State>,
    /// Its own session of a model is under way: that asks for nothing.
    asks: AtomicBool,
}

struct State {
    breaker: Breaker,
    cache: RecallCache,
    sessions: HashMap<String, SessionState>,
}

/// What is known of a session.
#[derive(Default)]
struct SessionState {
    turns: RecentTurns,
    /// What stands beside its prompts already: it stays there.
    added: HashSet<String>,
}

/// What a search or a model came to in time.
enum Recalled {
    /// This stands beside the prompt, or nothing does.
    Found(Option<String>),
    Late,
}

impl ActiveMemory {
    /// Searches with `search`.
    #[must_use]
    pub fn new(search: Arc<dyn ActiveSearch>, options: ActiveOptions) -> Self {
        let state = State {
            breaker: Breaker::new(options.timeouts, options.cooldown),
            cache: RecallCache::new(options.cache),
            sessions: HashMap::new(),
        };
        Self { search, options, state: Mutex::new(state), asks: AtomicBool::new(false) }
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
        let prompt = without_additions(start.prompt.iter().filter_map(Content::as_text));
        let (query, turns, cached) = {
            let mut state = self.state();
            let now = Instant::now();
            if state.sessions.len() >= SESSIONS && !state.sessions.contains_key(&session) {
                state.sessions.clear();
            }
            let turns = &mut state.sessions.entry(session.clone()).or_default().turns;
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
            return self.unless_added(&session, found);
        }
        let recalled = self.recall(&session, &query, &prompt, &turns, cx).await;
        let mut state = self.state();
        match recalled {
            Ok(Recalled::Found(found)) => {
                state.breaker.answered();
                state.cache.put(&session, &query, found.clone(), Instant::now());
                drop(state);
                self.unless_added(&session, found)
            }
            Ok(Recalled::Late) => {
                state.breaker.timed_out(Instant::now());
                None
            }
            // The prompt goes on without it, and the next one tries again.
            Err(_) => None,
        }
    }

    /// Each text is added once to a session.
    fn unless_added(&self, session: &str, found: Option<String>) -> Option<String> {
        let found = found?;
        let mut state = self.state();
        let known = state.sessions.entry(session.to_owned()).or_default();
        if known.added.len() >= ADDED {
            known.added.clear();
        }
        known.added.insert(found.clone()).then_some(found)
    }

    async fn recall(
        &self,
        session: &str,
        query: &str,
        prompt: &str,
        turns: &RecentTurns,
        cx: &HookContext,
    ) -> Result<Recalled, super::ActiveSearchError> {
        let began = Instant::now();
        let searched = self.search.search(session, query, ACTIVE_HITS);
        let Ok(hits) = tokio::time::timeout(self.options.deadline, searched).await else {
            return Ok(Recalled::Late);
        };
        let hits = fitting(query, hits?);
        let found = framed(&hits.iter().map(|(hit, _)| hit.clone()).collect::<Vec<_>>(), None);
        let is_settled = hits.first().is_some_and(|(_, share)| *share >= SETTLES);
        match self.options.mode {
            ActiveMode::Off | ActiveMode::Search => return Ok(Recalled::Found(found)),
            ActiveMode::Escalate if is_settled => return Ok(Recalled::Found(found)),
            ActiveMode::Escalate | ActiveMode::Always => {}
        }
        let left = self.options.deadline.saturating_sub(began.elapsed());
        match self.ask(prompt, turns, left, cx).await {
            Some(Recalled::Found(Some(summary))) => Ok(Recalled::Found(framed(&[], Some(&summary)))),
            // It knows better than the words.
            Some(Recalled::Found(None)) => Ok(Recalled::Found(None)),
            Some(Recalled::Late) => Ok(Recalled::Late),
            // No model may be asked: what the search found is what there is.
            None => Ok(Recalled::Found(found)),
        }
    }

    /// Asks a model in a session of its own; `None` where none can be asked.
    async fn ask(
        &self,
        prompt: &str,
        turns: &RecentTurns,
        left: Duration,
        cx: &HookContext,
    ) -> Option<Recalled> {
        let purpose = RunnerPurpose::new(ACTIVE_MEMORY).ok()?;
        let said = format!("{}User: {prompt}\n", turns.as_text());
        let request = ChildRequest {
            system: SYSTEM.to_owned(),
            tools: TOOLS.map(str::to_owned).to_vec(),
            max_tokens: TOKENS,
            max_turns: TURNS,
            budget: Some(self.search.budget().await.max(NOTHING)),
            deadline: left.max(Duration::from_millis(1)),
            ..ChildRequest::new(purpose, said)
        };
        self.asks.store(true, Ordering::Release);
        let _done = Asking(&self.asks);
        match cx.runner().session(request).await {
            Ok(answer) if answer.outcome == Outcome::Done => {
                Some(Recalled::Found(summary_of(&answer.text, self.options.summary)))
            }
            Err(RunnerError::Deadline { .. }) => Some(Recalled::Late),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Until this is dropped, also where nobody waits any more.
struct Asking<'a>(&'a AtomicBool);

impl Drop for Asking<'_> {
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
            known.turns.answer(&end.answer);
        }
        Box::pin(std::future::ready(Ok(RunEndVerdict::Pass)))
    }
}
