//! Calls beside the conversation, of hooks and of sources: their rows, and what they are made with.

use std::sync::Arc;

use quipu_machine::PlanOp;
use quipu_protocol::{AssistantMessage, CallRecord, RunId, SessionId, Usage};
use quipu_providers::Provider;
use quipu_store::{Op, Step, StepCall, StepState};
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::money::Purse;
use super::{Caller, SentRow};

/// In the table of steps, the key of a call beside the conversation; it is a run of its own there, with no other step. No call
/// of a tool has it: those name their place.
const SIDE: &str = "runner";

/// A call beside the conversation, as its row tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SideNote {
    /// What it is for.
    pub(crate) purpose: Arc<str>,
    /// The run that pays for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RunId>,
    /// What came of it, where that is known and no node yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<SideEnd>,
}

/// What came of a call beside the conversation, sealed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SideEnd {
    pub(crate) usage: Usage,
    /// `None` where it failed before any answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<AssistantMessage>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// What is reserved for it until it is a node, and what it may have cost besides, in billionths of a US dollar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reserved: Vec<(String, i64)>,
}

impl SideEnd {
    /// What is done in the transaction that makes it a node.
    pub(crate) fn releases(&self) -> impl Iterator<Item = PlanOp> + '_ {
        let release =
            |(id, charged): &(String, i64)| PlanOp::Release { id: id.as_str().into(), charged: *charged };
        self.reserved.iter().map(release)
    }
}

/// How the row of a call names its place.
pub(super) fn key_of(note: Option<&SideNote>) -> StepCall {
    note.map_or(StepCall::Model, |_| StepCall::Tool(SIDE.into()))
}

/// Whether it is the row of a call beside the conversation that is over, so that nothing is open.
pub(crate) fn is_over(step: &Step) -> bool {
    step.state == StepState::Done && step.call == StepCall::Tool(SIDE.into())
}

/// A call beside the conversation that a dead process left, from its row.
pub(crate) fn side_call(step: &Step) -> Option<(CallRecord, SideNote)> {
    #[derive(Deserialize)]
    struct Row {
        #[serde(flatten)]
        record: CallRecord,
        side: SideNote,
    }
    if step.call != StepCall::Tool(SIDE.into()) {
        return None;
    }
    let Row { record, side } = serde_json::from_slice(step.data.as_deref()?).ok()?;
    Some((record, side))
}

/// The row of one that is over, and no node yet.
pub(crate) fn ended_row(session: &SessionId, row: &RunId, record: &CallRecord, note: &SideNote) -> Op {
    let data = serde_json::to_vec(&SentRow { record, summary: None, side: Some(note) }).ok();
    let step = Step { run: row.clone(), call: key_of(Some(note)), state: StepState::Done, data };
    Op::StepPut { session: session.clone(), step }
}

impl Caller {
    /// Makes calls beside those of the session: with reservations and bodies of their own.
    pub(crate) fn beside(&self, provider: Arc<dyn Provider>) -> Self {
        Self {
            provider: provider.into(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            sealer: self.sealer.clone(),
            learn: self.learn.clone(),
            purse: Arc::new(self.purse.beside()),
            retries: self.retries.clone(),
            bodies: Bodies::default().into(),
            unanswered: None.into(),
        }
    }

    /// The same for calls of the session itself that another provider carries.
    pub(crate) fn carried_by(&self, provider: Arc<dyn Provider>) -> Self {
        Self { purse: self.purse.clone(), ..self.beside(provider) }
    }
}

impl Purse {
    /// What is reserved for calls that are over, to be released by the commit of their nodes.
    pub(crate) fn take_over(&self) -> Vec<(String, i64)> {
        let over = self.over();
        self.released(&over);
        over.into_iter().map(|(id, charged)| (id.0, charged)).collect()
    }
}
