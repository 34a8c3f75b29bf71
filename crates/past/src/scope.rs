//! Whose past it is: all sessions, those of a project or of an agent, or one.

use std::path::Path;

use quipu_dag::sha256;
use quipu_protocol::{SessionId, hex};
use quipu_store::{Graph, RefName, SessionQuery, SessionRow, StoreError};
use serde::{Deserialize, Serialize};

/// What the ids of sessions begin with that hold a past.
pub const PAST_SESSION: &str = "past-";
/// What the ids of sessions begin with that hold changes of notes: no conversations.
const NOTES: &str = "memory-";
/// The program that writes them.
const AGENT: &str = "quipu";
/// Bytes of a hash that stand in the id of a session.
const HASHED: usize = 8;

/// The sessions that a past is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of", rename_all = "lowercase")]
pub enum PastScope {
    /// Every session of the store.
    All,
    /// Those that work in this directory or below it.
    Project(String),
    /// Those of a program, such as `quipu`, or an agent whose sessions were imported.
    Agent(String),
    /// One.
    Session(SessionId),
}

impl PastScope {
    /// The session that holds its chunks.
    #[must_use]
    pub fn session(&self) -> SessionId {
        // Names and paths may be long, or have what no ref has.
        let hashed = |kind: &str, of: &str| {
            let hash = sha256(of.as_bytes());
            format!("{PAST_SESSION}{kind}-{}", hex(hash.get(..HASHED).unwrap_or_default()))
        };
        SessionId::from(match self {
            Self::All => format!("{PAST_SESSION}all"),
            Self::Project(root) => hashed("project", root),
            Self::Agent(agent) => hashed("agent", agent),
            Self::Session(session) => hashed("session", session.as_str()),
        })
    }

    /// The ref of that session.
    #[must_use]
    pub fn ref_name(&self) -> RefName {
        RefName::session(&self.session())
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::All => "all sessions".to_owned(),
            Self::Project(root) => format!("project {root}"),
            Self::Agent(agent) => format!("agent {agent}"),
            Self::Session(session) => format!("session {session}"),
        }
    }

    /// Whether there is a past of it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn exists(&self, store: &dyn Graph) -> Result<bool, StoreError> {
        Ok(store.head(&self.ref_name()).await?.is_some())
    }

    fn holds(&self, row: &SessionRow) -> bool {
        match self {
            Self::All => true,
            Self::Project(root) => Path::new(&row.cwd).starts_with(root),
            Self::Agent(agent) => row.agent == *agent,
            Self::Session(session) => row.id == *session,
        }
    }

    /// Its sessions, by their ids. Those that were removed, that were begun for another one, or that hold a past or notes, are none
    /// of it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn sessions(&self, store: &dyn Graph) -> Result<Vec<SessionRow>, StoreError> {
        let id = match self {
            Self::Session(session) => Some(session.clone()),
            Self::All | Self::Project(_) | Self::Agent(_) => None,
        };
        let mut rows = store.sessions(SessionQuery { id, ..SessionQuery::default() }).await?;
        rows.retain(|row| row.head.is_some() && self.holds(row) && !is_bookkeeping(row));
        rows.sort_by(|a, b| (&a.id, a.base).cmp(&(&b.id, b.base)));
        Ok(rows)
    }
}

/// No model ever spoke in it.
fn is_bookkeeping(row: &SessionRow) -> bool {
    let begins = |prefix: &str| row.id.as_str().starts_with(prefix);
    (begins(PAST_SESSION) || begins(NOTES)) && row.model.is_empty() && row.agent == AGENT
}
