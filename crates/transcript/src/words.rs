//! What we say to the model in the user's place.

use quipu_protocol::{BashExecutionMessage, StopReason};

/// The result of a call that has none.
pub(crate) fn no_result(stop_reason: StopReason) -> &'static str {
    match stop_reason {
        StopReason::Length => {
            "This call was not run: the answer reached its output token limit, so the arguments may be cut off."
        }
        StopReason::Stop
        | StopReason::ToolUse
        | StopReason::Error
        | StopReason::Aborted
        | StopReason::Deferred
        | StopReason::Pending => {
            "This call was interrupted and has no result. It may have run in part: check the current state before you \
             repeat it."
        }
    }
}

/// What stands before an answer to nothing.
pub(crate) const LOST_BEGINNING: &str = "(The conversation before this point is not available.)";

/// What an abandoned branch held.
pub(crate) fn branch_summary(summary: &str) -> String {
    format!(
        "Another branch of this conversation was explored and left. In short:\n\n<summary>\n{summary}\n</summary>"
    )
}

/// What stood before a compaction.
pub(crate) fn compaction_summary(summary: &str) -> String {
    format!(
        "The conversation up to this point has been condensed. In short:\n\n<summary>\n{summary}\n</summary>"
    )
}

/// A command that the user ran by hand.
pub(crate) fn bash_execution(bash: &BashExecutionMessage) -> String {
    let BashExecutionMessage { command, output, exit_code, cancelled, truncated, full_output_path, .. } =
        bash;
    let mut text = format!("I ran this command:\n{}\n", fenced(command));
    if output.trim().is_empty() {
        text.push_str("It printed nothing.");
    } else {
        text.push_str(&format!("It printed:\n{}", fenced(output)));
    }
    match (cancelled, exit_code) {
        (true, _) => text.push_str("\nI stopped it before it ended."),
        (false, Some(code)) if *code != 0 => text.push_str(&format!("\nIts exit code was {code}.")),
        (false, _) => {}
    }
    if *truncated {
        text.push_str("\nThe output is truncated.");
        if let Some(path) = full_output_path {
            text.push_str(&format!(" The full output is in {path}."));
        }
    }
    text
}

/// A fenced block whose fence is longer than any inside.
fn fenced(text: &str) -> String {
    let mut longest = 2;
    let mut run = 0;
    for character in text.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    format!("{fence}\n{}\n{fence}", text.strip_suffix('\n').unwrap_or(text))
}
