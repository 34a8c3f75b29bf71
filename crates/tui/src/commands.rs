//! What can be said with a slash. One table: what completes it, helps with it and does it comes from here.

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What may follow; empty for nothing.
    pub arguments: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// What it does.
    pub does: Does,
    /// Whether what may follow is known, and offered.
    pub completes: bool,
}

/// What a slash command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// The navigator of the session.
    Tree,
    /// Go on with another session.
    Resume,
    /// A new session from a message of this one.
    Fork,
    /// A new session with the same past.
    Clone,
    /// A new session.
    New,
    /// Take back what moved the session last.
    Undo,
    /// Do it again.
    Redo,
    /// Sum up.
    Compact,
    /// Another model.
    Model,
    /// How hard it thinks.
    Thinking,
    /// The user's settings: one of them, or all in an editor.
    Settings,
    /// A word for where the session stands.
    Label,
    /// A name for the session.
    Name,
    /// Find something in all sessions, to choose from.
    Search,
    /// What the command of the same name prints.
    Report(Report),
    /// A credential.
    Login,
    /// Take in sessions of other agents.
    Import,
    /// See it work.
    Demo,
    /// The last answer goes to the clipboard.
    Copy,
    /// Something is sent when the work is done.
    Later,
    /// What waits last comes back.
    Unqueue,
    /// What was sent before, to choose from.
    History,
    /// What comes is shown in full, or folded.
    Unfold,
    /// The text is written in the user's editor.
    Edit,
    /// This table, and the keys.
    Help,
    /// Leave.
    Quit,
}

impl Does {
    /// Whether what it comes to depends on the session that is open.
    pub(crate) fn is_of_the_session(self) -> bool {
        match self {
            Self::Tree
            | Self::Fork
            | Self::Clone
            | Self::Undo
            | Self::Redo
            | Self::Compact
            | Self::Label
            | Self::Name => true,
            Self::Report(report) => report != Report::AsSaid,
            _ => false,
        }
    }
}

/// What a command of the same name needs to know of where we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Nothing: what is said goes on.
    AsSaid,
    /// Where nothing is said: the session.
    Session,
    /// Where nothing is said: the node that the session stands at.
    Node,
    /// The session behind what is said.
    Export,
    /// Behind the name that is said: the node that the session stands at.
    Bookmark,
    /// Two nodes; where one is said: that one and the node that the session stands at.
    Diff,
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    does: Does,
) -> SlashCommand {
    SlashCommand { name, arguments, help, does, completes: false }
}

/// One whose arguments are offered.
const fn offers(name: &'static str, arguments: &'static str, help: &'static str, does: Does) -> SlashCommand {
    SlashCommand { completes: true, ..command(name, arguments, help, does) }
}

/// All of them, in the order in which they are listed.
pub const COMMANDS: &[SlashCommand] = &[
    command("help", "", "the keys and the commands", Does::Help),
    command("tree", "", "walk the session: fold, search, filter, label, go there", Does::Tree),
    offers("resume", "[WORDS]", "go on with another session of any directory or agent", Does::Resume),
    command("new", "", "begin a new session", Does::New),
    offers("fork", "[NODE]", "a new session from before a message of yours", Does::Fork),
    command("clone", "", "a new session with the same past", Does::Clone),
    offers("undo", "[STEPS]", "take back what moved the session last: a jump, a turn", Does::Undo),
    offers("redo", "[STEPS]", "do again what was undone", Does::Redo),
    offers(
        "bookmark",
        "[NAME]",
        "name the node that the session stands at; list the names",
        Does::Report(Report::Bookmark),
    ),
    offers("label", "[TEXT]", "label the node that the session stands at", Does::Label),
    command("name", "[TEXT]", "name the session", Does::Name),
    command("search", "[WORDS]", "find what was said and done, in all sessions", Does::Search),
    offers("recall", "[NODE]", "a node in full, with what was said before it", Does::Report(Report::Node)),
    offers("life", "[NODE]", "the graph around a node", Does::Report(Report::Node)),
    offers("diff", "A [B]", "what two branches did since they parted", Does::Report(Report::Diff)),
    offers("usage", "[OPTIONS]", "tokens and cost", Does::Report(Report::AsSaid)),
    command(
        "context",
        "",
        "what fills the context, and what the next turn costs",
        Does::Report(Report::Session),
    ),
    command("compact", "[FOCUS]", "sum the context up, except for its end", Does::Compact),
    offers("model", "[NAME]", "another model from the next turn on", Does::Model),
    offers("thinking", "[LEVEL]", "how hard the model thinks", Does::Thinking),
    offers(
        "permissions",
        "[ACTION]",
        "what tools may do here; change or revoke it",
        Does::Report(Report::AsSaid),
    ),
    offers(
        "export",
        "[FORMAT] [FILE]",
        "write the session: markdown, html, json or pi",
        Does::Report(Report::Export),
    ),
    command("later", "TEXT", "send it when the work is done", Does::Later),
    command("unqueue", "", "take back what waits last", Does::Unqueue),
    command("history", "", "what you sent before, to take one of it", Does::History),
    command("unfold", "", "show in full what comes from now on, or fold it", Does::Unfold),
    command("edit", "[TEXT]", "write in your editor", Does::Edit),
    command("copy", "", "the last answer to the clipboard", Does::Copy),
    offers("settings", "[NAME VALUE]", "what holds by default; settings.json in your editor", Does::Settings),
    offers("login", "[PROVIDER]", "keep a key for a provider", Does::Login),
    offers("import", "[AGENT]", "take in sessions of other agents", Does::Import),
    command("demo", "", "see a whole task done by a scripted model", Does::Demo),
    command("quit", "", "leave; the session is kept", Does::Quit),
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

/// Words of a line as a shell would have them, as far as quotes go.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut open) = (String::new(), None, false);
    for letter in line.chars() {
        match quote {
            Some(mark) if letter == mark => quote = None,
            Some(_) => word.push(letter),
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                open = true;
            }
            None if letter.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            None => word.push(letter),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
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

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(r#" a "b c"  'd "e' "" f"#), ["a", "b c", "d \"e", "", "f"]);
        assert_eq!(words("an 'open one"), ["an", "open one"]);
    }
}
