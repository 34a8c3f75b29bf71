//! Files are put back around the commit that moves the ref: before it, all new content is on the disk beside the
//! targets; after it, each takes its place. A row of the store says how far it is, so that whoever opens the session
//! after a crash takes all of it back, or brings it to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_machine::Draft;
use quipu_protocol::{Entry, FileChange, FileState, Json, NodeId, SessionId};
use quipu_seal::Sealer;
use quipu_store::{Commit, Durability, Graph, NewChunk, Op, OpenJump, StoreError};
use quipu_workspace::{
    Access, FileError, PathContent, StagedFile, can_change, make_directory, place, remove, remove_directory,
    stage, staging_path,
};
use serde::{Deserialize, Serialize};

use quipu_transcript::{FilePlan, restored};

use super::plan::{FileRestorer, RestorePlan, plan};
use super::state::FileSnapshot;
use crate::arrival::{awaited, waits};
use crate::clock::fresh_id;

/// Content is being written beside its targets; the ref has not moved.
const STAGING: &str = "staging";
/// The ref has moved.
const MOVED: &str = "moved";

/// Why files were not put back. Ref and files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The directory of the session is not there.
    #[error("the session's directory {} does not exist; recreate it, or continue without restoring files", .0.display())]
    NoDirectory(PathBuf),
    /// Files would be overwritten that somebody changed, or that cannot be kept.
    #[error(
        "{} of the files were changed since by someone else, or cannot be saved first; nothing was changed",
        .0.conflicts().count()
    )]
    Conflicts(Box<FilePlan>),
    /// Files changed since they were looked at.
    #[error("files changed after the list of changes was made; nothing was restored; check the list again")]
    Stale(Box<FilePlan>),
    /// A file cannot be changed.
    #[error("{0}. Nothing was changed")]
    File(#[from] FileError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Files on their way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flight {
    root: PathBuf,
    /// Other directories that stay when what they held is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roots: Vec<PathBuf>,
    steps: Vec<FlightStep>,
    /// Directories that stay when they are empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keeps: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FlightStep {
    at: PathBuf,
    /// Where its content waits; nothing for what is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staged: Option<PathBuf>,
    change: FileChange,
}

/// What goes into the commit that moves the ref.
pub(crate) struct InFlight {
    flight: Flight,
    /// The entry at the new place that says what was done to files.
    record: Draft,
    /// What files were before, for the way back.
    pub(crate) chunks: Vec<NewChunk>,
    /// What was still to be done before.
    rest: Option<OpenJump>,
}

impl Flight {
    fn of(ready: &RestorePlan, root: PathBuf, roots: &[PathBuf]) -> Self {
        let roots = roots.iter().filter(|one| **one != root).cloned().collect();
        let both = ready.plan.changes.iter().zip(&ready.places);
        let steps = both.map(|(change, (at, _))| FlightStep {
            staged: matches!(change.after, FileState::File { .. } | FileState::Link { .. })
                .then(|| staging_path(at, &format!(".quipu-{}.tmp", fresh_id()))),
            at: at.clone(),
            change: FileChange {
                path: change.path.clone(),
                before: change.before.clone(),
                after: change.after.clone(),
            },
        });
        Self { root, roots, steps: steps.collect(), keeps: ready.keeps.clone() }
    }

    /// The directory that a file lies below, and that stays.
    fn root_of(&self, at: &Path) -> PathBuf {
        let all = std::iter::once(&self.root).chain(&self.roots);
        all.filter(|root| at.starts_with(root))
            .max_by_key(|root| root.as_os_str().len())
            .unwrap_or(&self.root)
            .clone()
    }

    /// Whether a directory stays when what is removed leaves it empty: it was there, or something is put into it.
    fn keeps(&self, directory: &Path) -> bool {
        let puts = self.steps.iter().filter(|step| step.change.after != FileState::Absent);
        let mut below = puts.map(|step| step.at.as_path()).filter(|at| *at != directory);
        self.keeps.iter().any(|kept| kept == directory) || below.any(|at| at.starts_with(directory))
    }

    fn row(&self, stage: &str) -> OpenJump {
        OpenJump { stage: stage.into(), plan: Json::from(&serde_json::json!({ "files": self })) }
    }

    /// Removes what waits beside its targets.
    async fn unstage(&self) {
        let staged = self.steps.iter().filter_map(|step| step.staged.clone());
        let staged: Vec<(PathBuf, PathBuf)> = staged.map(|at| (self.root_of(&at), at)).collect();
        let work = move || {
            // One that is not there was never written; one that cannot be removed is in nobody's way.
            staged.iter().for_each(|(root, staged)| drop(remove(staged, root, &|_| true)));
        };
        drop(tokio::task::spawn_blocking(work).await);
    }
}

impl FileRestorer {
    /// What files would be changed if the session went from one node to another. `None` when no step on the way
    /// touched a file.
    pub(crate) async fn preview(&self, from: NodeId, to: NodeId) -> Result<Option<FilePlan>, FilesError> {
        let Some(RestorePlan { plan, .. }) = plan(self, from, to).await? else { return Ok(None) };
        self.is_there(&plan)?;
        Ok(Some(plan))
    }

    /// Everything up to the commit that moves the ref, with the plan; `None` when no step on the way touched a file.
    pub(crate) async fn begin(
        &self,
        session: &SessionId,
        from: NodeId,
        to: NodeId,
        agreed: Option<&FilePlan>,
        overwrite: bool,
    ) -> Result<(FilePlan, Option<InFlight>), FilesError> {
        let Some(ready) = plan(self, from, to).await? else { return Ok((FilePlan::default(), None)) };
        let (plan, flight) = self.begin_ready(session, from, ready, agreed, overwrite).await?;
        Ok((plan, Some(flight)))
    }

    /// The same for what is held against the disk already.
    pub(crate) async fn begin_ready(
        &self,
        session: &SessionId,
        from: NodeId,
        ready: RestorePlan,
        agreed: Option<&FilePlan>,
        overwrite: bool,
    ) -> Result<(FilePlan, InFlight), FilesError> {
        let plan = ready.plan.clone();
        self.is_there(&plan)?;
        if agreed.is_some_and(|agreed| *agreed != plan) {
            return Err(FilesError::Stale(Box::new(plan)));
        }
        if !overwrite && plan.conflicts().next().is_some() {
            return Err(FilesError::Conflicts(Box::new(plan)));
        }
        let roots = (self.root.clone(), self.access.roots());
        let flight = InFlight::stage(&*self.store, session, from, ready, roots).await?;
        Ok((plan, flight))
    }

    pub(crate) fn is_there(&self, plan: &FilePlan) -> Result<(), FilesError> {
        if plan.changes.is_empty() || self.root.is_dir() {
            return Ok(());
        }
        Err(FilesError::NoDirectory(self.root.clone()))
    }
}

impl InFlight {
    /// The entry at the new place that says what was done to files.
    pub(crate) fn record(&self) -> Draft {
        self.record.clone()
    }

    /// The same with another entry.
    #[must_use]
    pub(crate) fn recorded_as(mut self, entry: Entry) -> Self {
        self.record.entry = entry.into();
        self
    }

    /// Brings all new content to the disk beside its targets. Nothing of it is left where that fails.
    pub(super) async fn stage(
        store: &dyn Graph,
        session: &SessionId,
        from: NodeId,
        ready: RestorePlan,
        (root, roots): (PathBuf, &[PathBuf]),
    ) -> Result<Self, FilesError> {
        let flight = Flight::of(&ready, root, roots);
        // A message to itself may still wait for its answer.
        let rest = store.pending(session).await?.jump.as_ref().and_then(awaited).map(waits);
        put(store, session, Some(joined(flight.row(STAGING), rest.as_ref()))).await?;
        for step in &flight.steps {
            if let Err(error) = stage_one(store, step).await {
                flight.unstage().await;
                // The next start does it otherwise.
                drop(put(store, session, rest).await);
                return Err(error);
            }
        }
        let (entry, step) = restored(from, &ready.plan);
        let record = Draft::of(entry, step);
        let states = ready.plan.changes.iter().zip(ready.places);
        let chunks = states.filter_map(|(change, (_, bytes))| {
            let (id, bytes) = (change.before.content()?, bytes?);
            Some(match change.after.content() {
                Some(base) if base != id => NewChunk::Delta { id, base, bytes },
                Some(_) | None => NewChunk::Full { id, bytes },
            })
        });
        let chunks = chunks.collect();
        Ok(Self { flight, record, chunks, rest })
    }

    /// What the commit that moves the ref says of the files, beside what else is to be done then.
    pub(crate) fn op(&self, session: &SessionId, rest: Option<&OpenJump>) -> Op {
        Op::JumpPut { session: session.clone(), jump: joined(self.flight.row(MOVED), rest) }
    }

    /// The ref has not moved: all as it was.
    pub(crate) async fn abandon(self, store: &dyn Graph, session: &SessionId) {
        self.flight.unstage().await;
        // The next start does it otherwise.
        drop(put(store, session, self.rest).await);
    }

    /// The ref has moved: everything takes its place. Tells what did not, which is tried again when the session is
    /// opened the next time. `rest` is what else is to be done then.
    pub(crate) async fn land(
        self,
        store: &dyn Graph,
        sealer: &Arc<Sealer>,
        session: &SessionId,
        rest: Option<OpenJump>,
    ) -> Vec<String> {
        let problems = land(store, sealer, &self.flight).await;
        if problems.iter().all(|problem| problem.is_final) {
            // What is in place already is found so at the next start.
            drop(put(store, session, rest).await);
        }
        problems.into_iter().map(|problem| problem.what).collect()
    }
}

/// A row, and what else is to be done.
fn joined(mut jump: OpenJump, rest: Option<&OpenJump>) -> OpenJump {
    if let Some(rest) = rest
        && let (serde_json::Value::Object(mut plan), serde_json::Value::Object(rest)) =
            (jump.plan.value(), rest.plan.value())
    {
        plan.extend(rest);
        jump.plan = Json::from(&serde_json::Value::from(plan));
    }
    jump
}

/// Sets the row of a session's jump.
async fn put(store: &dyn Graph, session: &SessionId, row: Option<OpenJump>) -> Result<(), StoreError> {
    let session = session.clone();
    let op = match row {
        Some(jump) => Op::JumpPut { session, jump },
        None => Op::JumpRemove { session },
    };
    store.commit(Commit { ops: vec![op], durability: Durability::Power, ..Commit::default() }).await
}

async fn bytes_of(store: &dyn Graph, state: &FileState) -> Result<Vec<u8>, StoreError> {
    match state.content() {
        Some(content) => store.chunk(content, 0..u64::MAX).await,
        None => Ok(Vec::new()),
    }
}

/// Makes sure that a step can be done, and does what can be done of it ahead.
async fn stage_one(store: &dyn Graph, step: &FlightStep) -> Result<(), FilesError> {
    let bytes = bytes_of(store, &step.change.after).await?;
    let step = step.clone();
    let work = move || {
        can_change(&step.at)?;
        stage_now(&step, &bytes)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        // The thread broke down: nothing was put anywhere.
        Err(_) => Err(FileError::Cancelled.into()),
    }
}

fn stage_now(step: &FlightStep, bytes: &[u8]) -> Result<(), FileError> {
    let Some(staged) = &step.staged else { return Ok(()) };
    let what = match &step.change.after {
        FileState::File { mode, .. } => StagedFile::File { bytes, mode: *mode },
        FileState::Link { target } => StagedFile::Link(target),
        FileState::Absent | FileState::Directory { .. } | FileState::Unknown { .. } => return Ok(()),
    };
    stage(staged, &step.at, &what)
}

/// A file that did not take its place.
struct Problem {
    what: String,
    /// Whether trying again would be of no use.
    is_final: bool,
}

/// Brings every step to its end, whichever of them were done before.
async fn land(store: &dyn Graph, sealer: &Arc<Sealer>, flight: &Flight) -> Vec<Problem> {
    let mut problems = Vec::new();
    // Removals first: they make room, what is in a directory before it.
    let is_removal = |step: &&FlightStep| step.change.after == FileState::Absent;
    let (mut removals, puts): (Vec<_>, Vec<_>) = flight.steps.iter().partition(is_removal);
    removals.sort_by(|one, other| other.at.cmp(&one.at));
    let whole = Arc::new(flight.clone());
    for step in removals.into_iter().chain(puts) {
        let (sealer, flight, one) = (sealer.clone(), whole.clone(), step.clone());
        let bytes = bytes_of(store, &step.change.after).await;
        let work = move || land_one(&one, bytes.as_deref(), &sealer, &flight);
        if let Ok(Err(problem)) = tokio::task::spawn_blocking(work).await {
            problems.push(problem);
        }
    }
    problems
}

fn land_one(
    step: &FlightStep,
    bytes: Result<&[u8], &StoreError>,
    sealer: &Sealer,
    flight: &Flight,
) -> Result<(), Problem> {
    let FlightStep { at, staged, change } = step;
    let root = &*flight.root_of(at);
    let limit = [&change.before, &change.after].into_iter().map(size_of).max().unwrap_or(0);
    let is_directory = change.before.is_directory() || change.after.is_directory();
    let now = match Access::default().capture(at, limit) {
        PathContent::Directory { mode } if is_directory => FileState::Directory { mode },
        captured => FileSnapshot::of(captured, sealer).state,
    };
    let unstage = || {
        if let Some(staged) = staged {
            // In nobody's way.
            drop(remove(staged, root, &|_| true));
        }
    };
    let same =
        |one: &FileState, other: &FileState| one == other || (one.is_directory() && other.is_directory());
    if same(&now, &change.after) {
        unstage();
        return Ok(());
    }
    // Between the two, a directory makes room for a file, or a file for a directory.
    let halfway = is_directory && now == FileState::Absent;
    // What is not known looks like anything that is not known.
    if change.before.is_known() && !same(&now, &change.before) && !halfway {
        unstage();
        let what = format!("{}: someone changed it meanwhile, so it was not restored", change.path);
        return Err(Problem { what, is_final: true });
    }
    let failed = |error: FileError| Problem { what: error.to_string(), is_final: false };
    if now.is_directory() {
        // Those above it that are empty by that go below.
        remove_directory(at).map_err(failed)?;
    }
    if let FileState::Directory { mode } = change.after {
        if now != FileState::Absent {
            remove(at, root, &|_| true).map_err(failed)?;
        }
        return make_directory(at, mode).map_err(failed);
    }
    let keeps = |directory: &Path| flight.keeps(directory);
    let Some(staged) = staged else { return remove(at, root, &keeps).map_err(failed) };
    match place(staged, at) {
        Err(FileError::NotFound { .. }) => {}
        done => return done.map_err(failed),
    }
    // Somebody tidied up.
    let bytes =
        bytes.map_err(|error| Problem { what: format!("{}: {error}", change.path), is_final: false })?;
    stage_now(step, bytes).map_err(failed)?;
    place(staged, at).map_err(failed)
}

/// Bytes that must be read to know whether a file is in this state.
fn size_of(state: &FileState) -> u64 {
    match state {
        FileState::File { size, .. } => *size,
        FileState::Absent
        | FileState::Link { .. }
        | FileState::Directory { .. }
        | FileState::Unknown { .. } => 0,
    }
}

/// What became of files that a process left on their way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SettleReport {
    /// What somebody should know.
    pub(crate) notes: Vec<String>,
    /// Some cannot take their places now; the row of the session still says so.
    pub(crate) is_pending: bool,
}

/// Takes back, or brings to its end, what a process left that died while files were put back. The rest of the row, if
/// there is any, stays.
///
/// # Errors
/// Those of the store.
pub(crate) async fn settle(
    store: &dyn Graph,
    sealer: &Arc<Sealer>,
    session: &SessionId,
) -> Result<SettleReport, StoreError> {
    #[derive(Deserialize)]
    struct Plan {
        files: Flight,
    }
    let Some(jump) = store.pending(session).await?.jump else { return Ok(SettleReport::default()) };
    let Ok(Plan { files: flight }) = jump.plan.read() else { return Ok(SettleReport::default()) };
    let mut notes = Vec::new();
    if jump.stage == STAGING {
        flight.unstage().await;
    } else {
        let problems = land(store, sealer, &flight).await;
        let done = problems.iter().all(|problem| problem.is_final);
        notes.extend(problems.into_iter().map(|problem| problem.what));
        if !done {
            return Ok(SettleReport { notes, is_pending: true });
        }
    }
    put(store, session, awaited(&jump).map(waits)).await?;
    Ok(SettleReport { notes, is_pending: false })
}
