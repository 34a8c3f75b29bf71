//! How it is marked that a session went elsewhere with a message to itself, whose answer is waited for.

use quipu_protocol::{Json, NodeId};
use quipu_store::OpenJump;

/// The name of the tool that takes the session to another point.
pub const TRAVEL_TOOL: &str = "tobe";
/// Why a ref moved that went somewhere with a message: stands in the log of refs.
pub(crate) const TOBE: &str = "tobe";
/// The stage of a jump whose message to itself waits for its answer.
const WAITS: &str = "waits";

/// A jump that is over but for the answer to the message at `head`.
pub(crate) fn waits(head: NodeId) -> OpenJump {
    OpenJump { stage: WAITS.into(), plan: Json::from(serde_json::json!({ "carryover": head })) }
}

/// The message whose answer a jump waits for.
pub(crate) fn awaited(jump: &OpenJump) -> Option<NodeId> {
    #[derive(serde::Deserialize)]
    struct Plan {
        carryover: NodeId,
    }
    // Whatever else is to be done.
    jump.plan.read::<Plan>().ok().map(|plan| plan.carryover)
}
