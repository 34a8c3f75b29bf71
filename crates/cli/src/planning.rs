//! Plans in a run without a person.

use quipu::{PLAN_TOOL, PlanOutcome, SubmittedPlan};
use quipu_protocol::ToolResultMessage;

/// The plan of a result that nobody answered: it is the answer of the run.
pub(crate) fn unanswered(result: &ToolResultMessage) -> Option<String> {
    let plan = SubmittedPlan::of_details(result.details.as_ref().filter(|_| result.tool_name == PLAN_TOOL)?)?;
    (plan.outcome == PlanOutcome::Unanswered).then_some(plan.text)
}
