//! Calls that earlier versions began before their session could be opened, and that a dead process left as steps: nobody
//! begins such a call any more.

use quipu_protocol::{Notice, SessionId};
use quipu_store::Graph;

use crate::commit::Committer;
use crate::error::OpenError;
use crate::resume::{Past, broken, early_drafts};
use quipu_machine::{Draft, Plan, PlanOp};

/// Begins a session for which a dead process left an early call, with a node of that; else it begins with its first
/// message, and nothing is done.
pub(crate) async fn settle_early(
    store: &dyn Graph,
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
        drafts: first.drain(..).chain(drafts).collect(),
        ops: steps.into_iter().map(|step| PlanOp::Forget { run: step.run, session: None }).collect(),
        power: true,
    };
    let nodes = committer.commit(plan, None).await.map_err(|error| broken(id, error))?;
    past.head = nodes.last().copied().or(past.head);
    past.has_ref = true;
    past.last_time = committer.last_time();
    Ok(Some(Notice::Interrupted { calls: Vec::new(), model_call: true }))
}
