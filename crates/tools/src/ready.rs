//! Shells that were started for calls which are about to run.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_protocol::{CallId, RunId};
use quipu_workspace::{CommandNeeds, ProcessRegistry, ReadyShell, Sandbox, ShellCommand};

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
                *state = ReadyShell::start(&command, &registry).map_or(State::Over, State::Ready);
            }
        })
    }

    /// The shell that waits for exactly this, if there is one. Waits while it is being started.
    pub(crate) fn take(
        &self,
        call: &CallId,
        command: &str,
        needs: CommandNeeds,
        cx: &ToolContext,
    ) -> Option<ReadyShell> {
        let mut all = lock(&self.planned);
        let index = all.iter().position(|planned| planned.call == *call)?;
        let planned = all.remove(index)?;
        drop(all);
        let state = std::mem::replace(&mut *lock(&planned.shell), State::Over);
        let same = planned.command == command
            && planned.needs == needs
            && planned.run == cx.run
            && planned.cwd == cx.cwd
            && planned.env == cx.env
            && planned.sandbox.as_ref().map(Arc::as_ptr) == cx.sandbox.as_ref().map(Arc::as_ptr);
        match state {
            State::Ready(mut shell) => (same && shell.waits()).then_some(shell),
            State::Planned | State::Over => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
