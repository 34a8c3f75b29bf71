//! Sessions whose directory is not there any more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use quipu_store::{SessionQuery, SessionRow, Store};
use quipu_tui::Question;

use crate::args::{Mode, Task};
use crate::confirm::asked_to_open;
use crate::exit::Failure;
use crate::print::{note, one_line, printable};
use crate::setup::Place;

/// Sessions that are looked at for one whose directory is gone.
const LOOKED_AT: usize = 50;

/// Where a session goes on whose directory is gone: here, when the person at the terminal says so.
pub(crate) fn instead(place: &Place, task: &Task, row: &SessionRow, here: &Path) -> Result<PathBuf, Failure> {
    let (what, flag) = (told(row), place.store_flag());
    let question = format!("{what}. Go on with it in {}, as a session of its own?", here.display());
    if task.mode == Mode::Text && asked_to_open(task, Question::Here, &question)? == Some(true) {
        return Ok(here.to_owned());
    }
    let file = task.session.as_deref().filter(|what| crate::session_file::is_file(what));
    Err(Failure::usage(format!(
        "{what}; go on with it here with `quipu -p --session {} --cwd .{flag} \"…\"`, elsewhere with --cwd DIR, or make \
         that directory again",
        file.unwrap_or(row.id.as_str())
    )))
}

/// What is to be said of such a session.
fn told(row: &SessionRow) -> String {
    if row.cwd.is_empty() {
        return format!("session {} does not say in which directory it works", row.id);
    }
    format!("session {} works in {}, which is not there any more", row.id, printable(&row.cwd))
}

/// Where no session of this directory was found: the newest one of a directory beside it, or of its name elsewhere, that
/// is gone may be the one that was meant, from before the directory was moved.
pub(crate) async fn tell_of_lost(store: &dyn Store, here: &Path) -> Result<(), Failure> {
    let query = SessionQuery { limit: Some(LOOKED_AT), ..SessionQuery::default() };
    let mut seen = Seen::default();
    let rows = store.sessions(query).await?;
    let alike = |dir: &Path| dir.file_name() == here.file_name() || dir.parent() == here.parent();
    if let Some(row) = rows.iter().find(|row| alike(Path::new(&row.cwd)) && seen.is_gone(&row.cwd)) {
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        note(format!(
            "{} ({}); `quipu -p --session {} --cwd . \"…\"` would go on with it here.",
            told(row),
            one_line(title, 60),
            row.id
        ));
    }
    Ok(())
}

/// Which directories are there, each looked at once.
#[derive(Default)]
pub(crate) struct Seen(HashMap<String, bool>);

impl Seen {
    pub(crate) fn is_gone(&mut self, dir: &str) -> bool {
        if let Some(gone) = self.0.get(dir) {
            return *gone;
        }
        let gone = !Path::new(dir).is_dir();
        self.0.insert(dir.to_owned(), gone);
        gone
    }
}
