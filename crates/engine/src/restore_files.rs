//! Files that go along when a session is moved or merged.

use std::path::Path;

use quipu_protocol::{JumpReport, NodeId, SessionId};
use quipu_store::SessionRow;
use quipu_transcript::{FilePlan, RestoreNote, restored_entry};
use quipu_workspace::{Access, AccessRules, file_key};

use crate::arrival::awaited;
use crate::calls::is_over;
use crate::change::ChangeError;
use crate::engine::{Engine, SessionOptions};
use crate::files::{
    Cargo, FileRestorer, FileSettings, FilesError, InFlight, SettleReport, is_listing, ready_to_merge, settle,
};
use crate::owner::with_lease;
use crate::stand::{Stand, stand};

/// How files go with a jump.
#[derive(Debug, Clone, Default)]
pub struct RestoreFiles {
    /// Whether files are overwritten that somebody changed since, or that cannot be kept as they are.
    pub overwrite: bool,
    /// Directories beside the session's own in which files are put back: absolute.
    pub add_dirs: Vec<std::path::PathBuf>,
    /// A directory whose files are never touched, such as the one of our own files.
    pub own: Option<std::path::PathBuf>,
    /// Only with steps that took files along before ([`Engine::undo_with_files`], [`Engine::redo_with_files`]).
    pub as_before: bool,
    /// Where files are put back in place of all these: what the policy of an open session says.
    pub access: Option<Access>,
    /// How much of a file is kept: of what is replaced, and was not kept yet, too.
    pub kept: FileSettings,
    /// What somebody agreed to; it is refused when the files are no longer as they were then.
    pub agreed: Option<FilePlan>,
}

/// A session that went to another node, with its files.
#[derive(Debug, Clone)]
pub struct JumpWithFiles {
    /// Where it went.
    pub jumped: JumpReport,
    /// What was done to files.
    pub plan: FilePlan,
    /// Files that did not take their places all the same, for people.
    pub problems: Vec<String>,
}

impl Engine {
    /// What [`Engine::jump_with_files`] would do to files.
    ///
    /// # Errors
    /// As there, without `Conflicts`.
    pub async fn preview_files(&self, to: NodeId, how: &RestoreFiles) -> Result<FilePlan, ChangeError> {
        let session = self.session_to_jump(to).await?;
        let mut row = self.row_of(&session).await?;
        let under_way = self.at_rest(&mut row).await?;
        let from = self.head_of(&row).await?;
        let Some(Stand { at, .. }) = stand(&**self.store(), &session, to).await? else {
            return Err(ChangeError::NoSession(to));
        };
        let mut plan = self.plan_files(&row.cwd, from, at, how).await?;
        plan.unknown.extend(under_way);
        Ok(plan)
    }

    /// Brings steps to an end that a dead process left open: what they did to files is known only then. Where somebody else
    /// works in the session, the notice about that.
    pub(crate) async fn at_rest(&self, row: &mut SessionRow) -> Result<Option<String>, ChangeError> {
        let pending = self.store().pending(&row.id).await?;
        if pending.steps.iter().all(|step| is_listing(step) || is_over(step)) {
            return Ok(None);
        }
        let unknown = || {
            Ok(Some(
                "another process is still working in the session; its file changes are not known yet"
                    .to_owned(),
            ))
        };
        if pending.jump.is_some_and(|jump| awaited(&jump).is_none()) {
            // Files are on their way, which the next move brings to their places.
            return unknown();
        }
        let (id, name) = (row.id.clone(), row.name.clone());
        let close = async { self.close_open_steps(&id, &name).await.map_err(ChangeError::from) };
        match with_lease(self.store(), &name, || ChangeError::Busy(id.clone()), close).await {
            Ok((head, _)) => {
                row.head = head.or(row.head);
                Ok(None)
            }
            Err(_) => unknown(),
        }
    }

    /// What files would be changed if the session that works in `cwd` went from one node to another.
    pub(crate) async fn plan_files(
        &self,
        cwd: &str,
        from: NodeId,
        to: NodeId,
        how: &RestoreFiles,
    ) -> Result<FilePlan, FilesError> {
        Ok(self.restorer(cwd, how).preview(from, to).await?.unwrap_or_default())
    }

    /// Everything up to the commit that moves the ref, with the plan; `None` when no step on the way touched a file.
    pub(crate) async fn begin_files(
        &self,
        session: &SessionId,
        cwd: &str,
        from: NodeId,
        to: NodeId,
        how: &RestoreFiles,
    ) -> Result<(FilePlan, Option<InFlight>), FilesError> {
        self.restorer(cwd, how).begin(session, from, to, how.agreed.as_ref(), how.overwrite).await
    }

    fn restorer(&self, cwd: &str, how: &RestoreFiles) -> FileRestorer {
        let root = file_key(Path::new(cwd));
        let mut write = vec![root.clone()];
        write.extend(how.add_dirs.iter().cloned());
        let rules = AccessRules {
            write,
            own: how.own.iter().cloned().collect(),
            home: std::env::home_dir(),
            ..AccessRules::default()
        };
        let limit = how.kept.file_bytes;
        let (store, sealer) = (self.store().clone(), self.sealer().clone());
        let access = how.access.clone().unwrap_or_else(|| Access::within(rules));
        FileRestorer { store, sealer, root, access, limit }
    }

    /// Where the model of a session puts files back.
    pub(crate) fn restorer_of(&self, options: &SessionOptions) -> FileRestorer {
        let root = file_key(&options.cwd);
        let access = options.policy.restores().unwrap_or_else(|| {
            let (write, home) = (vec![root.clone()], std::env::home_dir());
            Access::within(AccessRules { write, home, ..AccessRules::default() })
        });
        let limit = options.files.file_bytes;
        FileRestorer { store: self.store().clone(), sealer: self.sealer().clone(), root, access, limit }
    }

    /// Takes back, or brings to its end, what a process left that died while it put files back.
    pub(crate) async fn settle_files(
        &self,
        session: &SessionId,
    ) -> Result<SettleReport, quipu_store::StoreError> {
        settle(&**self.store(), self.sealer(), session).await
    }

    /// What bringing files along would do.
    pub(crate) async fn plan_merged(
        &self,
        cwd: &str,
        brought: Cargo,
        how: &RestoreFiles,
    ) -> Result<FilePlan, FilesError> {
        let restorer = self.restorer(cwd, how);
        let plan = ready_to_merge(&restorer, brought).await?.plan;
        restorer.is_there(&plan)?;
        Ok(plan)
    }

    /// Everything up to the commit, with the plan; `None` where nothing is to be changed.
    pub(crate) async fn begin_merged(
        &self,
        session: &SessionId,
        cwd: &str,
        from: NodeId,
        brought: Cargo,
        how: &RestoreFiles,
    ) -> Result<(FilePlan, Option<InFlight>), FilesError> {
        let restorer = self.restorer(cwd, how);
        let ready = ready_to_merge(&restorer, brought).await?;
        if ready.plan.changes.is_empty() && how.agreed.as_ref().is_none_or(|agreed| *agreed == ready.plan) {
            return Ok((ready.plan, None));
        }
        let (agreed, overwrite) = (how.agreed.as_ref(), how.overwrite);
        let (plan, flight) = restorer.begin_ready(session, from, ready, agreed, overwrite).await?;
        // The entry of the node that says what a merge did to files.
        let record = restored_entry(&RestoreNote::of(from, &plan), "quipu.merged");
        Ok((plan, Some(flight.recorded_as(record))))
    }
}
