//! Moves of a session that is open, made between two of its commits by what moves sessions at rest.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_protocol::{Jumped, MoveFiles, MoveStep, Moved, NodeId, Refused, SessionId};
use quipu_store::{SessionRow, StoreError};

use crate::along::RestoreFiles;
use crate::arrival::awaited;
use crate::change::ChangeError;
use crate::commit::{MoveContext, Mover};
use crate::engine::{Engine, SessionOptions};
use crate::error::OpenError;
use crate::files::{FileSettings, FilesError};
use crate::jump::Made as Gone;
use crate::policy::Policy;
use crate::stand::{Stand, place_at, stand};
use crate::timeline::{Along, Way};
use crate::undo::UndoError;
use quipu_machine::{Draft, MoveDone, MoveOrder, TobeOrder};
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
struct Made {
    moved: Moved,
    ended: Vec<NodeId>,
    added: Vec<NodeId>,
    name: Option<String>,
    elsewhere: bool,
    /// The session that it is now.
    branched: Option<SessionId>,
}

impl Made {
    /// The session stands elsewhere.
    fn at(moved: Moved) -> Self {
        let (name, branched) = (None, None);
        Self { moved, ended: Vec::new(), added: Vec::new(), name, elsewhere: true, branched }
    }

    /// Something is noted of the session.
    fn noted(moved: Moved, name: Option<String>) -> Self {
        Self { name, elsewhere: false, ..Self::at(moved) }
    }
}

impl SessionMover {
    pub(crate) fn new(engine: Engine, options: &SessionOptions) -> Self {
        let cwd = options.cwd.to_string_lossy().into_owned();
        Self { engine, policy: options.policy.clone(), files: options.files, cwd }
    }

    /// How files go along, where they do; a jump or a merge takes none along unless that is said.
    fn along(&self, files: MoveFiles) -> Option<RestoreFiles> {
        let overwrite = match files {
            MoveFiles::AsBefore | MoveFiles::Keep => return None,
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
    ) -> Result<Made, Refused> {
        let (how, always) = match files {
            MoveFiles::AsBefore => (Some(self.how(false)), false),
            MoveFiles::Keep => (None, false),
            MoveFiles::Restore { overwrite } => (Some(self.how(overwrite)), true),
        };
        let along = Along { how, always, stays_there: true };
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        let done = self.engine.steps_standing(row, steps, way, &along, cx).await;
        let (done, problems) = done.map_err(refused)?;
        let Some(to) = done.last().and_then(|step| step.to) else {
            return Err(match way {
                Way::Back => Refused::NothingToUndo,
                Way::Forward => Refused::NothingToRedo,
            });
        };
        let steps = done.into_iter().map(|step| MoveStep { what: step.what, from: step.from, to: step.to });
        let moved = Moved { from: head, to, said: None, steps: steps.collect(), files: Vec::new(), problems };
        Ok(Made::at(moved))
    }

    /// The files that were agreed to are on their way before the session goes.
    async fn tobe(
        &self,
        row: &SessionRow,
        head: NodeId,
        order: TobeOrder,
        cx: &MoveContext,
    ) -> Result<Gone, Refused> {
        let flight = match &order.files {
            None => None,
            Some(agreed) => {
                let how = RestoreFiles { agreed: Some((**agreed).clone()), ..self.how(false) };
                let begun = self.engine.begin_files(&row.id, &row.cwd, head, order.to, &how).await;
                let (_, flight) = begun.map_err(|error| refused(error.into()))?;
                if flight.is_none() {
                    let why = "there are no file changes to restore any more";
                    return Err(Refused::NotMoved { why: why.into() });
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
    ) -> Result<Made, Refused> {
        let done = self.engine.jump_branched(row, from, place, added, cx).await.map_err(refused)?;
        let Gone { jumped: Jumped { session, head: to, said, .. }, added, problems, .. } = done;
        let (steps, files) = (Vec::new(), Vec::new());
        let moved = Moved { from, to, said, steps, files, problems };
        Ok(Made { added, branched: Some(session), ..Made::at(moved) })
    }

    async fn move_session(
        &self,
        row: &SessionRow,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> Result<Made, Refused> {
        let engine = &self.engine;
        let stands = |to: NodeId| Moved {
            from: head,
            to,
            said: None,
            steps: Vec::new(),
            files: Vec::new(),
            problems: Vec::new(),
        };
        match order {
            MoveOrder::Jump { to, label, added, files } => {
                let how = self.along(files);
                let place = (to, label.as_deref());
                let done = engine.jump_standing(row, place, added, how.as_ref(), &cx).await;
                let Gone { jumped, added, plan, problems, .. } = done.map_err(refused)?;
                let Jumped { head, said, .. } = jumped;
                let moved =
                    Moved { said, files: named(&plan), problems: told(&plan, problems), ..stands(head) };
                Ok(Made { added, ..Made::at(moved) })
            }
            MoveOrder::Tobe(order) => {
                let Gone { jumped, ended, added, problems, .. } = self.tobe(row, head, *order, &cx).await?;
                let Jumped { from, head, .. } = jumped;
                let moved = Moved { from, problems, ..stands(head) };
                Ok(Made { ended, added, ..Made::at(moved) })
            }
            MoveOrder::Undo { steps, files } => self.steps(row, head, (steps, Way::Back, files), cx).await,
            MoveOrder::Redo { steps, files } => self.steps(row, head, (steps, Way::Forward, files), cx).await,
            MoveOrder::Merge { from, note, side, files } => {
                let how = self.along(files);
                let note = engine.merge_note(&note).map_err(refused)?;
                let merged = engine.merge_standing(from, &row.id, &note, (side, how.as_ref()), cx).await;
                let merged = merged.map_err(refused)?;
                let to = self.head(row).await?;
                let problems = told(&merged.plan, merged.problems);
                Ok(Made::at(Moved { files: named(&merged.plan), problems, ..stands(to) }))
            }
            MoveOrder::UndoCompaction => {
                let to = engine.go_back_standing(&row.id, &row.name, head, &cx).await;
                Ok(Made::at(stands(to.map_err(|error| not_undone(&error))?)))
            }
            MoveOrder::Label { node, text } => {
                let to = engine.label_standing(row, node, &text).await.map_err(refused)?;
                Ok(Made::noted(stands(to.unwrap_or(head)), None))
            }
            MoveOrder::Rename { name } => {
                let (to, name) = engine.rename_standing(row, &name).await.map_err(refused)?;
                Ok(Made::noted(stands(to), Some(name)))
            }
        }
    }

    /// What a jump would do to files.
    pub(crate) async fn preview(
        &self,
        session: &SessionId,
        head: NodeId,
        to: NodeId,
    ) -> Result<FilePlan, Refused> {
        let row = self.row(session).await?;
        let stand =
            stand(&**self.engine.store(), session, to).await.map_err(|error| refused(error.into()))?;
        let Some(Stand { at, .. }) = stand else { return Err(Refused::NotInSession { node: to }) };
        let plan = self.engine.plan_files(&row.cwd, head, at, &self.how(false)).await;
        plan.map_err(|error| refused(error.into()))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    async fn head(&self, row: &SessionRow) -> Result<NodeId, Refused> {
        let head = self.engine.store().head(&row.name).await.map_err(|error| refused(error.into()))?;
        head.ok_or_else(|| Refused::NotMoved { why: "the session was removed meanwhile".into() })
    }

    /// The session, which works where its tools do.
    async fn row(&self, session: &SessionId) -> Result<SessionRow, Refused> {
        let row = self.engine.row_of(session).await.map_err(refused)?;
        Ok(SessionRow { cwd: self.cwd.clone(), ..row })
    }

    async fn made(
        &self,
        session: &SessionId,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> Result<MoveDone, Refused> {
        let row = self.row(session).await?;
        let row = SessionRow { head: Some(self.head(&row).await?), ..row };
        let lost = row.head != Some(head);
        let made = match order {
            MoveOrder::Jump { to, label, added, files: MoveFiles::Keep | MoveFiles::AsBefore } if lost => {
                let place = (to, label.as_deref());
                self.branch(&row, head, place, added, &cx).await?
            }
            _ if lost => return Err(Refused::NotMoved { why: WENT_ON.into() }),
            order => self.move_session(&row, head, order, cx).await?,
        };
        let Made { moved, ended, added, name, elsewhere, branched } = made;
        let store = &**self.engine.store();
        let failed = |error: OpenError| Refused::Store { why: error.to_string() };
        let place = match elsewhere {
            true => Some(Box::new(place_at(store, moved.to).await.map_err(failed)?)),
            false => None,
        };
        let session = branched.as_ref().unwrap_or(session);
        let pending = store.pending(session).await.map_err(|error| failed(error.into()))?;
        let waits = pending.jump.as_ref().and_then(awaited).is_some();
        let node = self.engine.node_of(moved.to).await.map_err(refused)?;
        Ok(MoveDone { moved, ended, added, place, waits, name, branched, at: node.record.timestamp })
    }
}

impl Mover for SessionMover {
    fn make<'a>(
        &'a self,
        session: &'a SessionId,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> BoxFuture<'a, Result<MoveDone, Refused>> {
        Box::pin(self.made(session, head, order, cx))
    }
}

fn named(plan: &FilePlan) -> Vec<String> {
    plan.shown().take(NAMED).map(|change| change.path.clone()).collect()
}

fn told(plan: &FilePlan, mut problems: Vec<String>) -> Vec<String> {
    problems.extend(plan.stays().take(NAMED));
    problems
}

pub(crate) fn refused(error: ChangeError) -> Refused {
    let why = error.to_string();
    match error {
        ChangeError::NothingToUndo(_) => Refused::NothingToUndo,
        ChangeError::NothingToRedo(_) => Refused::NothingToRedo,
        ChangeError::Conflict { files } => Refused::MergeConflict { files },
        ChangeError::NoSession(node) => Refused::NotInSession { node },
        ChangeError::TooLong(characters) => Refused::LabelTooLong { characters },
        ChangeError::Files(FilesError::Conflicts(plan) | FilesError::Stale(plan)) => {
            let conflicts = plan.conflicts().take(NAMED).map(|(change, _)| change.path.clone()).collect();
            Refused::Files { why, conflicts }
        }
        ChangeError::Files(_) => Refused::Files { why, conflicts: Vec::new() },
        ChangeError::Open(OpenError::Store(StoreError::Conflict { .. })) => {
            Refused::NotMoved { why: WENT_ON.into() }
        }
        ChangeError::Open(OpenError::Store(_)) => Refused::Store { why },
        ChangeError::Open(_)
        | ChangeError::Busy(_)
        | ChangeError::Removed { .. }
        | ChangeError::Foreign { .. }
        | ChangeError::Outputs { .. }
        | ChangeError::Illegal { .. }
        | ChangeError::BadMessage(_)
        | ChangeError::NothingToMerge { .. } => Refused::NotMoved { why },
    }
}

fn not_undone(error: &UndoError) -> Refused {
    match error {
        UndoError::NotCompacted(_) | UndoError::WentOn { .. } => Refused::NoCompaction,
        UndoError::Busy(_) | UndoError::Open(_) => Refused::NotMoved { why: error.to_string() },
    }
}
