//! What `-p` writes of an answer to stdout.

use quipu_protocol::{AssistantMessage, Content, SessionProfile, ToolResultMessage};

/// The text of answers; of a session whose replies are commands, what it says in the end.
#[derive(Default)]
pub(crate) struct SpokenText {
    profile: Option<SessionProfile>,
    /// What the last command printed; empty for one that failed.
    output: String,
}

/// What the tool says of a command that printed nothing.
const NO_OUTPUT: &str = "(no output)";

impl SpokenText {
    pub(crate) fn of(profile: Option<SessionProfile>) -> Self {
        Self { profile, output: String::new() }
    }

    /// A command is over.
    pub(crate) fn observe(&mut self, result: &ToolResultMessage) {
        if self.profile.is_some() {
            let first = result.content.first().and_then(Content::as_text);
            let output = first.filter(|output| !result.is_error && *output != NO_OUTPUT);
            self.output = output.unwrap_or_default().to_owned();
        }
    }

    /// What is written of an answer.
    pub(crate) fn of_answer(&mut self, answer: &AssistantMessage) -> Vec<String> {
        match self.profile {
            None => answer.content.iter().filter_map(Content::as_text).map(str::to_owned).collect(),
            Some(SessionProfile::Shell) => match quipu::shell_answer(answer) {
                Some(said) if said.is_empty() => vec![std::mem::take(&mut self.output)],
                said => said.into_iter().collect(),
            },
        }
    }
}
