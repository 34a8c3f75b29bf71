//! Heartbeats of the agents that have them in the settings.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::SystemClock;
use quipu::store::{Graph, SessionQuery};
use quipu_host::{Home, NamedAgent, Settings, local_zone, now};
use quipu_protocol::RunId;
use quipu_runtime::{
    AgentId, Conversations, HeartbeatFile, HeartbeatPlace, HeartbeatRules, HeartbeatSettings, Heartbeats,
    HostSessions, PostOutcome, Replies, Route, SessionKey, WakeOutcome, WakeReason,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::mailboxes::DEFAULT_CHANNEL;

/// Bytes of HEARTBEAT.md that are read.
const FILE: u64 = 64 << 10;

/// An agent that looks after things by itself.
#[derive(Clone, PartialEq)]
struct BeatingAgent {
    every: Duration,
    workspace: PathBuf,
}

pub(super) struct ServerHeartbeats {
    heartbeats: Heartbeats,
    agents: Arc<BeatingAgents>,
    home: Home,
    /// The directory of agents without a workspace.
    directory: PathBuf,
    /// The settings that were read last.
    read: Mutex<Option<Arc<Settings>>>,
    changed: Notify,
    sessions: HostSessions,
    store: Arc<dyn Graph>,
}

/// The agents that have a heartbeat, by the conversations that get its alerts.
#[derive(Default)]
struct BeatingAgents(Mutex<BTreeMap<SessionKey, BeatingAgent>>);

impl BeatingAgents {
    fn all(&self) -> MutexGuard<'_, BTreeMap<SessionKey, BeatingAgent>> {
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
    pub(super) sessions: &'a HostSessions,
    pub(super) replies: &'a Replies,
    /// The directory of agents without a workspace.
    pub(super) directory: &'a Path,
}

impl ServerHeartbeats {
    /// Those that the settings say now.
    pub(super) fn new(world: &HeartbeatWorld<'_>) -> Self {
        let HeartbeatWorld { home, conversations, sessions, replies, directory } = world;
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
            sessions: (*sessions).clone(),
            store: sessions.store().clone(),
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
            .map(|(key, (agent, rules))| {
                if self.heartbeats.rules(&key).as_ref() != Some(&rules) {
                    self.heartbeats.set(key.clone(), rules);
                }
                (key, agent)
            })
            .collect();
        self.changed.notify_one();
    }

    fn of_settings(&self, settings: &Settings) -> BTreeMap<SessionKey, (BeatingAgent, HeartbeatRules)> {
        let zone = local_zone();
        let of_agent = |(id, agent): (&String, &NamedAgent)| {
            // The settings were checked.
            let heartbeat: HeartbeatSettings = serde_json::from_value(agent.heartbeat.clone()?).ok()?;
            let rules = heartbeat.resolve(&zone).ok()?;
            let key = SessionKey::main(&AgentId::normalise(id), "main").ok()?;
            let agent = BeatingAgent { every: rules.every?, workspace: workspace(agent, &self.directory) };
            Some((key, (agent, rules)))
        };
        settings.named_agents.iter().filter_map(of_agent).collect()
    }

    /// Wakes the heartbeat of a conversation.
    pub(super) fn wake(&self, key: &SessionKey) -> WakeOutcome {
        self.refresh();
        self.heartbeats.wake(key, WakeReason::Request)
    }

    /// Runs them when their time comes, and when something wakes them. It never ends.
    pub(super) async fn serve(&self) {
        tokio::join!(self.heartbeats.serve(), self.intervals());
    }

    /// Wakes each agent when its time comes. The settings are read again then.
    async fn intervals(&self) {
        let mut times: BTreeMap<SessionKey, (Duration, Instant)> = BTreeMap::new();
        loop {
            self.refresh();
            let agents = self.agents.all().clone();
            times.retain(|key, (every, _)| agents.get(key).is_some_and(|agent| agent.every == *every));
            for (key, agent) in &agents {
                if !times.contains_key(key) {
                    let at = Instant::now() + self.rest(key, agent.every).await;
                    times.insert(key.clone(), (agent.every, at));
                }
            }
            let now = Instant::now();
            for (key, (every, at)) in &mut times {
                if *at <= now {
                    self.heartbeats.wake(key, WakeReason::Interval);
                    *at = now + *every;
                }
            }
            let next = times.values().map(|(_, at)| *at).min();
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }

    /// How long it is until the next one: it counts from the last one that ran, also before a restart.
    async fn rest(&self, key: &SessionKey, every: Duration) -> Duration {
        let Ok(Some(session)) = self.sessions.session_of(&key.heartbeat()).await else {
            return every;
        };
        let query = SessionQuery { id: Some(session), ..SessionQuery::default() };
        let Ok(rows) = self.store.sessions(query).await else { return every };
        let since = rows.first().map(|row| now().saturating_sub(row.updated));
        // A clock that was set back says nothing.
        let since =
            since.and_then(|since| u64::try_from(since).ok()).map_or(Duration::ZERO, Duration::from_millis);
        every.saturating_sub(since)
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
            let workspace = self.agents.all().get(key).map(|agent| agent.workspace.clone());
            let Some(workspace) = workspace else { return HeartbeatFile::Missing };
            let path = workspace.join("HEARTBEAT.md");
            let read = tokio::task::spawn_blocking(move || read(&path)).await;
            read.unwrap_or(HeartbeatFile::Missing)
        })
    }

    fn deliver<'a>(&'a self, key: &'a SessionKey, alert: String) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let route =
                Route { channel: DEFAULT_CHANNEL.to_owned(), to: Some(key.to_string()), ..Route::default() };
            let name = RunId::from(format!("heartbeat-{}", uuid::Uuid::now_v7().simple()));
            match self.replies.post(key, &route, &name, &alert).await {
                Ok(PostOutcome::Stored | PostOutcome::Unwanted) => {}
                Ok(PostOutcome::Full) => tracing::warn!(%key, "too many replies wait; an alert is dropped"),
                Err(error) => tracing::warn!(%key, %error, "an alert could not be stored"),
            }
        })
    }
}
