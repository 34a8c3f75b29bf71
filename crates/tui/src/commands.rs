//! What can be said with a slash. One table: what completes it, helps with it and does it comes from here; each row
//! stands with its feature.

use crate::command::SlashCommand;
use crate::features::{
    credentials, first, fork, help, history, messages, models, moves, reports, search, sessions, settings,
    tree, ways,
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
    reports::CONTEXT,
    moves::COMPACT,
    models::MODEL,
    models::THINKING,
    reports::PERMISSIONS,
    reports::EXPORT,
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

/// The command that a line begins with, and what follows it. `None` where the line is none: it has no slash, or what
/// stands behind that is no name (a path, a word of another program).
pub(crate) fn parse(line: &str) -> Option<Result<(&'static SlashCommand, &str), &str>> {
    let rest = line.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
        return None;
    }
    let found = COMMANDS.iter().find(|command| command.name == name);
    Some(found.map(|command| (command, arguments.trim())).ok_or(name))
}

/// The command that was perhaps meant: one that begins so, or that differs by two letters at most.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let begins = COMMANDS.iter().find(|command| command.name.starts_with(name));
    let near = || {
        let far = |command: &&SlashCommand| distance(name.as_bytes(), command.name.as_bytes());
        COMMANDS.iter().min_by_key(far).filter(|command| far(command) <= 2.min(name.len() / 2))
    };
    begins.or_else(near).map(|command| command.name)
}

/// How many letters are to be put in, taken out or changed to make one name of another.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != theirs);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_can_be_typed_and_stand_once() {
        let mut names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        for command in COMMANDS {
            assert_eq!(parse(&format!("/{} a  b ", command.name)), Some(Ok((command, "a  b"))));
            assert!(!command.help.ends_with('.') && command.help.len() <= 60, "{}", command.help);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COMMANDS.len());
    }

    #[test]
    fn what_is_no_command_is_said_to_the_model() {
        for line in ["/usr/bin", "/", "/ help", "no", "/Help me"] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert_eq!(parse("/nothing here"), Some(Err("nothing")));
    }

    #[test]
    fn what_was_meant() {
        for (name, expect) in [
            ("lgin", Some("login")),
            ("modle", Some("model")),
            ("comp", Some("compact")),
            ("xyz", None),
            ("x", None),
            ("helpme", Some("help")),
        ] {
            assert_eq!(nearest(name), expect, "{name}");
        }
        assert_eq!(nearest(&"a".repeat(10_000)), None);
    }
}
