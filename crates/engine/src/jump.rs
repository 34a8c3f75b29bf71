//! Going to another node of a session: what stands there, and what is left behind.

use std::path::Path;

use quipu_protocol::{Body, Content, Entry, Jumped, Message, NodeId, SessionId, StepInfo, UserMessage};
use quipu_store::{Action, Commit, Durability, Op, OpenJump, RefMove, RefName, SessionRow, StoreError};

use crate::along::{JumpedWithFiles, RestoreFiles};
use crate::arrival::{TOBE, waits};
use crate::change::ChangeError;
use crate::engine::Engine;
use crate::files::{InFlight, told};
use crate::owner::alone;
use crate::sessions::Written;
use crate::stand::{Stand, stand};
use crate::travel::{Travel, carryover, carryover_text, count_left, line_of, log_of};
use quipu_history::{INCARNATE, ListedIds, legal_target, needed};
use quipu_transcript::FilePlan;

impl Engine {
    /// Moves the session of a node there: before the node when somebody said it, whose words are given back, else
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
    pub async fn jump(&self, to: NodeId, label: Option<&str>) -> Result<Jumped, ChangeError> {
        Ok(self.jump_along(to, label, None).await?.jumped)
    }

    /// The same, where files go along if it is said how, as in [`Engine::jump_with_files`]. With what people should know
    /// of files.
    ///
    /// # Errors
    /// As [`Engine::jump`]; `Files`, and then nothing was changed.
    pub async fn jump_along(
        &self,
        to: NodeId,
        label: Option<&str>,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpedWithFiles, ChangeError> {
        let label = match label {
            Some(label) => Some(self.clean(label)?).filter(|label| !label.is_empty()),
            None => None,
        };
        let session = self.session_to_jump(to).await?;
        let name = RefName::session(&session);
        let busy = || ChangeError::Busy(session.clone());
        alone(self.store(), &name, busy, self.jump_leased(&session, &name, to, label, how)).await
    }

    /// Where [`Engine::tobe`] would go, and what it would leave behind.
    ///
    /// # Errors
    /// `NoSession`, `Illegal`, `BadMessage`, `Removed`; `Open` with `NoSuchNode` or `Store`.
    pub async fn travel(&self, to: NodeId, message: &str) -> Result<Travel, ChangeError> {
        let store = self.store();
        let message = carryover(&self.sealer().seal(message)).map_err(ChangeError::BadMessage)?;
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

    /// Moves the session of a node behind it, with a message to itself that waits there for an answer: what is said next
    /// in the session comes after that. Asks no model: [`Command::Continue`](quipu_protocol::Command::Continue) has it
    /// answered. A node of a session that another program writes begins a session of ours below it.
    ///
    /// # Errors
    /// `NoSession`, `Illegal`, `BadMessage`, `Busy`, `Removed`; `Open` with `NoSuchNode`, `Broken` or `Store`.
    pub async fn tobe(&self, to: NodeId, message: &str) -> Result<Jumped, ChangeError> {
        Ok(self.tobe_along(to, message, None).await?.jumped)
    }

    /// The same, where the files that tools changed go along, as in [`Engine::jump_with_files`]. For sessions of ours.
    ///
    /// # Errors
    /// As [`Engine::tobe`]; `Foreign`; `Files`, and then nothing was changed.
    pub async fn tobe_with_files(
        &self,
        to: NodeId,
        message: &str,
        how: &RestoreFiles,
    ) -> Result<JumpedWithFiles, ChangeError> {
        self.tobe_along(to, message, Some(how)).await
    }

    /// The same for a node that may belong to no session, as those of a program that has none: a session of ours begins
    /// below it, in this directory.
    ///
    /// # Errors
    /// As [`Engine::tobe`], without `NoSession`.
    pub async fn tobe_in(
        &self,
        to: NodeId,
        message: &str,
        cwd: &Path,
    ) -> Result<JumpedWithFiles, ChangeError> {
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

    /// The same, where files go along if it is said how. With what people should know of files.
    ///
    /// # Errors
    /// As [`Engine::tobe`]; `Foreign` where files go along; `Files`, and then nothing was changed.
    pub async fn tobe_along(
        &self,
        to: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpedWithFiles, ChangeError> {
        self.tobe_somewhere(to, message, how, None).await
    }

    async fn tobe_somewhere(
        &self,
        to: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
        cwd: Option<&Path>,
    ) -> Result<JumpedWithFiles, ChangeError> {
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
        alone(self.store(), &name, busy, self.tobe_leased(&session, &name, to, &message, how)).await
    }

    async fn tobe_leased(
        &self,
        session: &SessionId,
        name: &RefName,
        at: NodeId,
        message: &str,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpedWithFiles, ChangeError> {
        let row = self.row_of(session).await?;
        let from = self.head_of(&row).await?;
        let (stands, mut problems) = self.close_open_steps(session, name).await?;
        let from = stands.unwrap_or(from);
        let (plan, flight) = match how {
            Some(how) => self.begin_files(session, &row.cwd, from, at, how).await?,
            None => Default::default(),
        };
        let files = flight.is_some().then(|| (&plan, &**self.sealer()));
        let text = carryover_text(message, files);
        let content = Body::Blocks(vec![Content::text(text)]);
        let said = UserMessage { content, timestamp: self.now() };
        let mut entries: Vec<(Entry, StepInfo)> = flight.iter().map(|flight| flight.record.clone()).collect();
        entries.push((Entry::Message(Message::User(said)), StepInfo::default()));
        let mut commit = Commit { durability: Durability::Power, ..Commit::default() };
        let head = self.add_entries(&mut commit, &entries, at, from).await?;
        commit.moves.push(RefMove::swap(name.clone(), Some(from), head, TOBE));
        self.publish(&mut commit, session, Some(from), head, TOBE).await?;
        let log = log_of(message, at, session, Path::new(&row.cwd));
        commit.actions.push(Action {
            timestamp: self.now(),
            kind: INCARNATE.into(),
            from: Some(from),
            to: Some(head),
            metadata: Some(log.get().to_owned()),
        });
        problems.extend(self.commit_move(session, commit, flight, Some(waits(head))).await?);
        let session = session.clone();
        let jumped = Jumped { session, from, at, head, said: None, summary: None, usage: None };
        Ok(JumpedWithFiles { jumped, plan, problems })
    }

    /// The session that can go to a node: its own, when we write it.
    ///
    /// # Errors
    /// `NoSession`, `Foreign`; `Open` with `NoSuchNode` or `Store`.
    pub async fn session_to_jump(&self, to: NodeId) -> Result<SessionId, ChangeError> {
        self.node_of(to).await?;
        let session = self.session_of(to).await?.ok_or(ChangeError::NoSession(to))?;
        let row = self.row_of(&session).await?;
        if row.agent != crate::AGENT {
            return Err(ChangeError::Foreign { session, agent: row.agent });
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
    ) -> Result<JumpedWithFiles, ChangeError> {
        let row = self.row_of(session).await?;
        let from = self.head_of(&row).await?;
        let (stands, problems) = self.close_open_steps(session, name).await?;
        let row = SessionRow { head: Some(stands.unwrap_or(from)), ..row };
        let mut done = self.jump_standing(&row, to, label, Vec::new(), how).await?;
        done.problems.splice(..0, problems);
        Ok(done)
    }

    /// The same for a session at rest, or one that we have open, with entries that are added there.
    pub(crate) async fn jump_standing(
        &self,
        row: &SessionRow,
        to: NodeId,
        label: Option<String>,
        added: Vec<(Entry, StepInfo)>,
        how: Option<&RestoreFiles>,
    ) -> Result<JumpedWithFiles, ChangeError> {
        let (store, session, name) = (self.store(), &row.id, &row.name);
        let from = self.head_of(row).await?;
        let mut problems = Vec::new();
        let Some(Stand { at, said }) = stand(&**store, session, to).await? else {
            return Err(ChangeError::NoSession(to));
        };
        let (plan, flight) = match how {
            Some(how) => self.begin_files(session, &row.cwd, from, at, how).await?,
            None => Default::default(),
        };
        let mut entries: Vec<(Entry, StepInfo)> = flight.iter().map(|flight| flight.record.clone()).collect();
        entries.extend(how.and_then(|_| told(&plan, self.sealer(), self.now())));
        entries.extend(added);
        entries.extend(label.map(|label| {
            let entry = serde_json::json!({ "type": "label", "targetId": at.to_string(), "label": label });
            (Entry::Meta((&entry).into()), StepInfo::default())
        }));
        let jumped =
            Jumped { session: session.clone(), from, at, head: at, said, summary: None, usage: None };
        if at == from && entries.is_empty() {
            // It stands there, so there is no step to take back.
            return Ok(JumpedWithFiles { jumped, plan, problems });
        }
        let mut commit = Commit { durability: Durability::Power, ..Commit::default() };
        let head = self.add_entries(&mut commit, &entries, at, from).await?;
        commit.moves.push(RefMove::swap(name.clone(), Some(from), head, "jump"));
        self.publish(&mut commit, session, Some(from), head, "jump").await?;
        commit.actions.push(self.action("QUIPU_JUMP", Some(from), Some(head), session));
        problems.extend(self.commit_move(session, commit, flight, None).await?);
        Ok(JumpedWithFiles { jumped: Jumped { head, ..jumped }, plan, problems })
    }

    /// Adds entries to a move from one node to another, behind the node that it goes to; gives the last.
    pub(crate) async fn add_entries(
        &self,
        commit: &mut Commit,
        entries: &[(Entry, StepInfo)],
        to: NodeId,
        from: NodeId,
    ) -> Result<NodeId, ChangeError> {
        if entries.is_empty() {
            return Ok(to);
        }
        let after = [self.node_of(to).await?, self.node_of(from).await?];
        let mut after = after.iter().map(|node| node.record.timestamp).max().unwrap_or_default();
        let mut head = to;
        let named = needed(Some(to), entries.iter().map(|(entry, _)| entry));
        let mut listed = ListedIds::read(&**self.store(), named).await?;
        for (entry, step) in entries {
            let config = (None, &mut listed);
            let Written { node, commit: more } = self.write_step(entry, step, Some(head), after, config);
            (head, after) = (node.id, node.record.timestamp);
            commit.blobs.extend(more.blobs);
            commit.chunks.extend(more.chunks);
            commit.nodes.push(node);
        }
        Ok(head)
    }

    /// Commits a move of a session's ref; then the files that are on their way take their places, and it is told which
    /// did not. `rest` is what is to be done after that.
    pub(crate) async fn commit_move(
        &self,
        session: &SessionId,
        mut commit: Commit,
        flight: Option<InFlight>,
        rest: Option<OpenJump>,
    ) -> Result<Vec<String>, StoreError> {
        let store = self.store();
        commit.ops.push(match (&flight, &rest) {
            (Some(flight), rest) => flight.op(session, rest.as_ref()),
            (None, Some(rest)) => Op::JumpPut { session: session.clone(), jump: rest.clone() },
            (None, None) => Op::JumpRemove { session: session.clone() },
        });
        commit.chunks.extend(flight.iter().flat_map(|flight| flight.chunks.iter().cloned()));
        match (store.commit(commit).await, flight) {
            (Ok(()), Some(flight)) => Ok(flight.land(&**store, self.sealer(), session, rest).await),
            (Ok(()), None) => Ok(Vec::new()),
            (Err(error), flight) => {
                if let Some(flight) = flight {
                    flight.abandon(&**store, session).await;
                }
                Err(error)
            }
        }
    }
}
