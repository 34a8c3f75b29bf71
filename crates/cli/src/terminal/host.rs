//! What the terminal needs of the rest of the program.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::{Opened, Sealer};
use quipu_protocol::{BashExecutionMessage, Model, NodeId, Notice, SessionId, Thinking};
use quipu_providers::levels;
use quipu_store::Graph;
use quipu_tui::editor::Candidate;
use quipu_tui::terminal::Abilities;
use quipu_tui::{
    Cycled, Doing, Glimpse, Host, HostError, Kept, NotOpened, Open, Printed, ProviderItem, Reach,
    SessionItem, SettingKept, Tell, TreeKind, TreeRow, Which,
};

use tokio_util::sync::CancellationToken;

use crate::args::Task;
use crate::console::{Written, run_within, work_within};
use crate::exit::Failure;
use crate::place::{Told, request};
use crate::print::printable;
use quipu_host::Mirror;
use quipu_host::SavedPermissions;
use quipu_host::{FailureKind, OpenRequest, Place, Started, seal_credentials};

/// Bytes of what a command prints that are shown at most.
const PRINTED: usize = 1 << 20;
/// Sessions that are listed at most.
const LISTED: usize = 100_000;

/// The program around a terminal.
pub(super) struct Surroundings(Arc<Inner>);

struct Inner {
    place: Place,
    /// What the host has told and the terminal has not.
    told: Arc<Told>,
    task: Task,
    here: PathBuf,
    now: Mutex<Now>,
    /// Seals what is kept of the editor.
    sealer: Arc<Sealer>,
    /// What the terminal can do.
    abilities: Abilities,
}

/// What goes with the session that is open.
#[derive(Default)]
struct Now {
    store: Option<Arc<dyn Graph>>,
    permissions: Option<Arc<SavedPermissions>>,
    /// Where the session stood when it was opened.
    from: Option<NodeId>,
    cwd: PathBuf,
    /// The file that the session is written to as well, until it is let go of.
    file: Option<Arc<Mirror>>,
    /// The session that is written to a file whenever it is open, and that file.
    filed: Option<(SessionId, PathBuf)>,
    /// The model that was chosen last, for sessions that have none.
    model: Option<(String, String)>,
    thinking: Option<Thinking>,
}

impl Surroundings {
    pub(super) fn new(
        place: Place,
        told: Arc<Told>,
        task: &Task,
        here: PathBuf,
        sealer: Arc<Sealer>,
        abilities: Abilities,
    ) -> Self {
        let now = Now { cwd: here.clone(), ..Now::default() };
        let now = Mutex::new(now);
        Self(Arc::new(Inner { place, told, task: task.clone(), here, now, sealer, abilities }))
    }

    /// The end of the last session: its file is brought up to date and let go of. What there is to tell.
    pub(super) async fn finish(&self) -> Option<String> {
        self.0.let_go().await
    }

    /// Does something with what is inside.
    fn doing<T, W>(&self, work: impl FnOnce(Arc<Inner>) -> W) -> Doing<T>
    where
        W: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Send + 'static,
    {
        let work = work(self.0.clone());
        Box::pin(async move { work.await.map_err(|failure| HostError::Failed { message: failure.message }) })
    }
}

impl Inner {
    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store of the session that is open, or of none.
    fn store(&self) -> Result<Option<Arc<dyn Graph>>, Failure> {
        let open = self.now().store.clone();
        match open {
            Some(store) => Ok(Some(store)),
            None => Ok(self.place.store_to_read()?.map(|store| store as Arc<dyn Graph>)),
        }
    }

    /// How the terminal looks by the settings of now, and what is wrong with them.
    fn look(&self) -> (quipu_tui::Theme, Vec<String>) {
        let looks = super::looks::looks(&self.place, self.abilities);
        (looks.theme, looks.problems)
    }

    /// A setting of sessions is kept. One that plays a recording cannot be opened again.
    fn kept(&self, mut told: String) -> SettingKept {
        let reopens = self.task.replay.is_none();
        if !reopens {
            told.push_str("; this session goes on as it began, the next one has it");
        }
        SettingKept { told, theme: None, reopens }
    }

    /// The task that opens a session.
    fn request_of(&self, open: &Open) -> Result<OpenRequest, Failure> {
        let mut request = request(&self.task, &self.here)?;
        request.answers = open.answers.iter().map(|(question, yes)| (*question, Some(*yes))).collect();
        request.offers_caches = true;
        let now = self.now();
        request.memory = now.store.clone().filter(|_| request.in_memory);
        let mut model = open.model.clone();
        let mut thinking = open.thinking;
        match &open.which {
            Which::Asked => {}
            Which::New => {
                (request.which, request.cwd) = (quipu_host::Which::New, None);
                model = model.or_else(|| now.model.clone());
                thinking = thinking.or(now.thinking);
            }
            Which::Session(id) => {
                let file = now.filed.as_ref().filter(|(filed, _)| filed == id);
                let named = file.map_or_else(|| id.to_string(), |(_, path)| path.display().to_string());
                request.which = quipu_host::Which::Session(named);
                // What the command line said was for the session that it opened.
                (request.cwd, request.model, request.provider, request.thinking) = (None, None, None, None);
            }
        }
        if let Some((provider, id)) = model {
            request.model = Some(format!("{provider}/{id}"));
            request.provider = None;
        }
        if let Some(level) = thinking {
            request.thinking = Some(level);
        }
        Ok(request)
    }

    /// Lets go of the file of the session that was open; what there is to tell.
    async fn let_go(&self) -> Option<String> {
        let file = self.now().file.take()?;
        file.finish().await.err().map(|failure| failure.message)
    }

    async fn open(&self, open: Open) -> Result<quipu_tui::Opened, NotOpened> {
        let lacks = self.let_go().await;
        let mut request = self.request_of(&open).map_err(|failure| NotOpened::Failed(failure.message))?;
        let settings = self.place.settings();
        let others = settings.default_model().is_some();
        let failed = |failure: quipu_host::Failure| match failure.kind {
            FailureKind::Asks(question) => {
                NotOpened::Asks(Box::new(open.clone()), question, printable(&failure.message))
            }
            FailureKind::Credential => NotOpened::NoModel { why: Failure::from(failure).message, others },
            _ => NotOpened::Failed(Failure::from(failure).message),
        };
        seal_credentials(&self.sealer, &settings);
        let asks_for_none = request.model.is_none() && request.provider.is_none();
        let goes_on = request.which != quipu_host::Which::New;
        if !others && asks_for_none && !goes_on && self.task.replay.is_none() {
            let why = "No model can be used yet: no provider's key is known.".to_owned();
            return Err(NotOpened::NoModel { why, others });
        }
        if let Some(path) = &self.task.replay {
            let replay = quipu_replay::Replay::open(path, quipu_replay::Places::of(&self.here));
            request.replay = Some(Arc::new(replay.map_err(|error| NotOpened::Failed(error.to_string()))?));
        }
        let started = quipu_host::open(&self.place, &request).await.map_err(failed)?;
        let Started { store, model, thinking, opened, permissions, file, .. } = started;
        let Opened { session, mut troubles } = opened;
        let view = session.view();
        let read = match view.head {
            Some(head) => quipu_host::tail(&*store, &view.session, head)
                .await
                .map_err(|failure| NotOpened::Failed(Failure::from(failure).message))?,
            None => Glimpse::default(),
        };
        let mode = permissions.mode().word();
        let directory = session.cwd().display().to_string();
        {
            let mut now = self.now();
            now.cwd = session.cwd().to_owned();
            now.from = view.head;
            now.store = Some(store);
            if let Some(file) = &file {
                now.filed = Some((view.session.clone(), PathBuf::from(&file.path)));
            }
            now.file = file;
            now.permissions = Some(permissions);
            now.model = open.model.or(now.model.take());
            now.thinking = open.thinking.or(now.thinking);
        }
        let told = |text: String| Notice::Note {
            text: text.strip_prefix("warning: ").map_or(text.clone(), str::to_owned),
        };
        troubles.splice(..0, self.told.take().into_iter().chain(lacks).map(told));
        Ok(quipu_tui::Opened {
            session: Arc::new(session),
            troubles,
            levels: levels(&model),
            model,
            thinking,
            directory,
            permissions: mode.to_owned(),
            end: read,
        })
    }

    /// Runs a command of the program, for the same store.
    async fn run(&self, mut words: Vec<String>, shown: bool) -> (Written, Result<(), Failure>) {
        let first = words.first().map(String::as_str).unwrap_or_default();
        if self.place.has_named_store() && !matches!(first, "permissions" | "auth" | "models") {
            // A path that is no text was named by text that was.
            let store = self.place.store.to_string_lossy().into_owned();
            words.splice(1..1, ["--store".to_owned(), store]);
        }
        let here = self.now().cwd.clone();
        run_within(words, here, shown).await
    }
}

/// What a search found, as the terminal shows it.
fn found_items(found: crate::search::Results) -> quipu_tui::FoundItems {
    let mut items = quipu_host::search::found_items(&found.results, quipu_host::now());
    for item in &mut items {
        item.text = printable(&item.text);
        item.detail = printable(&item.detail);
    }
    quipu_tui::FoundItems { found: items, told: found.told }
}

/// A row as the terminal shows it.
fn shown(mut row: TreeRow) -> TreeRow {
    row.text = printable(&row.text);
    if let TreeKind::Folded { .. } = row.kind {
        row.text.push_str("; → shows them");
    }
    row
}

fn all_shown(rows: Vec<TreeRow>) -> Vec<TreeRow> {
    rows.into_iter().map(shown).collect()
}

impl Host for Surroundings {
    fn open(&self, open: Open) -> Pin<Box<dyn Future<Output = Result<quipu_tui::Opened, NotOpened>> + Send>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.open(open).await })
    }

    fn glimpse(&self, open: &Open) -> Doing<Option<Glimpse>> {
        let request = self.0.request_of(open);
        self.doing(|inner| async move {
            let request = request?;
            let told = match &request.which {
                quipu_host::Which::Newest => true,
                quipu_host::Which::Session(what) => !quipu_host::is_file(what),
                quipu_host::Which::New | quipu_host::Which::Fork(_) => false,
            };
            if !told || request.in_memory || request.cwd.is_some() {
                return Ok(None);
            }
            let Some(store) = inner.store()? else { return Ok(None) };
            let row = quipu_host::find_session(&*store, &request).await?;
            match row.and_then(|row| Some((row.id, row.head?))) {
                Some((session, head)) => Ok(Some(quipu_host::tail(&*store, &session, head).await?)),
                None => Ok(None),
            }
        })
    }

    fn models(&self) -> Doing<Vec<Arc<Model>>> {
        self.doing(|inner| async move {
            let models = move || quipu_host::callable_models(&inner.place);
            tokio::task::spawn_blocking(models).await.map_err(Failure::failed)
        })
    }

    fn cycled(&self) -> Doing<Vec<Cycled>> {
        self.doing(|inner| async move {
            let models = move || quipu_host::cycled_models(&inner.place);
            Ok(tokio::task::spawn_blocking(models).await.map_err(Failure::failed)??)
        })
    }

    fn levels(&self, model: &Model) -> Vec<Thinking> {
        levels(model)
    }

    fn sessions(&self) -> Doing<Vec<SessionItem>> {
        self.doing(|inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            Ok(quipu_host::list_sessions(&*store, LISTED).await?)
        })
    }

    fn tree(&self, reach: Reach, below: bool) -> Doing<Vec<TreeRow>> {
        self.doing(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            let cwd = match reach {
                Reach::Session(session) => {
                    let from = inner.now().from;
                    let rows = quipu_host::tree_rows(&*store, &session, from, !below).await?;
                    return Ok(all_shown(rows));
                }
                Reach::Project => Some(inner.now().cwd.display().to_string()),
                Reach::All => None,
            };
            Ok(all_shown(quipu_host::session_rows(&*store, cwd, LISTED).await?))
        })
    }

    fn unfold(&self, below: NodeId, depth: u64, count: u64, level: usize) -> Doing<Vec<TreeRow>> {
        self.doing(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            Ok(all_shown(quipu_host::unfolded_rows(&*store, below, depth, count, level).await?))
        })
    }

    fn search(&self, words: Vec<String>) -> Doing<quipu_tui::FoundItems> {
        self.doing(|inner| async move {
            let (place, here) = (inner.place.clone(), inner.now().cwd.clone());
            let work = async move || {
                let args = crate::search::args_of(words)?;
                let results = Box::pin(crate::search::find(&place, &args)).await?;
                Ok(results.map(found_items))
            };
            Ok(work_within(here, false, work).await.1?.unwrap_or_default())
        })
    }

    fn said(&self, head: NodeId) -> Doing<Vec<(NodeId, String)>> {
        self.doing(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            let said = quipu_host::user_messages(&*store, head).await?;
            Ok(said.into_iter().map(|(node, text)| (node, printable(&text))).collect())
        })
    }

    fn preview(&self, node: NodeId) -> Doing<String> {
        self.doing(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(String::new()) };
            let mut text = Vec::new();
            crate::show::write_whole(&*store, &node.to_string(), false, &mut text).await?;
            text.truncate(64 << 10);
            Ok(String::from_utf8_lossy(&text).into_owned())
        })
    }

    fn resolve(&self, name: String) -> Doing<NodeId> {
        self.doing(|inner| async move {
            let store = inner.store()?.ok_or_else(|| Failure::usage("nothing is stored yet"))?;
            Ok(quipu_host::resolve(&*store, &name, None).await?.node)
        })
    }

    fn compare(&self, a: NodeId, b: NodeId, columns: usize) -> Doing<String> {
        self.doing(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(String::new()) };
            crate::diff::compared(&*store, a, b, columns).await
        })
    }

    fn arguments(&self, command: String, head: Option<NodeId>) -> Doing<Vec<Candidate>> {
        let models = (command == "model").then(|| self.models());
        self.doing(move |inner| async move {
            if let Some(models) = models {
                let models = models.await.map_err(Failure::failed)?;
                let models = models.iter().map(|model| quipu_host::suggested_model(model));
                return Ok(models.map(super::arguments::candidate).collect());
            }
            let place = &inner.place;
            if let Some(known) = super::arguments::known(place, &command) {
                return Ok(known);
            }
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            if let "undo" | "redo" = command.as_str() {
                let engine = place.engine(store, &place.settings())?;
                return super::arguments::steps(&engine, &command, head).await;
            }
            super::arguments::stored(&*store, &command, head).await
        })
    }

    fn set(&self, setting: String) -> Doing<SettingKept> {
        self.doing(move |inner| async move {
            let told = super::arguments::set(&inner.place, &setting)?;
            let name = setting.split_whitespace().next().unwrap_or_default();
            Ok(match name {
                "theme" => {
                    let (theme, problems) = inner.look();
                    let told = [vec![told], problems].concat().join("\n");
                    SettingKept { told, theme: Some(Box::new(theme)), reopens: false }
                }
                _ => inner.kept(told),
            })
        })
    }

    fn edited(&self) -> Doing<SettingKept> {
        self.doing(move |inner| async move {
            let told = "The settings hold from here on; `terminal` and `screenReader` from the next start on";
            let kept = inner.kept(told.to_owned());
            let (theme, problems) = inner.look();
            let told = [vec![kept.told], problems].concat().join("\n");
            let named = inner.place.settings_json().unwrap_or_default()["theme"].is_string();
            Ok(SettingKept { told, theme: named.then(|| Box::new(theme)), ..kept })
        })
    }

    fn clone_session(&self, session: SessionId) -> Doing<SessionId> {
        self.doing(move |inner| async move {
            let store = inner.store()?.ok_or_else(|| Failure::usage("nothing is stored yet"))?;
            let engine = inner.place.engine(store, &inner.place.settings())?;
            Ok(engine.clone_session(&session).await?.session)
        })
    }

    fn command(&self, words: Vec<String>) -> Doing<Printed> {
        self.doing(|inner| async move {
            let mode = crate::permissions::mode_set_by(&words);
            let permissions = inner.now().permissions.clone();
            if let Some(why) = mode.zip(permissions.as_ref()).and_then(|(mode, all)| all.refuses(mode)) {
                return Ok(Printed { err: why, ..Printed::default() });
            }
            let (written, result) = inner.run(words, false).await;
            let text = |mut bytes: Vec<u8>| {
                let cut = bytes.len() > PRINTED;
                bytes.truncate(PRINTED);
                let mut text = String::from_utf8_lossy(&bytes).into_owned();
                if cut {
                    text.push_str("\n… and more");
                }
                text
            };
            let mut err = text(written.err);
            let ok = result.is_ok();
            if let Err(failure) = result {
                err.push_str(&printable(&failure.message));
            }
            if let Some(permissions) = permissions.filter(|_| ok && mode.is_some()) {
                permissions.mode_was_saved();
            }
            Ok(Printed { out: text(written.out), err, ok })
        })
    }

    fn run_unkept(
        &self,
        line: String,
        hidden: bool,
        stop: CancellationToken,
        tell: Tell,
    ) -> Doing<BashExecutionMessage> {
        self.doing(move |inner| async move {
            let engine = inner.place.engine_in_memory(&inner.place.settings())?;
            let cwd = inner.now().cwd.clone();
            Ok(engine.run_unkept(&cwd, line, hidden, stop, tell).await)
        })
    }

    fn local_servers(&self) -> Doing<quipu_tui::LocalServers> {
        self.doing(|inner| async move {
            let look = move || quipu_host::local_servers(&inner.place);
            tokio::task::spawn_blocking(look).await.map_err(Failure::failed)
        })
    }

    fn providers(&self) -> Doing<Vec<ProviderItem>> {
        self.doing(|inner| async move {
            let list = move || quipu_host::key_providers(&inner.place);
            tokio::task::spawn_blocking(list).await.map_err(Failure::failed)
        })
    }

    fn keep_key(&self, provider: String, key: String, unasked: bool) -> Doing<Kept> {
        self.doing(move |inner| async move {
            Ok(quipu_host::keep_key(&inner.place, &provider, &key, unasked).await?)
        })
    }

    fn settings_path(&self) -> PathBuf {
        self.0.place.home.join("settings.json")
    }

    fn foreground(&self, words: Vec<String>) -> Doing<()> {
        self.doing(|inner| async move { inner.run(words, true).await.1 })
    }

    fn git_branch(&self) -> Option<String> {
        let cwd = self.0.now().cwd.clone();
        let git = cwd.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())?;
        let head = if git.is_file() {
            let text = small(&git)?;
            cwd.join(text.trim().strip_prefix("gitdir: ")?).join("HEAD")
        } else {
            git.join("HEAD")
        };
        let text = small(&head)?;
        let text = text.trim();
        Some(match text.strip_prefix("ref: refs/heads/") {
            Some(branch) => branch.to_owned(),
            None => text.get(..8)?.to_owned(),
        })
    }
}

/// A small text file of a repository, which may be anything.
fn small(path: &std::path::Path) -> Option<String> {
    let (file, _) = quipu_workspace::open_for_reading(path).ok()?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, 4 << 10), &mut text).ok()?;
    Some(text)
}
