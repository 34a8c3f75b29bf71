//! What going to another node does to files: a function of what the nodes say, then held against the disk.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_dag::{Blob, Node};
use quipu_protocol::{Entry, FileChange, FileState, Message, NodeId, SessionId, Unknown};
use quipu_seal::Sealer;
use quipu_store::{CHILD_SESSION, Graph, LineageEnd, RefName, StoreError, decode_whole};
use quipu_transcript::{
    FileConflict, FilePlan, GIT_INDEX, GitMove, INTERNAL, PlannedChange, RestoreNote, SkippedFile,
    WORKSPACE_NOTE, WorkspaceNote, extra_of, files_of, restore_note,
};
use quipu_workspace::{Access, AccessMode, GitRefs, PathContent, Reach, file_key};

use serde::Deserialize;

use super::note::joined;
use super::state::FileSnapshot;
use crate::runner::{EndedChild, RUNNER_DEPTH, WORKTREE, ended_child};

/// Entries of a directory that are looked through, when one is in the way.
const LOOKED_THROUGH: usize = 10_000;
/// The type of our part of a node.
const OURS: &str = "quipu";
/// What is known of the changes of another program's calls.
const OF_OTHERS: &str = "changes by the tools of another program are not known";

/// What a node says of files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Visit {
    files: Vec<FileChange>,
    /// What else its step did to the workspace.
    note: WorkspaceNote,
    /// Files were put back here when the session came from that node, but for these.
    came_from: Option<NodeId>,
    left: Vec<SkippedFile>,
}

/// What was done between two nodes beside files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct OtherChanges {
    /// How git's refs were there.
    git: Vec<GitMove>,
    caches: BTreeSet<String>,
    /// What was left as it was when files were put back before.
    left: Vec<SkippedFile>,
    unknown: Vec<String>,
}

/// A file that was touched between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileTarget {
    pub(super) path: String,
    /// As it was left.
    pub(super) expect: FileState,
    /// As it was there.
    pub(super) target: FileState,
}

/// What the nodes below `above` say, down to `to`, with what sub-agents did in the same directory.
async fn visits(store: &dyn Graph, above: Option<NodeId>, to: NodeId) -> Result<Vec<Visit>, StoreError> {
    if above == Some(to) {
        return Ok(Vec::new());
    }
    let mut nodes = store.lineage(to, above.map_or(LineageEnd::Root, LineageEnd::Node)).await?;
    if above.is_some() {
        nodes.remove(0);
    }
    let mut known = HashSet::new();
    Ok(visits_of(store, nodes, &mut known, 0).await?.unwrap_or_default())
}

/// What these nodes say; `None` where they are those of a session with files of its own.
fn visits_of<'a>(
    store: &'a dyn Graph,
    mut nodes: Vec<Node>,
    known: &'a mut HashSet<SessionId>,
    depth: u32,
) -> BoxFuture<'a, Result<Option<Vec<Visit>>, StoreError>> {
    Box::pin(async move {
        // Only results, notes on background commands and entries without a message say something of files.
        nodes.retain(|node| [INTERNAL, "toolResult", "custom"].contains(&node.record.role.as_str()));
        let mut found = Vec::new();
        for nodes in nodes.chunks(1_024) {
            let last: Vec<_> = nodes.iter().filter_map(|node| node.record.parts.last()).copied().collect();
            let blobs = store.blobs(&last).await?;
            let mut blobs = blobs.into_iter();
            for node in nodes {
                let blob = if node.record.parts.is_empty() { None } else { blobs.next().flatten() };
                let files = blob.as_ref().map(files_of).unwrap_or_default();
                let note = blob.as_ref().and_then(|blob| extra_of(blob, WORKSPACE_NOTE)?.read().ok());
                let mut note: WorkspaceNote = note.unwrap_or_default();
                let is_internal = node.record.role == INTERNAL;
                if node.record.role == "toolResult" && blob.as_ref().is_none_or(|blob| blob.kind != OURS) {
                    note.unknown.push(OF_OTHERS.into());
                }
                let may_name_child = is_internal || blob.as_ref().is_some_and(is_interrupted);
                let entry = match may_name_child {
                    true => decode_whole(store, std::slice::from_ref(node)).await?.pop(),
                    false => None,
                };
                let entry = entry.as_ref().map(|one| &one.entry);
                if depth > 0 && entry.is_some_and(works_elsewhere) {
                    return Ok(None);
                }
                if let Some(child) = entry.and_then(child_of).filter(|_| depth < RUNNER_DEPTH)
                    && known.insert(child.session.clone())
                {
                    found.extend(of_child(store, child, known, depth + 1).await?);
                }
                let RestoreNote { from, left, unknown } = match entry.and_then(restore_note) {
                    Some(origin) => origin,
                    None if files.is_empty() && note.is_empty() => continue,
                    None => {
                        found.push(Visit { files, note, came_from: None, left: Vec::new() });
                        continue;
                    }
                };
                note.unknown.extend(unknown);
                found.push(Visit { files, note, came_from: Some(from), left });
            }
        }
        Ok(Some(found))
    })
}

/// What a sub-agent did in the directory of its parent.
async fn of_child(
    store: &dyn Graph,
    child: EndedChild,
    known: &mut HashSet<SessionId>,
    depth: u32,
) -> Result<Vec<Visit>, StoreError> {
    let unknown = || {
        let what = format!(
            "changes by the sub-agent of session {}, which was removed, are not known",
            child.session
        );
        vec![Visit { note: WorkspaceNote::unknown(&what), ..Visit::default() }]
    };
    let head = match child.head {
        Some(head) => Some(head),
        None => store.head(&RefName::session(&child.session)).await?,
    };
    let Some(head) = head else { return Ok(unknown()) };
    match store.lineage(head, LineageEnd::Root).await {
        Ok(nodes) => Ok(visits_of(store, nodes, known, depth).await?.unwrap_or_default()),
        Err(StoreError::Missing { .. } | StoreError::Erased { .. }) => Ok(unknown()),
        Err(error) => Err(error),
    }
}

/// Whether a result may be that of a sub-agent that its process left.
fn is_interrupted(blob: &Blob) -> bool {
    blob.content.contains("interrupted") && blob.content.contains(CHILD_SESSION)
}

/// The sub-agent that an entry tells the end of: its own note, or the result of a call whose process ended.
fn child_of(entry: &Entry) -> Option<EndedChild> {
    #[derive(Deserialize)]
    struct Details {
        child: SessionId,
        outcome: String,
    }
    let Entry::Message(Message::ToolResult(result)) = entry else { return ended_child(entry) };
    let Details { child, outcome } = result.details.as_ref()?.read().ok()?;
    (outcome == "interrupted").then_some(EndedChild { session: child, head: None })
}

/// Whether a session's second node says that it works in a worktree of its own.
fn works_elsewhere(entry: &Entry) -> bool {
    let Entry::Meta(json) = entry else { return false };
    json.get().contains("\"quipu.parent\"") && !json.value()["data"][WORKTREE].is_null()
}

/// What is wanted of each file that was touched on the way away from `here` or toward `there`. A place where files were
/// put back knows how they were when the other place was left; otherwise: what the steps there left behind, or, for
/// what only steps here touched, how the first of them found it.
fn wanted(away: &[Visit], toward: &[Visit], here: NodeId, there: NodeId) -> Vec<FileTarget> {
    let (away, toward) = ways(away, toward, here, there);
    let is_way = |visit: &Visit| is_way(visit, here, there);
    // Anywhere else, putting files back only says how they were at that place.
    let changes = |visits: &'_ [Visit]| -> Vec<FileChange> {
        let lines = visits.iter().enumerate().flat_map(|(at, visit)| {
            let stays = visit.came_from.is_some() && !(at == 0 && is_way(visit));
            visit.files.iter().map(move |change| match stays {
                true => FileChange { before: change.after.clone(), ..change.clone() },
                false => change.clone(),
            })
        });
        lines.collect()
    };
    let mut all: BTreeMap<String, (Option<FileState>, Option<FileState>)> = BTreeMap::new();
    for FileChange { path, before, after } in changes(away) {
        let (expect, target) = all.entry(path).or_default();
        *expect = Some(after);
        target.get_or_insert(before);
    }
    let mut toward_targets = BTreeMap::new();
    for FileChange { path, before, after } in changes(toward) {
        let (expect, _) = all.entry(path.clone()).or_default();
        expect.get_or_insert(before);
        toward_targets.insert(path, after);
    }
    for (path, target) in toward_targets {
        all.entry(path).or_default().1 = Some(target);
    }
    let complete = |(path, (expect, target))| Some(FileTarget { path, expect: expect?, target: target? });
    all.into_iter().filter_map(complete).collect()
}

/// What counts of both ways.
fn ways<'a>(
    away: &'a [Visit],
    toward: &'a [Visit],
    here: NodeId,
    there: NodeId,
) -> (&'a [Visit], &'a [Visit]) {
    let back = away.iter().rposition(|visit| visit.came_from == Some(there));
    let again = toward.iter().rposition(|visit| visit.came_from == Some(here));
    match (back, again) {
        (Some(at), _) => (&away[at..], &[][..]),
        (None, Some(at)) => (&[][..], &toward[at..]),
        (None, None) => (away, toward),
    }
}

/// Whether files were put back there on the way between these two.
fn is_way(visit: &Visit, here: NodeId, there: NodeId) -> bool {
    visit.came_from.is_some_and(|from| from == there || from == here)
}

/// What was done beside files on the way.
fn beside(away: &[Visit], toward: &[Visit], here: NodeId, there: NodeId) -> OtherChanges {
    let (away, toward) = ways(away, toward, here, there);
    let mut git: BTreeMap<String, GitMove> = joined(away.iter().flat_map(|visit| &visit.note.git));
    for (name, GitMove { after, .. }) in joined(toward.iter().flat_map(|visit| &visit.note.git)) {
        // As it was there: what the last step there left.
        git.insert(name.clone(), GitMove { name, before: after, after: None });
    }
    let mut found = OtherChanges { git: git.into_values().collect(), ..OtherChanges::default() };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, visit) in away.iter().enumerate().chain(toward.iter().enumerate()) {
        found.caches.extend(visit.note.caches.iter().cloned());
        // What was left on coming here is again as it was there.
        if at == 0 && is_way(visit, here, there) {
            continue;
        }
        found.left.extend(visit.left.iter().cloned());
        visit.note.unknown.iter().for_each(|what| *counts.entry(what).or_default() += 1);
    }
    let counted = counts.into_iter().map(|(what, times)| match times {
        1 => what.to_owned(),
        _ => format!("{what} ({times} times)"),
    });
    found.unknown = counted.collect();
    found
}

impl OtherChanges {
    /// Adds to a plan what of this is not as it was there.
    fn add_to(self, plan: &mut FilePlan, root: &Path) {
        let refs = if self.git.is_empty() { GitRefs::default() } else { GitRefs::of(root, None) };
        let gone = refs.get("HEAD").is_none();
        let place = |text: Option<&str>| match text {
            None => "nowhere".to_owned(),
            Some(text) => match text.strip_prefix("ref: ") {
                Some(name) => name.to_owned(),
                None => text.get(..12).unwrap_or(text).to_owned(),
            },
        };
        let moved_refs =
            self.git.iter().any(|one| one.name != GIT_INDEX && refs.get(&one.name) != one.before.as_deref());
        for GitMove { name, before, .. } in self.git {
            let now = refs.get(&name);
            if name == GIT_INDEX {
                if !moved_refs {
                    let why = "the git index is not restored".into();
                    plan.left.push(SkippedFile { path: format!(".git/{name}"), why });
                }
                continue;
            }
            if now == before.as_deref() {
                continue;
            }
            let why = match gone {
                true => "the repository no longer exists".to_owned(),
                false => format!(
                    "it is at {} and was at {} there; git commits, refs and the index are not restored",
                    place(now),
                    place(before.as_deref())
                ),
            };
            plan.left.push(SkippedFile { path: format!(".git/{name}"), why });
        }
        plan.left.extend(self.caches.into_iter().map(|path| SkippedFile {
            path: format!("{path}/"),
            why: "a git-ignored cache: something in it changed, but the details are not known".into(),
        }));
        let known: BTreeSet<String> = plan.left.iter().map(|left| left.path.clone()).collect();
        let planned: BTreeSet<&str> = plan.changes.iter().map(|change| change.path.as_str()).collect();
        let others = self.left.into_iter().filter(|left| {
            !known.contains(&left.path)
                && !planned.contains(left.path.as_str())
                && !left.path.starts_with(".git/")
        });
        let others: BTreeMap<String, SkippedFile> = others.map(|left| (left.path.clone(), left)).collect();
        plan.left.extend(others.into_values());
        plan.left.sort_by(|a, b| a.path.cmp(&b.path));
        plan.unknown = self.unknown;
    }
}

/// A plan, and the bytes of what it replaces.
pub(crate) struct RestorePlan {
    pub(crate) plan: FilePlan,
    /// For each change: where it is, and its bytes as they are.
    pub(super) places: Vec<(PathBuf, Option<Arc<[u8]>>)>,
    /// Directories that stay when they are empty.
    pub(super) keeps: Vec<PathBuf>,
}

/// Where files are, and what may be done there.
pub(crate) struct FileRestorer {
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
    /// The true path of the session's directory.
    pub(crate) root: PathBuf,
    pub(crate) access: Access,
    /// Bytes of a file that are kept.
    pub(crate) limit: u64,
}

/// What going from `here` to `there` does to files, by what is there now. `None` when no step on the way touched any.
pub(super) async fn plan(
    restorer: &FileRestorer,
    here: NodeId,
    there: NodeId,
) -> Result<Option<RestorePlan>, StoreError> {
    let store = &*restorer.store;
    let shared = store.fork_point(here, there).await?;
    let away = visits(store, shared, here).await?;
    let toward = visits(store, shared, there).await?;
    if away.is_empty() && toward.is_empty() {
        return Ok(None);
    }
    let beside = beside(&away, &toward, here, there);
    let Some(mut ready) = against_disk(restorer, wanted(&away, &toward, here, there)).await? else {
        return Ok(None);
    };
    let root = restorer.root.clone();
    let work = move || {
        beside.add_to(&mut ready.plan, &root);
        ready
    };
    Ok(tokio::task::spawn_blocking(work).await.ok())
}

/// What is wanted, held against what is there now. `None` where the thread that looks broke down.
pub(super) async fn against_disk(
    restorer: &FileRestorer,
    mut wanted: Vec<FileTarget>,
) -> Result<Option<RestorePlan>, StoreError> {
    let store = &*restorer.store;
    for one in &mut wanted {
        if let FileState::File { size, content, .. } = one.target
            && matches!(
                store.chunk(content, 0..0).await,
                Err(StoreError::Missing { .. } | StoreError::Erased { .. })
            )
        {
            one.target = FileState::Unknown { why: Unknown::Dropped, size: Some(size) };
        }
    }
    let (root, access) = (restorer.root.clone(), restorer.access.clone());
    let (sealer, limit) = (restorer.sealer.clone(), restorer.limit);
    let look = move || look(wanted, &root, &access, &sealer, limit);
    Ok(tokio::task::spawn_blocking(look).await.ok())
}

fn look(wanted: Vec<FileTarget>, root: &Path, access: &Access, sealer: &Sealer, limit: u64) -> RestorePlan {
    let (mut plan, mut places, mut keeps) = (FilePlan::default(), Vec::new(), Vec::new());
    let mut stays = Vec::new();
    for FileTarget { path, expect, target } in wanted {
        let at = root.join(&path);
        if target.is_directory() {
            keeps.push(at.clone());
        }
        let why = match (&target, refusal(&at, root, access)) {
            (_, Some(why)) => Some(why),
            (FileState::Unknown { why, .. }, None) => Some(why.to_string()),
            (_, None) => None,
        };
        let found = match access.capture(&at, limit) {
            PathContent::Directory { mode } if expect.is_directory() || target.is_directory() => {
                FileSnapshot { state: FileState::Directory { mode }, bytes: None }
            }
            captured => FileSnapshot::of(captured, sealer),
        };
        let is_same = match (&found.state, &target) {
            // Nobody knows.
            (FileState::Unknown { .. }, FileState::Unknown { .. }) => false,
            (FileState::Directory { .. }, FileState::Directory { .. }) => true,
            (found, target) => found == target,
        };
        if is_same {
            if found.state.is_directory() {
                stays.push((path, at, found.state));
            }
            continue;
        }
        if let Some(why) = why {
            plan.left.push(SkippedFile { path, why });
            continue;
        }
        let conflict = match &found.state {
            FileState::Unknown { why, .. } => Some(FileConflict::Lost(*why)),
            // Nothing is lost with one that is empty.
            FileState::Directory { .. } => None,
            FileState::Absent if expect.is_directory() => None,
            state if *state != expect => Some(FileConflict::Changed),
            _ => None,
        };
        let (before, after) = (found.state, target);
        plan.changes.push(PlannedChange { path, before, after, conflict, implied: false });
        places.push((at, found.bytes));
    }
    // Removing one thing can be what makes room for another; what stays in the way of one that is taken out of the plan
    // may be in the way of more.
    loop {
        let gone: BTreeSet<&Path> = plan
            .changes
            .iter()
            .zip(&places)
            .filter(|(change, _)| change.after == FileState::Absent || is_directory(change))
            .map(|(_, (at, _))| at.as_path())
            .collect();
        let blocked = |at: &Path| blocked(at, &gone);
        let puts = |change: &PlannedChange| change.after != FileState::Absent || change.before.is_directory();
        let mut both = plan.changes.iter().zip(&places);
        let Some(one) = both.position(|(change, (at, _))| puts(change) && blocked(at)) else { break };
        let PlannedChange { path, after, .. } = plan.changes.remove(one);
        places.remove(one);
        let why = if after == FileState::Absent {
            "it contains other files"
        } else {
            "another file or directory is in the way"
        };
        plan.left.push(SkippedFile { path, why: why.into() });
    }
    // A directory comes and goes with what is in it, and stays for it.
    let above = |puts: bool| -> HashSet<PathBuf> {
        let places = plan
            .changes
            .iter()
            .zip(&places)
            .filter(|(change, _)| (change.after != FileState::Absent) == puts);
        let above = places.flat_map(|(_, (at, _))| at.ancestors().skip(1).take_while(|dir| *dir != root));
        above.map(Path::to_path_buf).collect()
    };
    let (filled, emptied) = (above(true), above(false));
    let goes = |change: &PlannedChange| change.before.is_directory() && change.after == FileState::Absent;
    let both = std::mem::take(&mut plan.changes).into_iter().zip(std::mem::take(&mut places));
    for (mut change, place) in both.filter(|(change, (at, _))| !(goes(change) && filled.contains(at))) {
        let comes = change.before == FileState::Absent && change.after.is_directory();
        change.implied =
            (comes && filled.contains(&place.0)) || (goes(&change) && emptied.contains(&place.0));
        plan.changes.push(change);
        places.push(place);
    }
    // The way back has to know of those that stay without what is in them now.
    for (path, at, state) in
        stays.into_iter().filter(|(_, at, _)| filled.contains(at) || emptied.contains(at))
    {
        let (before, after) = (state.clone(), state);
        plan.changes.push(PlannedChange { path, before, after, conflict: None, implied: true });
        places.push((at, None));
    }
    let mut both: Vec<_> = plan.changes.into_iter().zip(places).collect();
    both.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    (plan.changes, places) = both.into_iter().unzip();
    plan.left.sort_by(|a, b| a.path.cmp(&b.path));
    RestorePlan { plan, places, keeps }
}

fn is_directory(change: &PlannedChange) -> bool {
    change.before.is_directory() || change.after.is_directory()
}

/// Why nothing is put there, if so.
fn refusal(at: &Path, root: &Path, access: &Access) -> Option<String> {
    let plain = at.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain || at == root {
        return Some("its name is not a valid file path".into());
    }
    let parent = at.parent().unwrap_or(Path::new("/"));
    if file_key(parent) != parent {
        return Some("its path goes through a symbolic link".into());
    }
    match access.reach(at, AccessMode::Write) {
        Reach::Free | Reach::Configures => None,
        Reach::Linked => Some("it has other names (hard links)".into()),
        Reach::Secret => Some("programs store secrets there".into()),
        Reach::Outside | Reach::Own => Some("it is outside the workspace".into()),
    }
}

/// Whether something that stays is in the way of a file: a directory that holds other things, or a file where a
/// directory is needed.
fn blocked(at: &Path, gone: &BTreeSet<&Path>) -> bool {
    for above in at.ancestors().skip(1) {
        match above.symlink_metadata() {
            Ok(found) if found.is_dir() => break,
            Ok(_) if !gone.contains(above) => return true,
            Ok(_) | Err(_) => {}
        }
    }
    if !at.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return false;
    }
    let (mut left, mut seen) = (vec![at.to_path_buf()], 0);
    while let Some(directory) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { return true };
        for entry in entries {
            seen += 1;
            let (Ok(entry), true) = (entry, seen <= LOOKED_THROUGH) else { return true };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(_) if gone.contains(entry.path().as_path()) => {}
                Ok(_) | Err(_) => return true,
            }
        }
        // A directory that was empty before stays, so it is in the way.
        let holds = gone.iter().any(|path| path.starts_with(&directory));
        if !holds {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> FileState {
        match text {
            "-" => FileState::Absent,
            target => FileState::Link { target: target.into() },
        }
    }

    /// Visits as `path before after, …`, or `<N` for files that were put back on coming from node N.
    fn visits(texts: &[&str]) -> Vec<Visit> {
        let visit = |text: &&str| {
            let (from, files) = match text.strip_prefix('<') {
                Some(rest) => (Some(node(&rest[..1])), &rest[1..]),
                None => (None, *text),
            };
            let files = files.split(',').filter(|one| !one.trim().is_empty()).map(|one| {
                let words: Vec<&str> = one.split_whitespace().collect();
                FileChange { path: words[0].into(), before: state(words[1]), after: state(words[2]) }
            });
            Visit { files: files.collect(), came_from: from, ..Visit::default() }
        };
        texts.iter().map(visit).collect()
    }

    fn node(name: &str) -> NodeId {
        NodeId([name.as_bytes()[0]; 32])
    }

    #[test]
    fn file_targets_follow_from_steps() {
        let check = |away: &[&str], toward: &[&str], expect: &[&str]| {
            let found = wanted(&visits(away), &visits(toward), node("h"), node("t"));
            let text = |state: &FileState| match state {
                FileState::Link { target } => target.clone(),
                _ => "-".into(),
            };
            let found: Vec<String> = found
                .iter()
                .map(|one| format!("{} {} {}", one.path, text(&one.expect), text(&one.target)))
                .collect();
            assert_eq!(found, expect, "{away:?} {toward:?}");
        };
        check(&[], &[], &[]);
        check(&["a - 1", "a 1 2, b x y"], &[], &["a 2 -", "b y x"]);
        check(&[], &["a - 1", "a 1 2"], &["a - 2"]);
        check(&["a 0 1"], &["a 0 2, b - 3"], &["a 1 2", "b - 3"]);
        // Somebody's own version, 9, was overwritten by the jump; going back brings it back.
        check(&["<ta 9 0"], &["a 0 1"], &["a 0 9"]);
        check(&["<ta 9 0", "a 0 5, b - 6"], &["a 0 1, c - 7"], &["a 5 9", "b 6 -"]);
        // And forward again, over what the jump did.
        check(&["a 0 1"], &["<ha 9 0", "a 0 5"], &["a 9 5"]);
        // What a jump from elsewhere found was the state of another place.
        check(&["<xa 9 0", "a 0 4"], &[], &["a 4 0"]);
        check(&["<ta 9 0", "<xb 7 5"], &[], &["a 0 9", "b 5 5"]);
        check(&["a 0 1"], &["<ha 9 0", "<xb 7 5"], &["a 9 0", "b 5 5"]);
        check(&["<xa 9 0"], &["a 0 1"], &["a 0 1"]);
    }
}
