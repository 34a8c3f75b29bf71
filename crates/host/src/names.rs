//! What people mean by the names that they give.

use std::path::Path;

use quipu_protocol::NodeId;
use quipu_store::{Candidate, Graph, Resolution, Scope, SessionQuery, SessionRow, SpellingKind};

use crate::{Advice, Failure, NameCandidate, current_dir};

/// Characters of a name that are told.
const WIDTH: usize = 80;
/// Sessions of a directory that are looked at for the newest.
const NEWEST: usize = 4;

/// The newest session of the current directory.
pub async fn newest_here(store: &dyn Graph) -> Result<SessionRow, Failure> {
    newest_in(store, &current_dir()?)
        .await?
        .ok_or_else(|| Failure::request("no session in this directory").advise(Advice::ListSessions))
}

/// The newest session of a directory that takes prompts: those that hold the changes of a memory or a past are left out.
///
/// # Errors
/// What the store says.
pub async fn newest_in(store: &dyn Graph, here: &Path) -> Result<Option<SessionRow>, Failure> {
    let cwd = Some(here.to_string_lossy().into_owned());
    let query = SessionQuery { cwd, limit: Some(NEWEST), ..SessionQuery::default() };
    Ok(store.sessions(query).await?.into_iter().find(|row| !quipu::takes_no_prompts(row)))
}

/// What a person means by a name.
pub async fn resolve(
    store: &dyn Graph,
    what: &str,
    newest: Option<&SessionRow>,
) -> Result<Candidate, Failure> {
    let scope = Scope { head: newest.and_then(|row| row.head) };
    let found = match store.resolve(&what.into(), &scope).await? {
        Resolution::None => by_name(store, what).await?,
        found => found,
    };
    match found {
        Resolution::One(found) => Ok(found),
        Resolution::None => {
            Err(Failure::request(format!("`{}` is no node and no session here", short(what)))
                .advise(Advice::NameSession))
        }
        Resolution::Many(found) => {
            let mut list = Vec::with_capacity(found.len());
            for one in &found {
                list.push(candidate(store, one).await?);
            }
            Err(Failure::request(format!("`{}` could be any of these", short(what)))
                .advise(Advice::OneOf(list)))
        }
    }
}

/// The node that somebody means; of a session its last one, also when it was removed and stands nowhere.
pub async fn last_node(store: &dyn Graph, what: &str) -> Result<NodeId, Failure> {
    let found = resolve(store, what, None).await?;
    let (SpellingKind::Session, Some(session)) = (found.by, &found.session) else { return Ok(found.node) };
    if let Some(head) = session_named(store, session.as_str()).await?.head {
        return Ok(head);
    }
    let ends = store.landmarks(std::slice::from_ref(session), 1).await?;
    Ok(ends.first().map_or(found.node, |end| end.node))
}

/// One of several that could be meant.
async fn candidate(store: &dyn Graph, one: &Candidate) -> Result<NameCandidate, Failure> {
    let is_session = one.by == SpellingKind::Session;
    let about = match one.session.as_ref().filter(|_| is_session) {
        Some(session) => {
            let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
            let row = store.sessions(query).await?.into_iter().next();
            row.map_or_else(String::new, |row| if row.called.is_empty() { row.title } else { row.called })
        }
        None => String::new(),
    };
    let (role, session) = (one.role.clone(), one.session.clone());
    Ok(NameCandidate { node: one.node, role, session, is_session, at: one.timestamp, about })
}

/// Sessions that were given this name.
async fn by_name(store: &dyn Graph, name: &str) -> Result<Resolution, Failure> {
    // As it is kept when it is given.
    let name = name.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let name = name.collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        return Ok(Resolution::None);
    }
    let query = SessionQuery { called: Some(name), limit: Some(20), ..SessionQuery::default() };
    let mut found = Vec::new();
    for row in store.sessions(query).await? {
        match store.resolve(&row.id.as_str().into(), &Scope::default()).await? {
            Resolution::One(one) => found.push(one),
            Resolution::Many(_) | Resolution::None => {}
        }
    }
    Ok(match found.len() {
        1 => found.pop().map_or(Resolution::None, Resolution::One),
        0 => Resolution::None,
        _ => Resolution::Many(found),
    })
}

/// The session that a person means by its id, the beginning of it, or its name.
pub async fn session_named(store: &dyn Graph, what: &str) -> Result<SessionRow, Failure> {
    let found = resolve(store, what, None).await?;
    let session = found.session.filter(|_| found.by == SpellingKind::Session);
    let session = session.ok_or_else(|| {
        Failure::request(format!("`{what}` is a node, not a session")).advise(Advice::ListSessions)
    })?;
    let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
    let rows = store.sessions(query).await?;
    let best = rows.iter().find(|row| row.head.is_some()).or(rows.first());
    best.cloned().ok_or_else(|| Failure::request(format!("there is no session {session} any more")))
}

/// As much of a name as is told.
fn short(what: &str) -> String {
    what.chars().take(WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
