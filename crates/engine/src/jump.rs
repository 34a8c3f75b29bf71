//! Going to another node of a session: what stands there, and what is left behind.

use std::path::Path;

use quipu_machine::{Draft, TobeOrder};
use quipu_protocol::{Entry, JumpReport, NodeId, SessionId, SessionStart, UserInput};
use quipu_store::{Action, RefName, SessionRow};

use crate::arrival::TOBE;
use crate::change::ChangeError;
use crate::clock::fresh_id;
use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::files::{InFlight, change_note};
use crate::owner::with_lease;
use crate::restore_files::{JumpWithFiles, RestoreFiles};
use crate::resume::epoch_of;
use crate::session_move::{AfterMove, Label, ReadyMove, SessionMove};
use crate::stand::{Stand, stand};
use crate::travel::{Travel, carryover_text, log_of};
use quipu_history::{INCARNATE, carryover, count_left, legal_target, line_of};
use quipu_transcript::FilePlan;

/// A session that went to another node.
pub(crate) struct CompletedJump {
    pub(crate) jumped: JumpReport,
    /// The nodes that end what it left.
    pub(crate) ended: Vec<NodeId>,
    /// The nodes of what was to be added.
    pub(crate) added: Vec<NodeId>,
    pub(crate) plan: FilePlan,
    pub(crate) problems: Vec<String>,
}

impl Engine {
    /// Moves the session of a node there: before a message of the user, whose text is returned, else
    /// behind it. What is left behind stays in the graph, and going to where it stood (`from`) takes it back. A label
    /// is given to the place. [`Session::jump`](crate::Session::jump) can sum up what is left behind.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = store::in_memory()?;
    /// # let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    /// # let says = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
    /// # let steps = ["Left or right?", "Left it is.", "Right it is."].map(says);
    /// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(steps.into())));
    /// # let options = SessionOptions::new(std::env::temp_dir(), model, script);
    /// let session = engine.create(options.clone()).await?;
    /// session.ask("Where to?").await?;
    /// let here = session.view().head.ok_or("no head")?;
    /// session.ask("Left.").await?;
    /// let id = session.view().session;
    /// session.shutdown().await;
    ///
    /// let jumped = engine.jump(here, Some("the crossing")).await?;
    /// assert_eq!(jumped.session, id);
    /// let session = engine.open(&id, options).await?.session;
    /// assert_eq!(session.ask("Right.").await?.1, "Right it is.");
    /// session.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoSession`, `Foreign`, `TooLong`, `Busy`, `Removed`; `Open` with `NoSuchNode`, `Broken` or `Store`.
    pub async fn jump(&self, to: NodeId, label: Option<&str>) -> Result<JumpReport, ChangeError> {
        Ok(self.jump_with_files(to, label, None).await?.jumped)
    }

    /// Like [`Engine::jump`], but also restores files when `how` is given: each file that a tool changed becomes what it
    /// was at the other node. Files that no tool changed are not touched. A jump back to where the session stood restores
    /// what was replaced, including changes by others. Files that cannot be restored are named in the plan and stay as
    /// they are.
    ///
    /// The new content is on the disk before the ref moves. After a crash, the next open or move of the session undoes or
    /// completes the restore.
    ///
    /// # Errors
    /// As [`Engine::jump`]; `Files`, and then nothing was changed.
    pub async fn jump_with_files(
        &self,
        to: NodeId,
        label: Option<&str>,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpWithFiles, ChangeError> {
        let label = match label {
            Some(label) => Some(self.clean(label)?).filter(|label| !label.is_empty()),
            None => None,
        };
        let session = self.session_to_jump(to).await?;
        let name = RefName::session(&session);
        let busy = || ChangeError::Busy(session.clone());
        with_lease(self.store(), &name, busy, self.jump_leased(&session, &name, to, label, how)).await
    }

    /// Where [`Engine::tobe`] would go, and what it would leave behind.
    ///
    /// # Errors
    /// `NoSession`, `Illegal`, `BadMessage`, `Removed`; `Open` with `NoSuchNode` or `Store`.
    pub async fn travel(&self, to: NodeId, message: &str) -> Result<Travel, ChangeError> {
        let store = self.store();
        let message = carryover(&self.sealer().seal(message))
            .map_err(|error| ChangeError::BadMessage(error.to_string()))?;
        self.node_of(to).await?;
        let found = legal_target(&**store, to).await?;
        if let Some(why) = found.illegal {
            return Err(ChangeError::Illegal { node: to, why, nearest: found.nearest });
        }
        let ((messages, turns), begins) = match self.session_to_jump(to).await {
            Ok(session) => {
                let head = self.head_of(&self.row_of(&session).await?).await?;
                (count_left(&**store, head, to).await?, false)
            }
            // What others wrote is not left.
            Err(ChangeError::Foreign { .. } | ChangeError::NoSession(_)) => ((0, 0), true),
            Err(error) => return Err(error),
        };
        let line = line_of(&**store, to).await?;
        Ok(Travel { target: to, line, messages, turns, message, files: None, begins })
    }

    /// Moves the session of a node behind it, with a message to itself that waits there for an answer: the next prompt
    /// in the session comes after that. Asks no model: [`Command::Continue`](quipu_protocol::Command::Continue) has it
    /// answered. A node of a session that another program writes begins a session of ours below it.
    ///
    /// # Errors
    /// `NoSession`, `Illegal`, `BadMessage`, `Busy`, `Removed`; `Open` with `NoSuchNode`, `Broken` or `Store`.
    pub async fn tobe(&self, to: NodeId, message: &str) -> Result<JumpReport, ChangeError> {
        Ok(self.tobe_with_files(to, message, None).await?.jumped)
    }

    /// The same for a node that may belong to no session, as those of a program that has none: a session of ours begins
    /// below it, in this directory.
    ///
    /// # Errors
    /// As [`Engine::tobe`], without `NoSession`.
    pub async fn tobe_in(&self, to: NodeId, message: &str, cwd: &Path) -> Result<JumpWithFiles, ChangeError> {
        self.tobe_somewhere(to, message, None, Some(cwd)).await
    }

    /// What [`Engine::tobe_with_files`] would do to files.
    ///
    /// # Errors
    /// As there, without `Conflicts`.
    pub async fn preview_tobe_files(&self, to: NodeId, how: &RestoreFiles) -> Result<FilePlan, ChangeError> {
        let mut row = self.row_of(&self.session_to_jump(to).await?).await?;
        let under_way = self.at_rest(&mut row).await?;
        let from = self.head_of(&row).await?;
        let mut plan = self.plan_files(&row.cwd, from, to, how).await?;
        plan.unknown.extend(under_way);
        Ok(plan)
    }

    /// Like [`Engine::tobe`], but also restores files when `how` is given, as in [`Engine::jump_with_files`].
    ///
    /// # Errors
    /// As [`Engine::tobe`]; `Foreign` where files go along; `Files`, and then nothing was changed.
    pub async fn tobe_with_files(
        &self,
        to: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpWithFiles, ChangeError> {
        self.tobe_somewhere(to, message, how, None).await
    }

    async fn tobe_somewhere(
        &self,
        to: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
        cwd: Option<&Path>,
    ) -> Result<JumpWithFiles, ChangeError> {
        let Travel { message, .. } = self.travel(to, message).await?;
        let (session, to) = match self.session_to_jump(to).await {
            Ok(session) => (session, to),
            Err(ChangeError::Foreign { .. }) if how.is_none() => {
                let fork = self.fork_behind(to, None).await?;
                (fork.session, fork.base)
            }
            Err(ChangeError::NoSession(_)) if how.is_none() && cwd.is_some() => {
                let fork = self.fork_behind(to, cwd).await?;
                (fork.session, fork.base)
            }
            Err(error) => return Err(error),
        };
        let name = RefName::session(&session);
        let busy = || ChangeError::Busy(session.clone());
        with_lease(self.store(), &name, busy, self.tobe_leased(&session, &name, to, &message, how)).await
    }

    async fn tobe_leased(
        &self,
        session: &SessionId,
        name: &RefName,
        at: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpWithFiles, ChangeError> {
        let row = self.row_of(session).await?;
        let from = self.head_of(&row).await?;
        let (stands, mut problems) = self.close_open_steps(session, name).await?;
        let row = SessionRow { head: Some(stands.unwrap_or(from)), ..row };
        let (plan, flight) = match how {
            Some(how) => self.begin_files(session, &row.cwd, self.head_of(&row).await?, at, how).await?,
            None => Default::default(),
        };
        let files = flight.is_some().then(|| (&plan, &**self.sealer()));
        let text = carryover_text(message, files);
        let order = TobeOrder {
            to: at,
            ends: Vec::new(),
            message: Draft::user_message(UserInput::from(text.as_str()), self.now()),
            log: log_of(message, at, session, Path::new(&row.cwd)),
            files: None,
        };
        let made = self.tobe_standing(&row, order, flight, &MoveContext::default()).await?;
        problems.extend(made.problems);
        Ok(JumpWithFiles { jumped: made.jumped, plan, problems })
    }

    /// The same for a session at rest, or one that we have open, with files that are on their way.
    pub(crate) async fn tobe_standing(
        &self,
        row: &SessionRow,
        order: TobeOrder,
        flight: Option<InFlight>,
        cx: &MoveContext,
    ) -> Result<CompletedJump, ChangeError> {
        let TobeOrder { to: at, ends, message, log, files: _ } = order;
        let from = self.head_of(row).await?;
        let mut added: Vec<Draft> = self.epoch_behind(cx, at).await?.into_iter().collect();
        added.extend(flight.iter().map(InFlight::record));
        added.push(message);
        let (session, name) = (&row.id, &row.name);
        let order = SessionMove {
            session,
            name,
            from: Some(from),
            ends,
            to: Some(at),
            added,
            label: None,
            why: TOBE,
        };
        let ReadyMove { mut commit, ended, added, from: stood, head } = self.prepare_move(order, cx).await?;
        let (from, head) = (stood.unwrap_or(from), head.unwrap_or(at));
        commit.actions.push(Action {
            timestamp: self.now(),
            kind: INCARNATE.into(),
            from: Some(from),
            to: Some(head),
            metadata: Some(log.get().to_owned()),
        });
        let problems = self.commit_move(session, commit, flight, AfterMove::Answer(head)).await?;
        let session = session.clone();
        let jumped = JumpReport { session, from, at, head, prompt: None, summary: None, usage: None };
        let added = added.last().copied().into_iter().collect();
        Ok(CompletedJump { jumped, ended, added, plan: FilePlan::default(), problems })
    }

    /// An entry for what requests begin with, where another epoch stands at the node that an open session goes to.
    async fn epoch_behind(&self, cx: &MoveContext, at: NodeId) -> Result<Option<Draft>, OpenError> {
        let Some((epoch, _)) = &cx.epoch else { return Ok(None) };
        let stands = epoch_of(&**self.store(), at).await?;
        Ok((stands != *epoch).then(|| Draft::new(Entry::Epoch(epoch.clone()))))
    }

    /// The session that can go to a node: its own, when we write it.
    ///
    /// # Errors
    /// `NoSession`, `Foreign`; `Open` with `NoSuchNode`, `Notes` or `Store`.
    pub async fn session_to_jump(&self, to: NodeId) -> Result<SessionId, ChangeError> {
        self.node_of(to).await?;
        let session = self.session_of(to).await?.ok_or(ChangeError::NoSession(to))?;
        let row = self.row_of(&session).await?;
        if row.agent != crate::AGENT {
            return Err(ChangeError::Foreign { session, agent: row.agent });
        }
        if crate::takes_no_prompts(&row) {
            return Err(OpenError::Notes(session).into());
        }
        Ok(session)
    }

    async fn jump_leased(
        &self,
        session: &SessionId,
        name: &RefName,
        to: NodeId,
        label: Option<String>,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpWithFiles, ChangeError> {
        let row = self.row_of(session).await?;
        let from = self.head_of(&row).await?;
        let (stands, problems) = self.close_open_steps(session, name).await?;
        let row = SessionRow { head: Some(stands.unwrap_or(from)), ..row };
        let label = label.as_deref();
        let made = self.jump_standing(&row, (to, label), Vec::new(), how, &MoveContext::default()).await?;
        let CompletedJump { jumped, plan, problems: more, .. } = made;
        Ok(JumpWithFiles { jumped, plan, problems: problems.into_iter().chain(more).collect() })
    }

    /// The same for a session at rest, or one that we have open, with entries that are added there.
    pub(crate) async fn jump_standing(
        &self,
        row: &SessionRow,
        (to, label): (NodeId, Option<&str>),
        entries: Vec<Draft>,
        how: Option<&RestoreFiles>,
        cx: &MoveContext,
    ) -> Result<CompletedJump, ChangeError> {
        let (store, session, name) = (self.store(), &row.id, &row.name);
        let from = self.head_of(row).await?;
        let Some(Stand { at, prompt }) = stand(&**store, session, to).await? else {
            return Err(ChangeError::NoSession(to));
        };
        let (plan, flight) = match how {
            Some(how) => self.begin_files(session, &row.cwd, from, at, how).await?,
            None => Default::default(),
        };
        let mut added: Vec<Draft> = flight.iter().map(InFlight::record).collect();
        added.extend(how.and_then(|_| change_note(&plan, self.sealer(), self.now())));
        let jumped =
            JumpReport { session: session.clone(), from, at, head: at, prompt, summary: None, usage: None };
        if at == from && added.is_empty() && entries.is_empty() && label.is_none() {
            // It stands there, so there is no step to take back.
            return Ok(CompletedJump {
                jumped,
                ended: Vec::new(),
                added: Vec::new(),
                plan,
                problems: Vec::new(),
            });
        }
        added.splice(..0, self.epoch_behind(cx, at).await?);
        let first = added.len();
        added.extend(entries);
        let label = label.map(|text| Label { text, of: (first..added.len()).next_back() });
        let (ends, why) = (Vec::new(), "jump");
        let order = SessionMove { session, name, from: Some(from), ends, to: Some(at), added, label, why };
        let ReadyMove { mut commit, mut added, head, .. } = self.prepare_move(order, cx).await?;
        commit.actions.push(self.action("QUIPU_JUMP", Some(from), head, session));
        let problems = self.commit_move(session, commit, flight, AfterMove::Nothing).await?;
        let jumped = JumpReport { head: head.unwrap_or(at), ..jumped };
        Ok(CompletedJump { jumped, ended: Vec::new(), added: added.split_off(first), plan, problems })
    }

    /// The same for one that we have open and that another process went on with: it goes there as a session of its own.
    pub(crate) async fn jump_branched(
        &self,
        row: &SessionRow,
        from: NodeId,
        (to, label): (NodeId, Option<&str>),
        entries: Vec<Draft>,
        cx: &MoveContext,
    ) -> Result<CompletedJump, ChangeError> {
        let Some(Stand { at, prompt }) = stand(&**self.store(), &row.id, to).await? else {
            return Err(ChangeError::NoSession(to));
        };
        let session = SessionId::from(fresh_id());
        let start = SessionStart {
            session: session.clone(),
            cwd: row.cwd.clone(),
            agent: crate::AGENT.into(),
            parent_session: Some(row.id.clone()),
            epoch: match &cx.epoch {
                Some((epoch, _)) => epoch.clone(),
                None => epoch_of(&**self.store(), at).await?,
            },
        };
        let mut added = vec![Draft::new(Entry::Session(start))];
        added.extend(entries);
        let label = label.map(|text| Label { text, of: (1..added.len()).next_back() });
        let (name, ends, why) = (RefName::session(&session), Vec::new(), "jump");
        let order =
            SessionMove { session: &session, name: &name, from: None, ends, to: Some(at), added, label, why };
        let ReadyMove { mut commit, mut added, head, .. } = self.prepare_move(order, cx).await?;
        commit.actions.push(self.action("QUIPU_JUMP", Some(from), head, &session));
        let problems = self.commit_move(&session, commit, None, AfterMove::Nothing).await?;
        let head = head.unwrap_or(at);
        let jumped = JumpReport { session, from, at, head, prompt, summary: None, usage: None };
        let (ended, added, plan) = (Vec::new(), added.split_off(1), FilePlan::default());
        Ok(CompletedJump { jumped, ended, added, plan, problems })
    }
}
