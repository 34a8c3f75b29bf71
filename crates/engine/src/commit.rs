//! Plans become commits: entries to parts, parts to nodes, one transaction each, in the order given.

use std::sync::{Arc, Weak};

use crate::mailbox;
use futures_util::future::BoxFuture;
use quipu_protocol::{
    AddedBlock, Epoch, FileChange, Json, ModelRequest, NodeId, Provenance, Refusal, RunId, SessionId, UnixMs,
};
use quipu_store::{
    Action, Commit, Durability, Graph, InboxItem, MESSAGE_INBOX, NewChunk, Op, RefMove, RefName, ReserveId,
    Step, StepCall, StepState, StoreError,
};
use serde::{Deserialize, Serialize};
use tracing::{Instrument as _, Span};

use crate::calls::money::Purse;
use crate::calls::{NextCall, PreparedCall};
use crate::clock::{Clock, fresh_id};
use crate::follower::CommitEvent;
use crate::identity::Prompt;
use crate::nodes::NodeWriter;
use crate::published::{Heads, boot};
use quipu_history::{ListedIds, needed};
use quipu_machine::{
    CommitError, Draft, FinishedCall, MachineInput, MoveOrder, MoveResult, Plan, PlanOp, Queue, Tag,
};
use quipu_transcript::WorkspaceNote;

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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hooks: Vec<Json>,
    /// Which policies asked or denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) policies: Vec<Json>,
    #[serde(default = "Provenance::tool")]
    pub(crate) provenance: Provenance,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) added: Vec<AddedBlock>,
}

/// In the table of steps, the key of a line that the user runs in the shell; its run has no other step. No call of a
/// model has it: those name their place.
pub(crate) const SHELL: &str = "shell";

/// Something on its way to the store.
pub(crate) enum Job {
    /// Nodes to append, and what goes with them.
    Plan(Box<PlanJob>),
    /// The session goes elsewhere.
    Move(Box<MoveJob>),
}

/// A plan, with what goes with it.
pub(crate) struct PlanJob {
    /// For the answer.
    pub(crate) tag: Tag,
    pub(crate) plan: Plan,
    /// The request that follows if nothing comes between, recorded in the same transaction.
    pub(crate) next: Option<NextCall>,
    /// Of what it is a step.
    pub(crate) span: Span,
}

/// A move, with what goes with it.
pub(crate) struct MoveJob {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) head: NodeId,
    pub(crate) order: MoveOrder,
    pub(crate) ops: Vec<PlanOp>,
    /// What requests begin with from then on.
    pub(crate) epoch: Epoch,
    /// Of what it is a step.
    pub(crate) span: Span,
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
    /// Receivers of what was committed.
    follower: Option<mailbox::Sender<CommitEvent>>,
    /// The session was opened, and the log of actions does not tell it yet.
    opened: Option<WriterStart>,
    /// The heads that move with the session.
    heads: Heads,
    /// What is reserved for calls until their nodes are written.
    purse: Option<Arc<Purse>>,
    /// Makes moves.
    mover: Option<Arc<dyn Mover>>,
    /// The last request that was recorded with the commit before it.
    row: Option<RecordedRow>,
}

/// The row of a request that was recorded with the commit before it.
struct RecordedRow {
    request: Weak<ModelRequest>,
    session: SessionId,
    run: RunId,
    data: Vec<u8>,
}

impl RecordedRow {
    /// From what the record added to the commit.
    fn of(next: &NextCall, session: &SessionId, added: &[Op]) -> Option<Self> {
        let data = added.iter().find_map(|op| match op {
            Op::StepPut { step, .. } => step.data.clone(),
            _ => None,
        })?;
        Some(Self {
            request: Arc::downgrade(&next.request),
            session: session.clone(),
            run: next.run.clone(),
            data,
        })
    }

    /// Removes it, where it still stands there.
    fn removal(&self) -> Op {
        let (session, run, data) = (self.session.clone(), self.run.clone(), Some(self.data.clone()));
        Op::StepRemove { session, run, call: StepCall::Model, data }
    }
}

/// A session that was opened.
struct WriterStart {
    /// The node that it continues from.
    at: Option<NodeId>,
}

/// What goes with a move of a session that is open; nothing for one at rest.
#[derive(Default)]
pub(crate) struct MoveContext {
    /// Done in the same transaction.
    pub(crate) ops: Vec<Op>,
    /// Logged before the move.
    pub(crate) actions: Vec<Action>,
    /// What its requests begin with, and the texts of that.
    pub(crate) epoch: Option<(Epoch, Prompt)>,
    /// The time of its last node.
    pub(crate) last: UnixMs,
}

/// Makes moves for a session that is open.
pub(crate) trait Mover: Send + Sync {
    /// Moves the session, which stands at `head`, and reads where it stands then.
    fn make<'a>(
        &'a self,
        session: &'a SessionId,
        head: NodeId,
        order: MoveOrder,
        cx: MoveContext,
    ) -> BoxFuture<'a, Result<MoveResult, Refusal>>;
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
        let (follower, opened, purse, mover, row) = (None, None, None, None, None);
        Self { store, clock, last, epoch, prompt, follower, opened, heads, purse, mover, row }
    }

    /// What the store is given for operations of a session.
    fn store_ops<'a>(&'a self, session: &'a SessionId, ops: &'a [PlanOp]) -> impl Iterator<Item = Op> + 'a {
        ops.iter().filter_map(move |op| match op {
            // One that was not recorded has no row.
            PlanOp::Revoke { request } => {
                let row = self.row.as_ref()?;
                std::ptr::eq(row.request.as_ptr(), Arc::as_ptr(&request.0)).then(|| row.removal())
            }
            op => store_op(session, op),
        })
    }

    /// Whom to tell what was committed.
    pub(crate) fn tell(&mut self, follower: mailbox::Sender<CommitEvent>) {
        self.follower = Some(follower);
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
    async fn make(&mut self, job: MoveJob) -> Result<Box<MoveResult>, Refusal> {
        let MoveJob { session, head, order, ops, epoch, .. } = job;
        let Some(mover) = self.mover.clone() else {
            return Err(Refusal::NotMoved { why: "this session cannot be moved".into() });
        };
        let goes = matches!(order, MoveOrder::Jump { .. } | MoveOrder::Tobe(_));
        let over = self.over(order.drafts());
        let opened = self.opened.as_ref().and_then(|opened| opened.at).filter(|_| goes);
        let cx = MoveContext {
            ops: self.store_ops(&session, &ops).chain(over.iter().map(released)).collect(),
            actions: opened.map(|at| boot(at, self.clock.now())).into_iter().collect(),
            epoch: goes.then(|| (epoch.clone(), self.prompt.clone())),
            last: self.last,
        };
        let done = mover.make(&session, head, order, cx).await?;
        self.paid(&over);
        self.last = self.last.max(done.at);
        if goes {
            (self.opened, self.epoch) = (None, epoch);
        }
        let session = done.branched.clone().unwrap_or(session);
        if done.moved.to != head {
            self.follow(&session, done.ended.clone()).await;
            let nodes = if done.added.is_empty() { vec![done.moved.to] } else { done.added.clone() };
            self.follow(&session, nodes).await;
        }
        Ok(Box::new(done))
    }

    /// Tells who follows the session of nodes that were written.
    async fn follow(&self, session: &SessionId, nodes: Vec<NodeId>) {
        if let Some(follower) = self.follower.as_ref().filter(|_| !nodes.is_empty()) {
            // Nobody follows any more.
            drop(follower.send(CommitEvent { session: session.clone(), nodes }).await);
        }
    }

    /// What is not reserved any more when these are written: what a call cost is in its node.
    fn over<'a>(&self, mut drafts: impl Iterator<Item = &'a Draft>) -> Vec<(ReserveId, i64)> {
        let purse = self.purse.as_ref().filter(|_| drafts.any(|draft| draft.step.call.is_some()));
        purse.map_or_else(Vec::new, |purse| purse.over())
    }

    fn paid(&self, over: &[(ReserveId, i64)]) {
        if let Some(purse) = self.purse.as_ref().filter(|_| !over.is_empty()) {
            purse.released(over);
        }
    }

    /// The first commit that moves the session's ref tells the log of actions that it was opened, and went on from here.
    pub(crate) fn opened(&mut self, at: Option<NodeId>) {
        self.opened = Some(WriterStart { at });
    }

    /// The time of the last node written.
    pub(crate) fn last_time(&self) -> UnixMs {
        self.last
    }

    /// Serves plans until the sender is gone. What was queued is written even when nobody waits for the answer
    /// any more.
    pub(crate) async fn serve(
        mut self: Box<Self>,
        mut plans: mailbox::Receiver<Job>,
        answers: mailbox::Sender<MachineInput>,
    ) {
        while let Some(job) = plans.recv().await {
            let PlanJob { tag, plan, next, span } = match job {
                Job::Plan(job) => *job,
                Job::Move(job) => {
                    let (run, span) = (job.run.clone(), job.span.clone());
                    let result = Box::pin(self.make(*job).instrument(span)).await;
                    drop(answers.send(MachineInput::Moved { run, result }).await);
                    continue;
                }
            };
            let session = plan.session.clone();
            // In a box, or the task would keep room for it while it waits.
            let result = Box::pin(self.commit(plan, next.as_ref()).instrument(span)).await;
            if let Ok(nodes) = &result {
                self.follow(&session, nodes.clone()).await;
            }
            drop(answers.send(MachineInput::Committed { tag, result }).await);
        }
    }

    /// Writes one plan, with the request that follows it, and gives its nodes.
    pub(crate) async fn commit(
        &mut self,
        mut plan: Plan,
        next: Option<&NextCall>,
    ) -> Result<Vec<NodeId>, CommitError> {
        let mut result = self.attempt(&plan, next).await;
        if let Err(StoreError::Missing { .. }) = &result
            && self.drop_vanished(&mut plan).await
        {
            result = self.attempt(&plan, next).await;
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

    /// Leaves out the taking of items that are gone, or the session could never continue; says whether there were
    /// any.
    async fn drop_vanished(&self, plan: &mut Plan) -> bool {
        let mut vanished = Vec::new();
        for op in &plan.ops {
            let PlanOp::Take { session, item } = op else { continue };
            // Who took it there runs it.
            if session.as_str() == MESSAGE_INBOX {
                continue;
            }
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
        next: Option<&NextCall>,
    ) -> Result<(Vec<NodeId>, Option<PreparedCall>), StoreError> {
        let named = needed(plan.parent, plan.drafts.iter().map(|draft| &*draft.entry));
        let listed = ListedIds::read(&*self.store, named).await?;
        let clock = self.clock.clone();
        let mut writer = NodeWriter::new(&*clock, self.last, listed).within(&self.epoch, &self.prompt);
        let mut batch = Commit {
            durability: if plan.power { Durability::Power } else { Durability::Process },
            ops: self.store_ops(&plan.session, &plan.ops).collect(),
            chunks: plan.ops.iter().flat_map(states_of).cloned().collect(),
            ..Commit::default()
        };
        let mut head = plan.parent;
        let mut nodes = Vec::with_capacity(plan.drafts.len());
        for draft in &plan.drafts {
            let node = writer.write(&mut batch, draft, head);
            head = Some(node);
            nodes.push(node);
        }
        let moves = !nodes.is_empty();
        if let Some(to) = head.filter(|_| moves) {
            batch.moves.push(RefMove::swap(RefName::session(&plan.session), plan.expect, to, "append"));
            batch.moves.extend(self.heads.moves(to, "append"));
        }
        let before = batch.ops.len();
        let recorded = next.zip(head).and_then(|(next, head)| next.record(&plan.session, head, &mut batch));
        let row = next.filter(|_| recorded.is_some()).and_then(|next| {
            RecordedRow::of(next, &plan.session, batch.ops.get(before..).unwrap_or_default())
        });
        if moves && let (Some(WriterStart { at }), Some(head)) = (&self.opened, head) {
            let (at, now) = (*at, self.clock.now());
            let to = at.unwrap_or(head);
            let switch = self.heads.switch(&*self.store, &plan.session, at, to, now).await?;
            batch.actions.splice(..0, at.map(|at| boot(at, now)).into_iter().chain(switch));
        }
        let over = self.over(plan.drafts.iter());
        batch.ops.extend(over.iter().map(released));
        // Most commits begin none.
        let begun = writer.epoch().filter(|epoch| !std::ptr::eq(*epoch, &self.epoch));
        let (last, epoch) = (writer.last(), begun.cloned());
        self.store.commit(batch).await?;
        self.row = row.or_else(|| self.row.take());
        self.paid(&over);
        if moves {
            self.opened = None;
        }
        self.last = last;
        if let Some(epoch) = epoch {
            self.epoch = epoch;
        }
        Ok((nodes, recorded))
    }
}

/// A reservation that is over.
fn released((id, charged): &(ReserveId, i64)) -> Op {
    Op::Release { id: id.clone(), charged: *charged }
}

/// `None` for what only the committer knows.
fn store_op(session: &SessionId, op: &PlanOp) -> Option<Op> {
    Some(match op {
        PlanOp::Revoke { .. } => return None,
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
        PlanOp::ClearSelfMessage => Op::JumpRemove { session: session.clone() },
        PlanOp::Release { id, charged } => Op::Release { id: ReserveId(id.to_string()), charged: *charged },
        PlanOp::Shell { session: other, run, shell, done } => Op::StepPut {
            session: other.as_ref().unwrap_or(session).clone(),
            step: Step {
                run: run.clone(),
                call: StepCall::Tool(SHELL.into()),
                state: if *done { StepState::Done } else { StepState::Running },
                data: serde_json::to_vec(shell).ok(),
            },
        },
    })
}

/// States of files that a finished call names.
fn states_of(op: &PlanOp) -> &[NewChunk] {
    match op {
        PlanOp::Keep { done, .. } => &done.states,
        PlanOp::Put { .. }
        | PlanOp::Take { .. }
        | PlanOp::Announce { .. }
        | PlanOp::Forget { .. }
        | PlanOp::Revoke { .. }
        | PlanOp::Shell { .. }
        | PlanOp::Release { .. }
        | PlanOp::ClearSelfMessage => &[],
    }
}

fn kept(done: &FinishedCall) -> KeptResult {
    KeptResult {
        result: done.result.clone(),
        started: done.started,
        duration_ms: done.duration_ms,
        files: done.files.clone(),
        note: WorkspaceNote::clone(&done.note),
        hooks: done.interventions.hooks.clone(),
        policies: done.interventions.policies.clone(),
        provenance: done.provenance.clone(),
        added: done.added.clone(),
    }
}
