//! Commands with a slash.

use super::{Effect, State};
use crate::commands::COMMANDS;
use crate::{Action, SlashCommand};

impl State {
    /// Does what a command says, or holds it until the session is there.
    pub(super) fn slash(&mut self, command: &SlashCommand, arguments: &str, effects: &mut Vec<Effect>) {
        if self.opening.is_away() && command.of_session {
            // It is for the session that is being opened, or for where that goes.
            let what = if self.opening.under_way { "is being opened" } else { "is moving to another node" };
            self.hint = Some(format!("The session {what}; /{} runs after that", command.name));
            self.opening.held.push_back((*command, arguments.to_owned()));
            return;
        }
        (command.run)(self, arguments, effects);
    }

    /// A command by the key that does the same.
    pub(super) fn run_key(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if let Some(command) = COMMANDS.iter().find(|command| command.action == Some(action)) {
            self.slash(command, "", effects);
        }
    }

    /// There is nothing yet that the command could be about.
    pub(crate) fn hint_at_no_session(&mut self) {
        self.note("This session has no messages yet");
    }
}
