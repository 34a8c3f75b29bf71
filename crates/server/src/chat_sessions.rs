//! Which session a name of a client stands for.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use quipu_host::Home;
use quipu_protocol::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::answer::ApiError;

/// The record, in the user's directory; that of a named store is beside it.
const FILE: &str = "serve-sessions.json";
/// The version of its form.
const VERSION: u32 = 1;
/// Names that are kept; more push out the oldest.
const NAMES: usize = 10_000;
/// Bytes of the record that are read.
const BYTES: u64 = 8 << 20;

/// What requests for an answer share.
pub(crate) struct Chats {
    pub(crate) places: Arc<Semaphore>,
    pub(crate) sessions: ChatSessions,
}

impl Chats {
    pub(crate) fn new(most: usize, sessions: ChatSessions) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), sessions }
    }
}

/// Names of clients and their sessions, in a file, so that they outlive the server.
pub(crate) struct ChatSessions {
    path: PathBuf,
    waiting: usize,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default, Serialize, Deserialize)]
struct Record {
    version: u32,
    /// In the order in which they were made.
    sessions: Map<String, Value>,
}

impl ChatSessions {
    pub(crate) fn new(home: &Home, waiting: usize) -> Self {
        let path = match home.has_named_store() {
            true => {
                let mut path = home.store.clone().into_os_string();
                path.push(".");
                path.push(FILE);
                path.into()
            }
            false => home.dir.join(FILE),
        };
        Self { path, waiting, turns: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    /// Waits for the turn of a name: its requests are answered one after the other.
    pub(crate) async fn turn(&self, key: &str) -> Result<OwnedMutexGuard<()>, ApiError> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            if turns.len() > NAMES {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            let turn = turns.entry(key.to_owned()).or_default();
            // The map, the one that is answered, and those that wait.
            if Arc::strong_count(turn) > self.waiting + 1 {
                let message =
                    format!("{} requests wait for this session already; try again later", self.waiting);
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "session_busy", message));
            }
            turn.clone()
        };
        Ok(turn.lock_owned().await)
    }

    /// The session of a name.
    pub(crate) async fn find(&self, key: &str) -> Result<Option<SessionId>, ApiError> {
        let record = self.with_record(read).await?;
        Ok(record.sessions.get(key).and_then(Value::as_str).map(SessionId::from))
    }

    /// Keeps the session of a name. Resolved: it survives the loss of power.
    pub(crate) async fn keep(&self, key: &str, session: &SessionId) -> Result<(), ApiError> {
        let (key, session) = (key.to_owned(), session.to_string());
        let _writing = self.writing.lock().await;
        self.with_record(move |path| {
            let mut record = read(path)?;
            record.sessions.shift_remove(&key);
            record.sessions.insert(key, session.into());
            let excess = record.sessions.len().saturating_sub(NAMES);
            let oldest: Vec<String> = record.sessions.keys().take(excess).cloned().collect();
            for name in oldest {
                record.sessions.shift_remove(&name);
            }
            write(path, &record)
        })
        .await
    }

    async fn with_record<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || work(&path))
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        done.map_err(|error| {
            let message = format!(
                "{} cannot be used: {error}; correct it, or remove it to lose the names of sessions",
                self.path.display()
            );
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "record_failed", message)
        })
    }
}

fn read(path: &Path) -> io::Result<Record> {
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Record { version: VERSION, sessions: Map::new() });
        }
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() || found.len() > BYTES => {
            return Err(io::Error::other("it is not a file of at most 8 MiB"));
        }
        Ok(_) => std::fs::read(path)?,
    };
    let record: Record = serde_json::from_slice(&text)?;
    match record.version {
        VERSION => Ok(record),
        other => Err(io::Error::other(format!(
            "it has version {other}, which another version of this program wrote"
        ))),
    }
}

/// By rename, and for its owner alone: names are of people.
fn write(path: &Path, record: &Record) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(serde_json::to_string_pretty(record)?.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use quipu_host::SilentObserver;

    use super::*;

    fn sessions(dir: &Path) -> ChatSessions {
        ChatSessions::new(&Home::at(dir.to_owned(), Arc::new(SilentObserver)), 2)
    }

    #[tokio::test]
    async fn names_outlive_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let names = sessions(dir.path());
        assert_eq!(names.find("me").await, Ok(None));
        names.keep("me", &SessionId::from("one")).await.unwrap();
        names.keep("you", &SessionId::from("two")).await.unwrap();
        names.keep("me", &SessionId::from("three")).await.unwrap();
        let again = sessions(dir.path());
        assert_eq!(again.find("me").await, Ok(Some(SessionId::from("three"))));
        assert_eq!(again.find("you").await, Ok(Some(SessionId::from("two"))));
        let file = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "{").unwrap();
        let error = again.find("me").await.unwrap_err();
        assert!(error.message.contains("remove it"), "{error:?}");
        assert!(again.keep("me", &SessionId::from("four")).await.is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"{", "what cannot be read is not lost");
    }

    #[tokio::test]
    async fn turn_of_a_name_is_waited_for_by_few() {
        let dir = tempfile::tempdir().unwrap();
        let names = sessions(dir.path());
        let first = names.turn("me").await.unwrap();
        let mut second = std::pin::pin!(names.turn("me"));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        let mut third = std::pin::pin!(names.turn("me"));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert_eq!(names.turn("me").await.unwrap_err().code, "session_busy");
        drop(names.turn("you").await.unwrap());
        drop(first);
        drop(second.await.unwrap());
        drop(third.await.unwrap());
        drop(names.turn("me").await.unwrap());
    }
}
