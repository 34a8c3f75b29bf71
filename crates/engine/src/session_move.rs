//! The one way in which a session goes elsewhere: jumps, undo and redo, merges, a compaction taken back, and calls of the
//! model that leave. All that it writes, the moves of refs and what the logs say are one commit; files that go along are
//! beside their targets before it, and take their places behind it.

use quipu_history::{ListedIds, needed};
use quipu_machine::Draft;
use quipu_protocol::{Entry, NodeId, SessionId};
use quipu_store::{Commit, Durability, Op, OpenJump, RefExpectation, RefMove, RefName, StoreError};
use quipu_transcript::{is_restored, restored_again};

use crate::arrival::{awaited, waits};
use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::files::InFlight;
use crate::nodes::NodeWriter;

/// A move of a session's ref.
pub(crate) struct SessionMove<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) name: &'a RefName,
    /// Where the session stands; `None` where it was removed.
    pub(crate) from: Option<NodeId>,
    /// What ends what is left, below `from`.
    pub(crate) ends: Vec<Draft>,
    /// Where it goes; `None` where it was not there yet.
    pub(crate) to: Option<NodeId>,
    /// What is written there.
    pub(crate) added: Vec<Draft>,
    /// A label, behind what is written there.
    pub(crate) label: Option<Label<'a>>,
    /// Why, for the log of refs.
    pub(crate) why: &'a str,
}

/// A label that comes with a move.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub(crate) text: &'a str,
    /// Which of the added entries it is for; `None` for the node that the session goes to.
    pub(crate) of: Option<usize>,
}

/// A move that is ready to be committed.
pub(crate) struct ReadyMove {
    pub(crate) commit: Commit,
    /// The nodes of what ends what is left.
    pub(crate) ended: Vec<NodeId>,
    /// The nodes of what is added.
    pub(crate) added: Vec<NodeId>,
    /// Where the session stands that leaves: behind what ends.
    pub(crate) from: Option<NodeId>,
    /// Where it stands then.
    pub(crate) head: Option<NodeId>,
}

/// What waits in a session that was moved.
pub(crate) enum AfterMove {
    Nothing,
    /// The message where it stands waits for its answer.
    Answer(NodeId),
    /// What waited before.
    Unchanged,
}

impl Engine {
    /// Writes what a move adds, and moves the refs.
    pub(crate) async fn prepare_move(
        &self,
        order: SessionMove<'_>,
        cx: &MoveContext,
    ) -> Result<ReadyMove, OpenError> {
        let SessionMove { session, name, from, ends, to, mut added, label, why } = order;
        let mut commit = Commit {
            ops: cx.ops.clone(),
            actions: cx.actions.clone(),
            durability: Durability::Power,
            ..Commit::default()
        };
        let mut named = needed(from, ends.iter().map(|draft| &*draft.entry));
        let note = label.map(|_| Entry::Meta(quipu_protocol::Json::object()));
        named.extend(needed(to, added.iter().map(|draft| &*draft.entry).chain(&note)));
        let mut last = cx.last;
        if !ends.is_empty() || !added.is_empty() || label.is_some() {
            for id in [from, to].into_iter().flatten() {
                let node = self.store().nodes(&[id]).await?.into_iter().flatten().next();
                last = last.max(node.ok_or(OpenError::NoSuchNode(id))?.record.timestamp);
            }
        }
        let listed = ListedIds::read(&**self.store(), named).await?;
        let mut labelled = None;
        let mut stood = from;
        let (mut ended, mut behind) = (Vec::new(), Vec::new());
        let writer = || NodeWriter::new(&**self.clock(), last, listed);
        let mut writer = match &cx.epoch {
            Some((epoch, prompt)) => writer().within(epoch, prompt),
            None => writer(),
        };
        for draft in &ends {
            let node = writer.write(&mut commit, draft, stood);
            stood = Some(node);
            ended.push(node);
        }
        if let (Some(departure), false) = (stood, ended.is_empty()) {
            // Where it came from is known only now.
            for draft in added.iter_mut().filter(|draft| is_restored(&draft.entry)) {
                draft.entry = restored_again(&draft.entry, departure).into();
            }
            // Where it can be gone back to, and where undoing leads.
            commit.moves.push(RefMove::swap(name.clone(), from, departure, "append"));
        }
        let mut head = to;
        for draft in &added {
            let node = writer.write(&mut commit, draft, head);
            head = Some(node);
            behind.push(node);
        }
        if let (Some(Label { text, of }), Some(to)) = (label, to) {
            let node = of.and_then(|at| behind.get(at)).copied().unwrap_or(to).to_string();
            let entry = serde_json::json!({ "type": "label", "targetId": node, "label": text });
            let draft = labelled.insert(Draft::new(Entry::Meta((&entry).into())));
            head = Some(writer.write(&mut commit, draft, head));
        }
        let expect = stood.map_or(RefExpectation::Absent, RefExpectation::At);
        commit.moves.push(RefMove { name: name.clone(), expect, to: head, fence: None, why: why.to_owned() });
        match (head, stood) {
            (Some(head), stood) => self.publish(&mut commit, session, stood, head, why).await?,
            (None, Some(stood)) => commit.moves.extend(self.unpublish(stood, why).await?),
            (None, None) => {}
        }
        Ok(ReadyMove { commit, ended, added: behind, from: stood, head })
    }

    /// Commits a move; then the files that are on their way take their places, and those that did not are reported.
    pub(crate) async fn commit_move(
        &self,
        session: &SessionId,
        mut commit: Commit,
        flight: Option<InFlight>,
        after: AfterMove,
    ) -> Result<Vec<String>, StoreError> {
        let store = self.store();
        let keeps = matches!(after, AfterMove::Unchanged);
        let rest: Option<OpenJump> = match after {
            AfterMove::Nothing => None,
            AfterMove::Answer(message) => Some(waits(message)),
            AfterMove::Unchanged => store.pending(session).await?.jump.as_ref().and_then(awaited).map(waits),
        };
        match (&flight, &rest) {
            (Some(flight), rest) => commit.ops.push(flight.op(session, rest.as_ref())),
            (None, _) if keeps => {}
            (None, Some(rest)) => {
                commit.ops.push(Op::JumpPut { session: session.clone(), jump: rest.clone() });
            }
            (None, None) => commit.ops.push(Op::JumpRemove { session: session.clone() }),
        }
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
