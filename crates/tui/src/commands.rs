//! What can be said with a slash. One table: what completes it, helps with it and does it comes from here; each row
//! stands with its feature.

use quipu_host::commands::BUILT_IN;
use quipu_protocol::CommandSpec;
use strsim::levenshtein;

use crate::command::SlashCommand;
use crate::features::{
    agents, background, credentials, first, fork, help, history, messages, models, moves, past, planning,
    reports, search, sessions, settings, tree, ways,
};

/// All of them, in the order in which they are listed.
pub const COMMANDS: &[SlashCommand] = &[
    help::HELP,
    tree::TREE,
    sessions::RESUME,
    sessions::NEW,
    fork::FORK,
    sessions::CLONE,
    moves::UNDO,
    moves::REDO,
    reports::BOOKMARK,
    ways::LABEL,
    moves::NAME,
    search::SEARCH,
    reports::RECALL,
    reports::LIFE,
    reports::DIFF,
    reports::USAGE,
    reports::DREAM,
    reports::CONTEXT,
    reports::SKILLS,
    reports::MEMORY,
    past::PAST,
    agents::AGENTS,
    moves::COMPACT,
    models::MODEL,
    models::THINKING,
    planning::PLAN,
    reports::PERMISSIONS,
    reports::EXPORT,
    background::BACKGROUND,
    messages::LATER,
    messages::UNQUEUE,
    history::HISTORY,
    messages::UNFOLD,
    messages::EDIT,
    messages::COPY,
    settings::SETTINGS,
    credentials::LOGIN,
    first::IMPORT,
    first::DEMO,
    sessions::QUIT,
    #[cfg(test)]
    crate::features::example::COUNT,
];

/// The table as the host's registry holds it.
pub(crate) fn specs() -> Vec<CommandSpec> {
    let spec = |command: &SlashCommand| CommandSpec {
        name: command.name.to_owned(),
        arguments: command.arguments.to_owned(),
        help: command.help.to_owned(),
        source: BUILT_IN.to_owned(),
        completes: command.completes,
    };
    COMMANDS.iter().map(spec).collect()
}

/// A line that may be a command: a name and its arguments.
pub(crate) struct CommandLine<'a> {
    pub(crate) name: &'a str,
    /// What follows it.
    pub(crate) arguments: &'a str,
}

/// What a line says as a command. `None` where it is none: it has no slash, or what stands behind that is no name (a path,
/// a word of another program).
pub(crate) fn written(line: &str) -> Option<CommandLine<'_>> {
    let rest = line.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":_-".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_letter);
    is_name.then_some(CommandLine { name, arguments: arguments.trim() })
}

/// The command of the table with this name.
pub(crate) fn own(name: &str) -> Option<&'static SlashCommand> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Whether the name is made as those of the table are.
pub(crate) fn could_be_own(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// The command that was perhaps meant: one that begins so, or that differs by two letters at most.
pub(crate) fn nearest<'a>(name: &str, known: &'a [CommandSpec]) -> Option<&'a str> {
    let begins = known.iter().find(|command| command.name.starts_with(name));
    let near = || {
        let far = |command: &&CommandSpec| levenshtein(name, &command.name);
        known.iter().min_by_key(far).filter(|command| far(command) <= 2.min(name.len() / 2))
    };
    begins.or_else(near).map(|command| command.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_can_be_typed_and_stand_once() {
        let mut names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        for command in COMMANDS {
            let line = format!("/{} a  b ", command.name);
            let CommandLine { name, arguments } = written(&line).unwrap();
            assert_eq!((own(name), arguments), (Some(command), "a  b"));
            assert!(could_be_own(name));
            assert!(!command.help.ends_with('.') && command.help.len() <= 60, "{}", command.help);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COMMANDS.len());
    }

    #[test]
    fn line_without_a_command_name_is_a_message() {
        for line in ["/usr/bin", "/", "/ help", "no", "/Help me"] {
            assert!(written(line).is_none(), "{line}");
        }
        assert_eq!(own(written("/nothing here").unwrap().name), None);
        assert!(!could_be_own("2024") && !could_be_own("a:b"));
    }

    #[test]
    fn misspelled_command_suggests_the_nearest() {
        for (name, expect) in [
            ("lgin", Some("login")),
            ("modle", Some("model")),
            ("comp", Some("compact")),
            ("xyz", None),
            ("x", None),
            ("helpme", Some("help")),
        ] {
            assert_eq!(nearest(name, &specs()), expect, "{name}");
        }
        assert_eq!(nearest(&"a".repeat(10_000), &specs()), None);
    }
}
