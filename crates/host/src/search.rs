//! What was said and done, looked for in every session of the store.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{
    Graph, Hit, IndexBacklog, MatchMode, Order, QUERY_LIMIT, ReadModel as _, SearchHits, SearchQuery,
    SessionQuery, SessionRow, Sessions, Speaker, Upkeep,
};

use crate::text::{ago, one_line, title_of};
use crate::{Advice, Failure, Home, SemanticReport, SemanticSearch, last_node};

/// Hits of one session that are shown.
const OF_A_SESSION: usize = 5;
/// Hits at most, whatever is asked for.
const MOST: usize = 10_000;
/// Columns of a found text.
const WIDTH: usize = 300;
/// Columns of a session's title.
const TITLE: usize = 60;

/// A search, as a person wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRequest {
    /// The words to look for.
    pub words: String,
    /// Whether whole words or parts of words match.
    pub matching: MatchMode,
    /// Only what this program wrote.
    pub agent: Option<String>,
    /// Only in sessions of this directory, which may be gone.
    pub project: Option<PathBuf>,
    /// Only messages of these authors.
    pub speakers: Vec<Speaker>,
    /// Only calls and results of this tool.
    pub tool: Option<String>,
    /// Only nodes of this time or later, in milliseconds since 1970.
    pub since: Option<UnixMs>,
    /// Only what was done to this file.
    pub file: Option<String>,
    /// Only what leads to this node, or to the end of this session.
    pub branch: Option<String>,
    /// The best first, not the newest.
    pub best: bool,
    /// Hits at most; 0 for all that there may be, and for all of each session.
    pub limit: usize,
    /// Combine the search by words with a semantic search.
    pub semantic: bool,
    /// What is new is indexed before.
    pub wait: bool,
}

/// What is done before the search itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchProgress {
    /// Text is indexed: so many percent of words, and of parts of words.
    Indexing {
        /// Percent of words.
        words: u64,
        /// Percent of parts of words.
        parts: u64,
    },
    /// Vectors are made; so many nodes are left.
    Vectors {
        /// Nodes.
        left: u64,
    },
}

/// What a search came to.
pub struct SearchResults {
    /// The hits, with what the index does not have yet.
    pub found: SearchHits,
    /// The sessions of the hits.
    pub rows: SessionRows,
    /// The work and the cost of a semantic search.
    pub compared: Option<SemanticReport>,
}

/// Sessions that were looked up.
#[derive(Debug, Default)]
pub struct SessionRows(HashMap<SessionId, Option<SessionRow>>);

impl SessionRows {
    async fn look_up(&mut self, store: &dyn Graph, id: Option<&SessionId>) -> Result<(), Failure> {
        if let Some(id) = id.filter(|id| !self.0.contains_key(*id)) {
            let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
            let row = store.sessions(query).await?.into_iter().next();
            self.0.insert(id.clone(), row);
        }
        Ok(())
    }

    /// The session of a hit.
    pub fn get(&self, id: Option<&SessionId>) -> Option<&SessionRow> {
        self.0.get(id?).and_then(Option::as_ref)
    }
}

/// Searches the store; `None` where there is none yet. How far it is with what is done before is told to `tell`.
///
/// # Errors
/// `Request` where nothing is named to look for; what the store says, and what makes vectors.
pub async fn find(
    home: &Home,
    request: &SearchRequest,
    tell: &(dyn Fn(SearchProgress) + Sync),
) -> Result<Option<SearchResults>, Failure> {
    let Some(store) = home.existing_store().await? else { return Ok(None) };
    let semantic = if request.semantic { Some(SemanticSearch::of(home, store.clone())?) } else { None };
    let query = query(&*store, request).await?;
    if request.wait {
        finish_index(&*store, tell).await?;
    }
    let (found, compared) = match semantic {
        None => (store.search(query).await?, None),
        Some(semantic) => {
            let tell = |left: u64| {
                if request.wait {
                    tell(SearchProgress::Vectors { left });
                }
            };
            let (found, compared) = semantic.search(&store, query, request.wait, tell).await?;
            (found, Some(compared))
        }
    };
    let mut rows = SessionRows::default();
    for hit in &found.hits {
        rows.look_up(&*store, hit.session.as_ref()).await?;
    }
    Ok(Some(SearchResults { found, rows, compared }))
}

async fn query(store: &dyn Graph, request: &SearchRequest) -> Result<SearchQuery, Failure> {
    let branch = match &request.branch {
        None => None,
        Some(what) => Some(last_node(store, what).await?),
    };
    let limit = if request.limit == 0 { MOST } else { request.limit.min(MOST) };
    let query = SearchQuery {
        words: request.words.clone(),
        matching: request.matching,
        agent: request.agent.clone(),
        project: request.project.as_deref().map(directory).transpose()?,
        speakers: request.speakers.clone(),
        tool: request.tool.clone(),
        since: request.since,
        file: request.file.clone(),
        without_tools: Vec::new(),
        // Who names a session or a node wants it, removed or not.
        sessions: if branch.is_some() { Sessions::All } else { Sessions::Standing },
        order: if request.best { Order::Best } else { Order::Newest },
        branch,
        limit,
        per_session: (request.branch.is_none() && request.limit != 0).then_some(OF_A_SESSION),
        // A person sees that it is.
        withdrawn: true,
    };
    let conditions = query.speakers.len()
        + usize::from(query.agent.is_some() || query.project.is_some())
        + usize::from(query.tool.is_some() || query.file.is_some());
    if query.words.len() > QUERY_LIMIT {
        return Err(Failure::request(format!(
            "the search words are longer than the limit of {QUERY_LIMIT} bytes; use fewer"
        )));
    }
    let advice = match (query.words.trim().is_empty(), request.semantic) {
        (true, true) if !request.wait => Advice::OnlyVectors,
        (true, false) if conditions == 0 => Advice::SayWords,
        _ => return Ok(query),
    };
    Err(Failure::request("give words or a filter to search for").advise(advice))
}

/// A directory as sessions spell it; one that is gone by its name.
fn directory(path: &Path) -> Result<String, Failure> {
    let found = path.canonicalize().or_else(|_| std::path::absolute(path));
    match found {
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(error) => Err(Failure::request(format!("{}: {error}", path.display()))),
    }
}

/// Indexes all that is not, and tells how far it is. Dropped, it goes on from there the next time.
///
/// # Errors
/// What the store says.
pub async fn finish_index(store: &dyn Upkeep, tell: &(dyn Fn(SearchProgress) + Sync)) -> Result<(), Failure> {
    let mut left = store.index().await?;
    let all = left;
    while left != IndexBacklog::default() {
        let done = |left: u64, all: u64| 100 - (100 * left).checked_div(all).unwrap_or(0).min(100);
        let (words, parts) = (done(left.words, all.words), done(left.substrings, all.substrings));
        tell(SearchProgress::Indexing { words, parts });
        left = store.index().await?;
    }
    Ok(())
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundItems {
    /// The hits, in the order of the search.
    pub found: Vec<FoundItem>,
    /// What is to be known of the search, in lines: such as that not all is indexed yet.
    pub notes: Vec<String>,
}

/// A node in which words were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundItem {
    /// The node that holds the words.
    pub node: NodeId,
    /// Its session; `None` where it is in none that stands.
    pub session: Option<SessionId>,
    /// Who said or did it, and what stands around the words, in one line.
    pub text: String,
    /// Its session, for people.
    pub detail: String,
}

/// What was found, as rows of a list.
pub fn found_items(results: &SearchResults, now: UnixMs) -> Vec<FoundItem> {
    let item = |hit: &Hit| {
        let row = results.rows.get(hit.session.as_ref());
        let cut = |cut: bool| if cut { "…" } else { "" };
        let (before, after) = (cut(hit.excerpt.cut_before), cut(hit.excerpt.cut_after));
        let who = hit.tool.as_ref().unwrap_or(&hit.role);
        let mut detail = one_line(row.map_or("", title_of), TITLE);
        if let Some(row) = row.filter(|row| row.agent != quipu::AGENT) {
            detail.push_str(&format!(" · {}", one_line(&row.agent, TITLE)));
        }
        detail.push_str(&format!(" · {}", ago(now, hit.at)));
        if let Some(withdrawn) = hit.withdrawn {
            detail.push_str(&format!(" · {}", withdrawn.name()));
        }
        FoundItem {
            node: hit.node,
            // One that was removed cannot be gone on with where it stands.
            session: hit.session.clone().filter(|_| row.is_none_or(|row| row.head.is_some())),
            text: format!("{}: {before}{}{after}", one_line(who, TITLE), one_line(&hit.excerpt.text, WIDTH)),
            detail,
        }
    };
    results.found.hits.iter().map(item).collect()
}
