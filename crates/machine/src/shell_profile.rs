//! The profile `shell`: an answer is read as one call of the shell's tool, and everything else goes on as with any call.

use quipu_protocol::{
    AddedBlock, AssistantMessage, Content, Json, ModelError, ModelErrorKind, Provenance, SessionProfile,
    StopReason, ToolCall,
};
use quipu_transcript::{SHELL_TOOL, ShellReply, shell_hint};

use super::calling::is_paused;
use super::{FinishedCall, Machine, Run};

/// Replies in a row that cannot be run; the run ends with the next one.
const MOST_UNUSABLE: u32 = 3;

impl Machine {
    fn is_shell(&self) -> bool {
        self.prefix.epoch.profile == Some(SessionProfile::Shell)
    }

    /// Puts the call behind an answer that its text makes. Gives what the model is told in place of a result, where there is
    /// nothing to run; `error` is set where that happened too often.
    pub(super) fn read_reply(
        &mut self,
        answer: &mut AssistantMessage,
        error: &mut Option<ModelError>,
    ) -> Option<String> {
        let is_ended = match answer.stop_reason {
            StopReason::Stop | StopReason::ToolUse | StopReason::Length => true,
            StopReason::Error | StopReason::Aborted | StopReason::Deferred | StopReason::Pending => false,
        };
        if !self.is_shell() || error.is_some() || !is_ended || is_paused(answer) {
            return None;
        }
        let is_cut = answer.stop_reason == StopReason::Length;
        let reply = ShellReply::of_answer(answer, is_cut);
        let Some(run) = &mut self.run else { return None };
        let (arguments, refused) = match reply {
            ShellReply::Exit(_) => {
                run.unusable = 0;
                return None;
            }
            ShellReply::Command(arguments) => {
                run.unusable = 0;
                (arguments, None)
            }
            ShellReply::Unusable(_) if run.unusable >= MOST_UNUSABLE => {
                let why = format!(
                    "the model replied {} times in a row with nothing that can be run as a command",
                    run.unusable + 1
                );
                *error = Some(ModelError::new(ModelErrorKind::Malformed, why));
                return None;
            }
            ShellReply::Unusable(why) => {
                run.unusable += 1;
                if answer.tool_calls().next().is_some() {
                    return Some(why);
                }
                (Json::from(serde_json::json!({ "command": answer.text() })), Some(why))
            }
        };
        answer.content.push(Content::ToolCall(ToolCall {
            id: call_id(run).into(),
            name: SHELL_TOOL.to_owned(),
            arguments,
            thought_signature: None,
            namespace: None,
        }));
        if !is_cut {
            answer.stop_reason = StopReason::ToolUse;
        }
        refused
    }

    /// Says how to wait longer behind the result of a command that was not waited for.
    pub(super) fn hint_at_patience(&self, done: &mut FinishedCall) {
        if !self.is_shell() {
            return;
        }
        if let Some(hint) = shell_hint(&done.result) {
            done.added.push(AddedBlock::behind(&done.result.content, Provenance::quipu()));
            done.result.content.push(Content::text(hint));
        }
    }
}

/// The id of the call that the answer of this turn makes.
fn call_id(run: &Run) -> String {
    let letters: Vec<char> = run.id.as_str().chars().filter(char::is_ascii_alphanumeric).collect();
    let end: String = letters[letters.len().saturating_sub(12)..].iter().collect();
    format!("shell_{end}_{}", run.turn)
}
