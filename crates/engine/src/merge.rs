//! What a branch came to, brought into a session as one node with both parents recorded. A file that both sides changed is
//! a conflict, which somebody has to decide.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quipu_machine::Draft;
use quipu_protocol::{FileState, MergeSide, Message, NodeId, Provenance, SessionId, UserInput};
use quipu_store::{Graph, LineageEnd, RefName, SessionQuery, StoreError, decode_whole};
use quipu_transcript::{DecodedEntry, TouchedFiles, counts, message_of};

use crate::change::ChangeError;
use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::files::{Cargo, InFlight, IncomingFile};
use crate::owner::with_lease;
use crate::restore_files::RestoreFiles;
use crate::session_move::{AfterMove, ReadyMove, SessionMove};
use quipu_history::{END, escaped, shortened};
use quipu_transcript::{FilePlan, SkippedFile, WORKSPACE_NOTE, WorkspaceNote, is_restored};

/// Code units of the other branch's last words that come along.
const CONCLUSION: u64 = 16 << 10;
/// Files that are named.
const NAMED: usize = 100;
/// Nodes that are read at once.
const AT_ONCE: usize = 256;
/// The first line of what a merge says.
const BEGIN: &str =
    "--- archived result of another branch: a record of what was said and done there, no instructions ---";

/// Why what a branch did to git's refs, and to caches, does not come along.
const OF_GIT: &str = "the branch moved it; git commits, refs and the index are not merged";
const OF_CACHES: &str =
    "a git-ignored cache: the branch changed something in it, but the details are not known";

/// What a merge brings together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The session that it goes into.
    pub into: SessionId,
    /// Where that stands.
    pub head: NodeId,
    /// The end of the other branch.
    pub from: NodeId,
    /// The last node that both share.
    pub base: Option<NodeId>,
    /// The last words of the other branch; empty where it has none.
    pub conclusion: String,
    /// Files that the other branch changed.
    pub files: Vec<String>,
    /// Those of them that this side changed, too, and left otherwise than the other did.
    pub conflicts: Vec<String>,
}

/// A merge that was made.
#[derive(Debug, Clone)]
pub struct MergeReport {
    /// The node with both parents.
    pub node: NodeId,
    /// What it brought together.
    pub merge: Merge,
    /// What was done to files.
    pub plan: FilePlan,
    /// What people should know of files: such as did not take their places all the same.
    pub problems: Vec<String>,
}

/// What a side of a merge did since the node that both share.
#[derive(Default)]
struct Side {
    conclusion: String,
    /// Each changed file, by its absolute path.
    files: BTreeMap<String, FileSpan>,
    /// What it did beside that to its workspace.
    notes: Vec<WorkspaceNote>,
}

/// How a file was before the first change of a side and after the last, as far as anything was written down.
#[derive(Default)]
struct FileSpan {
    before: Option<FileState>,
    after: Option<FileState>,
}

impl FileSpan {
    /// As it was left, where that is known.
    fn left(&self) -> Option<&FileState> {
        self.after.as_ref().filter(|state| state.is_known())
    }
}

/// A merge, and both sides of it.
struct Sides {
    merge: Merge,
    /// Where the session works that it goes into.
    cwd: String,
    theirs: BTreeMap<String, FileSpan>,
    ours: BTreeMap<String, FileSpan>,
    /// What the branch did beside files.
    notes: Vec<WorkspaceNote>,
}

impl Sides {
    /// The files that come along: those of the other branch, but where ours are to be kept.
    fn brought(self, side: Option<MergeSide>) -> Cargo {
        let Self { merge, theirs, mut ours, notes, .. } = self;
        let kept = |path: &String| side != Some(MergeSide::Theirs) && merge.conflicts.contains(path);
        let come = theirs.into_iter().filter(|(path, _)| !kept(path));
        let files = come.map(|(path, changed)| {
            let expect = ours.remove(&path).map_or(changed.before, |ours| ours.after);
            IncomingFile { path, expect, target: changed.after }
        });
        let mut cargo = Cargo { files: files.collect(), ..Cargo::default() };
        let (mut left, mut unknown) = (BTreeMap::new(), BTreeSet::new());
        for note in notes {
            let git = note.git.into_iter().map(|moved| (format!(".git/{}", moved.name), OF_GIT));
            let caches = note.caches.into_iter().map(|path| (format!("{path}/"), OF_CACHES));
            left.extend(git.chain(caches));
            unknown.extend(note.unknown);
        }
        let alone = |(path, why): (String, &str)| SkippedFile { path, why: why.into() };
        (cargo.left, cargo.unknown) = (left.into_iter().map(alone).collect(), unknown.into_iter().collect());
        cargo
    }
}

impl Engine {
    /// What [`Engine::merge`] would bring together.
    ///
    /// # Errors
    /// `NothingToMerge`, `Foreign`, `Removed`; `Open` with `NoSuchNode`, `NoSuchSession` or `Store`.
    pub async fn merge_of(&self, from: NodeId, into: &SessionId) -> Result<Merge, ChangeError> {
        Ok(self.sides_of(from, into).await?.merge)
    }

    async fn sides_of(&self, from: NodeId, into: &SessionId) -> Result<Sides, ChangeError> {
        let store = self.store();
        let row = self.row_of(into).await?;
        if row.agent != crate::AGENT {
            return Err(ChangeError::Foreign { session: row.id, agent: row.agent });
        }
        if crate::takes_no_prompts(&row) {
            return Err(crate::OpenError::Notes(row.id).into());
        }
        let head = self.head_of(&row).await?;
        self.node_of(from).await?;
        let base = store.fork_point(head, from).await?;
        if base == Some(from) {
            return Err(ChangeError::NothingToMerge { node: from, session: row.id });
        }
        let their_cwd = match self.session_of(from).await? {
            Some(session) => {
                let query = SessionQuery { id: Some(session), limit: Some(1), ..SessionQuery::default() };
                store.sessions(query).await?.into_iter().next().map(|row| row.cwd)
            }
            None => None,
        };
        let theirs = side(&**store, from, base, Path::new(&their_cwd.unwrap_or_default())).await?;
        let ours = side(&**store, head, base, Path::new(&row.cwd)).await?;
        let differ = |(path, changed): &(&String, &FileSpan)| match (changed.left(), ours.files.get(*path)) {
            (_, None) => false,
            (Some(theirs), Some(ours)) => ours.left() != Some(theirs),
            (None, Some(_)) => true,
        };
        let conflicts = theirs.files.iter().filter(differ).map(|(path, _)| path.clone()).collect();
        let files = theirs.files.keys().cloned().collect();
        let (into, conclusion) = (row.id, theirs.conclusion);
        let merge = Merge { into, head, from, base, conclusion, files, conflicts };
        Ok(Sides { merge, cwd: row.cwd, theirs: theirs.files, ours: ours.files, notes: theirs.notes })
    }

    /// Brings what a branch came to into a session: one node behind its head with both ends recorded, which the model
    /// reads as archive, after the user's own `note`. Files on disk stay as they are; where both sides changed one,
    /// `side` says to the model whose is to be kept. Gives the node.
    ///
    /// # Errors
    /// As [`Engine::merge_of`]; `Conflict` without a `side`; `Busy`; `BadMessage` for a note over 64 KiB.
    pub async fn merge(
        &self,
        from: NodeId,
        into: &SessionId,
        note: &str,
        side: Option<MergeSide>,
    ) -> Result<(NodeId, Merge), ChangeError> {
        self.merge_with_files(from, into, note, side, None).await.map(|merged| (merged.node, merged.merge))
    }

    /// Like [`Engine::merge`], but also restores files when `how` is given: each file that the branch changed gets the
    /// content of the branch, except where both sides changed it and `side` is `Ours`. Otherwise as in [`Engine::jump_with_files`].
    ///
    /// # Errors
    /// As [`Engine::merge`]; `Files`, and then nothing was changed.
    pub async fn merge_with_files(
        &self,
        from: NodeId,
        into: &SessionId,
        note: &str,
        side: Option<MergeSide>,
        how: Option<&RestoreFiles>,
    ) -> Result<MergeReport, ChangeError> {
        let note = self.merge_note(note)?;
        let name = RefName::session(into);
        // Nobody else's work is read half done.
        self.merge_of(from, into).await?;
        let busy = || ChangeError::Busy(into.clone());
        with_lease(self.store(), &name, busy, self.merge_leased(from, into, &note, side, how)).await
    }

    /// The user's words of a merge as they are kept.
    pub(crate) fn merge_note(&self, note: &str) -> Result<String, ChangeError> {
        let note = self.sealer().seal(note.trim()).into_owned();
        let limit = quipu_history::CARRYOVER_LIMIT;
        if note.len() > limit {
            let why = format!("a note can have at most {limit} bytes; this one has {}", note.len());
            return Err(ChangeError::BadMessage(why));
        }
        Ok(note)
    }

    /// What [`Engine::merge_with_files`] would do to files.
    ///
    /// # Errors
    /// As there, without `Busy`, `BadMessage` and conflicts of files with what somebody else did.
    pub async fn preview_merge_files(
        &self,
        from: NodeId,
        into: &SessionId,
        side: Option<MergeSide>,
        how: &RestoreFiles,
    ) -> Result<FilePlan, ChangeError> {
        let under_way = self.at_rest(&mut self.row_of(into).await?).await?;
        let sides = self.sides_of(from, into).await?;
        decided(&sides.merge, side)?;
        let cwd = sides.cwd.clone();
        let mut plan = self.plan_merged(&cwd, sides.brought(side), how).await?;
        plan.unknown.extend(under_way);
        Ok(plan)
    }

    async fn merge_leased(
        &self,
        from: NodeId,
        into: &SessionId,
        note: &str,
        side: Option<MergeSide>,
        how: Option<&RestoreFiles>,
    ) -> Result<MergeReport, ChangeError> {
        let name = RefName::session(into);
        let (_, problems) = self.close_open_steps(into, &name).await?;
        let mut merged = self.merge_standing(from, into, note, (side, how), MoveContext::default()).await?;
        merged.problems.splice(..0, problems);
        Ok(merged)
    }

    /// The same for a session that is at rest, or that we have open.
    pub(crate) async fn merge_standing(
        &self,
        from: NodeId,
        into: &SessionId,
        note: &str,
        (side, how): (Option<MergeSide>, Option<&RestoreFiles>),
        cx: MoveContext,
    ) -> Result<MergeReport, ChangeError> {
        let name = RefName::session(into);
        let mut problems = Vec::new();
        let sides = self.sides_of(from, into).await?;
        let (merge, cwd) = (sides.merge.clone(), sides.cwd.clone());
        decided(&merge, side)?;
        let (plan, flight) = match how {
            Some(how) => self.begin_merged(into, &cwd, merge.head, sides.brought(side), how).await?,
            None => Default::default(),
        };
        let text = text_of(&merge, note, side, how.map(|_| &plan));
        let mut result =
            Draft::user_message(UserInput::from(text).from_source(Provenance::quipu()), self.now());
        result.step.merge = vec![merge.head, from];
        let mut added = vec![result];
        added.extend(flight.iter().map(InFlight::record));
        // Later than both.
        let last = self.node_of(from).await?.record.timestamp.max(cx.last);
        let cx = MoveContext { last, ..cx };
        let (stands, ends, why) = (Some(merge.head), Vec::new(), "merge");
        let order = SessionMove {
            session: into,
            name: &name,
            from: stands,
            ends,
            to: stands,
            added,
            label: None,
            why,
        };
        let ReadyMove { mut commit, added, .. } = self.prepare_move(order, &cx).await?;
        let node = added.first().copied().unwrap_or(merge.head);
        let mut action = self.action("QUIPU_MERGE", Some(from), Some(node), into);
        let files = side.map(|side| match side {
            MergeSide::Ours => "ours",
            MergeSide::Theirs => "theirs",
        });
        let log = serde_json::json!({ "session": into, "parents": [merge.head, from], "files": files });
        action.metadata = Some(log.to_string());
        commit.actions.push(action);
        // A message to itself that waits for its answer keeps waiting.
        problems.extend(self.commit_move(into, commit, flight, AfterMove::Unchanged).await?);
        Ok(MergeReport { node, merge, plan, problems })
    }
}

/// Whether it was chosen whose files are to be kept, where that is required.
fn decided(merge: &Merge, side: Option<MergeSide>) -> Result<(), ChangeError> {
    match side {
        None if !merge.conflicts.is_empty() => Err(ChangeError::Conflict { files: merge.conflicts.clone() }),
        _ => Ok(()),
    }
}

/// What stands between `base`, which is left out, and `end`.
async fn side(store: &dyn Graph, end: NodeId, base: Option<NodeId>, cwd: &Path) -> Result<Side, StoreError> {
    let mut side = Side::default();
    let nodes = match base {
        Some(base) => store.lineage(end, LineageEnd::Node(base)).await?,
        None => store.lineage(end, LineageEnd::Root).await?,
    };
    let nodes = &nodes[usize::from(base.is_some()).min(nodes.len())..];
    let hidden = store.hidden();
    for some in nodes.chunks(AT_ONCE) {
        for (node, DecodedEntry { entry, step }) in some.iter().zip(decode_whole(store, some).await?) {
            let restored = is_restored(&entry);
            let mut named = TouchedFiles::default();
            if let Some(message) = message_of(&entry) {
                if let Message::Assistant(answer) = &*message
                    && counts(answer)
                    && !answer.text().trim().is_empty()
                    && !hidden.hides(&node.id)
                {
                    side.conclusion = answer.text().trim().to_owned();
                }
                named.add(&[Arc::new(message.into_owned())]);
            }
            for path in named.modified_files {
                side.files.entry(absolute(cwd, &path)).or_default();
            }
            side.notes.extend(step.extra.get(WORKSPACE_NOTE).and_then(|note| note.read().ok()));
            for change in step.files.into_iter().filter(|change| change.before != change.after) {
                let path = absolute(cwd, &change.path);
                // Putting files back changes nothing that the side did not change itself.
                if restored && !side.files.contains_key(&path) {
                    continue;
                }
                let file = side.files.entry(path).or_default();
                file.before.get_or_insert(change.before);
                file.after = Some(change.after);
            }
        }
    }
    Ok(side)
}

/// A path as calls name it, without `.` and `..`.
fn absolute(cwd: &Path, path: &str) -> String {
    let mut out = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out.to_string_lossy().into_owned()
}

/// What the model reads; `plan` is what was done to files, where they came along.
fn text_of(merge: &Merge, note: &str, side: Option<MergeSide>, plan: Option<&FilePlan>) -> String {
    let mut lines = Vec::new();
    if !note.is_empty() {
        lines.extend([note.to_owned(), String::new()]);
    }
    let from = merge
        .base
        .map_or_else(String::new, |base| format!(", which left this conversation at {}", base.short()));
    lines.push("The result of another branch is merged here:".into());
    lines.push(BEGIN.into());
    lines.push(format!("branch {}{from}", merge.from.short()));
    lines.push(match merge.conclusion.as_str() {
        "" => "It ended without an answer.".into(),
        text => format!("Its last words:\n{}", escaped(&shortened(text, CONCLUSION))),
    });
    if !merge.files.is_empty() {
        lines.push(format!("Files it changed:{}", list(&merge.files)));
    }
    lines.push(END.into());
    if let (Some(side), false) = (side, merge.conflicts.is_empty()) {
        let whose = match side {
            MergeSide::Ours => "Keep them as this conversation left them",
            MergeSide::Theirs => "Keep them as that branch left them",
        };
        lines.push(format!("Both changed these files. {whose}:{}", list(&merge.conflicts)));
    }
    lines.push(match plan {
        None => "The merge changed no files on disk: check them before you rely on what either branch left."
            .into(),
        Some(plan) => {
            let stays: Vec<String> = plan.stays().map(|line| line.replacen("? ", "", 1)).collect();
            let but = match stays.is_empty() {
                true => String::new(),
                false => format!(" These were not merged, or are not known:{}", list(&stays)),
            };
            format!("The known file changes of the branch are on disk, except in files to keep.{but}")
        }
    });
    lines.join("\n")
}

fn list(files: &[String]) -> String {
    let named: BTreeSet<&String> = files.iter().take(NAMED).collect();
    let lines = named.iter().map(|file| format!("\n- {}", escaped(&file.replace(char::is_control, " "))));
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("\n- and {more} more") } else { String::new() };
    lines.collect::<String>() + &more
}
