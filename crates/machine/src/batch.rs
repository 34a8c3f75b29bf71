//! The tool calls of one answer: which may start, which wait for which.

use std::sync::Arc;

use quipu_protocol::{AskId, Content, Json, Provenance, RunId, ToolCall, ToolResultMessage, Touches, UnixMs};

use super::finished_call::FinishedCall;
use super::hooked::Interventions;
use super::types::{CheckedCall, Draft, PendingToolJump};

/// One call of a batch. Named by its place, since models repeat call ids.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    pub(super) state: SlotState,
    pub(super) touches: Touches,
    /// Whether a person allowed it.
    pub(super) approved: bool,
    /// Whether `ToolEnded` was emitted.
    pub(super) emitted: bool,
    /// What hooks and policies did to the call.
    pub(super) interventions: Interventions,
}

#[derive(Debug)]
pub(super) enum SlotState {
    Asking(AskId),
    /// Waits for earlier calls that touch the same things.
    Ready,
    Running,
    Done(Box<FinishedCall>),
}

/// The calls of one answer, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) slots: Vec<Slot>,
    /// The call that takes the session elsewhere.
    pub(super) jump: Option<Box<PendingToolJump>>,
}

/// Calls of one answer that are run; those beyond are refused.
pub(super) const CALLS: usize = 256;
/// Calls that run at one time; the next one starts when one of them is done.
const PARALLEL: usize = 32;

impl Batch {
    /// The calls that can start now: no earlier unfinished call touches what they touch.
    pub(super) fn startable(&self) -> Vec<usize> {
        let waits = |at: usize| {
            self.slots[..at]
                .iter()
                .any(|earlier| !earlier.is_done() && conflict(&earlier.touches, &self.slots[at].touches))
        };
        let running = self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Running)).count();
        (0..self.slots.len())
            .filter(|&at| matches!(self.slots[at].state, SlotState::Ready) && !waits(at))
            .take(PARALLEL.saturating_sub(running))
            .collect()
    }

    /// Questions that are open, with the calls that wait for them.
    pub(super) fn open_asks(&self) -> impl Iterator<Item = (&AskId, &Slot)> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Asking(ask) => Some((ask, slot)),
            SlotState::Ready | SlotState::Running | SlotState::Done(_) => None,
        })
    }

    pub(super) fn all_done(&self) -> bool {
        self.slots.iter().all(Slot::is_done)
    }

    /// Whether every call says that the model need not go on.
    pub(super) fn terminates(&self) -> bool {
        self.slots.iter().all(|slot| matches!(&slot.state, SlotState::Done(done) if done.terminate))
    }

    pub(super) fn asking(&self, ask: &AskId) -> Option<usize> {
        self.slots.iter().position(|slot| matches!(&slot.state, SlotState::Asking(open) if open == ask))
    }
}

impl Slot {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, SlotState::Done(_))
    }

    /// Whether it is done and changed files.
    pub(super) fn changed_files(&self) -> bool {
        matches!(&self.state, SlotState::Done(done) if !done.files.is_empty() || !done.note.is_empty())
    }

    /// The entry of its result.
    pub(super) fn draft(&self, run: &RunId) -> Option<Draft> {
        match &self.state {
            SlotState::Done(done) => Some(done.draft(run)),
            SlotState::Asking(_) | SlotState::Ready | SlotState::Running => None,
        }
    }
}

/// Whether two calls must keep their order.
fn conflict(a: &Touches, b: &Touches) -> bool {
    use Touches::{Anything, Input, Nothing, Reads, Session, Writes};
    let meet = |a: &[std::path::PathBuf], b: &[std::path::PathBuf]| a.iter().any(|path| b.contains(path));
    match (a, b) {
        (Session, _) | (_, Session) => true,
        (Nothing, _) | (_, Nothing) | (Anything, Anything) | (Reads(_), Reads(_)) => false,
        (Anything, Input(_)) | (Input(_), Anything) => false,
        (Input(a), Input(b)) => a.id == b.id,
        (Anything | Input(_), Reads(_) | Writes(_)) | (Reads(_) | Writes(_), Anything | Input(_)) => true,
        (Reads(a), Writes(b)) | (Writes(a), Reads(b)) | (Writes(a), Writes(b)) => meet(a, b),
    }
}

/// Calls of an answer that is still being committed, by place. Empty when none was begun.
#[derive(Debug, Default)]
pub(super) struct EarlyCalls(Vec<EarlyCall>);

#[derive(Debug)]
enum EarlyCall {
    Running,
    Done(Box<FinishedCall>),
    /// The policy let it not begin after all.
    Held,
}

impl EarlyCalls {
    /// Begins the calls when all of them only read: whether the answer is kept makes no difference to the world then.
    pub(super) fn begin(&mut self, calls: &[ToolCall], prepared: &[CheckedCall]) {
        let reads = |one: &CheckedCall| matches!(one, CheckedCall::Ready { touches: Touches::Reads(_), .. });
        if prepared.len() == calls.len() && calls.len() <= PARALLEL && prepared.iter().all(reads) {
            self.0.resize_with(calls.len(), || EarlyCall::Running);
        }
    }

    pub(super) fn done(&mut self, slot: usize, done: FinishedCall) {
        if let Some(place @ EarlyCall::Running) = self.0.get_mut(slot) {
            *place = EarlyCall::Done(Box::new(done));
        }
    }

    /// It was not begun, and is judged again when the answer is kept.
    pub(super) fn hold(&mut self, slot: usize) {
        if let Some(place @ EarlyCall::Running) = self.0.get_mut(slot) {
            *place = EarlyCall::Held;
        }
    }

    /// The calls that run.
    pub(super) fn running(&self) -> impl Iterator<Item = usize> + '_ {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, begun)| matches!(begun, EarlyCall::Running))
            .map(|(slot, _)| slot)
    }

    /// How far a call is, if it was begun.
    pub(super) fn take(&mut self, slot: usize) -> Option<SlotState> {
        match std::mem::replace(self.0.get_mut(slot)?, EarlyCall::Held) {
            EarlyCall::Running => Some(SlotState::Running),
            EarlyCall::Done(done) => Some(SlotState::Done(done)),
            EarlyCall::Held => None,
        }
    }
}

/// A result that no tool made.
pub(super) fn refusal(
    call: &ToolCall,
    text: String,
    interventions: Interventions,
    now: UnixMs,
) -> FinishedCall {
    FinishedCall {
        result: ToolResultMessage {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: vec![Content::text(text)],
            details: Some(Json::object()),
            usage: None,
            is_error: true,
            timestamp: now,
        },
        interventions,
        provenance: Provenance::quipu(),
        added: Vec::new(),
        started: now,
        duration_ms: 0,
        files: Vec::new(),
        states: Vec::new(),
        note: Box::default(),
        terminate: false,
        jump: None,
    }
}

/// The key of a call in the table of steps.
pub fn step_key(turn: u32, slot: usize) -> String {
    format!("{turn}.{slot}")
}

/// The model is told this when its call was stopped before it ran.
pub(super) const ABORTED: &str = "Operation aborted";

/// The model is told this when checking its call never came to an end.
pub(super) const NOT_PREPARED: &str = "The call was not run: the check before it did not finish.";

/// The model is told this when it made more calls at once than are run.
pub(super) fn too_many() -> String {
    format!("The call was not run: an answer can make at most {CALLS} calls. Repeat it in the next answer.")
}

/// The model is told this when nobody could be asked.
pub(super) fn nobody_to_ask(question: &str) -> String {
    format!(
        "This call needs a person's permission and nobody is here to give it, so it was not run. The question: {question}"
    )
}

/// The model is told this when a person said no.
pub(super) fn denied(reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("The user did not allow this call: {reason}"),
        None => "The user did not allow this call.".into(),
    }
}

/// The model is told this when its answer was cut.
pub(super) fn cut_off(name: &str) -> String {
    format!(
        "Tool call \"{name}\" was not executed: the response hit the output token limit, so its arguments may be \
         truncated. Re-issue the tool call with complete arguments."
    )
}

/// The subject of a question, shared with its event.
pub(super) type Subject = Arc<str>;

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(touches: Touches) -> Slot {
        let call = ToolCall {
            id: "c".into(),
            name: "t".into(),
            arguments: Json::object(),
            thought_signature: None,
            namespace: None,
        };
        Slot {
            call,
            state: SlotState::Ready,
            touches,
            approved: false,
            emitted: false,
            interventions: Interventions::default(),
        }
    }

    #[test]
    fn order_is_kept_only_where_calls_meet() {
        let read = |path: &str| Touches::Reads(vec![path.into()]);
        let write = |path: &str| Touches::Writes(vec![path.into()]);
        let check = |touches: Vec<Touches>, expect: &[usize]| {
            let batch = Batch { slots: touches.into_iter().map(slot).collect(), jump: None };
            assert_eq!(batch.startable(), expect);
        };
        check(vec![read("a"), read("a"), write("a"), read("a")], &[0, 1]);
        check(vec![write("a"), write("b"), read("a")], &[0, 1]);
        check(vec![Touches::Anything, Touches::Anything, read("a")], &[0, 1]);
        check(vec![read("a"), Touches::Anything, Touches::Nothing], &[0, 2]);
        check(vec![Touches::Nothing, read("a"), Touches::Session, Touches::Nothing], &[0, 1]);
        check(vec![Touches::Session, Touches::Nothing, Touches::Session], &[0]);
    }

    #[test]
    fn a_finished_call_frees_those_behind_it() {
        let mut batch = Batch {
            slots: vec![slot(Touches::Writes(vec!["a".into()])), slot(Touches::Reads(vec!["a".into()]))],
            jump: None,
        };
        assert_eq!(batch.startable(), [0]);
        batch.slots[0].state = SlotState::Running;
        assert!(batch.startable().is_empty());
        let refused = refusal(&batch.slots[0].call, String::new(), Interventions::default(), 0);
        batch.slots[0].state = SlotState::Done(Box::new(refused));
        assert_eq!(batch.startable(), [1]);
    }
}
