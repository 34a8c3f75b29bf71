//! Sessions of Pi that are open, and how their entries come into the graph.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::pi::{AGENT, LiveSession};
use quipu_history::INCARNATE;
use quipu_protocol::{Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Action, ActionQuery, Commit, Graph, RefMove, RefName};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::HelperError;
use crate::requests::{Append, OpenSession};

/// Sessions that are open at once at most.
const MOST: usize = 64;
/// Why `PI_HEAD` moved, for the log of refs.
const WHY: &str = "append";

/// An open session.
pub(crate) struct SessionState {
    pub(crate) live: LiveSession,
    /// The directory of the header.
    pub(crate) cwd: String,
    file: Option<PathBuf>,
    /// The file when we looked last; `None` while it is not there.
    seen: Option<SeenFile>,
}

/// What tells a file from another one in its place: the number of its inode may be given again.
#[derive(Debug, Clone, Copy)]
struct SeenFile {
    device: u64,
    inode: u64,
    bytes: u64,
}

impl SeenFile {
    fn of(file: &Path) -> Option<Self> {
        let found = std::fs::metadata(file).ok()?;
        Some(Self { device: found.dev(), inode: found.ino(), bytes: found.len() })
    }

    /// Whether it is the file from before, which only grows.
    fn continues(self, before: Self) -> bool {
        (self.device, self.inode) == (before.device, before.inode) && self.bytes >= before.bytes
    }
}

/// The sessions that are open.
#[derive(Default)]
pub(crate) struct OpenSessions(Mutex<HashMap<SessionId, Arc<Mutex<SessionState>>>>);

/// How a session stands when it is opened.
#[derive(Debug, Serialize)]
pub(crate) struct OpenedSession {
    pub(crate) session: SessionId,
    /// Entries that the graph has of what the file holds: the place of the next one.
    pub(crate) count: u64,
    /// The id of the last of them.
    pub(crate) last: Option<String>,
    /// Entries that the graph has and the file has not.
    pub(crate) lacking: u64,
    /// The entry of a message to itself that has no answer yet.
    pub(crate) pending: Option<String>,
    /// Why the file is no session file any more.
    pub(crate) damage: Option<String>,
    /// The text before the system prompt.
    pub(crate) identity: Option<String>,
    /// Why there is none, where one is set.
    pub(crate) identity_problem: Option<String>,
}

/// What became of entries.
#[derive(Debug, Serialize)]
pub(crate) struct AppendedEntries {
    /// The place of the next one.
    pub(crate) count: u64,
    /// The session's file was there before and is not any more, or another one is.
    pub(crate) file_is_gone: bool,
}

impl OpenSessions {
    /// The session of this id.
    pub(crate) async fn find(&self, id: &SessionId) -> Result<Arc<Mutex<SessionState>>, HelperError> {
        let sessions = self.0.lock().await;
        sessions.get(id).cloned().ok_or_else(|| HelperError::NotOpen(id.to_string()))
    }

    pub(crate) async fn close(&self, id: &SessionId) {
        self.0.lock().await.remove(id);
    }

    /// Opens a session, again where it is open.
    pub(crate) async fn open(
        &self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        request: &OpenSession,
    ) -> Result<OpenedSession, HelperError> {
        #[derive(Deserialize)]
        struct Header {
            #[serde(default)]
            cwd: String,
        }
        let live = LiveSession::open(store, sealer, &request.header, request.file.as_deref()).await?;
        let cwd = request.header.read::<Header>().map_or_else(|_| String::new(), |header| header.cwd);
        let seen = request.file.as_deref().and_then(SeenFile::of);
        let id = live.session().clone();
        let state = SessionState { live, cwd, file: request.file.clone(), seen };
        let head = request.leaf.as_deref().and_then(|leaf| state.live.node_of(leaf));
        let opened = OpenedSession {
            session: id.clone(),
            count: state.live.count(),
            last: state.live.last_id().map(str::to_owned),
            lacking: state.live.lacking(),
            pending: pending(&**store, &id).await?,
            damage: state.live.damage().map(ToString::to_string),
            identity: None,
            identity_problem: None,
        };
        if let Some(head) = head {
            state.begin(&**store, head, request).await?;
        }
        let mut sessions = self.0.lock().await;
        if !sessions.contains_key(&id) && sessions.len() >= MOST {
            return Err(HelperError::TooManySessions(MOST));
        }
        sessions.insert(id, Arc::new(Mutex::new(state)));
        Ok(opened)
    }

    /// Takes in entries. After a failure of the store the session is given up: it is opened again, which finds what was kept.
    pub(crate) async fn append(
        &self,
        store: &dyn Graph,
        request: &Append,
    ) -> Result<AppendedEntries, HelperError> {
        let session = self.find(&request.session).await?;
        let mut state = session.lock().await;
        if let Err(error) = state.take_in(request.first, &request.entries).await {
            self.give_up(&request.session, state, &error).await;
            return Err(error);
        }
        let head = request.leaf.as_deref().map_or(Some(state.live.root()), |leaf| state.live.node_of(leaf));
        if let Some(head) = head {
            publish(store, head, Vec::new()).await?;
        }
        Ok(AppendedEntries { count: state.live.count(), file_is_gone: state.lost_file() })
    }

    /// Closes a session whose state may differ from the store.
    pub(crate) async fn give_up(
        &self,
        id: &SessionId,
        state: MutexGuard<'_, SessionState>,
        error: &HelperError,
    ) {
        drop(state);
        if !matches!(error, HelperError::Gap { .. }) {
            self.close(id).await;
        }
    }
}

impl SessionState {
    /// Takes in entries from a place on; those that are there already are passed by.
    pub(crate) async fn take_in(&mut self, first: u64, entries: &[Json]) -> Result<(), HelperError> {
        let expected = self.live.count();
        let Some(known) = expected.checked_sub(first) else {
            return Err(HelperError::Gap { expected, given: first });
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(entries.len());
        let texts: Vec<&str> = entries[known..].iter().map(Json::get).collect();
        self.live.append(&texts).await?;
        Ok(())
    }

    /// Whether the file that was there is gone, or another one is in its place, as when somebody removed it and Pi goes on
    /// writing; told once.
    fn lost_file(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let now = SeenFile::of(file);
        match (std::mem::replace(&mut self.seen, now), now) {
            (Some(before), Some(now)) => !now.continues(before),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// A session that goes on: `PI_HEAD` moves to where it stands, and the log of actions says so.
    async fn begin(&self, store: &dyn Graph, head: NodeId, request: &OpenSession) -> Result<(), HelperError> {
        let row = |kind: &str, from, metadata| Action {
            timestamp: now(),
            kind: kind.into(),
            from,
            to: Some(head),
            metadata,
        };
        let mut actions = vec![row("BOOT", None, None)];
        let before = store.head(&RefName::from(RefName::PI_HEAD)).await?;
        if matches!(request.reason.as_str(), "new" | "resume" | "fork") && before != Some(head) {
            let file = request.file.as_ref().map(|file| file.to_string_lossy().into_owned());
            let metadata = serde_json::json!({ "trigger": "human", "session": file }).to_string();
            actions.push(row("SESSION_SWITCH", before, Some(metadata)));
        }
        publish(store, head, actions).await
    }
}

/// Moves `PI_HEAD`. What the program writes next follows it there.
pub(crate) async fn publish(
    store: &dyn Graph,
    head: NodeId,
    actions: Vec<Action>,
) -> Result<(), HelperError> {
    let name = RefName::from(RefName::PI_HEAD);
    if actions.is_empty() && store.head(&name).await? == Some(head) {
        return Ok(());
    }
    let moves = vec![RefMove::publish(name, head, WHY)];
    store.commit(Commit { moves, actions, ..Commit::default() }).await?;
    Ok(())
}

/// The entry of the last message to itself of a session, where nothing follows it yet.
async fn pending(store: &dyn Graph, session: &SessionId) -> Result<Option<String>, HelperError> {
    let query = ActionQuery {
        kinds: vec![INCARNATE.into()],
        session: Some(session.clone()),
        limit: Some(1),
        ..ActionQuery::default()
    };
    let Some(to) = store.actions(query).await?.into_iter().next().and_then(|row| row.action.to) else {
        return Ok(None);
    };
    let is_ours = store.sessions_of(&[to]).await?.first().is_some_and(|of| of.as_ref() == Some(session));
    if !is_ours || !store.first_children(&[to], 1).await?.is_empty() {
        return Ok(None);
    }
    // Where the branch that was to be left went on with an answer, the program never knew of the jump.
    let head = store.head(&RefName::of_agent(AGENT, session)).await?;
    let mut nodes = store.nodes(&[to, head.unwrap_or(to)]).await?.into_iter();
    let (carried, last) = (nodes.next().flatten(), nodes.next().flatten());
    if last.is_some_and(|last| last.record.role == "assistant") {
        return Ok(None);
    }
    Ok(carried.and_then(|node| node.record.external_id))
}

/// The time.
pub(crate) fn now() -> UnixMs {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
}
