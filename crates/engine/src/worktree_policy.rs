//! The permissions of a sub-agent in a git worktree: its parent's for that directory, where what the parent's rules say of a file of the
//! repository holds for the same file of the worktree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_machine::PolicyVersion;
use quipu_protocol::{Scope, Touches};
use quipu_workspace::{Access, Sandbox, file_key};

use crate::policy::{Decision, Grant, GrantError, Policy, Proposal};

/// Decides what both the permissions of the worktree and, for the same files of the repository, those of the parent allow.
pub(crate) struct WorktreePolicy {
    parent: Arc<dyn Policy>,
    own: Arc<dyn Policy>,
    /// The top directories of the worktree and of the repository; true paths.
    tree: PathBuf,
    top: PathBuf,
    /// The directory of the parent.
    cwd: PathBuf,
}

impl WorktreePolicy {
    /// The permissions for a directory of a worktree; `None` where the parent's are for one directory only.
    pub(crate) fn of(
        parent: Arc<dyn Policy>,
        directory: &Path,
        (tree, top): (&Path, &Path),
        cwd: &Path,
    ) -> Option<Arc<dyn Policy>> {
        let own = parent.elsewhere(directory)?;
        let (tree, top, cwd) = (file_key(tree), file_key(top), cwd.to_path_buf());
        Some(Arc::new(Self { parent, own, tree, top, cwd }))
    }

    /// The same file of the repository.
    fn mapped(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.tree).map_or_else(|_| path.to_path_buf(), |below| self.top.join(below))
    }
}

impl Policy for WorktreePolicy {
    fn name(&self) -> &str {
        self.parent.name()
    }

    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        let own = self.own.decide(proposal);
        if matches!(own, Decision::Deny { .. }) {
            return own;
        }
        let all = |paths: &[PathBuf]| paths.iter().map(|path| self.mapped(path)).collect();
        let touches = match proposal.touches {
            Touches::Reads(paths) => Touches::Reads(all(paths)),
            Touches::Writes(paths) => Touches::Writes(all(paths)),
            touches => touches.clone(),
        };
        let proposal =
            Proposal { call: proposal.call, cwd: &self.cwd, touches: &touches, travel: proposal.travel };
        match (self.parent.decide(&proposal), own) {
            (denied @ Decision::Deny { .. }, _) => denied,
            (_, own @ Decision::Ask { .. }) => own,
            (parent, Decision::Allow | Decision::NoOpinion | Decision::Deny { .. }) => parent,
        }
    }

    fn version(&self) -> PolicyVersion {
        let parent = self.parent.version();
        PolicyVersion { number: parent.number.wrapping_add(self.own.version().number), mode: parent.mode }
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        self.own.scopes(grant)
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        self.own.offers(grant)
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        self.own.grant(grant, scope)
    }

    fn access(&self) -> Access {
        self.own.access()
    }

    fn restores(&self) -> Option<Access> {
        self.own.restores()
    }

    fn elsewhere(&self, cwd: &Path) -> Option<Arc<dyn Policy>> {
        self.own.elsewhere(cwd)
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.own.sandbox()
    }
}
