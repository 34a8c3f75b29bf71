//! How much is asked in a run.

use clap::ValueEnum;

/// How much is asked, or plan mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunModeArg {
    /// Ask for every command and every change
    Ask,
    /// Confine commands to the workspace; ask for files elsewhere
    Workspace,
    /// Never ask and confine nothing
    Full,
    /// Only read, until a person accepts a plan. For this session; the mode of the directory stays
    Plan,
}

impl RunModeArg {
    /// The mode that is kept for the directory.
    pub(crate) fn kept(self) -> Option<quipu::PermissionMode> {
        match self {
            Self::Ask => Some(quipu::PermissionMode::Ask),
            Self::Workspace => Some(quipu::PermissionMode::Workspace),
            Self::Full => Some(quipu::PermissionMode::Full),
            Self::Plan => None,
        }
    }
}
