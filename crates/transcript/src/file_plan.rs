//! What going to another node does to files, as a value; and the node that says that it was done.

use quipu_protocol::{Entry, FileChange, FileState, Json, NodeId, StepInfo, Unknown};
use serde::{Deserialize, Serialize};

use crate::title::one_line;

/// Characters of a path that are shown.
const PATH: usize = 300;
/// The type of the entry that says that files were put back.
const KIND: &str = "quipu.files";

/// What going to another node does to files. Paths are in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FilePlan {
    /// What will be on the disk that is not there now. Nothing else is changed, but for directories that become empty.
    /// Programs are given those that people see.
    #[serde(serialize_with = "only_shown")]
    pub changes: Vec<PlannedChange>,
    /// What stays as it is, though a step that is left or gone to changed it: files, git's refs (`.git/HEAD`, …) and caches.
    pub left: Vec<SkippedFile>,
    /// What is not known of what those steps changed: sentences without a full stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
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
    /// It is a directory that comes or goes with what is in it, or stays without that, so it is not shown.
    #[serde(skip)]
    pub implied: bool,
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

/// A file that a restore skips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    /// As the node names it.
    pub path: String,
    /// The reason, in a few words.
    pub why: String,
}

fn only_shown<S: serde::Serializer>(changes: &[PlannedChange], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().filter(|change| !change.implied))
}

impl FilePlan {
    /// Files that are not overwritten unless somebody says so.
    pub fn conflicts(&self) -> impl Iterator<Item = (&PlannedChange, FileConflict)> {
        self.changes.iter().filter_map(|change| Some((change, change.conflict?)))
    }

    /// The changes that people see.
    pub fn shown(&self) -> impl Iterator<Item = &PlannedChange> {
        self.changes.iter().filter(|change| !change.implied)
    }

    /// What would be done to files, a line for each of the first `most`, for whoever is asked.
    pub fn lines(&self, most: usize) -> String {
        let changes = self.shown().map(|change| {
            let sign = match (&change.before, &change.after) {
                (FileState::Absent, _) => '+',
                (_, FileState::Absent) => '-',
                (_, _) => '~',
            };
            let slash = if change.before.is_directory() || change.after.is_directory() { "/" } else { "" };
            format!("{sign} {}{slash}", one_line(&change.path, PATH))
        });
        cut(changes.chain(self.stays()), most)
    }

    /// What is not put back, a line each: what stays as it is, and what is not known. Whoever is told that files are as they
    /// were is told this, too.
    pub fn stays(&self) -> impl Iterator<Item = String> + '_ {
        let left = self.left.iter().map(|left| {
            format!("? {}  stays as it is: {}", one_line(&left.path, PATH), one_line(&left.why, PATH))
        });
        left.chain(self.unknown.iter().map(|what| format!("? {}", one_line(what, PATH))))
    }

    /// How many lines [`stays`](Self::stays) gives.
    pub fn count_of_stays(&self) -> usize {
        self.left.len() + self.unknown.len()
    }

    /// The first `most` lines of what [`stays`](Self::stays) gives; empty where there are none.
    pub fn stays_in_short(&self, most: usize) -> String {
        cut(self.stays(), most)
    }

    /// Whether there is nothing to do and nothing to say.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.left.is_empty() && self.unknown.is_empty()
    }
}

/// The first `most` lines, and how many more there are.
fn cut(lines: impl Iterator<Item = String>, most: usize) -> String {
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(most);
    lines.truncate(most);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// The node that says that the files of a plan were put back, when the session came from `from`.
pub fn restored(from: NodeId, plan: &FilePlan) -> (Entry, StepInfo) {
    let files = plan.changes.iter().map(|change| FileChange {
        path: change.path.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
    });
    (
        restored_entry(&RestoreNote::of(from, plan), KIND),
        StepInfo { files: files.collect(), ..StepInfo::default() },
    )
}

/// A record of a restore of files: where it came from, and what it skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreNote {
    /// The node at which the session stood before.
    pub from: NodeId,
    /// Files that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<SkippedFile>,
    /// What was not known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

impl RestoreNote {
    /// What a plan says of it, carried out from a node.
    pub fn of(from: NodeId, plan: &FilePlan) -> Self {
        Self { from, left: plan.left.clone(), unknown: plan.unknown.clone() }
    }
}

/// The entry of a node that says that files were put back.
pub fn restored_entry(origin: &RestoreNote, kind: &str) -> Entry {
    let data = serde_json::json!({ "type": "custom", "customType": kind, "data": origin });
    Entry::Meta(Json::from(&data))
}

/// The same for a session that came from another node.
pub fn restored_again(entry: &Entry, from: NodeId) -> Entry {
    match restore_note(entry) {
        Some(origin) => restored_entry(&RestoreNote { from, ..origin }, KIND),
        None => entry.clone(),
    }
}

/// Whether an entry says that files were put back.
pub fn is_restored(entry: &Entry) -> bool {
    restore_note(entry).is_some()
}

/// The note in such an entry; `None` for any other entry.
pub fn restore_note(entry: &Entry) -> Option<RestoreNote> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RestoreEntry {
        custom_type: String,
        data: RestoreNote,
    }
    let Entry::Meta(json) = entry else { return None };
    let found: RestoreEntry = Some(json).filter(|json| json.get().contains(KIND))?.read().ok()?;
    (found.custom_type == KIND).then_some(found.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId([name.as_bytes()[0]; 32])
    }

    #[test]
    fn restore_note_is_read_from_its_entry() {
        let left = vec![SkippedFile { path: "a".into(), why: "b".into() }];
        let there = RestoreNote { from: node("x"), left, unknown: vec!["c".into()] };
        let entry = restored_entry(&there, KIND);
        assert_eq!(restore_note(&entry).as_ref(), Some(&there));
        let again = restore_note(&restored_again(&entry, node("y")));
        assert_eq!(again, Some(RestoreNote { from: node("y"), ..there }));
        let other = |text: &str| Entry::Meta(Json::parse(text).unwrap());
        assert_eq!(
            restore_note(&other(r#"{"type":"custom","customType":"quipu.files","data":{"from":"x"}}"#)),
            None
        );
        assert_eq!(
            restore_note(&other(r#"{"type":"custom","customType":"other","data":{"x":"quipu.files"}}"#)),
            None
        );
    }
}
