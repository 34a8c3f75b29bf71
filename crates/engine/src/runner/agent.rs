//! A sub-agent that the tool `task` wants: what is ordered, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use quipu_dag::sha256;
use quipu_machine::Draft;
use quipu_protocol::{CallId, ChildOutcome, Entry, Json, NodeId, Outcome, RunId, SessionId};
use quipu_store::CHILD_SESSION;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::agents::{AGENT_PURPOSE, AgentDefinition, AgentLimits};
use crate::worktrees::{WorktreeEnd, WorktreeInfo, Worktrees};

/// Calls of one run with the same id that are told apart.
pub(crate) const SAME_CALLS: u32 = 64;

/// The member of a sub-agent's second node that names its worktree: its files are not those of its parent.
pub(crate) const WORKTREE: &str = "worktree";

/// A sub-agent to send.
pub(crate) struct AgentOrder {
    /// The call that sends it.
    pub(crate) call: CallId,
    /// The run that pays.
    pub(crate) run: RunId,
    pub(crate) agent: Option<Arc<AgentDefinition>>,
    /// What it is about, in a few words for people; sealed.
    pub(crate) title: String,
    /// Sealed.
    pub(crate) prompt: String,
    pub(crate) limits: AgentLimits,
    /// Where it gets a git worktree of its own; `None` for the directory of its parent.
    pub(crate) worktrees: Option<Worktrees>,
    /// Its turn among those of the session.
    pub(crate) permits: Arc<Semaphore>,
    /// Shows people how far it is.
    pub(crate) progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// Fires when the call must stop.
    pub(crate) cancel: CancellationToken,
}

impl AgentOrder {
    /// What people know it by.
    pub(crate) fn name(&self) -> &str {
        self.agent.as_ref().map_or("sub-agent", |agent| &agent.name)
    }
}

/// How a sub-agent ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentEnd {
    /// Its run ended.
    Ended(Outcome),
    /// It worked longer than it may.
    Overdue(Duration),
    /// Its call was stopped.
    Stopped,
}

/// What came of a sub-agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentReport {
    pub(crate) session: SessionId,
    /// Where its session stood at its end.
    pub(crate) head: Option<NodeId>,
    pub(crate) end: AgentEnd,
    /// The text of its last answer, sealed.
    pub(crate) text: String,
    pub(crate) turns: u32,
    /// Calls of tools.
    pub(crate) calls: u32,
    /// US dollars.
    pub(crate) cost: f64,
    /// The worktree that it worked in.
    pub(crate) worktree: Option<UsedWorktree>,
    /// That another model answered than the one that its file names, and why.
    pub(crate) replaced: Option<String>,
}

/// A worktree that a sub-agent worked in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UsedWorktree {
    pub(crate) info: WorktreeInfo,
    /// What came of it; why that is not known, where git failed.
    pub(crate) end: Result<WorktreeEnd, String>,
}

impl AgentEnd {
    /// In the words of events.
    pub(crate) fn outcome(&self) -> ChildOutcome {
        match self {
            Self::Ended(Outcome::Done) => ChildOutcome::Done,
            Self::Ended(Outcome::Aborted) | Self::Stopped => ChildOutcome::Stopped,
            Self::Ended(Outcome::Failed(_) | Outcome::StoreFailed(_)) => ChildOutcome::Failed,
            Self::Ended(Outcome::Limit(_)) | Self::Overdue(_) => ChildOutcome::Limit,
        }
    }
}

/// The session of the sub-agent that a call sends. Known before it begins, so that it is found when the process dies. Models
/// repeat ids of calls: `nth` tells these apart.
pub(crate) fn agent_session(parent: &SessionId, run: &RunId, call: &CallId, nth: u32) -> SessionId {
    let name = format!("{parent}\n{run}\n{call}\n{nth}");
    let hash = sha256(name.as_bytes());
    let hex = quipu_protocol::hex(&hash[..16]);
    format!("{CHILD_SESSION}{hex}").into()
}

/// What the second node of a sub-agent's session tells of it.
pub(crate) fn agent_draft(
    order: &AgentOrder,
    depth: u32,
    parent: &SessionId,
    worktree: Option<&WorktreeInfo>,
) -> Draft {
    let mut data = serde_json::json!({
        "purpose": AGENT_PURPOSE, "depth": depth, "parent": parent, "run": order.run, "call": order.call,
    });
    if let Some(agent) = &order.agent {
        data["agent"] = agent.name.clone().into();
    }
    if !order.title.is_empty() {
        data["title"] = order.title.clone().into();
    }
    if let Some(worktree) = worktree {
        data[WORKTREE] =
            serde_json::json!({ "id": worktree.id, "branch": worktree.branch, "base": worktree.base });
    }
    let entry = serde_json::json!({ "type": "custom", "customType": "quipu.parent", "data": data });
    Draft::new(Entry::Meta(Json::from(&entry)))
}
