//! Where the user's files are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use quipu::{Engine, Outputs, Sealer, Worktrees};
use quipu_protocol::UnixMs;
use quipu_providers::{Settings as Models, Warning};
use quipu_store::{Graph, OpenOptions, SearchIndex, SqliteStore, StoreError};
use quipu_workspace::ProcessRegistry;

use crate::commands::CommandRegistry;
use crate::commit_trailers::CommitTrailers;
use crate::forgotten::ForgetFile;
use crate::jobs::RunnerSeat;
use crate::memory_watch::WatchedMemories;
use crate::mentions::Mentions;
use crate::observer::SharedObserver;
use crate::resources::{ResourceMemory, UserBases};
use crate::settings::Cache;
use crate::{Advice, Failure, HostNotice, Observer, ProblemKind, Settings, Sources};

/// Bytes that each connection of a process keeps which waits to be asked.
const SERVED_CACHE: u32 = 2_000_000;

/// The user's files.
#[derive(Debug, Clone)]
pub struct Home {
    /// `$QUIPU_HOME`, or `.quipu` in the home directory.
    pub dir: PathBuf,
    /// The graph.
    pub store: PathBuf,
    named: bool,
    /// Where outputs are while nothing is kept.
    pub unkept: Option<Outputs>,
    /// What people leave running in the shell.
    processes: Arc<ProcessRegistry>,
    sources: Sources,
    commands: CommandRegistry,
    mentions: Mentions,
    observer: SharedObserver,
    config: Arc<Cache>,
    pub(crate) resources: ResourceMemory,
    pub(crate) watched: WatchedMemories,
    opened: Arc<OpenedStore>,
}

/// The store of all clones of a place.
#[derive(Debug, Default)]
struct OpenedStore {
    /// The one that was opened last to be written, as long as somebody has it.
    store: Mutex<Weak<SqliteStore>>,
    /// That it is on a network was said.
    network_reported: AtomicBool,
    /// Runners of its jobs that are one to those of other processes.
    runners: Arc<RunnerSeat>,
}

/// The time, in milliseconds since the epoch.
pub fn now() -> UnixMs {
    quipu::Clock::now(&quipu::SystemClock)
}

/// The name of the time zone of this machine; `UTC` where it has none.
pub fn local_zone() -> String {
    jiff::tz::TimeZone::system().iana_name().unwrap_or("UTC").to_owned()
}

/// The directory that we are in, without symbolic links.
///
/// # Errors
/// When it is gone.
pub fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().and_then(|dir| dir.canonicalize()).map_err(|error| {
        Failure::request(format!(
            "the current directory cannot be used: {error}; change to another directory"
        ))
    })
}

/// Every credential that is known is replaced where something is stored.
pub fn seal_credentials(sealer: &Sealer, settings: &Models) {
    let secrets = settings.secrets();
    sealer.know_all("credential", secrets.iter().map(|(_, secret)| &**secret));
}

/// A variable of the environment, where it is set to something.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Home {
    /// Where what commands write to caches is kept, a directory for each project.
    pub fn cache_layers(&self) -> PathBuf {
        self.dir.join("caches")
    }

    /// The git worktrees of sub-agents. They lie beside our own directory, which commands do not see: git takes a worktree that it
    /// does not see as gone.
    pub fn worktrees(&self) -> Worktrees {
        let mut path = self.dir.clone().into_os_string();
        path.push("-worktrees");
        Worktrees::at(PathBuf::from(path))
    }

    /// By the environment: `QUIPU_HOME`, else `.quipu` in `HOME`; with the store at `store`, or the one that is there.
    /// What a person should know while it is used is told to `observer`.
    ///
    /// # Errors
    /// When neither is set.
    pub fn find(store: Option<&Path>, observer: Arc<dyn Observer>) -> Result<Self, Failure> {
        // Paths need not be text.
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = match path("QUIPU_HOME") {
            Some(home) => std::path::absolute(home)?,
            None => match path("HOME") {
                Some(home) => std::path::absolute(home.join(".quipu"))?,
                None => {
                    return Err(Failure::request(
                        "neither QUIPU_HOME nor HOME is set, so there is no place for files; set QUIPU_HOME",
                    ));
                }
            },
        };
        let named = store.is_some();
        let store = match store {
            Some(path) => std::path::absolute(path)?,
            None => home.join("quipu.db"),
        };
        Ok(Self {
            dir: home,
            store,
            named,
            unkept: None,
            processes: Arc::default(),
            sources: Sources::default(),
            commands: CommandRegistry::default(),
            mentions: Mentions::default(),
            observer: SharedObserver(observer),
            config: Arc::new(Cache::of_environment(&env)),
            resources: ResourceMemory::new(UserBases::of_environment(&path, path("HOME").as_deref())),
            watched: WatchedMemories::default(),
            opened: Arc::default(),
        })
    }

    /// The files of a user in a directory of its own, whatever the environment says, with the store `quipu.db` in it.
    pub fn at(home: impl Into<PathBuf>, observer: Arc<dyn Observer>) -> Self {
        let home = home.into();
        let store = home.join("quipu.db");
        Self {
            dir: home,
            store,
            named: false,
            unkept: None,
            processes: Arc::default(),
            sources: Sources::default(),
            commands: CommandRegistry::default(),
            mentions: Mentions::default(),
            observer: SharedObserver(observer),
            config: Arc::default(),
            resources: ResourceMemory::default(),
            watched: WatchedMemories::default(),
            opened: Arc::default(),
        }
    }

    /// The same place, with settings from these variables of an environment.
    #[must_use]
    pub fn with_environment(mut self, env: &dyn Fn(&str) -> Option<String>) -> Self {
        self.config = Arc::new(Cache::of_environment(env));
        self
    }

    /// Whether another store than the user's own was named.
    pub fn has_named_store(&self) -> bool {
        self.named
    }

    /// The same place, of which somebody else is told.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = SharedObserver(observer);
        self
    }

    /// The same place, with credentials and models of these sources.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// Where credentials and models are from, beside the user's files.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The same place for one of several sessions that are open at once: commands and mentions are its own.
    #[must_use]
    pub fn for_one_session(&self) -> Self {
        Self { mentions: Mentions::default(), ..self.without_commands() }
    }

    /// The same place without commands, for what a command holds of it.
    pub(crate) fn without_commands(&self) -> Self {
        Self { commands: CommandRegistry::default(), ..self.clone() }
    }

    /// The same place, whose store is opened apart: nobody finds it as the one that is open.
    pub(crate) fn apart(&self) -> Self {
        Self { opened: Arc::default(), ..self.without_commands() }
    }

    /// What messages of the open session may mention. Clones of this place have the same.
    pub fn mentions(&self) -> &Mentions {
        &self.mentions
    }

    /// The commands with a slash that fronts offer here. Clones of this place have the same.
    pub fn commands(&self) -> &CommandRegistry {
        &self.commands
    }

    /// Who is told.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer.0
    }

    pub(crate) fn shared_observer(&self) -> Arc<dyn Observer> {
        self.observer.0.clone()
    }

    /// Tells something.
    pub fn note(&self, text: impl Into<String>) {
        self.observer.0.notice(HostNotice { is_warning: false, text: text.into(), advice: None });
    }

    /// Tells that something is wrong.
    pub fn warn(&self, text: impl Into<String>) {
        self.observer.0.notice(HostNotice { is_warning: true, text: text.into(), advice: None });
    }

    /// Tells that something is wrong, and what to do.
    pub fn warn_with(&self, text: impl Into<String>, advice: Advice) {
        self.observer.0.notice(HostNotice { is_warning: true, text: text.into(), advice: Some(advice) });
    }

    /// Tells what is wrong in `settings.json`.
    pub fn warn_of_settings(&self, problem: impl fmt::Display) {
        self.warn(format!("{}: {problem}", self.settings_path().display()));
    }

    /// What owns programs that sessions leave running.
    pub(crate) fn processes(&self) -> Arc<ProcessRegistry> {
        self.processes.clone()
    }

    /// The file of the user's settings.
    pub fn settings_path(&self) -> PathBuf {
        self.dir.join("settings.json")
    }

    /// The store, made when it is not there.
    pub async fn store(&self) -> Result<Arc<SqliteStore>, Failure> {
        let store = self.open_store(&OpenOptions::default())?;
        *self.opened.store.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&store);
        Ok(store)
    }

    /// The store that somebody in this process has open to write; `None` where nobody has.
    pub(crate) fn opened_store(&self) -> Option<Arc<SqliteStore>> {
        self.opened.store.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Opens the file of the store as it is.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(&self, options: &OpenOptions) -> Result<SqliteStore, StoreError> {
        Ok(self.with_forgotten(SqliteStore::open(&self.store, options)?))
    }

    fn open_store(&self, options: &OpenOptions) -> Result<Arc<SqliteStore>, Failure> {
        if !self.opened.network_reported.load(Ordering::Relaxed)
            && let Some(told) = self.on_a_network()
            && !self.opened.network_reported.swap(true, Ordering::Relaxed)
        {
            self.warn_with(told, Advice::MoveStore);
        }
        Ok(Arc::new(self.open(options)?))
    }

    pub(crate) fn runner_seat(&self) -> Arc<RunnerSeat> {
        self.opened.runners.clone()
    }

    /// What to say when the store lies on another machine's disk.
    pub fn on_a_network(&self) -> Option<String> {
        let kind = quipu_store::network_file_system(&self.store)?;
        Some(format!(
            "{} is on a network file system ({kind}), where locks and crashes can damage it; keep it on a local disk",
            self.store.display()
        ))
    }

    /// The store, unless nothing was ever stored.
    pub async fn existing_store(&self) -> Result<Option<Arc<SqliteStore>>, Failure> {
        if self.has_store() { self.store().await.map(Some) } else { Ok(None) }
    }

    /// The same for a command that only reads: it leaves new text to those that search it.
    pub fn store_to_read(&self) -> Result<Option<Arc<SqliteStore>>, Failure> {
        let options = OpenOptions { search_index: SearchIndex::Asked, ..OpenOptions::default() };
        if self.has_store() { self.open_store(&options).map(Some) } else { Ok(None) }
    }

    /// The same for a process that waits most of its time for somebody to ask: it keeps little in memory.
    pub fn store_to_serve(&self) -> Result<Option<Arc<SqliteStore>>, Failure> {
        let options =
            OpenOptions { search_index: SearchIndex::Asked, cache: SERVED_CACHE, ..OpenOptions::default() };
        if self.has_store() { self.open_store(&options).map(Some) } else { Ok(None) }
    }

    /// The store as it is, unless nothing was ever stored: nothing is made or indexed, and another program's lock is waited for no
    /// longer than `busy`.
    ///
    /// # Errors
    /// What the store says.
    pub fn store_as_it_is(&self, busy: Duration) -> Result<Option<Arc<SqliteStore>>, StoreError> {
        if !self.has_store() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.with_forgotten(SqliteStore::open_to_read(&self.store, busy)?))))
    }

    /// Searches of it show nothing that a person had forgotten, and know what is withdrawn.
    fn with_forgotten(&self, store: SqliteStore) -> SqliteStore {
        store.hide(Arc::new(ForgetFile::new(&self.dir, self.observer.clone())));
        store.tell_withdrawn(Arc::new(quipu_past::WithdrawnChunks::default()));
        store
    }

    fn has_store(&self) -> bool {
        !std::fs::symlink_metadata(&self.store)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// The settings of the user. They are read again when the file has changed; what is new and wrong is told.
    pub fn config(&self) -> Arc<Settings> {
        self.read_config(None)
    }

    /// The same with those of the project that `cwd` is in, where a person has accepted them.
    pub fn config_in(&self, cwd: &Path) -> Arc<Settings> {
        self.read_config(Some(cwd))
    }

    /// What hooks say of the trust in a project's file of settings.
    pub(crate) fn decide_project(&self, file: PathBuf, decision: Option<crate::settings::Decision>) {
        self.config.decide(file, decision);
    }

    fn read_config(&self, cwd: Option<&Path>) -> Arc<Settings> {
        let read = self.config.read(&self.dir, cwd);
        for problem in read.new {
            match problem.kind {
                ProblemKind::Untrusted => self.warn_with(problem.to_string(), Advice::TrustProject),
                _ => self.warn(problem.to_string()),
            }
        }
        read.settings
    }

    /// Whether the file of the user's settings may say something of this, though it cannot be read.
    pub(crate) fn settings_mention(&self, word: &str) -> bool {
        use std::io::Read as _;
        let path = self.settings_path();
        let Ok((file, _)) = quipu_workspace::open_for_reading(&path) else { return path.exists() };
        let (mut bytes, most) = (Vec::new(), 1 << 20);
        match file.take(most + 1).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 <= most => String::from_utf8_lossy(&bytes).contains(word),
            Ok(_) | Err(_) => true,
        }
    }

    /// Models and credentials; problems in the files are told.
    pub fn settings(&self) -> Models {
        let (settings, warnings) = Models::load_with(&self.dir, self.config().calls.clone(), &env);
        let (settings, more) = self.sources.applied_to(settings);
        for Warning(text) in warnings.into_iter().chain(more) {
            self.warn(text);
        }
        settings.with_shell(crate::helpers::shell(&self.dir))
    }

    /// What is wrong with the files of models and credentials.
    pub fn model_problems(&self) -> Vec<String> {
        let (_, warnings) = Models::load_with(&self.dir, self.config().calls.clone(), &env);
        warnings.into_iter().map(|Warning(text)| text).collect()
    }

    /// An engine over `store`, which seals every credential that is known and keeps them from child processes.
    pub fn engine(&self, store: Arc<dyn Graph>, settings: &Models) -> Result<Engine, Failure> {
        let sealer = Arc::new(Sealer::new(self.seal_key()?));
        seal_credentials(&sealer, settings);
        crate::sealers::seals_with(&sealer);
        let children = settings.env_keys().into_iter().map(|name| (name, None)).collect();
        let publish = &self.config().publish;
        let engine = Engine::new(store, sealer, "").with_outputs(self.outputs());
        let engine = engine.with_env(children).with_processes(self.processes.clone());
        let engine = engine.with_command_environment(Arc::new(CommitTrailers::of(self)));
        Ok(engine.with_published_heads(publish))
    }

    /// The same over a store of its own that is gone with it.
    ///
    /// # Errors
    /// As [`Home::engine`].
    pub fn engine_in_memory(&self, settings: &Models) -> Result<Engine, Failure> {
        self.engine(Arc::new(SqliteStore::in_memory()?), settings)
    }

    /// The key that makes the ids of sealed secrets: made once, kept for ever. Without a place to keep it, one
    /// for this process.
    pub fn seal_key(&self) -> Result<[u8; 32], Failure> {
        let path = self.dir.join("seal.key");
        quipu::seal_key(&path).map_err(|error| {
            Failure::failed(format!(
                "{} cannot be used: {error}; restore it. If you remove it, `[REDACTED:…]` in earlier sessions cannot be reversed",
                path.display()
            ))
        })
    }
}
