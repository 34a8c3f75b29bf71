//! Which built-in tools a session has, by what confines its commands and by whether they may run in the background.

use std::sync::Arc;

use quipu::{
    BackgroundTool, Confinement, Tool, builtin, builtin_confined, builtin_contained, builtin_isolated,
    builtin_with_background,
};

use crate::{SavedPermissions, ToolAdapter};

/// The built-in tools.
pub(crate) fn shell_tools(permissions: &SavedPermissions, background: bool) -> Vec<Arc<dyn Tool>> {
    let confinement = match (permissions.isolates(), permissions.confines()) {
        _ if permissions.contains() => Confinement::Container,
        (true, _) => Confinement::Namespaces,
        (false, true) => Confinement::Files,
        (false, false) => Confinement::None,
    };
    match (background, confinement) {
        (true, confinement) => builtin_with_background(confinement),
        (false, Confinement::None) => builtin(),
        (false, Confinement::Files) => builtin_confined(),
        (false, Confinement::Namespaces) => builtin_isolated(),
        (false, Confinement::Container) => builtin_contained(),
    }
}

/// Puts another tool in the place of `bash`.
pub(crate) fn adapt_shell(tools: &mut [Arc<dyn Tool>], adapt: &ToolAdapter) {
    for tool in tools.iter_mut().filter(|tool| tool.spec().name == "bash") {
        *tool = adapt(tool.clone());
    }
}

/// `background` goes where `bash` is not offered.
pub(crate) fn keep_with_bash(tools: &mut Vec<Arc<dyn Tool>>) {
    if tools.iter().all(|tool| tool.spec().name != "bash") {
        tools.retain(|tool| tool.spec().name != BackgroundTool::NAME);
    }
}
