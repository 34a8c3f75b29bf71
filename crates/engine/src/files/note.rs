//! What a node says of the workspace beside the files that its step changed: what cannot be put back, and what is not known.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_transcript::{GitMove, WorkspaceNote};
use quipu_workspace::GitRefs;

/// Refs, and caches, that are named at most.
const NAMED: usize = 200;

/// What is noticed of a repository and of caches, put into words.
pub(super) trait Noted {
    /// What moved in a repository.
    fn moved(&mut self, before: &GitRefs, after: &GitRefs);
    /// Caches in which something changed.
    fn changed_caches(&mut self, caches: &[std::path::PathBuf]);
}

impl Noted for WorkspaceNote {
    fn moved(&mut self, before: &GitRefs, after: &GitRefs) {
        let changed = before.changed(after);
        let more = changed.len().saturating_sub(NAMED);
        let moves = changed.into_iter().take(NAMED).map(|(name, (old, new))| GitMove {
            name: name.to_owned(),
            before: old.map(str::to_owned),
            after: new.map(str::to_owned),
        });
        self.git.extend(moves);
        if more > 0 {
            self.unknown.push(format!("{more} more git refs moved"));
        }
    }

    fn changed_caches(&mut self, caches: &[std::path::PathBuf]) {
        self.caches.extend(caches.iter().take(NAMED).map(|path| shown(path)));
        let more = caches.len().saturating_sub(NAMED);
        if more > 0 {
            self.unknown.push(format!("{more} more git-ignored caches changed"));
        }
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
