//! What commands change: every file of the workspace is looked at before and after. Only what changed between the two is
//! the command's; what people change between commands is theirs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quipu_protocol::{FileChange, FileState, Unknown};
use quipu_seal::Sealer;
use quipu_workspace::{Access, Captured, Files, GitIndex, Stamp, changed, git_blobs, scan};

use super::state::{Found, named};

/// What was looked at longer ago is looked at again: somebody else may have changed it.
const AHEAD: Duration = Duration::from_secs(1);
/// Changes of one command that are kept at most.
pub(super) const MOST_CHANGES: usize = 2_000;

/// Looks at a workspace around commands.
pub(crate) struct Watch {
    root: PathBuf,
    /// Bytes of one file, and of all files that are held while a command may change them.
    file_bytes: u64,
    held_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Commands that run: what several change side by side is noticed when the last of them ends.
    running: usize,
    /// As it was at the last look.
    before: Files,
    /// When it was looked at for a command that is about to run.
    ahead: Option<Instant>,
    index: Option<Arc<GitIndex>>,
    /// Paths that may have to be held and were not looked at; all of them where there is nothing.
    unheld: Option<Vec<PathBuf>>,
    /// Files that git does not give back, as they were when they were looked at last.
    held: HashMap<PathBuf, (Stamp, Found)>,
    bytes: u64,
    /// Why nothing is watched.
    given_up: Option<String>,
    /// Somebody was told so.
    told: bool,
}

/// What a command changed.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) changes: Vec<(FileChange, Found, Found)>,
    /// Changes beyond those.
    pub(super) more: usize,
}

impl Watch {
    pub(super) fn new(root: &Path, file_bytes: u64, held_bytes: u64) -> Self {
        let given_up = is_too_wide(root).then(|| "it is your home directory, or holds it".to_owned());
        let state = Mutex::new(State { given_up, ..State::default() });
        Self { root: root.to_path_buf(), file_bytes, held_bytes, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command is about to run. Tells, once, why nothing is watched.
    pub(super) fn before(&self, sealer: &Sealer) -> Option<String> {
        let mut state = self.state();
        state.running += 1;
        let is_ahead = state.ahead.take().is_some_and(|at| at.elapsed() < AHEAD);
        if state.running == 1 && !is_ahead {
            self.look_around(&mut state, sealer);
        }
        state.tell()
    }

    /// A command may be about to run, and runs within the second when it does.
    pub(super) fn ahead(&self, sealer: &Sealer) {
        let mut state = self.state();
        if state.running == 0 {
            self.look_around(&mut state, sealer);
            state.ahead = Some(Instant::now());
        }
    }

    fn look_around(&self, state: &mut State, sealer: &Sealer) {
        if state.given_up.is_some() {
            return;
        }
        if !state.index.as_ref().is_some_and(|index| index.is_current()) {
            state.index = GitIndex::of(&self.root).map(Arc::new);
            state.unheld = None;
        }
        match scan(&self.root, state.index.as_deref(), Some(&state.before)) {
            Ok(files) => {
                let before = std::mem::replace(&mut state.before, files);
                if let Some(unheld) = &mut state.unheld {
                    unheld.extend(changed(&before, &state.before));
                }
                self.hold(state, sealer);
            }
            Err(why) => {
                let (running, given_up) = (state.running, Some(why.to_string()));
                *state = State { running, given_up, ..State::default() };
            }
        }
    }

    /// Reads what nobody else could give back.
    fn hold(&self, state: &mut State, sealer: &Sealer) {
        let State { before, index, held, bytes, unheld, .. } = state;
        held.retain(|path, (stamp, found)| {
            let stays = before.get(path) == Some(stamp);
            if !stays {
                *bytes -= size_of(found);
            }
            stays
        });
        let paths = match unheld.take() {
            Some(paths) => paths,
            None => before.iter().map(|(path, _)| path).collect(),
        };
        let mut left = Vec::new();
        for path in paths {
            let Some(stamp) = before.get(&path) else { continue };
            let is_clean = || index.as_deref().is_some_and(|index| index.clean(&path, stamp).is_some());
            if held.contains_key(&path) || is_clean() {
                continue;
            }
            if bytes.saturating_add(stamp.size.min(self.file_bytes)) > self.held_bytes {
                left.push(path);
                continue;
            }
            let found = self.look(&path, sealer);
            *bytes += size_of(&found);
            held.insert(path, (*stamp, found));
        }
        *unheld = Some(left);
    }

    fn look(&self, path: &Path, sealer: &Sealer) -> Found {
        Found::of(Access::default().capture(&self.root.join(path), self.file_bytes), sealer)
    }

    /// A command has ended. What it changed, unless others still run.
    pub(super) fn after(&self, sealer: &Sealer) -> Changed {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
        if state.running > 0 || state.given_up.is_some() {
            return Changed::default();
        }
        // What git knew then: it may have been a git command.
        let scanned = scan(&self.root, state.index.as_deref(), Some(&state.before));
        let Ok(after) = scanned else { return Changed::default() };
        let before = std::mem::replace(&mut state.before, after.clone());
        let mut paths = changed(&before, &after);
        let more = paths.len().saturating_sub(MOST_CHANGES);
        let beyond = paths.split_off(paths.len() - more);
        if let Some(unheld) = &mut state.unheld {
            unheld.extend(beyond);
        }
        let index = state.index.clone();
        let clean = |path: &PathBuf| index.as_deref()?.clean(path, before.get(path)?);
        let asked: Vec<(&PathBuf, [u8; 20])> =
            paths.iter().filter_map(|path| Some((path, clean(path)?))).collect();
        let ids: Vec<[u8; 20]> = asked.iter().map(|(_, id)| *id).collect();
        let blobs = git_blobs(&self.root, &ids, self.file_bytes);
        let mut of_git: HashMap<&PathBuf, Option<Vec<u8>>> =
            asked.into_iter().map(|(path, _)| path).zip(blobs).collect();
        let mut changes = Vec::new();
        for path in &paths {
            let old = match (before.get(path), state.held.remove(path)) {
                (None, _) => Found { state: FileState::Absent, bytes: None },
                (Some(stamp), Some((seen, found))) if seen == *stamp => found,
                (Some(stamp), _) => from_git(of_git.remove(path).flatten(), stamp, sealer),
            };
            let new = match after.get(path) {
                Some(stamp) => {
                    let found = self.look(path, sealer);
                    let room = state.bytes.saturating_add(size_of(&found)) <= self.held_bytes;
                    if room {
                        state.bytes += size_of(&found);
                        state.held.insert(path.clone(), (*stamp, found.clone()));
                    } else if let Some(unheld) = &mut state.unheld {
                        unheld.push(path.clone());
                    }
                    found
                }
                None => Found { state: FileState::Absent, bytes: None },
            };
            let Some(name) = named(&self.root, &self.root.join(path)) else { continue };
            if old.state != new.state {
                let change = FileChange { path: name, before: old.state.clone(), after: new.state.clone() };
                changes.push((change, old, new));
            }
        }
        state.bytes = state.held.values().map(|(_, found)| size_of(found)).sum();
        Changed { changes, more }
    }
}

impl State {
    fn tell(&mut self) -> Option<String> {
        let why = self.given_up.clone().filter(|_| !self.told)?;
        self.told = true;
        Some(why)
    }
}

/// A file as git has it, when that is what was on the disk.
fn from_git(bytes: Option<Vec<u8>>, stamp: &Stamp, sealer: &Sealer) -> Found {
    let mode = stamp.mode & 0o7777;
    match bytes.filter(|bytes| bytes.len() as u64 == stamp.size) {
        Some(bytes) if stamp.mode & 0o170_000 == 0o100_000 => {
            Found::of(Captured::File { mode, bytes }, sealer)
        }
        Some(bytes) if stamp.mode & 0o170_000 == 0o120_000 => {
            use std::os::unix::ffi::OsStringExt as _;
            let target = std::ffi::OsString::from_vec(bytes).into();
            Found::of(Captured::Link { target }, sealer)
        }
        _ => Found {
            state: FileState::Unknown { why: Unknown::BeforeUnknown, size: Some(stamp.size) },
            bytes: None,
        },
    }
}

fn size_of(found: &Found) -> u64 {
    found.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// Files that were changed at this moment or later, in order: what is known where nobody looked before. Blocks.
pub(super) fn changed_since(root: &Path, at: i64) -> Vec<PathBuf> {
    if is_too_wide(root) {
        return Vec::new();
    }
    let index = GitIndex::of(root);
    let Ok(files) = scan(root, index.as_ref(), None) else { return Vec::new() };
    let changed = files.iter().filter(|(_, stamp)| stamp.changed_since(at));
    let mut paths: Vec<PathBuf> = changed.map(|(path, _)| path).collect();
    paths.sort_unstable();
    paths.truncate(MOST_CHANGES);
    paths
}

/// Whether a directory holds more than a project.
fn is_too_wide(root: &Path) -> bool {
    let home = std::env::home_dir().map(|home| quipu_workspace::file_key(&home));
    root == Path::new("/") || home.is_some_and(|home| home.starts_with(root))
}
