//! What a toolbox is made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quipu_seal::Sealer;
use quipu_workspace::{EditorFiles, ProcessRegistry};

use crate::clock::Clock;
use crate::command_environment::CommandEnvironment;
use crate::outputs::Outputs;
use crate::policy::Policy;

/// What a toolbox is made of.
pub(crate) struct ToolboxParts {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cwd: PathBuf,
    pub(crate) outputs: Outputs,
    pub(crate) env: Arc<[(String, Option<String>)]>,
    /// Adds to `env` for each command.
    pub(crate) command_environment: Option<Arc<dyn CommandEnvironment>>,
    /// Holds files with changes that are not saved.
    pub(crate) editor: Option<Arc<dyn EditorFiles>>,
    /// What people leave running in the shell.
    pub(crate) processes: Arc<ProcessRegistry>,
    /// Changes with the model.
    pub(crate) sees_images: AtomicBool,
}
