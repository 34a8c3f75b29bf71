//! A command line without a command: read without what all the commands take, for to describe them takes longer than
//! anything else of a start.

use std::ffi::OsString;

use clap::Parser;

use super::{Cli, Task};

#[derive(Parser)]
#[command(name = "quipu")]
struct Plain {
    #[command(flatten)]
    task: Task,
}

/// What was said on the command line. Help, and what is wrong, is told here, and ends the process.
pub(crate) fn parse() -> Cli {
    let words: Vec<OsString> = std::env::args_os().collect();
    plain(&words).unwrap_or_else(|| Cli::parse_from(words))
}

/// `None` where there may be a command, or something to tell: that knows all commands.
fn plain(words: &[OsString]) -> Option<Cli> {
    // Behind a flag there is no command, only a task; behind these, only something to tell.
    let telling = ["-h", "--help", "-V", "--version"];
    if words.get(1).is_some_and(|word| {
        !word.as_encoded_bytes().starts_with(b"-") || telling.iter().any(|flag| word == flag)
    }) {
        return None;
    }
    let Plain { task } = Plain::try_parse_from(words).ok()?;
    Some(Cli { command: None, task })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both readings of a command line; the first where it is read without the commands.
    fn read(line: &str) -> (Option<String>, Result<String, clap::error::ErrorKind>) {
        let words: Vec<OsString> =
            std::iter::once("quipu").chain(line.split_whitespace()).map(OsString::from).collect();
        let whole = Cli::try_parse_from(&words).map(|cli| format!("{cli:?}"));
        (plain(&words).map(|cli| format!("{cli:?}")), whole.map_err(|error| error.kind()))
    }

    #[test]
    fn a_task_is_read_as_with_all_commands() {
        for line in [
            "",
            "-p hello",
            "-p tree",
            "-p help",
            "-c",
            "-pc and then sessions",
            "--store x sessions --limit",
            "--session a --model b -p show it --thinking high",
            "--permissions full --add-dir a --add-dir b -- tree --all",
            "-- tree",
            "-- -p",
            "- tree",
            "--max-turns 3 --max-cost 0.5 @file word",
            "--max-turns -1 hello",
            "--mode json --ask-on-stdin --no-session -p x",
        ] {
            let (plain, whole) = read(line);
            assert_eq!(plain, whole.ok(), "{line:?}");
        }
    }

    #[test]
    fn commands_and_what_is_to_be_told_are_left_to_the_whole() {
        for line in [
            "tree",
            "sessions --all",
            "help",
            "hello",
            "--help",
            "-h",
            "-V",
            "--version",
            "--unknown",
            "-p --session a -c",
            "--session",
            "--thinking much",
        ] {
            assert_eq!(read(line).0, None, "{line:?}");
        }
    }
}
