//! What a client means by an id.

use quipu_protocol::NodeId;
use quipu_store::{Graph, Resolution, Scope, SessionQuery, SessionRow, Spelling, SpellingKind, StoreError};
use quipu_transcript::one_line;

use crate::error::CallError;
use crate::reach::Reach;

/// Sessions that are looked through for those of a scope.
const LOOKED_THROUGH: usize = 2_000;
/// Sessions that are read at a time to find the newest.
const NEWEST: usize = 20;
/// Bytes of an id at most.
const LONGEST: usize = 256;
/// Characters of an id that messages repeat.
const SHOWN: usize = 80;

/// A place of the graph.
pub(crate) struct Place {
    pub(crate) node: NodeId,
    /// The session, where the id is that of a session.
    pub(crate) session: Option<SessionRow>,
    /// Where the node's session stands, where that is known.
    pub(crate) head: Option<NodeId>,
}

/// The place that is named; without a name, where the newest session of the scope stands.
pub(crate) async fn place(store: &dyn Graph, reach: &Reach, id: Option<&str>) -> Result<Place, CallError> {
    let Some(id) = id.map(str::trim).filter(|id| !id.is_empty()) else {
        return newest(store, reach).await;
    };
    if id.len() > LONGEST {
        return Err(CallError::Arguments(format!("id has {} bytes; the limit is {LONGEST}", id.len())));
    }
    if id == "HEAD" {
        return newest(store, reach).await;
    }
    let found = store.resolve(&Spelling::from(id), &Scope { head: None }).await?;
    let mut found = match found {
        Resolution::None => Vec::new(),
        Resolution::One(one) => vec![one],
        Resolution::Many(many) => many,
    };
    let nodes: Vec<NodeId> = found.iter().map(|candidate| candidate.node).collect();
    let mut sees = reach.sight().sees(store, &nodes).await?.into_iter();
    found.retain(|_| sees.next() == Some(true));
    let one = match found.as_slice() {
        [one] => one,
        [] => {
            return Err(CallError::Name(format!(
                "Nothing in {} has the id \"{}\". Give a node's id as `search` shows it, at least 4 characters of it, or \
                 the id of a session.",
                reach.words(),
                one_line(id, SHOWN)
            )));
        }
        many => {
            let list: Vec<String> = many.iter().map(|one| one.node.to_string()).collect();
            return Err(CallError::Name(format!(
                "{} nodes have the id \"{}\"; give one of: {}",
                many.len(),
                one_line(id, SHOWN),
                list.join(", ")
            )));
        }
    };
    let row = match &one.session {
        Some(session) => {
            let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
            store.sessions(query).await?.into_iter().next().filter(|row| reach.shows(&row.cwd))
        }
        None => None,
    };
    let head = row.as_ref().and_then(|row| row.head);
    let session = row.filter(|_| one.by == SpellingKind::Session);
    Ok(Place { node: one.node, session, head })
}

async fn newest(store: &dyn Graph, reach: &Reach) -> Result<Place, CallError> {
    let mut skip = 0;
    loop {
        let (rows, more) = sessions(store, reach, skip, NEWEST).await?;
        skip += NEWEST;
        let heads: Vec<NodeId> = rows.iter().filter_map(|row| row.head).collect();
        // One that stands where it was forked from a session outside is passed over.
        let sees = reach.sight().sees(store, &heads).await?;
        let rows = rows.into_iter().filter_map(|row| row.head.map(|node| (node, row)));
        if let Some(((node, row), _)) = rows.zip(sees).find(|(_, sees)| *sees) {
            return Ok(Place { node, head: Some(node), session: Some(row) });
        }
        if !more {
            return Err(CallError::Name(format!("There is no session in {} yet.", reach.words())));
        }
    }
}

/// Sessions of the scope, the last changed first, without the first `skip`, and whether there are more.
pub(crate) async fn sessions(
    store: &dyn Graph,
    reach: &Reach,
    skip: usize,
    most: usize,
) -> Result<(Vec<SessionRow>, bool), StoreError> {
    // Mostly the newest session is one of the directory itself.
    let mut wanted = skip.saturating_add(most).saturating_add(1).max(50);
    loop {
        let limit = wanted.min(LOOKED_THROUGH);
        let rows = store.sessions(SessionQuery { limit: Some(limit), ..SessionQuery::default() }).await?;
        let is_all = rows.len() < limit || limit == LOOKED_THROUGH;
        let mut rows: Vec<SessionRow> =
            rows.into_iter().filter(|row| row.head.is_some() && reach.shows(&row.cwd)).collect();
        if is_all || rows.len() > skip + most {
            let more = rows.len() > skip + most;
            rows.truncate(skip + most);
            rows.drain(..skip.min(rows.len()));
            return Ok((rows, more));
        }
        wanted = limit * 8;
    }
}
