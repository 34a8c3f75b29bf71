//! What a node says of the workspace beside the files that its step changed: what cannot be put back, and what is not known.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_protocol::{Json, StepInfo};
use quipu_workspace::GitRefs;
use serde::{Deserialize, Serialize};

/// Its name among what a step says beside all else.
pub(crate) const NOTE: &str = "workspace";
/// Refs, and caches, that are named at most.
const NAMED: usize = 200;
/// The name that stands for what is staged in git's index.
pub(super) const INDEX: &str = "index";

/// What a step did that is not put back, and what is not known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WorkspaceNote {
    /// Where git's head and refs stood, and stand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) git: Vec<GitMove>,
    /// Ignored directories that are not looked into, in which something changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) caches: Vec<String>,
    /// What is not known of what the step changed: sentences without a full stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<String>,
}

/// A ref of git's that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GitMove {
    /// `HEAD`, a ref, or [`INDEX`].
    pub(crate) name: String,
    /// What it said; nothing where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

impl WorkspaceNote {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One that only says what is not known.
    pub(crate) fn unknown(what: impl Into<String>) -> Self {
        Self { unknown: vec![what.into()], ..Self::default() }
    }

    /// What moved in a repository.
    pub(super) fn moved(&mut self, before: &GitRefs, after: &GitRefs) {
        let changed = before.changed(after);
        let more = changed.len().saturating_sub(NAMED);
        let moves = changed.into_iter().take(NAMED).map(|(name, (old, new))| GitMove {
            name: name.to_owned(),
            before: old.map(str::to_owned),
            after: new.map(str::to_owned),
        });
        self.git.extend(moves);
        if more > 0 {
            self.unknown.push(format!("{more} more refs of git were moved"));
        }
    }

    /// Caches in which something changed.
    pub(super) fn changed_caches(&mut self, caches: &[std::path::PathBuf]) {
        self.caches.extend(caches.iter().take(NAMED).map(|path| shown(path)));
        let more = caches.len().saturating_sub(NAMED);
        if more > 0 {
            self.unknown.push(format!("{more} more caches that git ignores were changed"));
        }
    }

    /// As a step keeps it; nothing where it says nothing.
    pub(crate) fn json(&self) -> Option<Json> {
        if self.is_empty() { None } else { Json::of(self).ok() }
    }

    /// Puts it where a step keeps it.
    pub(crate) fn put_into(&self, step: &mut StepInfo) {
        step.extra.extend(self.json().map(|json| (NOTE.to_owned(), json)));
    }
}

/// A path for a list, also one that is no UTF-8.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Moves of git's refs that came one after the other, as one each: how each was before the first, and after the last.
pub(super) fn joined<'a>(moves: impl Iterator<Item = &'a GitMove>) -> BTreeMap<String, GitMove> {
    let mut all: BTreeMap<String, GitMove> = BTreeMap::new();
    for one in moves {
        match all.get_mut(&one.name) {
            Some(known) => known.after.clone_from(&one.after),
            None => drop(all.insert(one.name.clone(), one.clone())),
        }
    }
    all
}
