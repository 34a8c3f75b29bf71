//! Heartbeats of the agents that have them in the settings.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::store::{Job, JobKey, JobState, JobTime, Jobs, NewJob, StoreError};
use quipu::{Sealer, SystemClock};
use quipu_host::jobs::{
    HEARTBEAT_JOB, JobContext, JobError, JobHandler, JobOutcome, JobRunner, RunnerOptions,
};
use quipu_host::{Home, NamedAgent, Settings, SilentObserver, local_zone, now};
use quipu_protocol::RunId;
use quipu_runtime::{
    AgentId, AlertDelivery, Conversations, HeartbeatFile, HeartbeatJob, HeartbeatPlace, HeartbeatRules,
    HeartbeatSettings, Heartbeats, PostOutcome, Replies, Route, SessionKey, WakeOutcome, WakeReason,
    heartbeat_job, heartbeat_of,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::mailboxes::DEFAULT_CHANNEL;

/// Bytes of HEARTBEAT.md that are read.
const FILE: u64 = 64 << 10;

/// How often the jobs of the store are made those of the settings, at least.
const LOOK: Duration = Duration::from_secs(60);
/// Jobs that are read at a time.
const PAGE: usize = 100;
/// The word in the keys of the conversations that have heartbeats.
const MAIN: &str = "main";

pub(super) struct ServerHeartbeats {
    heartbeats: Heartbeats,
    agents: Arc<BeatingAgents>,
    home: Home,
    /// The directory of agents without a workspace.
    directory: PathBuf,
    /// The settings that were read last.
    read: Mutex<Option<Arc<Settings>>>,
    changed: Notify,
    /// The jobs of the store were made those of the settings.
    put: Notify,
    /// Whether any agent has one.
    is_on: watch::Sender<bool>,
    jobs: Arc<dyn Jobs>,
    sealer: Arc<Sealer>,
}

/// The workspaces of the agents that have a heartbeat, by the conversations that get its alerts.
#[derive(Default)]
struct BeatingAgents(Mutex<BTreeMap<SessionKey, PathBuf>>);

impl BeatingAgents {
    fn all(&self) -> MutexGuard<'_, BTreeMap<SessionKey, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is around the conversations of agents.
struct AgentPlace {
    agents: Arc<BeatingAgents>,
    replies: Replies,
}

/// What heartbeats run in.
pub(super) struct HeartbeatWorld<'a> {
    pub(super) home: &'a Home,
    pub(super) conversations: &'a Conversations,
    pub(super) jobs: Arc<dyn Jobs>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) replies: &'a Replies,
    /// The directory of agents without a workspace.
    pub(super) directory: &'a Path,
}

impl ServerHeartbeats {
    /// Those that the settings say now.
    pub(super) fn new(world: &HeartbeatWorld<'_>) -> Self {
        let HeartbeatWorld { home, conversations, jobs, sealer, replies, directory } = world;
        let agents = Arc::new(BeatingAgents::default());
        let place = AgentPlace { agents: agents.clone(), replies: (*replies).clone() };
        let runs = Arc::new((*conversations).clone());
        let heartbeats = Self {
            heartbeats: Heartbeats::new(runs, Arc::new(place), Arc::new(SystemClock)),
            agents,
            home: (*home).clone(),
            directory: directory.to_path_buf(),
            read: Mutex::default(),
            changed: Notify::new(),
            put: Notify::new(),
            is_on: watch::Sender::new(false),
            jobs: jobs.clone(),
            sealer: sealer.clone(),
        };
        heartbeats.refresh();
        heartbeats
    }

    /// Reads the settings again where they have changed.
    pub(super) fn refresh(&self) {
        let settings = self.home.config();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_some_and(|read| Arc::ptr_eq(read, &settings)) {
            return;
        }
        let found = self.of_settings(&settings);
        *read = Some(settings);
        let mut agents = self.agents.all();
        for key in agents.keys().filter(|key| !found.contains_key(key)) {
            self.heartbeats.remove(key);
        }
        *agents = found
            .into_iter()
            .map(|(key, (workspace, rules))| {
                if self.heartbeats.rules(&key).as_ref() != Some(&rules) {
                    self.heartbeats.set(key.clone(), rules);
                }
                (key, workspace)
            })
            .collect();
        self.is_on.send_replace(!agents.is_empty());
        self.changed.notify_one();
    }

    fn of_settings(&self, settings: &Settings) -> BTreeMap<SessionKey, (PathBuf, HeartbeatRules)> {
        let zone = local_zone();
        let of_agent = |(id, agent): (&String, &NamedAgent)| {
            // The settings were checked.
            let heartbeat: HeartbeatSettings = serde_json::from_value(agent.heartbeat.clone()?).ok()?;
            let rules = heartbeat.resolve(&zone).ok()?;
            rules.every?;
            let key = SessionKey::main(&AgentId::normalise(id), MAIN).ok()?;
            Some((key, (workspace(agent, &self.directory), rules)))
        };
        settings.named_agents.iter().filter_map(of_agent).collect()
    }

    /// Wakes the heartbeat of a conversation.
    pub(super) fn wake(&self, key: &SessionKey) -> WakeOutcome {
        self.refresh();
        self.heartbeats.wake(key, WakeReason::Request)
    }

    /// A command in the background of a conversation ended: the heartbeat of its agent looks after it. Those of heartbeats wake nothing, or a
    /// heartbeat could wake itself again and again.
    pub(super) fn command_ended(&self, key: &SessionKey) {
        let agent = key.agent().filter(|_| !key.is_heartbeat());
        if let Some(Ok(main)) = agent.map(|agent| SessionKey::main(agent, MAIN)) {
            self.heartbeats.wake(&main, WakeReason::Command);
        }
    }

    /// Runs them when their time comes, and when something wakes them. It never ends.
    pub(super) async fn serve(self: &Arc<Self>) {
        tokio::join!(self.heartbeats.serve(), self.keep_jobs(), self.run_jobs());
    }

    /// Has the jobs of the store follow the settings.
    async fn keep_jobs(&self) {
        loop {
            self.refresh();
            if let Err(error) = self.put_jobs().await {
                tracing::warn!(%error, "the jobs of heartbeats cannot be stored");
            }
            self.put.notify_one();
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Has the store have a job for each heartbeat, and none for agents without one.
    async fn put_jobs(&self) -> Result<(), StoreError> {
        let keys: Vec<SessionKey> = self.agents.all().keys().cloned().collect();
        let rules = |key: &SessionKey| self.heartbeats.rules(key);
        let wanted: Vec<NewJob> = keys.iter().filter_map(|key| heartbeat_job(key, &rules(key)?)).collect();
        let prefix = format!("{HEARTBEAT_JOB}/");
        let mut after = Some(JobKey::from(prefix.as_str()));
        loop {
            let jobs = self.jobs.jobs(after.as_ref(), PAGE).await?;
            let ours = jobs.iter().take_while(|job| job.key.as_str().starts_with(&prefix));
            // Programs may have jobs of heartbeats of other conversations.
            let of_agents = ours.clone().filter(|job| {
                let key = job.key.as_str().strip_prefix(&prefix).and_then(|key| SessionKey::parse(key).ok());
                job.kind == HEARTBEAT_JOB && key.is_some_and(|key| key.is_main(MAIN))
            });
            for job in of_agents {
                if wanted.iter().all(|wanted| wanted.key != job.key) {
                    self.jobs.cancel_job(&job.key).await?;
                } else if job.state == JobState::Failed {
                    // It only wakes: what made it fail is over, such as processes that ended in the middle of it.
                    self.jobs.retry_job(&job.key, now()).await?;
                }
            }
            after = jobs.last().map(|job| job.key.clone());
            if jobs.len() < PAGE || ours.count() < jobs.len() {
                break;
            }
        }
        for job in wanted {
            self.jobs.put_job(job, now()).await?;
        }
        Ok(())
    }

    /// Wakes each heartbeat when its job is due, while there are any.
    async fn run_jobs(self: &Arc<Self>) {
        let handler = Arc::new(DueHeartbeats(self.clone(), HeartbeatJob::new(self.heartbeats.clone())));
        // A heartbeat does not wait for the jobs that run in this process.
        let runner = runner(self.jobs.clone(), handler, self.sealer.clone()).beside_others_of(&self.home);
        let mut is_on = self.is_on.subscribe();
        while is_on.wait_for(|on| *on).await.is_ok() {
            let stop = CancellationToken::new();
            let ends = async {
                tokio::select! {
                    _ = is_on.wait_for(|on| !*on) => {}
                    // It would look at new jobs later than they may be due.
                    () = self.put.notified() => {}
                }
                stop.cancel();
            };
            tokio::join!(ends, runner.run(&stop));
        }
    }
}

/// What runs the jobs of heartbeats. It looks at the store when one is due, and no more often than for the settings besides.
fn runner(jobs: Arc<dyn Jobs>, handler: Arc<dyn JobHandler>, sealer: Arc<Sealer>) -> JobRunner {
    let options = RunnerOptions { poll: LOOK, ..RunnerOptions::default() };
    JobRunner::new(jobs, vec![handler], Arc::new(SilentObserver), sealer).with_options(options)
}

/// Reads the settings again before one is woken whose time has come.
struct DueHeartbeats(Arc<ServerHeartbeats>, HeartbeatJob);

impl JobHandler for DueHeartbeats {
    fn kind(&self) -> &str {
        HEARTBEAT_JOB
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        if let Some((_, every)) = heartbeat_of(job).filter(|(key, _)| !key.is_main(MAIN)) {
            // That of another program, which is not to lose it.
            return Box::pin(std::future::ready(Ok(JobOutcome::Again(JobTime::After(every)))));
        }
        self.0.refresh();
        self.1.run(job, cx)
    }
}

/// The directory that an agent works in.
pub(crate) fn workspace(agent: &NamedAgent, directory: &Path) -> PathBuf {
    let written = agent.workspace.as_deref();
    let path = written.and_then(|written| match written.strip_prefix('~') {
        Some(below) => std::env::home_dir().map(|home| home.join(below.trim_start_matches('/'))),
        None => Some(PathBuf::from(written)),
    });
    path.filter(|path| path.is_dir()).unwrap_or_else(|| directory.to_owned())
}

/// What a file says, as far as it is read; what cannot be read is not there.
fn read(path: &Path) -> HeartbeatFile {
    let mut bytes = Vec::new();
    // A fifo would be waited for.
    match quipu_workspace::open_for_reading(path).map(|(file, _)| file.take(FILE).read_to_end(&mut bytes)) {
        Ok(Ok(_)) => HeartbeatFile::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(_)) | Err(_) => HeartbeatFile::Missing,
    }
}

impl HeartbeatPlace for AgentPlace {
    fn file<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, HeartbeatFile> {
        Box::pin(async move {
            let workspace = self.agents.all().get(key).cloned();
            let Some(workspace) = workspace else { return HeartbeatFile::Missing };
            let path = workspace.join("HEARTBEAT.md");
            let read = tokio::task::spawn_blocking(move || read(&path)).await;
            read.unwrap_or(HeartbeatFile::Missing)
        })
    }

    fn deliver<'a>(&'a self, key: &'a SessionKey, alert: String) -> BoxFuture<'a, AlertDelivery> {
        Box::pin(async move {
            let route =
                Route { channel: DEFAULT_CHANNEL.to_owned(), to: Some(key.to_string()), ..Route::default() };
            let name = RunId::from(format!("heartbeat-{}", uuid::Uuid::now_v7().simple()));
            match self.replies.post(key, &route, &name, &alert).await {
                Ok(PostOutcome::Stored | PostOutcome::Unwanted) => return AlertDelivery::Stored,
                Ok(PostOutcome::Full) => tracing::warn!(%key, "too many replies wait; an alert is dropped"),
                Err(error) => tracing::warn!(%key, %error, "an alert could not be stored"),
            }
            AlertDelivery::Lost
        })
    }
}

#[cfg(test)]
mod tests;
