//! A row of the table of slash commands.

use quipu_protocol::CommandSpec;

use crate::{Action, Effect, State};

/// Does what a command says, with what follows its name.
pub type RunCommand = fn(&mut State, &str, &mut Vec<Effect>);

/// A command of the terminal: its name, its help and what it does.
#[derive(Debug, Clone, Copy)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What may follow; empty for nothing.
    pub arguments: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Whether what may follow is known, and offered.
    pub completes: bool,
    /// Whether what it comes to depends on the session that is open: it waits for one that is being opened or moved.
    pub of_session: bool,
    /// The key that does the same as the command alone.
    pub action: Option<Action>,
    /// Does it.
    pub run: RunCommand,
}

impl SlashCommand {
    /// One that holds in any session, and whose arguments are not offered.
    #[must_use]
    pub const fn new(
        name: &'static str,
        arguments: &'static str,
        help: &'static str,
        run: RunCommand,
    ) -> Self {
        Self { name, arguments, help, completes: false, of_session: false, action: None, run }
    }

    /// The same; its arguments are offered.
    #[must_use]
    pub const fn completes(self) -> Self {
        Self { completes: true, ..self }
    }

    /// The same; it waits for the session.
    #[must_use]
    pub const fn of_session(self) -> Self {
        Self { of_session: true, ..self }
    }

    /// The same, with a key that does it.
    #[must_use]
    pub const fn with_key(self, action: Action) -> Self {
        Self { action: Some(action), ..self }
    }
}

/// Names are told apart; where a function stands says nothing.
impl PartialEq for SlashCommand {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SlashCommand {}

/// What a command does, and whose it is where it is not the terminal's.
pub(crate) fn with_source(spec: &CommandSpec) -> String {
    if spec.source == quipu_host::commands::BUILT_IN {
        spec.help.clone()
    } else {
        format!("{} ({})", spec.help, spec.source)
    }
}
