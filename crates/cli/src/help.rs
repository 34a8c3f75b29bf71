//! `quipu --help` on one screen, and `quipu help` for the rest.

use std::ffi::OsString;
use std::io::Write as _;

use clap::{Command, CommandFactory as _, FromArgMatches as _};

use crate::args::{Cli, Cmd, HelpArgs, Task};
use crate::exit::Failure;
use crate::mcp::McpArgs;
use crate::pi_helper::PiHelperArgs;
use crate::print::printable;

/// Commands under their headings, as `quipu --help` has them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Set up", &["demo", "auth", "config", "doctor", "import", "models", "permissions", "setup"]),
    ("Extend", &["agents", "mcp", "packages", "skills", "tools", "update"]),
    ("Find", &["sessions", "search", "log", "files", "usage", "show", "tree", "open", "context"]),
    ("Explain", &["blame", "life", "trace", "recall", "diff", "git"]),
    ("Go back", &["fork", "branch", "undo", "redo", "tobe", "merge", "clone", "compact"]),
    ("Organize", &["memory", "past", "label", "bookmark", "rename", "rm"]),
    ("Automate", &["acp", "export", "dream", "proxy", "schedule", "serve", "hash"]),
];

const BEGINNING: &str = "\
A coding agent that keeps every step, so that you can go back to any of them.

Usage: quipu [OPTIONS] [\"TASK\"]   Open the terminal; with a task, start on it
       quipu -p \"TASK\"            Run one task, print the answers and exit
       quipu COMMAND [...]

Commands:
";

const END: &str = "
Options:
  -c, --continue           Continue the newest session of this directory
      --session ID         Continue a session: its id or its name
      --model PATTERN      Choose the model
      --permissions MODE   What needs no question: ask, workspace, full
      --max-cost USD       End a run that costs more
  -h, --help, -V, --version

`quipu help COMMAND` explains a command, `quipu help all` has everything.
";

/// What others call commands of ours.
const ELSEWHERE: [(&str, &str); 13] = [
    ("login", "auth login PROVIDER"),
    ("logout", "auth remove PROVIDER"),
    ("resume", "-c"),
    ("continue", "-c"),
    ("list", "sessions"),
    ("ls", "sessions"),
    ("history", "log"),
    ("settings", "config"),
    ("upgrade", "update"),
    ("version", "--version"),
    ("run", "-p"),
    ("exec", "-p"),
    ("print", "-p"),
];

/// First words that are no task also when another word follows.
const NO_TASKS: [&str; 6] = ["login", "logout", "completion", "completions", "mcp", "plugin"];

/// The help of one screen.
pub(crate) fn short() -> String {
    let mut text = BEGINNING.to_owned();
    for (heading, names) in GROUPS {
        text.push_str(&format!("  {:<11}{}\n", format!("{heading}:"), names.join(", ")));
    }
    text + END
}

/// What the arguments of this process say; ends the process where they are wrong or ask for help.
pub(crate) fn arguments() -> Cli {
    if let Some(command) = started_by_programs() {
        return Cli { command: Some(command), task: Task::default() };
    }
    let matches = Cli::command().override_help(short()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Commands as other programs start them, for each session of theirs: what reads all arguments that there may be takes
/// longer, and more memory, than these need to begin.
fn started_by_programs() -> Option<Cmd> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(3).collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["mcp", "serve"] => Some(Cmd::Mcp(McpArgs::serve())),
        ["pi-helper"] => Some(Cmd::PiHelper(PiHelperArgs::default())),
        _ => None,
    }
}

/// `quipu help`.
pub(crate) fn run(args: &HelpArgs) -> Result<(), Failure> {
    let mut all = Cli::command();
    all.build();
    let mut command = &mut all;
    match args.topic.as_slice() {
        [] => {
            crate::console::stdout().write_all(short().as_bytes())?;
            return Ok(());
        }
        [topic] if topic == "all" => {}
        topics => {
            for topic in topics {
                let near = quipu_providers::nearest(topic, names_of(command).into_iter());
                command = match command.find_subcommand_mut(topic) {
                    Some(found) => found,
                    None => return Err(no_topic(topic, near.first())),
                };
            }
        }
    }
    command.print_long_help()?;
    Ok(())
}

fn no_topic(topic: &str, near: Option<&String>) -> Failure {
    let topic = printable(topic);
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Failure::usage(format!("there is no command `{topic}`{near} `quipu help all` lists all of them"))
}

fn names_of(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.map(|one| one.get_name().to_owned()).collect()
}

/// Refuses a task that looks like a command: it would cost money.
///
/// # Errors
/// For one bare word, and for the name of what other agents have as a command.
pub(crate) fn refuse_command(words: &[String]) -> Result<(), Failure> {
    let Some(first) = words.first() else { return Ok(()) };
    let is_bare = first.starts_with(|c: char| c.is_ascii_lowercase())
        && first.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let looks_so = match words {
        [_] => is_bare,
        [_, second] => is_bare && !second.contains(' ') && NO_TASKS.contains(&first.as_str()),
        _ => false,
    };
    if !looks_so {
        return Ok(());
    }
    let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| theirs == first).map(|(_, ours)| (*ours).to_owned());
    let near = || quipu_providers::nearest(first, names_of(&Cli::command()).into_iter()).into_iter().next();
    let meant = elsewhere.or_else(near);
    let meant = meant.map_or(".".to_owned(), |ours| format!("; did you mean `quipu {ours}`?"));
    Err(Failure::usage(format!(
        "there is no command `{first}`{meant} `quipu --help` lists the commands. To send it as a task: quipu -p \"{}\"",
        words.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_fits_a_screen_and_has_each_command_once() {
        let text = short();
        assert!(text.lines().count() <= 24, "{} lines", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut there = names_of(&Cli::command());
        there.retain(|name| name != "help");
        listed.sort_unstable();
        there.sort();
        assert_eq!(listed, there);
    }

    #[test]
    fn bare_word_is_no_task() {
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            refuse_command(&words).err().map(|failure| failure.message)
        };
        for words in [&["completions"][..], &["resume"], &["fix"], &["completions", "bash"], &["mcp", "list"]]
        {
            let message = refused(words).unwrap();
            assert!(message.contains(&format!("there is no command `{}`", words[0])), "{message}");
            assert!(message.contains(&format!("quipu -p \"{}\"", words.join(" "))), "{message}");
        }
        assert!(refused(&["serach"]).unwrap().contains("did you mean `quipu search`?"));
        assert!(refused(&["resume"]).unwrap().contains("did you mean `quipu -c`?"));
        for words in
            [&["fix it"][..], &["resume", "the", "work"], &["Hello"], &["why?"], &["mcp", "list", "them"]]
        {
            assert_eq!(refused(words), None);
        }
    }
}
