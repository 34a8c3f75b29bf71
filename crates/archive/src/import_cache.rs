//! Notes of earlier imports by file, and whether a file has changed since.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use quipu_protocol::{ChunkId, NodeId, SessionId, UnixMs};
use quipu_store::{Action, ActionQuery, Commit, Graph, LoggedAction, StoreError};
use serde::{Deserialize, Serialize};

use crate::batches::run_blocking;
use crate::lineages::{IMPORTED, main_ref};
use crate::stamp::{Stamp, hash_of_first};
use crate::{ArchiveError, Report};

/// Notes that are read at first, when what is new is looked for.
const FEW: usize = 64;

/// Files of each kind of which it is kept in memory how far they were read.
const FOLLOWED: usize = 8;

/// What an import noted of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Whose file it is.
    pub(crate) format: String,
    pub(crate) path: PathBuf,
    pub(crate) session: SessionId,
    pub(crate) bytes: u64,
    pub(crate) sha256: ChunkId,
    /// What the system said of it, when nobody had changed it for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stamp: Option<Stamp>,
    /// The log of actions of a graph came with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) actions: bool,
    /// Of a file that a session of ours may go on in.
    #[serde(flatten)]
    pub(crate) filed: WriteBackState,
}

/// How far a file and a session of ours that is written to it are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteBackState {
    /// The place of the next entry; 0 when it was not noted.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(crate) next: u64,
    /// The node of the last entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<NodeId>,
    /// Its lines, where what comes after them can be read without them; 0 when it cannot.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(crate) lines: u64,
    /// The nodes up to which sessions of ours are written to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) written: BTreeMap<SessionId, NodeId>,
    /// The node up to which labels and names that were given beside it are written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<NodeId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_nothing(count: &u64) -> bool {
    *count == 0
}

impl Mark {
    pub(crate) fn new(agent: &str, path: &Path, session: SessionId, bytes: u64, sha256: ChunkId) -> Self {
        let (format, path) = (agent.to_owned(), path.to_owned());
        Self {
            format,
            path,
            session,
            bytes,
            sha256,
            stamp: None,
            actions: false,
            filed: WriteBackState::default(),
        }
    }

    /// Noted with the commit after which the session's ref, which stood at `from`, stands at `to`.
    pub(crate) fn action(&self, from: Option<NodeId>, to: Option<NodeId>) -> Action {
        let metadata = serde_json::to_string(self).ok();
        Action { timestamp: now(), kind: IMPORTED.into(), from, to, metadata }
    }
}

/// The notes of earlier imports by file and agent. Loaded once for many files.
#[derive(Debug, Default)]
pub struct ImportCache {
    files: HashMap<PathBuf, Vec<Mark>>,
    /// The number of the last note.
    last: i64,
    follows: bool,
    followed: FollowedFiles,
}

/// The state of followed files: for each kind of importer, those that grew last at the end.
#[derive(Default)]
struct FollowedFiles(Mutex<HashMap<TypeId, FilesOfKind>>);

/// Files with the state that one kind of importer keeps of them.
type FilesOfKind = VecDeque<(PathBuf, Box<dyn Any + Send>)>;

impl std::fmt::Debug for FollowedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Followed")
    }
}

impl FollowedFiles {
    fn take<T: Send + 'static>(&self, path: &Path) -> Option<T> {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = followed.get_mut(&TypeId::of::<T>())?;
        let at = of_kind.iter().position(|(other, _)| other == path)?;
        let (_, state) = of_kind.remove(at)?;
        state.downcast().ok().map(|state| *state)
    }

    fn keep<T: Send + 'static>(&self, path: &Path, state: T) {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = followed.entry(TypeId::of::<T>()).or_default();
        if of_kind.len() >= FOLLOWED {
            of_kind.pop_front();
        }
        of_kind.push_back((path.to_owned(), Box::new(state)));
    }
}

impl ImportCache {
    /// Reads what the store notes of earlier imports.
    ///
    /// # Errors
    /// What the store says.
    pub async fn load(store: &dyn Graph) -> Result<Self, StoreError> {
        let mut cache = Self::default();
        cache.catch_up(store).await?;
        Ok(cache)
    }

    /// Reads what was noted since it was read last, and little more.
    ///
    /// # Errors
    /// What the store says.
    pub async fn catch_up(&mut self, store: &dyn Graph) -> Result<(), StoreError> {
        let mut query =
            ActionQuery { kinds: vec![IMPORTED.into()], limit: Some(FEW), ..ActionQuery::default() };
        let mut new: Vec<LoggedAction> = Vec::new();
        loop {
            // The newest comes first.
            let mut found = store.actions(query.clone()).await?;
            let is_all = found.len() < query.limit.unwrap_or_default();
            let known = found.iter().position(|logged| logged.id <= self.last);
            found.truncate(known.unwrap_or(found.len()));
            query.before = found.last().map(|logged| logged.id);
            query.limit = query.limit.map(|limit| limit.saturating_mul(8));
            new.append(&mut found);
            if is_all || known.is_some() {
                break;
            }
        }
        self.last = new.first().map_or(self.last, |newest| newest.id);
        for logged in new.into_iter().rev() {
            let Some(mark) = mark_of(&logged) else { continue };
            let of_file = self.files.entry(mark.path.clone()).or_default();
            of_file.retain(|other| other.format != mark.format);
            of_file.push(mark);
        }
        Ok(())
    }

    /// From now on files are imported as they grow: of those that grew last, how far they were read is kept in memory, so that what
    /// is appended can be read alone. Up to 8 of Pi's, some 50 bytes for each entry, and 8 of others, some 500.
    pub fn follow(&mut self) {
        self.follows = true;
    }

    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// What an importer keeps in memory of a file.
    pub(crate) fn take<T: Send + 'static>(&self, path: &Path) -> Option<T> {
        self.followed.take(path)
    }

    pub(crate) fn keep<T: Send + 'static>(&self, path: &Path, state: T) {
        self.followed.keep(path, state);
    }

    /// What the last import of a file noted.
    pub(crate) fn of(&self, agent: &str, path: &Path) -> Option<&Mark> {
        self.files.get(path)?.iter().find(|mark| mark.format == agent)
    }
}

fn mark_of(logged: &LoggedAction) -> Option<Mark> {
    serde_json::from_str(logged.action.metadata.as_deref()?).ok()
}

/// All that was noted, the newest first.
pub(crate) async fn marks(store: &dyn Graph) -> Result<impl Iterator<Item = Mark>, StoreError> {
    let query = ActionQuery { kinds: vec![IMPORTED.into()], ..ActionQuery::default() };
    let logged = store.actions(query).await?;
    Ok(logged.into_iter().filter_map(|logged| mark_of(&logged)))
}

/// The report of a file that is as it was when it was imported last; `None` when it has to be read. It then stands at its
/// beginning.
pub(crate) async fn unchanged(
    store: &dyn Graph,
    mark: Option<&Mark>,
    mut file: &File,
    dry_run: bool,
) -> Result<Option<Report>, ArchiveError> {
    let Some(mark) = mark else { return Ok(None) };
    let fail = |source| ArchiveError::File { path: mark.path.clone(), doing: "read", source };
    let stamp = Stamp::of(&file.metadata().map_err(fail)?);
    if mark.bytes != stamp.bytes {
        return Ok(None);
    }
    let Some(head) = store.head(&main_ref(&mark.format, &mark.session)).await? else { return Ok(None) };
    let mut report = Report::new(mark.path.clone(), mark.session.clone());
    (report.bytes, report.unchanged, report.head) = (stamp.bytes, true, Some(head));
    if mark.stamp == Some(stamp) {
        return Ok(Some(report));
    }
    let settled = stamp.settled(now());
    let again = file.try_clone().map_err(fail)?;
    let hash = run_blocking(move || hash_of_first(again, u64::MAX)).await?.map_err(fail)?;
    if hash != mark.sha256 {
        file.rewind().map_err(fail)?;
        return Ok(None);
    }
    let after = Stamp::of(&file.metadata().map_err(fail)?);
    if settled == Some(after) && !dry_run {
        let note = Mark { stamp: settled, ..mark.clone() };
        let actions = vec![note.action(Some(head), Some(head))];
        store.commit(Commit { actions, ..Commit::default() }).await?;
    }
    Ok(Some(report))
}

/// Milliseconds since the epoch.
pub(crate) fn now() -> UnixMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_earlier_versions_are_read() {
        let zeros = "0".repeat(64);
        let short = format!(r#"{{"format":"codex","path":"/a","session":"s","bytes":3,"sha256":"{zeros}"}}"#);
        let mark: Mark = serde_json::from_str(&short).unwrap();
        assert_eq!((mark.bytes, mark.stamp, &mark.filed), (3, None, &WriteBackState::default()));
        assert_eq!(serde_json::to_string(&mark).unwrap(), short);
        let long = format!(
            r#"{{"format":"pi","path":"/a","session":"s","bytes":3,"sha256":"{zeros}","next":7,"last":"{zeros}","written":{{"t":"{zeros}"}},"notes":"{zeros}","stamp":{{"device":1,"inode":2,"bytes":3,"modified":4,"changed":5}}}}"#
        );
        let mark: Mark = serde_json::from_str(&long).unwrap();
        assert!(mark.stamp.is_some() && mark.filed.next == 7 && mark.filed.written.len() == 1, "{mark:?}");
        assert!(mark.filed.last.is_some() && mark.filed.notes.is_some(), "{mark:?}");
        let again: Mark = serde_json::from_str(&serde_json::to_string(&mark).unwrap()).unwrap();
        assert_eq!(again, mark);
    }
}
