//! Looks at the files of a call before it runs and after it ran.
//!
//! What a file was is in the store before a tool may change it, with a row that names it: a process that is killed in
//! the middle of a write leaves a file that can be put back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_protocol::{ChunkId, FileChange, FileState, RunId, SessionId, ToolCall, Unknown};
use quipu_seal::Sealer;
use quipu_store::{Commit, NewChunk, Op, Step, StepCall, StepState, Store, StoreError, delta};
use quipu_workspace::{Access, file_key};
use serde::{Deserialize, Serialize};

use super::FileSettings;
use super::note::WorkspaceNote;
use super::state::{Found, named};
use super::watch::{Changed, MOST_CHANGES, Watch, changed_since};

/// Keeps the files of one session.
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    /// The true path of the session's directory.
    root: PathBuf,
    settings: FileSettings,
    spent: Mutex<Spent>,
    seen: Mutex<Seen>,
    watch: Watch,
}

/// What the files of the current run added to the store.
#[derive(Default)]
struct Spent {
    run: Option<RunId>,
    bytes: u64,
    counted: HashSet<ChunkId>,
}

/// Files as they were when they were looked at last: whoever changes one once changes it again.
#[derive(Default)]
struct Seen {
    files: HashMap<PathBuf, Found>,
    bytes: usize,
}

/// Bytes of files that are remembered at most.
const REMEMBERED: usize = 8 << 20;

impl Seen {
    fn put(&mut self, at: PathBuf, found: Found) {
        let size = |found: &Found| found.bytes.as_ref().map_or(0, |bytes| bytes.len());
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
pub(crate) struct Begun {
    files: Vec<(Watched, Found)>,
    /// It is a command, which may change anything.
    pub(crate) is_command: bool,
}

/// One file of a call that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Watched {
    /// Where it is.
    at: PathBuf,
    /// As the node will name it.
    path: String,
    before: FileState,
    /// A directory above it that is empty, as the node will name it, and its permission bits: it is no longer empty then, but
    /// was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    empty: Option<(String, u32)>,
}

impl Watched {
    /// That the directory was there, where the file is now.
    fn directory(&self, after: &FileState) -> Option<FileChange> {
        let (path, mode) = self.empty.clone().filter(|_| *after != FileState::Absent)?;
        let state = FileState::Directory { mode };
        Some(FileChange { path, before: state.clone(), after: state })
    }
}

/// What became of a command.
#[derive(Default)]
pub(crate) struct Noticed {
    pub(crate) files: Vec<FileChange>,
    /// Their states, to be stored with them.
    pub(crate) states: Vec<NewChunk>,
    pub(crate) note: WorkspaceNote,
    /// What people are to be told of it.
    pub(crate) told: Option<String>,
}

/// A call that may have begun, as its row in the table of steps holds it.
#[derive(Serialize, Deserialize)]
struct Running {
    call: ToolCall,
    files: Vec<Watched>,
    /// It may change anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Command>,
}

/// Where a command began, and when: milliseconds.
#[derive(Serialize, Deserialize)]
struct Command {
    root: PathBuf,
    at: i64,
}

impl CallPlace {
    /// What the table of steps says of a call that may have begun.
    fn running(&self, running: &Running) -> Op {
        let step = Step {
            run: self.run.clone(),
            call: StepCall::Tool(self.key.as_str().into()),
            state: StepState::Running,
            data: serde_json::to_vec(running).ok(),
        };
        Op::StepPut { session: self.session.clone(), step }
    }
}

impl Begun {
    /// One that may change anything.
    pub(crate) fn command() -> Self {
        Self { is_command: true, ..Self::default() }
    }
}

impl Keeper {
    /// `cwd` is the session's directory.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        sealer: Arc<Sealer>,
        cwd: &Path,
        settings: FileSettings,
    ) -> Self {
        let root = file_key(cwd);
        let watch = Watch::new(&root, settings);
        let (spent, seen) = (Mutex::default(), Mutex::default());
        Self { store, sealer, root, settings, spent, seen, watch }
    }

    fn spent(&self, run: &RunId) -> MutexGuard<'_, Spent> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.run.as_ref() != Some(run) {
            *spent = Spent { run: Some(run.clone()), ..Spent::default() };
        }
        spent
    }

    /// What must be added to the store for a state, when there is room for it; `base` is the file as it was.
    fn chunk(&self, run: &RunId, found: &mut Found, base: Option<(ChunkId, &Arc<[u8]>)>) -> Option<NewChunk> {
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
    fn look(&self, at: &Path, before: Option<&Found>, access: &Access) -> Found {
        let captured = access.capture(at, self.settings.file_bytes);
        let found = match before {
            Some(before) => Found::again(captured, Some(before), &self.sealer),
            None => {
                let seen = self.seen().files.get(at).cloned();
                Found::again(captured, seen.as_ref(), &self.sealer)
            }
        };
        self.seen().put(at.to_path_buf(), found.clone());
        found
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
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
    ) -> Result<Begun, StoreError> {
        let (keeper, access, run) = (self.clone(), access.clone(), place.run.clone());
        let look = move || {
            let (mut files, mut chunks) = (Vec::new(), Vec::new());
            for at in paths {
                // What has no name that can be written down can be put back by nobody.
                let Some(path) = named(&keeper.root, &at) else { continue };
                let mut found = keeper.look(&at, None, &access);
                chunks.extend(keeper.chunk(&run, &mut found, None));
                let empty = empty_above(&at).and_then(|(directory, mode)| {
                    let is_root = directory == keeper.root;
                    Some((named(&keeper.root, &directory).filter(|_| !is_root)?, mode))
                });
                files.push((Watched { at, path, before: found.state.clone(), empty }, found));
            }
            (files, chunks)
        };
        let Ok((files, chunks)) = tokio::task::spawn_blocking(look).await else {
            return Ok(Begun::default());
        };
        if files.is_empty() {
            return Ok(Begun::default());
        }
        let names = files.iter().map(|(watched, _)| watched.clone()).collect();
        let ops = vec![place.running(&Running { call: call.clone(), files: names, command: None })];
        self.store.commit(Commit { chunks, ops, ..Commit::default() }).await?;
        Ok(Begun { files, is_command: false })
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
        let keeper = self.clone();
        let look = move || keeper.watch.before();
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let at = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        let command = Some(Command { root: self.root.clone(), at });
        let ops = vec![place.running(&Running { call: call.clone(), files: Vec::new(), command })];
        let noted = self.store.commit(Commit { ops, ..Commit::default() });
        let (looked, noted) = tokio::join!(tokio::task::spawn_blocking(look), noted);
        noted?;
        Ok(looked.ok().flatten().map(|why| {
            format!(
                "What commands change in {} is not noticed, so it cannot be put back: {why}.",
                self.root.display()
            )
        }))
    }

    /// A command may be about to run: looks at the workspace ahead. Blocks.
    pub(crate) fn ahead(&self) {
        self.watch.ahead();
    }

    /// What a command changed.
    pub(crate) async fn after_command(self: &Arc<Self>, place: &CallPlace) -> Noticed {
        let (keeper, run) = (self.clone(), place.run.clone());
        let look = move || {
            let Changed { changes, more, note } = keeper.watch.after(&keeper.sealer);
            let (mut found, mut chunks) = (Vec::new(), Vec::new());
            for (mut change, mut old, mut new) in changes {
                chunks.extend(keeper.chunk(&run, &mut old, None));
                let base = old.state.content().zip(old.bytes.as_ref());
                chunks.extend(keeper.chunk(&run, &mut new, base));
                (change.before, change.after) = (old.state, new.state);
                found.push(change);
            }
            (found, chunks, more, note)
        };
        let Ok((files, states, more, note)) = tokio::task::spawn_blocking(look).await else {
            let note = WorkspaceNote::unknown("files could not be looked at after a command");
            return Noticed { note, ..Noticed::default() };
        };
        let told = (more > 0).then(|| {
            format!(
                "The command changed {} files; {more} of them are not kept, and cannot be put back.",
                more + MOST_CHANGES
            )
        });
        Noticed { files, states, note, told }
    }

    /// What the call changed, with the states that are to be stored with it.
    pub(crate) async fn after(
        self: &Arc<Self>,
        place: &CallPlace,
        begun: Begun,
        access: &Access,
    ) -> (Vec<FileChange>, Vec<NewChunk>) {
        let (keeper, access, run) = (self.clone(), access.clone(), place.run.clone());
        let look = move || {
            let (mut changes, mut chunks) = (Vec::new(), Vec::new());
            for (watched, old) in begun.files {
                let mut found = keeper.look(&watched.at, Some(&old), &access);
                // Two states that are not known are taken for one only where nothing can be done about either.
                if found.state == watched.before {
                    continue;
                }
                let base = watched.before.content().zip(old.bytes.as_ref());
                chunks.extend(keeper.chunk(&run, &mut found, base));
                changes.extend(watched.directory(&found.state));
                let Watched { path, before, .. } = watched;
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
fn dedup(changes: &mut Vec<FileChange>) {
    let mut seen = HashSet::new();
    changes.retain(|change| !change.before.is_directory() || seen.insert(change.path.clone()));
}

/// Keeps the states after an interrupted call. What the store does not take is told as not kept; that the disk is full,
/// or whatever it is, is told with the result, which is stored next.
async fn store_states(
    store: &dyn Store,
    mut changes: Vec<FileChange>,
    chunks: Vec<NewChunk>,
) -> Vec<FileChange> {
    if chunks.is_empty() {
        return changes;
    }
    if store.commit(Commit { chunks, ..Commit::default() }).await.is_err() {
        for change in &mut changes {
            for state in [&mut change.before, &mut change.after] {
                if let FileState::File { size, .. } = state {
                    *state = FileState::Unknown { why: Unknown::Dropped, size: Some(*size) };
                }
            }
        }
    }
    changes
}

/// A call whose process died: how far it was, as its row in the table of steps tells.
pub(crate) enum Left<'a> {
    /// Its result is kept, with what it changed.
    Done(&'a [FileChange]),
    /// It may have begun.
    Open(&'a Step),
}

/// What the calls of one answer changed that were under way when their process died. Of calls that change the same file,
/// one begins when the one before it is done; so what it found is what that one left, and the last one left what is
/// there now. A list for each call.
pub(crate) async fn after_a_crash(
    store: &dyn Store,
    sealer: &Arc<Sealer>,
    calls: &[Left<'_>],
) -> Vec<Vec<FileChange>> {
    let mut left = vec![Vec::new(); calls.len()];
    let mut found: HashMap<String, FileState> = HashMap::new();
    for (call, left) in calls.iter().zip(&mut left).rev() {
        let step = match call {
            Left::Done(changes) => {
                found.extend(changes.iter().map(|change| (change.path.clone(), change.before.clone())));
                continue;
            }
            Left::Open(step) => step,
        };
        let running = step.data.as_deref().filter(|_| step.state == StepState::Running);
        let Some(Running { files, command, .. }) = running.and_then(|data| serde_json::from_slice(data).ok())
        else {
            continue;
        };
        if let Some(Command { root, at }) = command {
            for path in touched_since(root.clone(), at).await {
                let Some(name) = named(&root, &root.join(&path)).filter(|name| !found.contains_key(name))
                else {
                    continue;
                };
                let before = FileState::unknown(Unknown::BeforeUnknown);
                let after = now(store, sealer, root.join(&path), &before).await;
                found.insert(name.clone(), before.clone());
                left.push(FileChange { path: name, before, after });
            }
        }
        for watched in files {
            let Watched { at, path, before, .. } = watched.clone();
            let after = match found.insert(path.clone(), before.clone()) {
                Some(after) => after,
                None => now(store, sealer, at, &before).await,
            };
            if after != before {
                left.extend(watched.directory(&after));
                left.push(FileChange { path, before, after });
            }
        }
        dedup(left);
    }
    left
}

/// Files that may have been changed by a command which began then.
async fn touched_since(root: PathBuf, at: i64) -> Vec<PathBuf> {
    tokio::task::spawn_blocking(move || changed_since(&root, at)).await.unwrap_or_default()
}

/// A file as it is, kept.
async fn now(store: &dyn Store, sealer: &Arc<Sealer>, at: PathBuf, before: &FileState) -> FileState {
    if let FileState::Unknown { why: Unknown::Secret, .. } = before {
        // Where it lies, nothing is read.
        return before.clone();
    }
    let sealer = sealer.clone();
    let limit = FileSettings::default().file_bytes;
    let look = move || Found::of(Access::default().capture(&at, limit), &sealer);
    let Ok(Found { state, bytes }) = tokio::task::spawn_blocking(look).await else { return before.clone() };
    let chunk = state.content().zip(bytes).map(|(id, bytes)| match before.content() {
        Some(base) => NewChunk::Delta { id, base, bytes },
        None => NewChunk::Full { id, bytes },
    });
    let change = FileChange { path: String::new(), before: FileState::Absent, after: state };
    let mut kept = store_states(store, vec![change], chunk.into_iter().collect()).await;
    kept.pop().map_or_else(|| before.clone(), |change| change.after)
}
