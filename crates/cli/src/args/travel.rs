//! What can be said of the graph: looking at it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OutArgs;

/// Which nodes are shown.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum NodeFilter {
    /// All but those that are no messages.
    #[default]
    Default,
    /// No results of tools.
    NoTools,
    /// Only what the user said.
    UserOnly,
    /// All.
    All,
}

#[derive(Debug, Args)]
pub(crate) struct LifeArgs {
    /// A node (its hash or the beginning of it, a bookmark, `ext:ID`), or a session for its last one. Without it: the
    /// newest session of this directory; on a terminal, where there are several, you are asked which.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// Nodes before it.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) ancestors: usize,
    /// Levels below its children.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) depth: usize,
    /// Which nodes are shown.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: NodeFilter,
    /// Neither what follows it nor what else follows its parent.
    #[arg(long)]
    pub(crate) no_children: bool,
    /// Draw it again whenever the store changes, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    pub(crate) watch: bool,
    /// Draw it into this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecallArgs {
    /// A node (its hash or the beginning of it, a bookmark, `HEAD`, `ext:ID`), or a session for its last one.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: String,
    /// Characters to show in all, at most 50,000.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=50_000))]
    pub(crate) budget: u64,
    /// Characters of the node to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
    /// Characters to show of each node before it; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) context: u64,
    /// Nodes before it at most.
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) depth: usize,
    /// Which nodes before it are shown.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: NodeFilter,
    /// List so many of the nodes that follow it, at most 50.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) children: usize,
    /// List so many of the other nodes that follow its parent, at most 50.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) siblings: usize,
    /// Which agent and model wrote it.
    #[arg(long)]
    pub(crate) config: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Which rows of the action log are shown.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum RowFilter {
    /// Where a session was opened, and where it went to another node with a message to itself.
    #[default]
    Default,
    /// Also where another session was gone to.
    Switches,
    /// All.
    All,
}

/// Whose rows of the action log are shown.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum RowScope {
    /// Of what leads to the node, and where that was left.
    #[default]
    Lineage,
    /// Of its session.
    Session,
    /// Of all sessions of its session's directory.
    Project,
    /// All.
    All,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// A node (its hash or the beginning of it, a bookmark, `ext:ID`), or a session for its last one. Without it: the
    /// newest session of this directory; on a terminal, where there are several, you are asked which.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// Which rows are shown.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: RowFilter,
    /// Whose rows are shown.
    #[arg(long, value_enum, default_value = "lineage")]
    pub(crate) scope: RowScope,
    /// Rows at most, the newest.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A node (its hash or the beginning of it, a bookmark, `ext:ID`), or a session for its last one.
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// Another one.
    #[arg(value_name = "B")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}
