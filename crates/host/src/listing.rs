//! Sessions in a list, and the end of one.

use quipu_protocol::{Entry, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, LineageEnd, SessionQuery, SessionRow, decode_nodes};

use crate::Failure;

/// Entries at the end of a session that are shown when it is opened.
const TAIL: usize = 60;

/// A session in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionItem {
    /// The id of the session.
    pub id: SessionId,
    /// Its name, or the beginning of the first message.
    pub title: String,
    /// Its directory.
    pub cwd: String,
    /// The program that wrote it.
    pub agent: String,
    /// When it was changed last.
    pub updated: UnixMs,
    /// How many nodes it has.
    pub entries: u64,
    /// The cost of all its model calls, in US dollars.
    pub cost: f64,
}

/// The end of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Glimpse {
    /// Its name; empty for none.
    pub name: String,
    /// Its last entries, the oldest first.
    pub tail: Vec<(NodeId, Entry)>,
    /// How many stand before them.
    pub earlier: u64,
    /// The cost of all model calls of the session so far, in US dollars.
    pub cost: f64,
}

/// Sessions that stand somewhere, the last changed first, so many at most.
///
/// # Errors
/// What the store says.
pub async fn list_sessions(store: &dyn Graph, most: usize) -> Result<Vec<SessionItem>, Failure> {
    let rows = store.sessions(SessionQuery { limit: Some(most), ..SessionQuery::default() }).await?;
    let item = |row: SessionRow| SessionItem {
        title: if row.called.is_empty() { row.title } else { row.called },
        id: row.id,
        cwd: row.cwd,
        agent: row.agent,
        updated: row.updated,
        entries: row.entries,
        cost: row.cost,
    };
    Ok(rows.into_iter().filter(|row| row.head.is_some()).map(item).collect())
}

/// The end of a session that stands at `head`.
///
/// # Errors
/// What the store says.
pub async fn tail(store: &dyn Graph, session: &SessionId, head: NodeId) -> Result<Glimpse, Failure> {
    let nodes = store.lineage(head, LineageEnd::Count(TAIL)).await?;
    let decoded = decode_nodes(store, &nodes).await?;
    let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
    let row = store.sessions(query).await?.into_iter().next();
    let all = row.as_ref().map_or(0, |row| row.entries + 1);
    let cut = nodes.len() == TAIL;
    Ok(Glimpse {
        earlier: if cut { all.saturating_sub(TAIL as u64) } else { 0 },
        tail: nodes.iter().zip(decoded).map(|(node, decoded)| (node.id, decoded.entry)).collect(),
        cost: row.as_ref().map_or(0.0, |row| row.cost),
        name: row.map_or_else(String::new, |row| row.called),
    })
}
