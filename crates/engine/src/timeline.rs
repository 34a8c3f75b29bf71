//! Undo and redo: a session goes back over what moved it, and forward again. Linear, over the log of refs: each move of
//! the session's ref is a step, and so is each turn that was appended (the user's message, and what followed). Undoing is
//! a move of its own, so nothing is ever lost, and any process can continue with it.

use quipu_protocol::{Entry, Message, NodeId, SessionId};
use quipu_store::{LineageEnd, LoggedMove, PAST_MOVE, RefName, ReflogQuery, SessionRow, decode_nodes};

use crate::change::ChangeError;
use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::files::{InFlight, SettleReport, change_note, tells_of_files};
use crate::identity::Prompt;
use crate::owner::with_lease;
use crate::restore_files::RestoreFiles;
use crate::resume::{read_past, recover};
use crate::runner::is_beside;
use crate::session_move::{AfterMove, ReadyMove, SessionMove};
use quipu_history::is_note;
use quipu_transcript::{FilePlan, is_restored};

/// Nodes that are read at once on the way back to the beginning of a turn.
const AT_ONCE: usize = 32;

/// A step back or forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeStep {
    /// Where the session stood; `None` when it was removed, or not there yet.
    pub from: Option<NodeId>,
    /// Where it stands then; `None` when it is not there any more.
    pub to: Option<NodeId>,
    /// What is undone or done again: `turn`, `compaction`, or why the ref moved, such as `jump`, `tobe`, `fork`, `remove`.
    pub kind: String,
}

/// Whether files go along with a step.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileTravel {
    /// How, where they may.
    pub(crate) how: Option<RestoreFiles>,
    /// Also where they did not go along with what is undone or done again.
    pub(crate) always: bool,
    /// The session is open, and cannot go where it was not there yet.
    pub(crate) stays_there: bool,
}

impl FileTravel {
    fn of(how: Option<&RestoreFiles>) -> Self {
        Self { how: how.cloned(), always: how.is_none_or(|how| !how.as_before), stays_there: false }
    }
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Back,
    Forward,
}

/// Where a session stands in what moved it. `row` numbers are those of the log; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeline {
    head: Option<NodeId>,
    /// The move that is undone when all that was appended since is undone.
    anchor: i64,
    /// The undoing that is done again next.
    redo: i64,
}

/// What was appended since a move.
enum AppendedKind {
    /// A turn, or a compaction: where it continues from, and which of them.
    Turn(NodeId, &'static str),
    /// Only that files were put back with the move, or what hooks asked a model since.
    Nothing,
    /// Something else.
    Other,
}

/// What a row of the log says of the rows before it.
enum Kind {
    /// Something moved the ref.
    Move,
    /// Back: the anchor then, and anchor and redo before it.
    Undo { after: i64, before: i64, redo: i64 },
    /// Forward: anchor and redo then.
    Redo { anchor: i64, redo: i64 },
}

impl Kind {
    fn of(why: &str) -> Self {
        let mut words = why.split(' ');
        let kind = words.next();
        let numbers: Option<Vec<i64>> = words.map(|word| word.parse().ok()).collect();
        match (kind, numbers.as_deref()) {
            (Some("undo"), Some(&[after, before, redo])) => Self::Undo { after, before, redo },
            (Some("redo"), Some(&[anchor, redo])) => Self::Redo { anchor, redo },
            _ => Self::Move,
        }
    }
}

impl Engine {
    /// What [`Engine::undo`] would undo, the newest first, at most `steps` of them.
    ///
    /// # Errors
    /// `Foreign`; `Open` with `NoSuchSession` or `Store`.
    pub async fn undoable(&self, session: &SessionId, steps: usize) -> Result<Vec<TimeStep>, ChangeError> {
        self.steps_ahead(session, steps, Way::Back).await
    }

    /// What [`Engine::redo`] would do again, the last undone first, at most `steps` of them.
    ///
    /// # Errors
    /// As [`Engine::undoable`].
    pub async fn redoable(&self, session: &SessionId, steps: usize) -> Result<Vec<TimeStep>, ChangeError> {
        self.steps_ahead(session, steps, Way::Forward).await
    }

    async fn steps_ahead(
        &self,
        session: &SessionId,
        steps: usize,
        way: Way,
    ) -> Result<Vec<TimeStep>, ChangeError> {
        let mut row = self.row_to_move(session).await?;
        self.at_rest(&mut row).await?;
        let mut timeline = self.timeline(&row.name).await?;
        let mut found = Vec::new();
        while found.len() < steps {
            let Some((step, next)) = self.step(&row, timeline, way).await? else { break };
            found.push(step);
            timeline = next;
        }
        Ok(found)
    }

    /// Takes back what moved a session last: a jump, a fork, that it was removed, or a turn. Gives what was undone, the
    /// newest first; fewer than `steps` where there are no more.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = store::in_memory()?;
    /// # let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    /// # let says = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
    /// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![says("Hello."), says("Bye.")])));
    /// # let options = SessionOptions::new(std::env::temp_dir(), model, script);
    /// let session = engine.create(options).await?;
    /// session.ask("Hi!").await?;
    /// let (id, greeted) = (session.view().session, session.view().head);
    /// session.ask("I must go.").await?;
    /// session.shutdown().await;
    ///
    /// let undone = engine.undo(&id, 1).await?;
    /// assert_eq!((undone[0].kind.as_str(), undone[0].to), ("turn", greeted));
    /// engine.redo(&id, 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NothingToUndo`, `Busy`, `Foreign`; `Open` with `NoSuchSession`, `Broken` or `Store`.
    pub async fn undo(&self, session: &SessionId, steps: usize) -> Result<Vec<TimeStep>, ChangeError> {
        self.step_through(session, steps, Way::Back, None).await.map(|(steps, _)| steps)
    }

    /// Does again what was undone, the last undone first. Moves and messages leave nothing to be done
    /// again.
    ///
    /// # Errors
    /// `NothingToRedo`, `Busy`, `Foreign`; `Open` with `NoSuchSession`, `Broken` or `Store`.
    pub async fn redo(&self, session: &SessionId, steps: usize) -> Result<Vec<TimeStep>, ChangeError> {
        self.step_through(session, steps, Way::Forward, None).await.map(|(steps, _)| steps)
    }

    /// Like [`Engine::undo`], but also restores files when `how` is given, as in [`Engine::jump_with_files`]. The plans of
    /// the steps need no approval. Also returns notices about files that were not restored.
    ///
    /// # Errors
    /// As [`Engine::undo`]; `Files`: then the steps before it are undone, and no file of this one is changed.
    pub async fn undo_with_files(
        &self,
        session: &SessionId,
        steps: usize,
        how: Option<&RestoreFiles>,
    ) -> Result<(Vec<TimeStep>, Vec<String>), ChangeError> {
        self.step_through(session, steps, Way::Back, how).await
    }

    /// [`Engine::redo`], as [`Engine::undo_with_files`].
    ///
    /// # Errors
    /// As [`Engine::redo`]; `Files`, as there.
    pub async fn redo_with_files(
        &self,
        session: &SessionId,
        steps: usize,
        how: Option<&RestoreFiles>,
    ) -> Result<(Vec<TimeStep>, Vec<String>), ChangeError> {
        self.step_through(session, steps, Way::Forward, how).await
    }

    /// What steps ahead ([`Engine::undoable`], [`Engine::redoable`]) would do to files.
    ///
    /// # Errors
    /// As [`Engine::undoable`]; `Files` where that is unknown.
    pub async fn preview_steps(
        &self,
        session: &SessionId,
        steps: &[TimeStep],
        how: &RestoreFiles,
    ) -> Result<FilePlan, ChangeError> {
        let mut row = self.row_to_move(session).await?;
        let from = steps.first().and_then(|step| step.from);
        let to = steps.last().and_then(|step| step.to);
        let under_way = self.at_rest(&mut row).await?;
        match (from, to) {
            (Some(from), Some(to)) => {
                let mut plan = self.plan_files(&row.cwd, from, to, how).await?;
                plan.unknown.extend(under_way);
                Ok(plan)
            }
            // Nothing is there to put them back to.
            (_, _) => Ok(FilePlan::default()),
        }
    }

    async fn step_through(
        &self,
        session: &SessionId,
        steps: usize,
        way: Way,
        how: Option<&RestoreFiles>,
    ) -> Result<(Vec<TimeStep>, Vec<String>), ChangeError> {
        let row = self.row_to_move(session).await?;
        let busy = || ChangeError::Busy(session.clone());
        with_lease(self.store(), &row.name, busy, self.steps_leased(&row, steps, way, how)).await
    }

    async fn steps_leased(
        &self,
        row: &SessionRow,
        steps: usize,
        way: Way,
        how: Option<&RestoreFiles>,
    ) -> Result<(Vec<TimeStep>, Vec<String>), ChangeError> {
        let (_, mut problems) = self.close_open_steps(&row.id, &row.name).await?;
        let files = FileTravel::of(how);
        let (done, more) = self.steps_standing(row, steps, way, &files, MoveContext::default()).await?;
        problems.extend(more);
        Ok((done, problems))
    }

    /// The same for a session that is at rest, or that we have open.
    pub(crate) async fn steps_standing(
        &self,
        row: &SessionRow,
        steps: usize,
        way: Way,
        files: &FileTravel,
        mut cx: MoveContext,
    ) -> Result<(Vec<TimeStep>, Vec<String>), ChangeError> {
        let (mut done, mut problems) = (Vec::new(), Vec::new());
        while done.len() < steps {
            let timeline = self.timeline(&row.name).await?;
            let Some((mut step, next)) = self.step(row, timeline, way).await? else { break };
            if files.stays_there && step.to.is_none() {
                break;
            }
            let how = match files {
                FileTravel { how: Some(how), always: true, .. } => Some(how),
                FileTravel { how: Some(how), .. } => match step.from {
                    Some(from) if self.brought_files(from).await? => Some(how),
                    Some(_) | None => None,
                },
                FileTravel { how: None, .. } => None,
            };
            problems.extend(self.go(row, timeline, &mut step, next, (way, how), &cx).await?);
            // With the first of them.
            cx = MoveContext { last: cx.last, ..MoveContext::default() };
            done.push(step);
        }
        match (done.is_empty() && steps > 0, way) {
            (false, _) => Ok((done, problems)),
            (true, Way::Back) => Err(ChangeError::NothingToUndo(row.id.clone())),
            (true, Way::Forward) => Err(ChangeError::NothingToRedo(row.id.clone())),
        }
    }

    /// Whether files went along with what moved a session last, so that they go along when that is undone or done again.
    ///
    /// # Errors
    /// `Removed`; `Open` with `NoSuchSession` or `Store`.
    pub async fn moved_with_files(&self, session: &SessionId) -> Result<bool, ChangeError> {
        let row = self.row_of(session).await?;
        match row.head {
            Some(head) => self.brought_files(head).await,
            None => Ok(false),
        }
    }

    /// Whether files were put back with the move that led to a node.
    async fn brought_files(&self, head: NodeId) -> Result<bool, ChangeError> {
        let nodes = self.store().lineage(head, LineageEnd::Count(AT_ONCE)).await?;
        let decoded = decode_nodes(&**self.store(), &nodes).await?;
        let entries = decoded.iter().rev().map(|one| &one.entry);
        let of_move = |entry: &&Entry| {
            is_restored(entry) || tells_of_files(entry) || is_note(entry) || is_beside(entry)
        };
        Ok(entries.take_while(of_move).any(is_restored))
    }

    async fn go(
        &self,
        row: &SessionRow,
        timeline: Timeline,
        step: &mut TimeStep,
        next: Timeline,
        (way, how): (Way, Option<&RestoreFiles>),
        cx: &MoveContext,
    ) -> Result<Vec<String>, ChangeError> {
        let (plan, flight) = match (how, step.from, step.to) {
            (Some(how), Some(from), Some(to)) => self.begin_files(&row.id, &row.cwd, from, to, how).await?,
            (_, _, _) => Default::default(),
        };
        let mut added = Vec::new();
        if let (Some(_), Some(_), Some(_)) = (how, step.from, step.to) {
            added.extend(flight.iter().map(InFlight::record));
            added.extend(change_note(&plan, self.sealer(), self.now()));
        }
        let (why, kind) = match way {
            Way::Back => {
                (format!("undo {} {} {}", next.anchor, timeline.anchor, timeline.redo), "QUIPU_UNDO")
            }
            Way::Forward => (format!("redo {} {}", next.anchor, next.redo), "QUIPU_REDO"),
        };
        let (session, name, ends) = (&row.id, &row.name, Vec::new());
        let order =
            SessionMove { session, name, from: step.from, ends, to: step.to, added, label: None, why: &why };
        let ReadyMove { mut commit, head, .. } = self.prepare_move(order, cx).await?;
        step.to = head;
        let mut action = self.action(kind, step.from, step.to, session);
        action.metadata = Some(serde_json::json!({ "session": session, "what": step.kind }).to_string());
        commit.actions.push(action);
        Ok(self.commit_move(session, commit, flight, AfterMove::Nothing).await?)
    }

    /// Steps that a dead process left open belong to where it stood: they are brought to an end there, and so are files
    /// that are on their way. Gives where the session stands then, and what people should know of files.
    pub(crate) async fn close_open_steps(
        &self,
        session: &SessionId,
        name: &RefName,
    ) -> Result<(Option<NodeId>, Vec<String>), OpenError> {
        let store = self.store();
        let SettleReport { notes, is_pending } = self.settle_files(session).await?;
        if is_pending {
            return Err(OpenError::Unsettled { session: session.clone(), why: notes.join("; ") });
        }
        let Some(head) = store.head(name).await? else { return Ok((None, notes)) };
        if store.pending(session).await?.steps.is_empty() {
            return Ok((Some(head), notes));
        }
        let mut past = read_past(&**store, head).await?;
        let mut committer = self.committer(&past, past.epoch.clone(), Prompt::default());
        recover(&**store, &mut committer, session, &mut past, self.sealer(), self.now()).await?;
        Ok((past.head, notes))
    }

    /// A session that we write, also one that was removed.
    async fn row_to_move(&self, session: &SessionId) -> Result<SessionRow, ChangeError> {
        let row = self.row_of(session).await?;
        if row.agent != crate::AGENT {
            return Err(ChangeError::Foreign { session: row.id, agent: row.agent });
        }
        Ok(row)
    }

    async fn timeline(&self, name: &RefName) -> Result<Timeline, ChangeError> {
        let head = self.store().head(name).await?;
        let Some(last) = self.logged(name, i64::MAX).await? else {
            return Ok(Timeline { head, anchor: 0, redo: 0 });
        };
        let (anchor, redo) = match Kind::of(&last.why) {
            Kind::Move => (last.id, 0),
            Kind::Undo { after, .. } => (after, last.id),
            Kind::Redo { anchor, redo } => (anchor, redo),
        };
        // Messages since then leave nothing to be done again.
        let still_there = last.new == head || (redo != 0 && self.only_beside(head, last.new).await?);
        Ok(Timeline { head, anchor, redo: if still_there { redo } else { 0 } })
    }

    /// Whether all that was appended since a move is what hooks asked a model.
    async fn only_beside(&self, head: Option<NodeId>, moved: Option<NodeId>) -> Result<bool, ChangeError> {
        let (Some(mut head), Some(moved)) = (head, moved) else { return Ok(false) };
        loop {
            let nodes = self.store().lineage(head, LineageEnd::Count(AT_ONCE)).await?;
            let decoded = decode_nodes(&**self.store(), &nodes).await?;
            for (node, decoded) in nodes.iter().zip(&decoded).rev() {
                if node.id == moved {
                    return Ok(true);
                }
                if !is_beside(&decoded.entry) {
                    return Ok(false);
                }
            }
            match nodes.first().and_then(|node| node.record.parent) {
                Some(parent) => head = parent,
                None => return Ok(false),
            }
        }
    }

    /// The newest move of a ref in the log up to this row, but for appending.
    async fn logged(&self, name: &RefName, upto: i64) -> Result<Option<LoggedMove>, ChangeError> {
        let before = Some(upto.saturating_add(1));
        let query = ReflogQuery { name: name.clone(), before, moves_only: true, limit: Some(1) };
        Ok(self.store().reflog(&query).await?.into_iter().next())
    }

    /// The next step, and where the session stands in time after it.
    async fn step(
        &self,
        row: &SessionRow,
        timeline: Timeline,
        way: Way,
    ) -> Result<Option<(TimeStep, Timeline)>, ChangeError> {
        match way {
            Way::Back => self.step_back(row, timeline).await,
            Way::Forward => self.step_forward(row, timeline).await,
        }
    }

    async fn step_back(
        &self,
        row: &SessionRow,
        timeline: Timeline,
    ) -> Result<Option<(TimeStep, Timeline)>, ChangeError> {
        let anchor = match timeline.anchor {
            0 => None,
            upto => self.logged(&row.name, upto).await?.filter(|found| found.id == upto),
        };
        // What stands behind this was appended.
        let began = match &anchor {
            Some(LoggedMove { old: Some(_), new, .. }) => *new,
            // Its first commit may hold the first message.
            Some(LoggedMove { old: None, .. }) | None => Some(row.base),
        };
        if let (Some(head), Some(began)) = (timeline.head, began)
            && head != began
        {
            let found = self.turn_before(head, began).await?;
            let again = |to: NodeId, kind: &str| {
                let step = TimeStep { from: Some(head), to: Some(to), kind: kind.into() };
                Some((step, Timeline { head: Some(to), redo: 0, ..timeline }))
            };
            match found {
                AppendedKind::Turn(to, what) => return Ok(again(to, what)),
                AppendedKind::Nothing => {}
                // The message there is what the move brought, and the answer goes with it; a build of a past goes on behind it.
                AppendedKind::Other
                    if anchor.as_ref().is_some_and(|anchor| {
                        anchor.why == crate::arrival::TOBE || anchor.why == PAST_MOVE
                    }) => {}
                AppendedKind::Other => return Ok(again(began, "turn")),
            }
        }
        let Some(anchor) = anchor else { return Ok(None) };
        let before = match self.logged(&row.name, anchor.id - 1).await? {
            None => 0,
            Some(before) => match Kind::of(&before.why) {
                Kind::Move => before.id,
                Kind::Undo { after, .. } => after,
                Kind::Redo { anchor, .. } => anchor,
            },
        };
        let kind = match (anchor.old, anchor.why.as_str()) {
            (None, "append") => "start",
            (_, why) => why,
        };
        let step = TimeStep { from: timeline.head, to: anchor.old, kind: kind.into() };
        Ok(Some((step, Timeline { head: anchor.old, anchor: before, redo: 0 })))
    }

    async fn step_forward(
        &self,
        row: &SessionRow,
        timeline: Timeline,
    ) -> Result<Option<(TimeStep, Timeline)>, ChangeError> {
        let Some(undone) = self.logged(&row.name, timeline.redo).await? else { return Ok(None) };
        let Kind::Undo { after, before, redo } = Kind::of(&undone.why) else { return Ok(None) };
        if undone.id != timeline.redo {
            return Ok(None);
        }
        let kind = match self.logged(&row.name, before).await? {
            Some(moved) if before != after => moved.why,
            Some(_) | None => "turn".into(),
        };
        let step = TimeStep { from: timeline.head, to: undone.old, kind };
        Ok(Some((step, Timeline { head: undone.old, anchor: before, redo })))
    }

    /// What stands last between `began` (left out) and `head`.
    async fn turn_before(&self, head: NodeId, began: NodeId) -> Result<AppendedKind, ChangeError> {
        let store = self.store();
        let (mut next, mut has_prompt, mut noted, mut nothing) = (Some(head), false, true, true);
        while let Some(from) = next {
            let nodes = store.lineage(from, LineageEnd::Count(AT_ONCE)).await?;
            next = nodes.first().and_then(|node| node.record.parent);
            let decoded = decode_nodes(&**store, &nodes).await?;
            for (node, decoded) in nodes.iter().zip(decoded).rev() {
                // A change of the model comes with the messages under it.
                if has_prompt && (node.id == began || !matches!(decoded.entry, Entry::Epoch(_))) {
                    return Ok(AppendedKind::Turn(node.id, "turn"));
                }
                if node.id == began {
                    return Ok(if nothing { AppendedKind::Nothing } else { AppendedKind::Other });
                }
                let passed = is_restored(&decoded.entry)
                    || tells_of_files(&decoded.entry)
                    || is_beside(&decoded.entry);
                nothing &= passed;
                match (&decoded.entry, node.record.parent) {
                    (Entry::Message(Message::User(_)), _) => has_prompt = true,
                    (Entry::Compaction(_), Some(parent)) if noted => {
                        return Ok(AppendedKind::Turn(parent, "compaction"));
                    }
                    _ => noted &= passed || is_note(&decoded.entry),
                }
            }
        }
        Ok(AppendedKind::Other)
    }
}
