//! Moves of a session that is open, made between two of its commits by what moves sessions at rest.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_protocol::{JumpReport, MoveFiles, MoveReport, MoveStep, NodeId, Refusal, SessionId};
use quipu_store::{SessionRow, StoreError};

use crate::arrival::awaited;
use crate::change::ChangeError;
use crate::commit::{MoveContext, Mover};
use crate::engine::{Engine, SessionOptions};
use crate::error::OpenError;
use crate::files::{FileSettings, FilesError};
use crate::jump::CompletedJump;
use crate::policy::Policy;
use crate::restore_files::RestoreFiles;
use crate::stand::{Stand, place_at, stand};
use crate::timeline::{FileTravel, Way};
use crate::undo::UndoError;
use quipu_machine::{Draft, MoveOrder, MoveResult, TobeOrder};
use quipu_transcript::FilePlan;

/// Files of a move that are named at most.
const NAMED: usize = 1_000;
const WENT_ON: &str = "another process continued this session meanwhile; nothing was changed";

/// Moves by the rules of one session.
#[derive(Clone)]
pub(crate) struct SessionMover {
    engine: Engine,
    policy: Arc<dyn Policy>,
    files: FileSettings,
    /// Where its tools work.
    cwd: String,
}

impl std::fmt::Debug for SessionMover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionMover")
    }
}

/// What was done, and whether the conversation is another one.
struct CompletedMove {
    moved: MoveReport,
    ended: Vec<NodeId>,
    added: Vec<NodeId>,
    name: Option<String>,
    elsewhere: bool,
    /// The session that it is now.
    branched: Option<SessionId>,
}

impl CompletedMove {
    /// The session stands elsewhere.
    fn at(moved: MoveReport) -> Self {
        let (name, branched) = (None, None);
        Self { moved, ended: Vec::new(), added: Vec::new(), name, elsewhere: true, branched }
    }

    /// Something is noted of the session.
    fn noted(moved: MoveReport, name: Option<String>) -> Self {
        Self { name, elsewhere: false, ..Self::at(moved) }
    }
}

impl SessionMover {
    pub(crate) fn new(engine: Engine, options: &SessionOptions) -> Self {
        let cwd = options.cwd.to_string_lossy().into_owned();
        Self { engine, policy: options.policy.clone(), files: options.files, cwd }
    }

    /// How files go along, where they do; a jump or a merge takes none along by default.
    fn along(&self, files: MoveFiles) -> Option<RestoreFiles> {
        let overwrite = match files {
            MoveFiles::Auto | MoveFiles::Keep => return None,
            MoveFiles::Restore { overwrite } => overwrite,
        };
        Some(self.how(overwrite))
    }

    fn how(&self, overwrite: bool) -> RestoreFiles {
        let access = self.policy.restores();
        RestoreFiles { overwrite, access, kept: self.files, ..RestoreFiles::default() }
    }

    async fn steps(
        &self,
        row: &SessionRow,
        head: NodeId,
        (steps, way, files): (u32, Way, MoveFiles),
        cx: MoveContext,
    ) -> Result<CompletedMove, Refusal> {
        let (how, always) = match files {
            MoveFiles::Auto => (Some(self.how(false)), false),
            MoveFiles::Keep => (None, false),
            MoveFiles::Restore { overwrite } => (Some(self.how(overwrite)), true),
        };
        let along = FileTravel { how, always, stays_there: true };
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        let done = self.engine.steps_standing(row, steps, way, &along, cx).await;
        let (done, problems) = done.map_err(refused)?;
        let Some(to) = done.last().and_then(|step| step.to) else {
            return Err(match way {
                Way::Back => Refusal::NothingToUndo,
                Way::Forward => Refusal::NothingToRedo,
            });
        };
        let steps = done.into_iter().map(|step| MoveStep { kind: step.kind, from: step.from, to: step.to });
        let moved =
            MoveReport { from: head, to, prompt: None, steps: steps.collect(), files: Vec::new(), problems };
        Ok(CompletedMove::at(moved))
    }

    /// The files that were agreed to are on their way before the session goes.
    async fn tobe(
        &self,
        row: &SessionRow,
        head: NodeId,
        order: TobeOrder,
        cx: &MoveContext,
    ) -> Result<CompletedJump, Refusal> {
        let flight = match &order.files {
            None => None,
            Some(agreed) => {
                let how = RestoreFiles { agreed: Some((**agreed).clone()), ..self.how(false) };
                let begun = self.engine.begin_files(&row.id, &row.cwd, head, order.to, &how).await;
                let (_, flight) = begun.map_err(|error| refused(error.into()))?;
                if flight.is_none() {
                    let why = "there are no file changes to restore any more";
                    return Err(Refusal::NotMoved { why: why.into() });
                }
                flight
            }
        };
        self.engine.tobe_standing(row, order, flight, cx).await.map_err(refused)
    }

    /// Another process went on with the session: who jumps goes there in a session of its own.
    async fn branch(
        &self,
        row: &SessionRow,
        from: NodeId,
        place: (NodeId, Option<&str>),
        added: Vec<Draft>,
        cx: &MoveContext,
    ) -> Result<CompletedMove, Refusal> {
        let done = self.engine.jump_branched(row, from, place, added, cx).await.map_err(refused)?;
        let CompletedJump { jumped: JumpReport { session, head: to, prompt, .. }, added, problems, .. } =
            done;
        let (steps, files) = (Vec::new(), Vec::new());
        let moved = MoveReport { from, to, prompt, steps, files, problems };
        Ok(CompletedMove { added, branched: Some(session), ..CompletedMove::at(moved) })
    }

    async fn move_session(
        &self,
        row: &SessionRow,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> Result<CompletedMove, Refusal> {
        let engine = &self.engine;
        let stands = |to: NodeId| MoveReport {
            from: head,
            to,
            prompt: None,
            steps: Vec::new(),
            files: Vec::new(),
            problems: Vec::new(),
        };
        match order {
            MoveOrder::Jump { to, label, added, files } => {
                let how = self.along(files);
                let place = (to, label.as_deref());
                let done = engine.jump_standing(row, place, added, how.as_ref(), &cx).await;
                let CompletedJump { jumped, added, plan, problems, .. } = done.map_err(refused)?;
                let JumpReport { head, prompt, .. } = jumped;
                let moved = MoveReport {
                    prompt,
                    files: named(&plan),
                    problems: with_skipped_files(&plan, problems),
                    ..stands(head)
                };
                Ok(CompletedMove { added, ..CompletedMove::at(moved) })
            }
            MoveOrder::Tobe(order) => {
                let CompletedJump { jumped, ended, added, problems, .. } =
                    self.tobe(row, head, *order, &cx).await?;
                let JumpReport { from, head, .. } = jumped;
                let moved = MoveReport { from, problems, ..stands(head) };
                Ok(CompletedMove { ended, added, ..CompletedMove::at(moved) })
            }
            MoveOrder::Undo { steps, files } => self.steps(row, head, (steps, Way::Back, files), cx).await,
            MoveOrder::Redo { steps, files } => self.steps(row, head, (steps, Way::Forward, files), cx).await,
            MoveOrder::Merge { from, note, side, files } => {
                let how = self.along(files);
                let note = engine.merge_note(&note).map_err(refused)?;
                let merged = engine.merge_standing(from, &row.id, &note, (side, how.as_ref()), cx).await;
                let merged = merged.map_err(refused)?;
                let to = self.head(row).await?;
                let problems = with_skipped_files(&merged.plan, merged.problems);
                Ok(CompletedMove::at(MoveReport { files: named(&merged.plan), problems, ..stands(to) }))
            }
            MoveOrder::UndoCompaction => {
                let to = engine.go_back_standing(&row.id, &row.name, head, &cx).await;
                Ok(CompletedMove::at(stands(to.map_err(|error| not_undone(&error))?)))
            }
            MoveOrder::Label { node, text } => {
                let to = engine.label_standing(row, node, &text).await.map_err(refused)?;
                Ok(CompletedMove::noted(stands(to.unwrap_or(head)), None))
            }
            MoveOrder::Rename { name } => {
                let (to, name) = engine.rename_standing(row, &name).await.map_err(refused)?;
                Ok(CompletedMove::noted(stands(to), Some(name)))
            }
        }
    }

    /// What a jump would do to files.
    pub(crate) async fn preview(
        &self,
        session: &SessionId,
        head: NodeId,
        to: NodeId,
    ) -> Result<FilePlan, Refusal> {
        let row = self.row(session).await?;
        let stand =
            stand(&**self.engine.store(), session, to).await.map_err(|error| refused(error.into()))?;
        let Some(Stand { at, .. }) = stand else { return Err(Refusal::NotInSession { node: to }) };
        let plan = self.engine.plan_files(&row.cwd, head, at, &self.how(false)).await;
        plan.map_err(|error| refused(error.into()))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    async fn head(&self, row: &SessionRow) -> Result<NodeId, Refusal> {
        let head = self.engine.store().head(&row.name).await.map_err(|error| refused(error.into()))?;
        head.ok_or_else(|| Refusal::NotMoved { why: "the session was removed meanwhile".into() })
    }

    /// The session, which works where its tools do.
    async fn row(&self, session: &SessionId) -> Result<SessionRow, Refusal> {
        let row = self.engine.row_of(session).await.map_err(refused)?;
        Ok(SessionRow { cwd: self.cwd.clone(), ..row })
    }

    async fn made(
        &self,
        session: &SessionId,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> Result<MoveResult, Refusal> {
        let row = self.row(session).await?;
        let row = SessionRow { head: Some(self.head(&row).await?), ..row };
        let lost = row.head != Some(head);
        let made = match order {
            MoveOrder::Jump { to, label, added, files: MoveFiles::Keep | MoveFiles::Auto } if lost => {
                let place = (to, label.as_deref());
                self.branch(&row, head, place, added, &cx).await?
            }
            _ if lost => return Err(Refusal::NotMoved { why: WENT_ON.into() }),
            order => self.move_session(&row, head, order, cx).await?,
        };
        let CompletedMove { moved, ended, added, name, elsewhere, branched } = made;
        let store = &**self.engine.store();
        let failed = |error: OpenError| Refusal::Store { why: error.to_string() };
        let place = match elsewhere {
            true => Some(Box::new(place_at(store, moved.to).await.map_err(failed)?)),
            false => None,
        };
        let session = branched.as_ref().unwrap_or(session);
        let pending = store.pending(session).await.map_err(|error| failed(error.into()))?;
        let pending_self_message = pending.jump.as_ref().and_then(awaited).is_some();
        let node = self.engine.node_of(moved.to).await.map_err(refused)?;
        Ok(MoveResult {
            moved,
            ended,
            added,
            place,
            pending_self_message,
            name,
            branched,
            at: node.record.timestamp,
        })
    }
}

impl Mover for SessionMover {
    fn make<'a>(
        &'a self,
        session: &'a SessionId,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> BoxFuture<'a, Result<MoveResult, Refusal>> {
        Box::pin(self.made(session, head, order, cx))
    }
}

fn named(plan: &FilePlan) -> Vec<String> {
    plan.shown().take(NAMED).map(|change| change.path.clone()).collect()
}

fn with_skipped_files(plan: &FilePlan, mut problems: Vec<String>) -> Vec<String> {
    problems.extend(plan.stays().take(NAMED));
    problems
}

pub(crate) fn refused(error: ChangeError) -> Refusal {
    let why = error.to_string();
    match error {
        ChangeError::NothingToUndo(_) => Refusal::NothingToUndo,
        ChangeError::NothingToRedo(_) => Refusal::NothingToRedo,
        ChangeError::Conflict { files } => Refusal::MergeConflict { files },
        ChangeError::NoSession(node) => Refusal::NotInSession { node },
        ChangeError::TooLong(characters) => Refusal::LabelTooLong { characters },
        ChangeError::Files(FilesError::Conflicts(plan) | FilesError::Stale(plan)) => {
            let conflicts = plan.conflicts().take(NAMED).map(|(change, _)| change.path.clone()).collect();
            Refusal::Files { why, conflicts }
        }
        ChangeError::Files(_) => Refusal::Files { why, conflicts: Vec::new() },
        ChangeError::Open(OpenError::Store(StoreError::Conflict { .. })) => {
            Refusal::NotMoved { why: WENT_ON.into() }
        }
        ChangeError::Open(OpenError::Store(_)) => Refusal::Store { why },
        ChangeError::Open(_)
        | ChangeError::Busy(_)
        | ChangeError::Removed { .. }
        | ChangeError::Foreign { .. }
        | ChangeError::Outputs { .. }
        | ChangeError::Illegal { .. }
        | ChangeError::BadMessage(_)
        | ChangeError::NothingToMerge { .. } => Refusal::NotMoved { why },
    }
}

fn not_undone(error: &UndoError) -> Refusal {
    match error {
        UndoError::NotCompacted(_) | UndoError::WentOn { .. } => Refusal::NoCompaction,
        UndoError::Busy(_) | UndoError::Open(_) => Refusal::NotMoved { why: error.to_string() },
    }
}
