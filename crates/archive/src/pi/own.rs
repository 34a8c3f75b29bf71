//! Sessions of our own that stand in a file: those that go on with what is in it, or began it.

use std::path::{Path, PathBuf};

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use quipu_store::{
    Action, ActionQuery, Commit, Graph, LandmarkKind, RefName, SessionQuery, SessionRow, StoreError,
};
use quipu_transcript::INTERNAL;
use serde::{Deserialize, Serialize};

use super::AGENT;

/// The action that notes which session of ours is written to which file.
const FILED: &str = "QUIPU_SESSION_FILE";
/// Ends of branches of one session that are looked at.
const ENDS: usize = 100_000;

/// A link between a session of ours and the file that it is written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileLink {
    format: String,
    /// The file, absolute and without links.
    pub(super) path: PathBuf,
    /// The session of the file's header.
    pub(super) session: SessionId,
    /// The session of ours.
    pub(super) own: SessionId,
}

/// The sessions of ours in a file.
#[derive(Debug, Default)]
pub(super) struct OwnSessions {
    /// The first node of everything, where a session of ours began the file.
    pub(super) root: Option<Node>,
    /// The sessions.
    pub(super) rows: Vec<SessionRow>,
    /// The ends of their branches, and where they stand.
    pub(super) ends: Vec<NodeId>,
    /// Those that are written to this file, as far as was noted.
    filed: Vec<FileLink>,
}

/// Notes that a session of ours is written to a file, before the first of it is.
pub(super) async fn file_under(
    store: &dyn Graph,
    path: &Path,
    session: &SessionId,
    own: &SessionId,
) -> Result<(), StoreError> {
    let filed =
        FileLink { format: AGENT.into(), path: path.to_owned(), session: session.clone(), own: own.clone() };
    if all(store).await?.contains(&filed) {
        return Ok(());
    }
    let action = Action {
        timestamp: crate::import_cache::now(),
        kind: FILED.into(),
        from: None,
        to: None,
        metadata: serde_json::to_string(&filed).ok(),
    };
    store.commit(Commit { actions: vec![action], ..Commit::default() }).await
}

/// All that was noted, the newest first.
async fn all(store: &dyn Graph) -> Result<Vec<FileLink>, StoreError> {
    let query = ActionQuery { kinds: vec![FILED.into()], ..ActionQuery::default() };
    let logged = store.actions(query).await?.into_iter();
    let filed = logged.filter_map(|logged| serde_json::from_str::<FileLink>(&logged.action.metadata?).ok());
    Ok(filed.filter(|filed| filed.format == AGENT).collect())
}

/// The session of ours that was to begin a file which holds nothing yet, when there is something in it.
pub(super) async fn began(store: &dyn Graph, path: &Path) -> Result<Option<SessionRow>, StoreError> {
    let Some(filed) = all(store).await?.into_iter().find(|filed| filed.path == path) else { return Ok(None) };
    if filed.session != filed.own {
        return Ok(None);
    }
    row(store, &filed.own).await.map(|row| row.filter(|row| row.head.is_some()))
}

/// The sessions of ours that were noted as written to this very file and are not there, the newest first.
pub(super) async fn unbegun(
    store: &dyn Graph,
    path: &Path,
    session: &SessionId,
) -> Result<Vec<SessionId>, StoreError> {
    let mut unbegun = Vec::new();
    for filed in all(store).await? {
        if filed.path == path && filed.session == *session && row(store, &filed.own).await?.is_none() {
            unbegun.push(filed.own);
        }
    }
    Ok(unbegun)
}

/// A session that we write.
async fn row(store: &dyn Graph, id: &SessionId) -> Result<Option<SessionRow>, StoreError> {
    let query = SessionQuery { id: Some(id.clone()), ..SessionQuery::default() };
    let rows = store.sessions(query).await?;
    Ok(rows.into_iter().find(|row| row.name == RefName::session(&row.id)))
}

impl OwnSessions {
    /// What can stand in a file of this session.
    pub(super) async fn of(store: &dyn Graph, session: &SessionId) -> Result<Self, StoreError> {
        let filed: Vec<FileLink> =
            all(store).await?.into_iter().filter(|filed| filed.session == *session).collect();
        let mut own = Self { filed, ..Self::default() };
        if let Some(row) = row(store, session).await? {
            let first = store.ancestor(row.head.unwrap_or(row.base), 0).await?.unwrap_or(row.base);
            own.root = store.nodes(&[first]).await?.into_iter().flatten().next();
            own.rows.push(row);
        }
        for filed in own.filed.iter().rev() {
            if own.rows.iter().all(|row| row.id != filed.own) {
                own.rows.extend(row(store, &filed.own).await?);
            }
        }
        if own.rows.is_empty() {
            return Ok(own);
        }
        let ids: Vec<SessionId> = own.rows.iter().map(|row| row.id.clone()).collect();
        own.ends = own.rows.iter().filter_map(|row| row.head).collect();
        let marks = store.landmarks(&ids, ENDS).await?;
        let ends = marks.into_iter().filter(|mark| mark.kind == LandmarkKind::End).map(|mark| mark.node);
        own.ends.extend(ends);
        Ok(own)
    }

    /// The ends of what was said in them; labels and such, which may stand beside the file, are none.
    pub(super) async fn left(&self, store: &dyn Graph) -> Result<Vec<NodeId>, StoreError> {
        let nodes = store.nodes(&self.ends).await?.into_iter().flatten();
        Ok(nodes.filter(|node| node.record.role != INTERNAL).map(|node| node.id).collect())
    }

    /// Whether a session was noted as written to this very file.
    pub(super) fn is_filed(&self, path: &Path, own: &SessionId) -> bool {
        self.filed.iter().any(|filed| filed.path == path && filed.own == *own)
    }
}
