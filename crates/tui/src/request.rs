//! What the state asks of the host, and what is done with the answer. Both stand in one place: a feature makes a
//! [`Request`], whoever runs the terminal carries it out, and the [`Reply`] changes the state.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use quipu::Session;
use tokio_util::sync::CancellationToken;

use crate::host::{Host, HostFuture};
use crate::{Effect, State};

type Work = Box<dyn FnOnce(Context) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send>;
type StateUpdate = Box<dyn FnOnce(&mut State, &mut Vec<Effect>) + Send>;

/// What a request may use.
#[derive(Clone)]
pub struct Context {
    /// The terminal's surroundings.
    pub host: Arc<dyn Host>,
    /// The session that is open.
    pub session: Option<Arc<Session>>,
    /// Changes the state before the reply is there.
    pub early: EarlyReplies,
}

/// Takes replies of a request that goes on.
pub type EarlyReplies = Arc<dyn Fn(Reply) + Send + Sync>;

/// Something that is asked of the host, and comes back.
pub struct Request {
    name: &'static str,
    work: Work,
    stop: Option<CancellationToken>,
}

impl Request {
    /// Work on the surroundings, and what is done with all that may come of it.
    pub fn new<T, W>(
        name: &'static str,
        work: impl FnOnce(Context) -> W + Send + 'static,
        then: impl FnOnce(&mut State, T, &mut Vec<Effect>) + Send + 'static,
    ) -> Self
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let work = move |context| {
            let work = work(context);
            let reply = async move {
                let value = work.await;
                Reply::new(name, move |state, effects| then(state, value, effects))
            };
            Box::pin(reply) as Pin<Box<dyn Future<Output = Reply> + Send>>
        };
        Self { name, work: Box::new(work), stop: None }
    }

    /// One call of the host, and what is done with what it gives; what fails is shown.
    pub fn to_host<T: Send + 'static>(
        name: &'static str,
        call: impl FnOnce(&dyn Host) -> HostFuture<T> + Send + 'static,
        then: impl FnOnce(&mut State, T, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self::new(
            name,
            move |context| call(&*context.host),
            move |state, result, effects| match result {
                Ok(value) => then(state, value, effects),
                Err(error) => state.failed(&error.to_string()),
            },
        )
    }

    /// The same, and what stops it: nothing comes back then.
    #[must_use]
    pub fn stoppable(self) -> (Self, Stop) {
        let token = CancellationToken::new();
        (Self { stop: Some(token.clone()), ..self }, Stop(token))
    }

    /// What it asks for, in a word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Asks. `None` where it was stopped.
    pub async fn carry_out(self, context: Context) -> Option<Reply> {
        let work = (self.work)(context);
        match self.stop {
            Some(stop) => stop.run_until_cancelled_owned(work).await,
            None => Some(work.await),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.name).finish()
    }
}

/// What a request came to: a change of the state.
pub struct Reply {
    name: &'static str,
    apply: StateUpdate,
}

impl Reply {
    /// A reply to the request of this name.
    pub fn new(
        name: &'static str,
        apply: impl FnOnce(&mut State, &mut Vec<Effect>) + Send + 'static,
    ) -> Self {
        Self { name, apply: Box::new(apply) }
    }

    /// Changes the state; what is to be done then is added.
    pub(crate) fn apply(self, state: &mut State, effects: &mut Vec<Effect>) {
        (self.apply)(state, effects);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&self.name).finish()
    }
}

/// Stops a request.
#[derive(Debug, Clone)]
pub struct Stop(CancellationToken);

impl Stop {
    /// Stops it. What it has done already stays.
    pub fn stop(&self) {
        self.0.cancel();
    }
}
