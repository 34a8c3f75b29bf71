//! Shells that were started for calls which are about to run.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_protocol::{CallId, RunId};
use quipu_workspace::{CommandNeeds, ProcessRegistry, ReadyShell, Sandbox, ShellCommand, ShellError};
use tokio_util::sync::CancellationToken;

use crate::{Preparation, ToolContext};

/// How many wait at most. One that is never asked for, because its call was stopped before it began, waits until
/// this many others came.
const MOST: usize = 4;

/// Shells by their calls.
#[derive(Debug, Default)]
pub(crate) struct ReadyShells {
    planned: Mutex<VecDeque<Arc<PlannedShell>>>,
}

/// A shell that was started ahead for one call, and its parameters.
#[derive(Debug)]
struct PlannedShell {
    call: CallId,
    run: RunId,
    command: String,
    needs: CommandNeeds,
    cwd: PathBuf,
    env: Arc<[(String, Option<String>)]>,
    sandbox: Option<Arc<Sandbox>>,
    shell: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Planned,
    Ready(ReadyShell),
    /// It could not be started because something did not come to an end, which the call does not wait for again.
    TimedOut(ShellError),
    /// Taken, or it could not be started: then the call meets the same and tells it.
    Over,
}

impl ReadyShells {
    /// Plans one. The work that is returned starts it, unless the call was faster.
    pub(crate) fn plan(
        &self,
        call: &CallId,
        command: String,
        needs: CommandNeeds,
        cx: &ToolContext,
        registry: &Arc<ProcessRegistry>,
    ) -> Preparation {
        let planned = Arc::new(PlannedShell {
            call: call.clone(),
            run: cx.run.clone(),
            command,
            needs,
            cwd: cx.cwd.clone(),
            env: cx.env.clone(),
            sandbox: cx.sandbox.clone(),
            shell: Mutex::new(State::Planned),
        });
        let mut all = lock(&self.planned);
        all.push_back(planned.clone());
        let forgotten = if all.len() > MOST { all.pop_front() } else { None };
        drop(all);
        drop(forgotten);
        let registry = registry.clone();
        Box::new(move || {
            let mut state = lock(&planned.shell);
            if let State::Planned = *state {
                let command = ShellCommand {
                    owner: planned.run.as_str(),
                    command: &planned.command,
                    cwd: &planned.cwd,
                    env: &planned.env,
                    timeout: None,
                    sandbox: planned.sandbox.as_deref(),
                    needs: planned.needs,
                };
                *state = match ReadyShell::start(&command, &registry) {
                    Ok(shell) => State::Ready(shell),
                    Err(ShellError::Sandbox(error)) if error.kind() == io::ErrorKind::TimedOut => {
                        State::TimedOut(ShellError::Sandbox(error))
                    }
                    Err(_) => State::Over,
                };
            }
        })
    }

    /// The shell that waits for exactly this, if there is one. Waits while it is being started, and no longer than the call.
    ///
    /// # Errors
    /// Starting it took too long.
    pub(crate) async fn take(
        &self,
        call: &CallId,
        command: &str,
        needs: CommandNeeds,
        cx: &ToolContext,
    ) -> Result<Option<ReadyShell>, ShellError> {
        let Some(planned) = self.remove(call) else { return Ok(None) };
        let at_once =
            planned.shell.try_lock().ok().map(|mut state| std::mem::replace(&mut *state, State::Over));
        let state = match at_once {
            Some(state) => state,
            None => {
                let planned = planned.clone();
                let over = move || std::mem::replace(&mut *lock(&planned.shell), State::Over);
                apart(over, &cx.cancel).await.unwrap_or(State::Over)
            }
        };
        let same = planned.command == command
            && planned.needs == needs
            && planned.run == cx.run
            && planned.cwd == cx.cwd
            && planned.env == cx.env
            && planned.sandbox.as_ref().map(Arc::as_ptr) == cx.sandbox.as_ref().map(Arc::as_ptr);
        match state {
            State::Ready(mut shell) => Ok((same && shell.waits()).then_some(shell)),
            State::TimedOut(error) if same => Err(error),
            State::Planned | State::TimedOut(_) | State::Over => Ok(None),
        }
    }

    fn remove(&self, call: &CallId) -> Option<Arc<PlannedShell>> {
        let mut all = lock(&self.planned);
        let index = all.iter().position(|planned| planned.call == *call)?;
        all.remove(index)
    }
}

/// Has the container of a command run, if it is for one, in a thread that holds nobody up. Waits no longer than the call.
///
/// # Errors
/// There is no container.
pub(crate) async fn settle(
    sandbox: Option<&Arc<Sandbox>>,
    cancel: &CancellationToken,
) -> Result<(), ShellError> {
    let Some(sandbox) = sandbox.filter(|sandbox| sandbox.containers().is_some()) else { return Ok(()) };
    let sandbox = sandbox.clone();
    apart(move || sandbox.settle(), cancel).await.unwrap_or(Ok(())).map_err(ShellError::Sandbox)
}

/// What `work` returns, which runs in a thread of its own; `None` where the call was stopped before, and the work goes on to its end.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    cancel: &CancellationToken,
) -> Option<T> {
    let work = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        done = work => done.ok(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
