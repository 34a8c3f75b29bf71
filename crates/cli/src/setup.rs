//! Where things are, and what a run is made of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{
    CompactionSettings, Engine, FileSettings, Follower, HistorySettings, Limits, Opened, Outputs,
    Places, Provider, PruneSettings, PublishSettings, Recorder, Replay, Sealer, SessionOptions,
    TravelSettings,
};
use quipu_protocol::{Epoch, Model, ModelErrorKind, NodeId, Notice, Thinking, UnixMs};
use quipu_providers::{Selection, Settings, Warning};
use quipu_store::{
    DroppedFiles, DroppingFiles, FoundBy, OpenOptions, SearchIndex, SessionQuery, SessionRow, SqliteStore,
    Store, Upkeep as _,
};

use quipu_workspace::ProcessRegistry;

use crate::another::Known;
use crate::args::{StoreArg, Task};
use crate::budget::Budget;
use crate::exit::{Exit, Failure};
use crate::follow::SavedPermissions;
use crate::print::{Progress, note};
use crate::session_file::{self, Begun, Mirror};

/// The user's files.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// `$QUIPU_HOME`, or `.quipu` in the home directory.
    pub(crate) home: PathBuf,
    /// The graph.
    pub(crate) store: PathBuf,
    named: bool,
    /// Where outputs are while nothing is kept.
    pub(crate) unkept: Option<Outputs>,
    /// What people leave running in the shell.
    processes: Arc<ProcessRegistry>,
}

/// The time, in milliseconds since the epoch.
pub(crate) fn now() -> UnixMs {
    quipu::Clock::now(&quipu::SystemClock)
}

/// The directory that we are in, without symbolic links.
pub(crate) fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().and_then(|dir| dir.canonicalize()).map_err(|error| {
        Failure::usage(format!("the current directory cannot be used: {error}; change to another"))
    })
}

/// Every credential that is known is replaced where something is stored.
pub(crate) fn seal_credentials(sealer: &Sealer, settings: &Settings) {
    for (_, secret) in settings.secrets() {
        sealer.know("credential", &secret);
    }
}

pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Place {
    /// Where what commands write to caches is kept, a directory for each project.
    pub(crate) fn cache_layers(&self) -> PathBuf {
        self.home.join("caches")
    }

    pub(crate) fn find(store: &StoreArg) -> Result<Self, Failure> {
        // Paths need not be text.
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = match path("QUIPU_HOME") {
            Some(home) => std::path::absolute(home)?,
            None => match path("HOME") {
                Some(home) => std::path::absolute(home.join(".quipu"))?,
                None => {
                    return Err(Failure::usage(
                        "neither QUIPU_HOME nor HOME is set, so there is no place for files; set QUIPU_HOME",
                    ));
                }
            },
        };
        let named = store.store.is_some();
        let store = match &store.store {
            Some(path) => std::path::absolute(path)?,
            None => home.join("quipu.db"),
        };
        Ok(Self { home, store, named, unkept: None, processes: Arc::default() })
    }

    /// What must be said to reach the same store again.
    pub(crate) fn store_flag(&self) -> String {
        if self.named { format!(" --store {}", self.store.display()) } else { String::new() }
    }

    /// The store, made when it is not there.
    pub(crate) async fn store(&self) -> Result<Arc<SqliteStore>, Failure> {
        self.open_store(&OpenOptions::default())
    }

    fn open_store(&self, options: &OpenOptions) -> Result<Arc<SqliteStore>, Failure> {
        if let Some(told) = self.on_a_network() {
            note(format!("warning: {told}"));
        }
        Ok(Arc::new(SqliteStore::open(&self.store, options)?))
    }

    /// What to say when the store lies on another machine's disk.
    pub(crate) fn on_a_network(&self) -> Option<String> {
        let kind = quipu_store::network_file_system(&self.store)?;
        Some(format!(
            "{} is on a network file system ({kind}), where locks and crashes can damage it; keep it on a local disk: \
             set QUIPU_HOME, or name another store with --store",
            self.store.display()
        ))
    }

    /// The store, unless nothing was ever stored.
    pub(crate) async fn existing_store(&self) -> Result<Option<Arc<SqliteStore>>, Failure> {
        if self.has_store() { self.store().await.map(Some) } else { Ok(None) }
    }

    /// The same for a command that only reads: it leaves new text to those that search it.
    pub(crate) fn store_to_read(&self) -> Result<Option<Arc<SqliteStore>>, Failure> {
        let options = OpenOptions { search_index: SearchIndex::Asked, ..OpenOptions::default() };
        if self.has_store() { self.open_store(&options).map(Some) } else { Ok(None) }
    }

    fn has_store(&self) -> bool {
        !std::fs::symlink_metadata(&self.store)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// All of `settings.json`; nothing when it is not there. The error is its text, when it has one: it was warned
    /// of when the models were read.
    pub(crate) fn settings_json(&self) -> Result<serde_json::Value, Option<String>> {
        let path = self.home.join("settings.json");
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(serde_json::Value::Null),
            Ok(found) if found.is_file() && found.len() <= 1 << 20 => {}
            Ok(_) | Err(_) => return Err(None),
        }
        let text = std::fs::read_to_string(&path).map_err(|_| None)?;
        serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|_| Some(text))
    }

    /// Models and credentials; problems in the files are told.
    pub(crate) fn settings(&self) -> Settings {
        let (settings, warnings) = Settings::load(&self.home, &env);
        for Warning(text) in warnings {
            note(format!("warning: {text}"));
        }
        settings.with_shell(crate::helpers::shell(&self.home))
    }

    /// An engine over `store`, which seals every credential that is known and keeps them from child processes.
    pub(crate) fn engine(&self, store: Arc<dyn Store>, settings: &Settings) -> Result<Engine, Failure> {
        let sealer = Arc::new(Sealer::new(self.seal_key()?));
        seal_credentials(&sealer, settings);
        let children = settings.env_keys().into_iter().map(|name| (name, None)).collect();
        let (publish, problems) = PublishSettings::of_json(&self.settings_json().unwrap_or_default());
        for problem in problems {
            note(format!("warning: {}: {problem}", self.home.join("settings.json").display()));
        }
        let engine = Engine::new(store, sealer, "").with_outputs(self.outputs());
        let engine = engine.with_env(children).with_processes(self.processes.clone());
        Ok(engine.with_published_heads(&publish))
    }

    /// The key that makes the ids of sealed secrets: made once, kept for ever. Without a place to keep it, one
    /// for this process.
    pub(crate) fn seal_key(&self) -> Result<[u8; 32], Failure> {
        let path = self.home.join("seal.key");
        quipu::seal_key(&path).map_err(|error| {
            Failure::failed(format!(
                "{} cannot be used: {error}; restore it, or remove it: then `[REDACTED:…]` of earlier sessions \
                 cannot be turned back",
                path.display()
            ))
        })
    }
}

/// The session of a task, what its tools may do, and what records it.
pub(crate) struct Started {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) model: Arc<Model>,
    pub(crate) thinking: Thinking,
    pub(crate) opened: Opened,
    pub(crate) permissions: Arc<SavedPermissions>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) budget: Option<Budget>,
    /// The file that the session is written to as well.
    pub(crate) file: Option<Arc<Mirror>>,
    /// How long a question waits for an answer.
    pub(crate) ask_deadline: std::time::Duration,
}

/// Where a task goes on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Basis {
    pub(crate) cwd: PathBuf,
    /// How the session stands there; `None` for a new one.
    pub(crate) last: Option<Epoch>,
    /// Whether what goes on is a session of ours, or a new one.
    pub(crate) ours: bool,
    /// Whether it goes on in another directory than its own.
    pub(crate) moved: bool,
}

/// A store that is only in memory.
#[derive(Clone)]
pub(crate) struct Memory(pub(crate) Arc<dyn Store>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// What a session is made of, and what goes with it.
pub(crate) struct Prepared {
    pub(crate) options: SessionOptions,
    permissions: Arc<SavedPermissions>,
    recorder: Option<Arc<Recorder>>,
    budget: Option<Budget>,
    /// What to say of a model without a price.
    unpriced: Option<String>,
}

/// Opens the session that a task asks for. With a `replay` no model is looked for.
pub(crate) async fn open(
    place: &Place,
    task: &Task,
    here: &Path,
    replay: Option<Arc<Replay>>,
) -> Result<Started, Failure> {
    let store: Arc<dyn Store> = if task.no_session {
        match &task.memory {
            Some(Memory(store)) => store.clone(),
            None => Arc::new(SqliteStore::in_memory()?),
        }
    } else {
        let store = place.store().await?;
        // What is gone on with is read; meanwhile there is more to do here.
        if task.resume || task.session.is_some() || task.fork.is_some() {
            store.warm_up();
        }
        store
    };
    let settings = place.settings();
    let engine = place.engine(store.clone(), &settings)?;
    let named_file = task.session.as_ref().filter(|what| session_file::is_file(what));
    let mut file = match named_file {
        Some(path) => {
            let found = session_file::find(Path::new(path)).await?;
            Some(session_file::open(&engine, found).await?)
        }
        None => None,
    };
    let (resumed, fork) = match (&task.fork, &mut file) {
        (Some(node), _) => forked(&*store, node).await.map(|(row, node)| (row, Some(node)))?,
        (None, Some(begun)) => (begun.row.take(), None),
        (None, None) => (chosen_session(&*store, task, here).await?, None),
    };
    if task.cwd.is_some() && task.session.is_none() && task.fork.is_none() {
        return Err(Failure::usage(
            "--cwd says where a session goes on: add --session or --fork, or change to the directory",
        ));
    }
    // In another directory it goes on as a session of its own, which says so.
    let moved = match (&task.cwd, &resumed) {
        (Some(dir), Some(row)) if Path::new(&row.cwd) == *dir => None,
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(row)) if !task.resume && !Path::new(&row.cwd).is_dir() => {
            Some(crate::gone::instead(place, task, row, here)?)
        }
        (None, _) => None,
    };
    let cwd = match &resumed {
        _ if moved.is_some() => moved.clone().unwrap_or_default(),
        // It was found by the name of this directory, which need not be text.
        Some(_) if task.resume => here.to_owned(),
        Some(row) => PathBuf::from(&row.cwd),
        None => here.to_owned(),
    };
    // A file goes on in a new session where none of ours leads to its end, or where it shall work elsewhere.
    let below = match (&file, &resumed) {
        (Some(begun), Some(row)) => begun.below.or(row.head.filter(|_| moved.is_some())),
        (Some(begun), None) => begun.below,
        (None, _) => None,
    };
    if let (Some(SessionRow { id, head: Some(head), .. }), None, None, None) = (&resumed, fork, below, &moved)
    {
        engine.read_ahead(id, *head);
    }
    let last = match (&resumed, fork.or(below)) {
        (_, Some(node)) => Some(quipu::epoch_at(&*store, node).await?),
        (Some(row), None) => quipu::last_epoch(&*store, row).await?,
        (None, None) => None,
    };
    let ours = resumed.as_ref().is_none_or(|row| row.agent == quipu::AGENT);
    let basis = Basis { cwd: cwd.clone(), last, ours, moved: moved.is_some() };
    let prepared = prepare(place, task, &settings, &engine, &basis, replay.clone()).await?;
    let Prepared { mut options, permissions, recorder, budget, unpriced } = prepared;
    options.id = file.as_mut().and_then(|begun| begun.announced.take());
    let ask_deadline = options.ask_deadline;
    let (model, thinking) = (options.model.clone(), options.thinking);
    let fresh = |session| Opened { session, troubles: Vec::new() };
    options.follower = file.as_ref().map(|begun| begun.mirror.clone() as Arc<dyn Follower>);
    let opened = match (resumed, fork) {
        _ if let Some(at) = below => engine.go_on_from(at, options).await,
        (_, Some(node)) => engine.fork(node, options).await,
        (Some(row), None) if moved.is_some() && row.agent == quipu::AGENT => {
            let clone = engine.clone_session_to(&row.id, &cwd).await?;
            note(format!("Session {} goes on in {} as session {}.", row.id, cwd.display(), clone.session));
            engine.open(&clone.session, options).await
        }
        (Some(row), None) => engine.open(&row.id, options).await,
        (None, None) => engine.create(options).await.map(fresh),
    };
    match opened {
        Ok(mut opened) => {
            opened.troubles.extend(unpriced.map(Notice::note));
            let file = match file {
                Some(Begun { mirror, told, .. }) => {
                    mirror.go_on(&opened.session.view().session, below).await?;
                    opened.troubles.splice(..0, told.into_iter().map(Notice::note));
                    Some(mirror)
                }
                None => None,
            };
            Ok(Started {
                store,
                model,
                thinking,
                opened,
                permissions,
                recorder,
                budget,
                file,
                ask_deadline,
            })
        }
        Err(error) => {
            // Nothing is in it yet, so it goes.
            drop(recorder.map(|recorder| recorder.finish()));
            Err(error.into())
        }
    }
}

/// What the session of a task is made of.
pub(crate) async fn prepare(
    place: &Place,
    task: &Task,
    settings: &Settings,
    engine: &Engine,
    basis: &Basis,
    replay: Option<Arc<Replay>>,
) -> Result<Prepared, Failure> {
    let Basis { cwd, last, ours, moved } = basis;
    let last = last.as_ref();
    // Before a credential is looked up, which may run a command.
    crate::helpers::keep_from(place, cwd, &task.permissions.add_dir);
    let mut recorder = None;
    let replayed = replay.clone();
    let (model, provider, thinking): Chosen = match replay {
        Some(replay) => (replay.model(), replay.clone(), replay.thinking()),
        None => {
            let (model, provider, thinking) = real_model(settings, task, last)?;
            let provider = match &task.record {
                Some(path) => {
                    let sealer = engine.sealer().clone();
                    let made = Arc::new(Recorder::create(path, provider, sealer, Places::of(cwd))?);
                    recorder = Some(made.clone());
                    made
                }
                None => provider,
            };
            (model, provider, thinking)
        }
    };
    let mut options = SessionOptions::new(cwd.clone(), model, provider);
    // What is recorded or replayed has one model.
    if task.record.is_none() && task.replay.is_none() {
        let key = task.model.api_key.clone().map(|key| (options.model.provider.clone(), key));
        let (home, sealer) = (place.home.clone(), engine.sealer().clone());
        options.models = Some(Arc::new(Known { home, sealer, key }));
    }
    // What another program began has no prompt of ours, nor has a fork of it that said nothing yet; and a prompt names
    // its directory.
    let ours = *ours && last.is_none_or(|epoch| epoch.system.is_some() || !epoch.tools.is_empty());
    // What is lost cannot be gone on with: such a session gets what a new one would.
    let kept = match last.filter(|_| ours) {
        Some(last) if !quipu::has_lost_prompt(&**engine.store(), last).await? => Some(last),
        _ => None,
    };
    options.system = system(place, engine, task, cwd, kept.is_some() && !moved).await?;
    let identity = crate::identity::chosen(place, engine, task, kept).await?;
    (options.identity, options.declined_identity) = (identity.text, identity.declined);
    options.thinking = thinking;
    options.max_tokens = last.and_then(|epoch| epoch.max_tokens);
    let permissions = crate::permissions::of_task(place, task, cwd)?;
    options.policy = permissions.clone();
    if permissions.isolates() {
        options.tools = quipu::builtin_isolated();
    } else if permissions.confines() {
        options.tools = quipu::builtin_confined();
    }
    // What is replayed costs nothing.
    let budget = if task.replay.is_some() { None } else { crate::budget::of(place, task.daily_budget)? };
    let daily_budget = budget.as_ref().map(|budget| budget.dollars);
    let wait = budget.as_ref().and_then(|budget| budget.wait);
    let max_cost = task.max_cost.filter(|_| task.replay.is_none());
    options.limits = Limits { max_turns: task.max_turns, max_cost, daily_budget, wait };
    if task.no_session && daily_budget.is_some() {
        // Nothing else is kept: what it spends counts for the day.
        options.ledger = Some(place.store().await? as Arc<dyn Store>);
    }
    let limited = task.max_cost.is_some() || daily_budget.is_some();
    let unpriced = crate::budget::unpriced(&options.model)
        .filter(|_| limited && task.replay.is_none() && options.provider.is_local());
    (options.compaction, options.prune) = context_settings(place);
    options.files = file_settings(place);
    options.files.enabled &= !task.no_session;
    options.history = history_settings(place, task, replayed.as_deref());
    options.travel = travel_settings(place, task, replayed.as_deref());
    Ok(Prepared { options, permissions, recorder, budget, unpriced })
}

/// What `settings.json` says of compaction, and of results that are left out; what is wrong there is told.
pub(crate) fn context_settings(place: &Place) -> (CompactionSettings, PruneSettings) {
    let settings = place.settings_json().unwrap_or_default();
    let (compaction, mut problems) = CompactionSettings::of_json(&settings);
    let (prune, more) = PruneSettings::of_json(&settings);
    problems.extend(more);
    for problem in problems {
        note(format!("warning: {}: {problem}", place.home.join("settings.json").display()));
    }
    (compaction, prune)
}

/// Whether the model can search what was done before. Without a store there is nothing to search; what is replayed has
/// the tools of its recording.
fn history_settings(place: &Place, task: &Task, replayed: Option<&Replay>) -> HistorySettings {
    let (mut history, problems) = HistorySettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        note(format!("warning: {}: {problem}", place.home.join("settings.json").display()));
    }
    history.enabled &= !task.no_session;
    history.enabled &= replayed.is_none_or(Replay::searches_history);
    history
}

/// What is kept of the files that tools change.
pub(crate) fn file_settings(place: &Place) -> FileSettings {
    let (files, problems) = FileSettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        note(format!("warning: {}: {problem}", place.home.join("settings.json").display()));
    }
    files
}

/// Old states of files make room when a task is over and the store has grown beyond what they may take. No reason for the
/// task to fail.
pub(crate) async fn make_room(place: &Place, task: &Task) {
    let size = std::fs::metadata(&place.store).map_or(0, |found| found.len());
    let (files, _) = FileSettings::of_json(&place.settings_json().unwrap_or_default());
    if task.no_session || size <= files.store_bytes {
        return;
    }
    let done = async {
        let store = SqliteStore::open(&place.store, &OpenOptions::default())?;
        store.drop_files_when_due(files.store_bytes, &dropping()).await
    };
    match done.await {
        Ok(Some(done)) if done.states > 0 => {
            note(format!("To make room (`files.storeBytes`), {}.", dropped(&done)));
        }
        Ok(_) => {}
        Err(error) => note(format!("warning: old states of files could not be dropped: {error}")),
    }
}

/// How far dropping is.
pub(crate) fn dropping() -> impl Fn(DroppingFiles) + Send + Sync + 'static {
    let progress = Progress::new();
    move |DroppingFiles { done, of }| {
        if done < of {
            progress.show(&format!("making room: {done} of {of} old states of files are dropped"));
        } else {
            progress.clear();
        }
    }
}

/// What was dropped, for people.
pub(crate) fn dropped(done: &DroppedFiles) -> String {
    format!(
        "{} old states of files were dropped, {} KiB; {} KiB are left",
        done.states,
        done.bytes.div_ceil(1024),
        done.left.div_ceil(1024)
    )
}

/// Whether the model can look at the graph, and go to earlier points of its session. Without a store there is nothing to
/// look at; what is replayed has the tools of its recording.
fn travel_settings(place: &Place, task: &Task, replayed: Option<&Replay>) -> TravelSettings {
    let (mut travel, problems) = TravelSettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        note(format!("warning: {}: {problem}", place.home.join("settings.json").display()));
    }
    if let Some(replay) = replayed {
        travel.tools = replay.travels();
    }
    travel.tools &= !task.no_session;
    travel
}

/// A model, its provider, and how hard it thinks.
type Chosen = (Arc<Model>, Arc<dyn Provider>, Thinking);

/// The model that a task asks for.
fn real_model(settings: &Settings, task: &Task, last: Option<&Epoch>) -> Result<Chosen, Failure> {
    let Selection { model, thinking, note: hint } = choose_model(settings, task, last)?;
    if let Some(hint) = hint {
        note(hint);
    }
    let provider = settings.provider_for(&model, task.model.api_key.as_deref()).map_err(|error| {
        let exit = if error.kind == ModelErrorKind::InvalidRequest { Exit::Usage } else { Exit::Credential };
        // A session that was begun elsewhere names a model of there.
        let other = last.filter(|_| task.model.model.is_none()).and_then(|_| settings.default_model());
        let hint = other.map_or(String::new(), |other| format!(" {}", with_another(Some(&other))));
        Failure::new(exit, format!("{error}{hint}"))
    })?;
    let wanted = match (task.model.thinking, last) {
        (Some(level), _) => level.into(),
        (None, Some(epoch)) => thinking.unwrap_or(epoch.thinking),
        (None, None) => thinking.unwrap_or(Thinking::Medium),
    };
    let thinking = quipu_providers::clamp_level(&model, wanted);
    Ok((model, provider, thinking))
}

/// The node to go on from, and the session that it is in.
async fn forked(store: &dyn Store, what: &str) -> Result<(Option<SessionRow>, NodeId), Failure> {
    let found = crate::show::resolve(store, what, None).await?;
    let query = SessionQuery { id: found.session.clone(), limit: Some(1), ..SessionQuery::default() };
    let row = match found.session {
        Some(_) => store.sessions(query).await?.into_iter().next(),
        None => None,
    };
    Ok((row, found.node))
}

/// The system prompt; `None` keeps that of a session that goes on.
async fn system(
    place: &Place,
    engine: &Engine,
    task: &Task,
    cwd: &Path,
    resumed: bool,
) -> Result<Option<String>, Failure> {
    let asked = task.system_prompt.is_some() || !task.append_system_prompt.is_empty();
    if resumed && !asked {
        return Ok(None);
    }
    let base = match &task.system_prompt {
        Some(value) => crate::input::text_or_file(value)?,
        None => quipu::SYSTEM_PROMPT.to_owned(),
    };
    let append = task
        .append_system_prompt
        .iter()
        .map(|value| crate::input::text_or_file(value))
        .collect::<Result<Vec<_>, _>>()?;
    let (rules, problems) = if task.no_context_files {
        Default::default()
    } else {
        let (above, mut problems) = rules_above(place);
        let (rules, more) = quipu::find_rules(&place.home, cwd, &above);
        problems.extend(more);
        let (rules, more) = crate::rules::accepted_rules(place, engine, cwd, rules).await?;
        problems.extend(more);
        (rules, problems)
    };
    for problem in problems {
        note(format!("warning: {problem}"));
    }
    Ok(Some(quipu::system_prompt(&base, &append, &rules, cwd)))
}

/// Directories above a repository whose rules the user accepts: `rules.above`, and what is wrong there.
fn rules_above(place: &Place) -> (Vec<PathBuf>, Vec<String>) {
    let settings = place.settings_json().unwrap_or_default();
    let said = &settings["rules"]["above"];
    let wrong = || {
        let path = place.home.join("settings.json");
        vec![format!("{}: rules.above must be a list of directories, such as [\"~/work\"]", path.display())]
    };
    if said.is_null() {
        return Default::default();
    }
    let Some(list) = said.as_array() else { return (Vec::new(), wrong()) };
    let named = |one: &serde_json::Value| {
        let text = one.as_str()?;
        let path = match text.strip_prefix("~") {
            Some(rest) => std::env::home_dir()?.join(rest.trim_start_matches('/')),
            None => PathBuf::from(text),
        };
        path.is_absolute().then(|| path.canonicalize().unwrap_or(path))
    };
    let above: Vec<PathBuf> = list.iter().filter_map(named).collect();
    let problems = if above.len() == list.len() { Vec::new() } else { wrong() };
    (above, problems)
}

/// The session that a task goes on with, when there is one.
pub(crate) async fn existing_session(
    place: &Place,
    task: &Task,
    here: &Path,
) -> Result<Option<SessionRow>, Failure> {
    match place.existing_store().await? {
        Some(store) => find_session(&*store, task, here).await,
        None => Ok(None),
    }
}

async fn chosen_session(store: &dyn Store, task: &Task, here: &Path) -> Result<Option<SessionRow>, Failure> {
    let row = find_session(store, task, here).await?;
    if row.is_none() && (task.resume || task.session.is_some()) {
        note("No session here yet; starting one.");
        crate::gone::tell_of_lost(store, here).await?;
    }
    Ok(row)
}

/// The session that a person means by its id, the beginning of it, or its name.
pub(crate) async fn session_named(store: &dyn Store, what: &str) -> Result<SessionRow, Failure> {
    let found = crate::show::resolve(store, what, None).await?;
    let session = found.session.filter(|_| found.by == FoundBy::Session);
    let session = session.ok_or_else(|| {
        Failure::usage(format!("`{what}` is a node, not a session; `quipu sessions --all` lists sessions"))
    })?;
    let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
    let rows = store.sessions(query).await?;
    let best = rows.iter().find(|row| row.head.is_some()).or(rows.first());
    best.cloned().ok_or_else(|| Failure::usage(format!("there is no session {session} any more")))
}

pub(crate) async fn find_session(
    store: &dyn Store,
    task: &Task,
    here: &Path,
) -> Result<Option<SessionRow>, Failure> {
    let query = if task.resume {
        SessionQuery {
            cwd: Some(here.to_string_lossy().into_owned()),
            limit: Some(1),
            ..SessionQuery::default()
        }
    } else if let Some(id) = &task.session {
        let row = session_named(store, id).await?;
        if row.head.is_none() {
            let ends = store.landmarks(std::slice::from_ref(&row.id), 1).await?;
            let at = ends.first().map_or(row.base, |end| end.node);
            return Err(Failure::usage(format!(
                "session {} was removed; `quipu fork {at}` goes on from where it stood",
                row.id
            )));
        }
        return Ok(Some(row));
    } else {
        return Ok(None);
    };
    Ok(store.sessions(query).await?.into_iter().next())
}

fn choose_model(settings: &Settings, task: &Task, last: Option<&Epoch>) -> Result<Selection, Failure> {
    let provider = task.model.provider.as_deref();
    let found = match (&task.model.model, last) {
        (Some(pattern), _) => settings.find(provider, pattern),
        (None, Some(epoch)) if provider.is_none() && !epoch.model.is_empty() => {
            return settings.find_again(&epoch.provider, &epoch.model).map_err(|error| {
                Failure::usage(format!(
                    "the session went on with {}/{}, which cannot be found any more. {error} {}",
                    epoch.provider,
                    epoch.model,
                    with_another(settings.default_model().as_deref())
                ))
            });
        }
        (None, _) => {
            let model = default_model(settings, provider).ok_or_else(|| no_model(settings, provider))?;
            Ok(Selection { model, thinking: None, note: None })
        }
    };
    found.map_err(Failure::usage)
}

/// How a session goes on whose model cannot be asked. Another one is never chosen for it: what was said may be meant for
/// this machine alone, and prices differ.
fn with_another(other: Option<&Model>) -> String {
    match other {
        Some(other) => format!("`--model {}/{}` goes on with another.", other.provider, other.id),
        None => "`--model PROVIDER/MODEL` goes on with another; `quipu models` lists them.".into(),
    }
}

/// The model that a task would be asked of.
pub(crate) fn model_of(
    settings: &Settings,
    task: &Task,
    last: Option<&Epoch>,
) -> Result<Arc<quipu_protocol::Model>, Failure> {
    choose_model(settings, task, last).map(|selection| selection.model)
}

fn no_model(settings: &Settings, provider: Option<&str>) -> Failure {
    match provider {
        Some(provider) if !settings.providers().contains(&provider) => {
            Failure::usage(format!("there is no provider `{provider}`; `quipu auth` lists them"))
        }
        Some(provider) => Failure::new(
            Exit::Credential,
            format!("no model of `{provider}` can be used: set a key with `quipu auth set {provider}`"),
        ),
        None => {
            let offer = settings.local_offer().map(|offer| format!(" {offer}")).unwrap_or_default();
            let why = format!("no model can be used, because no credential is known.{offer}");
            Failure::new(
                Exit::Credential,
                format!(
                    "{why} Run `quipu auth set PROVIDER`; `quipu auth` lists the providers, and `quipu demo` needs \
                     no key"
                ),
            )
        }
    }
}

/// The model to use when only a provider, or not even that, is named.
fn default_model(
    settings: &Settings,
    provider: Option<&str>,
) -> Option<std::sync::Arc<quipu_protocol::Model>> {
    let Some(provider) = provider else { return settings.default_model() };
    let default = settings.default_model().filter(|model| model.provider == provider);
    default
        .or_else(|| settings.models_of(provider).iter().find(|model| settings.is_available(model)).cloned())
}
