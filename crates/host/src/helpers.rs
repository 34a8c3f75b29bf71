//! Programs that the command starts itself, found where no confined command could have put them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_providers::{NoShell, Shell};
use quipu_workspace::Helpers;

use crate::{Home, SilentObserver, current_dir};

/// Those of this process, not from where commands of sessions in the current directory may write, whether or not one is
/// open.
pub fn helpers() -> Arc<Helpers> {
    if let (Ok(home), Ok(here)) = (Home::find(None, Arc::new(SilentObserver)), current_dir()) {
        keep_from(&home, &here, &[]);
    }
    Helpers::of_this_process()
}

/// From now on no program is taken from where commands of a session in `cwd` may write, to which these are added.
pub fn keep_from(home: &Home, cwd: &Path, added: &[PathBuf]) {
    let mut places = crate::permissions::open_to_commands(home, cwd);
    places.extend(added.iter().filter_map(|path| path.canonicalize().ok()));
    Helpers::keep_from(places.iter().map(PathBuf::as_path));
}

/// The shell for commands, as they find it.
pub fn command_shell() -> Option<PathBuf> {
    let helpers = helpers();
    helpers.find("/bin/bash").or_else(|| helpers.find("bash")).or_else(|| helpers.find("sh"))
}

/// What runs the `!command`s of the user's files.
pub(crate) fn shell(home: &Path) -> Arc<Shell> {
    let home = if home.is_dir() { home.to_path_buf() } else { "/".into() };
    Arc::new(move |line| helpers().shell(line, &home).map_err(|error| NoShell(error.into())))
}
