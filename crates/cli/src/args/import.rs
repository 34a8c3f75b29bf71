//! What is imported.

use std::path::PathBuf;

use clap::Args;

use super::OutArgs;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The agent, or the export of an account (a ZIP file or its unpacked folder). Default: lists what all agents
    /// keep on this machine and asks.
    #[arg(value_name = "AGENT|FILE")]
    pub(crate) agent: Option<String>,
    /// A session file, an export, or a directory of them; with --state the state directory. Default: where that agent keeps
    /// its sessions, or its state.
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only print what would be imported.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep importing what is written, until Ctrl-C.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
    /// Take over settings instead of sessions: of `pi`, `claude-code`, `codex`, or of all. Says what has no counterpart.
    #[arg(long, conflicts_with_all = ["watch", "path", "yes"])]
    pub(crate) settings: bool,
    /// Take over a whole state directory of `openclaw`, which PATH names: agents, conversations with their sessions, credentials,
    /// approvals of commands and jobs. What is here already stays. Says what has no counterpart.
    #[arg(long, conflicts_with_all = ["watch", "settings", "yes"])]
    pub(crate) state: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}
