//! Arguments of the commands that read the graph.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OutArgs;

/// Which nodes to show.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum NodeFilter {
    /// All messages
    #[default]
    Default,
    /// All messages except tool results
    NoTools,
    /// Only messages of the user
    UserOnly,
    /// Everything
    All,
}

#[derive(Debug, Args)]
pub(crate) struct LifeArgs {
    /// A node (its hash or the start of it, a bookmark, `ext:ID`), or a session for its last node. Default: the newest session of this directory; on a terminal, with several sessions, asks which.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// Show N nodes before it.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) ancestors: usize,
    /// Show N levels below its children.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) depth: usize,
    /// Which nodes to show.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: NodeFilter,
    /// Hide the nodes that follow it and the other children of its parent.
    #[arg(long)]
    pub(crate) no_children: bool,
    /// Redraw when the store changes, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    pub(crate) watch: bool,
    /// Write an SVG picture to this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecallArgs {
    /// A node (its hash or the start of it, a bookmark, `HEAD`, `ext:ID`), or a session for its last node.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: String,
    /// Show at most N characters in total, up to 50,000.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=50_000))]
    pub(crate) budget: u64,
    /// Skip N characters of the node.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
    /// Show N characters of each node before it; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) context: u64,
    /// Show at most N nodes before it.
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) depth: usize,
    /// Which nodes before it to show.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: NodeFilter,
    /// List N of its children, at most 50.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) children: usize,
    /// List N of the other children of its parent, at most 50.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) siblings: usize,
    /// Show which agent and model wrote it.
    #[arg(long)]
    pub(crate) config: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Which rows of the action log to show.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum RowFilter {
    /// Where a session was opened, and where it jumped to another node with a message to itself
    #[default]
    Default,
    /// Also switches to another session
    Switches,
    /// Everything
    All,
}

/// Whose rows of the action log to show.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum RowScope {
    /// Of the lineage of the node, and where it was left
    #[default]
    Lineage,
    /// Of its session
    Session,
    /// Of all sessions of its session's directory
    Project,
    /// Everything
    All,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// A node (its hash or the start of it, a bookmark, `ext:ID`), or a session for its last node. Default: the newest session of this directory; on a terminal, with several sessions, asks which.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// Which rows to show.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) filter: RowFilter,
    /// Whose rows to show.
    #[arg(long, value_enum, default_value = "lineage")]
    pub(crate) scope: RowScope,
    /// Show the newest N rows.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A node (its hash or the start of it, a bookmark, `ext:ID`), or a session for its last node.
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The node to compare it with.
    #[arg(value_name = "B")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}
