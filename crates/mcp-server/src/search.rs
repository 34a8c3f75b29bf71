//! The tool `search`.

use std::collections::{HashMap, HashSet};

use quipu_history::{BEGIN_HISTORY, framed, instant, minute};
use quipu_protocol::SessionId;
use quipu_store::{
    Excerpt, Graph, Hit, IndexBacklog, QUERY_LIMIT, SearchQuery, SessionQuery, SessionRow, Sessions,
};
use quipu_transcript::one_line;
use serde::Deserialize;

use crate::archive::{Archive, Page, now};
use crate::error::CallError;
use crate::reach::Reach;

/// Hits of a page.
const PAGE: usize = 20;
/// Hits of all pages.
const MOST: usize = 500;
/// Hits that may have come in between two pages.
const SHIFT: usize = 20;
/// Bytes of a page.
const BUDGET: usize = 8_000;
/// Characters of a title, of a directory and of a name.
const NAME: usize = 80;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchArguments {
    #[serde(default)]
    query: String,
    file: Option<String>,
    since: Option<String>,
    cursor: Option<String>,
}

/// Hits, the newest first.
pub(crate) async fn search(
    archive: &Archive,
    reach: &Reach,
    arguments: SearchArguments,
) -> Result<Page, CallError> {
    let store = archive.store()?;
    let store: &dyn Graph = &*store;
    let words = sealed(archive, "query", &arguments.query)?;
    let file = arguments.file.as_deref().map(|file| sealed(archive, "file", file)).transpose()?;
    if words.trim().is_empty() && file.is_none() {
        return Err(CallError::Arguments("give words in `query`, or a `file`".into()));
    }
    let since = match &arguments.since {
        None => None,
        Some(text) => Some(instant(text, now()).ok_or_else(|| {
            CallError::Arguments(format!(
                "since is \"{}\": give a date or how long ago, such as 2026-01-31 or 3d",
                one_line(text, NAME)
            ))
        })?),
    };
    let after = arguments.cursor.as_deref().map(Cursor::read).transpose()?;
    let skip = after.as_ref().map_or(0, |after| after.passed);
    let limit = skip + PAGE + if after.is_some() { SHIFT } else { 0 } + 1;
    let (mut hits, mut notes, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let (mut behind, mut cut) = (IndexBacklog::default(), false);
    for project in reach.projects() {
        let query = SearchQuery {
            words: words.clone(),
            project,
            file: file.clone(),
            since,
            sessions: Sessions::Standing,
            limit,
            ..SearchQuery::default()
        };
        let found = store.search(query).await?;
        behind.words = behind.words.max(found.behind.words);
        cut |= found.cut;
        hits.extend(found.hits.into_iter().filter(|hit| seen.insert(hit.node)));
    }
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.at));
    let from = after.map_or(0, |after| after.place(&hits));
    let left = hits.get(from..).unwrap_or_default();
    let page = &left[..left.len().min(PAGE)];
    let mut rows = HashMap::new();
    for id in page.iter().filter_map(|hit| hit.session.as_ref()) {
        if !rows.contains_key(id) {
            let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
            rows.insert(id.clone(), store.sessions(query).await?.into_iter().next());
        }
    }
    let (body, shown) = lines(page, &rows);
    notes.push(match shown {
        0 if from > 0 => "No more hits.".to_owned(),
        0 => format!("Nothing was found in {}.", reach.words()),
        shown => format!("Hits {} to {} in {}, newest first.", from + 1, from + shown, reach.words()),
    });
    if behind.words > 0 {
        notes.push(format!("The newest {} nodes are not indexed yet and were not searched.", behind.words));
    }
    if cut {
        notes.push("Older hits may be missing: use a narrower query.".into());
    }
    let mut next = None;
    if left.len() > shown && shown > 0 {
        if from + shown < MOST {
            let last = &page[shown - 1];
            next = Some(format!("{}.{}", from + shown, last.node.short()));
        } else {
            notes.push(format!("Only the newest {MOST} hits are shown: use a narrower query."));
        }
    }
    let text = framed(BEGIN_HISTORY, &format!("{}\n{body}", notes.join(" ")));
    Ok(Page { text, next })
}

/// What is searched for, as the store has it.
fn sealed(archive: &Archive, name: &str, text: &str) -> Result<String, CallError> {
    let sealed = archive.sealer.seal(text).into_owned();
    if sealed.len() > QUERY_LIMIT {
        let size = sealed.len();
        return Err(CallError::Arguments(format!("{name} has {size} bytes; the limit is {QUERY_LIMIT}")));
    }
    Ok(sealed)
}

/// Where a page ended.
struct Cursor {
    /// Hits up to there.
    passed: usize,
    /// The last of them: what came in since shifts the others.
    last: String,
}

impl Cursor {
    fn read(text: &str) -> Result<Self, CallError> {
        let read = text.split_once('.').and_then(|(passed, last)| {
            let passed = passed.parse().ok().filter(|passed| *passed <= MOST)?;
            Some(Self { passed, last: last.to_owned() })
        });
        read.ok_or_else(|| CallError::Arguments("cursor is none that a search gave".into()))
    }

    fn place(&self, hits: &[Hit]) -> usize {
        let last = hits.iter().rposition(|hit| hit.node.short() == self.last);
        last.map_or(self.passed, |last| last + 1)
    }
}

/// Hits in groups, a session each, and how many there was room for.
fn lines(hits: &[Hit], rows: &HashMap<SessionId, Option<SessionRow>>) -> (String, usize) {
    let (mut body, mut shown) = (String::new(), 0);
    let mut group: Option<Option<&SessionId>> = None;
    for hit in hits {
        let mut lines = String::new();
        if group != Some(hit.session.as_ref()) {
            lines.push_str(&session_line(hit.session.as_ref(), rows));
        }
        lines.push_str(&format!("  {}  {}  {}", hit.node.short(), minute(hit.at), one_line(&hit.role, NAME)));
        if let Some(tool) = &hit.tool {
            lines.push_str(&format!(" {}", one_line(tool, NAME)));
        }
        let Excerpt { text, cut_before, cut_after, marks: _ } = &hit.excerpt;
        let [before, after] = [cut_before, cut_after].map(|cut| if *cut { "…" } else { "" });
        lines.push_str(&format!("  {before}{text}{after}\n"));
        if body.len() + lines.len() > BUDGET && shown > 0 {
            break;
        }
        body.push_str(&lines);
        group = Some(hit.session.as_ref());
        shown += 1;
    }
    (body, shown)
}

fn session_line(id: Option<&SessionId>, rows: &HashMap<SessionId, Option<SessionRow>>) -> String {
    let Some(id) = id else { return "no session\n".into() };
    match rows.get(id).and_then(Option::as_ref) {
        Some(row) => format!("{}\n", row_line(row)),
        None => format!("session {}\n", id.as_str()),
    }
}

/// A session on one line.
pub(crate) fn row_line(row: &SessionRow) -> String {
    format!(
        "session {}: {} ({}, {})",
        row.id.as_str(),
        one_line(title(row), NAME),
        one_line(&row.agent, NAME),
        one_line(&row.cwd, NAME)
    )
}

/// The name of a session, or what it began with.
pub(crate) fn title(row: &SessionRow) -> &str {
    if row.called.is_empty() { &row.title } else { &row.called }
}
