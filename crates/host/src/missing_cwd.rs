//! Sessions whose directory is not there any more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use quipu_store::{Graph, SessionQuery, SessionRow};

use crate::{Advice, Failure, Home, HostNotice, OpenRequest, Question};

/// Sessions that are looked at for one whose directory is gone.
const LOOKED_AT: usize = 50;

/// Where a session goes on whose directory is gone: here, when the person at the terminal says so.
pub(crate) fn instead(home: &Home, request: &OpenRequest, row: &SessionRow) -> Result<PathBuf, Failure> {
    let (what, here) = (description(row), &request.here);
    let question = format!("{what}. Continue in {}, in a copy of the session?", here.display());
    if request.answer(Question::Here, &question)? == Some(true) {
        return Ok(here.clone());
    }
    let file = request.session().filter(|what| crate::session_file::is_file(what));
    Err(Failure::request(what).advise(Advice::GoOnElsewhere {
        session: file.unwrap_or(row.id.as_str()).to_owned(),
        store: home.has_named_store().then(|| home.store.clone()),
    }))
}

/// What is to be said of such a session.
fn description(row: &SessionRow) -> String {
    if row.cwd.is_empty() {
        return format!("session {} has no directory", row.id);
    }
    format!("session {} works in {}, which no longer exists", row.id, row.cwd)
}

/// Where no session of this directory was found: the newest one of a directory beside it, or of its name elsewhere, that
/// is gone may be the one that was meant, from before the directory was moved.
pub(crate) async fn hint_at_moved_session(
    home: &Home,
    store: &dyn Graph,
    here: &Path,
) -> Result<(), Failure> {
    let query = SessionQuery { limit: Some(LOOKED_AT), ..SessionQuery::default() };
    let mut seen = MissingDirectories::default();
    let rows = store.sessions(query).await?;
    let alike = |dir: &Path| dir.file_name() == here.file_name() || dir.parent() == here.parent();
    if let Some(row) = rows.iter().find(|row| alike(Path::new(&row.cwd)) && seen.is_gone(&row.cwd)) {
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let title: String = title.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
        home.observer().notice(HostNotice {
            is_warning: false,
            text: format!("{} ({title})", description(row)),
            advice: Some(Advice::GoOnHere(row.id.clone())),
        });
    }
    Ok(())
}

/// Checks which directories exist, each once.
#[derive(Default)]
pub struct MissingDirectories(HashMap<String, bool>);

impl MissingDirectories {
    /// Whether there is no such directory.
    pub fn is_gone(&mut self, dir: &str) -> bool {
        if let Some(gone) = self.0.get(dir) {
            return *gone;
        }
        let gone = !Path::new(dir).is_dir();
        self.0.insert(dir.to_owned(), gone);
        gone
    }
}
