//! A file of another agent as the session of a task: read before it, written beside it.

use std::path::{MAIN_SEPARATOR, Path};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{ChangeError, CommitEvent, Engine, Follower, Sealer};
use quipu_archive::pi::SessionFile;
use quipu_archive::{ArchiveError, Report};
use quipu_protocol::{NodeId, Notice, SessionId};
use quipu_store::{Graph, RefName, SessionQuery, SessionRow};
use tokio::sync::Mutex;

use crate::holders::WrittenKind;
use crate::names::resolve;
use crate::{Advice, Failure, FailureKind, Home};

/// The file of a session, while the session is open.
pub struct Mirror {
    store: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
    home: Home,
    file: Mutex<Option<SessionFile>>,
    /// The file, for people.
    pub path: String,
}

/// How a task continues a session file.
pub(crate) struct FileSession {
    pub(crate) mirror: Arc<Mirror>,
    /// The session that it goes on with or from; `None` for a file that holds nothing.
    pub(crate) row: Option<SessionRow>,
    /// The node below which a new session goes on.
    pub(crate) below: Option<NodeId>,
    /// A session that a process announced which died before it could open it: the new one takes its place.
    pub(crate) announced: Option<SessionId>,
    /// What people should know.
    pub(crate) notes: Vec<String>,
}

/// Whether somebody names a file, and not a session.
pub fn is_file(what: &str) -> bool {
    what.ends_with(".jsonl") || what.contains(MAIN_SEPARATOR)
}

/// Finds and locks the file, or makes it. Nothing of it is read.
pub(crate) async fn find(path: &Path) -> Result<SessionFile, Failure> {
    SessionFile::find(path).await.map_err(refused)
}

/// Opens the file: the graph has all that is in it afterwards, and it has what the graph had of it.
pub(crate) async fn open(home: &Home, engine: &Engine, file: SessionFile) -> Result<FileSession, Failure> {
    let (store, sealer) = (engine.store().clone(), engine.sealer().clone());
    let path = file.path().to_owned();
    let file =
        file.read(&store, &sealer, &|at| home.observer().importing(&path, at)).await.map_err(refused)?;
    let notes = notes(&file);
    let (row, below) = match file.last() {
        None => (None, None),
        Some(last) => going_on(engine, &file, last).await?,
    };
    let announced = match below {
        Some(_) => file.announced(&*store).await?.into_iter().next(),
        None => None,
    };
    let path = file.path().display().to_string();
    let home = home.clone();
    let mirror = Arc::new(Mirror { store, sealer, home, file: Mutex::new(Some(file)), path });
    Ok(FileSession { mirror, row, below, announced, notes })
}

fn refused(error: ArchiveError) -> Failure {
    match error {
        error @ (ArchiveError::NotASession { .. } | ArchiveError::InUse { .. }) => Failure::request(error),
        error @ ArchiveError::File { doing: "made", .. } => {
            Failure::request(format!("{error}; create its directory first, or name a session"))
                .advise(Advice::ListSessions)
        }
        error => error.into(),
    }
}

/// The session that goes on behind the file's last entry: one of ours that leads there, or a new one below.
async fn going_on(
    engine: &Engine,
    file: &SessionFile,
    last: NodeId,
) -> Result<(Option<SessionRow>, Option<NodeId>), Failure> {
    let store = engine.store();
    let session = resolve(&**store, &last.to_string(), None).await?.session;
    let Some(row) = row_of(&**store, session).await? else { return Ok((None, Some(last))) };
    if row.name != RefName::session(&row.id) || row.head.is_none() {
        return Ok((Some(row), Some(last)));
    }
    // A node of ours that the session does not end with was taken back, such as a compaction.
    if file.last_is_ours(&**store).await? {
        return Ok((Some(row), None));
    }
    let id = row.id.clone();
    match engine.advance(&id, last).await {
        Ok(true) => Ok((row_of(&**store, Some(id)).await?, None)),
        Ok(false) | Err(ChangeError::Busy(_)) => Ok((Some(row), Some(last))),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn row_of(store: &dyn Graph, id: Option<SessionId>) -> Result<Option<SessionRow>, Failure> {
    let Some(id) = id else { return Ok(None) };
    let rows = store.sessions(SessionQuery { id: Some(id), ..SessionQuery::default() }).await?;
    let own = rows.iter().find(|row| row.name == RefName::session(&row.id));
    Ok(own.or(rows.first()).cloned())
}

/// What was done to file and graph when it was opened.
fn notes(file: &SessionFile) -> Vec<String> {
    let path = file.path().display();
    let mut notes = Vec::new();
    if let Some(version) = file.migrated() {
        notes.push(format!("converted {path} from version {version} to version 3"));
    }
    notes.extend(file.report().and_then(taken_in));
    if file.healed() > 0 {
        notes.push(format!("added {} entries of the store that were missing in {path}", file.healed()));
    }
    notes
}

fn taken_in(report: &Report) -> Option<String> {
    let Report { path, added, present, lost, .. } = report;
    let entries = |whose: &str| match added {
        1 => format!("imported 1 entry{whose}"),
        _ => format!("imported {added} entries{whose}"),
    };
    let taken = match (added, present) {
        (0, _) => None,
        (_, 0) => Some(entries("")),
        _ => Some(entries(" of another program")),
    };
    let unread = match lost {
        0 => None,
        1 => Some("1 line could not be read and stays in the file (importing the file names it)".to_owned()),
        _ => Some(format!(
            "{lost} lines could not be read and stay in the file (importing the file names them)"
        )),
    };
    let notes: Vec<String> = taken.into_iter().chain(unread).collect();
    (!notes.is_empty()).then(|| format!("{}: {}", path.display(), notes.join("; ")))
}

impl Mirror {
    /// From now on this session is written to the file.
    pub(crate) async fn go_on(&self, session: &SessionId, at: Option<NodeId>) -> Result<(), Failure> {
        match &mut *self.file.lock().await {
            Some(file) => {
                file.resume(&*self.store, session, at).await?;
                self.home.wrote(file.path(), WrittenKind::SessionFile, std::slice::from_ref(session));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Brings the file up to date and lets go of it.
    ///
    /// # Errors
    /// What the file lacks.
    pub async fn finish(&self) -> Result<(), Failure> {
        let Some(file) = self.file.lock().await.take() else { return Ok(()) };
        let lacks = match file.finish(&self.store, &self.sealer).await {
            Ok(finished) => {
                if let Some(text) = finished.taken.as_ref().and_then(taken_in) {
                    self.home.note(text);
                }
                finished.lacking.map(|(count, why)| {
                    format!(
                        "{} lacks {count} entries: {why}. They are in the store; the next start with this file adds them",
                        self.path
                    )
                })
            }
            Err(error) => Some(format!("{} could not be updated: {error}", self.path)),
        };
        lacks.map_or(Ok(()), |text| Err(Failure::new(FailureKind::Store, text)))
    }
}

impl Follower for Mirror {
    fn committed(&self, commit: CommitEvent) -> BoxFuture<'_, Vec<Notice>> {
        Box::pin(async move {
            let mut file = self.file.lock().await;
            let Some(file) = &mut *file else { return Vec::new() };
            let notes = file.follow(&*self.store, &commit.session, &commit.nodes).await;
            notes.map(Notice::note).into_iter().collect()
        })
    }
}
