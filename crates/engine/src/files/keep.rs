//! Looks at the files of a call before it runs and after it ran.
//!
//! What a file was is in the store before a tool may change it, with a row that names it: a process that is killed in
//! the middle of a write leaves a file that can be put back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_protocol::{ChunkId, FileChange, FileState, RunId, SessionId, ToolCall, Unknown};
use quipu_seal::Sealer;
use quipu_store::{Commit, Graph, NewChunk, Op, Step, StepCall, StepState, StoreError, delta};
use quipu_workspace::{Access, file_key};
use serde::{Deserialize, Serialize};

use super::FileSettings;
use super::listing::{Listing, ListingDelta, Update};
use super::state::{FileSnapshot, named};
use super::watch::{CommandDiff, MOST_CHANGES, Watch, WatchStart};
use quipu_transcript::WorkspaceNote;

/// Keeps the files of one session.
pub(crate) struct FileSnapshotter {
    store: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
    /// The true path of the session's directory.
    root: PathBuf,
    settings: FileSettings,
    spent: Mutex<RunStorage>,
    seen: Mutex<SnapshotCache>,
    watch: Watch,
    /// Sessions that have a list of files in the store.
    listed: Mutex<HashSet<SessionId>>,
}

/// What the files of the current run added to the store.
#[derive(Default)]
struct RunStorage {
    run: Option<RunId>,
    bytes: u64,
    counted: HashSet<ChunkId>,
}

/// Files as they were when they were looked at last: whoever changes one once changes it again.
#[derive(Default)]
struct SnapshotCache {
    files: HashMap<PathBuf, FileSnapshot>,
    bytes: usize,
}

/// Bytes of files that are remembered at most.
const REMEMBERED: usize = 8 << 20;

impl SnapshotCache {
    fn put(&mut self, at: PathBuf, found: FileSnapshot) {
        let size = |found: &FileSnapshot| found.bytes.as_ref().map_or(0, |bytes| bytes.len());
        if size(&found) > REMEMBERED / 4 {
            return;
        }
        if self.bytes + size(&found) > REMEMBERED {
            *self = Self::default();
        }
        self.bytes += size(&found);
        let before = self.files.insert(at, found);
        self.bytes -= before.as_ref().map_or(0, size);
    }
}

/// Where a call stands in the table of steps.
pub(crate) struct CallPlace {
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) key: String,
}

/// Files as they were before a call.
#[derive(Default)]
pub(crate) struct CallBaseline {
    files: Vec<(WatchedFile, FileSnapshot)>,
    /// It is a command, which may change anything.
    pub(crate) is_command: bool,
}

/// One file of a call that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WatchedFile {
    /// Where it is.
    pub(super) at: PathBuf,
    /// As the node will name it.
    pub(super) path: String,
    pub(super) before: FileState,
    /// A directory above it that is empty, as the node will name it, and its permission bits: it is no longer empty then, but
    /// was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    empty: Option<(String, u32)>,
}

impl WatchedFile {
    /// That the directory was there, where the file is now.
    pub(super) fn directory(&self, after: &FileState) -> Option<FileChange> {
        let (path, mode) = self.empty.clone().filter(|_| *after != FileState::Absent)?;
        let state = FileState::Directory { mode };
        Some(FileChange { path, before: state.clone(), after: state })
    }
}

/// What became of a command.
#[derive(Default)]
pub(crate) struct CommandChanges {
    pub(crate) files: Vec<FileChange>,
    /// Their states, to be stored with them.
    pub(crate) states: Vec<NewChunk>,
    pub(crate) note: WorkspaceNote,
    /// A notice about it for people.
    pub(crate) notice: Option<String>,
}

impl CommandChanges {
    /// With what background commands changed, which was looked at later. A file that both name was `self`'s in between.
    pub(crate) fn with(mut self, later: Self) -> Self {
        self.files.retain(|own| later.files.iter().all(|other| other.path != own.path));
        self.files.extend(later.files);
        self.states.extend(later.states);
        Self { note: later.note, notice: later.notice, ..self }
    }
}

/// A call that may have begun, as its row in the table of steps holds it.
#[derive(Serialize, Deserialize)]
pub(super) struct OpenCallRow {
    call: ToolCall,
    pub(super) files: Vec<WatchedFile>,
    /// It may change anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<Command>,
}

/// Where a command began, and when: milliseconds.
#[derive(Serialize, Deserialize)]
pub(super) struct Command {
    pub(super) root: PathBuf,
    pub(super) at: i64,
    /// What is different from the session's list of files.
    #[serde(default)]
    pub(super) since: Option<ListingDelta>,
    /// Why nothing is noticed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unwatched: Option<String>,
}

/// In the table of steps, the run and the key of a session's list of files.
pub(super) const LISTING: &str = "quipu.listing";

/// Writes a session's list of files, in place of the one before.
fn put_listing(session: &SessionId, listing: &Listing) -> Op {
    let step = Step {
        run: LISTING.into(),
        call: StepCall::Tool(LISTING.into()),
        state: StepState::Announced,
        data: serde_json::to_vec(listing).ok(),
    };
    Op::StepPut { session: session.clone(), step }
}

/// The list of files among what a session left open.
pub(crate) fn listing_of(steps: &[Step]) -> Option<&Step> {
    steps.iter().find(|step| is_listing(step))
}

/// Whether a step is only a list of files, so that nothing is open.
pub(crate) fn is_listing(step: &Step) -> bool {
    step.run.as_str() == LISTING
}

impl CallPlace {
    /// What the table of steps says of a call that may have begun.
    fn running(&self, running: &OpenCallRow) -> Op {
        let step = Step {
            run: self.run.clone(),
            call: StepCall::Tool(self.key.as_str().into()),
            state: StepState::Running,
            data: serde_json::to_vec(running).ok(),
        };
        Op::StepPut { session: self.session.clone(), step }
    }
}

impl CallBaseline {
    /// One that may change anything.
    pub(crate) fn command() -> Self {
        Self { is_command: true, ..Self::default() }
    }
}

impl FileSnapshotter {
    /// `cwd` is the session's directory.
    pub(crate) fn new(
        store: Arc<dyn Graph>,
        sealer: Arc<Sealer>,
        cwd: &Path,
        settings: FileSettings,
    ) -> Self {
        let root = file_key(cwd);
        let watch = Watch::new(&root, settings);
        let (spent, seen) = (Mutex::default(), Mutex::default());
        let listed = Mutex::default();
        Self { store, sealer, root, settings, spent, seen, watch, listed }
    }

    fn spent(&self, run: &RunId) -> MutexGuard<'_, RunStorage> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.run.as_ref() != Some(run) {
            *spent = RunStorage { run: Some(run.clone()), ..RunStorage::default() };
        }
        spent
    }

    /// What must be added to the store for a state, when there is room for it; `base` is the file as it was.
    fn chunk(
        &self,
        run: &RunId,
        found: &mut FileSnapshot,
        base: Option<(ChunkId, &Arc<[u8]>)>,
    ) -> Option<NewChunk> {
        let (id, bytes) = (found.state.content()?, found.bytes.clone()?);
        let mut spent = self.spent(run);
        if !spent.counted.contains(&id) {
            let new = base.map_or(bytes.len(), |(_, base)| delta(base, &bytes).middle.len()) as u64;
            if spent.bytes.saturating_add(new) > self.settings.run_bytes {
                found.dropped(Unknown::TooLarge);
                return None;
            }
            spent.bytes += new;
            spent.counted.insert(id);
        }
        // What the store has already costs it one question; what was counted may not have come there.
        Some(match base {
            Some((base, _)) => NewChunk::Delta { id, base, bytes },
            None => NewChunk::Plain { id, bytes },
        })
    }

    /// What is at a path now.
    fn look(&self, at: &Path, before: Option<&FileSnapshot>, access: &Access) -> FileSnapshot {
        let captured = access.capture(at, self.settings.file_bytes);
        let found = match before {
            Some(before) => FileSnapshot::again(captured, Some(before), &self.sealer),
            None => {
                let seen = self.seen().files.get(at).cloned();
                FileSnapshot::again(captured, seen.as_ref(), &self.sealer)
            }
        };
        self.seen().put(at.to_path_buf(), found.clone());
        found
    }

    fn seen(&self) -> MutexGuard<'_, SnapshotCache> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call may be about to change these files: looks at them ahead, so that little is to be done when it begins. Blocks.
    pub(crate) fn ahead_of(&self, paths: &[PathBuf], access: &Access) {
        for at in paths {
            self.look(at, None, access);
        }
    }

    /// Looks at these files, which the call may change, and keeps what they are.
    ///
    /// # Errors
    /// Those of the store. The call must not run then.
    pub(crate) async fn before(
        self: &Arc<Self>,
        place: &CallPlace,
        call: &ToolCall,
        paths: Vec<PathBuf>,
        access: &Access,
    ) -> Result<CallBaseline, StoreError> {
        let (snapshotter, access, run) = (self.clone(), access.clone(), place.run.clone());
        let look = move || {
            let (mut files, mut chunks) = (Vec::new(), Vec::new());
            for at in paths {
                // What has no name that can be written down can be put back by nobody.
                let Some(path) = named(&snapshotter.root, &at) else { continue };
                let mut found = snapshotter.look(&at, None, &access);
                chunks.extend(snapshotter.chunk(&run, &mut found, None));
                let empty = empty_above(&at).and_then(|(directory, mode)| {
                    let is_root = directory == snapshotter.root;
                    Some((named(&snapshotter.root, &directory).filter(|_| !is_root)?, mode))
                });
                files.push((WatchedFile { at, path, before: found.state.clone(), empty }, found));
            }
            (files, chunks)
        };
        let Ok((files, chunks)) = tokio::task::spawn_blocking(look).await else {
            return Ok(CallBaseline::default());
        };
        if files.is_empty() {
            return Ok(CallBaseline::default());
        }
        let names = files.iter().map(|(watched, _)| watched.clone()).collect();
        let ops = vec![place.running(&OpenCallRow { call: call.clone(), files: names, command: None })];
        self.store.commit(Commit { chunks, ops, ..Commit::default() }).await?;
        Ok(CallBaseline { files, is_command: false })
    }

    /// A command is about to run: looks at the whole workspace, and notes that it may have begun, for whoever finds that it
    /// was interrupted. Tells, once, why nothing is noticed there.
    ///
    /// # Errors
    /// Those of the store. The call must not run then.
    pub(crate) async fn before_command(
        self: &Arc<Self>,
        place: &CallPlace,
        call: &ToolCall,
    ) -> Result<Option<String>, StoreError> {
        let (snapshotter, session) = (self.clone(), place.session.clone());
        let at = || {
            let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
            now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
        };
        let looked = tokio::task::spawn_blocking(move || snapshotter.watch.before(&session)).await;
        let WatchStart { notice, unwatched, update } = looked.unwrap_or_default();
        let (listing, since) = match update {
            Some(Update { listing, since }) => (listing, Some(since)),
            None => (None, None),
        };
        let command = Some(Command { root: self.root.clone(), at: at(), since, unwatched });
        let running = OpenCallRow { call: call.clone(), files: Vec::new(), command };
        let listing = listing.map(|listing| put_listing(&place.session, &listing));
        if listing.is_some() {
            self.listed.lock().unwrap_or_else(PoisonError::into_inner).insert(place.session.clone());
        }
        let ops = listing.into_iter().chain([place.running(&running)]).collect();
        self.store.commit(Commit { ops, ..Commit::default() }).await?;
        Ok(notice.map(|why| {
            format!(
                "Quipu does not track what commands change in {}, so it cannot restore it: {why}.",
                self.root.display()
            )
        }))
    }

    /// The session ends: its list of files is of no use any more. Where it cannot be removed, who opens the session does it.
    pub(crate) async fn close(&self) {
        let sessions = std::mem::take(&mut *self.listed.lock().unwrap_or_else(PoisonError::into_inner));
        let ops: Vec<Op> =
            sessions.into_iter().map(|session| Op::RunRemove { session, run: LISTING.into() }).collect();
        if !ops.is_empty() {
            drop(self.store.commit(Commit { ops, ..Commit::default() }).await);
        }
    }

    /// A command may be about to run: looks at the workspace ahead. Blocks.
    pub(crate) fn ahead(&self) {
        self.watch.ahead();
    }

    /// What a command changed.
    pub(crate) async fn after_command(self: &Arc<Self>, place: &CallPlace) -> CommandChanges {
        self.command_changes(place.run.clone(), |snapshotter| snapshotter.watch.after(&snapshotter.sealer))
            .await
    }

    /// A command goes on in the background. Called while the call that starts it runs.
    pub(crate) fn background_begins(&self) {
        self.watch.background_begins();
    }

    /// A background command has ended, and what it changed was asked for.
    pub(crate) fn background_ends(&self) {
        self.watch.background_ends();
    }

    /// A background command was killed by a call, which asks for what it changed.
    pub(crate) fn background_killed(&self) {
        self.watch.background_killed();
    }

    /// What changed since the last look, where a command runs in the background.
    pub(crate) async fn background_changes(self: &Arc<Self>, run: RunId) -> CommandChanges {
        self.command_changes(run, |snapshotter| snapshotter.watch.between(&snapshotter.sealer)).await
    }

    async fn command_changes(
        self: &Arc<Self>,
        run: RunId,
        difference: impl FnOnce(&Self) -> CommandDiff + Send + 'static,
    ) -> CommandChanges {
        let snapshotter = self.clone();
        let look = move || {
            let CommandDiff { changes, more, note } = difference(&snapshotter);
            let (mut found, mut chunks) = (Vec::new(), Vec::new());
            for (mut change, mut old, mut new) in changes {
                chunks.extend(snapshotter.chunk(&run, &mut old, None));
                let base = old.state.content().zip(old.bytes.as_ref());
                chunks.extend(snapshotter.chunk(&run, &mut new, base));
                (change.before, change.after) = (old.state, new.state);
                found.push(change);
            }
            (found, chunks, more, note)
        };
        let Ok((files, states, more, note)) = tokio::task::spawn_blocking(look).await else {
            let note = WorkspaceNote::unknown("could not check files after a command");
            return CommandChanges { note, ..CommandChanges::default() };
        };
        let notice = (more > 0).then(|| {
            format!(
                "A command changed {} files; {more} of them were not saved and cannot be restored.",
                more + MOST_CHANGES
            )
        });
        CommandChanges { files, states, note, notice }
    }

    /// What the call changed, with the states that are to be stored with it.
    pub(crate) async fn after(
        self: &Arc<Self>,
        place: &CallPlace,
        begun: CallBaseline,
        access: &Access,
    ) -> (Vec<FileChange>, Vec<NewChunk>) {
        let (snapshotter, access, run) = (self.clone(), access.clone(), place.run.clone());
        let look = move || {
            let (mut changes, mut chunks) = (Vec::new(), Vec::new());
            for (watched, old) in begun.files {
                let mut found = snapshotter.look(&watched.at, Some(&old), &access);
                // Two states that are not known are taken for one only where nothing can be done about either.
                if found.state == watched.before {
                    continue;
                }
                let base = watched.before.content().zip(old.bytes.as_ref());
                chunks.extend(snapshotter.chunk(&run, &mut found, base));
                changes.extend(watched.directory(&found.state));
                let WatchedFile { path, before, .. } = watched;
                changes.push(FileChange { path, before, after: found.state });
            }
            dedup(&mut changes);
            (changes, chunks)
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }
}

/// The nearest directory above a path that is there, with its permission bits, where it is empty.
fn empty_above(at: &Path) -> Option<(PathBuf, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let above = at.ancestors().skip(1).find_map(|dir| Some((dir, dir.symlink_metadata().ok()?)));
    let (directory, found) = above.filter(|(_, found)| found.is_dir())?;
    let is_empty = std::fs::read_dir(directory).ok()?.next().is_none();
    is_empty.then(|| (directory.to_path_buf(), found.mode() & 0o7777))
}

/// A directory stands there once.
pub(super) fn dedup(changes: &mut Vec<FileChange>) {
    let mut seen = HashSet::new();
    changes.retain(|change| !change.before.is_directory() || seen.insert(change.path.clone()));
}
