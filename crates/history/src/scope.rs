//! What of the graph may be shown, and what somebody means by a name.

use std::collections::HashMap;
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{Graph, Resolution, Scope, SessionQuery, Spelling, SpellingKind, StoreError};

use super::projects::Projects;
use super::text::escaped;
use quipu_transcript::one_line;

/// Characters of an id that messages repeat.
const SAID_BACK: usize = 80;

/// Why a name leads to no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeNameError {
    /// The store failed.
    #[error("Could not read the archive: {0}")]
    Store(#[from] StoreError),
    /// Nothing that may be seen has this name.
    #[error(
        "No node of this project is called \"{name}\". Give its hash, or at least 4 characters of it, as shown in \
         place of a result that was left out."
    )]
    Unknown {
        /// The name, on one line and short.
        name: String,
    },
    /// Several nodes have it.
    #[error("{count} nodes match \"{name}\"; give more of the hash:{list}")]
    Ambiguous {
        /// The name, on one line and short.
        name: String,
        /// How many.
        count: usize,
        /// A line for each.
        list: String,
    },
}

/// Who looks.
#[derive(Clone)]
pub enum Sight {
    /// A person: sees everything.
    Everything,
    /// The model of a session: sees its own lineage, and sessions that work in the same directory, below it, or where a
    /// search was permitted.
    Project {
        /// Where searches were permitted.
        projects: Arc<Projects>,
        /// Where its session stands; `None` before its first commit.
        head: Arc<dyn Fn() -> Option<NodeId> + Send + Sync>,
    },
}

impl Sight {
    /// Where the session of a model stands.
    pub fn head(&self) -> Option<NodeId> {
        match self {
            Self::Everything => None,
            Self::Project { head, .. } => head(),
        }
    }

    /// Which of these nodes may be shown, in their order.
    pub async fn sees(&self, store: &dyn Graph, nodes: &[NodeId]) -> Result<Vec<bool>, StoreError> {
        let Self::Project { projects, .. } = self else { return Ok(vec![true; nodes.len()]) };
        let head = self.head();
        let hidden = store.hidden();
        let mut known: HashMap<SessionId, bool> = HashMap::new();
        let mut seen = Vec::with_capacity(nodes.len());
        for (node, session) in nodes.iter().zip(store.sessions_of(nodes).await?) {
            let mut sees = false;
            if let Some(session) = session {
                sees = match known.get(&session) {
                    Some(sees) => *sees,
                    None => {
                        let query = SessionQuery {
                            id: Some(session.clone()),
                            limit: Some(1),
                            ..SessionQuery::default()
                        };
                        let rows = store.sessions(query).await?;
                        // One that was removed is out of sight, as everywhere.
                        let sees = rows.iter().any(|row| row.head.is_some() && projects.shows(&row.cwd));
                        *known.entry(session).or_insert(sees)
                    }
                };
            }
            seen.push(match head {
                _ if hidden.hides(node) => false,
                Some(head) if !sees => store.fork_point(*node, head).await? == Some(*node),
                _ => sees,
            });
        }
        Ok(seen)
    }

    /// The one node that is meant and may be seen.
    ///
    /// # Errors
    /// None or several are meant, or the store failed.
    pub async fn find(&self, store: &dyn Graph, name: &str) -> Result<NodeId, NodeNameError> {
        let found = store.resolve(&Spelling::from(name), &Scope { head: self.head() }).await?;
        let mut found = match found {
            Resolution::None => Vec::new(),
            Resolution::One(one) => vec![one],
            Resolution::Many(many) => many,
        };
        // Sessions and refs have no text of their own.
        found.retain(|candidate| match candidate.by {
            SpellingKind::Head | SpellingKind::Hash | SpellingKind::ExternalId => true,
            SpellingKind::Session | SpellingKind::Ref => false,
        });
        let nodes: Vec<NodeId> = found.iter().map(|candidate| candidate.node).collect();
        let mut sees = self.sees(store, &nodes).await?.into_iter();
        found.retain(|_| sees.next() == Some(true));
        match found.as_slice() {
            [] => Err(NodeNameError::Unknown { name: said_back(name) }),
            [one] => Ok(one.node),
            many => {
                let list = many.iter().map(|one| format!("\n{}  {}", one.node.short(), escaped(&one.role)));
                let (name, count, list) = (said_back(name), many.len(), list.collect());
                Err(NodeNameError::Ambiguous { name, count, list })
            }
        }
    }
}

/// What was asked for, on one line and short.
fn said_back(name: &str) -> String {
    escaped(&one_line(name, SAID_BACK))
}
