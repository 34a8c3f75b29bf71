//! Calls that earlier versions began before their session could be opened, and that a dead process left as steps: nobody
//! begins such a call any more.

use quipu_protocol::{CallRecord, Entry, Json, NodeId, Notice, RunId, SessionId};
use quipu_store::{Step, StepCall, Store};

use crate::commit::Committer;
use crate::engine::OpenError;
use crate::resume::{Past, broken, sent_call};
use quipu_machine::{Draft, Plan, PlanOp, step_of};

/// Such calls, each as what is kept of it below `head`. That of `made`, a call of the session, became this call.
pub(crate) fn early_drafts(steps: &[Step], made: Option<&CallRecord>, head: Option<NodeId>) -> Vec<Draft> {
    const WHY: &str =
        "begun before the session could be opened, and not used: it may have been answered and charged";
    let early = steps.iter().filter(|step| step.call == StepCall::Early).filter_map(sent_call);
    let lost = early.filter(|(_, record, _)| made.is_none_or(|made| made.body != record.body));
    let draft = |(run, record, _): (RunId, CallRecord, _)| {
        // Where it was recorded there was no node of its lineage yet.
        let record = CallRecord { head: head.unwrap_or(record.head), ..record };
        let json =
            serde_json::json!({ "type": "custom", "customType": "quipu.early", "data": { "error": WHY } });
        Draft::of(Entry::Meta(Json::from(&json)), step_of(Some(run), vec![record]))
    };
    lost.map(draft).collect()
}

/// Begins a session for which a dead process left an early call, with a node of that; else it begins with its first
/// message, and nothing is done.
pub(crate) async fn settle_early(
    store: &dyn Store,
    committer: &mut Committer,
    id: &SessionId,
    past: &mut Past,
    first: &mut Vec<Draft>,
) -> Result<Option<Notice>, OpenError> {
    let steps = store.pending(id).await?.steps;
    let drafts = early_drafts(&steps, None, past.head);
    if drafts.is_empty() {
        return Ok(None);
    }
    let plan = Plan {
        session: id.clone(),
        expect: None,
        parent: past.head,
        carried: 0,
        leaves: Vec::new(),
        drafts: first.drain(..).chain(drafts).collect(),
        ops: steps.into_iter().map(|step| PlanOp::Forget { run: step.run, session: None }).collect(),
        jump: None,
        power: true,
    };
    let nodes = committer.commit(plan, None).await.map_err(|error| broken(id, error))?;
    past.head = nodes.last().copied().or(past.head);
    past.has_ref = true;
    past.last_time = committer.last_time();
    Ok(Some(Notice::Interrupted { calls: Vec::new(), model_call: true }))
}
