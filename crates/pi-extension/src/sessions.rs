//! Sessions of Pi that are open, and how their entries come into the graph.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::pi::{AGENT, LiveSession};
use quipu_history::INCARNATE;
use quipu_protocol::{Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Action, ActionQuery, Commit, Graph, LineageEnd, RefMove, RefName};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::HelperError;
use crate::requests::{Append, OpenSession};

/// Sessions that are open at once at most.
const MOST: usize = 64;
/// Entries of one turn that are looked through.
const OF_ONE_TURN: usize = 1_000;
/// Why `PI_HEAD` moved, for the log of refs.
const WHY: &str = "append";
/// Bytes of a header that are read at most; a longer first line is taken for one.
const HEADER: u64 = 1 << 20;

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
pub(crate) struct OpenSessions {
    open: Mutex<HashMap<SessionId, Arc<Mutex<SessionState>>>>,
    /// The session that was begun last: some versions of the program begin one twice.
    begun: Mutex<Option<BegunSession>>,
}

/// A session that was begun.
struct BegunSession {
    id: SessionId,
    /// The row of the log that its first entry is written with: it was switched to before it had one.
    arrival: Option<Action>,
}

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
    /// The directory of the header.
    #[serde(skip)]
    pub(crate) cwd: String,
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
        let sessions = self.open.lock().await;
        sessions.get(id).cloned().ok_or_else(|| HelperError::NotOpen(id.to_string()))
    }

    pub(crate) async fn close(&self, id: &SessionId) {
        self.open.lock().await.remove(id);
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
        let named = LiveSession::name_of(&request.header);
        let is_known = |open: &HashMap<_, _>| named.as_ref().is_some_and(|id| open.contains_key(id));
        {
            let sessions = self.open.lock().await;
            if sessions.len() >= MOST && !is_known(&sessions) {
                return Err(HelperError::TooManySessions(MOST));
            }
        }
        let live = LiveSession::open(store, sealer, &request.header, request.file.as_deref()).await?;
        let cwd = request.header.read::<Header>().map_or_else(|_| String::new(), |header| header.cwd);
        let seen = request.file.as_deref().and_then(SeenFile::of);
        let id = live.session().clone();
        let state = SessionState { live, cwd: cwd.clone(), file: request.file.clone(), seen };
        let head = request.leaf.as_deref().and_then(|leaf| state.live.node_of(leaf));
        let opened = OpenedSession {
            session: id.clone(),
            count: state.live.count(),
            last: state.live.last_id().map(str::to_owned),
            lacking: state.live.lacking(),
            pending: pending(&**store, &id).await?,
            cwd,
            damage: state.live.damage().map(ToString::to_string),
            identity: None,
            identity_problem: None,
        };
        let before = store.head(&RefName::from(RefName::PI_HEAD)).await?;
        let mut begun = self.begun.lock().await;
        let is_other = begun.as_ref().is_none_or(|begun| begun.id != id);
        if is_other {
            let is_new = head.is_none() && request.reason == "new";
            let arrival = is_new.then(|| state.switch(before, None));
            *begun = Some(BegunSession { id: id.clone(), arrival });
        }
        drop(begun);
        if let Some(head) = head {
            // The same once more, or a helper that goes on for another one, begins nothing.
            let begins = is_other && !matches!(request.reason.as_str(), "again" | "reload");
            let rows = if begins { state.beginning(before, head, request) } else { Vec::new() };
            publish(&**store, head, rows).await?;
        }
        let mut sessions = self.open.lock().await;
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
            let mut begun = self.begun.lock().await;
            let ours =
                begun.as_mut().filter(|begun| begun.id == request.session && head != state.live.root());
            let arrival = ours.and_then(|begun| begun.arrival.take());
            drop(begun);
            let rows = arrival.map(|row| Action { to: Some(head), ..row });
            publish(store, head, rows.into_iter().collect()).await?;
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
            // One that was made and removed between two looks was never seen: what Pi writes next has no header.
            (None, Some(_)) => match begins_session(file, self.live.session()) {
                Some(begins) => !begins,
                None => {
                    self.seen = None;
                    false
                }
            },
            (None, None) => false,
        }
    }

    /// What the log says of a session that goes on.
    fn beginning(&self, before: Option<NodeId>, head: NodeId, request: &OpenSession) -> Vec<Action> {
        let boot =
            Action { timestamp: now(), kind: "BOOT".into(), from: None, to: Some(head), metadata: None };
        let switches = matches!(request.reason.as_str(), "new" | "resume" | "fork") && before != Some(head);
        std::iter::once(boot).chain(switches.then(|| self.switch(before, Some(head)))).collect()
    }

    /// The row of a person who switched to this session.
    fn switch(&self, from: Option<NodeId>, to: Option<NodeId>) -> Action {
        let file = self.file.as_ref().map(|file| file.to_string_lossy().into_owned());
        let metadata = serde_json::json!({ "trigger": "human", "session": file }).to_string();
        Action { timestamp: now(), kind: "SESSION_SWITCH".into(), from, to, metadata: Some(metadata) }
    }
}

/// Whether a file begins with the header of this session; `None` while its first line is not whole.
fn begins_session(file: &Path, session: &SessionId) -> Option<bool> {
    let mut line = Vec::new();
    BufReader::new(File::open(file).ok()?).take(HEADER).read_until(b'\n', &mut line).ok()?;
    if line.last() != Some(&b'\n') {
        return (line.len() as u64 == HEADER).then_some(true);
    }
    let header = std::str::from_utf8(&line).ok().and_then(|line| Json::parse(line.trim_end()).ok());
    Some(header.and_then(|header| LiveSession::name_of(&header)).as_ref() == Some(session))
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

/// The entry of the last message to itself of a session, where the session did not go on since, there or elsewhere.
async fn pending(store: &dyn Graph, session: &SessionId) -> Result<Option<String>, HelperError> {
    let query = ActionQuery {
        kinds: vec![INCARNATE.into()],
        session: Some(session.clone()),
        limit: Some(1),
        ..ActionQuery::default()
    };
    let Some(row) = store.actions(query).await?.into_iter().next() else { return Ok(None) };
    let Some((departed, to)) = row.action.from.zip(row.action.to) else { return Ok(None) };
    let is_ours = store.sessions_of(&[to]).await?.first().is_some_and(|of| of.as_ref() == Some(session));
    if !is_ours || !store.first_children(&[to], 1).await?.is_empty() {
        return Ok(None);
    }
    let mut nodes = store.nodes(&[to, departed]).await?.into_iter();
    let (carried, departed) = (nodes.next().flatten(), nodes.next().flatten());
    let from = departed.and_then(|node| node.record.parent);
    let head = store.head(&RefName::of_agent(AGENT, session)).await?.unwrap_or(to);
    // What the turn still said follows the node where it stood. With anything else the session went on without the jump: the
    // program never knew of it, or was sent elsewhere.
    if head != to {
        let last = store.lineage(head, LineageEnd::Count(OF_ONE_TURN)).await?;
        let Some(at) = last.iter().position(|node| Some(node.id) == from) else { return Ok(None) };
        let ends = ["user", "assistant", "bashExecution", "branch_summary", "compaction"];
        if last[at + 1..].iter().any(|node| ends.contains(&node.record.role.as_str())) {
            return Ok(None);
        }
    }
    Ok(carried.and_then(|node| node.record.external_id))
}

/// The time.
pub(crate) fn now() -> UnixMs {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
}
