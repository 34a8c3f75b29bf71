//! Plans become commits: entries to parts, parts to nodes, one transaction each, in the order given.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{Entry, Epoch, FileChange, Json, NodeId, Notice, Refused, RunId, SessionId, UnixMs};
use quipu_store::{
    Action, Commit, Durability, Graph, InboxItem, NewChunk, Op, RefMove, RefName, Step, StepCall, StepState,
    StoreError,
};
use quipu_transcript::Listing;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::arrival::{TOBE, waits};
use crate::calls::money::Purse;
use crate::calls::{Next, Recorded};
use crate::clock::{Clock, fresh_id};
use crate::files::{Ground, InFlight};
use crate::follower::Committed;
use crate::identity::Prompt;
use crate::published::{Heads, boot};
use quipu_history::{INCARNATE, ListedIds, needed};
use quipu_machine::{CommitError, Done, Draft, Input, Leap, MoveDone, MoveOrder, Plan, PlanOp, Queue, Tag};
use quipu_transcript::{WorkspaceNote, is_restored, restored_again};

/// A finished call as it waits in the table of steps for its batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeptResult {
    pub(crate) result: quipu_protocol::ToolResultMessage,
    pub(crate) started: UnixMs,
    pub(crate) duration_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<FileChange>,
    #[serde(default, skip_serializing_if = "WorkspaceNote::is_empty")]
    pub(crate) note: WorkspaceNote,
}

/// In the table of steps, the key of a line that the user runs in the shell; its run has no other step. No call of a
/// model has it: those name their place.
pub(crate) const SHELL: &str = "shell";

/// Something on its way to the store.
pub(crate) enum Job {
    /// Nodes to append, and what goes with them.
    Plan {
        tag: Tag,
        plan: Box<Plan>,
        /// The request that follows if nothing comes between, recorded in the same transaction.
        next: Option<Next>,
    },
    /// The session goes elsewhere.
    Move { run: RunId, session: SessionId, head: NodeId, order: MoveOrder },
}

/// Writes plans one after the other.
pub(crate) struct Committer {
    store: Arc<dyn Graph>,
    clock: Arc<dyn Clock>,
    /// The time of the last node, so that time order is lineage order.
    last: UnixMs,
    epoch: Epoch,
    /// The texts of the epoch's system prompt, written with the node that begins the epoch.
    prompt: Prompt,
    /// Who is told what was committed.
    follower: Option<mpsc::Sender<Committed>>,
    /// Where files are that go along.
    ground: Option<Arc<Ground>>,
    /// What people are to be told with the next answer.
    told: Vec<String>,
    /// The session was opened, and the log of actions does not tell it yet.
    opened: Option<Opened>,
    /// The heads that move with the session.
    heads: Heads,
    /// What is reserved for calls until their nodes are written.
    purse: Option<Arc<Purse>>,
    /// Makes moves.
    mover: Option<Arc<dyn Mover>>,
}

/// A session that was opened.
struct Opened {
    /// The node that it goes on from.
    at: Option<NodeId>,
}

/// Makes moves for a session that is open.
pub(crate) trait Mover: Send + Sync {
    /// Moves the session, which stands at `head`, and reads where it stands then.
    fn make<'a>(
        &'a self,
        session: &'a SessionId,
        head: NodeId,
        order: MoveOrder,
    ) -> BoxFuture<'a, Result<MoveDone, Refused>>;
}

impl Committer {
    pub(crate) fn new(
        store: Arc<dyn Graph>,
        clock: Arc<dyn Clock>,
        last: UnixMs,
        epoch: Epoch,
        prompt: Prompt,
        heads: Heads,
    ) -> Self {
        let (follower, ground, told, opened, purse) = (None, None, Vec::new(), None, None);
        let mover = None;
        Self { store, clock, last, epoch, prompt, follower, ground, told, opened, heads, purse, mover }
    }

    /// Whom to tell what was committed.
    pub(crate) fn tell(&mut self, follower: mpsc::Sender<Committed>) {
        self.follower = Some(follower);
    }

    /// Where the files of the session are.
    pub(crate) fn with_files(&mut self, ground: Arc<Ground>) {
        self.ground = Some(ground);
    }

    /// What calls reserve.
    pub(crate) fn with_purse(&mut self, purse: Arc<Purse>) {
        self.purse = Some(purse);
    }

    /// What makes moves.
    pub(crate) fn with_mover(&mut self, mover: Arc<dyn Mover>) {
        self.mover = Some(mover);
    }

    /// Makes a move between two commits.
    async fn make(
        &mut self,
        session: &SessionId,
        head: NodeId,
        order: MoveOrder,
    ) -> Result<Box<MoveDone>, Refused> {
        let Some(mover) = self.mover.clone() else {
            return Err(Refused::NotMoved { why: "this session cannot be moved".into() });
        };
        let done = mover.make(session, head, order).await?;
        self.last = self.last.max(done.at);
        if let Some(follower) = &self.follower
            && done.moved.to != head
        {
            // Nobody follows any more.
            drop(follower.send(Committed { session: session.clone(), nodes: vec![done.moved.to] }).await);
        }
        Ok(Box::new(done))
    }

    /// The first commit that moves the session's ref tells the log of actions that it was opened, and went on from here.
    pub(crate) fn opened(&mut self, at: Option<NodeId>) {
        self.opened = Some(Opened { at });
    }

    /// The time of the last node written.
    pub(crate) fn last_time(&self) -> UnixMs {
        self.last
    }

    /// Serves plans until the sender is gone. What was queued is written even when nobody waits for the answer
    /// any more.
    pub(crate) async fn serve(mut self, mut plans: mpsc::Receiver<Job>, answers: mpsc::Sender<Input>) {
        while let Some(job) = plans.recv().await {
            let (tag, plan, next) = match job {
                Job::Plan { tag, plan, next } => (tag, *plan, next),
                Job::Move { run, session, head, order } => {
                    let result = self.make(&session, head, order).await;
                    drop(answers.send(Input::Moved { run, result }).await);
                    continue;
                }
            };
            let session = self.follower.as_ref().map(|_| plan.session.clone());
            let leaves = plan.leaves.len();
            let result = self.commit(plan, next.as_ref()).await;
            if let (Some(follower), Some(session), Ok(nodes)) = (&self.follower, session, &result) {
                // What is left is another line than what is gone on with.
                let (left, nodes) = nodes.split_at(leaves.min(nodes.len()));
                for nodes in [left, nodes].into_iter().filter(|nodes| !nodes.is_empty()) {
                    // Nobody follows any more.
                    drop(follower.send(Committed { session: session.clone(), nodes: nodes.to_vec() }).await);
                }
            }
            for text in self.told.drain(..) {
                drop(answers.send(Input::Told(Notice::Note { text })).await);
            }
            drop(answers.send(Input::Committed { tag, result }).await);
        }
    }

    /// Writes one plan, with the request that follows it, and gives its nodes.
    pub(crate) async fn commit(
        &mut self,
        mut plan: Plan,
        next: Option<&Next>,
    ) -> Result<Vec<NodeId>, CommitError> {
        let flight = self.stage(&plan).await?;
        let mut result = self.attempt(&plan, flight.as_ref(), next).await;
        if let Err(StoreError::Missing { .. }) = &result
            && self.drop_vanished(&mut plan).await
        {
            result = self.attempt(&plan, flight.as_ref(), next).await;
        }
        if let (Some(flight), Some(ground)) = (flight, &self.ground) {
            match &result {
                Ok((nodes, _)) => {
                    let rest = nodes.last().copied().map(waits);
                    let (store, sealer) = (&*ground.store, &ground.sealer);
                    self.told.extend(flight.land(store, sealer, &plan.session, rest).await);
                }
                Err(_) => flight.abandon(&*self.store, &plan.session).await,
            }
        }
        match result {
            Ok((nodes, recorded)) => {
                if let Some(next) = next {
                    next.keep(recorded);
                }
                Ok(nodes)
            }
            Err(StoreError::Conflict { .. }) => {
                Err(CommitError::Conflict { fresh: SessionId::from(fresh_id()) })
            }
            Err(error) => Err(CommitError::Failed(error.to_string())),
        }
    }

    /// Brings what files are to become to the disk, when they go along with a jump.
    async fn stage(&self, plan: &Plan) -> Result<Option<InFlight>, CommitError> {
        let Some(agreed) = plan.jump.as_ref().and_then(|leap| leap.files.as_deref()) else { return Ok(None) };
        let stays = |why: &str| CommitError::Stays(format!("{why}."));
        let (Some(ground), Some(from), Some(to)) = (&self.ground, plan.expect, plan.parent) else {
            return Err(stays("what files were is not kept in this session"));
        };
        match ground.begin(&plan.session, from, to, Some(agreed), false).await {
            Ok((_, Some(flight))) => Ok(Some(flight)),
            Ok((_, None)) => Err(stays("no step on the way touched a file any more")),
            Err(error) => Err(stays(&error.to_string())),
        }
    }

    /// Leaves out the taking of items that are gone, or the session could never go on; says whether there were
    /// any.
    async fn drop_vanished(&self, plan: &mut Plan) -> bool {
        let mut vanished = Vec::new();
        for op in &plan.ops {
            let PlanOp::Take { session, item } = op else { continue };
            let Ok(pending) = self.store.pending(session).await else { return false };
            if !pending.inbox.iter().any(|there| there.id == *item) {
                vanished.push(op.clone());
            }
        }
        plan.ops.retain(|op| !vanished.contains(op));
        !vanished.is_empty()
    }

    async fn attempt(
        &mut self,
        plan: &Plan,
        flight: Option<&InFlight>,
        next: Option<&Next>,
    ) -> Result<(Vec<NodeId>, Option<Recorded>), StoreError> {
        let listed = ListedIds::read(&*self.store, names_of_nodes(plan)).await?;
        let (mut batch, nodes, last) = self.batch(plan, flight, listed);
        let head = nodes.last().copied().or(plan.parent);
        let recorded = next.zip(head).and_then(|(next, head)| next.record(&plan.session, head, &mut batch));
        let moves = !batch.moves.is_empty();
        if moves && let (Some(Opened { at }), Some(head)) = (&self.opened, head) {
            let (at, now) = (*at, self.clock.now());
            let to = at.unwrap_or(head);
            let switch = self.heads.switch(&*self.store, &plan.session, at, to, now).await?;
            batch.actions.splice(..0, at.map(|at| boot(at, now)).into_iter().chain(switch));
        }
        // What a call cost is in its node.
        let paid = plan.drafts.iter().chain(&plan.leaves).any(|draft| draft.step.call.is_some());
        let purse = self.purse.as_ref().filter(|_| paid);
        let over = purse.map_or_else(Vec::new, |purse| purse.over());
        batch.ops.extend(over.iter().map(|(id, charged)| Op::Release { id: id.clone(), charged: *charged }));
        self.store.commit(batch).await?;
        if let Some(purse) = purse {
            purse.released(&over);
        }
        if moves {
            self.opened = None;
        }
        self.last = last;
        if let Some(epoch) = plan.drafts.iter().rev().find_map(|draft| begun(&draft.entry)) {
            self.epoch = epoch.clone();
        }
        Ok((nodes, recorded))
    }

    fn batch(
        &self,
        plan: &Plan,
        flight: Option<&InFlight>,
        mut listed: ListedIds,
    ) -> (Commit, Vec<NodeId>, UnixMs) {
        let mut batch = Commit {
            durability: if plan.power { Durability::Power } else { Durability::Process },
            ops: plan.ops.iter().map(|op| store_op(&plan.session, op)).collect(),
            chunks: plan.ops.iter().flat_map(states_of).cloned().collect(),
            ..Commit::default()
        };
        let mut last = self.last;
        let mut nodes = Vec::with_capacity(plan.leaves.len() + plan.drafts.len());
        let mut stood = plan.expect;
        let mut epoch = &self.epoch;
        for draft in &plan.leaves {
            last = self.clock.now().max(last.saturating_add(1));
            let node = self.node(draft, epoch, stood, last, (&mut batch, &mut listed));
            stood = Some(node.id);
            nodes.push(node.id);
            batch.nodes.push(node);
        }
        let mut parent = plan.parent;
        let label = plan.jump.as_ref().and_then(|leap| leap.label.as_deref());
        for draft in plan.drafts.iter().map(Some).chain(label.map(|_| None)) {
            let begins = draft.and_then(|draft| begun(&draft.entry));
            let (labels, put_back);
            let draft = match draft {
                Some(draft) if flight.is_some() && is_restored(&draft.entry) => {
                    let entry = stood.map_or_else(
                        || draft.entry.clone(),
                        |from| restored_again(&draft.entry, from).into(),
                    );
                    put_back = Draft { entry, ..draft.clone() };
                    &put_back
                }
                Some(draft) => draft,
                None => {
                    let target = parent.map(|node| node.to_string()).unwrap_or_default();
                    let entry = serde_json::json!({ "type": "label", "targetId": target, "label": label });
                    labels = Draft::new(Entry::Meta(Json::from(&entry)));
                    &labels
                }
            };
            last = self.clock.now().max(last.saturating_add(1));
            let node = self.node(draft, epoch, parent, last, (&mut batch, &mut listed));
            epoch = begins.unwrap_or(epoch);
            parent = Some(node.id);
            nodes.push(node.id);
            batch.nodes.push(node);
        }
        if let Some(head) = parent.filter(|_| plan.jump.is_some() || !plan.drafts.is_empty()) {
            let name = RefName::session(&plan.session);
            let why = match &plan.jump {
                None => "append",
                Some(Leap { carries: None, .. }) => "jump",
                Some(Leap { carries: Some(_), .. }) => TOBE,
            };
            if stood != plan.expect
                && let Some(departure) = stood
            {
                // Where it can be gone back to, and where undoing leads.
                batch.moves.push(RefMove::swap(name.clone(), plan.expect, departure, "append"));
            }
            batch.moves.push(RefMove::swap(name, stood, head, why));
            batch.moves.extend(self.heads.moves(head, why));
            if let Some(Leap { from, carries, .. }) = &plan.jump {
                let session = plan.session.clone();
                batch.ops.push(match (carries, flight) {
                    (Some(_), Some(flight)) => flight.op(&session, Some(&waits(head))),
                    (Some(_), None) => Op::JumpPut { session, jump: waits(head) },
                    (None, _) => Op::JumpRemove { session },
                });
                batch.chunks.extend(flight.iter().flat_map(|flight| flight.chunks.iter().cloned()));
                let log = match carries {
                    Some(log) => log.get().to_owned(),
                    None => serde_json::json!({ "session": plan.session }).to_string(),
                };
                batch.actions.push(Action {
                    timestamp: last,
                    kind: if carries.is_some() { INCARNATE } else { "QUIPU_JUMP" }.into(),
                    from: stood.filter(|_| !plan.leaves.is_empty()).or(Some(*from)),
                    to: Some(head),
                    metadata: Some(log),
                });
            }
        }
        (batch, nodes, last)
    }

    fn node(
        &self,
        draft: &Draft,
        epoch: &Epoch,
        parent: Option<NodeId>,
        timestamp: UnixMs,
        (batch, listed): (&mut Commit, &mut ListedIds),
    ) -> Node {
        let id = fresh_id();
        let (parent_id, first_kept) = (listed.of(parent), listed.kept_by(&draft.entry));
        let listing = Listing { id: &id, parent: parent_id, first_kept, at: timestamp };
        let encoded = quipu_transcript::encode_listed(&draft.entry, &draft.step, &listing);
        let epoch = begun(&draft.entry).unwrap_or(epoch);
        let record = NodeRecord {
            parent,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp,
            external_id: Some(id),
            system_prompt: epoch.system,
        };
        let config = match &*draft.entry {
            Entry::Message(quipu_protocol::Message::Assistant(_)) | Entry::Session(_) | Entry::Epoch(_) => {
                Some(config(epoch))
            }
            Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
        };
        if let Entry::Session(_) | Entry::Epoch(_) = &*draft.entry {
            batch.blobs.extend(self.prompt.blobs());
        }
        batch.blobs.extend(encoded.blobs);
        batch
            .chunks
            .extend(encoded.chunks.into_iter().map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        batch.chunks.extend(draft.states.iter().cloned());
        let node = Node::new(record, config, None);
        listed.wrote(&node);
        node
    }
}

/// The nodes before those of a plan whose ids stand in them.
fn names_of_nodes(plan: &Plan) -> Vec<NodeId> {
    let label = plan.jump.as_ref().and_then(|leap| leap.label.as_ref()).map(|_| Entry::Meta(Json::object()));
    let leaves = plan.leaves.iter().map(|draft| &*draft.entry);
    let drafts = plan.drafts.iter().map(|draft| &*draft.entry).chain(&label);
    let mut named = needed(plan.expect, leaves);
    named.extend(needed(plan.parent, drafts));
    named
}

/// The epoch that an entry begins.
fn begun(entry: &Entry) -> Option<&Epoch> {
    match entry {
        Entry::Session(start) => Some(&start.epoch),
        Entry::Epoch(epoch) => Some(epoch),
        Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
    }
}

/// What other programs read about the writer of a node.
pub(crate) fn config(epoch: &Epoch) -> String {
    serde_json::json!({
        "agent": crate::AGENT,
        "model": { "provider": epoch.provider, "id": epoch.model },
        "thinkingLevel": epoch.thinking,
    })
    .to_string()
}

fn store_op(session: &SessionId, op: &PlanOp) -> Op {
    match op {
        PlanOp::Put { queue, item } => Op::InboxPut {
            session: item.session.clone(),
            item: InboxItem {
                id: item.id.clone(),
                queue: match queue {
                    Queue::Steering => "steer".into(),
                    Queue::FollowUp => "followUp".into(),
                },
                input: Json::of(&item.input).unwrap_or_default(),
            },
        },
        PlanOp::Take { session, item } => Op::InboxTake { session: session.clone(), item: item.clone() },
        PlanOp::Announce { run, key, call } => Op::StepPut {
            session: session.clone(),
            step: Step {
                run: run.clone(),
                call: StepCall::Tool(key.as_str().into()),
                state: StepState::Announced,
                data: serde_json::to_vec(call).ok(),
            },
        },
        PlanOp::Keep { run, key, done } => Op::StepPut {
            session: session.clone(),
            step: Step {
                run: run.clone(),
                call: StepCall::Tool(key.as_str().into()),
                state: StepState::Done,
                data: serde_json::to_vec(&kept(done)).ok(),
            },
        },
        PlanOp::Forget { run, session: other } => {
            Op::RunRemove { session: other.as_ref().unwrap_or(session).clone(), run: run.clone() }
        }
        PlanOp::Arrive => Op::JumpRemove { session: session.clone() },
        PlanOp::Shell { session: other, run, shell, done } => Op::StepPut {
            session: other.as_ref().unwrap_or(session).clone(),
            step: Step {
                run: run.clone(),
                call: StepCall::Tool(SHELL.into()),
                state: if *done { StepState::Done } else { StepState::Running },
                data: serde_json::to_vec(shell).ok(),
            },
        },
    }
}

/// States of files that a finished call names.
fn states_of(op: &PlanOp) -> &[NewChunk] {
    match op {
        PlanOp::Keep { done, .. } => &done.states,
        PlanOp::Put { .. }
        | PlanOp::Take { .. }
        | PlanOp::Announce { .. }
        | PlanOp::Forget { .. }
        | PlanOp::Shell { .. }
        | PlanOp::Arrive => &[],
    }
}

fn kept(done: &Done) -> KeptResult {
    KeptResult {
        result: done.result.clone(),
        started: done.started,
        duration_ms: done.duration_ms,
        files: done.files.clone(),
        note: WorkspaceNote::clone(&done.note),
    }
}
