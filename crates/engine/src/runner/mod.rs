//! Models for hooks, sources and jobs: a bounded call, or a child session, with a purpose, a budget and a deadline.
//!
//! [`Runner`] is what they are given. [`side`] makes a call beside the conversation of a session that is open; what it takes
//! to make a session of its own for one is above this module, and comes in as a [`Backend`]. [`summarize`] is the engine's own
//! use of such calls.

mod agent;
mod error;
mod once;
mod request;
mod safeguard;
mod side;
pub(crate) mod summarize;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::RunId;
use quipu_seal::Sealer;
use tokio_util::sync::CancellationToken;

pub(crate) use agent::{
    AgentEnd, AgentOrder, AgentReport, SAME_CALLS, UsedWorktree, WORKTREE, agent_draft, agent_session,
};
pub use error::{BadRequest, RunnerError};
pub(crate) use once::{answered, in_time, unsent};
pub use request::{CallAnswer, CallRequest, ChildAnswer, ChildRequest, ModelName, RunnerPurpose};
pub(crate) use request::{CallOrder, ChildOrder, ModelRoute, Terms};
pub(crate) use side::{
    EndedChild, LeftCall, SideJob, SideResult, child_draft, ended_child, ended_draft, is_beside, left_calls,
    parent_draft, request_of,
};

/// Letters of a purpose at most.
pub const RUNNER_PURPOSE: usize = 32;
/// Bytes of what one request says, as JSON, at most.
pub const RUNNER_REQUEST: usize = 16 << 20;
/// Output tokens of an answer by default.
pub const RUNNER_TOKENS: u64 = 4_096;
/// Turns of a child session by default.
pub const RUNNER_TURNS: u32 = 20;
/// US dollars that a request may cost by default and the price of the model is known.
pub const RUNNER_BUDGET: f64 = 1.0;
/// How long a request may take by default.
pub const RUNNER_DEADLINE: Duration = Duration::from_secs(120);
/// How long a request may take at most.
pub const RUNNER_LONGEST: Duration = Duration::from_secs(30 * 60);
/// How many levels of child sessions there can be below a session that nobody began for another one.
pub const RUNNER_DEPTH: u32 = 3;
/// How many calls and child sessions of one session can be under way at once; others wait for their turn, until their
/// deadline.
pub const RUNNER_AT_ONCE: usize = 4;

/// Asks models for somebody who is no front: a hook, a source, a job. Clones ask for the same one.
///
/// A hook gets one from [`HookContext::runner`](crate::HookContext::runner), a source from
/// [`SourceContext::runner`](crate::SourceContext::runner), everybody else from [`Engine::runner`](crate::Engine::runner).
///
/// What is asked is sealed, recorded before it is sent, and paid for by the run that it is asked for. When whoever asks
/// stops waiting, what is under way is aborted.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu::{CallRequest, Hook, HookContext, HookError, RunEnd, RunEndVerdict, RunnerPurpose};
///
/// /// Sends the agent back to work when a second opinion says that something is missing.
/// struct SecondOpinion;
///
/// impl Hook for SecondOpinion {
///     fn name(&self) -> &str {
///         "second opinion"
///     }
///
///     fn run_end<'a>(
///         &'a self,
///         end: &'a RunEnd,
///         cx: &'a HookContext,
///     ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
///         Box::pin(async move {
///             if end.again > 0 {
///                 return Ok(RunEndVerdict::Pass);
///             }
///             let purpose = RunnerPurpose::new("second-opinion").map_err(HookError::new)?;
///             let prompt = format!("Is anything missing here? Answer `no`, or say what.\n\n{}", end.answer);
///             let request = CallRequest { max_tokens: 500, budget: Some(0.02), ..CallRequest::new(purpose, prompt) };
///             let opinion = cx.runner().call(request).await.map_err(HookError::new)?.text;
///             Ok(match opinion.trim() {
///                 "no" => RunEndVerdict::Pass,
///                 missing => RunEndVerdict::Continue { prompt: missing.to_owned() },
///             })
///         })
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct Runner {
    backend: Option<Arc<dyn Backend>>,
    /// The run that pays.
    run: Option<RunId>,
}

/// What makes the calls of a runner.
pub(crate) trait Backend: Send + Sync {
    /// Seals what is asked.
    fn sealer(&self) -> &Sealer;

    /// Makes a call.
    fn call(&self, order: CallOrder) -> BoxFuture<'static, Result<CallAnswer, RunnerError>>;

    /// Begins a child session, and brings it to its end.
    fn session(&self, order: ChildOrder) -> BoxFuture<'static, Result<ChildAnswer, RunnerError>>;

    /// Sends a sub-agent. Only a session that is open can.
    fn agent(&self, order: AgentOrder) -> BoxFuture<'static, Result<AgentReport, RunnerError>> {
        drop(order);
        Box::pin(std::future::ready(Err(RunnerError::Closed)))
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Runner {
    /// One for a run; `None` for somebody who has nobody to ask.
    pub(crate) fn new(backend: Option<Arc<dyn Backend>>, run: Option<RunId>) -> Self {
        Self { backend, run }
    }

    /// The same one, for no longer than until `closed` is cancelled: what is under way then is aborted, and it is
    /// [`Closed`](RunnerError::Closed) from then on. So are its clones, whoever holds them.
    #[must_use]
    pub fn until(&self, closed: CancellationToken) -> Self {
        let until = |inner: &Arc<dyn Backend>| {
            Arc::new(BoundedBackend { inner: inner.clone(), closed }) as Arc<dyn Backend>
        };
        Self { backend: self.backend.as_ref().map(until), run: self.run.clone() }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// [`RunnerError`] says why there is no answer, and whether something was sent.
    pub async fn call(&self, request: CallRequest) -> Result<CallAnswer, RunnerError> {
        self.charged_call(request).await.0
    }

    /// The same, and US dollars that it cost or may have cost, whatever came of it: attempts that broke off count as a limit on
    /// money counts them.
    pub async fn charged_call(&self, request: CallRequest) -> (Result<CallAnswer, RunnerError>, f64) {
        let Some(backend) = &self.backend else { return (Err(RunnerError::Closed), 0.0) };
        let order = match request.order(self.run.clone(), backend.sealer()) {
            Ok(order) => order,
            Err(error) => return (Err(error.into()), 0.0),
        };
        let charged = order.terms.charged.clone();
        let answer = backend.call(order).await;
        (answer, charged.dollars())
    }

    /// Begins a session, says the prompt, and waits until it is at rest. Its own ref stands in the store, its first nodes name
    /// the session that it was begun for, what it is for and its level; it is closed, and can be opened.
    ///
    /// # Errors
    /// [`RunnerError`] says why there is no answer. How the session ended is no error.
    pub async fn session(&self, request: ChildRequest) -> Result<ChildAnswer, RunnerError> {
        let backend = self.backend.as_ref().ok_or(RunnerError::Closed)?;
        let order = request.order(self.run.clone(), backend.sealer())?;
        backend.session(order).await
    }
}

/// A backend that can be closed.
struct BoundedBackend {
    inner: Arc<dyn Backend>,
    closed: CancellationToken,
}

impl BoundedBackend {
    fn bounded<T: Send + 'static>(
        &self,
        work: BoxFuture<'static, Result<T, RunnerError>>,
    ) -> BoxFuture<'static, Result<T, RunnerError>> {
        let closed = self.closed.clone();
        Box::pin(async move { closed.run_until_cancelled(work).await.unwrap_or(Err(RunnerError::Closed)) })
    }
}

impl Backend for BoundedBackend {
    fn sealer(&self) -> &Sealer {
        self.inner.sealer()
    }

    fn call(&self, order: CallOrder) -> BoxFuture<'static, Result<CallAnswer, RunnerError>> {
        self.bounded(self.inner.call(order))
    }

    fn session(&self, order: ChildOrder) -> BoxFuture<'static, Result<ChildAnswer, RunnerError>> {
        self.bounded(self.inner.session(order))
    }
}
