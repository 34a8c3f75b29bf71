//! What commands change: every file of the workspace is looked at before and after. Only what changed between the two is
//! the command's; what people change between commands is theirs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quipu_protocol::{FileChange, FileState, SessionId, Unknown};
use quipu_seal::Sealer;
use quipu_workspace::{
    Access, Changes, Files, GitIndex, GitRefs, PathContent, Stamp, changed, git_blobs, scan,
};

use super::FileSettings;
use super::listing::{Lister, Update, hash_of};
use super::note::{NoteText as _, shown};
use super::pending::PendingSnapshot;
use super::state::{FileSnapshot, named};
use quipu_transcript::{GIT_INDEX, GitMove, WorkspaceNote};

/// What was looked at longer ago is looked at again: somebody else may have changed it.
const AHEAD: Duration = Duration::from_secs(1);
/// Changes of one command that are kept at most.
pub(super) const MOST_CHANGES: usize = 2_000;
/// Files that were written in the moment of a look and are read again after a command, since their times may not tell.
const MOST_RACY: usize = 200;

/// Looks at a workspace around commands.
pub(crate) struct Watch {
    root: PathBuf,
    /// Bytes of one file, and of all files that are held while a command may change them.
    file_bytes: u64,
    held_bytes: u64,
    /// Files that git ignores and that are held.
    ignored_files: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Commands that run: what several change side by side is noticed when the last of them ends.
    running: usize,
    /// Commands that run in the background. While one does, what changes between two looks is not taken for a person's.
    background: usize,
    /// One was killed by a call, which looks at what it changed at its end.
    is_unlooked: bool,
    /// As it was at the last look.
    before: Files,
    refs: GitRefs,
    /// When it was looked at for a command that is about to run.
    ahead: Option<Instant>,
    index: Option<Arc<GitIndex>>,
    /// What tells its content from another.
    index_hash: Option<u64>,
    lister: Lister,
    /// Paths that may have to be held and were not looked at; all of them where there is nothing.
    unheld: Option<Vec<PathBuf>>,
    /// Files that git does not give back, as they were when they were looked at last.
    held: HashMap<PathBuf, (Stamp, PendingSnapshot)>,
    bytes: u64,
    /// Files that were written in the moment of the last look.
    racy: Vec<PathBuf>,
    /// Why nothing is watched.
    given_up: Option<String>,
    /// Whether a notice about that was sent.
    is_notified: bool,
}

/// The notices and writes before a command runs.
#[derive(Default)]
pub(super) struct WatchStart {
    /// Why nothing is watched, once.
    pub(super) notice: Option<String>,
    /// The same, each time.
    pub(super) unwatched: Option<String>,
    pub(super) update: Option<Update>,
}

/// What a command changed.
#[derive(Default)]
pub(super) struct CommandDiff {
    pub(super) changes: Vec<(FileChange, FileSnapshot, FileSnapshot)>,
    /// Changes beyond those.
    pub(super) more: usize,
    pub(super) note: WorkspaceNote,
}

impl Watch {
    pub(super) fn new(root: &Path, settings: FileSettings) -> Self {
        let given_up = is_too_wide(root).then(|| "it is your home directory or contains it".to_owned());
        let state = Mutex::new(State { given_up, ..State::default() });
        let FileSettings { file_bytes, run_bytes: held_bytes, ignored_files, .. } = settings;
        let ignored_files = most_ignored(ignored_files);
        Self { root: root.to_path_buf(), file_bytes, held_bytes, ignored_files, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command of a session is about to run.
    pub(super) fn before(&self, session: &SessionId) -> WatchStart {
        let mut state = self.state();
        state.running += 1;
        let is_ahead = state.ahead.take().is_some_and(|at| at.elapsed() < AHEAD);
        if state.running == 1 && !state.has_background() && !is_ahead {
            self.look_around(&mut state);
        }
        let notice = state.tell();
        let unwatched = state.given_up.clone();
        let State { before, refs, index, index_hash, lister, held, .. } = &mut *state;
        let content = |path: &Path| match held.get(path) {
            Some((_, PendingSnapshot::Ready(found))) => found.state.content(),
            Some(_) | None => None,
        };
        let update = unwatched
            .is_none()
            .then(|| lister.update(session, before, (index.as_deref(), *index_hash), refs, &content));
        WatchStart { notice, unwatched, update }
    }

    /// A command may be about to run, and runs within the second when it does.
    pub(super) fn ahead(&self) {
        let mut state = self.state();
        if state.running == 0 && !state.has_background() {
            self.look_around(&mut state);
            state.ahead = Some(Instant::now());
        }
    }

    fn look_around(&self, state: &mut State) {
        state.refs = GitRefs::of(&self.root, Some(&state.refs));
        if state.given_up.is_some() {
            return;
        }
        if !state.index.as_ref().is_some_and(|index| index.is_current()) {
            state.index = GitIndex::of(&self.root).map(Arc::new);
            state.index_hash = state.index.as_deref().map(hash_of);
            state.unheld = None;
        }
        match scan(&self.root, state.index.as_deref(), Some(&state.before), self.ignored_files) {
            Ok(files) => {
                let before = std::mem::replace(&mut state.before, files);
                let Changes { files: mut changed, directories, .. } = changed(&before, &state.before);
                state.lister.changed(changed.iter().chain(&directories));
                changed.append(&mut state.racy);
                state.racy = racy(&state.before, &changed);
                if let Some(unheld) = &mut state.unheld {
                    unheld.extend(changed);
                }
                self.hold(state);
            }
            Err(why) => {
                let (running, background) = (state.running, state.background);
                let (given_up, refs) = (Some(why.to_string()), std::mem::take(&mut state.refs));
                *state = State { running, background, refs, given_up, ..State::default() };
            }
        }
    }

    /// Reads what nobody else could give back: first what git does not ignore.
    fn hold(&self, state: &mut State) {
        let State { before, index, held, bytes, unheld, .. } = state;
        let mut ignored = 0;
        held.retain(|path, (stamp, found)| {
            let stays = before.get(path) == Some(stamp);
            if stays {
                ignored += usize::from(before.is_ignored(path));
            } else {
                *bytes -= found.size();
            }
            stays
        });
        let mut paths = match unheld.take() {
            Some(paths) => paths,
            None => before.iter().map(|(path, _)| path).collect(),
        };
        if paths.len() > 1 {
            paths.sort_by_cached_key(|path| (before.is_ignored(path), path.clone()));
            paths.dedup();
        }
        let mut left = Vec::new();
        for path in paths {
            let Some(stamp) = before.get(&path) else { continue };
            let is_clean = || index.as_deref().is_some_and(|index| index.clean(&path, stamp).is_some());
            if held.contains_key(&path) || is_clean() {
                continue;
            }
            let is_ignored = before.is_ignored(&path);
            let no_room = bytes.saturating_add(stamp.size.min(self.file_bytes)) > self.held_bytes;
            if no_room || (is_ignored && ignored >= self.ignored_files) {
                left.push(path);
                continue;
            }
            let found = self.look(&path);
            *bytes += found.size();
            ignored += usize::from(is_ignored);
            held.insert(path, (*stamp, found));
        }
        *unheld = Some(left);
    }

    fn look(&self, path: &Path) -> PendingSnapshot {
        PendingSnapshot::Raw(Access::default().capture(&self.root.join(path), self.file_bytes))
    }

    /// A command goes on in the background, while the call that starts it is counted as running.
    pub(super) fn background_begins(&self) {
        self.state().background += 1;
    }

    /// A background command has ended.
    pub(super) fn background_ends(&self) {
        let mut state = self.state();
        state.background = state.background.saturating_sub(1);
    }

    /// A background command was killed by a call, which asks for what it changed.
    pub(super) fn background_killed(&self) {
        self.state().is_unlooked = true;
        self.background_ends();
    }

    /// What changed since the last look where a command runs in the background, and no other: theirs, as far as can be told.
    pub(super) fn between(&self, sealer: &Sealer) -> CommandDiff {
        let mut state = self.state();
        if !state.has_background() || state.running > 0 {
            return CommandDiff::default();
        }
        self.difference(&mut state, sealer)
    }

    /// A command has ended. What it changed, unless others still run.
    pub(super) fn after(&self, sealer: &Sealer) -> CommandDiff {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
        if state.running > 0 {
            return CommandDiff::default();
        }
        self.difference(&mut state, sealer)
    }

    /// What changed since the last look.
    fn difference(&self, state: &mut State, sealer: &Sealer) -> CommandDiff {
        state.is_unlooked = false;
        let mut note = WorkspaceNote::default();
        let refs = GitRefs::of(&self.root, Some(&state.refs));
        note.moved(&state.refs, &refs);
        state.refs = refs;
        if let Some(why) = &state.given_up {
            note.unknown.push(not_noticed(&self.root, why));
            return CommandDiff { note, ..CommandDiff::default() };
        }
        if note.git.is_empty()
            && let Some(old) = state.index.as_deref().filter(|index| !index.is_current())
            && GitIndex::of(&self.root).is_none_or(|new| !old.stages_the_same(&new))
        {
            note.git.push(GitMove { name: GIT_INDEX.into(), before: None, after: None });
        }
        // What git knew then: it may have been a git command.
        let scanned = scan(&self.root, state.index.as_deref(), Some(&state.before), self.ignored_files);
        let after = match scanned {
            Ok(after) => after,
            Err(why) => {
                note.unknown.push(format!("could not check files after a command: {why}"));
                return CommandDiff { note, ..CommandDiff::default() };
            }
        };
        let before = std::mem::replace(&mut state.before, after.clone());
        let Changes { files: mut paths, mut directories, caches } = changed(&before, &after);
        note.changed_caches(&caches);
        state.lister.changed(paths.iter().chain(&directories));
        if before.is_beyond() || after.is_beyond() {
            note.unknown.push(format!(
                "git ignores more than {} files here; changes to the others are not tracked",
                self.ignored_files
            ));
            paths.retain(|path| self.is_different(path, &before, &after));
            directories.retain(|path| self.is_different(path, &before, &after));
        }
        let racy = std::mem::replace(&mut state.racy, racy(&after, &paths));
        let more = paths.len().saturating_sub(MOST_CHANGES);
        let beyond = paths.split_off(paths.len() - more);
        if more > 0 {
            note.unknown.push(format!(
                "a command changed {} files; {more} of them were not saved",
                more + MOST_CHANGES
            ));
        }
        if let Some(unheld) = &mut state.unheld {
            unheld.extend(beyond);
        }
        for path in racy {
            if paths.binary_search(&path).is_err() && self.was_rewritten(state, &path, &after) {
                let at = paths.partition_point(|other| *other < path);
                paths.insert(at, path);
            }
        }
        let mut changes = self.changes(state, &paths, &before, &after, sealer);
        let more_directories = directories.len().saturating_sub(MOST_CHANGES);
        directories.truncate(MOST_CHANGES);
        if more_directories > 0 {
            note.unknown.push(format!(
                "a command created or removed {} directories; {more_directories} of them were not saved",
                more_directories + MOST_CHANGES
            ));
        }
        let by_name: HashMap<String, usize> =
            changes.iter().enumerate().map(|(at, (change, ..))| (change.path.clone(), at)).collect();
        for (path, made, new) in directory_changes(&directories, &before, &after) {
            let Some(name) = named(&self.root, &self.root.join(&path)) else { continue };
            match by_name.get(&name).and_then(|at| changes.get_mut(*at)) {
                // A file became a directory, or the other way round.
                Some((change, old, now)) => {
                    if made.is_directory() {
                        (*old, change.before) = (plain(&made), made);
                    }
                    if new.is_directory() {
                        (*now, change.after) = (plain(&new), new);
                    }
                }
                None => {
                    let change = FileChange { path: name, before: made.clone(), after: new.clone() };
                    changes.push((change, plain(&made), plain(&new)));
                }
            }
        }
        state.bytes = state.held.values().map(|(_, found)| found.size()).sum();
        CommandDiff { changes, more, note }
    }

    fn changes(
        &self,
        state: &mut State,
        paths: &[PathBuf],
        before: &Files,
        after: &Files,
        sealer: &Sealer,
    ) -> Vec<(FileChange, FileSnapshot, FileSnapshot)> {
        let index = state.index.clone();
        let clean = |path: &PathBuf| index.as_deref()?.clean(path, before.get(path)?);
        let asked: Vec<(&PathBuf, [u8; 20])> =
            paths.iter().filter_map(|path| Some((path, clean(path)?))).collect();
        let ids: Vec<[u8; 20]> = asked.iter().map(|(_, id)| *id).collect();
        let blobs = git_blobs(&self.root, &ids, self.file_bytes);
        let mut of_git: HashMap<&PathBuf, Option<Vec<u8>>> =
            asked.into_iter().map(|(path, _)| path).zip(blobs).collect();
        let mut changes = Vec::new();
        for path in paths {
            let absent = || FileSnapshot { state: FileState::Absent, bytes: None };
            let held = state.held.remove(path);
            let was = before.get(path);
            let is = after.get(path);
            let now = is.map(|stamp| (*stamp, self.look(path)));
            let known = held.filter(|(seen, _)| Some(seen) == was).map(|(_, found)| found);
            let is_same = match (&known, &now, was, is) {
                (Some(old), Some((_, new)), Some(was), Some(is)) => old.is_same(new, was.is_written_as(is)),
                (_, _, _, _) => false,
            };
            let old = match (was, known) {
                (None, _) => absent(),
                (Some(_), Some(held)) => held.into_found(sealer),
                (Some(stamp), None) => {
                    from_git(of_git.remove(path).flatten(), stamp, self.file_bytes, sealer)
                }
            };
            let new = match now {
                Some((stamp, now)) => {
                    let (kept, found) = now.found(&old, sealer);
                    if state.bytes.saturating_add(kept.size()) <= self.held_bytes {
                        state.bytes += kept.size();
                        state.held.insert(path.clone(), (stamp, kept));
                    } else if let Some(unheld) = &mut state.unheld {
                        unheld.push(path.clone());
                    }
                    found
                }
                None => absent(),
            };
            if is_same || (old.state == new.state && old.state.is_known()) {
                continue;
            }
            let change = match named(&self.root, &self.root.join(path)) {
                Some(path) => FileChange { path, before: old.state.clone(), after: new.state.clone() },
                None => {
                    // Nobody can put back what has no name that can be written down.
                    let unknown = FileState::unknown(Unknown::Unreadable);
                    let (old, new) = (plain(&unknown), plain(&unknown));
                    let path = shown(path);
                    changes.push((FileChange { path, before: unknown.clone(), after: unknown }, old, new));
                    continue;
                }
            };
            changes.push((change, old, new));
        }
        changes
    }

    /// Whether what only one of two looks found is different, where neither saw all.
    fn is_different(&self, path: &Path, before: &Files, after: &Files) -> bool {
        let was = before.get(path).is_some() || before.directory(path).is_some();
        let is = after.get(path).is_some() || after.directory(path).is_some();
        let now = self.root.join(path).symlink_metadata().map(|found| Stamp::from(&found));
        match (was, is, now) {
            // Only not reached this time.
            (true, false, Ok(now)) => before.get(path).is_some_and(|stamp| *stamp != now),
            // Only not reached last time.
            (false, true, Ok(now)) => now.changed_since(before.looked()),
            (_, _, _) => true,
        }
    }

    /// Whether a file that was written in the moment of the last look has other content now.
    fn was_rewritten(&self, state: &State, path: &Path, after: &Files) -> bool {
        match (state.held.get(path), after.get(path)) {
            (Some((seen, held)), Some(stamp)) if seen == stamp => !held.is_same(&self.look(path), true),
            (_, _) => false,
        }
    }
}

/// That nothing is noticed there, for the list of what is not known.
pub(super) fn not_noticed(root: &Path, why: &str) -> String {
    format!("changes by commands in {} are not tracked: {why}", root.display())
}

/// Those of these files that were written so shortly before a look that their times do not tell of what comes after it.
fn racy(files: &Files, changed: &[PathBuf]) -> Vec<PathBuf> {
    let fresh = |path: &&PathBuf| files.get(path).is_some_and(|stamp| stamp.changed_since(files.looked()));
    changed.iter().filter(fresh).take(MOST_RACY).cloned().collect()
}

fn plain(state: &FileState) -> FileSnapshot {
    FileSnapshot { state: state.clone(), bytes: None }
}

/// How directories were and are. One that only holds something now, or did, stands there twice.
fn directory_changes<'a>(
    paths: &'a [PathBuf],
    before: &'a Files,
    after: &'a Files,
) -> impl Iterator<Item = (PathBuf, FileState, FileState)> + 'a {
    let state = |look: &Files, path: &Path| {
        look.directory(path).map_or(FileState::Absent, |mode| FileState::Directory { mode })
    };
    paths.iter().map(move |path| (path.clone(), state(before, path), state(after, path)))
}

impl State {
    /// Whether changes since the last look may be a background command's.
    fn has_background(&self) -> bool {
        self.background > 0 || self.is_unlooked
    }

    fn tell(&mut self) -> Option<String> {
        let why = self.given_up.clone().filter(|_| !self.is_notified)?;
        self.is_notified = true;
        Some(why)
    }
}

/// A file as git has it, when that is what was on the disk.
fn from_git(bytes: Option<Vec<u8>>, stamp: &Stamp, limit: u64, sealer: &Sealer) -> FileSnapshot {
    let mode = stamp.mode & 0o7777;
    let why = if stamp.size > limit { Unknown::TooLarge } else { Unknown::BeforeUnknown };
    match bytes.filter(|bytes| bytes.len() as u64 == stamp.size) {
        Some(bytes) if stamp.mode & 0o170_000 == 0o100_000 => {
            FileSnapshot::of(PathContent::File { mode, bytes }, sealer)
        }
        Some(bytes) if stamp.mode & 0o170_000 == 0o120_000 => {
            use std::os::unix::ffi::OsStringExt as _;
            let target = std::ffi::OsString::from_vec(bytes).into();
            FileSnapshot::of(PathContent::Link { target }, sealer)
        }
        _ => plain(&FileState::Unknown { why, size: Some(stamp.size) }),
    }
}

/// Files that were changed at this moment or later, in order: what is known where nobody looked before. Blocks.
pub(super) fn changed_since(root: &Path, at: i64) -> Vec<PathBuf> {
    if is_too_wide(root) {
        return Vec::new();
    }
    let index = GitIndex::of(root);
    let Ok(files) = scan(root, index.as_ref(), None, most_ignored(FileSettings::default().ignored_files))
    else {
        return Vec::new();
    };
    let changed = files.iter().filter(|(_, stamp)| stamp.changed_since(at));
    let mut paths: Vec<PathBuf> = changed.map(|(path, _)| path).collect();
    paths.sort_unstable();
    paths.truncate(MOST_CHANGES);
    paths
}

fn most_ignored(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Whether a directory holds more than a project.
fn is_too_wide(root: &Path) -> bool {
    let home = std::env::home_dir().map(|home| quipu_workspace::file_key(&home));
    root == Path::new("/") || home.is_some_and(|home| home.starts_with(root))
}
