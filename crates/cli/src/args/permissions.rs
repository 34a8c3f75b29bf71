//! Arguments of `quipu permissions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ModeArg;

/// What a permission rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectArg {
    /// No question.
    Allow,
    /// A question, in every mode.
    Ask,
    /// It does not run, in every mode.
    Deny,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PermissionsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PermissionsAction>,
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionsAction {
    /// List the mode of each directory and everything that is always allowed.
    List,
    /// Add a permission rule for this directory, such as `allow 'bash(git status *)'`.
    Add {
        /// What the rule says.
        #[arg(value_enum)]
        effect: EffectArg,
        /// The rule: `TOOL` or `TOOL(PATTERN)`.
        rule: String,
        /// Add it for every directory.
        #[arg(long)]
        everywhere: bool,
    },
    /// Explain what the permissions of this directory say of a call, without making it. Exits with 0 if it runs, 7 if a
    /// person is asked, 8 if it is denied.
    Test {
        /// The command line; with `--tool`, the path, the host, or nothing.
        #[arg(value_name = "CMD|PATH", default_value = "", hide_default_value = true)]
        subject: String,
        /// The tool: `bash`, `read`, `write`, `edit`, `network`, or another.
        #[arg(long, default_value = "bash")]
        tool: String,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Accept a rules file (such as `AGENTS.md`) that a command of the model created, as it is now.
    Accept {
        /// The file.
        file: PathBuf,
    },
    /// Revoke a permission or an added directory.
    Revoke {
        /// Its name in the list, such as `p3`.
        id: String,
    },
    /// The same as `set ask`.
    Ask,
    /// The same as `set workspace`.
    Workspace,
    /// The same as `set full`.
    Full,
    /// Set when to ask in this directory, also in open sessions.
    Set {
        /// When to ask.
        #[arg(value_enum)]
        mode: ModeArg,
    },
}
