//! Heartbeats of the agents that have them in the settings.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use quipu::SystemClock;
use quipu::store::{Graph, SessionQuery};
use quipu_host::{Home, NamedAgent, local_zone, now};
use quipu_protocol::RunId;
use quipu_runtime::{
    AgentId, Conversations, HeartbeatFile, HeartbeatPlace, HeartbeatSettings, Heartbeats, HostSessions,
    PostOutcome, Replies, Route, SessionKey, WakeReason,
};

use super::mailboxes::DEFAULT_CHANNEL;

/// Bytes of HEARTBEAT.md that are read.
const FILE: u64 = 64 << 10;

/// An agent that looks after things by itself.
struct BeatingAgent {
    key: SessionKey,
    every: Duration,
    workspace: PathBuf,
}

pub(super) struct ServerHeartbeats {
    heartbeats: Heartbeats,
    agents: Vec<BeatingAgent>,
    sessions: HostSessions,
    store: Arc<dyn Graph>,
}

/// What is around the conversations of agents.
struct AgentPlace {
    workspaces: BTreeMap<SessionKey, PathBuf>,
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
        let (mut agents, mut rules) = (Vec::new(), Vec::new());
        let zone = local_zone();
        for (id, agent) in &home.config().named_agents {
            let Some(heartbeat) = &agent.heartbeat else { continue };
            // The settings were checked.
            let settings = serde_json::from_value::<HeartbeatSettings>(heartbeat.clone()).unwrap_or_default();
            let key = SessionKey::main(&AgentId::normalise(id), "main");
            let (Ok(of), Ok(key)) = (settings.resolve(&zone), key) else { continue };
            let Some(every) = of.every else { continue };
            agents.push(BeatingAgent { key: key.clone(), every, workspace: workspace(agent, directory) });
            rules.push((key, of));
        }
        let workspaces = agents.iter().map(|agent| (agent.key.clone(), agent.workspace.clone())).collect();
        let place = AgentPlace { workspaces, replies: (*replies).clone() };
        let runs = Arc::new((*conversations).clone());
        let heartbeats = Heartbeats::new(runs, Arc::new(place), Arc::new(SystemClock));
        for (key, rules) in rules {
            heartbeats.set(key, rules);
        }
        Self { heartbeats, agents, sessions: (*sessions).clone(), store: sessions.store().clone() }
    }

    pub(super) fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Runs them when their time comes, and when something wakes them. It never ends.
    pub(super) async fn serve(&self) {
        let intervals = join_all(self.agents.iter().map(|agent| self.tick(agent)));
        tokio::join!(self.heartbeats.serve(), intervals);
    }

    async fn tick(&self, agent: &BeatingAgent) {
        let mut wait = self.rest(agent).await;
        loop {
            tokio::time::sleep(wait).await;
            self.heartbeats.wake(&agent.key, WakeReason::Interval);
            wait = agent.every;
        }
    }

    /// How long it is until the next one: it counts from the last one that ran, also before a restart.
    async fn rest(&self, agent: &BeatingAgent) -> Duration {
        let Ok(Some(session)) = self.sessions.session_of(&agent.key.heartbeat()).await else {
            return agent.every;
        };
        let query = SessionQuery { id: Some(session), ..SessionQuery::default() };
        let Ok(rows) = self.store.sessions(query).await else { return agent.every };
        let since = rows.first().map(|row| now().saturating_sub(row.updated));
        // A clock that was set back says nothing.
        let since =
            since.and_then(|since| u64::try_from(since).ok()).map_or(Duration::ZERO, Duration::from_millis);
        agent.every.saturating_sub(since)
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
    let text =
        std::fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
    let mut bytes = Vec::new();
    match text.map(|file| file.take(FILE).read_to_end(&mut bytes)) {
        Some(Ok(_)) => HeartbeatFile::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Some(Err(_)) | None => HeartbeatFile::Missing,
    }
}

impl HeartbeatPlace for AgentPlace {
    fn file<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, HeartbeatFile> {
        Box::pin(async move {
            let Some(workspace) = self.workspaces.get(key) else { return HeartbeatFile::Missing };
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
