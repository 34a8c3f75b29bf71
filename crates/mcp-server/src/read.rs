//! The tools `read`, `around` and `how`.

use jiff::tz::TimeZone;
use quipu_history::{
    BEGIN_HISTORY, Filter, LifeQuery, RecallQuery, TextDetail, TraceQuery, framed, life_seen, minute,
    recall_seen, shortened, text_of,
};
use quipu_protocol::NodeId;
use quipu_store::{Graph, LineageEnd, LoggedAction, SessionRow, StoreError, decode_nodes};
use quipu_transcript::{one_line, role_with};
use serde::Deserialize;

use crate::archive::{Archive, Page, now};
use crate::error::CallError;
use crate::place::place;
use crate::reach::Reach;
use crate::search::row_line;

/// Code units of a page of a node.
pub(crate) const NODE_PAGE: u64 = 8_000;
/// Messages of a page of a session.
const MESSAGES: usize = 20;
/// Nodes that are read for a page of a session.
const NODES: usize = 120;
/// Code units of each message of a session.
const MESSAGE: u64 = 500;
/// Rows of a page of `how`.
const ROWS: usize = 15;
/// Lines of `around`.
const AROUND: usize = 80;
/// Characters of a role.
const ROLE: usize = 40;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadArguments {
    pub(crate) id: String,
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaceArguments {
    id: Option<String>,
    cursor: Option<String>,
}

/// A node in full, or the messages of a session, a page at a time.
pub(crate) async fn read(
    archive: &Archive,
    reach: &Reach,
    arguments: ReadArguments,
) -> Result<Page, CallError> {
    let store = archive.store()?;
    let store: &dyn Graph = &*store;
    let found = place(store, reach, Some(&arguments.id)).await?;
    match found.session {
        Some(row) => messages(store, reach, &row, arguments.cursor.as_deref()).await,
        None => node(store, reach, found.node, arguments.cursor.as_deref()).await,
    }
}

async fn node(
    store: &dyn Graph,
    reach: &Reach,
    node: NodeId,
    cursor: Option<&str>,
) -> Result<Page, CallError> {
    let offset = match cursor {
        None => 0,
        Some(text) => text.parse().map_err(|_| stale_cursor())?,
    };
    if store.hidden().hides(&node) {
        return Err(CallError::Name(format!("What node {} says was forgotten.", node.short())));
    }
    let query = RecallQuery { budget: NODE_PAGE, offset, context_budget: 0, ..RecallQuery::new(node) };
    let found = recall_seen(store, &query, reach.sight()).await?;
    let next = (found.ends() < found.total).then(|| found.ends().to_string());
    Ok(Page { text: found.text(now()), next })
}

/// The newest messages of a session that stand before the cursor, the oldest of them first.
pub(crate) async fn messages(
    store: &dyn Graph,
    reach: &Reach,
    row: &SessionRow,
    cursor: Option<&str>,
) -> Result<Page, CallError> {
    let mut at = match (cursor, row.head) {
        (Some(text), _) => Some(text.parse::<NodeId>().map_err(|_| stale_cursor())?),
        (None, head) => head,
    };
    let mut lines = Vec::new();
    let mut read = 0;
    while let Some(end) = at.filter(|_| lines.len() < MESSAGES && read < NODES) {
        let nodes = match store.lineage(end, LineageEnd::Count(MESSAGES)).await {
            Err(StoreError::Missing { .. }) if cursor.is_some() && read == 0 => return Err(stale_cursor()),
            Err(StoreError::Missing { .. }) => break,
            nodes => nodes?,
        };
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let sees = reach.sight().sees(store, &ids).await?;
        let decoded = decode_nodes(store, &nodes).await?;
        // Behind what is seen: a node that was forgotten meanwhile is no end of the session.
        let hidden = store.hidden();
        read += nodes.len();
        at = None;
        for ((node, decoded), sees) in nodes.iter().zip(decoded).zip(sees).rev() {
            if lines.len() >= MESSAGES {
                at = Some(node.id);
                break;
            }
            let is_hidden = hidden.hides(&node.id);
            if !sees && !is_hidden {
                // It was forked from a session that may not be seen.
                at = None;
                break;
            }
            at = node.record.parent;
            let role = role_with(node, &decoded.entry);
            if Filter::Default.shows(role) && !is_hidden {
                let text = shortened(&text_of(&decoded.entry, TextDetail::Shortened), MESSAGE);
                lines.push(format!(
                    "{}  {}  {}: {text}",
                    node.id.short(),
                    minute(node.record.timestamp),
                    one_line(role, ROLE)
                ));
            }
        }
    }
    lines.reverse();
    let next = at.map(|node| node.to_string());
    let earlier = if next.is_some() { "..." } else { "(beginning)" };
    let body = format!("{}\n{earlier}\n{}", row_line(row), lines.join("\n"));
    Ok(Page { text: framed(BEGIN_HISTORY, &body), next })
}

/// What stands before and after a node.
pub(crate) async fn around(
    archive: &Archive,
    reach: &Reach,
    arguments: PlaceArguments,
) -> Result<Page, CallError> {
    let store = archive.store()?;
    let store: &dyn Graph = &*store;
    let depth = match &arguments.cursor {
        None => 6,
        Some(text) => text.parse().ok().filter(|depth| *depth <= 48).ok_or_else(stale_cursor)?,
    };
    let found = place(store, reach, arguments.id.as_deref()).await?;
    let query = LifeQuery {
        head: found.head,
        ancestors: depth,
        max_depth: depth,
        most: AROUND.max(AROUND * depth / 6),
        ..LifeQuery::new(found.node)
    };
    let life = match life_seen(store, &query, reach.sight()).await {
        Err(StoreError::Missing { .. }) => {
            return Err(CallError::Name(format!("there is no node {} in the store", found.node.short())));
        }
        life => life?,
    };
    // Each can be read, also those that no session can go to.
    let text = life.text_hiding(now(), |_| false);
    let next = (life.earlier && depth < 48).then(|| (depth * 2).to_string());
    Ok(Page { text, next })
}

/// How a lineage came about.
pub(crate) async fn how(
    archive: &Archive,
    reach: &Reach,
    arguments: PlaceArguments,
) -> Result<Page, CallError> {
    let store = archive.store()?;
    let store: &dyn Graph = &*store;
    let before = match &arguments.cursor {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| stale_cursor())?),
    };
    let found = place(store, reach, arguments.id.as_deref()).await?;
    let query = TraceQuery { limit: ROWS, before, ..TraceQuery::new(found.node) };
    let mut trace = quipu_history::trace(store, &query).await?;
    let next = trace.rows.last().filter(|_| trace.more).map(|row| row.id.to_string());
    trace.more = false;
    // Rows of sessions that may not be seen carry words of theirs.
    let ends = |row: &LoggedAction| [row.action.from, row.action.to].into_iter().flatten();
    let nodes: Vec<NodeId> = trace.rows.iter().flat_map(ends).collect();
    let sees = reach.sight().sees(store, &nodes).await?;
    let seen: std::collections::HashSet<NodeId> =
        nodes.iter().zip(sees).filter(|(_, sees)| *sees).map(|(node, _)| *node).collect();
    trace.rows.retain(|row| ends(row).all(|node| seen.contains(&node)));
    Ok(Page { text: trace.text(&TimeZone::UTC), next })
}

fn stale_cursor() -> CallError {
    CallError::Arguments("cursor is none that this tool gave for this id".into())
}
