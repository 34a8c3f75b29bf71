//! What going to another node does to files: a function of what the nodes say, then held against the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::{Entry, FileChange, FileState, Json, NodeId, StepInfo, Unknown};
use quipu_seal::Sealer;
use quipu_store::{Store, StoreError, Until, decode_nodes};
use quipu_transcript::{INTERNAL, files_of};
use quipu_workspace::{Access, Reach, Want, file_key};
use serde::{Deserialize, Serialize};

use super::state::Found;
use crate::travel::one_line;

/// Entries of a directory that are looked through, when one is in the way.
const LOOKED_THROUGH: usize = 10_000;
/// Characters of a path that are shown.
const PATH: usize = 300;
/// The type of the entry that says that files were put back.
const KIND: &str = "quipu.files";

/// What going to another node does to files. Paths are in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FilePlan {
    /// What will be on the disk that is not there now. Nothing else is changed, but for directories that become empty.
    pub changes: Vec<PlannedChange>,
    /// Files that stay as they are, though a step that is left or gone to changed them.
    pub left: Vec<LeftAlone>,
}

/// A file that will be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedChange {
    /// As the node names it.
    pub path: String,
    /// As it is.
    pub before: FileState,
    /// As it will be.
    pub after: FileState,
    /// Why somebody must agree to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<FileConflict>,
}

/// Why a file is not overwritten unless somebody says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FileConflict {
    /// Somebody changed it since.
    Changed,
    /// What it holds now cannot be kept, so it would be lost.
    Lost(Unknown),
}

/// A file that is not put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftAlone {
    /// As the node names it.
    pub path: String,
    /// Why, in a few words.
    pub why: String,
}

impl FilePlan {
    /// Files that are not overwritten unless somebody says so.
    pub fn conflicts(&self) -> impl Iterator<Item = (&PlannedChange, FileConflict)> {
        self.changes.iter().filter_map(|change| Some((change, change.conflict?)))
    }

    /// What would be done to files, a line for each of the first `most`, for whoever is asked.
    pub(crate) fn lines(&self, most: usize) -> String {
        let changes = self.changes.iter().map(|change| {
            let sign = match (&change.before, &change.after) {
                (FileState::Absent, _) => '+',
                (_, FileState::Absent) => '-',
                (_, _) => '~',
            };
            format!("{sign} {}", one_line(&change.path, PATH))
        });
        let left = self.left.iter().map(|left| {
            format!("? {}  stays as it is: {}", one_line(&left.path, PATH), one_line(&left.why, PATH))
        });
        let mut lines: Vec<String> = changes.chain(left).take(most).collect();
        let more = (self.changes.len() + self.left.len()).saturating_sub(most);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n")
    }

    /// Whether there is nothing to do and nothing to say.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.left.is_empty()
    }
}

/// What a node says of files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Visit {
    files: Vec<FileChange>,
    /// Files were put back here when the session came from that node.
    came_from: Option<NodeId>,
}

/// A file that was touched between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) path: String,
    /// As it was left.
    pub(super) expect: FileState,
    /// As it was there.
    pub(super) target: FileState,
}

/// The node that says that the files of a plan were put back, when the session came from `from`.
pub(crate) fn restored(from: NodeId, plan: &FilePlan) -> (Entry, StepInfo) {
    let files = plan.changes.iter().map(|change| FileChange {
        path: change.path.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
    });
    (restored_entry(from), StepInfo { files: files.collect(), ..StepInfo::default() })
}

/// The entry of a node that says that files were put back, when the session came from `from`.
pub(crate) fn restored_entry(from: NodeId) -> Entry {
    let data = serde_json::json!({ "type": "custom", "customType": KIND, "data": { "from": from } });
    Entry::Meta(Json::from(&data))
}

/// Whether an entry says that files were put back.
pub(crate) fn is_restored(entry: &Entry) -> bool {
    came_from(entry).is_some()
}

fn came_from(entry: &Entry) -> Option<NodeId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Restored {
        custom_type: String,
        data: From,
    }
    #[derive(Deserialize)]
    struct From {
        from: NodeId,
    }
    let Entry::Meta(json) = entry else { return None };
    let found: Restored = Some(json).filter(|json| json.get().contains(KIND))?.read().ok()?;
    (found.custom_type == KIND).then_some(found.data.from)
}

/// What the nodes below `above` say, down to `to`.
async fn visits(store: &dyn Store, above: Option<NodeId>, to: NodeId) -> Result<Vec<Visit>, StoreError> {
    if above == Some(to) {
        return Ok(Vec::new());
    }
    let mut nodes = store.lineage(to, above.map_or(Until::Root, Until::Node)).await?;
    if above.is_some() {
        nodes.remove(0);
    }
    // Only results and entries without a message say something of files.
    nodes.retain(|node| [INTERNAL, "toolResult"].contains(&node.record.role.as_str()));
    let mut found = Vec::new();
    for nodes in nodes.chunks(1_024) {
        let last: Vec<_> = nodes.iter().filter_map(|node| node.record.parts.last()).copied().collect();
        let blobs = store.blobs(&last).await?;
        let mut blobs = blobs.into_iter();
        for node in nodes {
            let blob = if node.record.parts.is_empty() { None } else { blobs.next().flatten() };
            let files = blob.as_ref().map(files_of).unwrap_or_default();
            let entry = match node.record.role == INTERNAL {
                true => decode_nodes(store, std::slice::from_ref(node)).await?.pop(),
                false => None,
            };
            let came_from = entry.and_then(|one| came_from(&one.entry));
            if !files.is_empty() || came_from.is_some() {
                found.push(Visit { files, came_from });
            }
        }
    }
    Ok(found)
}

/// What is wanted of each file that was touched on the way away from `here` or toward `there`. A place where files were
/// put back knows how they were when the other place was left; otherwise: what the steps there left behind, or, for
/// what only steps here touched, how the first of them found it.
fn wanted(away: &[Visit], toward: &[Visit], here: NodeId, there: NodeId) -> Vec<Wanted> {
    let back = away.iter().rposition(|visit| visit.came_from == Some(there));
    let again = toward.iter().rposition(|visit| visit.came_from == Some(here));
    let (away, toward) = match (back, again) {
        (Some(at), _) => (&away[at..], &[][..]),
        (None, Some(at)) => (&[][..], &toward[at..]),
        (None, None) => (away, toward),
    };
    let is_way = |visit: &Visit| visit.came_from.is_some_and(|from| from == there || from == here);
    // Anywhere else, putting files back only says how they were at that place.
    let changes = |visits: &'_ [Visit]| -> Vec<FileChange> {
        let told = visits.iter().enumerate().flat_map(|(at, visit)| {
            let stays = visit.came_from.is_some() && !(at == 0 && is_way(visit));
            visit.files.iter().map(move |change| match stays {
                true => FileChange { before: change.after.clone(), ..change.clone() },
                false => change.clone(),
            })
        });
        told.collect()
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
    let complete = |(path, (expect, target))| Some(Wanted { path, expect: expect?, target: target? });
    all.into_iter().filter_map(complete).collect()
}

/// A plan, and the bytes of what it replaces.
pub(super) struct Ready {
    pub(super) plan: FilePlan,
    /// For each change: where it is, and its bytes as they are.
    pub(super) places: Vec<(PathBuf, Option<Arc<[u8]>>)>,
}

/// Where files are, and what may be done there.
pub(crate) struct Ground {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sealer: Arc<Sealer>,
    /// The true path of the session's directory.
    pub(crate) root: PathBuf,
    pub(crate) access: Access,
    /// Bytes of a file that are kept.
    pub(crate) limit: u64,
}

/// What going from `here` to `there` does to files, by what is there now. `None` when no step on the way touched any.
pub(super) async fn plan(ground: &Ground, here: NodeId, there: NodeId) -> Result<Option<Ready>, StoreError> {
    let store = &*ground.store;
    let shared = store.fork_point(here, there).await?;
    let away = visits(store, shared, here).await?;
    let toward = visits(store, shared, there).await?;
    if away.is_empty() && toward.is_empty() {
        return Ok(None);
    }
    against_disk(ground, wanted(&away, &toward, here, there)).await
}

/// What is wanted, held against what is there now. `None` where the thread that looks broke down.
pub(super) async fn against_disk(
    ground: &Ground,
    mut wanted: Vec<Wanted>,
) -> Result<Option<Ready>, StoreError> {
    let store = &*ground.store;
    for one in &mut wanted {
        if let FileState::File { size, content, .. } = one.target
            && matches!(store.chunk(content, 0..0).await, Err(StoreError::Missing { .. }))
        {
            one.target = FileState::Unknown { why: Unknown::Dropped, size: Some(size) };
        }
    }
    let (root, access) = (ground.root.clone(), ground.access.clone());
    let (sealer, limit) = (ground.sealer.clone(), ground.limit);
    let look = move || look(wanted, &root, &access, &sealer, limit);
    Ok(tokio::task::spawn_blocking(look).await.ok())
}

fn look(wanted: Vec<Wanted>, root: &Path, access: &Access, sealer: &Sealer, limit: u64) -> Ready {
    let (mut plan, mut places) = (FilePlan::default(), Vec::new());
    for Wanted { path, expect, target } in wanted {
        let at = root.join(&path);
        let why = match (&target, refusal(&at, root, access)) {
            (_, Some(why)) => Some(why),
            (FileState::Unknown { why, .. }, None) => Some(why.to_string()),
            (_, None) => None,
        };
        let found = Found::of(access.capture(&at, limit), sealer);
        if found.state == target {
            continue;
        }
        if let Some(why) = why {
            plan.left.push(LeftAlone { path, why });
            continue;
        }
        let conflict = match &found.state {
            FileState::Unknown { why, .. } => Some(FileConflict::Lost(*why)),
            state if *state != expect => Some(FileConflict::Changed),
            _ => None,
        };
        plan.changes.push(PlannedChange { path, before: found.state, after: target, conflict });
        places.push((at, found.bytes));
    }
    // Removing one thing can be what makes room for another; what stays in the way of one that is taken out of the plan
    // may be in the way of more.
    loop {
        let gone: BTreeSet<&Path> = plan
            .changes
            .iter()
            .zip(&places)
            .filter(|(change, _)| change.after == FileState::Absent)
            .map(|(_, (at, _))| at.as_path())
            .collect();
        let blocked = |at: &Path| blocked(at, &gone);
        let puts = |change: &PlannedChange| change.after != FileState::Absent;
        let mut both = plan.changes.iter().zip(&places);
        let Some(one) = both.position(|(change, (at, _))| puts(change) && blocked(at)) else { break };
        let PlannedChange { path, .. } = plan.changes.remove(one);
        places.remove(one);
        plan.left.push(LeftAlone { path, why: "something else is in its way".into() });
    }
    plan.left.sort_by(|a, b| a.path.cmp(&b.path));
    Ready { plan, places }
}

/// Why nothing is put there, if so.
fn refusal(at: &Path, root: &Path, access: &Access) -> Option<String> {
    let plain = at.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain || at == root {
        return Some("its name is no path to a file".into());
    }
    let parent = at.parent().unwrap_or(Path::new("/"));
    if file_key(parent) != parent {
        return Some("a link on the way to it leads elsewhere".into());
    }
    match access.reach(at, Want::Write) {
        Reach::Free => None,
        Reach::Linked => Some("it has other names (hard links)".into()),
        Reach::Secret => Some("it lies where programs keep secrets".into()),
        Reach::Outside | Reach::Own => Some("it lies outside the workspace".into()),
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
            Visit { files: files.collect(), came_from: from }
        };
        texts.iter().map(visit).collect()
    }

    fn node(name: &str) -> NodeId {
        NodeId([name.as_bytes()[0]; 32])
    }

    #[test]
    fn what_is_wanted_follows_from_what_the_steps_did() {
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

    #[test]
    fn an_entry_says_where_files_were_put_back_from() {
        assert_eq!(came_from(&restored_entry(node("x"))), Some(node("x")));
        let other = |text: &str| Entry::Meta(Json::parse(text).unwrap());
        assert_eq!(
            came_from(&other(r#"{"type":"custom","customType":"quipu.files","data":{"from":"x"}}"#)),
            None
        );
        assert_eq!(
            came_from(&other(r#"{"type":"custom","customType":"other","data":{"x":"quipu.files"}}"#)),
            None
        );
    }
}
