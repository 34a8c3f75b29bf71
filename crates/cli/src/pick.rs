//! Which place of the graph is meant: by a name, by the directory, or by asking.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use quipu_protocol::NodeId;
use quipu_store::{Graph, SessionQuery, SessionRow, SpellingKind};

use crate::args::NodeFilter;
use crate::console::current_dir;
use crate::exit::{Exit, Failure};
use crate::home::no_sessions;
use crate::print::{ago, note, one_line};
use quipu_host::now;
use quipu_host::resolve;

/// Sessions that are offered.
const OFFERED: usize = 9;
/// Bytes of an answer at most.
const LONGEST: u64 = 1_024;

/// A place of the graph.
pub(crate) struct Spot {
    pub(crate) node: NodeId,
    pub(crate) session: Option<SessionRow>,
}

impl Spot {
    /// Where its session stands.
    pub(crate) fn head(&self) -> Option<NodeId> {
        self.session.as_ref().and_then(|row| row.head)
    }

    fn of(row: SessionRow) -> Self {
        // One that was removed has its first node left.
        Self { node: row.head.unwrap_or(row.base), session: Some(row) }
    }
}

/// The place that is named; without a name, where the newest session of this directory stands. Where `asks`, and several
/// sessions are there, a person at the terminal is asked.
pub(crate) async fn spot(store: &dyn Graph, what: Option<&str>, asks: bool) -> Result<Spot, Failure> {
    let Some(what) = what else {
        let here = current_dir()?;
        let rows = sessions(store, &here, if asks { OFFERED } else { 1 }).await?;
        return Ok(Spot::of(picked(rows, asks)?));
    };
    let newest = match current_dir() {
        Ok(here) => sessions(store, &here, 1).await?.into_iter().next(),
        // What is named needs no directory; then it only says what `HEAD` means.
        Err(_) => None,
    };
    let found = resolve(store, what, newest.as_ref()).await?;
    let row = match &found.session {
        Some(id) => {
            let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
            store.sessions(query).await?.into_iter().next()
        }
        None => None,
    };
    match row {
        Some(row) if found.by == SpellingKind::Session => Ok(Spot::of(row)),
        session => Ok(Spot { node: found.node, session }),
    }
}

async fn sessions(store: &dyn Graph, here: &Path, limit: usize) -> Result<Vec<SessionRow>, Failure> {
    let cwd = Some(here.to_string_lossy().into_owned());
    Ok(store.sessions(SessionQuery { cwd, limit: Some(limit), ..SessionQuery::default() }).await?)
}

fn picked(mut rows: Vec<SessionRow>, asks: bool) -> Result<SessionRow, Failure> {
    if rows.is_empty() {
        return Err(Failure::usage(
            "no session in this directory; name one (`quipu sessions --all` lists those of every directory)",
        ));
    }
    let is_terminal = crate::console::is_typed()
        && crate::console::stdout().is_terminal()
        && crate::console::shows_people();
    if !asks || !is_terminal || rows.len() == 1 {
        return Ok(rows.swap_remove(0));
    }
    for (at, row) in rows.iter().enumerate() {
        let about = if row.called.is_empty() { &row.title } else { &row.called };
        note(format!("{}  {}  {}", at + 1, ago(now(), row.updated), one_line(about, 60)));
    }
    note(format!("Which session? 1 to {}; Enter for 1", rows.len()));
    let mut line = String::new();
    crate::console::stdin().take(LONGEST).read_line(&mut line)?;
    let chosen = match line.trim() {
        "" => 1,
        number => number.parse().unwrap_or(0),
    };
    if chosen == 0 || chosen > rows.len() {
        let answer = one_line(&line, 20);
        return Err(Failure::usage(format!(
            "`{answer}` is not a number from 1 to {}; nothing was shown",
            rows.len()
        )));
    }
    Ok(rows.swap_remove(chosen - 1))
}

/// The store of a command that reads.
pub(crate) fn store_of(home: &quipu_host::Home) -> Result<std::sync::Arc<dyn Graph>, Failure> {
    Ok(home.store_to_read()?.ok_or_else(|| no_sessions(home))?)
}

/// A node that was there a moment ago.
pub(crate) fn vanished(node: NodeId) -> Failure {
    Failure::new(
        Exit::Store,
        format!("node {node} is missing from the store, though another row names it; run `quipu doctor`"),
    )
}

impl From<NodeFilter> for quipu::history::Filter {
    fn from(filter: NodeFilter) -> Self {
        match filter {
            NodeFilter::Default => Self::Default,
            NodeFilter::NoTools => Self::NoTools,
            NodeFilter::UserOnly => Self::UserOnly,
            NodeFilter::All => Self::All,
        }
    }
}
