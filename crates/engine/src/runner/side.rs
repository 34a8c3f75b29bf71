//! A call beside the conversation of a session: recorded in its table of steps before it is sent, a node when it is over.

use std::sync::Arc;

use quipu_machine::{Draft, PlanOp, RunMoney, SideCall, step_of};
use quipu_protocol::{
    CallRecord, Entry, Json, Message, Model, ModelRequest, NodeId, Outcome, RunId, SessionId,
};
use quipu_providers::clamp_level;
use quipu_store::{Commit, Op, ReserveId, Step};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::agent::AgentReport;
use super::once::{answered, unsent};
use super::{CallAnswer, CallOrder, RunnerError, Terms};
use crate::agents::AGENT_PURPOSE;
use crate::calls::money::nano;
use crate::calls::{CallJob, CallPurpose, CallResult, Caller, SideEnd, SideNote, ended_row, side_call};

/// The type of the entry that says the end of a child session.
const CHILD: &str = "quipu.child";
/// What is kept of a call that was lost with its process.
const LOST: &str = "the process ended before the answer arrived; it may have been sent and charged";

/// A call to make beside a conversation.
pub(crate) struct SideJob {
    /// Makes this call alone.
    pub(crate) caller: Caller,
    pub(crate) session: SessionId,
    /// Where the session stands.
    pub(crate) head: NodeId,
    pub(crate) row: RunId,
    pub(crate) model: Arc<Model>,
    pub(crate) order: CallOrder,
    /// US dollars at most.
    pub(crate) budget: Option<f64>,
    pub(crate) cancel: CancellationToken,
}

/// What came of it.
pub(crate) struct SideResult {
    /// For the machine.
    pub(crate) call: SideCall,
    /// For whoever asked.
    pub(crate) answer: Result<CallAnswer, RunnerError>,
}

impl SideJob {
    pub(crate) async fn make(self) -> SideResult {
        let Self { caller, session, head, row, model, order, budget, cancel } = self;
        let CallOrder { terms, system, messages } = order;
        let mut note = SideNote { purpose: terms.purpose.word(), run: terms.run.clone(), end: None };
        let (daily, charged) = (terms.daily, terms.charged.clone());
        let request = request_of(&model, &terms, system, messages);
        let asked = CallJob {
            session: session.clone(),
            run: row.clone(),
            head,
            request: Arc::new(request),
            recorded: None,
            system: None,
            purpose: CallPurpose::Side(Arc::new(note.clone())),
            summary: None,
            money: budget.map(|left| RunMoney { left, limit: left }),
            daily,
            is_outdated: None,
            tell: None,
            hooked: None,
            responses: None,
            cancel,
        };
        let (made, late) = caller.once_until(asked, terms.until).await;
        let late = late.then_some(terms.after);
        let mut call =
            SideCall { id: row.clone(), run: terms.run, cost: 0.0, drafts: Vec::new(), ops: Vec::new() };
        let mut made = match made {
            Ok(made) => made,
            Err(outcome) => {
                let error = match outcome {
                    // It may have been recorded before that.
                    Outcome::Failed(error) => {
                        call.ops.push(PlanOp::Forget { run: row, session: Some(session) });
                        Outcome::Failed(error)
                    }
                    outcome => outcome,
                };
                return SideResult { call, answer: Err(unsent(error, late)) };
            }
        };
        let (answer, mut end) = answered(&caller, &mut made, &session, late);
        end.reserved = caller.purse.take_over();
        let CallResult { end: call_end, record, money } = made;
        if let Some(mut record) = record {
            call.ops.extend(end.releases());
            let (reported, reserved) = (end.usage.cost.total, end.reserved.clone());
            call.cost = reported + money.assumed;
            charged.set(call.cost);
            record.attempts = call_end.attempts;
            note.end = Some(end);
            // Its node may have to wait long. Should this fail, the row tells that it was sent, and all that is reserved counts.
            let mut ops = vec![ended_row(&session, &row, &record, &note)];
            // No node tells of what it cost yet: the day does.
            ops.extend(reserved.into_iter().map(|(id, assumed)| {
                let charged = nano(reported).saturating_add(assumed);
                Op::Release { id: ReserveId(id), charged }
            }));
            let ended = Commit { ops, ..Commit::default() };
            drop(caller.store.commit(ended).await);
            call.drafts.push(call_draft(record, &note));
            call.ops.push(PlanOp::Forget { run: row, session: Some(session) });
        }
        SideResult { call, answer }
    }
}

/// What is sent.
pub(crate) fn request_of(
    model: &Arc<Model>,
    terms: &Terms,
    system: Arc<str>,
    messages: Arc<Vec<Arc<Message>>>,
) -> ModelRequest {
    let most = if model.max_tokens == 0 { u64::MAX } else { model.max_tokens };
    ModelRequest {
        model: model.clone(),
        system,
        tools: Arc::new([]),
        messages,
        thinking: clamp_level(model, terms.thinking),
        max_tokens: Some(terms.max_tokens.min(most)),
        // It shares no beginning with the session's own requests.
        session: None,
        stable_system: None,
    }
}

/// What is kept of a call beside the conversation.
fn call_draft(record: CallRecord, note: &SideNote) -> Draft {
    let SideNote { purpose, run, end } = note;
    let SideEnd { usage, answer, error, .. } = end.clone().unwrap_or_default();
    let mut data = serde_json::json!({ "purpose": purpose, "usage": usage });
    if let Some(answer) = answer {
        data["answer"] = serde_json::json!(answer);
    }
    if let Some(error) = error {
        data["error"] = error.into();
    }
    let entry = serde_json::json!({ "type": "custom", "customType": "quipu.call", "data": data });
    let duration_ms = record.duration_ms;
    let mut step = step_of(run.clone(), vec![record]);
    step.duration_ms = duration_ms;
    Draft::of(Entry::Meta(Json::from(&entry)), step)
}

/// A call beside the conversation that a dead process left.
pub(crate) struct LeftCall {
    /// What is kept of it.
    pub(crate) draft: Draft,
    /// Its answer is lost.
    pub(crate) is_lost: bool,
    /// Done in the transaction that keeps it.
    pub(crate) ops: Vec<PlanOp>,
}

/// What a dead process left of calls beside the conversation.
pub(crate) fn left_calls(steps: &[Step]) -> Vec<LeftCall> {
    let left = steps.iter().filter_map(side_call).map(|(record, mut note)| {
        let is_lost = note.end.is_none();
        let lost = || SideEnd { error: Some(LOST.into()), ..SideEnd::default() };
        let ops = note.end.get_or_insert_with(lost).releases().collect();
        LeftCall { draft: call_draft(record, &note), is_lost, ops }
    });
    left.collect()
}

/// What the node of a session tells of a child that it had.
pub(crate) fn child_draft(purpose: &str, run: Option<RunId>, child: &SessionId, cost: f64) -> Draft {
    let data = serde_json::json!({ "purpose": purpose, "session": child, "cost": cost });
    let entry = serde_json::json!({ "type": "custom", "customType": CHILD, "data": data });
    Draft::of(Entry::Meta(Json::from(&entry)), step_of(run, Vec::new()))
}

/// The same for a sub-agent, with where its session stood at its end: what it changed until then belongs to the call.
pub(crate) fn ended_draft(run: Option<RunId>, report: &AgentReport) -> Draft {
    let AgentReport { session, head, cost, .. } = report;
    let data =
        serde_json::json!({ "purpose": AGENT_PURPOSE, "session": session, "cost": cost, "head": head });
    let entry = serde_json::json!({ "type": "custom", "customType": CHILD, "data": data });
    Draft::of(Entry::Meta(Json::from(&entry)), step_of(run, Vec::new()))
}

/// What a node says of a sub-agent that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedChild {
    pub(crate) session: SessionId,
    /// Where it stood; unknown for older ones.
    pub(crate) head: Option<NodeId>,
}

/// The child session that an entry says the end of.
pub(crate) fn ended_child(entry: &Entry) -> Option<EndedChild> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ChildEntry {
        custom_type: String,
        data: ChildData,
    }
    #[derive(Deserialize)]
    struct ChildData {
        session: SessionId,
        #[serde(default)]
        head: Option<NodeId>,
    }
    let Entry::Meta(json) = entry else { return None };
    let ChildEntry { custom_type, data } =
        Some(json).filter(|json| json.get().contains(CHILD))?.read().ok()?;
    (custom_type == CHILD).then_some(EndedChild { session: data.session, head: data.head })
}

/// Whether a node only tells of a call beside the conversation, or of a child session, and is no message and no move.
pub(crate) fn is_beside(entry: &Entry) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "customType")]
        kind: String,
    }
    let Entry::Meta(json) = entry else { return false };
    // Most are something else: recognized without reading them.
    json.get().contains("\"quipu.c")
        && json.read::<Kind>().is_ok_and(|entry| matches!(entry.kind.as_str(), "quipu.call" | "quipu.child"))
}

/// What the second node of a child session tells of it.
pub(crate) fn parent_draft(purpose: &str, depth: u32, parent: Option<&SessionId>) -> Draft {
    let mut data = serde_json::json!({ "purpose": purpose, "depth": depth });
    if let Some(parent) = parent {
        data["parent"] = serde_json::json!(parent);
    }
    let entry = serde_json::json!({ "type": "custom", "customType": "quipu.parent", "data": data });
    Draft::new(Entry::Meta(Json::from(&entry)))
}
