//! Sessions of other agents come into the store: what is there, taking it in, and going on with what is written.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::{AGENTS, Agent, AgentFiles, ArchiveError, ImportCache, ImportOptions};
pub use quipu_archive::{Progress, Report};
use quipu_seal::Sealer;
use quipu_store::{Graph, SqliteStore};

use crate::search::{SearchProgress, finish_index};
use crate::watch::Watch;
use crate::{Failure, Home};

/// Whose sessions are meant.
#[derive(Clone)]
pub enum ImportSource {
    /// Of all agents, what they keep here.
    All,
    /// Of one, at a path or where it keeps them.
    Agent(&'static Agent, Option<PathBuf>),
    /// Exports, which say themselves whose they are.
    Exports(PathBuf),
}

/// What is to be imported, and how.
#[derive(Clone)]
pub struct ImportRequest {
    /// Whose sessions.
    pub source: ImportSource,
    /// It goes on with what is written: that nothing is there yet is no failure.
    pub follows: bool,
    /// Nothing is written.
    pub dry_run: bool,
}

/// Why there is nothing to import.
#[derive(Debug)]
pub enum ImportError {
    /// It is the name of no agent and of no file.
    NoAgent(String),
    /// This agent keeps no sessions on this machine: a file has to be named.
    NeedsFile(&'static str),
    /// Where agents keep their sessions is not known without a home directory.
    NoHome,
    /// None of the places is there in which the agent keeps its sessions.
    NoPlace(Vec<PathBuf>),
    /// No export of an account is known there.
    NoExport(PathBuf),
    /// What was named cannot be read, or is broken.
    Archive(ArchiveError),
}

impl From<ArchiveError> for ImportError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl ImportSource {
    /// What people name: an agent and maybe a path, or the path of exports; all agents where nothing is named.
    ///
    /// # Errors
    /// [`ImportError::NoAgent`].
    pub fn named(name: Option<&str>, path: Option<&Path>) -> Result<Self, ImportError> {
        let Some(name) = name else { return Ok(Self::All) };
        if let Some(agent) = Agent::named(name) {
            return Ok(Self::Agent(agent, path.map(Path::to_owned)));
        }
        let exports = PathBuf::from(name);
        if path.is_some() || !exports.exists() {
            return Err(ImportError::NoAgent(name.to_owned()));
        }
        Ok(Self::Exports(exports))
    }

    /// The path that is named.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::All => None,
            Self::Agent(_, path) => path.as_deref(),
            Self::Exports(path) => Some(path),
        }
    }

    /// What is there; nothing where it cannot be read now.
    fn current(&self) -> Vec<(&'static Agent, AgentFiles)> {
        match self {
            Self::All => all(),
            Self::Agent(agent, None) => vec![(*agent, agent.detect(&variable))],
            Self::Agent(agent, Some(path)) => {
                vec![(*agent, agent.files(path).map(AgentFiles::from).unwrap_or_default())]
            }
            Self::Exports(path) => Agent::exports(path).unwrap_or_default(),
        }
    }
}

/// The names of all agents whose sessions can be imported.
pub fn agent_names() -> Vec<&'static str> {
    AGENTS.iter().map(|agent| agent.name).collect()
}

/// Where agents keep their sessions, by the environment; the places need not be there.
pub fn agent_places() -> Vec<PathBuf> {
    AGENTS.iter().flat_map(|agent| agent.places(&variable)).collect()
}

/// What would be imported.
pub struct ImportPlan {
    request: ImportRequest,
    work: Vec<(&'static Agent, AgentFiles)>,
}

/// The sessions of one agent in one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSessions {
    /// The name of the agent.
    pub agent: &'static str,
    /// Their directory; `None` where they do not say.
    pub project: Option<String>,
    /// How many.
    pub sessions: u64,
    /// Bytes of their files, about.
    pub bytes: u64,
}

impl ImportPlan {
    /// Finds the files that are asked for. None of them is read, except to tell exports apart.
    ///
    /// # Errors
    /// Why there is nothing to import.
    pub fn make(request: ImportRequest) -> Result<Self, ImportError> {
        let work = match &request.source {
            ImportSource::All => all(),
            ImportSource::Agent(agent, Some(path)) => vec![(*agent, agent.files(path)?.into())],
            ImportSource::Agent(agent, None) => vec![(*agent, kept_by(agent, request.follows)?)],
            ImportSource::Exports(path) => exports(path)?,
        };
        Ok(Self { request, work })
    }

    /// These files of an agent, wherever they are.
    pub(crate) fn of_files(agent: &'static Agent, files: Vec<PathBuf>, dry_run: bool) -> Self {
        let source = ImportSource::Agent(agent, None);
        let request = ImportRequest { source, follows: false, dry_run };
        Self { request, work: vec![(agent, AgentFiles { files, unreadable: Vec::new() })] }
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.work.iter().all(|(_, kept)| kept.files.is_empty())
    }

    /// A look at the files: whose sessions they are, and how many. Those that cannot be read are told when they are imported.
    pub fn projects(&self) -> Vec<ProjectSessions> {
        let mut projects: BTreeMap<(&'static str, Option<String>), (u64, u64)> = BTreeMap::new();
        for (agent, kept) in &self.work {
            for file in &kept.files {
                for found in agent.look(file).unwrap_or_default() {
                    let (sessions, bytes) = projects.entry((agent.name, found.project)).or_default();
                    *sessions += found.sessions;
                    *bytes += found.bytes;
                }
            }
        }
        let one = |((agent, project), (sessions, bytes))| ProjectSessions { agent, project, sessions, bytes };
        projects.into_iter().map(one).collect()
    }
}

/// What an agent keeps in its places, one of which has to be there unless it is waited for.
fn kept_by(agent: &'static Agent, waits: bool) -> Result<AgentFiles, ImportError> {
    if !agent.has_place() {
        return Err(ImportError::NeedsFile(agent.name));
    }
    let places = agent.places(&variable);
    if places.is_empty() {
        return Err(ImportError::NoHome);
    }
    if !waits && !places.iter().any(|dir| dir.is_dir()) {
        return Err(ImportError::NoPlace(places));
    }
    Ok(agent.detect(&variable))
}

/// The exports of a file or a folder, one at least.
fn exports(path: &Path) -> Result<Vec<(&'static Agent, AgentFiles)>, ImportError> {
    let work = Agent::exports(path)?;
    if work.is_empty() {
        let fault = Agent::export_fault(path).map(ImportError::Archive);
        return Err(fault.unwrap_or_else(|| ImportError::NoExport(path.to_owned())));
    }
    Ok(work)
}

/// What all agents keep on this machine.
fn all() -> Vec<(&'static Agent, AgentFiles)> {
    let mut work: Vec<_> = AGENTS.iter().map(|agent| (agent, agent.detect(&variable))).collect();
    work.retain(|(_, kept)| !kept.files.is_empty() || !kept.unreadable.is_empty());
    work
}

/// A variable of the environment that names a path.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Who is told of each file. An error ends the import.
pub trait ImportObserver: Send + Sync {
    /// How far a file is that is being imported.
    fn progress(&self, file: &Path, at: Progress);

    /// A session of a file was imported.
    ///
    /// # Errors
    /// When nobody can be told any more.
    fn imported(&self, report: &Report) -> io::Result<()>;

    /// Nothing could be taken from a file or a directory.
    ///
    /// # Errors
    /// When nobody can be told any more.
    fn failed(&self, path: &Path, problem: &ImportProblem) -> io::Result<()>;

    /// A file is the store itself, and left alone.
    fn is_store(&self, file: &Path);
}

/// Why nothing could be taken from a file or a directory.
#[derive(Debug)]
pub enum ImportProblem {
    /// The directory could not be read.
    Directory(io::Error),
    /// The file could not be read, or is no session.
    File(ArchiveError),
}

/// What an import came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSum {
    /// The number of files.
    pub files: usize,
    /// Entries that the store did not have.
    pub added: u64,
    /// Those that it had.
    pub present: u64,
    /// Those that it has otherwise, and keeps so.
    pub changed: u64,
    /// Those that were mended.
    pub repaired: u64,
    /// Lines that hold no entry.
    pub lost: u64,
    /// Of those, what may be whole when the file is imported again.
    pub pending: u64,
    /// Files and directories of which nothing could be taken.
    pub failures: usize,
    /// Files of which something could not.
    pub left_out: usize,
}

impl ImportSum {
    fn add(&mut self, report: &Report) {
        self.added += report.added;
        self.present += report.present;
        self.changed += report.changed;
        self.repaired += report.repaired;
        self.lost += report.lost;
        self.pending += report.pending;
    }
}

/// An import at work. Dropped between two steps: what was stored stays, and the next one goes on from there.
pub struct Importer {
    store: Arc<SqliteStore>,
    graph: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
    plan: ImportPlan,
    watch: Watch,
    /// What was imported before.
    seen: ImportCache,
    /// Files that are the store itself.
    own: HashSet<PathBuf>,
    sum: ImportSum,
    store_path: PathBuf,
}

impl Importer {
    /// Opens the store for what is planned.
    ///
    /// # Errors
    /// What the store says, and what is wrong with the user's files.
    pub async fn open(home: &Home, plan: ImportPlan) -> Result<Self, Failure> {
        let store = home.store().await?;
        let graph: Arc<dyn Graph> = store.clone();
        let sealer = home.engine(graph.clone(), &home.settings())?.sealer().clone();
        let mut seen = ImportCache::default();
        if plan.request.follows {
            // What is being written now is not read twice.
            seen.follow();
        }
        Ok(Self {
            store,
            graph,
            sealer,
            plan,
            watch: Watch::default(),
            seen,
            own: HashSet::new(),
            sum: ImportSum::default(),
            store_path: home.store.clone(),
        })
    }

    /// Whether a file may hold more than what was taken from it: an answer that may still be written.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.watch.has_unfinished()
    }

    /// What it came to so far.
    pub fn sum(&self) -> ImportSum {
        self.sum
    }

    /// Imports what is planned; a file that cannot be imported keeps none of the others from it.
    ///
    /// # Errors
    /// What the store says, and when nobody can be told any more.
    pub async fn run(&mut self, observer: &dyn ImportObserver) -> Result<(), Failure> {
        let mut due = Vec::new();
        for (agent, kept) in std::mem::take(&mut self.plan.work) {
            for (dir, error) in kept.unreadable {
                self.sum.failures += 1;
                observer.failed(&dir, &ImportProblem::Directory(error))?;
            }
            due.extend(kept.files.into_iter().map(|file| (agent, file)));
        }
        due.retain(|(_, file)| {
            let is_store = is_same_file(file, &self.store_path);
            if is_store {
                observer.is_store(file);
                self.own.insert(file.clone());
            }
            !is_store
        });
        self.sum.files = due.len();
        due.retain(|(agent, file)| self.watch.is_due(agent, file));
        self.import(&due, observer, false).await
    }

    /// Indexes what was imported, which the first search would have to do otherwise.
    ///
    /// # Errors
    /// What the store says.
    pub async fn finish_index(&self, tell: &(dyn Fn(SearchProgress) + Sync)) -> Result<(), Failure> {
        finish_index(&*self.store, tell).await
    }

    /// Imports what changes, and what comes, for as long as nothing fails that a later try would not mend. Only what is new is
    /// told.
    ///
    /// # Errors
    /// As [`Importer::run`].
    pub async fn follow(&mut self, observer: &dyn ImportObserver) -> Result<Infallible, Failure> {
        loop {
            tokio::time::sleep(Watch::POLL).await;
            self.poll(observer).await?;
        }
    }

    /// Looks once for what changed and what came since the last look, and imports it. Only what is new is reported.
    ///
    /// # Errors
    /// As [`Importer::run`].
    pub async fn poll(&mut self, observer: &dyn ImportObserver) -> Result<(), Failure> {
        let mut due = Vec::new();
        for (agent, kept) in self.plan.request.source.current() {
            due.extend(kept.files.into_iter().map(|file| (agent, file)));
        }
        due.retain(|(agent, file)| !self.own.contains(file) && self.watch.is_due(agent, file));
        if due.is_empty() {
            return Ok(());
        }
        self.import(&due, observer, true).await
    }

    async fn import(
        &mut self,
        files: &[(&'static Agent, PathBuf)],
        observer: &dyn ImportObserver,
        follows: bool,
    ) -> Result<(), Failure> {
        self.seen.catch_up(&*self.graph).await?;
        for (agent, file) in files {
            let progress = |at: Progress| observer.progress(file, at);
            let options = ImportOptions { dry_run: self.plan.request.dry_run, progress: &progress };
            match agent.import(&self.graph, &self.sealer, file, &self.seen, &options).await {
                Ok(reports) => {
                    self.watch.imported(file, &reports);
                    self.sum.left_out += usize::from(reports.iter().any(Report::left_out));
                    for report in reports {
                        self.sum.add(&report);
                        if report.added > 0 || !follows {
                            observer.imported(&report)?;
                        }
                    }
                }
                Err(error @ ArchiveError::Store(_)) => return Err(error.into()),
                // It is read again, as after any change.
                Err(ArchiveError::Changed { .. }) if follows => {}
                Err(error) => {
                    self.sum.failures += 1;
                    observer.failed(file, &ImportProblem::File(error))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether two names lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|id_of_one| Some(id_of_one) == id(other))
}
