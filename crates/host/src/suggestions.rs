//! What a person may mean next: sessions, bookmarks, labels, messages and steps to choose from.

use std::collections::HashMap;

use quipu::{Engine, TimeStep};
use quipu_past::{ChunkEntry, PastIndex, PastScope};
use quipu_protocol::{Model, NodeId};
use quipu_store::{Graph, SessionQuery, SessionRow};

use crate::entry::entry_line;
use crate::text::{ago, one_line, title_of};
use crate::tree::user_messages;
use crate::{Failure, Home, now};

/// Columns of a text.
const WIDTH: usize = 60;
/// Sessions, messages and labels at most.
const MOST: usize = 500;
/// Steps of undo and redo at most.
const STEPS: usize = 20;
/// Chunks of a past at most.
const CHUNKS: usize = 50;
/// Ends of branches at most.
const ENDS: usize = 50;

/// Something to choose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Suggestion {
    /// What it is, in one line.
    pub text: String,
    /// What names it, where that is not the text.
    pub name: String,
    /// More about it; empty for none.
    pub detail: String,
}

impl Suggestion {
    fn new(text: impl Into<String>, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { text: text.into(), name: name.into(), detail: detail.into() }
    }
}

/// Which steps through a session's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// Those that can be taken back.
    Undo,
    /// Those that were, and can be done again.
    Redo,
}

/// The coarsest chunks of a past by their keys, the newest first.
///
/// # Errors
/// What the store says.
pub async fn suggested_chunks(store: &dyn Graph, scope: &PastScope) -> Result<Vec<Suggestion>, Failure> {
    let index = PastIndex::read(store, scope).await?;
    let one = |chunk: &&ChunkEntry| {
        let of = match chunk.children.len() {
            0 => format!("{} nodes", chunk.sources),
            count => format!("{count} chunks"),
        };
        Suggestion::new(index.key(chunk), "", format!("a summary of {of}"))
    };
    Ok(index.roots().iter().rev().take(CHUNKS).map(one).collect())
}

/// A suggestion that names a model.
pub fn suggested_model(model: &Model) -> Suggestion {
    Suggestion::new(format!("{}/{}", model.provider, model.id), "", model.name.clone())
}

/// Providers, each with where its credential is from.
pub fn suggested_providers(home: &Home) -> Vec<Suggestion> {
    let settings = home.settings();
    let one = |id: &str| {
        let has = settings.credential_source(id).map(|source| format!("has a key: {source}"));
        Suggestion::new(id, "", has.unwrap_or_default())
    };
    settings.providers().into_iter().map(one).collect()
}

/// Agents whose sessions can be imported.
pub fn suggested_agents() -> Vec<Suggestion> {
    quipu_archive::AGENTS.iter().map(|agent| Suggestion::new(agent.name, "", "")).collect()
}

/// Steps back or forward, by number: what each is, and what the session that stands at `head` stands at then.
///
/// # Errors
/// Where the session cannot be moved, and what the store says.
pub async fn suggested_steps(
    engine: &Engine,
    which: Steps,
    head: Option<NodeId>,
) -> Result<Vec<Suggestion>, Failure> {
    let Some(head) = head else { return Ok(Vec::new()) };
    let store = &**engine.store();
    let Some(session) = store.sessions_of(&[head]).await?.into_iter().flatten().next() else {
        return Ok(Vec::new());
    };
    let steps = match which {
        Steps::Undo => engine.undoable(&session, STEPS).await?,
        Steps::Redo => engine.redoable(&session, STEPS).await?,
    };
    let ends: Vec<NodeId> = steps.iter().filter_map(|step| step.to).collect();
    let nodes: Vec<_> = store.nodes(&ends).await?.into_iter().flatten().collect();
    let decoded = quipu_store::decode_nodes(store, &nodes).await?;
    let says: HashMap<NodeId, String> = nodes
        .iter()
        .zip(decoded)
        .map(|(node, decoded)| (node.id, entry_line(&decoded.entry, WIDTH)))
        .collect();
    let row = |(at, step): (usize, &TimeStep)| {
        let end = match step.to {
            Some(to) => format!("to {} {}", to.short(), says.get(&to).map_or("", String::as_str)),
            None => "the session does not exist then".to_owned(),
        };
        Suggestion::new((at + 1).to_string(), "", format!("{}, {end}", step.kind))
    };
    Ok(steps.iter().enumerate().map(row).collect())
}

/// Sessions that can be gone on with, the last changed first.
///
/// # Errors
/// What the store says.
pub async fn suggested_sessions(store: &dyn Graph) -> Result<Vec<Suggestion>, Failure> {
    let now = now();
    let query = SessionQuery { limit: Some(MOST), ..SessionQuery::default() };
    let rows = store.sessions(query).await?.into_iter().filter(|row| row.head.is_some());
    let one = |row: SessionRow| {
        let detail = format!("{} · {}", ago(now, row.updated), one_line(&row.cwd, WIDTH));
        Suggestion::new(one_line(title_of(&row), WIDTH), row.id.to_string(), detail)
    };
    Ok(rows.map(one).collect())
}

/// Bookmarks.
///
/// # Errors
/// What the store says.
pub async fn suggested_bookmarks(store: &dyn Graph) -> Result<Vec<Suggestion>, Failure> {
    let heads = store.heads(quipu_store::BOOKMARK).await?;
    let name = |head: &quipu_store::Head| {
        let name = head.name.bookmarked()?;
        Some(Suggestion::new(name, "", head.node.short()))
    };
    Ok(heads.iter().filter_map(name).collect())
}

/// Labels that were given in the session of this node, each once.
///
/// # Errors
/// What the store says.
pub async fn suggested_labels(store: &dyn Graph, head: NodeId) -> Result<Vec<Suggestion>, Failure> {
    let Some(session) = store.sessions_of(&[head]).await?.into_iter().flatten().next() else {
        return Ok(Vec::new());
    };
    let mut texts: Vec<String> =
        store.labels(std::slice::from_ref(&session)).await?.into_iter().map(|label| label.text).collect();
    texts.sort_unstable();
    texts.dedup();
    Ok(texts.into_iter().map(|text| Suggestion::new(text, "", "")).collect())
}

/// Nodes of a session that stands at this node: those with a label, and what the user said before it; with the `ends` of its
/// branches, where they are wanted.
///
/// # Errors
/// What the store says.
pub async fn suggested_nodes(
    store: &dyn Graph,
    head: NodeId,
    ends: bool,
) -> Result<Vec<Suggestion>, Failure> {
    let session = store.sessions_of(&[head]).await?.into_iter().flatten().next();
    let labels = match &session {
        Some(session) => store.labels(std::slice::from_ref(session)).await?,
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for label in labels.into_iter().take(MOST) {
        let Some(target) = label.target else { continue };
        let detail = format!("label of {}", target.short());
        found.push(Suggestion::new(one_line(&label.text, WIDTH), target.to_string(), detail));
    }
    for (node, message) in user_messages(store, head).await?.into_iter().take(MOST) {
        found.push(Suggestion::new(one_line(&message, WIDTH), node.to_string(), node.short()));
    }
    if let Some(session) = session.filter(|_| ends) {
        for end in store.landmarks(&[session], ENDS).await? {
            let text = format!("branch that ends with {}", end.node.short());
            found.push(Suggestion::new(text, end.node.to_string(), ""));
        }
    }
    Ok(found)
}
