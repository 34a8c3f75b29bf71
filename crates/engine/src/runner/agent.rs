//! A sub-agent that the tool `task` wants: what is ordered, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use quipu_dag::sha256;
use quipu_machine::Draft;
use quipu_protocol::{CallId, Entry, Json, Outcome, RunId, SessionId};
use quipu_store::CHILD_SESSION;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::agents::{AGENT_PURPOSE, AgentDefinition, AgentLimits};

/// Calls of one run with the same id that are told apart.
pub(crate) const SAME_CALLS: u32 = 64;

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
    pub(crate) end: AgentEnd,
    /// The text of its last answer, sealed.
    pub(crate) text: String,
    pub(crate) turns: u32,
    /// Calls of tools.
    pub(crate) calls: u32,
    /// US dollars.
    pub(crate) cost: f64,
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
pub(crate) fn agent_draft(order: &AgentOrder, depth: u32, parent: &SessionId) -> Draft {
    let mut data = serde_json::json!({
        "purpose": AGENT_PURPOSE, "depth": depth, "parent": parent, "run": order.run, "call": order.call,
    });
    if let Some(agent) = &order.agent {
        data["agent"] = agent.name.clone().into();
    }
    if !order.title.is_empty() {
        data["title"] = order.title.clone().into();
    }
    let entry = serde_json::json!({ "type": "custom", "customType": "quipu.parent", "data": data });
    Draft::new(Entry::Meta(Json::from(&entry)))
}
