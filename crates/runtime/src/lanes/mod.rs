//! Lanes: how much runs at the same time, and in which order.

mod order;

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::keys::{KEY_LIMIT, SessionKey};
use order::{LaneOrder, TaskStart};

/// The lane of what people start.
pub const MAIN_LANE: &str = "main";
/// The lane of sub-agents.
pub const SUBAGENT_LANE: &str = "subagent";
/// The lane of scheduled jobs.
pub const CRON_LANE: &str = "cron";
/// The lane of runs that a scheduled job waits for; as many at a time as in [`CRON_LANE`].
pub const NESTED_CRON_LANE: &str = "cron-nested";

/// How many run at a time, where nothing else is set. In all other lanes it is one.
const LIMITS: [(&str, usize); 4] =
    [(MAIN_LANE, 4), (SUBAGENT_LANE, 8), (CRON_LANE, 1), (NESTED_CRON_LANE, 1)];
/// Bytes of a lane's name at most: a session key and the word before it.
const NAME_LIMIT: usize = KEY_LIMIT + 16;
/// Warnings that are kept until somebody takes them.
const WARNINGS: usize = 256;

/// Which of those that wait in a lane is first. Who waits a minute counts as one step higher, so that none waits forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LanePriority {
    /// A person waits for it.
    Foreground,
    /// Anything else.
    #[default]
    Normal,
    /// Nobody waits for it: heartbeats, scheduled jobs, memory.
    Background,
}

/// Times and sizes of lanes.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// A task that waited so long is reported: 2 seconds.
    pub wait_warning: Duration,
    /// After so long a task counts as of the next higher priority: a minute.
    pub promotion: Duration,
    /// How long a task that timed out may take to end before it is dropped: 30 seconds.
    pub grace: Duration,
    /// Tasks that wait in all lanes together at most: 65,536.
    pub waiting: usize,
}

impl Default for LaneSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { wait_warning: seconds(2), promotion: seconds(60), grace: seconds(30), waiting: 65_536 }
    }
}

/// Where and how a task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneTask {
    /// The lane.
    pub lane: String,
    /// Its place among those that wait.
    pub priority: LanePriority,
    /// How long it may run without progress ([`TaskHandle::progress`]); `None`: for ever.
    pub timeout: Option<Duration>,
}

impl LaneTask {
    /// A task of normal priority that may run for ever.
    pub fn new(lane: impl Into<String>) -> Self {
        Self { lane: lane.into(), priority: LanePriority::Normal, timeout: None }
    }

    /// Sets the priority.
    #[must_use]
    pub fn with_priority(self, priority: LanePriority) -> Self {
        Self { priority, ..self }
    }

    /// Sets how long it may run without progress.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Why a task has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// It waited, and its lane was cleared.
    #[error("the lane {lane} was cleared while the task waited in it")]
    Cleared {
        /// The lane.
        lane: String,
    },
    /// No work is taken any more.
    #[error("the server is shutting down and takes no new work")]
    Draining,
    /// It made no progress. It was told to stop, and its place is free.
    #[error("the task in the lane {lane} made no progress for {} ms and was stopped", .after.as_millis())]
    TimedOut {
        /// The lane.
        lane: String,
        /// For how long it made none.
        after: Duration,
    },
    /// It panicked.
    #[error("the task in the lane {lane} failed: {message}")]
    Panicked {
        /// The lane.
        lane: String,
        /// With what.
        message: String,
    },
    /// Too many tasks wait.
    #[error("{waiting} tasks are waiting; the task for the lane {lane} was refused, try again later")]
    Full {
        /// The lane.
        lane: String,
        /// How many wait.
        waiting: usize,
    },
    /// The name of the lane is too long.
    #[error("the name of a lane has {bytes} bytes; at most {NAME_LIMIT} are allowed")]
    NameTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The lanes are gone, or their Tokio runtime is.
    #[error("the lanes were closed before the task ended")]
    Closed,
}

/// A task waited for long before it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneWarning {
    /// Its lane.
    pub lane: String,
    /// How long it waited.
    pub waited: Duration,
    /// How many still wait in that lane.
    pub behind: usize,
}

/// Warnings since they were taken last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneWarnings {
    /// The newest of them, at most 256, the oldest first.
    pub warnings: Vec<LaneWarning>,
    /// How many older ones were not kept.
    pub missed: u64,
}

/// A lane with work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStatus {
    /// Its name.
    pub lane: String,
    /// How many run at a time; 0: it is paused.
    pub limit: usize,
    /// How many run.
    pub running: usize,
    /// How many wait.
    pub waiting: usize,
    /// How long the one has waited that has waited longest.
    pub longest_wait: Option<Duration>,
}

/// The lane of a session, in which one task runs at a time.
pub fn session_lane(key: &SessionKey) -> String {
    format!("session:{key}")
}

/// The lane in which a run takes its place: a run that a scheduled job waits for is not in the lane of the job, which would then
/// wait for itself.
pub fn nested_lane(lane: &str) -> &str {
    if lane == CRON_LANE { NESTED_CRON_LANE } else { lane }
}

/// Lanes, each with tasks that wait and tasks that run. Cheap to clone.
///
/// ```
/// use quipu_runtime::{LaneTask, Lanes, LaneSettings, MAIN_LANE, SessionKey};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let lanes = Lanes::new(LaneSettings::default());
/// let key = SessionKey::parse("agent:main:main").unwrap();
/// let ticket = lanes.enqueue_in_session(&key, LaneTask::new(MAIN_LANE), |_| async { 6 * 7 });
/// assert_eq!(ticket.wait().await, Ok(42));
/// # });
/// ```
#[derive(Clone)]
pub struct Lanes(Arc<Inner>);

struct Inner {
    runtime: Handle,
    settings: LaneSettings,
    began: Instant,
    state: Mutex<State>,
    /// Something ended.
    ended: Notify,
}

struct State {
    order: LaneOrder,
    waiting: HashMap<u64, WaitingJob>,
    next: u64,
    draining: bool,
    warnings: VecDeque<LaneWarning>,
    missed: u64,
}

/// Gives a waiter its result.
type Delivery = Box<dyn FnOnce() + Send>;

struct WaitingJob {
    lane: Arc<str>,
    timeout: Option<Duration>,
    work: Box<dyn FnOnce(TaskHandle) -> BoxFuture<'static, Delivery> + Send>,
    reject: Box<dyn FnOnce(LaneError) + Send>,
}

/// The result of a task, later. Dropping it does not stop the task.
pub struct LaneTicket<T>(BoxFuture<'static, Result<T, LaneError>>);

impl<T> LaneTicket<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// Each [`LaneError`].
    pub async fn wait(self) -> Result<T, LaneError> {
        self.0.await
    }
}

/// What a running task has of its lane.
#[derive(Debug, Clone)]
pub struct TaskHandle {
    progress: Arc<Mutex<Instant>>,
    stop: CancellationToken,
}

impl TaskHandle {
    /// Begins the time anew that it may take without progress.
    pub fn progress(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Cancelled when the task timed out: nobody waits for it, and it should end.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    fn last_progress(&self) -> Instant {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    /// Lanes without work. Must be called within a Tokio runtime.
    pub fn new(settings: LaneSettings) -> Self {
        let state = State {
            order: LaneOrder::new(settings.promotion, &LIMITS),
            waiting: HashMap::new(),
            next: 0,
            draining: false,
            warnings: VecDeque::new(),
            missed: 0,
        };
        let (runtime, began) = (Handle::current(), Instant::now());
        Self(Arc::new(Inner { runtime, settings, began, state: Mutex::new(state), ended: Notify::new() }))
    }

    /// Runs a task when it is its turn in its lane.
    pub fn enqueue<T, F>(
        &self,
        task: LaneTask,
        work: impl FnOnce(TaskHandle) -> F + Send + 'static,
    ) -> LaneTicket<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.0.enqueue(task, false, work)
    }

    /// Runs a task when it is its turn in the lane of a session and then in its own, so that a session holds one place of the
    /// other lane at most, however much waits for it. The timeout counts from when the task begins.
    pub fn enqueue_in_session<T, F>(
        &self,
        key: &SessionKey,
        task: LaneTask,
        work: impl FnOnce(TaskHandle) -> F + Send + 'static,
    ) -> LaneTicket<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.enqueue_in_session_behind(key, task, std::future::ready(()), |handle, ()| work(handle))
    }

    /// The same for a task that also waits for something else, which it is given: once it is its turn in the lane of the session,
    /// and before it has a place of the other lane. What waits for that holds up its own session alone.
    pub fn enqueue_in_session_behind<T, B, F>(
        &self,
        key: &SessionKey,
        task: LaneTask,
        before: impl Future<Output = B> + Send + 'static,
        work: impl FnOnce(TaskHandle, B) -> F + Send + 'static,
    ) -> LaneTicket<T>
    where
        T: Send + 'static,
        B: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let inner: Weak<Inner> = Arc::downgrade(&self.0);
        let outer = LaneTask { lane: session_lane(key), priority: task.priority, timeout: None };
        let ticket = self.0.enqueue(outer, false, move |_| async move {
            let before = before.await;
            let work = move |handle| work(handle, before);
            // Taken already, so that the end of the server does not refuse it.
            inner.upgrade().ok_or(LaneError::Closed)?.enqueue(task, true, work).wait().await
        });
        LaneTicket(async move { ticket.wait().await? }.boxed())
    }

    /// How many tasks of a lane run at a time from now on; 0 pauses it. What runs is not stopped.
    pub fn set_limit(&self, lane: &str, limit: usize) {
        let mut state = self.0.state();
        state.order.set_limit(lane, limit);
        if lane == CRON_LANE {
            state.order.set_limit(NESTED_CRON_LANE, limit);
        }
        let paused = if state.draining { state.take_paused() } else { Vec::new() };
        drop(state);
        self.0.reject(paused, |_| LaneError::Draining);
        self.0.pump(lane);
        self.0.pump(nested_lane(lane));
    }

    /// Refuses what waits in a lane ([`LaneError::Cleared`]); how many there were. What runs is not stopped.
    pub fn clear(&self, lane: &str) -> usize {
        let mut state = self.0.state();
        let ids = state.order.clear(lane);
        let jobs: Vec<WaitingJob> = ids.iter().filter_map(|id| state.waiting.remove(id)).collect();
        drop(state);
        let count = jobs.len();
        self.0.reject(jobs, |lane| LaneError::Cleared { lane: lane.to_owned() });
        count
    }

    /// Forgets what runs in a lane: its places are free, and what it still ends is not counted. What waits stays, and begins.
    /// Who waits for a task that is forgotten still gets its result.
    pub fn reset(&self, lane: &str) {
        self.0.state().order.reset(lane);
        self.0.pump(lane);
        self.0.ended.notify_waiters();
    }

    /// [`Lanes::reset`] for every lane.
    pub fn reset_all(&self) {
        let lanes = self.0.state().order.names();
        lanes.iter().for_each(|lane| self.reset(lane));
    }

    /// Takes no new work from now on ([`LaneError::Draining`]). What was taken still runs, but for what waits in paused lanes,
    /// which is refused.
    pub fn drain(&self) {
        let mut state = self.0.state();
        state.draining = true;
        let paused = state.take_paused();
        drop(state);
        self.0.reject(paused, |_| LaneError::Draining);
    }

    /// Waits until nothing runs and nothing waits.
    pub async fn idle(&self) {
        loop {
            let ended = self.0.ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            if self.0.state().order.is_idle() {
                return;
            }
            ended.await;
        }
    }

    /// Lanes that have work, by name.
    pub fn status(&self) -> Vec<LaneStatus> {
        self.0.state().order.status(self.0.now())
    }

    /// Takes the warnings about tasks that waited for long.
    pub fn take_warnings(&self) -> LaneWarnings {
        let mut state = self.0.state();
        let warnings = std::mem::take(&mut state.warnings).into();
        LaneWarnings { warnings, missed: std::mem::take(&mut state.missed) }
    }
}

impl State {
    /// Removes what waits in lanes that run nothing.
    fn take_paused(&mut self) -> Vec<WaitingJob> {
        let paused: Vec<Arc<str>> =
            self.order.names().into_iter().filter(|lane| self.order.limit(lane) == 0).collect();
        let ids: Vec<u64> = paused.iter().flat_map(|lane| self.order.clear(lane)).collect();
        ids.iter().filter_map(|id| self.waiting.remove(id)).collect()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn enqueue<T, F>(
        self: &Arc<Self>,
        task: LaneTask,
        is_accepted: bool,
        work: impl FnOnce(TaskHandle) -> F + Send + 'static,
    ) -> LaneTicket<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let waiter = Arc::new(Mutex::new(Some(sender)));
        let answer = move |result: Result<T, LaneError>| {
            let sender = waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Who dropped the ticket is not told.
            if let Some(sender) = sender {
                drop(sender.send(result));
            }
        };
        let reject = answer.clone();
        let job = WaitingJob {
            lane: task.lane.into(),
            timeout: task.timeout,
            work: Box::new(move |handle| {
                let work = work(handle);
                async move {
                    let value = work.await;
                    Box::new(move || answer(Ok(value))) as Delivery
                }
                .boxed()
            }),
            reject: Box::new(move |error| reject(Err(error))),
        };
        self.push(job, task.priority, is_accepted);
        LaneTicket(async move { receiver.await.unwrap_or(Err(LaneError::Closed)) }.boxed())
    }

    fn push(self: &Arc<Self>, job: WaitingJob, priority: LanePriority, is_accepted: bool) {
        let lane = job.lane.clone();
        let mut state = self.state();
        let refusal = if lane.len() > NAME_LIMIT {
            Some(LaneError::NameTooLong { bytes: lane.len() })
        } else if state.draining && (!is_accepted || state.order.limit(&lane) == 0) {
            Some(LaneError::Draining)
        } else if !is_accepted && state.order.waiting() >= self.settings.waiting {
            Some(LaneError::Full { lane: lane.to_string(), waiting: state.order.waiting() })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            return (job.reject)(refusal);
        }
        let id = state.next;
        state.next += 1;
        state.order.push(&lane, priority, id, self.now());
        state.waiting.insert(id, job);
        drop(state);
        self.pump(&lane);
    }

    /// Begins what a lane has room for.
    fn pump(self: &Arc<Self>, lane: &str) {
        let mut state = self.state();
        while let Some(start) = state.order.start(lane, self.now()) {
            if start.waited >= self.settings.wait_warning {
                if state.warnings.len() == WARNINGS {
                    state.warnings.pop_front();
                    state.missed += 1;
                }
                let TaskStart { waited, behind, .. } = start;
                state.warnings.push_back(LaneWarning { lane: lane.to_owned(), waited, behind });
            }
            match state.waiting.remove(&start.id) {
                Some(job) => drop(self.runtime.spawn(self.clone().supervise(job, start.generation))),
                None => state.order.finish(lane, start.generation),
            }
        }
    }

    /// Runs a task to its end, or to the end of its time; then its place is free.
    async fn supervise(self: Arc<Self>, job: WaitingJob, generation: u64) {
        let WaitingJob { lane, timeout, work, reject } = job;
        let progress = Arc::new(Mutex::new(Instant::now()));
        let handle = TaskHandle { progress, stop: CancellationToken::new() };
        let given = handle.clone();
        // In a task of its own, so that a panic ends nothing else, also one before the future is there.
        let mut task = self.runtime.spawn(async move { work(given).await });
        let ended = match timeout {
            None => Some((&mut task).await),
            Some(timeout) => until_stalled(&mut task, &handle, timeout).await,
        };
        self.state().order.finish(&lane, generation);
        self.pump(&lane);
        let (lane, after) = (lane.to_string(), timeout.unwrap_or_default());
        match ended {
            Some(Ok(deliver)) => deliver(),
            Some(Err(error)) => reject(match error.try_into_panic() {
                Ok(panic) => LaneError::Panicked { lane, message: message_of(&*panic) },
                Err(_) => LaneError::Closed,
            }),
            None => {
                reject(LaneError::TimedOut { lane, after });
                handle.stop.cancel();
            }
        }
        self.ended.notify_waiters();
        if !task.is_finished() && tokio::time::timeout(self.settings.grace, &mut task).await.is_err() {
            task.abort();
        }
    }

    fn reject(&self, jobs: Vec<WaitingJob>, why: impl Fn(&str) -> LaneError) {
        for job in jobs {
            let error = why(&job.lane);
            (job.reject)(error);
        }
        self.ended.notify_waiters();
    }
}

/// The end of a task; `None` where it made no progress for so long.
async fn until_stalled(
    task: &mut JoinHandle<Delivery>,
    handle: &TaskHandle,
    timeout: Duration,
) -> Option<Result<Delivery, tokio::task::JoinError>> {
    loop {
        let Some(deadline) = handle.last_progress().checked_add(timeout) else { return Some(task.await) };
        match tokio::time::timeout_at(deadline, &mut *task).await {
            Ok(ended) => return Some(ended),
            Err(_) if handle.last_progress().checked_add(timeout) != Some(deadline) => {}
            Err(_) => return None,
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked without a message").to_owned()
}

#[cfg(test)]
mod tests;
