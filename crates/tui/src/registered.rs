//! Commands that come from elsewhere: what the host's registry holds beside the terminal's own table.

use quipu_host::{CommandCall, CommandError};
use quipu_protocol::{CommandSpec, CommandValue, QueueMode, UserInput};

use crate::command::with_source;
use crate::commands::{self, CommandLine};
use crate::editor::CommandWord;
use crate::request::Context;
use crate::{Effect, Request, SlashCommand, State, render};

/// The command that a line names.
pub(crate) enum CommandMatch {
    /// One of the terminal's own.
    Own(&'static SlashCommand),
    /// Another.
    Other(String),
}

impl State {
    /// Offers these commands: the terminal's own and others, in this order.
    pub fn offer_commands(&mut self, specs: Vec<CommandSpec>) {
        let word = |spec: &CommandSpec| CommandWord {
            name: spec.name.clone(),
            arguments: spec.arguments.clone(),
            help: with_source(spec),
            completes: spec.completes,
        };
        self.editor.set_commands(specs.iter().map(word).collect());
        self.commands = specs;
    }

    /// The command that a line begins with, and what follows it, as [`commands::parse`] gives it; others than the
    /// terminal's own are among them.
    pub(crate) fn command_of<'a>(&self, line: &'a str) -> Option<Result<(CommandMatch, &'a str), &'a str>> {
        let CommandLine { name, arguments } = commands::written(line)?;
        if let Some(own) = commands::own(name) {
            return Some(Ok((CommandMatch::Own(own), arguments)));
        }
        if self.commands.iter().any(|spec| spec.name == name) {
            return Some(Ok((CommandMatch::Other(name.to_owned()), arguments)));
        }
        // What could be no name of the terminal's is said to the model when nobody has it.
        commands::could_be_own(name).then_some(Err(name))
    }

    /// The name and arguments of a text that may be a command of somebody else, which is not known before a session is open.
    pub(crate) fn other_line(text: &str) -> Option<(String, String)> {
        let CommandLine { name, arguments } = commands::written(text)?;
        commands::own(name).is_none().then(|| (name.to_owned(), arguments.to_owned()))
    }

    /// Runs the command of a text that waited for the session; what is no command is said to the model.
    pub(crate) fn run_or_say(
        (name, arguments): (String, String),
        input: UserInput,
        text: String,
        when: QueueMode,
        effects: &mut Vec<Effect>,
    ) {
        let work = move |Context { host, session, .. }: Context| async move {
            let session = session.map(|session| (*session).clone());
            host.commands().run(&name, CommandCall { arguments, session }).await
        };
        let then = move |state: &mut Self, value, effects: &mut Vec<Effect>| match value {
            Err(CommandError::Unknown { .. } | CommandError::OfTerminal { .. }) => {
                state.say_input(input, text, when, effects);
            }
            value => ran(state, value, effects),
        };
        effects.push(Effect::Ask(Request::new("command", work, then)));
    }

    /// Runs a command that is none of the terminal's own.
    pub(crate) fn run_other(name: String, arguments: &str, effects: &mut Vec<Effect>) {
        let arguments = arguments.to_owned();
        let work = move |Context { host, session, .. }: Context| async move {
            let session = session.map(|session| (*session).clone());
            host.commands().run(&name, CommandCall { arguments, session }).await
        };
        effects.push(Effect::Ask(Request::new("command", work, ran)));
    }
}

fn ran(state: &mut State, value: Result<CommandValue, CommandError>, effects: &mut Vec<Effect>) {
    match value {
        Ok(CommandValue::Prompt { input }) => {
            let text = input.text();
            state.say_input(input, text, QueueMode::Now, effects);
        }
        Ok(CommandValue::Text { text }) => {
            let lines = render::plain(text.trim_end(), state.size.columns, state.theme.text, usize::MAX);
            state.ready(render::apart(lines));
        }
        Ok(CommandValue::Done) => {}
        Err(error) => state.failed(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use quipu_host::{CommandHandler, CommandRegistry, Failure};

    use super::*;
    use crate::fake_host::{FakeHost, carry_out};
    use crate::{Bindings, KeyCode, Line, Size, Theme, UiEvent};

    /// Says what follows its name; has it said to the model when that begins with a question mark.
    struct Echo;

    impl CommandHandler for Echo {
        fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
            Box::pin(async move {
                match call.arguments.strip_prefix('?') {
                    _ if call.arguments.is_empty() => Err(Failure::request("nothing was said")),
                    Some(asked) => Ok(CommandValue::Prompt { input: asked.into() }),
                    None => Ok(CommandValue::Text { text: format!("echo\u{1b}[2J of {}", call.arguments) }),
                }
            })
        }
    }

    fn host() -> Arc<FakeHost> {
        let commands = CommandRegistry::default();
        commands.set_built_in(commands::specs());
        let spec = CommandSpec::new("test:echo_2", "say it again", "a test").with_arguments("[TEXT]");
        commands.register(spec, Arc::new(Echo)).unwrap();
        assert!(commands.register(CommandSpec::new("tree", "mine", "a test"), Arc::new(Echo)).is_err());
        FakeHost { commands, ..FakeHost::default() }.into()
    }

    fn state(host: &FakeHost, linear: bool) -> State {
        let editor = crate::editor::Editor::default();
        let size = Size { columns: 100, rows: 40 };
        let mut state = State::new(size, Theme::plain(), Bindings::default(), editor, 0);
        state.offer_commands(host.commands.list());
        if linear { state.linear() } else { state }
    }

    fn printed(state: &mut State) -> String {
        state.take_printed().iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn command_from_elsewhere_is_listed_and_run() {
        for linear in [false, true] {
            let host = host();
            let mut state = state(&host, linear);
            let say = |state: &mut State, text: &str| {
                let effects = if linear {
                    state.on(UiEvent::Line(text.into()), 0)
                } else {
                    state.on(UiEvent::Paste(text.into()), 0);
                    state.on(UiEvent::Key(KeyCode::Enter.into()), 0)
                };
                carry_out(&host, state, effects);
                printed(state)
            };
            let help = say(&mut state, "/help all");
            assert!(help.contains("/test:echo_2 [TEXT]") && help.contains("Say it again (a test)"), "{help}");
            assert_eq!(help.matches("/tree").count(), 1);
            let echoed = say(&mut state, "/test:echo_2 me");
            assert!(echoed.contains("of me") && !echoed.contains('\u{1b}'), "{echoed:?}");
            let failed = say(&mut state, "/test:echo_2");
            assert!(failed.contains("nothing was said"), "{failed}");
            say(&mut state, "/test:echo_2 ?ask it");
            let waiting: Vec<_> = state.outbox.waiting.iter().map(|(_, text, _)| text.clone()).collect();
            assert_eq!(waiting, ["ask it"]);
            // What could be no name of a command of the terminal is said, as ever.
            say(&mut state, "/2024 was a year");
            assert_eq!(state.outbox.waiting.len(), 2);
        }
    }

    #[test]
    fn menu_lists_commands_from_elsewhere() {
        let host = host();
        let mut state = state(&host, false);
        for letter in "/test".chars() {
            state.on(UiEvent::Key(KeyCode::Char(letter).into()), 0);
        }
        let seen: Vec<_> =
            crate::view(&state, Size { columns: 100, rows: 40 }).lines.iter().map(Line::text).collect();
        assert!(
            seen.iter().any(|line| line.contains("test:echo_2") && line.contains("say it again")),
            "{seen:?}"
        );
    }

    #[test]
    fn name_that_is_nearly_one_of_theirs_is_named() {
        let known = host().commands.list();
        assert_eq!(commands::nearest("test:ecko_2", &known), Some("test:echo_2"));
        assert_eq!(commands::nearest("tes", &known), Some("test:echo_2"));
    }
}
