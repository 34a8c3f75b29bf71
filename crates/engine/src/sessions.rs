//! What is done to whole sessions: fork, clone, label, rename, remove. Each is one node or one move of refs.

use std::path::Path;

use futures_util::future::BoxFuture;
use quipu_dag::Node;
use quipu_machine::Draft;
use quipu_protocol::{Entry, Json, Message, NAME_LIMIT, NodeId, SessionId, SessionStart, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{
    Action, Commit, Durability, LandmarkKind, Op, RefExpectation, RefMove, RefName, Resolution, Scope,
    SessionQuery, SessionRow, Spelling, StoreError, decode_nodes,
};

use crate::change::ChangeError;
use crate::clock::fresh_id;
use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::nodes::NodeWriter;
use crate::owner::with_lease;
use crate::resume::epoch_of;
use crate::session_move::{AfterMove, SessionMove};
use quipu_history::{ListedIds, needed};

/// Characters of a label or a name at most.
/// Refs that move in one commit at most.
const BATCH_MOVES: usize = 5_000;
/// How often an entry is tried again when others write at the same time.
const TRIES: usize = 8;

/// A session that was made from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkReport {
    /// The new session.
    pub session: SessionId,
    /// Its first node.
    pub base: NodeId,
    /// The node that it continues from; `None` when it begins with nothing.
    pub at: Option<NodeId>,
    /// The user's message that it stands before, to be edited and sent again.
    pub text: Option<String>,
    /// Images of that message.
    pub images: usize,
}

/// What a fork takes of a user's message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Before,
    Behind,
}

impl Engine {
    /// A new session from any node, stored at once: the conversation up to `at`, or up to the node before it when `at`
    /// is a user's message, whose text is given back. What it was forked from stays as it is. Calls without a result
    /// are no reason to refuse: requests say that there is none. It works in `cwd`; `None` for where the session of
    /// `at` works.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = store::in_memory()?;
    /// # let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    /// # let says = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
    /// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![says("Left."), says("Right.")])));
    /// # let options = SessionOptions::new(std::env::temp_dir(), model, script);
    /// let session = engine.create(options.clone()).await?;
    /// session.ask("Where to?").await?;
    /// let (id, answer) = (session.view().session, session.view().head.ok_or("no head")?);
    /// session.shutdown().await;
    ///
    /// engine.rename(&id, "the way").await?;
    /// engine.label(answer, "first try").await?;
    /// let fork = engine.fork_from(answer, None).await?;
    /// let opened = engine.open(&fork.session, options).await?;
    /// assert_eq!(opened.session.ask("And else?").await?.1, "Right.");
    /// opened.session.shutdown().await;
    /// engine.remove(&id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoSession` when there is no `cwd` and the node belongs to no session; `Open` with `NoSuchNode` or `Store`.
    pub async fn fork_from(&self, at: NodeId, cwd: Option<&Path>) -> Result<ForkReport, ChangeError> {
        self.fork_standing(at, cwd, Stand::Before).await
    }

    /// A session of its own with the same past.
    ///
    /// # Errors
    /// As [`Engine::fork_from`]; `Removed`.
    pub async fn clone_session(&self, session: &SessionId) -> Result<ForkReport, ChangeError> {
        let row = self.row_of(session).await?;
        let head = self.head_of(&row).await?;
        self.fork_standing(head, None, Stand::Behind).await
    }

    /// The same in another directory: for a session whose own is gone.
    ///
    /// # Errors
    /// As [`Engine::clone_session`].
    pub async fn clone_session_to(&self, session: &SessionId, cwd: &Path) -> Result<ForkReport, ChangeError> {
        let row = self.row_of(session).await?;
        let head = self.head_of(&row).await?;
        self.fork_standing(head, Some(cwd), Stand::Behind).await
    }

    /// The same behind any node.
    pub(crate) async fn fork_behind(
        &self,
        at: NodeId,
        cwd: Option<&Path>,
    ) -> Result<ForkReport, ChangeError> {
        self.fork_standing(at, cwd, Stand::Behind).await
    }

    fn fork_standing<'a>(
        &'a self,
        at: NodeId,
        cwd: Option<&'a Path>,
        stand: Stand,
    ) -> BoxFuture<'a, Result<ForkReport, ChangeError>> {
        // As in [`Engine::open`].
        Box::pin(self.make_fork(at, cwd, stand))
    }

    async fn make_fork(
        &self,
        at: NodeId,
        cwd: Option<&Path>,
        stand: Stand,
    ) -> Result<ForkReport, ChangeError> {
        let store = self.store();
        let named = self.node_of(at).await?;
        let decoded = decode_nodes(&**store, std::slice::from_ref(&named)).await?.pop();
        let prompt = match decoded.map(|decoded| decoded.entry) {
            Some(Entry::Message(Message::User(message))) if stand == Stand::Before => Some(message.content),
            _ => None,
        };
        let parent = match (&prompt, named.record.parent) {
            (None, _) => Some(at),
            (Some(_), None) => None,
            // A parent that is missing is none.
            (Some(_), Some(parent)) => {
                store.nodes(&[parent]).await?.into_iter().flatten().next().map(|node| node.id)
            }
        };
        let session = self.session_of(at).await?;
        let row = match &session {
            Some(session) => Some(self.row_of(session).await?),
            None => None,
        };
        let cwd = match (cwd, row) {
            (Some(cwd), _) => cwd.to_string_lossy().into_owned(),
            (None, Some(row)) => row.cwd,
            (None, None) => return Err(ChangeError::NoSession(at)),
        };
        let epoch = epoch_of(&**store, parent.unwrap_or(at)).await?;
        let id = SessionId::from(fresh_id());
        let start = SessionStart {
            session: id.clone(),
            cwd,
            agent: crate::AGENT.into(),
            parent_session: session,
            epoch: epoch.clone(),
        };
        let time = match parent {
            Some(parent) if parent != at => self.node_of(parent).await?.record.timestamp,
            _ => named.record.timestamp,
        };
        let (mut commit, base) = self.write(&Draft::new(Entry::Session(start)), parent, time).await?;
        commit.moves = vec![RefMove::swap(RefName::session(&id), None, base, "fork")];
        self.publish(&mut commit, &id, None, base, "fork").await?;
        commit.actions.push(self.action("QUIPU_FORK", Some(at), Some(base), &id));
        store.commit(commit).await?;
        let images = prompt.as_ref().map_or(0, |body| {
            body.blocks().iter().filter(|block| matches!(block, quipu_protocol::Content::Image(_))).count()
        });
        Ok(ForkReport {
            session: id,
            base,
            at: parent,
            text: prompt.map(|body| quipu_transcript::typed_text(&body.blocks())),
            images,
        })
    }

    /// Labels a node; an empty text clears its label. The label is an entry of the node's session. Gives that entry.
    ///
    /// # Errors
    /// `NoSession`, `TooLong`, `Busy`, `Removed`; `Open` with `NoSuchNode` or `Store`.
    pub async fn label(&self, node: NodeId, text: &str) -> Result<NodeId, ChangeError> {
        let text = self.clean(text)?;
        self.node_of(node).await?;
        let session = self.session_of(node).await?.ok_or(ChangeError::NoSession(node))?;
        self.note(&session, &label_of(node, &text), "label").await
    }

    /// The same while we have a session open; gives the entry where it is one of that.
    pub(crate) async fn label_standing(
        &self,
        row: &SessionRow,
        node: NodeId,
        text: &str,
    ) -> Result<Option<NodeId>, ChangeError> {
        self.node_of(node).await?;
        if self.session_of(node).await?.as_ref() != Some(&row.id) {
            return self.label(node, text).await.map(|_| None);
        }
        let entry = Entry::Meta(Json::from(&label_of(node, &self.clean(text)?)));
        self.append(row, &entry, "label").await.map(Some)
    }

    /// [`Engine::rename`] while we have the session open; with the name as it is kept.
    pub(crate) async fn rename_standing(
        &self,
        row: &SessionRow,
        name: &str,
    ) -> Result<(NodeId, String), ChangeError> {
        let name = self.clean(name)?;
        let entry = serde_json::json!({ "type": "session_info", "name": name });
        let node = self.append(row, &Entry::Meta(Json::from(&entry)), "rename").await?;
        Ok((node, name))
    }

    /// Gives a session a name, on one line and without control characters; an empty name clears it. Gives the entry
    /// that holds it.
    ///
    /// # Errors
    /// `TooLong`, `Busy`, `Removed`; `Open` with `NoSuchSession` or `Store`.
    pub async fn rename(&self, session: &SessionId, name: &str) -> Result<NodeId, ChangeError> {
        let name = self.clean(name)?;
        let entry = serde_json::json!({ "type": "session_info", "name": name });
        self.note(session, &entry, "rename").await
    }

    /// Moves a session forward to a node below the one where it stands: what another program wrote there becomes a part
    /// of it. Says whether it stands there now; it stays where it is when `to` is not below.
    ///
    /// # Errors
    /// `Busy`, `Removed`; `Open` with `NoSuchSession` or `Store`.
    pub async fn advance(&self, session: &SessionId, to: NodeId) -> Result<bool, ChangeError> {
        let row = self.row_of(session).await?;
        let head = self.head_of(&row).await?;
        if head == to {
            return Ok(true);
        }
        self.with_session_lease(&row, self.move_forward(&row, head, to)).await
    }

    async fn move_forward(&self, row: &SessionRow, head: NodeId, to: NodeId) -> Result<bool, ChangeError> {
        if self.store().fork_point(head, to).await? != Some(head) {
            return Ok(false);
        }
        let (session, name, why) = (&row.id, &row.name, "advance");
        let (from, to, ends, added) = (Some(head), Some(to), Vec::new(), Vec::new());
        let order = SessionMove { session, name, from, ends, to, added, label: None, why };
        let mut ready = self.prepare_move(order, &MoveContext::default()).await?;
        ready.commit.actions.push(self.action("QUIPU_ADVANCE", from, to, session));
        self.commit_move(session, ready.commit, None, AfterMove::Unchanged).await?;
        Ok(true)
    }

    /// Removes a session: its refs go, and the files of what its commands printed; its nodes stay. Gives the node where
    /// it stood, from which [`Engine::fork_from`] continues.
    ///
    /// # Errors
    /// `Busy`, `Removed`; `Open` with `NoSuchSession` or `Store`; `Outputs` when only the files stay.
    pub async fn remove(&self, session: &SessionId) -> Result<NodeId, ChangeError> {
        let row = self.row_of(session).await?;
        let head = self.head_of(&row).await?;
        let work = async {
            self.drop_refs(&row, head).await?;
            if row.agent != crate::AGENT {
                return Ok(());
            }
            let (outputs, id) = (self.outputs().clone(), row.id.clone());
            let done = tokio::task::spawn_blocking(move || outputs.remove(&id)).await;
            done.map_err(|error| error.to_string())
                .and_then(|done| done.map_err(|error| error.to_string()))
                .map_err(|why| ChangeError::Outputs { session: row.id.clone(), why })
        };
        self.with_session_lease(&row, work).await.map(|()| head)
    }

    async fn drop_refs(&self, row: &SessionRow, head: NodeId) -> Result<(), ChangeError> {
        let store = self.store();
        let mut moves = vec![drop_ref(row.name.clone(), RefExpectation::At(head))];
        moves.extend(self.unpublish(head, "remove").await?);
        let notes = RefName::notes(&row.agent, &row.id);
        if store.head(&notes).await?.is_some() {
            moves.push(drop_ref(notes, RefExpectation::Any));
        }
        // The ends of branches that an importer keeps.
        let ends = store.heads(&format!("{}/", row.name)).await?;
        moves.extend(ends.into_iter().map(|end| drop_ref(end.name, RefExpectation::Any)));
        let mut actions = vec![self.action("QUIPU_REMOVE", Some(head), None, &row.id)];
        // The session's own ref goes first: what is left of many is no session.
        while !moves.is_empty() {
            let rest = moves.split_off(moves.len().min(BATCH_MOVES));
            let actions = std::mem::take(&mut actions);
            // Nobody continues with what waits there.
            self.settle_files(&row.id).await?;
            let ops = vec![Op::JumpRemove { session: row.id.clone() }];
            let durability = Durability::Power;
            store.commit(Commit { moves, actions, ops, durability, ..Commit::default() }).await?;
            moves = rest;
        }
        Ok(())
    }

    /// An entry that says something about a session: below its head, or, where another program writes the session, on
    /// a ref of ours beside it.
    async fn note(
        &self,
        session: &SessionId,
        entry: &serde_json::Value,
        why: &str,
    ) -> Result<NodeId, ChangeError> {
        let row = self.row_of(session).await?;
        let entry = Entry::Meta(Json::from(entry));
        self.with_session_lease(&row, self.append(&row, &entry, why)).await
    }

    async fn append(&self, row: &SessionRow, entry: &Entry, why: &str) -> Result<NodeId, ChangeError> {
        let store = self.store();
        let ours = row.agent == crate::AGENT;
        let name = if ours { row.name.clone() } else { RefName::notes(&row.agent, &row.id) };
        let mut tries = TRIES;
        let draft = Draft::new(entry.clone());
        loop {
            let row = &SessionRow { head: store.head(&row.name).await?, ..row.clone() };
            let head = self.head_of(row).await?;
            let expect = if ours { Some(head) } else { store.head(&name).await? };
            let parent = expect.unwrap_or(head);
            let time = self.node_of(parent).await?.record.timestamp;
            let (mut commit, id) = self.write(&draft, Some(parent), time).await?;
            commit.moves.push(RefMove::swap(name.clone(), expect, id, why));
            if ours {
                commit.moves.extend(self.heads().moves_along(&**store, head, id, why).await?);
            }
            match store.commit(commit).await {
                Ok(()) => return Ok(id),
                Err(StoreError::Conflict { .. }) if tries > 1 => tries -= 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Does this while nobody else writes to the session. Nobody has a lease on those of other programs.
    async fn with_session_lease<T>(
        &self,
        row: &SessionRow,
        work: impl Future<Output = Result<T, ChangeError>>,
    ) -> Result<T, ChangeError> {
        if row.agent != crate::AGENT {
            return work.await;
        }
        with_lease(self.store(), &row.name, || ChangeError::Busy(row.id.clone()), work).await
    }

    /// A commit with one entry behind a node of this time.
    async fn write(
        &self,
        draft: &Draft,
        parent: Option<NodeId>,
        after: UnixMs,
    ) -> Result<(Commit, NodeId), StoreError> {
        let listed = ListedIds::read(&**self.store(), needed(parent, [&*draft.entry])).await?;
        let mut commit = Commit { durability: Durability::Power, ..Commit::default() };
        let node = NodeWriter::new(&**self.clock(), after, listed).write(&mut commit, draft, parent);
        Ok((commit, node))
    }

    pub(crate) fn action(
        &self,
        kind: &str,
        from: Option<NodeId>,
        to: Option<NodeId>,
        session: &SessionId,
    ) -> Action {
        let metadata = Some(serde_json::json!({ "session": session }).to_string());
        Action { timestamp: self.now(), kind: kind.into(), from, to, metadata }
    }

    /// A label or a name as it is kept: sealed, on one line, without control characters.
    pub(crate) fn clean(&self, text: &str) -> Result<String, ChangeError> {
        clean(self.sealer(), text).map_err(ChangeError::TooLong)
    }

    pub(crate) async fn node_of(&self, id: NodeId) -> Result<Node, ChangeError> {
        self.store()
            .nodes(&[id])
            .await?
            .into_iter()
            .flatten()
            .next()
            .ok_or_else(|| OpenError::NoSuchNode(id).into())
    }

    /// The session that a node belongs to.
    pub(crate) async fn session_of(&self, node: NodeId) -> Result<Option<SessionId>, ChangeError> {
        let spelling = Spelling::from(node.to_string());
        Ok(match self.store().resolve(&spelling, &Scope::default()).await? {
            Resolution::One(found) => found.session,
            Resolution::Many(_) | Resolution::None => None,
        })
    }

    pub(crate) async fn head_of(&self, row: &SessionRow) -> Result<NodeId, ChangeError> {
        if let Some(head) = row.head {
            return Ok(head);
        }
        let marks = self.store().landmarks(std::slice::from_ref(&row.id), 1).await?;
        let last = marks.iter().find(|mark| mark.kind == LandmarkKind::End);
        Err(ChangeError::Removed { session: row.id.clone(), at: last.map_or(row.base, |end| end.node) })
    }

    pub(crate) async fn row_of(&self, session: &SessionId) -> Result<SessionRow, ChangeError> {
        let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
        let rows = self.store().sessions(query).await?;
        // One that stands somewhere, where an id was used twice.
        let best = rows.iter().find(|row| row.head.is_some()).or(rows.first());
        best.cloned().ok_or_else(|| OpenError::NoSuchSession(session.to_string()).into())
    }
}

/// A label or a name as it is kept; the error is how many characters it has too many of.
pub(crate) fn clean(sealer: &Sealer, text: &str) -> Result<String, usize> {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = flat.split_whitespace().collect::<Vec<_>>().join(" ");
    let sealed = sealer.seal(&line);
    match sealed.chars().count() {
        count if count > NAME_LIMIT => Err(count),
        _ => Ok(sealed.to_string()),
    }
}

fn label_of(node: NodeId, text: &str) -> serde_json::Value {
    let target = node.to_string();
    match text {
        "" => serde_json::json!({ "type": "label", "targetId": target }),
        text => serde_json::json!({ "type": "label", "targetId": target, "label": text }),
    }
}

fn drop_ref(name: RefName, expect: RefExpectation) -> RefMove {
    RefMove { name, expect, to: None, fence: None, why: "remove".into() }
}
