//! Takes the changes of a worktree over: each file is put together from how it was at the beginning, how it is now, and how the
//! worktree left it. All of that is known before the first file is written.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use quipu_workspace::{Access, FileError, FileStamp, Git, GitError, file_key};
use tokio_util::sync::CancellationToken;

use super::{FILES, WorktreeError, WorktreeInfo, WorktreeMerge, io_error};

/// Bytes of one file that are merged.
const FILE: u64 = 32 << 20;
/// Modes of git: a file, and one that can be run.
const PLAIN: &str = "100644";
const RUNS: &str = "100755";
const ABSENT: &str = "000000";
/// Why a file is not written.
const LINK: &str = "a symbolic link is in its place or above it";

/// A file that cannot be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    /// Its path below the top directory.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// A file that a merge wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedFile {
    /// Its path below the top directory.
    pub path: PathBuf,
    /// What was done.
    pub how: MergeAction,
}

/// What a merge did to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeAction {
    /// It was not there before.
    Added,
    /// It is as the worktree has it.
    Replaced,
    /// Changes of both sides are in it.
    Combined,
    /// It is gone.
    Removed,
}

impl MergeAction {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "changed",
            Self::Combined => "combined",
            Self::Removed => "removed",
        }
    }
}

/// A file that differs between two commits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeChange {
    pub(super) path: PathBuf,
    /// Mode and object at the beginning, and at the end.
    before: (String, String),
    after: (String, String),
}

/// What is to be written.
struct PlannedWrite {
    /// Below the top directory.
    path: PathBuf,
    how: MergeAction,
    /// As it is there now; `None` where it is not.
    found: Option<(Vec<u8>, FileStamp)>,
    /// Of what is there now.
    permissions: Option<Permissions>,
    /// As it will be; `None` where it goes.
    bytes: Option<Vec<u8>>,
    /// Whether it can be run, where that changes.
    runs: Option<bool>,
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// What a worktree changed.
pub(super) fn changes(
    info: &WorktreeInfo,
    commit: &str,
    cancel: &CancellationToken,
) -> Result<Vec<TreeChange>, WorktreeError> {
    let words = ["diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--raw", "--no-abbrev"];
    let words: Vec<&str> = words.into_iter().chain([info.base.as_str(), commit]).collect();
    let listed = Git::reading(&info.common, cancel).run(&words)?;
    let mut fields = listed.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(head), Some(path)) = (fields.next(), fields.next()) {
        let head = String::from_utf8_lossy(head);
        let mut words = head.trim_start_matches(':').split(' ').map(str::to_owned);
        let (Some(before), Some(after), Some(old), Some(new)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        found.push(TreeChange { path: path_of(path), before: (before, old), after: (after, new) });
        if found.len() > FILES {
            return Err(WorktreeError::TooMany);
        }
    }
    Ok(found)
}

/// The bytes of objects.
fn objects(
    info: &WorktreeInfo,
    changes: &[TreeChange],
    cancel: &CancellationToken,
) -> Result<HashMap<String, Vec<u8>>, WorktreeError> {
    let sides = changes.iter().flat_map(|change| [&change.before, &change.after]);
    let ids: Vec<&str> = sides.filter(|(mode, _)| is_file(mode)).map(|(_, id)| id.as_str()).collect();
    let mut found = HashMap::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let asked: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let output = Git::reading(&info.common, cancel).run_with(&["cat-file", "--batch"], asked.into_bytes())?;
    let mut rest = output.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = rest.get(end + 1..).unwrap_or_default();
        let mut words = line.split(' ');
        let (id, kind, size) = (words.next(), words.next(), words.next());
        let Some(size) = size.and_then(|size| size.parse::<usize>().ok()) else { continue };
        let bytes = rest.get(..size).unwrap_or_default().to_vec();
        rest = rest.get(size + 1..).unwrap_or_default();
        if let (Some(id), Some("blob")) = (id, kind) {
            found.insert(id.to_owned(), bytes);
        }
    }
    Ok(found)
}

fn is_file(mode: &str) -> bool {
    matches!(mode, PLAIN | RUNS)
}

/// Takes all of it over, or nothing.
pub(super) fn merge(
    info: &WorktreeInfo,
    place: &Path,
    commit: &str,
    access: &Access,
    cancel: &CancellationToken,
) -> Result<WorktreeMerge, WorktreeError> {
    let changes = changes(info, commit, cancel)?;
    let objects = objects(info, &changes, cancel)?;
    let (mut planned, mut conflicts, mut same) = (Vec::new(), Vec::new(), 0);
    for change in &changes {
        match plan(info, place, change, &objects, access, cancel)? {
            Step::Same => same += 1,
            Step::Write(write) => planned.push(write),
            Step::Conflict(why) => conflicts.push(MergeConflict { path: change.path.clone(), why }),
        }
    }
    if !conflicts.is_empty() {
        return Err(WorktreeError::Conflicts(conflicts));
    }
    if cancel.is_cancelled() {
        return Err(GitError::Cancelled.into());
    }
    write_all(&info.top, &planned, access)?;
    let files = planned.into_iter().map(|write| MergedFile { path: write.path, how: write.how }).collect();
    Ok(WorktreeMerge { files, same, left: None })
}

/// What becomes of one file.
enum Step {
    Same,
    Write(PlannedWrite),
    Conflict(String),
}

fn plan(
    info: &WorktreeInfo,
    place: &Path,
    change: &TreeChange,
    objects: &HashMap<String, Vec<u8>>,
    access: &Access,
    cancel: &CancellationToken,
) -> Result<Step, WorktreeError> {
    let conflict = |why: &str| Ok(Step::Conflict(why.to_owned()));
    let path = &change.path;
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
        return conflict("its name is not one of a file of the repository");
    }
    let (before, after) = (&change.before, &change.after);
    if [before, after].iter().any(|(mode, _)| *mode != ABSENT && !is_file(mode)) {
        return conflict("it is a symbolic link or another repository; take it over with git");
    }
    let side = |(mode, id): &(String, String)| -> Result<Option<&[u8]>, String> {
        match mode == ABSENT {
            true => Ok(None),
            false => objects.get(id).map(|bytes| Some(bytes.as_slice())).ok_or("git does not have it".into()),
        }
    };
    let (base, theirs) = match (side(before), side(after)) {
        (Ok(base), Ok(theirs)) => (base, theirs),
        (Err(why), _) | (_, Err(why)) => return Ok(Step::Conflict(why)),
    };
    if is_behind_link(&info.top, path) {
        return conflict(LINK);
    }
    let at = info.top.join(path);
    let found = match access.read_to_change(&at, FILE, cancel) {
        Ok(found) => Some(found),
        Err(FileError::NotFound { .. }) => None,
        Err(error) => return Ok(Step::Conflict(error.to_string())),
    };
    let permissions = found.as_ref().and_then(|_| at.metadata().ok()).map(|found| found.permissions());
    let ours = found.as_ref().map(|(bytes, _)| bytes.as_slice());
    let runs = (after.0 == RUNS) != (before.0 == RUNS) || base.is_none();
    let runs = runs.then_some(after.0 == RUNS).filter(|_| theirs.is_some());
    let (how, bytes) = if ours == theirs {
        let is_so =
            |runs: bool| at.metadata().is_ok_and(|found| (found.permissions().mode() & 0o100 != 0) == runs);
        match runs {
            Some(runs) if !is_so(runs) => (MergeAction::Replaced, theirs.map(<[u8]>::to_vec)),
            _ => return Ok(Step::Same),
        }
    } else if ours == base {
        let how = match (ours, theirs) {
            (None, _) => MergeAction::Added,
            (_, None) => MergeAction::Removed,
            (Some(_), Some(_)) => MergeAction::Replaced,
        };
        (how, theirs.map(<[u8]>::to_vec))
    } else {
        let why = match (base, ours, theirs) {
            (Some(base), Some(ours), Some(theirs)) => match combined(place, base, ours, theirs, cancel)? {
                Some(bytes) if bytes == ours => return Ok(Step::Same),
                Some(bytes) => {
                    let write = PlannedWrite {
                        path: path.clone(),
                        how: MergeAction::Combined,
                        found,
                        permissions,
                        bytes: Some(bytes),
                        runs,
                    };
                    return Ok(Step::Write(write));
                }
                None => "both changed the same lines",
            },
            (None, ..) => "both added it, with different content",
            (_, None, _) => "it was removed here and changed there",
            (_, _, None) => "it was changed here and removed there",
        };
        return conflict(why);
    };
    if let Err(error) = access.check_write(&at) {
        return Ok(Step::Conflict(error.to_string()));
    }
    Ok(Step::Write(PlannedWrite { path: path.clone(), how, found, permissions, bytes, runs }))
}

/// Both sides in one; `None` where they exclude each other, or are no text.
fn combined(
    place: &Path,
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
    cancel: &CancellationToken,
) -> Result<Option<Vec<u8>>, WorktreeError> {
    if [base, ours, theirs].iter().any(|side| side.contains(&0)) {
        return Ok(None);
    }
    let names = ["ours", "base", "theirs"].map(|name| place.join(format!("merge-{name}")));
    for (path, bytes) in names.iter().zip([ours, base, theirs]) {
        std::fs::write(path, bytes).map_err(io_error(path))?;
    }
    let words = ["merge-file", "--quiet", "-p"].map(OsStr::new);
    let paths: Vec<&OsStr> = names.iter().map(|path| path.as_os_str()).collect();
    let merged = Git::reading(place, cancel).run(&[words.as_slice(), &paths].concat());
    names.iter().for_each(|path| drop(std::fs::remove_file(path)));
    match merged {
        Ok(bytes) => Ok(Some(bytes)),
        // The number of conflicts.
        Err(GitError::Failed { code: Some(1..=127), .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes all; what was written is put back where one cannot be.
fn write_all(top: &Path, planned: &[PlannedWrite], access: &Access) -> Result<(), WorktreeError> {
    for (done, write) in planned.iter().enumerate() {
        let failed = match write_one(top, write, access) {
            Err(why) => Some((done, why)),
            // This file is written, too.
            Ok(()) => set_mode(top, write).err().map(|error| (done + 1, error.to_string())),
        };
        if let Some((written, why)) = failed {
            let mut left = Vec::new();
            for back in planned.iter().take(written).rev() {
                if put_back(top, back, access).is_err() {
                    left.push(back.path.clone());
                }
            }
            return Err(WorktreeError::NotWritten { path: write.path.clone(), why, left });
        }
    }
    Ok(())
}

fn write_one(top: &Path, write: &PlannedWrite, access: &Access) -> Result<(), String> {
    if is_behind_link(top, &write.path) {
        return Err(LINK.into());
    }
    let at = top.join(&write.path);
    let text = |error: FileError| error.to_string();
    match (&write.bytes, &write.found) {
        (Some(bytes), found) => {
            let stamp = found.as_ref().map(|(_, stamp)| stamp);
            if found.is_none() && at.symlink_metadata().is_ok() {
                return Err("it came to be meanwhile".into());
            }
            access.write_file(&at, bytes, stamp).map(drop).map_err(text)
        }
        (None, Some((_, stamp))) => access.remove_file(&at, stamp).map_err(text),
        (None, None) => Ok(()),
    }
}

fn put_back(top: &Path, write: &PlannedWrite, access: &Access) -> Result<(), String> {
    if is_behind_link(top, &write.path) {
        return Err(LINK.into());
    }
    let at = top.join(&write.path);
    let text = |error: FileError| error.to_string();
    match &write.found {
        Some((bytes, _)) => {
            access.write_file(&at, bytes, None).map_err(text)?;
            match &write.permissions {
                Some(old) => std::fs::set_permissions(&at, old.clone()).map_err(|error| error.to_string()),
                None => Ok(()),
            }
        }
        None => {
            let (_, stamp) = access.read_to_change(&at, FILE, &CancellationToken::new()).map_err(text)?;
            access.remove_file(&at, &stamp).map_err(text)
        }
    }
}

/// Whether a symbolic link is at a path below the top directory, or above it.
fn is_behind_link(top: &Path, path: &Path) -> bool {
    let at = top.join(path);
    // Also links that lead nowhere, which have no true path.
    let mut parts = path.ancestors().filter(|part| !part.as_os_str().is_empty());
    parts.any(|part| top.join(part).is_symlink()) || file_key(&at) != at
}

/// Lets it be run, or not any more, where that changes.
fn set_mode(top: &Path, write: &PlannedWrite) -> std::io::Result<()> {
    match (&write.bytes, write.runs) {
        (Some(_), Some(runs)) => set_runs(&top.join(&write.path), runs),
        _ => Ok(()),
    }
}

fn set_runs(at: &Path, runs: bool) -> std::io::Result<()> {
    let mode = at.metadata()?.permissions().mode();
    // Whoever may read it may run it.
    let wanted = if runs { mode | (mode & 0o444) >> 2 } else { mode & !0o111 };
    if wanted == mode { Ok(()) } else { std::fs::set_permissions(at, Permissions::from_mode(wanted)) }
}
