//! What the terminal needs of the rest of the program.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::{OpenedSession, Sealer};
use quipu_protocol::{BashExecutionMessage, Model, NodeId, Notice, SessionId, Thinking};
use quipu_providers::{LoginOptions, levels};
use quipu_store::Graph;
use quipu_tui::editor::Candidate;
use quipu_tui::terminal::Abilities;
use quipu_tui::{
    CommandOutput, CycleModel, Glimpse, Host, HostError, HostFuture, KeyOutcome, ModelChoice, OpenError,
    OpenTarget, OutputPiece, OutputSink, PastRow, ProviderItem, Reach, SessionItem, SessionRequest,
    SettingOutcome, TreeKind, TreeRow,
};

use tokio_util::sync::CancellationToken;

use crate::args::Task;
use crate::console::{CapturedOutput, CapturedPiece, ProgressSink, run_within, work_within};
use crate::exit::Failure;
use crate::home::{NoticeBuffer, request};
use crate::print::printable;
use quipu_host::CommandRegistry;
use quipu_host::Mirror;
use quipu_host::SavedPermissions;
use quipu_host::settings::Effect;
use quipu_host::{
    FailureKind, Home, LoginMethod, LoginOffer, OpenRequest, ProviderLogin, RestrictionConsent, Settings,
    StartedSession, seal_credentials,
};

/// Bytes of what a command prints that are shown at most.
const PRINTED: usize = 1 << 20;
/// Sessions that are listed at most.
const LISTED: usize = 100_000;

/// The host of a terminal: the user's files and the open session.
pub(super) struct TerminalHost(Arc<Inner>);

struct Inner {
    home: Home,
    /// What the host has told and the terminal has not.
    notices: Arc<NoticeBuffer>,
    task: Task,
    here: PathBuf,
    current: Mutex<SessionContext>,
    /// Seals what is kept of the editor.
    sealer: Arc<Sealer>,
    /// What the terminal can do.
    abilities: Abilities,
}

/// The state that belongs to the open session.
#[derive(Default)]
struct SessionContext {
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

impl TerminalHost {
    pub(super) fn new(
        home: Home,
        notices: Arc<NoticeBuffer>,
        task: &Task,
        here: PathBuf,
        sealer: Arc<Sealer>,
        abilities: Abilities,
    ) -> Self {
        let current = SessionContext { cwd: here.clone(), ..SessionContext::default() };
        let current = Mutex::new(current);
        Self(Arc::new(Inner { home, notices, task: task.clone(), here, current, sealer, abilities }))
    }

    /// The end of the last session: its file is brought up to date and let go of. What there is to tell.
    pub(super) async fn finish(&self) -> Option<String> {
        self.0.let_go().await
    }

    /// Does something with what is inside.
    fn with_inner<T, W>(&self, work: impl FnOnce(Arc<Inner>) -> W) -> HostFuture<T>
    where
        W: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Send + 'static,
    {
        let work = work(self.0.clone());
        Box::pin(async move { work.await.map_err(|failure| HostError::Failed { message: failure.message }) })
    }
}

impl Inner {
    fn current(&self) -> std::sync::MutexGuard<'_, SessionContext> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store of the session that is open, or of none.
    fn store(&self) -> Result<Option<Arc<dyn Graph>>, Failure> {
        let open = self.current().store.clone();
        match open {
            Some(store) => Ok(Some(store)),
            None => Ok(self.home.store_to_read()?.map(|store| store as Arc<dyn Graph>)),
        }
    }

    /// The settings as they hold where the session works, with what the command line said.
    fn settings(&self) -> Settings {
        let cwd = self.current().cwd.clone();
        let flags = crate::home::flags(&self.task);
        self.home.config_in(&cwd).with_flags(&flags)
    }

    /// How the terminal looks by the settings of now, and what is wrong with them.
    fn look(&self) -> (quipu_tui::Theme, Vec<String>) {
        let appearance = super::appearance::appearance(&self.home, self.abilities);
        (appearance.theme, appearance.problems)
    }

    /// A setting of sessions is kept. One that plays a recording cannot be opened again.
    fn kept(&self, mut message: String) -> SettingOutcome {
        let reopens = self.task.replay.is_none();
        if !reopens {
            message.push_str("; this session does not change, the next one uses it");
        }
        SettingOutcome { message, theme: None, reopens }
    }

    /// The task that opens a session.
    fn request_of(&self, open: &SessionRequest) -> Result<OpenRequest, Failure> {
        let mut request = request(&self.task, &self.here)?;
        request.answers = open.answers.iter().map(|(question, yes)| (*question, Some(*yes))).collect();
        request.offers_caches = true;
        let current = self.current();
        request.memory = current.store.clone().filter(|_| request.in_memory);
        if !matches!(open.which, OpenTarget::Asked) {
            // What the command line said was for the session that it opened.
            request.permissions.plan = None;
        }
        let mut model = open.model.clone();
        let mut thinking = open.thinking;
        match &open.which {
            OpenTarget::Asked => {}
            OpenTarget::New => {
                (request.which, request.cwd) = (quipu_host::SessionTarget::New, None);
                model = model.or_else(|| current.model.clone());
                thinking = thinking.or(current.thinking);
            }
            OpenTarget::Session(id) => {
                let file = current.filed.as_ref().filter(|(filed, _)| filed == id);
                let named = file.map_or_else(|| id.to_string(), |(_, path)| path.display().to_string());
                request.which = quipu_host::SessionTarget::Session(named);
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
        let file = self.current().file.take()?;
        file.finish().await.err().map(|failure| failure.message)
    }

    async fn open(&self, open: SessionRequest) -> Result<quipu_tui::OpenedSession, OpenError> {
        let lacks = self.let_go().await;
        let mut request = self.request_of(&open).map_err(|failure| OpenError::Failed(failure.message))?;
        let settings = self.home.settings();
        let others = settings.default_model().is_some();
        let failed = |failure: quipu_host::Failure| match failure.kind {
            FailureKind::Asks(question) => {
                OpenError::Asks(Box::new(open.clone()), question, printable(&failure.message))
            }
            FailureKind::Credential => OpenError::NoModel { why: Failure::from(failure).message, others },
            _ => OpenError::Failed(Failure::from(failure).message),
        };
        seal_credentials(&self.sealer, &settings);
        let asks_for_none = request.model.is_none() && request.provider.is_none();
        let continues = request.which != quipu_host::SessionTarget::New;
        if !others && asks_for_none && !continues && self.task.replay.is_none() {
            let why = "You cannot use a model yet: no provider has a key.".to_owned();
            return Err(OpenError::NoModel { why, others });
        }
        if let Some(path) = &self.task.replay {
            let replay = quipu_replay::Replay::open(path, quipu_replay::Places::of(&self.here));
            request.replay = Some(Arc::new(replay.map_err(|error| OpenError::Failed(error.to_string()))?));
        }
        let started = quipu_host::open(&self.home, &request).await.map_err(failed)?;
        let StartedSession { store, model, thinking, opened, permissions, file, resources, .. } = started;
        let OpenedSession { session, mut notices } = opened;
        let view = session.view();
        let read = match view.head {
            Some(head) => quipu_host::tail(&*store, &view.session, head)
                .await
                .map_err(|failure| OpenError::Failed(Failure::from(failure).message))?,
            None => Glimpse::default(),
        };
        let mode = if session.is_planning() { "plan" } else { permissions.mode().word() };
        let directory = session.cwd().display().to_string();
        let below = std::env::home_dir().and_then(|home| session.cwd().strip_prefix(home).ok());
        let place = match below {
            Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(below) => format!("~/{}", below.display()),
            None => directory.clone(),
        };
        {
            let mut current = self.current();
            current.cwd = session.cwd().to_owned();
            current.from = view.head;
            current.store = Some(store);
            if let Some(file) = &file {
                current.filed = Some((view.session.clone(), PathBuf::from(&file.path)));
            }
            current.file = file;
            current.permissions = Some(permissions);
            current.model = open.model.or(current.model.take());
            current.thinking = open.thinking.or(current.thinking);
        }
        let to_notice = |text: String| Notice::Note {
            text: text.strip_prefix("warning: ").map_or(text.clone(), str::to_owned),
        };
        let begins = view.head.is_none() && self.task.replay.is_none();
        let with_rules = !self.task.no_context_files;
        let summary = || crate::skills::summary(&self.home, session.cwd(), &resources, with_rules);
        let begins_with = begins.then(summary).flatten().map(|text| printable(&text));
        let answers = match quipu_host::jobs::take_answers(&self.home).await {
            _ if self.task.replay.is_some() => Vec::new(),
            Ok(runs) => runs.iter().map(crate::schedule::told).collect(),
            Err(error) => vec![format!("warning: The answers of jobs cannot be read: {error}")],
        };
        let told = self.notices.take().into_iter().chain(lacks).chain(answers);
        notices.splice(..0, told.map(to_notice));
        Ok(quipu_tui::OpenedSession {
            session: Arc::new(session),
            notices,
            resources: begins_with,
            levels: levels(&model),
            model,
            thinking,
            directory,
            place,
            permissions: mode.to_owned(),
            end: read,
        })
    }

    /// Runs a command of the program, for the same store.
    async fn run(
        &self,
        mut words: Vec<String>,
        shown: bool,
        progress: Option<ProgressSink>,
    ) -> (CapturedOutput, Result<(), Failure>) {
        let first = words.first().map(String::as_str).unwrap_or_default();
        if self.home.has_named_store() && !matches!(first, "permissions" | "auth" | "models") {
            // A path that is no text was named by text that was.
            let store = self.home.store.to_string_lossy().into_owned();
            // Before a subcommand it would be an option of the command above, and the subcommand one of its words.
            let at = if matches!(first, "memory" | "past") { words.len() } else { 1 };
            words.splice(at..at, ["--store".to_owned(), store]);
        }
        let here = self.current().cwd.clone();
        run_within(words, here, shown, progress).await
    }

    /// What a command prints.
    async fn print(
        &self,
        words: Vec<String>,
        progress: Option<ProgressSink>,
    ) -> Result<CommandOutput, Failure> {
        let mode = crate::permissions::mode_set_by(&words);
        let permissions = self.current().permissions.clone();
        if let Some(why) = mode.zip(permissions.as_ref()).and_then(|(mode, all)| all.refuses(mode)) {
            let mut refused = CommandOutput::default();
            refused.push_note(why);
            return Ok(refused);
        }
        let (written, result) = self.run(words, false, progress).await;
        let mut output = CommandOutput { ok: result.is_ok(), ..CommandOutput::default() };
        let mut room = PRINTED;
        for CapturedPiece { stream, mut bytes } in written.pieces {
            let is_cut = bytes.len() > room;
            bytes.truncate(room);
            room -= bytes.len();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            output.pieces.push(OutputPiece { stream, text });
            if is_cut {
                output.push_note("… and more");
                break;
            }
        }
        if let Err(failure) = result {
            output.push_note(printable(&failure.message));
        }
        if let Some(permissions) = permissions.filter(|_| output.ok && mode.is_some()) {
            permissions.mode_was_saved();
        }
        Ok(output)
    }
}

/// What a search found, as the terminal shows it.
fn found_items(found: crate::search::Results) -> quipu_tui::FoundItems {
    let mut items = quipu_host::search::found_items(&found.results, quipu_host::now());
    for item in &mut items {
        item.text = printable(&item.text);
        item.detail = printable(&item.detail);
    }
    quipu_tui::FoundItems { found: items, notes: found.notes }
}

/// A row as the terminal shows it.
fn shown(mut row: TreeRow) -> TreeRow {
    row.text = printable(&row.text);
    if let TreeKind::Folded { .. } = row.kind {
        row.text.push_str("; → expands them");
    }
    row
}

fn all_shown(rows: Vec<TreeRow>) -> Vec<TreeRow> {
    rows.into_iter().map(shown).collect()
}

impl Host for TerminalHost {
    fn open(
        &self,
        open: SessionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<quipu_tui::OpenedSession, OpenError>> + Send>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.open(open).await })
    }

    fn glimpse(&self, open: &SessionRequest) -> HostFuture<Option<Glimpse>> {
        let request = self.0.request_of(open);
        self.with_inner(|inner| async move {
            let request = request?;
            let has_glimpse = match &request.which {
                quipu_host::SessionTarget::Newest => true,
                quipu_host::SessionTarget::Session(what) => !quipu_host::is_file(what),
                quipu_host::SessionTarget::New | quipu_host::SessionTarget::Fork(_) => false,
            };
            if !has_glimpse || request.in_memory || request.cwd.is_some() {
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

    fn models(&self) -> HostFuture<Vec<Arc<Model>>> {
        self.with_inner(|inner| async move {
            let models = move || quipu_host::callable_models(&inner.home);
            tokio::task::spawn_blocking(models).await.map_err(Failure::failed)
        })
    }

    fn cycled(&self) -> HostFuture<Vec<CycleModel>> {
        self.with_inner(|inner| async move {
            let cwd = inner.current().cwd.clone();
            let models = move || quipu_host::cycled_models(&inner.home, &cwd);
            Ok(tokio::task::spawn_blocking(models).await.map_err(Failure::failed)??)
        })
    }

    fn keep_choice(&self, choice: ModelChoice) -> HostFuture<()> {
        self.with_inner(|inner| async move {
            // Such a run leaves nothing behind.
            if inner.task.no_session {
                return Ok(());
            }
            let cwd = inner.current().cwd.clone();
            let keep = move || quipu_host::keep_model_choice(&inner.home, &cwd, &choice);
            Ok(tokio::task::spawn_blocking(keep).await.map_err(Failure::failed)??)
        })
    }

    fn levels(&self, model: &Model) -> Vec<Thinking> {
        levels(model)
    }

    fn sessions(&self) -> HostFuture<Vec<SessionItem>> {
        self.with_inner(|inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            Ok(quipu_host::list_sessions(&*store, LISTED).await?)
        })
    }

    fn tree(&self, reach: Reach, below: bool) -> HostFuture<Vec<TreeRow>> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            let (from, here) = {
                let current = inner.current();
                (current.from, current.cwd.clone())
            };
            let of = match &reach {
                Reach::Session(session) => Some(session),
                Reach::Project | Reach::All => None,
            };
            let mut rows = Vec::new();
            if !below {
                let is_all = reach == Reach::All;
                rows = quipu_host::past::past_headers(&inner.home, &*store, &here, of, is_all).await?;
            }
            rows.extend(match &reach {
                Reach::Session(session) => quipu_host::tree_rows(&*store, session, from, !below).await?,
                Reach::Project => {
                    let here = Some(here.display().to_string());
                    quipu_host::session_rows(&*store, here, LISTED).await?
                }
                Reach::All => quipu_host::session_rows(&*store, None, LISTED).await?,
            });
            Ok(all_shown(rows))
        })
    }

    fn unfold(&self, below: NodeId, depth: u64, count: u64, level: usize) -> HostFuture<Vec<TreeRow>> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            Ok(all_shown(quipu_host::unfolded_rows(&*store, below, depth, count, level).await?))
        })
    }

    fn past_rows(&self, row: PastRow) -> HostFuture<Vec<TreeRow>> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            let here = inner.current().cwd.clone();
            // A past may be large, and the terminal has one thread.
            let work = async move || Ok(quipu_host::past::past_rows(&*store, &row).await?);
            Ok(all_shown(work_within(here, false, work).await.1?))
        })
    }

    fn past_sources(&self, row: PastRow) -> HostFuture<quipu_tui::FoundItems> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(quipu_tui::FoundItems::default()) };
            let here = inner.current().cwd.clone();
            let work = async move || Ok(quipu_host::past::past_sources(&*store, &row).await?);
            let mut items = work_within(here, false, work).await.1?;
            for item in &mut items.found {
                item.text = printable(&item.text);
                item.detail = printable(&item.detail);
            }
            Ok(items)
        })
    }

    fn search(&self, words: Vec<String>) -> HostFuture<quipu_tui::FoundItems> {
        self.with_inner(|inner| async move {
            let (home, here) = (inner.home.clone(), inner.current().cwd.clone());
            let work = async move || {
                let args = crate::search::args_of(words)?;
                let results = Box::pin(crate::search::find(&home, &args)).await?;
                Ok(results.map(found_items))
            };
            Ok(work_within(here, false, work).await.1?.unwrap_or_default())
        })
    }

    fn user_messages(&self, head: NodeId) -> HostFuture<Vec<(NodeId, String)>> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            let messages = quipu_host::user_messages(&*store, head).await?;
            Ok(messages.into_iter().map(|(node, text)| (node, printable(&text))).collect())
        })
    }

    fn preview(&self, node: NodeId) -> HostFuture<String> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(String::new()) };
            let mut text = Vec::new();
            crate::show::write_whole(&*store, &node.to_string(), false, &mut text).await?;
            text.truncate(64 << 10);
            // It is painted for a terminal, and drawn here by another hand.
            Ok(crate::print::unpainted(&String::from_utf8_lossy(&text)))
        })
    }

    fn resolve(&self, name: String) -> HostFuture<NodeId> {
        self.with_inner(|inner| async move {
            let store = inner.store()?.ok_or_else(|| Failure::usage("there are no sessions yet"))?;
            Ok(quipu_host::resolve(&*store, &name, None).await?.node)
        })
    }

    fn compare(&self, a: NodeId, b: NodeId, columns: usize) -> HostFuture<String> {
        self.with_inner(move |inner| async move {
            let Some(store) = inner.store()? else { return Ok(String::new()) };
            crate::diff::compared(&*store, a, b, columns).await
        })
    }

    fn commands(&self) -> CommandRegistry {
        self.0.home.commands().clone()
    }

    fn mentions(&self) -> quipu_host::Mentions {
        self.0.home.mentions().clone()
    }

    fn arguments(&self, command: String, head: Option<NodeId>) -> HostFuture<Vec<Candidate>> {
        let models = (command == "model").then(|| self.models());
        self.with_inner(move |inner| async move {
            if let Some(models) = models {
                let models = models.await.map_err(Failure::failed)?;
                let models = models.iter().map(|model| quipu_host::suggested_model(model));
                return Ok(models.map(super::arguments::candidate).collect());
            }
            let home = &inner.home;
            if command == "settings" {
                return Ok(super::arguments::settings(&inner.settings()));
            }
            if home.commands().runnable().iter().any(|spec| spec.name == command) {
                let offered = home.commands().complete(&command, "").await;
                return Ok(offered
                    .iter()
                    .map(|text| super::arguments::offered(text, String::new()))
                    .collect());
            }
            if let Some(mut known) = super::arguments::known(home, &command) {
                if command == "past"
                    && let Some(store) = inner.store()?
                {
                    let here = inner.current().cwd.clone();
                    let of = here.clone();
                    let work = async move || super::arguments::chunks(&*store, &of).await;
                    known.extend(work_within(here, false, work).await.1?);
                }
                return Ok(known);
            }
            let Some(store) = inner.store()? else { return Ok(Vec::new()) };
            if let "undo" | "redo" = command.as_str() {
                let engine = home.engine(store, &home.settings())?;
                return super::arguments::steps(&engine, &command, head).await;
            }
            super::arguments::stored(&*store, &command, head).await
        })
    }

    fn set(&self, setting: String) -> HostFuture<SettingOutcome> {
        self.with_inner(move |inner| async move {
            let kept = super::arguments::set(&inner.home, &setting)?;
            let message = crate::config::description(&kept, &inner.settings());
            let message = [vec![message], inner.notices.take()].concat().join("\n");
            Ok(match kept.key.map(|key| (key.name, key.effect)) {
                Some(("theme", _)) => {
                    let (theme, problems) = inner.look();
                    let message = [vec![message], problems].concat().join("\n");
                    SettingOutcome { message, theme: Some(Box::new(theme)), reopens: false }
                }
                Some((_, Effect::Now)) => SettingOutcome { message, theme: None, reopens: false },
                Some((_, Effect::NextStart)) => {
                    let message = format!("{message}; it takes effect when you next start the terminal");
                    SettingOutcome { message, theme: None, reopens: false }
                }
                Some((_, Effect::NewSession)) => {
                    let message = format!("{message}; this session does not change, the next one uses it");
                    SettingOutcome { message, theme: None, reopens: false }
                }
                Some((_, Effect::NextSession)) | None => inner.kept(message),
            })
        })
    }

    fn edited(&self) -> HostFuture<SettingOutcome> {
        self.with_inner(move |inner| async move {
            let message =
                "The settings are in effect; `terminal` and `screenReader` take effect at the next start";
            let kept = inner.kept(message.to_owned());
            let named = inner.settings().theme.is_some();
            let (theme, problems) = inner.look();
            let message = [vec![kept.message], inner.notices.take(), problems].concat().join("\n");
            Ok(SettingOutcome { message, theme: named.then(|| Box::new(theme)), ..kept })
        })
    }

    fn clone_session(&self, session: SessionId) -> HostFuture<SessionId> {
        self.with_inner(move |inner| async move {
            let store = inner.store()?.ok_or_else(|| Failure::usage("there are no sessions yet"))?;
            let engine = inner.home.engine(store, &inner.home.settings())?;
            Ok(engine.clone_session(&session).await?.session)
        })
    }

    fn command(&self, words: Vec<String>) -> HostFuture<CommandOutput> {
        self.with_inner(|inner| async move { inner.print(words, None).await })
    }

    fn long_command(&self, words: Vec<String>, tell: OutputSink) -> HostFuture<CommandOutput> {
        let tell = ProgressSink(Arc::new(move |line: &str| tell(line.into())));
        self.with_inner(|inner| async move { inner.print(words, Some(tell)).await })
    }

    fn run_unkept(
        &self,
        line: String,
        hidden: bool,
        stop: CancellationToken,
        tell: OutputSink,
    ) -> HostFuture<BashExecutionMessage> {
        self.with_inner(move |inner| async move {
            let engine = inner.home.engine_in_memory(&inner.home.settings())?;
            let cwd = inner.current().cwd.clone();
            Ok(engine.run_unkept(&cwd, line, hidden, stop, tell).await)
        })
    }

    fn local_servers(&self) -> HostFuture<quipu_tui::LocalServers> {
        self.with_inner(|inner| async move {
            let look = move || quipu_host::local_servers(&inner.home);
            tokio::task::spawn_blocking(look).await.map_err(Failure::failed)
        })
    }

    fn providers(&self) -> HostFuture<Vec<ProviderItem>> {
        self.with_inner(|inner| async move {
            let list = move || quipu_host::key_providers(&inner.home);
            tokio::task::spawn_blocking(list).await.map_err(Failure::failed)
        })
    }

    fn keep_key(&self, provider: String, key: String, unasked: bool) -> HostFuture<KeyOutcome> {
        self.with_inner(move |inner| async move {
            Ok(quipu_host::keep_key(&inner.home, &provider, &key, unasked).await?)
        })
    }

    fn begin_login(&self, offer: LoginOffer, method: LoginMethod) -> HostFuture<ProviderLogin> {
        self.with_inner(move |inner| async move {
            let options = LoginOptions { method: Some(method), ..LoginOptions::default() };
            let consent = RestrictionConsent::Accepted;
            let settings = inner.home.settings();
            let login = quipu_host::begin_login(&inner.home, &settings, offer, consent, options).await?;
            crate::login::open(&login.prompt().url);
            Ok(login)
        })
    }

    fn settings_path(&self) -> PathBuf {
        self.0.home.settings_path()
    }

    fn foreground(&self, words: Vec<String>) -> HostFuture<()> {
        self.with_inner(|inner| async move { inner.run(words, true, None).await.1 })
    }

    fn git_branch(&self) -> Option<String> {
        let cwd = self.0.current().cwd.clone();
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
