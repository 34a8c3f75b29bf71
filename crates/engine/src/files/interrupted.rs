//! What calls changed whose process died while they ran.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use quipu_protocol::{FileChange, FileState, Unknown};
use quipu_seal::Sealer;
use quipu_store::{Commit, Graph, NewChunk, Step, StepState};
use quipu_workspace::{Access, GitRefs, PathContent, git_blobs};

use super::FileSettings;
use super::keep::{Command, OpenCallRow, WatchedFile, dedup};
use super::listing::{DIRECTORY, KIND, Listing, PriorFile, PriorFiles};
use super::state::{FileSnapshot, named};
use super::watch::{MOST_CHANGES, changed_since, not_noticed};
use quipu_transcript::{GitMove, WorkspaceNote};

/// Keeps the states after an interrupted call. What the store does not take is reported as not kept; that the disk is full,
/// or whatever it is, is reported with the result, which is stored next.
async fn store_states(
    store: &dyn Graph,
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
pub(crate) enum InterruptedCall<'a> {
    /// Its result is kept, with what it changed.
    Done(&'a [FileChange]),
    /// It may have begun.
    Open(&'a Step),
}

/// What became of a call whose process died.
#[derive(Debug, Default)]
pub(crate) struct RecoveredChanges {
    pub(crate) files: Vec<FileChange>,
    pub(crate) note: WorkspaceNote,
}

/// What the calls of one answer changed that were under way when their process died. Of calls that change the same file,
/// one begins when the one before it is done; so what it found is what that one left, and the last one left what is
/// there now. `listing` is what the session's list of files says. A list for each call.
pub(crate) async fn after_a_crash(
    store: &dyn Graph,
    sealer: &Arc<Sealer>,
    calls: &[InterruptedCall<'_>],
    listing: Option<&Step>,
) -> Vec<RecoveredChanges> {
    let mut all: Vec<RecoveredChanges> = calls.iter().map(|_| RecoveredChanges::default()).collect();
    let mut found: HashMap<String, FileState> = HashMap::new();
    for (call, RecoveredChanges { files: left, note }) in calls.iter().zip(&mut all).rev() {
        let step = match call {
            InterruptedCall::Done(changes) => {
                found.extend(changes.iter().map(|change| (change.path.clone(), change.before.clone())));
                continue;
            }
            InterruptedCall::Open(step) => step,
        };
        let running = step.data.as_deref().filter(|_| step.state == StepState::Running);
        let Some(OpenCallRow { files, command, .. }) =
            running.and_then(|data| serde_json::from_slice(data).ok())
        else {
            continue;
        };
        if let Some(command) = command {
            let listing = listing.and_then(|step| serde_json::from_slice(step.data.as_deref()?).ok());
            let (root, limit) = (command.root.clone(), FileSettings::default().file_bytes);
            let look = move || look_after(command, listing, limit);
            let Ok(looked) = tokio::task::spawn_blocking(look).await else {
                note.unknown.push("the changes of an interrupted command are not known".into());
                continue;
            };
            *note = looked.note;
            for (path, was, object) in looked.files {
                let Some(name) = named(&root, &root.join(&path)).filter(|name| !found.contains_key(name))
                else {
                    continue;
                };
                let before = before_of(store, sealer, was, object).await;
                let after = now(store, sealer, root.join(&path), &before).await;
                if before == after && before.is_known() {
                    continue;
                }
                found.insert(name.clone(), before.clone());
                left.push(FileChange { path: name, before, after });
            }
        }
        for watched in files {
            let WatchedFile { at, path, before, .. } = watched.clone();
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
    all
}

/// How a file was before an interrupted command, as far as anything tells.
#[derive(Debug)]
enum PriorState {
    Absent,
    Known(PriorFile),
    Unknown,
}

/// What a look after an interrupted command found.
#[derive(Debug, Default)]
struct InterruptedScan {
    /// What is different, how it was, and what git has of that.
    files: Vec<(PathBuf, PriorState, Option<Vec<u8>>)>,
    note: WorkspaceNote,
}

/// Blocks.
fn look_after(command: Command, listing: Option<Listing>, limit: u64) -> InterruptedScan {
    let Command { root, at, since, unwatched } = command;
    let mut note = WorkspaceNote::default();
    if let Some(why) = unwatched {
        note.unknown.push(not_noticed(&root, &why));
        return InterruptedScan { note, ..InterruptedScan::default() };
    }
    let since = since.unwrap_or_default();
    let refs = GitRefs::of(&root, None);
    for (name, before) in &since.refs {
        let after = refs.get(name).map(str::to_owned);
        if after.as_deref() != Some(before) {
            note.git.push(GitMove { name: name.clone(), before: Some(before.clone()), after });
        }
    }
    let before = PriorFiles::of(listing, since, &root, &mut note);
    let touched = changed_since(&root, at);
    let gone = before.files.iter().filter(|(path, _)| {
        let found = root.join(path).symlink_metadata();
        found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    });
    let mut paths: BTreeSet<PathBuf> = gone.map(|(path, _)| path.clone()).collect();
    paths.extend(touched);
    let more = paths.len().saturating_sub(MOST_CHANGES);
    if more > 0 {
        let all = paths.len();
        note.unknown
            .push(format!("an interrupted command changed {all} files; {more} of them were not saved"));
    }
    let earlier = |path: PathBuf| {
        let was = match before.files.get(&path) {
            Some(was) => PriorState::Known(was.clone()),
            None if before.is_whole => PriorState::Absent,
            None => PriorState::Unknown,
        };
        (path, was)
    };
    let files: Vec<(PathBuf, PriorState)> = paths.into_iter().take(MOST_CHANGES).map(earlier).collect();
    let object = |was: &PriorState| match was {
        PriorState::Known(PriorFile { content: None, object, .. }) => *object,
        PriorState::Known(_) | PriorState::Absent | PriorState::Unknown => None,
    };
    let ids: Vec<[u8; 20]> = files.iter().filter_map(|(_, was)| object(was)).collect();
    let mut blobs = git_blobs(&root, &ids, limit).into_iter();
    let files = files.into_iter().map(|(path, was)| {
        let bytes = object(&was).and_then(|_| blobs.next().flatten());
        (path, was, bytes)
    });
    InterruptedScan { files: files.collect(), note }
}

/// How a file was before an interrupted command; what git has of it is kept now.
async fn before_of(
    store: &dyn Graph,
    sealer: &Arc<Sealer>,
    was: PriorState,
    bytes: Option<Vec<u8>>,
) -> FileState {
    let was = match was {
        PriorState::Absent => return FileState::Absent,
        PriorState::Unknown => return FileState::unknown(Unknown::BeforeUnknown),
        PriorState::Known(was) => was,
    };
    let unknown = FileState::Unknown { why: Unknown::BeforeUnknown, size: was.size };
    if was.mode & KIND == DIRECTORY {
        return FileState::Directory { mode: was.mode & 0o7777 };
    }
    if let (Some(content), Some(size)) = (was.content, was.size) {
        return match store.chunk(content, 0..0).await {
            Ok(_) => FileState::File { mode: was.mode & 0o7777, size, content },
            Err(_) => unknown,
        };
    }
    let Some(bytes) = bytes.filter(|bytes| was.size.is_none_or(|size| size == bytes.len() as u64)) else {
        return unknown;
    };
    let captured = match was.mode & KIND {
        0o100_000 => PathContent::File { mode: was.mode & 0o7777, bytes },
        0o120_000 => {
            use std::os::unix::ffi::OsStringExt as _;
            PathContent::Link { target: std::ffi::OsString::from_vec(bytes).into() }
        }
        _ => return unknown,
    };
    let FileSnapshot { state, bytes } = FileSnapshot::of(captured, sealer);
    let chunk = state.content().zip(bytes).map(|(id, bytes)| NewChunk::Full { id, bytes });
    let change = FileChange { path: String::new(), before: FileState::Absent, after: state };
    let mut kept = store_states(store, vec![change], chunk.into_iter().collect()).await;
    kept.pop().map_or(unknown, |change| change.after)
}

/// A file as it is, kept.
async fn now(store: &dyn Graph, sealer: &Arc<Sealer>, at: PathBuf, before: &FileState) -> FileState {
    if let FileState::Unknown { why: Unknown::Secret, .. } = before {
        // Where it lies, nothing is read.
        return before.clone();
    }
    let sealer = sealer.clone();
    let limit = FileSettings::default().file_bytes;
    let is_directory = before.is_directory();
    let look = move || match Access::default().capture(&at, limit) {
        PathContent::Directory { mode } if is_directory => {
            FileSnapshot { state: FileState::Directory { mode }, bytes: None }
        }
        captured => FileSnapshot::of(captured, &sealer),
    };
    let Ok(FileSnapshot { state, bytes }) = tokio::task::spawn_blocking(look).await else {
        return before.clone();
    };
    let chunk = state.content().zip(bytes).map(|(id, bytes)| match before.content() {
        Some(base) => NewChunk::Delta { id, base, bytes },
        None => NewChunk::Full { id, bytes },
    });
    let change = FileChange { path: String::new(), before: FileState::Absent, after: state };
    let mut kept = store_states(store, vec![change], chunk.into_iter().collect()).await;
    kept.pop().map_or_else(|| before.clone(), |change| change.after)
}
