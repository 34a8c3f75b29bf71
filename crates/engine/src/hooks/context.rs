//! What a hook may use while it is called.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{Answer, AskKind, RunId, SessionId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::runner::{Backend, Runner};

/// Puts a question to whoever is in front of the session.
pub(crate) type Asker =
    Arc<dyn Fn(AskKind, Answer, Option<Duration>) -> BoxFuture<'static, Option<Answer>> + Send + Sync>;

/// What a hook may know and use.
#[derive(Clone)]
pub struct HookContext {
    /// The session; `None` before its first node.
    pub session: Option<SessionId>,
    /// The run that the step belongs to; `None` for an input, which may begin one.
    pub run: Option<RunId>,
    /// The directory of the session.
    pub cwd: PathBuf,
    /// The names of the tools that the session offers, where the step is a call; else none.
    pub tools: Arc<[String]>,
    asker: Option<Asker>,
    runner: Option<Arc<dyn Backend>>,
    /// Whether a question of this call is open.
    asking: watch::Sender<bool>,
}

impl std::fmt::Debug for HookContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookContext").field("session", &self.session).field("cwd", &self.cwd).finish()
    }
}

/// Why a hook could not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HookAskError {
    /// Another question of the same call is open.
    #[error("the hook already has an open question; wait for its answer before asking another")]
    Asking,
    /// The session ends.
    #[error("the session is closed")]
    Closed,
}

impl HookContext {
    pub(crate) fn new(
        session: Option<SessionId>,
        run: Option<RunId>,
        cwd: PathBuf,
        asker: Option<Asker>,
    ) -> Self {
        let tools = Arc::default();
        Self { session, run, cwd, tools, asker, runner: None, asking: watch::channel(false).0 }
    }

    /// The same with what asks models.
    pub(super) fn running(self, runner: Option<Arc<dyn Backend>>) -> Self {
        Self { runner, ..self }
    }

    /// Asks models for the hook, paid for by its [`run`](Self::run). The hook's deadline keeps running meanwhile: one that asks a
    /// model has a [`deadline`](crate::Hook::deadline) that leaves time for that. What is under way when it passes, or when
    /// the step is not wanted any more, is aborted. At the end of a session nobody can be asked any more.
    pub fn runner(&self) -> Runner {
        Runner::new(self.runner.clone(), self.run.clone())
    }

    /// Asks whoever is in front of the session. The first answer counts; `default` when none comes within `wait`, or at
    /// once when nobody is there who can answer. The hook's deadline stands still meanwhile.
    ///
    /// # Errors
    /// `Asking` when a question of the same call is open; `Closed`.
    pub async fn ask(
        &self,
        kind: AskKind,
        default: Answer,
        wait: Option<Duration>,
    ) -> Result<Answer, HookAskError> {
        let asker = self.asker.as_ref().ok_or(HookAskError::Closed)?;
        if self.asking.send_replace(true) {
            return Err(HookAskError::Asking);
        }
        let open = Open(&self.asking);
        let answer = asker(kind, default, wait).await;
        drop(open);
        answer.ok_or(HookAskError::Closed)
    }

    /// Ends when the hook had so much time for itself.
    pub(crate) async fn overdue(&self, limit: Duration) {
        let (mut left, mut asking) = (limit, self.asking.subscribe());
        loop {
            if *asking.borrow_and_update() {
                // The sender is ours.
                drop(asking.changed().await);
                continue;
            }
            let since = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = asking.changed() => left = left.saturating_sub(since.elapsed()),
            }
        }
    }
}

/// A question that is open, until this is dropped.
struct Open<'a>(&'a watch::Sender<bool>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}
