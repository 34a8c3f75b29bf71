//! What the permissions of a session are made of.

use std::path::PathBuf;

use quipu_rules::RuleSet;
use quipu_workspace::{Cache, CommandNeeds, Containers, Namespaces, Network, SandboxSupport};

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionMode {
    /// Every command and every change is asked; commands are confined as well.
    Ask,
    /// Free within the workspace: commands are confined to it, files elsewhere are asked.
    #[default]
    Workspace,
    /// Everything that the user can do, unasked and unconfined.
    Full,
}

impl PermissionMode {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Workspace => "workspace",
            Self::Full => "full",
        }
    }

    /// The one of the two that asks more.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ask, _) | (_, Self::Ask) => Self::Ask,
            (Self::Workspace, _) | (_, Self::Workspace) => Self::Workspace,
            (Self::Full, Self::Full) => Self::Full,
        }
    }
}

/// Whether tools and commands of a session change its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceAccess {
    /// They do.
    #[default]
    Write,
    /// They read it. Commands write in their directory for temporary files alone, and no file tool writes anything.
    Read,
}

/// Whether a model may take its session to earlier points of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TravelRule {
    /// A person is asked each time, in every mode; without one it is refused.
    #[default]
    Ask,
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// What the permissions of a session are made of. All paths are absolute.
#[derive(Debug, Clone, Default)]
pub struct PermissionRules {
    /// How much is asked.
    pub mode: PermissionMode,
    /// The directory of the session.
    pub cwd: PathBuf,
    /// More directories where tools may work as in `cwd`.
    pub add_dirs: Vec<PathBuf>,
    /// Directories and files that tools may read, such as kept outputs.
    pub read: Vec<PathBuf>,
    /// Our own directory, which tools never change.
    pub own: PathBuf,
    /// The user's home, below which programs keep secrets.
    pub home: Option<PathBuf>,
    /// Directories and files that commands may write as well. One that is reached through a place where commands may
    /// write is left out: they could let it lead anywhere.
    pub command_write: Vec<PathBuf>,
    /// The same, made when they are missing and wanted: [`caches`](crate::caches).
    pub caches: Vec<Cache>,
    /// Where what commands write to caches that are not shared is kept: a directory of the project, made when it is missing. `None`: they
    /// write to the caches themselves.
    pub cache_layers: Option<PathBuf>,
    /// Whether confined commands can use the network: in namespaces they ask for it by default, without them they can.
    pub network: Network,
    /// Whether tools and commands change the workspace.
    pub workspace: WorkspaceAccess,
    /// The containers that commands run in, in place of namespaces. The mode `full` counts as `workspace` then, and where the
    /// workspace is read-only.
    pub containers: Option<Containers>,
    /// What runs commands in namespaces, where the system has them; without it Landlock alone confines them.
    pub namespaces: Option<Namespaces>,
    /// What commands may do without asking where they would have to ask.
    pub needs: CommandNeeds,
    /// What the system can do; [`SandboxSupport::of_this_system`].
    pub support: Option<SandboxSupport>,
    /// Whether the model may go to earlier points of its session.
    pub travel: TravelRule,
    /// What the user allows, wants to be asked about and denies, by tool, command, path and host.
    pub rules: RuleSet,
}
