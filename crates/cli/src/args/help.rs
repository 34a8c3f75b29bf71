//! The end of the full help, and the arguments of `quipu help`.

use clap::Args;

/// The end of the full help.
pub(crate) const END_OF_ALL: &str = "Exit codes: 0 done; 1 the task or command failed; 2 wrong usage or unknown name; \
    3 no credential, or it was refused; 4 the store cannot be used; 5 a limit was reached; \
    6 a tool behaved differently from the recording; 9 the answer does not fit --output-schema; 129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM.\n\
    Without a task, on a terminal: opens it (`?` there lists keys and commands). Without a key: `quipu demo`. Files: $QUIPU_HOME (default ~/.quipu).";

/// A command to explain.
#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// The command, and its subcommand if it has one; `all` for every command and option.
    #[arg(value_name = "COMMAND")]
    pub(crate) topic: Vec<String>,
}
