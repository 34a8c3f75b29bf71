//! Memories in a home: which are open in a directory, and what a session reads of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{Engine, Sealer, SessionOptions};
use quipu_memory::context::MemorySource;
use quipu_memory::files::{FileProblem, list_files};
use quipu_memory::notes::Notebook;
use quipu_memory::search::{MemoryNotes, MemoryTools};
use quipu_memory::{ForgetList, MemoryError, MemoryHome, MemoryKind, MemoryPlace, project_root};
use quipu_protocol::ChunkId;
use quipu_store::Graph;
use sha2::{Digest as _, Sha256};

use crate::memory_flush::FlushSource;
use crate::past_opening::PastOpening;
use crate::past_tools::{LookupMisses, PastTools};
use crate::purposes::FLUSH_PURPOSE;
use crate::settings::{SettingsFile, set_setting};
use crate::{
    Advice, DREAM_PURPOSE, Failure, Home, OpenRequest, Question, bounded_file, has_background_budget,
    state_file,
};

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Store(error) => error.into(),
            error @ (MemoryError::Name(_)
            | MemoryError::ReadOnly(_)
            | MemoryError::File { .. }
            | MemoryError::Adoption { .. }) => Self::request(error),
            error => Self::failed(error),
        }
    }
}

/// The memories of a home.
pub fn memory_home(home: &Home) -> MemoryHome {
    MemoryHome::new(&home.dir)
}

/// The memories that are open in a directory: none where memory is off there, or by the settings.
///
/// # Errors
/// Where the file of choices cannot be used.
pub fn memory_places(home: &Home, cwd: &Path) -> Result<Vec<MemoryPlace>, Failure> {
    if !home.config().memory.enabled {
        return Ok(Vec::new());
    }
    Ok(memory_home(home).open(cwd)?)
}

/// The same, to be read and changed.
///
/// # Errors
/// As [`memory_places`].
pub fn notebooks(
    home: &Home,
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    cwd: &Path,
) -> Result<Vec<Notebook>, Failure> {
    let places = memory_places(home, cwd)?.into_iter();
    let memory = memory_home(home);
    Ok(places.map(|place| Notebook::new(&memory, place, store.clone(), sealer.clone())).collect())
}

/// Whether a session of this request reads memories at all.
fn is_possible(home: &Home, request: &OpenRequest) -> bool {
    let config = home.config();
    let is_open = !request.is_shared || config.memory.shared;
    // What is recorded or replayed is one conversation.
    let is_whole = request.record.is_none() && request.replay.is_none();
    config.memory.enabled && is_open && is_whole && !request.in_memory && !request.no_context_files
}

/// Asks once in each project, where memory is used in another one.
pub(crate) fn ask(home: &Home, request: &OpenRequest, cwd: &Path) -> Result<(), Failure> {
    if !is_possible(home, request) || !home.config().memory.asks {
        return Ok(());
    }
    let memory = memory_home(home);
    let project = project_root(cwd);
    let choices = match memory.choices() {
        Ok(choices) => choices,
        Err(error) => {
            home.warn(error.to_string());
            return Ok(());
        }
    };
    if !choices.is_on_anywhere() || choices.of(&project).is_some() {
        return Ok(());
    }
    let mut text = format!(
        "Memory is on in other projects. Keep one for {} too? Notes in {}, which you can read, edit and remove.",
        project.display(),
        memory.project(&project).root.display()
    );
    if let Some(lost) = memory.lost(&project)?.first() {
        text.push_str(&format!(
            " If this project was {}, which is not there any more, say no and adopt the memory that it had.",
            lost.project.display()
        ));
    }
    if let Some(on) = request.answer(Question::Memory, &text)? {
        memory.choose(&project, |choice| choice.on = on)?;
    }
    Ok(())
}

/// Entries that are named in a notice.
const NAMED: usize = 5;
/// Bytes of what was reported of a memory last.
const REPORTED: u64 = 1_024;

/// Says once which entries of a memory's directory are left out, until they are others.
pub(crate) fn report_problems(home: &Home, request: &OpenRequest, cwd: &Path) {
    if !is_possible(home, request) || request.is_unattended || request.is_shared {
        return;
    }
    let memory = memory_home(home);
    for place in memory_places(home, cwd).unwrap_or_default() {
        let problems = list_files(&place.root).problems;
        let reported = memory.state().join(format!("{}.reported", place.id));
        let named = |(path, problem): &(PathBuf, FileProblem)| {
            let path = path.strip_prefix(&place.root).unwrap_or(path).to_string_lossy();
            format!("{} ({problem})", path.replace(char::is_control, "?"))
        };
        let all: Vec<String> = problems.iter().map(named).collect();
        let seen = ChunkId(Sha256::digest(all.join("\n")).into()).to_string();
        let before = bounded_file::read(&reported, REPORTED).unwrap_or_default();
        if all.is_empty() || before == seen.as_bytes() {
            continue;
        }
        let more = if all.len() > NAMED { ", and others" } else { "" };
        let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let text = format!("Not read in {}: {named}{more}", place.root.display());
        home.warn_with(text, Advice::MemoryStatus);
        if let Err(error) = state_file::replace(&reported, &seen) {
            tracing::debug!(%error, "what was reported of a memory was not kept");
        }
    }
}

/// US dollars a day that a person is asked to allow for dreams, and for notes before compactions.
const DREAM_DOLLARS: f64 = 0.10;

/// Asks once what dreams and notes before compactions may cost, where dreams are on.
pub(crate) fn ask_for_money(home: &Home, request: &OpenRequest) -> Result<(), Failure> {
    if !is_possible(home, request)
        || has_background_budget(home, DREAM_PURPOSE)
        || crate::dreams::dreaming_places(home)?.is_empty()
    {
        return Ok(());
    }
    let text = format!(
        "A model can shorten what dreams promote to MEMORY.md at night (`{DREAM_PURPOSE}`), and note what is worth keeping before a \
         conversation is compacted (`{FLUSH_PURPOSE}`), for up to ${DREAM_DOLLARS:.2} a day each (budget.background). May it?"
    );
    if let Some(allows) = request.answer(Question::DreamBudget, &text)? {
        let mut budgets = serde_json::json!(home.config().budget.background);
        for purpose in [DREAM_PURPOSE, FLUSH_PURPOSE] {
            if !has_background_budget(home, purpose) {
                budgets[purpose] = serde_json::json!(if allows { DREAM_DOLLARS } else { 0.0 });
            }
        }
        set_setting(home, &SettingsFile::User, "budget.background", &budgets.to_string())
            .map_err(crate::setup::setting_failure)?;
    }
    Ok(())
}

/// Lets a new session read the memories that are open where it works. One that goes on keeps what it has read.
pub(crate) fn install_sections(
    options: &mut SessionOptions,
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
) {
    let books = open_books(options, home, engine, request);
    if !books.is_empty() {
        let today = jiff::Zoned::now().date();
        match ForgetList::read(&memory_home(home)) {
            Ok(forgotten) => {
                let source = MemorySource::new(books, today).without(forgotten);
                options.context_sources.push(Arc::new(source));
            }
            Err(error) => home.warn(format!("No memory is read: {error}")),
        }
    }
}

/// Gives a session, new or not, the tools of the memories that are open where it works, and notes before its compactions. What
/// the tools search is given back.
pub(crate) fn install_tools(
    options: &mut SessionOptions,
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
) -> Option<MemoryNotes> {
    let books = open_books(options, home, engine, request);
    if books.is_empty() {
        return None;
    }
    // Notes before a compaction are the project's.
    let own =
        books.iter().find(|book| matches!(book.place().kind, MemoryKind::Project | MemoryKind::Workspace));
    if let Some(book) = own {
        let flush = FlushSource::new(home.clone(), book.clone(), engine.store().clone());
        options.context_sources.push(Arc::new(flush));
    }
    let notes = crate::memory_notes(home, engine.store(), engine.sealer(), &options.cwd);
    let time = home.config().time.clone();
    if time.is_on && !request.is_unattended {
        let scope = crate::past::project_past(&options.cwd);
        let words = notes.as_ref().ok().and_then(Option::as_ref);
        let words = words.and_then(|notes| notes.search().words().cloned());
        let past = PastOpening::new(engine.store().clone(), scope, time, words);
        options.context_sources.push(Arc::new(past));
    }
    match notes {
        Ok(Some(notes)) => {
            if !request.is_unattended {
                crate::watch_memory(home, &options.cwd, engine.store(), engine.sealer(), notes.search());
            }
            options.tool_sources.push(Arc::new(MemoryTools::new(notes.clone())));
            let (store, sealer) = (engine.store().clone(), engine.sealer().clone());
            let scope = crate::past::project_past(&options.cwd);
            let past = PastTools::new(home, store, sealer, scope, LookupMisses::default());
            options.tool_sources.push(Arc::new(past));
            Some(notes)
        }
        Ok(None) => None,
        Err(failure) => {
            home.warn(failure.message);
            None
        }
    }
}

fn open_books(
    options: &SessionOptions,
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
) -> Vec<Notebook> {
    if !is_possible(home, request) {
        return Vec::new();
    }
    notebooks(home, engine.store(), engine.sealer(), &options.cwd).unwrap_or_else(|failure| {
        home.warn(failure.message);
        Vec::new()
    })
}

/// Directories of memories that tools of sessions in `cwd` may read, and never write.
pub(crate) fn readable(home: &Home, cwd: &Path) -> Vec<PathBuf> {
    let places = memory_places(home, cwd).unwrap_or_default().into_iter();
    places
        .filter(|place| place.kind != MemoryKind::Repository && place.root.is_dir())
        .map(|place| place.root)
        .collect()
}
