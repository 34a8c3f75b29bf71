//! What is under way.

use quipu_protocol::{ModelError, UnixMs};

use crate::request::Stop;

/// A task in progress.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OngoingTask {
    /// Since when.
    pub(crate) since: UnixMs,
    /// What, in a word or two.
    pub(crate) what: String,
    /// How far it is, where that is known.
    pub(crate) progress: String,
}

impl OngoingTask {
    pub(crate) fn new(since: UnixMs, what: impl Into<String>) -> Self {
        Self { since, what: what.into(), progress: String::new() }
    }

    /// What it is and how far.
    pub(crate) fn words(&self) -> String {
        if self.progress.is_empty() { self.what.clone() } else { format!("{}: {}", self.what, self.progress) }
    }

    /// A person was waited for so long: that is none of its time.
    fn waited(&mut self, time: UnixMs) {
        self.since = self.since.saturating_add(time.max(0));
    }
}

/// A running check of a key with its provider, a login, or a command that takes long.
#[derive(Debug)]
pub(crate) struct StoppableTask {
    working: OngoingTask,
    /// Said where it is stopped.
    pub(crate) stopped: &'static str,
    pub(crate) stop: Stop,
}

impl StoppableTask {
    /// What runs, in a word or two.
    pub(crate) fn what(&self) -> &str {
        &self.working.what
    }
}

/// All that is under way in the session and beside it.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) working: Option<OngoingTask>,
    /// The context is being summed up, or the session goes to another node.
    pub(crate) busy: Option<OngoingTask>,
    /// A provider is asked whether it takes a key, or a login is waited for.
    pub(crate) checking: Option<StoppableTask>,
    /// A command that takes long.
    pub(crate) command: Option<StoppableTask>,
    /// The next try of a call: which, when, and why.
    pub(crate) retry: Option<(u32, UnixMs, ModelError)>,
    /// Since when a person is waited for.
    pub(crate) person: Option<UnixMs>,
}

impl Activity {
    /// Whether the session rests.
    pub(crate) fn rests(&self) -> bool {
        self.working.is_none() && self.busy.is_none()
    }

    /// What keeps the session or the host from answering, beside a run of the agent.
    pub(crate) fn parallel_task(&self) -> Option<&OngoingTask> {
        self.busy.as_ref().or(self.stoppable())
    }

    /// What runs beside the session, in the order in which it is stopped.
    fn stoppable(&self) -> Option<&OngoingTask> {
        self.checking.as_ref().or(self.command.as_ref()).map(|task| &task.working)
    }

    /// What is shown of it: the session's own work goes first.
    pub(crate) fn shown(&self) -> Option<&OngoingTask> {
        self.busy.as_ref().or(self.working.as_ref()).or(self.stoppable())
    }

    /// The run does something else now.
    pub(crate) fn set_phase(&mut self, what: &str) {
        if let Some(working) = &mut self.working
            && working.what != what
        {
            what.clone_into(&mut working.what);
        }
    }

    /// A provider is asked about a key, or is to have one, or its login is waited for.
    pub(crate) fn check(&mut self, what: String, since: UnixMs, stop: Stop, stopped: &'static str) {
        self.checking = Some(StoppableTask { working: OngoingTask::new(since, what), stopped, stop });
    }

    /// A command begins that takes long.
    pub(crate) fn command(&mut self, what: String, since: UnixMs, stop: Stop, stopped: &'static str) {
        self.command = Some(StoppableTask { working: OngoingTask::new(since, what), stopped, stop });
    }

    /// How far the command is that takes long.
    pub(crate) fn set_progress(&mut self, progress: &str) {
        if let Some(command) = &mut self.command {
            progress.clone_into(&mut command.working.progress);
        }
    }

    /// A person is asked.
    pub(crate) fn wait_for_person(&mut self, now: UnixMs) {
        self.person.get_or_insert(now);
    }

    /// Nobody is asked any more.
    pub(crate) fn go_on(&mut self, now: UnixMs) {
        let Some(since) = self.person.take() else { return };
        let time = now.saturating_sub(since);
        self.working.iter_mut().chain(&mut self.busy).for_each(|task| task.waited(time));
    }

    /// The session does nothing more.
    pub(crate) fn stop(&mut self) {
        (self.working, self.busy, self.person) = (None, None, None);
    }
}
