//! Which sessions a search sees.

use std::collections::HashMap;
use std::path::Path;

use quipu_protocol::SessionId;
use quipu_store::{Graph, SessionQuery, StoreError};

use crate::project_root;

/// The sessions of a project: those that work in its directory or below it, and not in a repository of their own there.
pub(super) struct ProjectSessions<'a> {
    store: &'a dyn Graph,
    projects: &'a [String],
    known: HashMap<SessionId, bool>,
}

impl<'a> ProjectSessions<'a> {
    pub(super) fn new(store: &'a dyn Graph, projects: &'a [String]) -> Self {
        Self { store, projects, known: HashMap::new() }
    }

    pub(super) async fn has(&mut self, session: &SessionId) -> Result<bool, StoreError> {
        if let Some(known) = self.known.get(session) {
            return Ok(*known);
        }
        let query = SessionQuery {
            id: Some(session.clone()),
            children: true,
            limit: Some(1),
            ..SessionQuery::default()
        };
        let rows = self.store.sessions(query).await?;
        let is_of = |cwd: &str| {
            let root = project_root(Path::new(cwd));
            self.projects.iter().any(|project| root == Path::new(project))
        };
        let has = rows.iter().any(|row| is_of(&row.cwd));
        self.known.insert(session.clone(), has);
        Ok(has)
    }
}
